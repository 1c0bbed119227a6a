// The survey: every object that the guest's globals lead to, once, and what each needs to be written.
//
// No guest code runs and nothing is changed. Objects get numbers in the order in which they are found.
// Most are clean: plain data that JSON.stringify writes just as it is. An object is DIRTY if JSON can't
// say all of its contents, and a NODE if it is written on its own, because it has more than one owner
// or there is more to say about it. Iterative: a list of any length and a graph of any width are no
// problem. Whatever is done for each object here is done 100,000 times in a large state: the loops
// are written out for that.
const { SnapshotRefused, groupOf, keyTo, ownerOf, survey } = (() => {
  const P = primordials;
  const {
    ArrayIsArray, ArrayPrototype, Map, MapIteratorPrototypeNext, MapPrototypeEntries, MapPrototypeGet,
    MapPrototypeSet, ObjectPrototype, ObjectPrototypeHasOwnProperty, ObjectPrototype__lookupGetter__,
    ReflectGetOwnPropertyDescriptor, ReflectGetPrototypeOf, ReflectIsExtensible, ReflectOwnKeys,
    Int32Array, SetIteratorPrototypeNext, SetPrototypeValues, SymbolKeyFor, TypedArrayPrototypeGetBuffer,
    TypedArrayPrototypeGetLength, TypedArrayPrototypeSet, Uint16Array, WeakSetPrototypeHas, globalThis,
  } = P;

  const DIRTY = 1;
  const NODE = 2;
  const MARKED = 4;
  const DEPTH = 8; // flags / 8 is how deep an object lies in the text it is written into
  // JSON.stringify and JSON.parse recurse: what is deeper than this is cut into nodes.
  const MAX_DEPTH = 40;
  // Listing the keys of a typed array makes a text of every index.
  const MAX_LISTED_VIEW = 10000;
  const MAX_LOOKS = 20000;

  // Why a snapshot can't be taken: thrown as it is.
  const SnapshotRefused = { __proto__: null, reason: "" };

  const isData = (descriptor) => ObjectPrototypeHasOwnProperty(descriptor, "value");

  // The number that an object has, or else gets. One look into the Map where the engine can do that.
  const numberOf = P.MapPrototypeGetOrInsert !== undefined ? P.MapPrototypeGetOrInsert
    : (map, object, next) => {
      const known = MapPrototypeGet(map, object);
      if (known !== undefined) return known;
      MapPrototypeSet(map, object, next);
      return next;
    };

  let s = null; // the survey that is going on, and its hottest parts:
  let memo = null; // object or symbol -> number
  let objects = null;
  let flags = null; // with `parents`, typed arrays: half the time and a quarter of the memory of lists
  let parents = null; // the object through which each was found first
  let room = 0; // in these two
  let hasExports = false;
  let units = 0;
  let maxUnits = 0;

  function begin(limit) {
    memo = new Map();
    objects = newList();
    room = 1024;
    flags = new Uint16Array(room);
    parents = new Int32Array(room);
    units = 0;
    maxUnits = limit;
    s = {
      __proto__: null, memo, objects, flags, parents,
      records: newList(), // what is to be said about an object beyond its plain contents
      chains: new Map(), restorable: new Map(), // see chainOf, isRestorable
      instances: new Map(), // prototype -> record of its instances, as far as they are alike
      prototypeOwners: new Map(), // prototype -> the function it was made with
      paramsOwners: new Map(), // URLSearchParams -> its URL
      globals: newList(),
      starts: newList(), // the first object of each global
      groups: newList(), // union-find over globals
      exports: undefined, // see exportOf
      tools: null, // functions of `tools` -> their names, once one is asked for
      looks: 0,
      maxUnits,
    };
    exportOf(s, s); // none of them: they are collected, if there are any
    hasExports = s.exports !== null;
    return s;
  }

  function grow() {
    room *= 2;
    s.flags = new Uint16Array(room);
    TypedArrayPrototypeSet(s.flags, flags);
    flags = s.flags;
    s.parents = new Int32Array(room);
    TypedArrayPrototypeSet(s.parents, parents);
    parents = s.parents;
  }

  // Without a gap, which would make the list one of properties.
  function record(id, about) {
    const { records } = s;
    for (let i = records.length; i < id; i++) records[i] = undefined;
    records[id] = about;
  }

  // Counts the least that something takes when it is written. It is called before the items of a list
  // are looked at, and an object's while it is: a state over its limit costs what the limit allows,
  // not what the state has.
  function spend(more) {
    units += more;
    if (units > maxUnits) {
      SnapshotRefused.reason = "TooLarge";
      throw SnapshotRefused;
    }
  }

  // JSON can't say all of this object, and so of none that it is a part of.
  function soil(id) {
    for (let at = id; at !== -1 && (flags[at] & DIRTY) === 0; at = parents[at]) flags[at] |= DIRTY;
  }

  // Something is to be said about this object: whatever holds it can only refer to it.
  function single(id) {
    flags[id] |= NODE;
    soil(parents[id]);
  }

  // --- which globals share objects ------------------------------------------------------------------
  function ownerOf(state, id) {
    const { starts } = state;
    let low = 0;
    let high = starts.length - 1;
    while (low < high) {
      const middle = (low + high + 1) >> 1;
      if (starts[middle] <= id) low = middle;
      else high = middle - 1;
    }
    return low;
  }

  function groupOf(groups, global) {
    let at = global;
    while (groups[at] !== at) {
      groups[at] = groups[groups[at]];
      at = groups[at];
    }
    return at;
  }

  function join(id) {
    const { groups, starts } = s;
    const current = starts.length - 1;
    if (id >= starts[current]) return;
    const a = groupOf(groups, ownerOf(s, id));
    const b = groupOf(groups, current);
    if (a < b) groups[b] = a;
    else groups[a] = b;
  }

  // --- what an object holds ---------------------------------------------------------------------------
  function reachObject(value, parent) {
    // A look into a large Map costs as much as all the rest: most objects need only the small one.
    const isMarked = typeof value === "object" ? WeakSetPrototypeHas(marked, value)
      : typeof value === "function";
    if ((isMarked && baseNameOf(value) !== undefined)
      || (hasExports && exportOf(value, s) !== undefined)) {
      soil(parent);
      return;
    }
    const id = objects.length;
    const known = numberOf(memo, value, id);
    if (known !== id) {
      single(known);
      soil(parent);
      join(known);
      return;
    }
    objects[id] = value;
    if (id === room) grow();
    parents[id] = parent;
    const flag = isMarked ? MARKED : 0;
    const depth = parent === -1 ? 0 : (flags[parent] >> 3) + 1;
    if (depth < MAX_DEPTH) flags[id] = flag + depth * DEPTH;
    else {
      flags[id] = flag + NODE;
      soil(parent);
    }
  }

  function reach(value, parent) {
    switch (typeof value) {
      case "object": if (value !== null) reachObject(value, parent); return;
      case "function": reachObject(value, parent); return;
      case "string": spend(value.length + 1); return;
      case "number":
        if (value - value !== 0 || (value === 0 && 1 / value < 0)) soil(parent);
        return;
      case "undefined": soil(parent); return;
      case "bigint": spend(6); soil(parent); return;
      case "symbol":
        soil(parent);
        if (wellKnownSymbol(value) === undefined && SymbolKeyFor(value) === undefined) {
          reachObject(value, parent);
        }
        return;
      default: // a boolean
    }
  }

  // Own properties, if all of them are data with ordinary attributes and names.
  function reachSimple(id, object) {
    if ((flags[id] & MARKED) !== 0 || !ReflectIsExtensible(object)) return false;
    const keys = ReflectOwnKeys(object);
    const { length } = keys;
    let more = 0;
    for (let i = 0; i < length; i++) {
      const key = keys[i];
      // `constructor`: perhaps a prototype that came with a function, whose properties are hidden.
      if (typeof key !== "string" || key === "constructor" || key === "callee"
        || ObjectPrototype__lookupGetter__(object, key) !== undefined) return false;
      // Read only now: it is data, or an accessor without a getter, which reads as undefined.
      const value = object[key];
      more += key.length + 5; // quotes, a colon or comma, a comma, and a value of at least one
      switch (typeof value) {
        case "string": if ((more += value.length) > maxUnits) spend(more); break;
        case "number":
          if (value - value !== 0 || (value === 0 && 1 / value < 0)) soil(id);
          break;
        case "boolean": break;
        case "undefined":
          if (!isData(ReflectGetOwnPropertyDescriptor(object, key))) return false;
          soil(id);
          break;
        case "object": if (value !== null) reachObject(value, id); break;
        default: reach(value, id);
      }
    }
    if ((units += more) > maxUnits) spend(0);
    return true;
  }

  function reachArray(id, array) {
    if ((flags[id] & MARKED) !== 0 || !ReflectIsExtensible(array)) return false;
    const { length } = array;
    // Index keys come first: with `length` behind all of them there is no hole and no other key.
    const keys = ReflectOwnKeys(array);
    if (keys.length !== length + 1 || keys[length] !== "length") return false;
    let more = 2 * length;
    if (units + more > maxUnits) spend(more);
    for (let i = 0; i < length; i++) {
      const value = array[i];
      switch (typeof value) {
        case "number":
          if (value - value !== 0 || (value === 0 && 1 / value < 0)) soil(id);
          break;
        case "string": if ((more += value.length) > maxUnits) spend(more); break;
        case "object": if (value !== null) reachObject(value, id); break;
        default: reach(value, id);
      }
    }
    if ((units += more) > maxUnits) spend(0);
    return true;
  }

  function visit(id) {
    const object = objects[id];
    if (typeof object === "object" && ((flags[id] & MARKED) === 0 || !isProxy(object))) {
      const prototype = ReflectGetPrototypeOf(object);
      if (prototype === ObjectPrototype) {
        if (reachSimple(id, object)) return;
      } else if (prototype === ArrayPrototype && ArrayIsArray(object)) {
        if (reachArray(id, object)) return;
      }
      single(id);
      const likeOthers = MapPrototypeGet(s.instances, prototype);
      if (likeOthers !== undefined && !ArrayIsArray(object) && reachSimple(id, object)) {
        record(id, likeOthers);
        join(MapPrototypeGet(memo, prototype));
        return;
      }
      visitObject(id, object, prototype);
      return;
    }
    single(id);
    if (typeof object === "symbol") record(id, { __proto__: null, kind: "Symbol" });
    else if (tombstoneOf(object) !== undefined) {
      const { path, type, callable } = tombstoneOf(object);
      record(id, { __proto__: null, kind: "Lost", path, type, callable });
    } else if (isProxy(object)) lose(id, "Proxy");
    else functionSurvey.visitFunction(s, steps, id, object);
  }

  function lose(id, type) {
    record(id, {
      __proto__: null, kind: "Lost", path: null, type, callable: typeof objects[id] === "function",
    });
  }

  // --- objects that are not plain data ------------------------------------------------------------------
  function visitObject(id, object, prototype) {
    if (functionSurvey.isPrototypeOfFunction(s, object)) {
      functionSurvey.visitPrototype(s, steps, id, object, prototype);
      return;
    }
    const { hasToJSON, lost, root } = chainOf(prototype, s);
    const kind = lost === null ? snapshotKind(object, root, prototype) : undefined;
    if (kind === undefined) {
      lose(id, lost === null || lost === "" ? lostTypeOf(object) : lost);
      return;
    }
    const about = { __proto__: null, kind, props: null, prototype, extensible: true, link: undefined };
    record(id, about);
    if (prototype !== null) reachObject(prototype, id);
    if (kind === "Object") {
      // That its prototype is a node doesn't make its contents less plain.
      if (!hasToJSON) flags[id] &= ~DIRTY;
      if (reachSimple(id, object)) {
        // The next of its class needs no closer look.
        if (!hasToJSON && prototype !== null && prototype !== ObjectPrototype
          && MapPrototypeGet(memo, prototype) !== undefined) {
          MapPrototypeSet(s.instances, prototype, about);
        }
        return;
      }
    }
    soil(id);
    flags[id] |= DIRTY;
    about.extensible = ReflectIsExtensible(object);
    about.props = newList();
    reachParts(id, object, kind);
    reachProps(id, object, about);
  }

  function reachParts(id, object, kind) {
    switch (kind) {
      case "Map": {
        spend(4 * P.MapPrototypeGetSize(object));
        const iterator = MapPrototypeEntries(object);
        for (;;) {
          const { done, value: pair } = MapIteratorPrototypeNext(iterator);
          if (done) break;
          reach(pair[0], id);
          reach(pair[1], id);
        }
        break;
      }
      case "Set": {
        spend(2 * P.SetPrototypeGetSize(object));
        const iterator = SetPrototypeValues(object);
        for (;;) {
          const { done, value } = SetIteratorPrototypeNext(iterator);
          if (done) break;
          reach(value, id);
        }
        break;
      }
      case "TypedArray": reachObject(TypedArrayPrototypeGetBuffer(object), id); break;
      case "DataView": reachObject(P.DataViewPrototypeGetBuffer(object), id); break;
      case "ArrayBuffer": spend(4 * P.ArrayBufferPrototypeGetByteLength(object) / 3); break;
      case "URL": {
        const params = platform.searchParams(object);
        MapPrototypeSet(s.paramsOwners, params, object);
        reachObject(params, id);
        break;
      }
      case "RegExp": reach(object.lastIndex, id); break;
      default: // nothing but properties
    }
  }

  function isHidden(kind, key, object) {
    switch (kind) {
      case "Array": return key === "length";
      case "RegExp": return key === "lastIndex";
      // Of a strict function: an accessor that only throws.
      case "Arguments": return key === "callee" && !isData(ReflectGetOwnPropertyDescriptor(object, key));
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

  function reachProps(id, object, about) {
    const { kind } = about;
    if (kind === "TypedArray" && TypedArrayPrototypeGetLength(object) > MAX_LISTED_VIEW) return;
    const keys = ReflectOwnKeys(object);
    for (let i = 0; i < keys.length; i++) {
      const key = keys[i];
      if (isHidden(kind, key, object)) continue;
      reachProperty(id, about, key, ReflectGetOwnPropertyDescriptor(object, key));
    }
  }

  function reachProperty(id, about, key, descriptor) {
    const { props } = about;
    spend(typeof key === "string" ? key.length + 5 : 10);
    if (typeof key === "symbol") reach(key, id);
    const entry = {
      __proto__: null, key, value: undefined, get: undefined, set: undefined, isData: isData(descriptor),
      attributes: (descriptor.enumerable ? 2 : 0) | (descriptor.configurable ? 4 : 0),
    };
    if (entry.isData) {
      entry.value = descriptor.value;
      if (descriptor.writable) entry.attributes |= 1;
      reach(entry.value, id);
    } else {
      entry.get = descriptor.get;
      entry.set = descriptor.set;
      entry.attributes |= 8;
      reach(entry.get, id);
      reach(entry.set, id);
    }
    props[props.length] = entry;
  }

  // For 97-snapshot-functions.js.
  const steps = {
    __proto__: null, join, lose, reach, reachObject, reachProperty, record, single, soil,
  };

  // The key under which an object holds another; "" if it isn't a property, or there were too many
  // to look at: with 10,000 lost values in a list nobody needs the place of each.
  function keyTo(state, holder, value) {
    if (state.looks > MAX_LOOKS || (ArrayIsArray(holder) && holder.length > MAX_LOOKS)) return "";
    const keys = ReflectOwnKeys(holder);
    state.looks += keys.length + 10;
    for (let i = 0; i < keys.length; i++) {
      const descriptor = ReflectGetOwnPropertyDescriptor(holder, keys[i]);
      if (isData(descriptor) ? descriptor.value === value
        : descriptor.get === value || descriptor.set === value) return keys[i];
    }
    return "";
  }

  function survey(maxUnits) {
    const state = begin(maxUnits);
    try {
      const names = ReflectOwnKeys(globalThis);
      let next = 0;
      for (let i = 0; i < names.length; i++) {
        const key = names[i];
        if (isBaseGlobal(key) && !isReplaced(key)) continue;
        const index = state.globals.length;
        const before = units;
        state.starts[index] = objects.length;
        state.groups[index] = index;
        const about = { __proto__: null, props: newList(), weight: 0, document: 0 };
        reachProperty(-1, about, key, ReflectGetOwnPropertyDescriptor(globalThis, key));
        for (; next < objects.length; next++) visit(next);
        about.weight = units - before;
        state.globals[index] = about;
      }
      return state;
    } finally {
      s = null;
      memo = null;
      objects = null;
      flags = null;
      parents = null;
    }
  }

  return { __proto__: null, SnapshotRefused, groupOf, keyTo, ownerOf, survey };
})();
