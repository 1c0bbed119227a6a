// Marked objects: those that may have properties with attributes of their own, those of the base image
// (94-snapshot-names marks them), and proxies. All others can be taken for what they look like: one look
// into one set, for each object of a large state.
//
// Asking for the descriptor of every property would take most of a snapshot's time. Such properties
// come about only through the functions below (and by syntax: accessors of literals and classes, which
// can be asked for cheaply), so the functions remember what they were given.
const { mark } = (() => {
  const {
    Object, ObjectCreate, ObjectDefineProperties, ObjectDefineProperty, ObjectPrototype,
    ObjectPrototype__defineGetter__, ObjectPrototype__defineSetter__, ReflectDefineProperty,
    WeakSetPrototypeAdd, globalThis,
  } = primordials;

  function mark(object) {
    let target = object;
    // What is defined on a proxy arrives at its target.
    for (let i = 0; i < 1000; i++) {
      if ((typeof target !== "object" && typeof target !== "function") || target === null) return;
      WeakSetPrototypeAdd(marked, target);
      if (!isProxy(target)) return;
      target = proxyTarget(target);
    }
  }

  const statics = {
    create(prototype, properties) {
      const made = ObjectCreate(prototype, properties);
      if (properties !== undefined) mark(made);
      return made;
    },
    defineProperty(target, key, descriptor) {
      mark(target);
      return ObjectDefineProperty(target, key, descriptor);
    },
    defineProperties(target, descriptors) {
      mark(target);
      return ObjectDefineProperties(target, descriptors);
    },
  };
  const reflect = {
    defineProperty(target, key, descriptor) {
      mark(target);
      return ReflectDefineProperty(target, key, descriptor);
    },
  };
  const inherited = {
    __defineGetter__(key, getter) {
      mark(this);
      return ObjectPrototype__defineGetter__(this, key, getter);
    },
    __defineSetter__(key, setter) {
      mark(this);
      return ObjectPrototype__defineSetter__(this, key, setter);
    },
  };
  web.hide(Object, "create", statics.create);
  web.hide(Object, "defineProperty", statics.defineProperty);
  web.hide(Object, "defineProperties", statics.defineProperties);
  web.hide(globalThis.Reflect, "defineProperty", reflect.defineProperty);
  web.hide(ObjectPrototype, "__defineGetter__", inherited.__defineGetter__);
  web.hide(ObjectPrototype, "__defineSetter__", inherited.__defineSetter__);

  return { __proto__: null, mark };
})();
