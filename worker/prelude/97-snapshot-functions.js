// The survey of functions and classes, and of the prototypes that came with them.
//
// One that is proven is written as its source, with what was changed about it since. Its methods and
// its prototype are mentioned only if something else leads to them or they were changed.
const functionSurvey = (() => {
  const P = primordials;
  const {
    FunctionPrototype, Map, MapPrototypeGet, MapPrototypeSet, ObjectPrototype,
    ObjectPrototypeHasOwnProperty,
    ReflectGetOwnPropertyDescriptor, ReflectGetPrototypeOf, ReflectIsExtensible, ReflectOwnKeys,
  } = P;

  const isData = (descriptor) => ObjectPrototypeHasOwnProperty(descriptor, "value");

  function visitFunction(s, steps, id, fn) {
    const proof = proofOf(fn);
    if (proof === undefined || !isRestorable(fn, s)) {
      const tool = toolNameOf(s, fn);
      if (tool === undefined) steps.lose(id, lostTypeOf(fn));
      else steps.record(id, { __proto__: null, kind: "Tool", name: tool });
      return;
    }
    const prototype = ReflectGetPrototypeOf(fn);
    const record = {
      __proto__: null, kind: "Function", proof, props: newList(), prototype: undefined,
      extensible: ReflectIsExtensible(fn), name: null, length: null, absent: newList(),
    };
    steps.record(id, record);
    steps.soil(id);
    if (proof.kind === "M") {
      steps.reachObject(proof.owner, id);
      steps.reach(proof.key, id);
    }
    if (proof.kind === "c" && proof.heritage && prototype !== FunctionPrototype) {
      steps.reachObject(prototype, id);
    } else if (!isFunctionPrototype(prototype)) {
      record.prototype = prototype;
      if (prototype !== null) steps.reachObject(prototype, id);
    }
    const keys = ReflectOwnKeys(fn);
    for (let i = 0; i < keys.length; i++) {
      const key = keys[i];
      const descriptor = ReflectGetOwnPropertyDescriptor(fn, key);
      if ((key === "name" || key === "length") && isUsual(descriptor, key)) record[key] = descriptor.value;
      else if (key === "prototype" && isData(descriptor)
        && isOwnPrototype(s, steps, id, fn, proof, descriptor)) continue;
      else if (proof.kind !== "c" || !memberIsIntact(fn, "s", key, descriptor)) {
        steps.reachProperty(id, record, key, descriptor);
      }
    }
    if (proof.kind === "c") noteAbsent(fn, "s", proof, record, steps, id);
  }

  const isFunctionPrototype = (prototype) => prototype === FunctionPrototype
    || prototype === P.AsyncFunctionPrototype || prototype === P.GeneratorFunctionPrototype
    || prototype === P.AsyncGeneratorFunctionPrototype;

  const isUsual = (descriptor, key) => isData(descriptor) && !descriptor.writable
    && !descriptor.enumerable && descriptor.configurable
    && typeof descriptor.value === (key === "name" ? "string" : "number");

  // Whether `prototype` is the object that came with the function: then nothing needs to be said
  // about it here. It is only written if it was changed, or something else leads to it.
  function isOwnPrototype(s, steps, id, fn, proof, descriptor) {
    const prototype = descriptor.value;
    if (typeof prototype !== "object" || prototype === null || isProxy(prototype)) return false;
    const intact = isIntactPrototype(fn, prototype);
    if (!intact && (proof.kind !== "c" || descriptor.writable)) return false;
    const known = MapPrototypeGet(s.memo, prototype);
    const isClaimed = MapPrototypeGet(s.prototypeOwners, prototype) === fn;
    MapPrototypeSet(s.prototypeOwners, prototype, fn);
    if (known !== undefined) {
      steps.join(known);
      // Found before its class was, and perhaps not known as what it is.
      if (!isClaimed) visitPrototype(s, steps, known, prototype, ReflectGetPrototypeOf(prototype));
    } else if (!intact) {
      mark(prototype); // or it might be taken for plain data
      steps.reachObject(prototype, id);
    }
    return true;
  }

  function isIntactPrototype(fn, prototype) {
    if (!ReflectIsExtensible(prototype)) return false;
    const proof = proofOf(fn);
    const keys = ReflectOwnKeys(prototype);
    const parent = ReflectGetPrototypeOf(prototype);
    if (keys.length === 0) { // of a generator function
      return proof.kind !== "c" && ReflectGetPrototypeOf(fn) !== FunctionPrototype
        && parent !== null && !isProxy(parent) && baseNameOf(parent) !== undefined;
    }
    let found = 0;
    for (let i = 0; i < keys.length; i++) {
      const descriptor = ReflectGetOwnPropertyDescriptor(prototype, keys[i]);
      if (keys[i] === "constructor" ? !isUsualConstructor(descriptor, fn)
        : !memberIsIntact(fn, "p", keys[i], descriptor)) return false;
      found++;
    }
    if (parent !== naturalParent(fn, proof)) return false;
    let expected = 1;
    if (proof.kind === "c") {
      for (let i = 0; i < proof.members.length; i++) if (proof.members[i].where === "p") expected++;
    }
    return found === expected;
  }

  const isUsualConstructor = (descriptor, fn) => isData(descriptor) && descriptor.value === fn
    && descriptor.writable && !descriptor.enumerable && descriptor.configurable;

  // What the prototype of a function or class has as its own prototype when it is made; undefined
  // where that can't be told.
  function naturalParent(fn, proof) {
    if (proof.kind !== "c" || !proof.heritage) return ObjectPrototype;
    const base = ReflectGetPrototypeOf(fn);
    if (base === FunctionPrototype) return null;
    const from = ReflectGetOwnPropertyDescriptor(base, "prototype");
    return from !== undefined && isData(from) ? from.value : undefined;
  }

  // Whether a property still is what the class body made it.
  function memberIsIntact(owner, where, key, descriptor) {
    if (descriptor.enumerable || !descriptor.configurable) return false;
    if (isData(descriptor)) {
      return descriptor.writable && isMember(descriptor.value, owner, where, key, "value");
    }
    return (descriptor.get === undefined || isMember(descriptor.get, owner, where, key, "get"))
      && (descriptor.set === undefined || isMember(descriptor.set, owner, where, key, "set"));
  }

  function isMember(fn, owner, where, key, slot) {
    if (typeof fn !== "function" || isProxy(fn)) return false;
    const proof = proofOf(fn);
    if (proof === undefined || proof.kind !== "M" || proof.owner !== owner || proof.where !== where
      || proof.key !== key || proof.slot !== slot) return false;
    const keys = ReflectOwnKeys(fn);
    const isGenerator = ReflectGetOwnPropertyDescriptor(fn, "prototype") !== undefined;
    return keys.length === (isGenerator ? 3 : 2) && ReflectIsExtensible(fn);
  }

  function noteAbsent(holder, where, proof, record, steps, id) {
    for (let i = 0; i < proof.members.length; i++) {
      const member = proof.members[i];
      if (member.where !== where
        || ReflectGetOwnPropertyDescriptor(holder, member.key) !== undefined) continue;
      record.absent[record.absent.length] = member.key;
      steps.reach(member.key, id);
    }
  }

  function isPrototypeOfFunction(s, object) {
    if (MapPrototypeGet(s.prototypeOwners, object) !== undefined) return true;
    const constructor = ReflectGetOwnPropertyDescriptor(object, "constructor");
    if (constructor === undefined || !isData(constructor)) return false;
    const fn = constructor.value;
    if (typeof fn !== "function" || isProxy(fn)) return false;
    const prototype = ReflectGetOwnPropertyDescriptor(fn, "prototype");
    if (prototype === undefined || !isData(prototype) || prototype.value !== object) return false;
    const proof = proofOf(fn);
    if (proof === undefined ? exportOf(fn, s) === undefined : !isRestorable(fn, s)) return false;
    if (proof !== undefined && proof.kind !== "c" && !isIntactPrototype(fn, object)) return false;
    MapPrototypeSet(s.prototypeOwners, object, fn);
    return true;
  }

  function visitPrototype(s, steps, id, object, parent) {
    const owner = MapPrototypeGet(s.prototypeOwners, object);
    const record = {
      __proto__: null, kind: "Prototype", owner, props: newList(), prototype: undefined,
      extensible: ReflectIsExtensible(object), absent: newList(),
    };
    steps.record(id, record);
    steps.single(id);
    steps.soil(id);
    steps.reachObject(owner, id);
    const proof = proofOf(owner);
    if (proof === undefined) return; // of a module: as it comes with it
    if (parent !== naturalParent(owner, proof)) {
      record.prototype = parent;
      if (parent !== null) steps.reachObject(parent, id);
    }
    if (proof.kind !== "c") return; // as it came
    const keys = ReflectOwnKeys(object);
    let hasConstructor = false;
    for (let i = 0; i < keys.length; i++) {
      const descriptor = ReflectGetOwnPropertyDescriptor(object, keys[i]);
      if (keys[i] === "constructor") {
        hasConstructor = true;
        if (isUsualConstructor(descriptor, owner)) continue;
      } else if (memberIsIntact(owner, "p", keys[i], descriptor)) continue;
      steps.reachProperty(id, record, keys[i], descriptor);
    }
    if (!hasConstructor) record.absent[0] = "constructor";
    noteAbsent(object, "p", proof, record, steps, id);
  }

  // Functions of `tools` belong to the session that offers them; they are known by name.
  function toolNameOf(s, fn) {
    if (s.tools === null) {
      s.tools = new Map();
      const names = ReflectOwnKeys(tools);
      for (let i = 0; i < names.length; i++) MapPrototypeSet(s.tools, tools[names[i]], names[i]);
    }
    return MapPrototypeGet(s.tools, fn);
  }

  return { __proto__: null, isPrototypeOfFunction, visitFunction, visitPrototype };
})();
