// The bridge: how Python reaches the prelude, and the hooks by which the prelude's files meet.
//
// Python gets `bridge(name)` and nothing else; every entry of `bridgeTable` takes and returns only
// strings, ints and bools. Requests the other way are queued in `outbox` and drained by `poll`,
// because with a time limit set the engine can't call Python.
const bridgeTable = { __proto__: null };

// A long string made by `+` is a rope, a tag that the binding does not know: slicing makes it flat.
function bridge(name) {
  const { StringPrototypeSlice } = primordials;
  const entry = bridgeTable[name];
  if (entry === undefined) return undefined;
  return (a, b, c, d) => {
    const answer = entry(a, b, c, d);
    return typeof answer === "string" ? StringPrototypeSlice(answer, 0) : answer;
  };
}

const {
  defineGlobal, defineReserved, hooks, isReserved, newList, onConfigure, onEvalStart, onPoll,
  parseHostJson, restoreReserved, runHooks, withdrawReserved,
} = (() => {
  const {
    globalThis, JSONParse, ObjectDefineProperty, ObjectKeys, ObjectSetPrototypeOf,
    ReflectDefineProperty, ReflectGetOwnPropertyDescriptor,
  } = primordials;

  // Lists of our own have no prototype: an index write can't reach a setter on Array.prototype.
  function newList() {
    return ObjectSetPrototypeOf([], null);
  }

  const hooks = { __proto__: null, configure: newList(), evalStart: newList(), poll: newList() };

  function runHooks(list, argument) {
    for (let i = 0; i < list.length; i++) list[i](argument);
  }

  // All of ours are non-enumerable: `Object.keys(globalThis)` lists only what the guest made.
  function defineGlobal(name, value) {
    ObjectDefineProperty(globalThis, name, {
      __proto__: null, value, writable: true, enumerable: false, configurable: true,
    });
  }

  // A global that is back in place at every eval whatever the guest did to it. It may be assigned to,
  // which lasts until the next eval; as an accessor that can't be redefined, deleted or frozen,
  // there is nothing else to undo. `refresh`, if given, mends the value at its first use in an eval.
  // False where the guest got hold of the name first, and made a constant of it.
  const reserved = { __proto__: null };
  let epoch = 0;
  function defineReserved(name, value, refresh) {
    if (reserved[name] !== undefined) {
      reserved[name].value = value;
      reserved[name].isOurs = true;
      reserved[name].epoch = -1;
      return true;
    }
    const entry = { __proto__: null, value, current: value, epoch: -1, isOurs: true };
    const accessors = {
      get value() {
        if (entry.isOurs && entry.epoch !== epoch) {
          entry.epoch = epoch;
          if (refresh !== undefined) entry.value = refresh();
          entry.current = entry.value;
        }
        return entry.current;
      },
      set value(other) {
        entry.epoch = epoch;
        entry.current = other;
      },
    };
    const { get, set } = ReflectGetOwnPropertyDescriptor(accessors, "value");
    const isDefined = ReflectDefineProperty(globalThis, name, {
      __proto__: null, get, set, enumerable: false, configurable: false,
    });
    if (isDefined) reserved[name] = entry;
    return isDefined;
  }

  // From now on the name is the guest's, and means nothing until it is assigned to.
  function withdrawReserved(name) {
    const entry = reserved[name];
    if (entry === undefined || !entry.isOurs) return;
    entry.isOurs = false;
    entry.value = undefined;
    entry.current = undefined;
  }

  function restoreReserved() {
    epoch++;
  }

  // What the host sends, as records without prototypes: a field that is missing must read as
  // undefined, not as whatever the guest put on Object.prototype.
  function parseHostJson(json) {
    return bare(JSONParse(json));
  }

  function bare(value) {
    if (typeof value !== "object" || value === null) return value;
    const keys = ObjectKeys(value);
    ObjectSetPrototypeOf(value, null);
    for (let i = 0; i < keys.length; i++) value[keys[i]] = bare(value[keys[i]]);
    return value;
  }

  return {
    __proto__: null,
    defineGlobal,
    defineReserved,
    hooks,
    isReserved(name) { return reserved[name] !== undefined; },
    newList,
    onConfigure(hook) { hooks.configure[hooks.configure.length] = hook; },
    onEvalStart(hook) { hooks.evalStart[hooks.evalStart.length] = hook; },
    onPoll(hook) { hooks.poll[hooks.poll.length] = hook; },
    parseHostJson,
    restoreReserved,
    runHooks,
    withdrawReserved,
  };
})();
