// The survey: every object that the guest's globals lead to, once, and what each needs to be written.
//
// No guest code runs and nothing is changed. Objects get numbers in the order in which they are found.
// Most are clean: plain data that JSON.stringify writes just as it is. An object is dirty if JSON can't
// say all of it, or a part of it; a node if it must be written on its own, since it is dirty or has
// more than one owner. Iterative: a list of any length and a graph of any width are no problem.
const { SnapshotRefused, groupOf, survey } = (() => {
  const P = primordials;
  const {
    ArrayIsArray, ArrayPrototype, FunctionPrototype, Map, MapPrototypeEntries, MapPrototypeGet,
    MapPrototypeSet, MapIteratorPrototypeNext, ObjectPrototype, ObjectPrototypeHasOwnProperty,
    ObjectPrototype__lookupGetter__, ReflectGetOwnPropertyDescriptor, ReflectGetPrototypeOf,
    ReflectIsExtensible, ReflectOwnKeys, SetIteratorPrototypeNext, SetPrototypeValues, SymbolKeyFor,
    TypedArrayPrototypeGetBuffer, TypedArrayPrototypeGetLength, globalThis,
  } = P;

  const CLEAN = 0;
  const DIRTY = 1;
  const NODE = 2;
  // JSON.stringify and JSON.parse recurse: what is deeper than this is cut into nodes.
  const MAX_DEPTH = 40;
  // Listing the keys of a typed array makes a text of every index.
  const MAX_LISTED_VIEW = 10000;

  // Why a snapshot can't be taken, as a text for the host.
  const SnapshotRefused = { __proto__: null, reason: "" };
  function refuse(reason) {
    SnapshotRefused.reason = reason;
    throw SnapshotRefused;
  }

  const isData = (descriptor) => ObjectPrototypeHasOwnProperty(descriptor, "value");

  let s = null; // the state of the survey that is going on

  function newState(maxUnits) {
    return {
      __proto__: null,
      memo: new Map(), // object or symbol -> number
      chains: new Map(),
      restorable: new Map(),
      prototypeOwners: new Map(), // prototype -> the function it was made with
      paramsOwners: new Map(), // URLSearchParams -> its URL
      objects: newList(), flags: newList(), parents: newList(), keys: newList(), depths: newList(),
      owners: newList(), // number of the global that led here first
      records: newList(), // what a dirty object that isn't simple consists of
      groups: newList(), // union-find over globals
      globals: newList(),
      owner: 0,
      units: 0,
      maxUnits,
    };
  }

  function spend(units) {
    s.units += units;
    if (s.units > s.maxUnits) refuse("TooLarge");
  }

  // An object JSON can't tell all of, and so all objects that it is a part of.
  function soil(id) {
    const { flags, parents } = s;
    for (let at = id; at !== -1 && (flags[at] & DIRTY) === 0; at = parents[at]) flags[at] |= DIRTY;
  }

  function groupOf(groups, global) {
    let at = global;
    while (groups[at] !== at) {
      groups[at] = groups[groups[at]];
      at = groups[at];
    }
    return at;
  }

  function join(one, other) {
    const { groups } = s;
    const a = groupOf(groups, one);
    const b = groupOf(groups, other);
    if (a < b) groups[b] = a;
    else groups[a] = b;
  }

  // A value that the object `parent` holds under `key`.
  function reach(value, parent, key) {
    switch (typeof value) {
      case "string": spend(value.length + 4); return;
      case "boolean": return;
      case "number":
        if (value - value !== 0 || (value === 0 && 1 / value < 0)) soil(parent);
        return;
      case "undefined": soil(parent); return;
      case "bigint": spend(8); soil(parent); return;
      case "symbol":
        soil(parent);
        if (wellKnownSymbol(value) === undefined && SymbolKeyFor(value) === undefined) {
          number(value, parent, key);
        }
        return;
      default: if (value !== null) number(value, parent, key);
    }
  }

  function number(value, parent, key) {
    const { flags, memo, objects, owners, parents } = s;
    const known = MapPrototypeGet(memo, value);
    if (known !== undefined) {
      flags[known] |= NODE;
      soil(parents[known]);
      soil(parent);
      if (owners[known] !== s.owner) join(owners[known], s.owner);
      return;
    }
    if (baseNameOf(value) !== undefined) {
      soil(parent);
      return;
    }
    const id = objects.length;
    MapPrototypeSet(memo, value, id);
    objects[id] = value;
    parents[id] = parent;
    owners[id] = s.owner;
    s.keys[id] = key;
    flags[id] = CLEAN;
    const depth = parent === -1 ? 0 : s.depths[parent] + 1;
    if (depth < MAX_DEPTH) s.depths[id] = depth;
    else {
      s.depths[id] = 0;
      flags[id] = NODE;
      soil(parent);
    }
    spend(4);
  }

  // Own properties, if all of them are data with ordinary attributes and names.
  function reachSimple(id, object) {
    if (!ReflectIsExtensible(object) || mayHaveAttributes(object)) return false;
    const keys = ReflectOwnKeys(object);
    const { length } = keys;
    for (let i = 0; i < length; i++) {
      const key = keys[i];
      // `constructor`: perhaps a prototype that came with a function, whose properties are hidden.
      if (typeof key !== "string" || key === "constructor" || key === "callee"
        || ObjectPrototype__lookupGetter__(object, key) !== undefined) return false;
      // Read only now: it is data, or an accessor without a getter, which reads as undefined.
      if (object[key] === undefined && !isData(ReflectGetOwnPropertyDescriptor(object, key))) return false;
    }
    let units = 0;
    for (let i = 0; i < length; i++) {
      const key = keys[i];
      const value = object[key];
      units += key.length + 8;
      if (typeof value !== "number" || (value | 0) !== value || value === 0) reach(value, id, key);
    }
    spend(units);
    return true;
  }

  function reachArray(id, array) {
    if (!ReflectIsExtensible(array) || mayHaveAttributes(array)) return false;
    const { length } = array;
    // Index keys come first: with `length` behind all of them there is no hole and no other key.
    const keys = ReflectOwnKeys(array);
    if (keys.length !== length + 1 || keys[length] !== "length") return false;
    spend(2 * length);
    for (let i = 0; i < length; i++) {
      const value = array[i];
      if (typeof value !== "number" || (value | 0) !== value || value === 0) reach(value, id, i);
    }
    return true;
  }

  function visit(id) {
    const object = s.objects[id];
    if (typeof object === "object" && !isProxy(object)) {
      const prototype = ReflectGetPrototypeOf(object);
      if (prototype === ObjectPrototype) {
        if (reachSimple(id, object)) return;
      } else if (prototype === ArrayPrototype && ArrayIsArray(object)) {
        if (reachArray(id, object)) return;
      }
      soil(id);
      s.flags[id] |= NODE;
      visitObject(id, object, prototype);
      return;
    }
    soil(id);
    s.flags[id] |= NODE;
    if (typeof object === "symbol") s.records[id] = { __proto__: null, kind: "Symbol" };
    else if (tombstoneOf(object) !== undefined) {
      const { path, type, callable } = tombstoneOf(object);
      s.records[id] = { __proto__: null, kind: "Lost", path, type, callable };
    } else if (isProxy(object)) lose(id, "Proxy");
    else visitFunction(id, object);
  }

  function lose(id, type) {
    s.records[id] = {
      __proto__: null, kind: "Lost", path: null, type, callable: typeof s.objects[id] === "function",
    };
  }

  // --- objects that are not plain data ----------------------------------------------------------
  function visitObject(id, object, prototype) {
    if (claimed(object)) {
      visitPrototype(id, object, prototype);
      return;
    }
    const { root, lost } = chainOf(prototype, s);
    const kind = lost === null && root !== undefined ? snapshotKind(object, root) : undefined;
    if (kind === undefined) {
      lose(id, lost === null ? lostTypeOf(object) : lost);
      return;
    }
    const record = { __proto__: null, kind, props: null, prototype, extensible: ReflectIsExtensible(object) };
    s.records[id] = record;
    if (prototype !== null) reach(prototype, id, "__proto__");
    if (kind === "Object" && reachSimple(id, object)) return;
    record.props = newList();
    reachParts(id, object, record);
    reachProps(id, object, record);
  }

  function reachParts(id, object, { kind }) {
    switch (kind) {
      case "Map": {
        const iterator = MapPrototypeEntries(object);
        for (;;) {
          const { done, value: pair } = MapIteratorPrototypeNext(iterator);
          if (done) break;
          reach(pair[0], id, "key");
          reach(pair[1], id, typeof pair[0] === "string" ? pair[0] : "value");
        }
        break;
      }
      case "Set": {
        const iterator = SetPrototypeValues(object);
        for (let i = 0; ; i++) {
          const { done, value } = SetIteratorPrototypeNext(iterator);
          if (done) break;
          reach(value, id, i);
        }
        break;
      }
      case "TypedArray": reach(TypedArrayPrototypeGetBuffer(object), id, "buffer"); break;
      case "DataView": reach(P.DataViewPrototypeGetBuffer(object), id, "buffer"); break;
      case "ArrayBuffer": spend(4 * P.ArrayBufferPrototypeGetByteLength(object) / 3); break;
      case "URL": {
        const params = platform.searchParams(object);
        MapPrototypeSet(s.paramsOwners, params, object);
        reach(params, id, "searchParams");
        break;
      }
      default: // nothing but properties
    }
  }

  function isHidden(kind, key, object) {
    switch (kind) {
      case "Array": return key === "length";
      case "RegExp": return key === "lastIndex";
      case "Error": return key === "stack" && isUsualStack(ReflectGetOwnPropertyDescriptor(object, key));
      case "TypedArray": return typeof key === "string" && isIndex(key);
      case "Boxed": return typeof key === "string" && (key === "length" || isIndex(key))
        && ReflectGetOwnPropertyDescriptor(object, key).writable === false;
      default: return false;
    }
  }

  // One engine keeps the stack in a property, the other behind a getter: both are written alike.
  function isUsualStack(descriptor) {
    return isData(descriptor) && typeof descriptor.value === "string" && descriptor.writable
      && !descriptor.enumerable && descriptor.configurable;
  }

  function isIndex(key) {
    const index = +key; // a string primitive
    return index >= 0 && `${index}` === key;
  }

  function reachProps(id, object, record) {
    const { kind } = record;
    if (kind === "TypedArray" && TypedArrayPrototypeGetLength(object) > MAX_LISTED_VIEW) return;
    const keys = ReflectOwnKeys(object);
    for (let i = 0; i < keys.length; i++) {
      const key = keys[i];
      if (isHidden(kind, key, object)) continue;
      reachProperty(id, record, key, ReflectGetOwnPropertyDescriptor(object, key));
    }
    if (kind === "RegExp") reach(object.lastIndex, id, "lastIndex");
  }

  function reachProperty(id, record, key, descriptor) {
    const { props } = record;
    spend(typeof key === "string" ? key.length + 8 : 16);
    if (typeof key === "symbol") reach(key, id, "symbol");
    if (isData(descriptor)) {
      reach(descriptor.value, id, key);
      props[props.length] = {
        __proto__: null, key, value: descriptor.value, get: undefined, set: undefined, isData: true,
        attributes: (descriptor.writable ? 1 : 0) | (descriptor.enumerable ? 2 : 0)
          | (descriptor.configurable ? 4 : 0),
      };
    } else {
      reach(descriptor.get, id, key);
      reach(descriptor.set, id, key);
      props[props.length] = {
        __proto__: null, key, value: undefined, get: descriptor.get, set: descriptor.set, isData: false,
        attributes: 8 | (descriptor.enumerable ? 2 : 0) | (descriptor.configurable ? 4 : 0),
      };
    }
  }

  // --- functions and classes ----------------------------------------------------------------------
  function visitFunction(id, fn) {
    const proof = proofOf(fn);
    if (proof === undefined || !isRestorable(fn, s.restorable)) {
      const tool = toolNameOf(fn);
      if (tool === undefined) lose(id, lostTypeOf(fn));
      else s.records[id] = { __proto__: null, kind: "Tool", name: tool };
      return;
    }
    const prototype = ReflectGetPrototypeOf(fn);
    const record = {
      __proto__: null, kind: "Function", proof, props: newList(), prototype: undefined,
      extensible: ReflectIsExtensible(fn), name: null, length: null, absent: newList(),
    };
    s.records[id] = record;
    if (proof.kind === "M") reach(proof.owner, id, "constructor");
    if (proof.kind === "c" && proof.heritage && prototype !== FunctionPrototype) {
      reach(prototype, id, "__proto__");
    } else if (!isFunctionPrototype(prototype)) {
      record.prototype = prototype;
      if (prototype !== null) reach(prototype, id, "__proto__");
    }
    const keys = ReflectOwnKeys(fn);
    for (let i = 0; i < keys.length; i++) {
      const key = keys[i];
      const descriptor = ReflectGetOwnPropertyDescriptor(fn, key);
      if ((key === "name" || key === "length") && isUsual(descriptor, key)) record[key] = descriptor.value;
      else if (key === "prototype" && isData(descriptor) && isOwnPrototype(id, fn, proof, descriptor)) continue;
      else if (proof.kind !== "c" || !memberIsIntact(fn, "s", key, descriptor)) {
        reachProperty(id, record, key, descriptor);
      }
    }
    if (proof.kind === "c") noteAbsent(fn, fn, "s", proof, record);
  }

  const isFunctionPrototype = (prototype) => prototype === FunctionPrototype
    || prototype === P.AsyncFunctionPrototype || prototype === P.GeneratorFunctionPrototype
    || prototype === P.AsyncGeneratorFunctionPrototype;

  const isUsual = (descriptor, key) => isData(descriptor) && !descriptor.writable
    && !descriptor.enumerable && descriptor.configurable
    && typeof descriptor.value === (key === "name" ? "string" : "number");

  // Whether `prototype` is the object that came with the function: then nothing needs to be said
  // about it here. It is only written if it was changed, or something else leads to it.
  function isOwnPrototype(id, fn, proof, descriptor) {
    const prototype = descriptor.value;
    if (typeof prototype !== "object" || prototype === null || isProxy(prototype)) return false;
    const intact = isIntactPrototype(fn, prototype);
    if (proof.kind !== "c" && !intact) return false;
    if (!intact && descriptor.writable) return false;
    const known = MapPrototypeGet(s.memo, prototype);
    MapPrototypeSet(s.prototypeOwners, prototype, fn);
    if (known !== undefined) {
      // Found before its class was, and not known as what it is.
      if (s.records[known] === undefined || s.records[known].kind !== "Prototype") visitPrototype(known, prototype, ReflectGetPrototypeOf(prototype));
      s.flags[known] |= NODE;
      if (s.owners[known] !== s.owner) join(s.owners[known], s.owner);
    } else if (!intact) reach(prototype, id, "prototype");
    return true;
  }

  function isIntactPrototype(fn, prototype) {
    if (!ReflectIsExtensible(prototype)) return false;
    const proof = proofOf(fn);
    const keys = ReflectOwnKeys(prototype);
    const parent = ReflectGetPrototypeOf(prototype);
    if (keys.length === 0) {
      return proof.kind !== "c" && ReflectGetPrototypeOf(fn) !== FunctionPrototype
        && baseNameOf(parent) !== undefined;
    }
    let expected = 1;
    for (let i = 0; i < keys.length; i++) {
      const descriptor = ReflectGetOwnPropertyDescriptor(prototype, keys[i]);
      if (keys[i] === "constructor") {
        if (!isData(descriptor) || descriptor.value !== fn || !descriptor.writable
          || descriptor.enumerable || !descriptor.configurable) return false;
      } else if (!memberIsIntact(fn, "p", keys[i], descriptor)) return false;
      else expected++;
    }
    if (keys.length !== expected) return false;
    if (parent !== naturalParent(fn, proof)) return false;
    if (proof.kind !== "c") return true;
    let methods = 1;
    for (let i = 0; i < proof.members.length; i++) if (proof.members[i].where === "p") methods++;
    return methods === expected;
  }

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
    if (typeof fn !== "function") return false;
    const proof = proofOf(fn);
    if (proof === undefined || proof.kind !== "M" || proof.owner !== owner || proof.where !== where
      || proof.key !== key || proof.slot !== slot) return false;
    const keys = ReflectOwnKeys(fn);
    const isGenerator = ReflectGetOwnPropertyDescriptor(fn, "prototype") !== undefined;
    return keys.length === (isGenerator ? 3 : 2) && ReflectIsExtensible(fn);
  }

  function noteAbsent(owner, holder, where, proof, record) {
    for (let i = 0; i < proof.members.length; i++) {
      const member = proof.members[i];
      if (member.where !== where || ReflectGetOwnPropertyDescriptor(holder, member.key) !== undefined) continue;
      record.absent[record.absent.length] = member.key;
      if (typeof member.key === "symbol") reach(member.key, MapPrototypeGet(s.memo, holder), "symbol");
    }
  }

  // --- prototypes that came with a function ---------------------------------------------------------
  function claimed(object) {
    if (MapPrototypeGet(s.prototypeOwners, object) !== undefined) return true;
    const constructor = ReflectGetOwnPropertyDescriptor(object, "constructor");
    if (constructor === undefined || !isData(constructor)) return false;
    const fn = constructor.value;
    if (typeof fn !== "function" || isProxy(fn)) return false;
    const proof = proofOf(fn);
    if (proof === undefined || !isRestorable(fn, s.restorable)) return false;
    const prototype = ReflectGetOwnPropertyDescriptor(fn, "prototype");
    if (prototype === undefined || !isData(prototype) || prototype.value !== object) return false;
    if (proof.kind !== "c" && !isIntactPrototype(fn, object)) return false;
    MapPrototypeSet(s.prototypeOwners, object, fn);
    return true;
  }

  function visitPrototype(id, object, parent) {
    const owner = MapPrototypeGet(s.prototypeOwners, object);
    const record = {
      __proto__: null, kind: "Prototype", owner, props: newList(), prototype: parent,
      extensible: ReflectIsExtensible(object), absent: newList(),
    };
    s.records[id] = record;
    soil(id);
    s.flags[id] |= NODE;
    reach(owner, id, "constructor");
    const proof = proofOf(owner);
    if (parent === naturalParent(owner, proof)) record.prototype = undefined;
    else if (parent !== null) reach(parent, id, "__proto__");
    if (proof.kind !== "c") return; // as it came
    const keys = ReflectOwnKeys(object);
    let hasConstructor = false;
    for (let i = 0; i < keys.length; i++) {
      const descriptor = ReflectGetOwnPropertyDescriptor(object, keys[i]);
      if (keys[i] === "constructor") {
        hasConstructor = true;
        if (isData(descriptor) && descriptor.value === owner && descriptor.writable
          && !descriptor.enumerable && descriptor.configurable) continue;
      } else if (memberIsIntact(owner, "p", keys[i], descriptor)) continue;
      reachProperty(id, record, keys[i], descriptor);
    }
    if (!hasConstructor) record.absent[0] = "constructor";
    noteAbsent(owner, object, "p", proof, record);
  }

  // Functions of `tools` belong to the session that offers them; they are known by name.
  function toolNameOf(fn) {
    const names = ReflectOwnKeys(tools);
    for (let i = 0; i < names.length; i++) if (tools[names[i]] === fn) return names[i];
    return undefined;
  }

  function survey(maxUnits) {
    s = newState(maxUnits);
    const state = s;
    try {
      const names = ReflectOwnKeys(globalThis);
      let next = 0;
      for (let i = 0; i < names.length; i++) {
        const key = names[i];
        if (isBaseGlobal(key)) continue;
        const index = s.globals.length;
        const before = s.units;
        s.owner = index;
        s.groups[index] = index;
        const record = { __proto__: null, props: newList(), weight: 0, kind: "" };
        reachProperty(-1, record, key, ReflectGetOwnPropertyDescriptor(globalThis, key));
        for (; next < s.objects.length; next++) visit(next);
        record.weight = s.units - before;
        s.globals[index] = record;
      }
      return state;
    } finally {
      s = null;
    }
  }

  return { __proto__: null, SnapshotRefused, groupOf, survey };
})();
