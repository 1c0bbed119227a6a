// DOMException: the error type of the web globals.
//
// Ours on every engine: the classic one has none, and quickjs-ng's keeps name and message behind
// prototype getters, where the error report (own data properties only, so that no guest
// getter runs) would not find them.
const DOMException = (() => {
  const { Error, ErrorPrototype, ObjectDefineProperty, ObjectSetPrototypeOf, ReflectConstruct,
    TypeError } = primordials;

  const codes = {
    __proto__: null,
    IndexSizeError: ["INDEX_SIZE_ERR", 1], HierarchyRequestError: ["HIERARCHY_REQUEST_ERR", 3],
    WrongDocumentError: ["WRONG_DOCUMENT_ERR", 4],
    InvalidCharacterError: ["INVALID_CHARACTER_ERR", 5],
    NoModificationAllowedError: ["NO_MODIFICATION_ALLOWED_ERR", 7],
    NotFoundError: ["NOT_FOUND_ERR", 8], NotSupportedError: ["NOT_SUPPORTED_ERR", 9],
    InUseAttributeError: ["INUSE_ATTRIBUTE_ERR", 10], InvalidStateError: ["INVALID_STATE_ERR", 11],
    SyntaxError: ["SYNTAX_ERR", 12], InvalidModificationError: ["INVALID_MODIFICATION_ERR", 13],
    NamespaceError: ["NAMESPACE_ERR", 14], InvalidAccessError: ["INVALID_ACCESS_ERR", 15],
    TypeMismatchError: ["TYPE_MISMATCH_ERR", 17], SecurityError: ["SECURITY_ERR", 18],
    NetworkError: ["NETWORK_ERR", 19], AbortError: ["ABORT_ERR", 20],
    URLMismatchError: ["URL_MISMATCH_ERR", 21], QuotaExceededError: ["QUOTA_EXCEEDED_ERR", 22],
    TimeoutError: ["TIMEOUT_ERR", 23], InvalidNodeTypeError: ["INVALID_NODE_TYPE_ERR", 24],
    DataCloneError: ["DATA_CLONE_ERR", 25],
  };

  function DOMException(message = "", name = "Error") {
    if (new.target === undefined) {
      throw new TypeError("Class constructor DOMException cannot be invoked without 'new'");
    }
    const text = `${message}`;
    const title = typeof name === "object" && name !== null ? undefined : `${name}`;
    const error = ReflectConstruct(Error, [text], new.target);
    web.hide(error, "message", text);
    web.hide(error, "name", title === undefined ? "Error" : title);
    if (title === undefined && "cause" in name) web.hide(error, "cause", name.cause);
    if (title === undefined && name.name !== undefined) web.hide(error, "name", `${name.name}`);
    const entry = codes[error.name];
    web.hide(error, "code", entry === undefined ? 0 : entry[1]);
    return error;
  }

  const prototype = DOMException.prototype;
  ObjectSetPrototypeOf(prototype, ErrorPrototype);
  ObjectDefineProperty(DOMException, "prototype", { __proto__: null, writable: false });
  ObjectDefineProperty(DOMException, "length", { __proto__: null, value: 0 });
  web.tag(DOMException, "DOMException");
  for (const name in codes) {
    const constant = { __proto__: null, value: codes[name][1], enumerable: false };
    ObjectDefineProperty(DOMException, codes[name][0], constant);
    ObjectDefineProperty(prototype, codes[name][0], constant);
  }
  defineGlobal("DOMException", DOMException);
  return DOMException;
})();
