// Which functions are provably what their source says: those that close over globals only.
//
// The transpiler knows them by their place in the program, and has the program hand each one over by
// identity: `register(ticket, site, function)`. Equal text would be no proof. The ticket is a number
// that only this program's scripts know, so a guest that finds the function can register nothing.
//
//   prove(ticket, sitesJson)   before a program runs; a site is [kind, strict, heritage, text]
//                              kind: "f" function, "m" method or accessors of a literal, "c" class
const { REGISTER, proofOf, proveClass, proveFunction, proveMethod } = (() => {
  const {
    ArrayIsArray, ObjectDefineProperty, ObjectPrototypeHasOwnProperty, ReflectGetOwnPropertyDescriptor,
    ReflectOwnKeys, WeakMap, WeakMapPrototypeGet, WeakMapPrototypeSet, globalThis,
  } = primordials;

  const REGISTER = "$qjs_own";
  const proofs = new WeakMap(); // function -> proof
  let ticket = 0;
  let sites = null;
  let nextTicket = 0;
  let nextSites = null;

  // Most functions share one of these: the source is the function's own text.
  const SLOPPY = { __proto__: null, kind: "f", strict: false };
  const STRICT = { __proto__: null, kind: "f", strict: true };
  const SLOPPY_METHOD = { __proto__: null, kind: "m", strict: false };
  const STRICT_METHOD = { __proto__: null, kind: "m", strict: true };

  const isData = (descriptor) => ObjectPrototypeHasOwnProperty(descriptor, "value");

  function proveFunction(fn, strict) {
    WeakMapPrototypeSet(proofs, fn, strict ? STRICT : SLOPPY);
  }

  function proveMethod(fn, strict) {
    WeakMapPrototypeSet(proofs, fn, strict ? STRICT_METHOD : SLOPPY_METHOD);
  }

  // A class comes with its methods: what its body defines is not enumerable, fields are.
  // `text`, if given, is the source to restore from: heritage by `$h`, static fields left out.
  function proveClass(constructor, heritage, text) {
    const members = newList();
    const proof = { __proto__: null, kind: "c", strict: true, heritage, text, members };
    WeakMapPrototypeSet(proofs, constructor, proof);
    const prototype = ReflectGetOwnPropertyDescriptor(constructor, "prototype").value;
    addMembers(constructor, constructor, "s", members);
    addMembers(constructor, prototype, "p", members);
  }

  function addMembers(owner, holder, where, members) {
    const keys = ReflectOwnKeys(holder);
    for (let i = 0; i < keys.length; i++) {
      const key = keys[i];
      if (key === (where === "s" ? "prototype" : "constructor")) continue;
      const descriptor = ReflectGetOwnPropertyDescriptor(holder, key);
      if (descriptor.enumerable) continue;
      let found = false;
      if (isData(descriptor)) found = addMember(owner, where, key, "value", descriptor.value);
      else {
        found = addMember(owner, where, key, "get", descriptor.get);
        found = addMember(owner, where, key, "set", descriptor.set) || found;
      }
      if (found) members[members.length] = { __proto__: null, where, key };
    }
  }

  function addMember(owner, where, key, slot, fn) {
    if (typeof fn !== "function" || isProxy(fn)) return false;
    WeakMapPrototypeSet(proofs, fn, { __proto__: null, kind: "M", owner, where, key, slot });
    return true;
  }

  // An object literal: the functions of its accessors, which nothing else could hand over.
  function proveAccessors(literal, strict) {
    const keys = ReflectOwnKeys(literal);
    for (let i = 0; i < keys.length; i++) {
      const descriptor = ReflectGetOwnPropertyDescriptor(literal, keys[i]);
      if (isData(descriptor)) continue;
      if (descriptor.get !== undefined) proveMethod(descriptor.get, strict);
      if (descriptor.set !== undefined) proveMethod(descriptor.set, strict);
    }
  }

  const methods = {
    register(given, index, value) {
      if (given !== ticket || ticket === 0) return value;
      const site = sites[index];
      if (!ArrayIsArray(site)) return value;
      const strict = site[1] === 1;
      if (site[0] === "c") proveClass(value, site[2] === 1, site.length > 3 ? site[3] : undefined);
      else if (site[0] === "f") proveFunction(value, strict);
      else if (typeof value === "function") proveMethod(value, strict);
      else proveAccessors(value, strict);
      return value;
    },
  };
  // A constant: what is handed to it can't be observed by putting something else in its place.
  ObjectDefineProperty(globalThis, REGISTER, {
    __proto__: null, value: methods.register, writable: false, enumerable: false, configurable: false,
  });

  bridgeTable.prove = (number, json) => {
    nextTicket = number;
    nextSites = primordials.JSONParse(json);
    return 1;
  };
  onEvalStart(() => {
    ticket = nextTicket;
    sites = nextSites;
    nextTicket = 0;
    nextSites = null;
  });

  return {
    __proto__: null, REGISTER, proveClass, proveFunction, proveMethod,
    proofOf(fn) { return WeakMapPrototypeGet(proofs, fn); },
  };
})();
