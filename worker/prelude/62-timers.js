// setTimeout and its kin, on the host's monotonic clock.
//
// What belongs here: which callback is due when. What does not: waiting (the worker's loop does
// that, told by `nextTimerMs`) and running the jobs a callback queued (the loop does that between
// polls, so that, as in a browser, promises settle between two callbacks).
const timers = (() => {
  const {
    Map, MapPrototypeDelete, MapPrototypeGet, MapPrototypeGetSize, MapPrototypeSet, MathTrunc,
    RangeError, ReflectApply, TypeError,
  } = primordials;

  const MAX_TIMERS = 10000;
  const MAX_DELAY_MS = 2147483647;

  const live = new Map(); // id -> timer
  // New timers have no due time yet: they start to count at the next poll, when the program gives
  // way. The time known inside a long computation is stale, and a timer must never fire early.
  let unanchored = web.list();
  let heap = web.list(); // by due time, then by creation; cleared timers linger until they surface
  let lastId = 0;

  function before(a, b) {
    return a.dueMs < b.dueMs || (a.dueMs === b.dueMs && a.order < b.order);
  }

  function heapPush(timer) {
    let at = heap.length;
    heap[at] = timer;
    while (at > 0) {
      const parent = (at - 1) >> 1;
      if (!before(timer, heap[parent])) break;
      heap[at] = heap[parent];
      at = parent;
    }
    heap[at] = timer;
  }

  function heapPop() {
    const size = heap.length - 1;
    const last = heap[size];
    heap.length = size;
    if (size === 0) return;
    let at = 0;
    for (let child = 1; child < size; child = 2 * at + 1) {
      if (child + 1 < size && before(heap[child + 1], heap[child])) child++;
      if (!before(heap[child], last)) break;
      heap[at] = heap[child];
      at = child;
    }
    heap[at] = last;
  }

  // Cleared timers are dropped once they outnumber the live ones: set and clear in a loop is cheap.
  function compact() {
    const liveCount = MapPrototypeGetSize(live);
    if (heap.length > 64 + 2 * liveCount) {
      const old = heap;
      heap = web.list();
      for (let i = 0; i < old.length; i++) if (old[i].run !== null) heapPush(old[i]);
    }
    if (unanchored.length > 64 + 2 * liveCount) {
      const old = unanchored;
      unanchored = web.list();
      for (let i = 0; i < old.length; i++) {
        if (old[i].run !== null) unanchored[unanchored.length] = old[i];
      }
    }
  }

  function start(run, delay, repeats) {
    if (MapPrototypeGetSize(live) >= MAX_TIMERS) {
      throw new RangeError(`too many timers: at most ${MAX_TIMERS} can be pending`);
    }
    const usable = delay >= 1 && delay <= MAX_DELAY_MS; // false for NaN
    const id = ++lastId;
    const timer = {
      __proto__: null, id, order: id, repeats, run,
      delayMs: usable ? MathTrunc(delay) : 1,
      dueMs: 0,
    };
    MapPrototypeSet(live, id, timer);
    unanchored[unanchored.length] = timer;
    return id;
  }

  function clear(id) {
    const kind = typeof id;
    if (kind !== "number" && kind !== "string") return;
    const timer = MapPrototypeGet(live, +id);
    if (timer === undefined) return;
    MapPrototypeDelete(live, timer.id);
    timer.run = null;
    compact();
  }

  function anchor(nowMs) {
    const count = unanchored.length;
    for (let i = 0; i < count; i++) {
      const timer = unanchored[i];
      if (timer.run === null) continue;
      timer.dueMs = nowMs + timer.delayMs;
      heapPush(timer);
    }
    if (count !== 0) unanchored.length = 0;
    while (heap.length !== 0 && heap[0].run === null) heapPop();
  }

  // Milliseconds until a callback is due: 0 when one waits for the next poll, null without timers.
  function nextTimerMs(nowMs) {
    if (MapPrototypeGetSize(live) === 0) return null;
    anchor(nowMs);
    const waitMs = heap[0].dueMs - nowMs;
    return waitMs > 0 ? waitMs : 0;
  }

  onPoll((nowMs) => {
    if (MapPrototypeGetSize(live) === 0) return;
    anchor(nowMs);
    const timer = heap[0];
    if (timer.dueMs > nowMs) return;
    heapPop();
    const { run } = timer;
    if (timer.repeats) {
      timer.order = ++lastId;
      unanchored[unanchored.length] = timer;
    } else {
      MapPrototypeDelete(live, timer.id);
      timer.run = null;
    }
    try {
      run();
    } catch (error) {
      logUncaught(error);
    }
  });

  function startGuest(name, callback, delay, values, repeats) {
    if (typeof callback !== "function") {
      throw new TypeError(`${name}: the callback must be a function, not ${typeof callback}`);
    }
    return start(() => ReflectApply(callback, undefined, values), +delay, repeats);
  }

  // Shorthand methods: like the built-in functions they have no prototype and can't be constructed.
  const methods = {
    setTimeout(callback, delay, ...values) {
      return startGuest("setTimeout", callback, delay, values, false);
    },
    setInterval(callback, delay, ...values) {
      return startGuest("setInterval", callback, delay, values, true);
    },
    clearTimeout(id) { clear(id); },
    clearInterval(id) { clear(id); },
  };
  defineGlobal("setTimeout", methods.setTimeout);
  defineGlobal("setInterval", methods.setInterval);
  defineGlobal("clearTimeout", methods.clearTimeout);
  defineGlobal("clearInterval", methods.clearInterval);

  return { __proto__: null, clear, nextTimerMs, start };
})();

const { nextTimerMs } = timers;
