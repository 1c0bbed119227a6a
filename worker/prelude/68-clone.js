// structuredClone, after the HTML standard: copies data, keeps identity and cycles, no more.
//
// Iterative, because guests build long chains: a stack of frames, one per container being filled.
// Getters of the guest run (the standard wants that); anything else read is captured.
{
  const {
    Array, ArrayBufferPrototypeGetByteLength, ArrayIsArray, BigIntPrototypeValueOf, Boolean,
    BooleanPrototypeValueOf, DataView, DataViewPrototypeGetBuffer, DataViewPrototypeGetByteLength,
    DataViewPrototypeGetByteOffset, Date: NativeDate, DatePrototypeGetTime, Error, EvalError, Map,
    MapPrototypeForEach, MapPrototypeGet, MapPrototypeSet, Number, NumberPrototypeValueOf, Object,
    ObjectDefineProperty, ObjectGetOwnPropertyDescriptor, ObjectGetPrototypeOf, ObjectKeys,
    ObjectPrototype, ObjectPrototypeHasOwnProperty, RangeError, ReferenceError, RegExp,
    RegExpPrototypeGetSource, Set, SetPrototypeAdd, SetPrototypeForEach, String,
    StringPrototypeValueOf, SyntaxError, TypeError, TypedArrayPrototypeGetBuffer,
    TypedArrayPrototypeGetByteOffset, TypedArrayPrototypeGetLength,
    TypedArrayPrototypeGetSymbolToStringTag, URIError, Uint8Array,
  } = primordials;

  const ERRORS = {
    __proto__: null, EvalError, RangeError, ReferenceError, SyntaxError, TypeError, URIError,
  };
  const VIEWS = { __proto__: null };
  const viewNames = [
    "Int8Array", "Uint8Array", "Uint8ClampedArray", "Int16Array", "Uint16Array", "Int32Array",
    "Uint32Array", "BigInt64Array", "BigUint64Array", "Float16Array", "Float32Array",
    "Float64Array",
  ];
  for (let i = 0; i < viewNames.length; i++) VIEWS[viewNames[i]] = primordials[viewNames[i]];
  // One getter per flag: RegExp.prototype.flags would read properties that a guest can shadow.
  const FLAGS = web.list();
  const flagNames = [
    ["d", "HasIndices"], ["g", "Global"], ["i", "IgnoreCase"], ["m", "Multiline"], ["s", "DotAll"],
    ["u", "Unicode"], ["v", "UnicodeSets"], ["y", "Sticky"],
  ];
  for (let i = 0; i < flagNames.length; i++) {
    const get = primordials[`RegExpPrototypeGet${flagNames[i][1]}`];
    if (get !== undefined) FLAGS[FLAGS.length] = { __proto__: null, letter: flagNames[i][0], get };
  }

  function refuse(what) {
    throw new DOMException(`${what} could not be cloned`, "DataCloneError");
  }

  // One descriptor for all: defining, unlike assigning, never reaches a setter on a prototype.
  const field = {
    __proto__: null, value: null, writable: true, enumerable: true, configurable: true,
  };
  function define(target, key, value) {
    field.value = value;
    ObjectDefineProperty(target, key, field);
    field.value = null;
  }

  function cloneBuffer(buffer) {
    const length = ArrayBufferPrototypeGetByteLength(buffer);
    return TypedArrayPrototypeGetBuffer(web.copyBytes(new Uint8Array(buffer), length));
  }

  function cloneRegExp(value) {
    let flags = "";
    for (let i = 0; i < FLAGS.length; i++) if (FLAGS[i].get(value)) flags += FLAGS[i].letter;
    return new RegExp(RegExpPrototypeGetSource(value), flags);
  }

  const isData = (descriptor) => descriptor !== undefined
    && ObjectPrototypeHasOwnProperty(descriptor, "value");

  // Every part goes through `add`: `memo` keeps identity, `stack` the containers to be filled.
  function structuredCopy(root) {
    const memo = new Map();
    const stack = web.list();

    const frame = (fill, source, target, keys, values) => {
      stack[stack.length] = { __proto__: null, fill, source, target, keys, values, at: 0 };
      return target;
    };

    function add(value) {
      if (typeof value === "symbol") refuse("a symbol");
      if (typeof value === "function") refuse("a function");
      if (typeof value !== "object" || value === null) return value;
      const known = MapPrototypeGet(memo, value);
      if (known !== undefined) return known;
      if (isProxy(value)) refuse("a Proxy");
      const copy = copyOf(value);
      MapPrototypeSet(memo, value, copy);
      return copy;
    }

    function copyOf(value) {
      if (ArrayIsArray(value)) {
        const { length } = value;
        return frame(fillObject, value, new Array(length), ObjectKeys(value), null);
      }
      const prototype = ObjectGetPrototypeOf(value);
      // The usual case first: it needs no brand check.
      if (prototype === ObjectPrototype || prototype === null) return plain(value);
      if (web.isPlatformObject(value)) refuse("a platform object");
      const kind = kindOf(value);
      const copier = COPIERS[kind];
      return copier === undefined ? plain(value) : copier(value, kind);
    }

    const plain = (value) => frame(fillObject, value, {}, ObjectKeys(value), null);
    const opaque = (_value, kind) => refuse(`a ${kind}`);
    const COPIERS = {
      __proto__: null,
      Map: copyOfMap,
      Set: copyOfSet,
      Error: copyOfError,
      TypedArray: copyOfView,
      DataView: copyOfView,
      Date: (value) => new NativeDate(DatePrototypeGetTime(value)),
      RegExp: cloneRegExp,
      ArrayBuffer: cloneBuffer,
      Number: (value) => new Number(NumberPrototypeValueOf(value)),
      String: (value) => new String(StringPrototypeValueOf(value)),
      Boolean: (value) => new Boolean(BooleanPrototypeValueOf(value)),
      BigInt: (value) => Object(BigIntPrototypeValueOf(value)),
      Symbol: opaque,
      Promise: opaque,
      WeakMap: opaque,
      WeakSet: opaque,
      WeakRef: opaque,
    };

    function copyOfMap(value) {
      const keys = web.list();
      const values = web.list();
      MapPrototypeForEach(value, (each, key) => {
        keys[keys.length] = key;
        values[values.length] = each;
      });
      return frame(fillMap, value, new Map(), keys, values);
    }

    function copyOfSet(value) {
      const keys = web.list();
      SetPrototypeForEach(value, (each) => { keys[keys.length] = each; });
      return frame(fillSet, value, new Set(), keys, null);
    }

    function copyOfView(value) {
      const name = TypedArrayPrototypeGetSymbolToStringTag(value);
      if (name === undefined) {
        return new DataView(add(DataViewPrototypeGetBuffer(value)),
          DataViewPrototypeGetByteOffset(value), DataViewPrototypeGetByteLength(value));
      }
      return new VIEWS[name](add(TypedArrayPrototypeGetBuffer(value)),
        TypedArrayPrototypeGetByteOffset(value), TypedArrayPrototypeGetLength(value));
    }

    function copyOfError(value) {
      const name = value.name;
      const known = typeof name === "string" ? ERRORS[name] : undefined;
      const target = new (known === undefined ? Error : known)();
      const message = ObjectGetOwnPropertyDescriptor(value, "message");
      if (isData(message)) web.hide(target, "message", `${message.value}`);
      const { stack: trace } = value;
      web.hide(target, "stack", typeof trace === "string" ? trace : "");
      const cause = ObjectGetOwnPropertyDescriptor(value, "cause");
      if (!isData(cause)) return target;
      return frame(fillCause, value, target, ["cause"], [cause.value]);
    }

    function fillObject({ source, target }, key) {
      // A getter that ran before may have deleted the key.
      if (ObjectPrototypeHasOwnProperty(source, key)) define(target, key, add(source[key]));
    }
    function fillCause({ target, values }) {
      web.hide(target, "cause", add(values[0]));
    }
    function fillMap({ target, values }, key, at) {
      MapPrototypeSet(target, add(key), add(values[at]));
    }
    function fillSet({ target }, key) {
      SetPrototypeAdd(target, add(key));
    }

    const result = add(root);
    while (stack.length !== 0) {
      const top = stack[stack.length - 1];
      if (top.at === top.keys.length) {
        stack.length -= 1;
        continue;
      }
      const at = top.at++;
      top.fill(top, top.keys[at], at);
    }
    return result;
  }

  const methods = {
    structuredClone(value, options = undefined) {
      web.requireArguments(arguments.length, 1, "structuredClone");
      // `transfer` is accepted but copies: not every engine can detach a buffer.
      return structuredCopy(value);
    },
  };
  defineGlobal("structuredClone", methods.structuredClone);
}
