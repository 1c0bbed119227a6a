// Tombstones: what stands for a value that could not be restored. Touching one says what was lost.
const { makeTombstone, tombstoneOf } = (() => {
  const {
    Error, ObjectCreate, ObjectSetPrototypeOf, Proxy, StringPrototypeSlice, WeakMap,
    WeakMapPrototypeGet, WeakMapPrototypeSet,
  } = primordials;

  const about = new WeakMap(); // tombstone, and its target -> { path, type, callable }

  const show = (target) => {
    const { path, type } = WeakMapPrototypeGet(about, target);
    return `[not restored: ${type} ${path}]`;
  };
  const objectPrototype = ObjectCreate(null);
  const functionPrototype = ObjectCreate(null);
  registerInspector(objectPrototype, show);
  registerInspector(functionPrototype, show);

  const traps = [
    "apply", "construct", "defineProperty", "deleteProperty", "get", "getOwnPropertyDescriptor",
    "getPrototypeOf", "has", "isExtensible", "ownKeys", "preventExtensions", "set", "setPrototypeOf",
  ];

  function makeTombstone(path, type, callable) {
    const info = { __proto__: null, path: StringPrototypeSlice(path, 0, 200), type, callable };
    const touched = () => {
      throw new Error(
        `Value for '${info.path}' was not restored because it is not serializable (type: ${info.type}).`,
      );
    };
    const handler = { __proto__: null };
    for (let i = 0; i < traps.length; i++) handler[traps[i]] = touched;
    const target = callable
      ? ObjectSetPrototypeOf(function () {}, functionPrototype) : ObjectCreate(objectPrototype);
    const tombstone = registerProxy(new Proxy(target, handler), target);
    WeakMapPrototypeSet(about, tombstone, info);
    WeakMapPrototypeSet(about, target, info);
    return tombstone;
  }

  return {
    __proto__: null, makeTombstone,
    tombstoneOf(object) { return WeakMapPrototypeGet(about, object); },
  };
})();
