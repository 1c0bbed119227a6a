// The base image: which globals are the host's, and what preload code added, frozen.
{
  const {
    globalThis, ObjectFreeze, ObjectPrototypeHasOwnProperty, ReflectDefineProperty,
    ReflectGetOwnPropertyDescriptor, ReflectOwnKeys, Set, SetPrototypeAdd, SetPrototypeHas,
  } = primordials;

  // Objects of the engine and of the prelude: never frozen, a guest may extend them as it always could.
  const intrinsics = new Set();
  const tableKeys = ReflectOwnKeys(primordials);
  for (let i = 0; i < tableKeys.length; i++) addIntrinsic(primordials[tableKeys[i]]);
  const baseNames = ReflectOwnKeys(globalThis);
  for (let i = 0; i < baseNames.length; i++) {
    const descriptor = ReflectGetOwnPropertyDescriptor(globalThis, baseNames[i]);
    addIntrinsic(descriptor.value);
    if (ObjectPrototypeHasOwnProperty(descriptor, "value")) addIntrinsic(descriptor.value?.prototype);
  }
  const known = new Set();
  for (let i = 0; i < baseNames.length; i++) SetPrototypeAdd(known, baseNames[i]);

  function addIntrinsic(value) {
    if ((typeof value === "object" && value !== null) || typeof value === "function") {
      SetPrototypeAdd(intrinsics, value);
    }
  }

  function deepFreeze(root) {
    const queue = newList();
    queue[0] = root;
    for (let head = 0; head < queue.length; head++) {
      const value = queue[head];
      const isObject = (typeof value === "object" && value !== null) || typeof value === "function";
      if (!isObject || SetPrototypeHas(intrinsics, value)) continue;
      SetPrototypeAdd(intrinsics, value);
      try {
        ObjectFreeze(value);
      } catch {
        continue; // typed arrays can't be
      }
      const keys = ReflectOwnKeys(value);
      for (let i = 0; i < keys.length; i++) {
        const descriptor = ReflectGetOwnPropertyDescriptor(value, keys[i]);
        if (ObjectPrototypeHasOwnProperty(descriptor, "value")) queue[queue.length] = descriptor.value;
        else {
          queue[queue.length] = descriptor.get;
          queue[queue.length] = descriptor.set;
        }
      }
    }
  }

  // Called once, after the host's preload code ran and before any guest code.
  bridgeTable.freezeBase = () => {
    const names = ReflectOwnKeys(globalThis);
    let added = 0;
    for (let i = 0; i < names.length; i++) {
      if (SetPrototypeHas(known, names[i])) continue;
      SetPrototypeAdd(known, names[i]);
      const descriptor = ReflectGetOwnPropertyDescriptor(globalThis, names[i]);
      deepFreeze(descriptor.value);
      ReflectDefineProperty(globalThis, names[i], { __proto__: null, enumerable: false });
      nameBase(names[i]);
      added++;
    }
    return added;
  };

  bridgeTable.setGlobal = (name, json) => ReflectDefineProperty(globalThis, name, {
    __proto__: null, value: decodeValue(json), writable: true, enumerable: true, configurable: true,
  }) ? 1 : 0;
}
