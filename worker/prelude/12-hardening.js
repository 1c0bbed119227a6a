// What the engine offers that a guest must not have, or must have in a safer shape.
//
// Removed: clocks and shared memory. Replaced: `Proxy`, so that the formatter can tell a proxy without
// running its traps, and `InternalError`, so that an engine's "out of memory" can be told from one
// that the guest constructed. Locked: what `then` looks up on an ordinary promise.
const { guestMadeErrors, isProxy, marked, proxyTarget, registerProxy } = (() => {
  const {
    globalThis, ErrorPrototype, ErrorPrototypeGetStack, InternalError, ObjectDefineProperty,
    ObjectPrototypeHasOwnProperty, ObjectSetPrototypeOf, Promise, PromisePrototype, Proxy, ReflectApply,
    ReflectConstruct, ReflectDeleteProperty, ReflectGetOwnPropertyDescriptor, SymbolSpecies,
    SymbolToPrimitive, WeakMap, WeakMapPrototypeGet, WeakMapPrototypeHas, WeakMapPrototypeSet, WeakSet,
    WeakSetPrototypeAdd,
  } = primordials;

  const absent = [
    "performance", "SharedArrayBuffer", "print", "gc", "std", "os", "bjson", "navigator", "scriptArgs",
    "Worker", "__loadScript", "__date_clock",
  ];
  for (let i = 0; i < absent.length; i++) ReflectDeleteProperty(globalThis, absent[i]);
  if (globalThis.Atomics !== undefined) {
    // Waiting would block the worker outside of any interrupt; without shared memory there is no use.
    const waits = ["wait", "waitAsync", "notify"];
    for (let i = 0; i < waits.length; i++) ReflectDeleteProperty(globalThis.Atomics, waits[i]);
  }

  function lock(target, key, value) {
    ObjectDefineProperty(target, key, {
      __proto__: null, value, writable: false, enumerable: false, configurable: false,
    });
  }

  // `then` on a promise reads its constructor and that one's species. Locked, waiting for an
  // ordinary promise runs no guest code.
  lock(PromisePrototype, "constructor", Promise);
  const species = ReflectGetOwnPropertyDescriptor(Promise, SymbolSpecies);
  if (species !== undefined) {
    ObjectDefineProperty(Promise, SymbolSpecies, {
      __proto__: null, get: species.get, set: undefined, enumerable: false, configurable: false,
    });
  }

  // --- Proxy: each one is remembered with its target --------------------------------------------
  const targets = new WeakMap();
  const marked = new WeakSet(); // what is not what it looks like, see 93-snapshot-attributes.js

  function registerProxy(proxy, target) {
    WeakMapPrototypeSet(targets, proxy, target);
    WeakSetPrototypeAdd(marked, proxy);
    return proxy;
  }

  const nativeRevocable = Proxy.revocable;
  const statics = {
    revocable(target, handler) {
      const pair = ReflectApply(nativeRevocable, Proxy, [target, handler]);
      registerProxy(pair.proxy, target);
      return pair;
    },
  };
  ObjectDefineProperty(Proxy, "revocable", {
    __proto__: null, value: statics.revocable, writable: true, enumerable: false, configurable: true,
  });
  // The constructor is itself a proxy: like the native one it then has no prototype property.
  const GuestProxy = new Proxy(Proxy, {
    __proto__: null,
    construct(native, given, newTarget) {
      const target = given[0];
      return registerProxy(ReflectConstruct(native, [target, given[1]], newTarget), target);
    },
  });
  registerProxy(GuestProxy, Proxy);
  defineGlobal("Proxy", GuestProxy);

  // --- InternalError ------------------------------------------------------------------------------
  const guestMadeErrors = new WeakSet();
  const { prototype } = InternalError;

  function wrap(message, options) {
    const error = ReflectConstruct(
      InternalError, [message, options], new.target === undefined ? wrap : new.target,
    );
    WeakSetPrototypeAdd(guestMadeErrors, error);
    return error;
  }
  ObjectSetPrototypeOf(wrap, primordials.Error);
  ObjectDefineProperty(wrap, "name", { __proto__: null, value: "InternalError" });
  ObjectDefineProperty(wrap, "length", { __proto__: null, value: 1 });
  ObjectDefineProperty(wrap, "prototype", { __proto__: null, value: prototype, writable: false });
  lock(prototype, "constructor", wrap);
  defineGlobal("InternalError", wrap);

  // An interrupt escapes to the binding, which turns it into a string in C, where nothing can stop
  // a guest's loop. So everything that conversion looks up is here, and can't be changed.
  const own = {
    toString() {
      const message = ReflectGetOwnPropertyDescriptor(this, "message");
      if (message === undefined || !ObjectPrototypeHasOwnProperty(message, "value")) {
        return "InternalError";
      }
      return typeof message.value === "string" ? `InternalError: ${message.value}` : "InternalError";
    },
  };
  lock(prototype, "toString", own.toString);
  lock(prototype, SymbolToPrimitive, undefined);
  const stack = ReflectGetOwnPropertyDescriptor(ErrorPrototype, "stack");
  if (ErrorPrototypeGetStack !== undefined) {
    ObjectDefineProperty(prototype, "stack", {
      __proto__: null, get: stack.get, set: stack.set, enumerable: false, configurable: false,
    });
  }

  return {
    __proto__: null,
    guestMadeErrors,
    isProxy(value) { return WeakMapPrototypeHas(targets, value); },
    marked,
    proxyTarget(value) { return WeakMapPrototypeGet(targets, value); },
    registerProxy,
  };
})();
