// Every intrinsic, captured before guest code exists. Names follow Node's primordials.
//
// Statics are `ObjectKeys`, prototype methods are uncurried (`MapPrototypeGet(map, key)`), getters and
// setters are `MapPrototypeGetSize(map)`, symbol keys read `ArrayPrototypeSymbolIterator`. Whatever
// the guest does to the objects it can reach, these stay what they were.
//
// Still unsafe in the prelude, because the engine itself looks things up that a guest may have changed:
// array destructuring, spread and for-of (iterators); `list[n] = x` and push on ordinary arrays
// (setters on Array.prototype); property descriptors and options with a prototype; missing properties
// of ordinary objects; `.then`, `.constructor` and string conversion of guest objects.
const primordials = (() => {
  const { getOwnPropertyDescriptor, ownKeys } = Reflect;
  const { freeze } = Object;
  const { call, bind } = Function.prototype;
  const uncurryThis = bind.bind(call);
  const table = { __proto__: null, globalThis, uncurryThis };

  function capitalized(key) {
    if (typeof key === "symbol") return `Symbol${capitalized(key.description.slice("Symbol.".length))}`;
    return key[0].toUpperCase() + key.slice(1);
  }

  function addStatics(source, prefix, isBound) {
    for (const key of ownKeys(source)) {
      if (key === "prototype" || key === "length" || key === "name") continue;
      const descriptor = getOwnPropertyDescriptor(source, key);
      const name = capitalized(key);
      if (descriptor.get) table[`${prefix}Get${name}`] = uncurryThis(descriptor.get);
      else if (isBound && typeof descriptor.value === "function") {
        table[prefix + name] = descriptor.value.bind(source);
      } else table[prefix + name] = descriptor.value;
    }
  }

  function addPrototype(prototype, prefix) {
    for (const key of ownKeys(prototype)) {
      if (key === "constructor") continue;
      const descriptor = getOwnPropertyDescriptor(prototype, key);
      const name = capitalized(key);
      if (descriptor.get) table[`${prefix}Get${name}`] = uncurryThis(descriptor.get);
      if (descriptor.set) table[`${prefix}Set${name}`] = uncurryThis(descriptor.set);
      if (typeof descriptor.value === "function") {
        table[prefix + name] = uncurryThis(descriptor.value);
      }
    }
  }

  function addClass(constructor, name, isBound) {
    table[name] = constructor;
    table[`${name}Prototype`] = constructor.prototype;
    addStatics(constructor, name, isBound);
    if (constructor.prototype) addPrototype(constructor.prototype, `${name}Prototype`);
  }

  const { getPrototypeOf } = Object;
  for (const name of ["JSON", "Math", "Reflect", "Atomics"]) {
    if (globalThis[name]) addStatics(globalThis[name], name, false);
  }
  // Not every engine has all of them: those that are missing read as undefined.
  for (const name of [
    "Object", "Function", "Array", "String", "Number", "Boolean", "Symbol", "BigInt", "Date", "RegExp",
    "Map", "Set", "WeakMap", "WeakSet", "WeakRef", "FinalizationRegistry", "Proxy", "ArrayBuffer",
    "DataView", "Iterator", "Error", "EvalError", "RangeError", "ReferenceError", "SyntaxError",
    "TypeError", "URIError", "InternalError", "AggregateError", "SuppressedError", "DOMException",
  ]) {
    if (globalThis[name]) addClass(globalThis[name], name, false);
  }
  addClass(Promise, "Promise", true);
  addClass(getPrototypeOf(Int8Array), "TypedArray", false);
  for (const name of [
    "Int8Array", "Uint8Array", "Uint8ClampedArray", "Int16Array", "Uint16Array", "Int32Array",
    "Uint32Array", "BigInt64Array", "BigUint64Array", "Float16Array", "Float32Array", "Float64Array",
  ]) {
    if (globalThis[name]) addClass(globalThis[name], name, true);
  }
  for (const name of [
    "parseInt", "parseFloat", "isNaN", "isFinite", "decodeURI", "decodeURIComponent", "encodeURI",
    "encodeURIComponent", "escape", "unescape", "eval", "queueMicrotask", "atob", "btoa",
  ]) {
    table[name === "eval" ? "indirectEval" : name] = globalThis[name];
  }

  // Constructors and prototypes that have no global name.
  const hidden = {
    __proto__: null,
    AsyncFunction: getPrototypeOf(async () => {}),
    GeneratorFunction: getPrototypeOf(function* () {}),
    AsyncGeneratorFunction: getPrototypeOf(async function* () {}),
  };
  for (const name of ownKeys(hidden)) table[`${name}Prototype`] = hidden[name];
  const iterators = {
    __proto__: null,
    ArrayIterator: [][Symbol.iterator](),
    MapIterator: new Map()[Symbol.iterator](),
    SetIterator: new Set()[Symbol.iterator](),
    StringIterator: ""[Symbol.iterator](),
  };
  for (const name of ownKeys(iterators)) {
    const prototype = getPrototypeOf(iterators[name]);
    table[`${name}Prototype`] = prototype;
    addPrototype(prototype, `${name}Prototype`);
  }
  return freeze(table);
})();
