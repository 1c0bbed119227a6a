// Places where the engine itself would run guest code, closed before any guest code exists.
//
// - quickjs-ng follows V8: on every throw, also one that our own brand checks provoke and catch, it
//   calls Error.prepareStackTrace and converts Error.stackTraceLimit to a number (tried: a guest's
//   function ran inside a checked native call).
// - What a bare job throws escapes to the binding, which stringifies it in C where no interrupt can
//   stop it: so callbacks that the engine runs as jobs are wrapped.
// - A template literal is compiled to a call of "".concat, looked up by name: a guest that replaced
//   it would see and change every text that the prelude composes (tried, on both engines).
{
  const {
    Error, FinalizationRegistry, ObjectDefineProperty, ObjectGetOwnPropertyDescriptor, Promise,
    PromisePrototypeThen, ReflectApply, ReflectConstruct, StringPrototype, TypeError,
  } = primordials;

  // Both are accessors whose setter stores into the engine. Without them a property of that name is
  // inert, so a guest may set it, to no effect.
  delete Error.prepareStackTrace;
  if (ObjectGetOwnPropertyDescriptor(Error, "stackTraceLimit") !== undefined) {
    web.hide(Error, "stackTraceLimit", Error.stackTraceLimit);
  }

  ObjectDefineProperty(StringPrototype, "concat", {
    __proto__: null, value: StringPrototype.concat, writable: false, enumerable: false,
    configurable: false,
  });

  // An own `constructor` of undefined makes then() use the intrinsic Promise, come what may.
  const settled = new Promise((resolve) => resolve());
  ObjectDefineProperty(settled, "constructor", { __proto__: null, value: undefined });

  function guarded(callback) {
    return (...values) => {
      try {
        ReflectApply(callback, undefined, values);
      } catch (error) {
        logUncaught(error);
      }
    };
  }

  const methods = {
    queueMicrotask(callback) {
      if (typeof callback !== "function") {
        throw new TypeError("queueMicrotask: the callback must be a function");
      }
      const run = guarded(callback);
      PromisePrototypeThen(settled, () => run());
    },
  };
  defineGlobal("queueMicrotask", methods.queueMicrotask);

  if (FinalizationRegistry !== undefined) {
    const Native = FinalizationRegistry;
    const { prototype } = Native;
    const Wrapped = function FinalizationRegistry(cleanup) {
      if (new.target === undefined) {
        throw new TypeError("FinalizationRegistry cannot be called without 'new'");
      }
      if (typeof cleanup !== "function") {
        throw new TypeError("FinalizationRegistry: cleanup must be callable");
      }
      return ReflectConstruct(Native, [guarded(cleanup)], new.target);
    };
    ObjectDefineProperty(Wrapped, "prototype", {
      __proto__: null, value: prototype, writable: false,
    });
    web.hide(prototype, "constructor", Wrapped);
    defineGlobal("FinalizationRegistry", Wrapped);
  }
}
