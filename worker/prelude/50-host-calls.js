// Calls that wait for the host: queued in the outbox, settled by id when the answer comes.
const {
  drainOutbox, dropCalls, hostCall, hasRequests, openCalls, settleCall, startCalls,
} = (() => {
  const {
    Error, JSONParse, Map, MapPrototypeDelete, MapPrototypeForEach, MapPrototypeGet,
    MapPrototypeGetSize, MapPrototypeSet, ObjectDefineProperty, ObjectSetPrototypeOf, Promise,
    RangeErrorPrototype, SyntaxErrorPrototype, TypeErrorPrototype,
  } = primordials;

  const waiting = new Map(); // id -> { resolve, reject, site }
  let outbox = newList();
  let lastId = 0;
  let firstIdOfEval = 1;

  function hide(target, key, value) {
    ObjectDefineProperty(target, key, {
      __proto__: null, value, writable: true, enumerable: false, configurable: true,
    });
  }

  // `input` is encoded JSON. The promise is native, and settles with the host's answer only.
  function hostCall(name, input) {
    const id = ++lastId;
    // Where the program made the call: an error that arrives later has no frames of its own.
    const site = new Error("");
    return new Promise((resolve, reject) => {
      MapPrototypeSet(waiting, id, { __proto__: null, resolve, reject, site });
      outbox[outbox.length] = { __proto__: null, id, name, input };
    });
  }

  // An error of the host's, made where the call was: of the native class if there is one of that name.
  const natives = { __proto__: null, RangeErrorPrototype, SyntaxErrorPrototype, TypeErrorPrototype };
  function hostError(site, name, message) {
    const prototype = natives[`${name}Prototype`];
    if (prototype !== undefined) ObjectSetPrototypeOf(site, prototype);
    else if (name !== "Error") hide(site, "name", name);
    hide(site, "message", message);
    return site;
  }

  function settleCall(id, ok, json) {
    const call = MapPrototypeGet(waiting, id);
    if (call === undefined) return 0; // cancelled meanwhile, or never made
    MapPrototypeDelete(waiting, id);
    if (ok) {
      call.resolve(decodeValue(json));
      return 1;
    }
    const answer = JSONParse(json);
    call.reject(hostError(call.site, `${answer[0]}`, `${answer[1]}`));
    return 1;
  }

  // One line per part: `id name` and the input, which have no line breaks of their own.
  function drainOutbox() {
    let text = "";
    for (let i = 0; i < outbox.length; i++) {
      const { id, name, input } = outbox[i];
      text += `\n${id} ${name}\n${input}`;
    }
    outbox = newList();
    return text;
  }

  // Forget the calls of the current eval; those that earlier ones left in flight stay.
  function dropCalls() {
    outbox = newList();
    MapPrototypeForEach(waiting, (call, id) => {
      if (id >= firstIdOfEval) MapPrototypeDelete(waiting, id);
    });
  }

  return {
    __proto__: null,
    drainOutbox,
    dropCalls,
    hasRequests() { return outbox.length !== 0; },
    hostCall,
    openCalls() { return MapPrototypeGetSize(waiting); },
    settleCall,
    startCalls() { firstIdOfEval = lastId + 1; },
  };
})();
