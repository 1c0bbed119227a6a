// What an object is to a snapshot: how it is written, or why it is lost. Runs no guest code.
const { chainOf, exportOf, isRestorable, lostTypeOf, platform, snapshotKind, typeName } = (() => {
  const P = primordials;
  const {
    ArrayIsArray, FunctionPrototype, FunctionPrototypeToString, MapPrototypeGet, MapPrototypeHas,
    MapPrototypeSet, ObjectPrototypeHasOwnProperty, ReflectGetOwnPropertyDescriptor, ReflectGetPrototypeOf,
    StringPrototypeIncludes, StringPrototypeSlice, StringPrototypeStartsWith,
    TypedArrayPrototypeGetSymbolToStringTag, globalThis, Map,
  } = P;

  // Prototypes whose instances hold nothing, or nothing that can't be read: each with the check that
  // an object really is one (null: nothing to check).
  const roots = new Map();
  const root = (prototype, kind, check) => {
    if (prototype !== undefined) MapPrototypeSet(roots, prototype, { __proto__: null, kind, check });
  };
  const isView = (value) => {
    if (TypedArrayPrototypeGetSymbolToStringTag(value) === undefined) throw value;
  };
  root(P.ObjectPrototype, "Object", null);
  root(P.ArrayPrototype, "Object", null);
  root(P.IteratorPrototype, "Object", null);
  root(P.MapPrototype, "Map", P.MapPrototypeGetSize);
  root(P.SetPrototype, "Set", P.SetPrototypeGetSize);
  root(P.DatePrototype, "Date", P.DatePrototypeGetTime);
  root(P.RegExpPrototype, "RegExp", P.RegExpPrototypeGetSource);
  root(P.ArrayBufferPrototype, "ArrayBuffer", P.ArrayBufferPrototypeGetByteLength);
  root(P.DataViewPrototype, "DataView", P.DataViewPrototypeGetByteOffset);
  root(P.NumberPrototype, "Boxed", P.NumberPrototypeValueOf);
  root(P.StringPrototype, "Boxed", P.StringPrototypeValueOf);
  root(P.BooleanPrototype, "Boxed", P.BooleanPrototypeValueOf);
  root(P.SymbolPrototype, "Boxed", P.SymbolPrototypeValueOf);
  root(P.BigIntPrototype, "Boxed", P.BigIntPrototypeValueOf);
  const views = [
    "Int8Array", "Uint8Array", "Uint8ClampedArray", "Int16Array", "Uint16Array", "Int32Array",
    "Uint32Array", "BigInt64Array", "BigUint64Array", "Float16Array", "Float32Array", "Float64Array",
  ];
  for (let i = 0; i < views.length; i++) root(P[`${views[i]}Prototype`], "TypedArray", isView);
  const errors = [
    "Error", "EvalError", "RangeError", "ReferenceError", "SyntaxError", "TypeError", "URIError",
    "InternalError", "AggregateError", "SuppressedError",
  ];
  for (let i = 0; i < errors.length; i++) root(P[`${errors[i]}Prototype`], "Object", null);
  root(DOMException.prototype, "Object", null);

  // Classes of ours, by what their getters tell.
  const getter = (prototype, key) => primordials.uncurryThis(
    ReflectGetOwnPropertyDescriptor(prototype, key).get,
  );
  const { URL, URLSearchParams, TextEncoder, TextDecoder } = globalThis;
  const platform = {
    __proto__: null,
    href: getter(URL.prototype, "href"),
    searchParams: getter(URL.prototype, "searchParams"),
    formText: primordials.uncurryThis(URLSearchParams.prototype.toString),
    encoding: getter(TextDecoder.prototype, "encoding"),
    fatal: getter(TextDecoder.prototype, "fatal"),
    ignoreBOM: getter(TextDecoder.prototype, "ignoreBOM"),
  };
  root(URL.prototype, "URL", platform.href);
  root(URLSearchParams.prototype, "URLSearchParams", platform.formText);
  root(TextEncoder.prototype, "TextEncoder", getter(TextEncoder.prototype, "encoding"));
  root(TextDecoder.prototype, "TextDecoder", platform.encoding);

  const MAX_CHAIN = 200;

  const isData = (descriptor) => descriptor !== undefined
    && ObjectPrototypeHasOwnProperty(descriptor, "value");

  function ownData(object, key) {
    const descriptor = ReflectGetOwnPropertyDescriptor(object, key);
    return isData(descriptor) ? descriptor.value : undefined;
  }

  // The function or class whose `prototype` this object is, as far as it says so itself.
  function constructorOf(prototype) {
    const constructor = ownData(prototype, "constructor");
    if (typeof constructor !== "function" || isProxy(constructor)) return undefined;
    return ownData(constructor, "prototype") === prototype ? constructor : undefined;
  }

  function nameOf(fn) {
    const name = fn === undefined ? undefined : ownData(fn, "name");
    return typeof name === "string" ? wellFormed(StringPrototypeSlice(name, 0, 60)) : "";
  }

  function isClass(fn) {
    return StringPrototypeStartsWith(FunctionPrototypeToString(fn), "class");
  }

  // Whether a function comes back as itself; a class only with all it inherits from.
  function isRestorable(fn, state) {
    const known = state.restorable;
    let at = fn;
    for (let i = 0; i < MAX_CHAIN; i++) {
      const answer = MapPrototypeGet(known, at);
      if (answer !== undefined) {
        MapPrototypeSet(known, fn, answer);
        return answer;
      }
      const proof = proofOf(at);
      let done = proof === undefined ? false : undefined;
      if (baseNameOf(at) !== undefined || exportOf(at, state) !== undefined) done = true;
      else if (done === undefined && proof.kind === "M") {
        at = proof.owner;
        continue;
      } else if (done === undefined && (proof.kind !== "c" || !proof.heritage)) done = true;
      if (done === undefined) {
        const parent = ReflectGetPrototypeOf(at);
        if (parent === FunctionPrototype) done = true; // extends null
        else if (typeof parent !== "function" || isProxy(parent)) done = false;
        else {
          at = parent;
          continue;
        }
      }
      MapPrototypeSet(known, fn, done);
      return done;
    }
    return false;
  }

  // The module and name under which something is exported, if it is: { id, name }.
  function exportOf(object, state) {
    if (state.exports === null) return undefined;
    if (state.exports === undefined) {
      const isUsed = primordials.MapPrototypeGetSize(modulesById) !== 0;
      state.exports = isUsed ? collectModuleExports() : null;
      return exportOf(object, state);
    }
    return MapPrototypeGet(state.exports, object);
  }

  // What a prototype chain leads to: { root, lost, hasToJSON }. `root` is the entry of the first
  // prototype that the engine or we made, `lost` the type of what can't come back ("": ask the object).
  function chainOf(prototype, state) {
    const cached = MapPrototypeGet(state.chains, prototype);
    if (cached !== undefined) return cached;
    let at = prototype;
    let hasToJSON = false;
    let answer = null;
    for (let i = 0; answer === null; i++) {
      if (at === null) answer = found(plainRoot, hasToJSON);
      else if (i === MAX_CHAIN) answer = lost("");
      else if (isProxy(at)) answer = lost("Proxy");
      else if (MapPrototypeHas(roots, at)) answer = found(MapPrototypeGet(roots, at), hasToJSON);
      else {
        if (ReflectGetOwnPropertyDescriptor(at, "toJSON") !== undefined) hasToJSON = true;
        const constructor = constructorOf(at);
        // A class of the host's preload code or of a module stands in every session, but it may
        // keep its instances' data where nobody else can read it.
        const isForeign = baseNameOf(at) !== undefined
          || (constructor !== undefined && exportOf(constructor, state) !== undefined);
        if (isForeign ? constructor === undefined || !isOpen(constructor)
          : constructor !== undefined && !isRestorable(constructor, state)) {
          answer = lost(nameOf(constructor));
        } else at = ReflectGetPrototypeOf(at);
      }
    }
    MapPrototypeSet(state.chains, prototype, answer);
    return answer;
  }

  const plainRoot = MapPrototypeGet(roots, P.ObjectPrototype);
  const found = (entry, hasToJSON) => ({ __proto__: null, root: entry, lost: null, hasToJSON });
  const lost = (type) => ({ __proto__: null, root: null, lost: type, hasToJSON: false });

  function isOpen(constructor) {
    if (baseNameOf(constructor) !== undefined && !isPreloaded(constructor)) return false;
    const text = FunctionPrototypeToString(constructor);
    return StringPrototypeStartsWith(text, "class") && !StringPrototypeIncludes(text, "#");
  }

  // The kind under which an object is written; undefined when it can't be.
  function snapshotKind(object, entry, prototype) {
    if (ArrayIsArray(object)) return "Array";
    // An instance of a class, or without a prototype: no need to look closer.
    if (entry === plainRoot && prototype !== P.ObjectPrototype) return "Object";
    if (entry.check !== null) {
      try {
        entry.check(object);
        return entry.kind;
      } catch {
        // Only inherits from it, as `Object.create(Map.prototype)` does.
      }
    }
    if (isErrorObject(object)) return "Error";
    const kind = kindOf(object);
    return kind === "Object" ? isArgumentsObject(object) ? "Arguments" : "Object" : undefined;
  }

  function isArgumentsObject(object) {
    return ReflectGetOwnPropertyDescriptor(object, "callee") !== undefined
      && describeObject(object).kind === "Arguments";
  }

  // What a tombstone calls a value that is lost.
  function lostTypeOf(value) {
    if (isProxy(value)) return "Proxy";
    if (typeof value === "function") return isClass(value) ? "class" : "function";
    const tag = dataProperty(value, P.SymbolToStringTag);
    const text = typeof tag === "string" && tag !== "" ? tag : describeObject(value).name || "object";
    return wellFormed(StringPrototypeSlice(text, 0, 60));
  }

  // What a listing of globals calls a value.
  function typeName(value) {
    if (value === null) return "null";
    if (typeof value !== "object" && typeof value !== "function") return typeof value;
    if (isProxy(value)) return "Proxy";
    if (typeof value === "function") return isClass(value) ? "class" : "function";
    if (ArrayIsArray(value)) return "array";
    const { name } = describeObject(value);
    return name === null || name === "Object" ? "object" : wellFormed(StringPrototypeSlice(name, 0, 60));
  }

  return {
    __proto__: null, chainOf, exportOf, isRestorable, lostTypeOf, platform, snapshotKind, typeName,
  };
})();
