// What was thrown, as { name, message, stack, oom }: from data properties only, so no guest code runs.
const { describeThrown } = (() => {
  const {
    ErrorPrototypeGetStack, InternalErrorPrototype, ObjectPrototypeHasOwnProperty,
    ReflectGetOwnPropertyDescriptor, ReflectGetPrototypeOf, StringPrototypeEndsWith,
    WeakSetPrototypeHas, ArrayIsArray,
  } = primordials;

  const MAX_CHARS = 4000;
  const MAX_CAUSES = 8;
  const MAX_MEMBERS = 10;

  // Whether memory ran out is for the worker to decide, by the allocator; this is what it looks like.
  const LOOKS_NORMAL = 0;
  const ENGINE_OUT_OF_MEMORY = 1;
  const NULL_THROWN = 2; // the engine throws null when it can't even make an error
  // An interrupt can't be caught, but some natives turn it into a rejection all the same.
  const INTERRUPTED = 3;

  function ownData(object, key) {
    const descriptor = ReflectGetOwnPropertyDescriptor(object, key);
    return descriptor !== undefined && ObjectPrototypeHasOwnProperty(descriptor, "value")
      ? descriptor.value : undefined;
  }

  function stackOf(error) {
    const own = ownData(error, "stack");
    if (own !== undefined) return typeof own === "string" ? own : "";
    if (ErrorPrototypeGetStack === undefined) return "";
    try {
      const stack = ErrorPrototypeGetStack(error);
      return typeof stack === "string" ? stack : "";
    } catch {
      return "";
    }
  }

  function headline(value) {
    return isErrorObject(value) ? errorHeadline(value) : formatText(value, 500);
  }

  function line(text) {
    return text === "" || StringPrototypeEndsWith(text, "\n") ? text : `${text}\n`;
  }

  // The error's own frames, then its causes and members, each with its frames.
  function stackText(error) {
    let text = line(stackOf(error));
    let current = error;
    const seen = newList();
    for (let i = 0; i < MAX_CAUSES && text.length < MAX_CHARS; i++) {
      seen[i] = current;
      const errors = unwrapProxy(ownData(current, "errors"));
      if (ArrayIsArray(errors)) text += memberText(errors);
      if (ReflectGetOwnPropertyDescriptor(current, "cause") === undefined) break;
      const cause = unwrapProxy(ownData(current, "cause"));
      text += `[cause]: ${headline(cause)}\n`;
      if (!isErrorObject(cause)) break;
      let isCycle = false;
      for (let k = 0; k <= i; k++) if (seen[k] === cause) isCycle = true;
      if (isCycle) break;
      text += line(stackOf(cause));
      current = cause;
    }
    return text;
  }

  function memberText(errors) {
    let text = "";
    const length = ownData(errors, "length");
    for (let i = 0; i < length && i < MAX_MEMBERS && text.length < MAX_CHARS; i++) {
      const member = unwrapProxy(ownData(errors, `${i}`));
      text += `[errors]: ${headline(member)}\n`;
      if (isErrorObject(member)) text += line(stackOf(member));
    }
    if (length > MAX_MEMBERS) text += `[errors]: ... ${length - MAX_MEMBERS} more\n`;
    return text;
  }

  function record(name, message, stack, oom) {
    return {
      __proto__: null,
      name: wellFormed(cutText(name, 200, 0)),
      message: wellFormed(cutText(message, MAX_CHARS, 0)),
      stack: wellFormed(cutText(stack, MAX_CHARS, 0)),
      oom,
    };
  }

  function describeThrown(thrown) {
    const value = unwrapProxy(thrown);
    if (!isErrorObject(value)) {
      const oom = thrown === null ? NULL_THROWN : LOOKS_NORMAL;
      return record("Error", formatText(value, MAX_CHARS), "", oom);
    }
    const foundName = dataProperty(value, "name");
    const foundMessage = dataProperty(value, "message");
    let name = typeof foundName === "string" && foundName !== "" ? foundName : "Error";
    let message = typeof foundMessage === "string" ? foundMessage : "";
    let oom = LOOKS_NORMAL;
    if (ReflectGetPrototypeOf(value) === InternalErrorPrototype
      && !WeakSetPrototypeHas(guestMadeErrors, value)) {
      if (message === "out of memory") oom = ENGINE_OUT_OF_MEMORY;
      else if (message === "interrupted") oom = INTERRUPTED;
      else if (message === "stack overflow") {
        // The classic engine's word for it; the standard one is what a model knows.
        name = "RangeError";
        message = "Maximum call stack size exceeded";
      }
    }
    return record(name, message, stackText(value), oom);
  }

  return { __proto__: null, describeThrown };
})();
