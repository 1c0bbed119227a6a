// What a value is, found out without running guest code: no getter, no trap, no toString.
//
// Relies on three facts: a proxy is recognised (12-hardening) before anything is asked of it; descriptor
// and prototype look-ups on anything else run no code; brands are checked by captured native methods.
const { dataProperty, describeObject, isErrorObject, isPromiseLike, kindOf, unwrapProxy } = (() => {
  const P = primordials;
  const {
    ArrayIsArray, ErrorIsError, Map, MapPrototypeGet, MapPrototypeSet, ObjectPrototype,
    ObjectPrototypeHasOwnProperty, ObjectPrototypeToString, ReflectGetOwnPropertyDescriptor,
    ReflectGetPrototypeOf, SymbolToStringTag, TypedArrayPrototypeGetSymbolToStringTag,
  } = P;

  // A guest can build a prototype chain of any length; ours to walk is this much of it.
  const MAX_CHAIN = 200;

  const kinds = new Map(); // prototype -> { name, check }: a native brand check, or null
  function kind(name, prototype, check) {
    if (prototype !== undefined) MapPrototypeSet(kinds, prototype, { __proto__: null, name, check });
  }
  kind("Map", P.MapPrototype, P.MapPrototypeGetSize);
  kind("Set", P.SetPrototype, P.SetPrototypeGetSize);
  kind("Date", P.DatePrototype, P.DatePrototypeGetTime);
  kind("RegExp", P.RegExpPrototype, P.RegExpPrototypeGetSource);
  kind("Promise", P.PromisePrototype, null);
  kind("WeakMap", P.WeakMapPrototype, (value) => P.WeakMapPrototypeHas(value, value));
  kind("WeakSet", P.WeakSetPrototype, (value) => P.WeakSetPrototypeHas(value, value));
  kind("WeakRef", P.WeakRefPrototype, P.WeakRefPrototypeDeref);
  kind("ArrayBuffer", P.ArrayBufferPrototype, P.ArrayBufferPrototypeGetByteLength);
  kind("DataView", P.DataViewPrototype, P.DataViewPrototypeGetBuffer);
  kind("Number", P.NumberPrototype, P.NumberPrototypeValueOf);
  kind("String", P.StringPrototype, P.StringPrototypeValueOf);
  kind("Boolean", P.BooleanPrototype, P.BooleanPrototypeValueOf);
  kind("Symbol", P.SymbolPrototype, P.SymbolPrototypeValueOf);
  kind("BigInt", P.BigIntPrototype, P.BigIntPrototypeValueOf);
  kind("Error", P.ErrorPrototype, null);

  // The names of what the engine made: a guest may tamper with `constructor`, not with these.
  const names = new Map(); // prototype -> name
  const makers = [
    "Object", "Function", "Array", "Map", "Set", "WeakMap", "WeakSet", "WeakRef", "Date", "RegExp", "Promise",
    "ArrayBuffer", "DataView", "Number", "String", "Boolean", "Symbol", "BigInt", "Error", "Int8Array",
    "Uint8Array", "Uint8ClampedArray", "Int16Array", "Uint16Array", "Int32Array", "Uint32Array",
    "BigInt64Array", "BigUint64Array", "Float16Array", "Float32Array", "Float64Array",
  ];
  for (let i = 0; i < makers.length; i++) {
    const prototype = P[`${makers[i]}Prototype`];
    if (prototype !== undefined) MapPrototypeSet(names, prototype, makers[i]);
  }

  function unwrapProxy(value) {
    let target = value;
    for (let i = 0; i < 1000 && isProxy(target); i++) target = proxyTarget(target);
    return target;
  }

  function step(object) {
    const next = ReflectGetPrototypeOf(object);
    return next !== null && isProxy(next) ? null : next;
  }

  // The value of a data property, own or inherited; undefined for accessors and absent ones.
  function dataProperty(object, key) {
    let holder = object;
    for (let i = 0; i < MAX_CHAIN && holder !== null; i++) {
      const descriptor = ReflectGetOwnPropertyDescriptor(holder, key);
      if (descriptor !== undefined) {
        return ObjectPrototypeHasOwnProperty(descriptor, "value") ? descriptor.value : undefined;
      }
      holder = step(holder);
    }
    return undefined;
  }

  function hasBrand(check, value) {
    try {
      check(value);
      return true;
    } catch {
      return false;
    }
  }

  function isErrorObject(value) {
    if (typeof value !== "object" || value === null || isProxy(value)) return false;
    if (ErrorIsError !== undefined) return ErrorIsError(value);
    // Engines without Error.isError: the builtin tag is a brand unless a toStringTag hides it.
    let holder = value;
    for (let i = 0; i < MAX_CHAIN && holder !== null; i++) {
      if (ReflectGetOwnPropertyDescriptor(holder, SymbolToStringTag) !== undefined) {
        return inherits(value, P.ErrorPrototype);
      }
      const next = ReflectGetPrototypeOf(holder);
      if (next !== null && isProxy(next)) return false;
      holder = next;
    }
    return holder === null && ObjectPrototypeToString(value) === "[object Error]";
  }

  function inherits(value, prototype) {
    let holder = value;
    for (let i = 0; i < MAX_CHAIN && holder !== null; i++) {
      if (holder === prototype) return true;
      holder = step(holder);
    }
    return false;
  }

  function isArguments(object) {
    if (ReflectGetOwnPropertyDescriptor(object, "callee") === undefined) return false;
    return ReflectGetOwnPropertyDescriptor(object, SymbolToStringTag) === undefined
      && ReflectGetOwnPropertyDescriptor(ObjectPrototype, SymbolToStringTag) === undefined
      && ObjectPrototypeToString(object) === "[object Arguments]";
  }

  // The kind alone: what the encoder asks for each object that isn't plainly plain.
  function kindOf(object) {
    if (ArrayIsArray(object)) return "Array";
    if (TypedArrayPrototypeGetSymbolToStringTag(object) !== undefined) return "TypedArray";
    let holder = ReflectGetPrototypeOf(object);
    for (let i = 0; i < MAX_CHAIN && holder !== null && !isProxy(holder); i++) {
      const known = MapPrototypeGet(kinds, holder);
      if (known !== undefined) {
        if (known.name === "Error") return isErrorObject(object) ? "Error" : "Object";
        return known.check === null || hasBrand(known.check, object) ? known.name : "Object";
      }
      holder = ReflectGetPrototypeOf(holder);
    }
    // An error of a chain that doesn't end in Error.prototype (setPrototypeOf) is one all the same.
    return isErrorObject(object) ? "Error" : "Object";
  }

  // { kind, name, tag }: `name` is that of the constructor, null for an object without one.
  function describeObject(object) {
    const prototype = ReflectGetPrototypeOf(object);
    if (prototype === ObjectPrototype && !isErrorObject(object)) {
      const own = ReflectGetOwnPropertyDescriptor(object, SymbolToStringTag);
      if (own === undefined) {
        const plain = isArguments(object) ? "Arguments" : "Object";
        return { __proto__: null, kind: plain, name: "Object", tag: "" };
      }
    }
    const found = kindOf(object);
    let name = null;
    // Its own `constructor` property doesn't make data an instance of anything.
    let holder = step(object);
    for (let i = 0; i < MAX_CHAIN && holder !== null && name === null; i++) {
      const known = MapPrototypeGet(names, holder);
      if (known !== undefined) {
        name = known;
        break;
      }
      const descriptor = ReflectGetOwnPropertyDescriptor(holder, "constructor");
      if (descriptor !== undefined && ObjectPrototypeHasOwnProperty(descriptor, "value")
        && typeof descriptor.value === "function" && !isProxy(descriptor.value)) {
        const own = ReflectGetOwnPropertyDescriptor(descriptor.value, "name");
        if (own !== undefined && ObjectPrototypeHasOwnProperty(own, "value")
          && typeof own.value === "string" && own.value !== "") name = own.value;
      }
      holder = step(holder);
    }
    const tag = dataProperty(object, SymbolToStringTag);
    return {
      __proto__: null, kind: found, name, tag: typeof tag === "string" && tag !== name ? tag : "",
    };
  }

  return {
    __proto__: null, dataProperty, describeObject, isErrorObject, kindOf, unwrapProxy,
    isPromiseLike(value) { return inherits(value, P.PromisePrototype); },
  };
})();
