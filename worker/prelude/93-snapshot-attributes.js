// Which objects may have properties with attributes of their own.
//
// Asking for the descriptor of every property would take most of a snapshot's time. Such properties
// come about only through the functions below (and by syntax: accessors of literals and classes, which
// can be asked for cheaply), so the functions remember what they were given.
const { mayHaveAttributes, noteAttributes } = (() => {
  const {
    Object, ObjectCreate, ObjectDefineProperties, ObjectDefineProperty, ObjectPrototype,
    ObjectPrototype__defineGetter__, ObjectPrototype__defineSetter__, ReflectDefineProperty, WeakSet,
    WeakSetPrototypeAdd, WeakSetPrototypeHas, globalThis,
  } = primordials;

  const noted = new WeakSet();

  function note(object) {
    let target = object;
    // What is defined on a proxy arrives at its target.
    for (let i = 0; i < 1000; i++) {
      if ((typeof target !== "object" && typeof target !== "function") || target === null) return;
      WeakSetPrototypeAdd(noted, target);
      if (!isProxy(target)) return;
      target = proxyTarget(target);
    }
  }

  const statics = {
    create(prototype, properties) {
      const made = ObjectCreate(prototype, properties);
      if (properties !== undefined) note(made);
      return made;
    },
    defineProperty(target, key, descriptor) {
      note(target);
      return ObjectDefineProperty(target, key, descriptor);
    },
    defineProperties(target, descriptors) {
      note(target);
      return ObjectDefineProperties(target, descriptors);
    },
  };
  const reflect = {
    defineProperty(target, key, descriptor) {
      note(target);
      return ReflectDefineProperty(target, key, descriptor);
    },
  };
  const inherited = {
    __defineGetter__(key, getter) {
      note(this);
      return ObjectPrototype__defineGetter__(this, key, getter);
    },
    __defineSetter__(key, setter) {
      note(this);
      return ObjectPrototype__defineSetter__(this, key, setter);
    },
  };
  web.hide(Object, "create", statics.create);
  web.hide(Object, "defineProperty", statics.defineProperty);
  web.hide(Object, "defineProperties", statics.defineProperties);
  web.hide(globalThis.Reflect, "defineProperty", reflect.defineProperty);
  web.hide(ObjectPrototype, "__defineGetter__", inherited.__defineGetter__);
  web.hide(ObjectPrototype, "__defineSetter__", inherited.__defineSetter__);

  return {
    __proto__: null,
    mayHaveAttributes(object) { return WeakSetPrototypeHas(noted, object); },
    noteAttributes: note,
  };
})();
