// Names for what every session has: the engine's objects, ours, and those of the host's preload code.
//
// A snapshot refers to them by name (`Array.prototype.map`), never by value, whatever the guest did to
// them. A global of the base image is a part of it only if a program put something else there.
const {
  baseNameOf, baseObject, isBaseGlobal, isPreloaded, isReplaceable, isReplaced, nameBase,
  symbolName, wellKnownSymbol,
} = (() => {
  const P = primordials;
  const {
    Map, MapPrototypeGet, MapPrototypeHas, MapPrototypeSet, ObjectIs, ObjectPrototypeHasOwnProperty,
    ReflectGetOwnPropertyDescriptor, ReflectGetPrototypeOf, ReflectOwnKeys, Symbol,
    SymbolPrototypeGetDescription, SymbolPrototypeToString, WeakSet, WeakSetPrototypeAdd,
    WeakSetPrototypeHas, globalThis,
  } = P;

  const names = new Map(); // object -> its name
  const objects = new Map(); // and back
  const globals = new Map(); // name -> its value in the base image; an accessor's: FIXED
  const FIXED = { __proto__: null };
  const preloaded = new WeakSet(); // objects of the host's preload code
  let isPreload = false;
  const symbols = new Map(); // well-known symbol <-> name
  const ownSymbols = ReflectOwnKeys(Symbol);
  for (let i = 0; i < ownSymbols.length; i++) {
    const value = Symbol[ownSymbols[i]];
    if (typeof value !== "symbol") continue;
    MapPrototypeSet(symbols, value, ownSymbols[i]);
    MapPrototypeSet(symbols, ownSymbols[i], value);
  }

  const isObject = (value) =>
    (typeof value === "object" && value !== null) || typeof value === "function";

  function walk(root, rootName) {
    const queue = newList();
    const found = (value, name) => {
      if (!isObject(value) || MapPrototypeHas(names, value)) return;
      MapPrototypeSet(names, value, name);
      MapPrototypeSet(objects, name, value);
      if (typeof value === "object") mark(value);
      if (isPreload) WeakSetPrototypeAdd(preloaded, value);
      queue[queue.length] = value;
    };
    found(root, rootName);
    for (let head = 0; head < queue.length; head++) {
      const object = queue[head];
      if (isProxy(object) || object === globalThis) continue;
      const name = MapPrototypeGet(names, object);
      const keys = ReflectOwnKeys(object);
      for (let i = 0; i < keys.length; i++) {
        const key = keys[i];
        const sub = typeof key === "string" ? `${name}.${key}` : `${name}.@@${symbolName(key)}`;
        const descriptor = ReflectGetOwnPropertyDescriptor(object, key);
        if (ObjectPrototypeHasOwnProperty(descriptor, "value")) found(descriptor.value, sub);
        else {
          found(descriptor.get, `${sub}<get>`);
          found(descriptor.set, `${sub}<set>`);
        }
      }
      found(ReflectGetPrototypeOf(object), `${name}.^`);
    }
  }

  function symbolName(symbol) {
    const known = MapPrototypeGet(symbols, symbol);
    if (known !== undefined) return known;
    const text = SymbolPrototypeGetDescription === undefined
      ? SymbolPrototypeToString(symbol) : SymbolPrototypeGetDescription(symbol);
    return text === undefined ? "" : text;
  }

  function nameBase(key) {
    const descriptor = ReflectGetOwnPropertyDescriptor(globalThis, key);
    const isFixed = descriptor === undefined || !descriptor.configurable
      || !ObjectPrototypeHasOwnProperty(descriptor, "value") || isReserved(key);
    MapPrototypeSet(globals, key, isFixed ? FIXED : descriptor.value);
    if (descriptor === undefined) return;
    const name = typeof key === "string" ? key : `@@${symbolName(key)}`;
    if (ObjectPrototypeHasOwnProperty(descriptor, "value")) walk(descriptor.value, name);
    // Ours that are put back at each eval; an accessor of preload code is never run.
    else if (key === "console" || key === "tools") walk(globalThis[key], name);
  }

  MapPrototypeSet(names, globalThis, "globalThis");
  MapPrototypeSet(objects, "globalThis", globalThis);
  mark(globalThis);
  const keys = ReflectOwnKeys(globalThis);
  for (let i = 0; i < keys.length; i++) nameBase(keys[i]);
  walk(task, "task"); // a global in some sessions only
  // What has no global name.
  const hidden = [
    "AsyncFunctionPrototype", "GeneratorFunctionPrototype", "AsyncGeneratorFunctionPrototype",
    "ArrayIteratorPrototype", "MapIteratorPrototype", "SetIteratorPrototype",
    "StringIteratorPrototype", "TypedArrayPrototype",
  ];
  for (let i = 0; i < hidden.length; i++) walk(P[hidden[i]], `%${hidden[i]}`);
  isPreload = true; // whatever is named from now on

  return {
    __proto__: null,
    baseNameOf(object) { return MapPrototypeGet(names, object); },
    baseObject(name) { return MapPrototypeGet(objects, name); },
    isPreloaded(object) { return WeakSetPrototypeHas(preloaded, object); },
    isBaseGlobal(key) { return MapPrototypeHas(globals, key) || isReserved(key); },
    // Whether a guest's program may put a value of its own in the place of a base image's, and
    // whether one has.
    isReplaceable(key) { return !isReserved(key) && MapPrototypeGet(globals, key) !== FIXED; },
    isReplaced(key) {
      const base = MapPrototypeGet(globals, key);
      const descriptor = ReflectGetOwnPropertyDescriptor(globalThis, key);
      return !isReserved(key) && base !== FIXED && descriptor !== undefined
        && !(ObjectPrototypeHasOwnProperty(descriptor, "value") && ObjectIs(descriptor.value, base));
    },
    nameBase,
    symbolName,
    // The name of a well-known symbol, or the symbol of that name; undefined if there is none.
    wellKnownSymbol(either) { return MapPrototypeGet(symbols, either); },
  };
})();
