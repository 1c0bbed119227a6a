// Event, EventTarget, AbortController and AbortSignal, after the DOM standard (without a tree).
{
  const {
    ArrayIsArray, Map, MapPrototypeGet, MapPrototypeSet, ReflectApply, TypeError, WeakMap,
    WeakMapPrototypeGet, WeakMapPrototypeSet,
  } = primordials;

  const events = new WeakMap();
  const targets = new WeakMap(); // -> {listeners: Map of type to list}
  const signals = new WeakMap(); // -> {aborted, reason, onabort, dependents}
  const controllers = new WeakMap(); // -> signal

  function stateOf(states, object, name) {
    const state = WeakMapPrototypeGet(states, object);
    if (state === undefined) throw new TypeError(`Illegal invocation: this is not an ${name}`);
    return state;
  }
  const eventOf = (object) => stateOf(events, object, "Event");
  const signalOf = (object) => stateOf(signals, object, "AbortSignal");

  class Event {
    constructor(type, options = undefined) {
      web.requireArguments(arguments.length, 1, "Event");
      const given = options == null ? { __proto__: null } : options;
      WeakMapPrototypeSet(events, this, {
        __proto__: null, type: `${type}`, bubbles: !!given.bubbles, cancelable: !!given.cancelable,
        composed: !!given.composed, target: null, current: null, phase: 0, canceled: false,
        stopped: false, stoppedNow: false, passive: false, dispatching: false, trusted: false,
      });
    }

    get type() { return eventOf(this).type; }

    get target() { return eventOf(this).target; }

    get currentTarget() { return eventOf(this).current; }

    get eventPhase() { return eventOf(this).phase; }

    get bubbles() { return eventOf(this).bubbles; }

    get cancelable() { return eventOf(this).cancelable; }

    get composed() { return eventOf(this).composed; }

    get defaultPrevented() { return eventOf(this).canceled; }

    get isTrusted() { return eventOf(this).trusted; }

    get timeStamp() { return eventOf(this) && 0; } // no clock for the guest but Date

    composedPath() {
      const { current } = eventOf(this);
      return current === null ? [] : [current];
    }

    preventDefault() {
      const event = eventOf(this);
      if (event.cancelable && !event.passive) event.canceled = true;
    }

    stopPropagation() { eventOf(this).stopped = true; }

    stopImmediatePropagation() {
      const event = eventOf(this);
      event.stopped = true;
      event.stoppedNow = true;
    }
  }

  // The listener list of a type; a listener is {callback, once, passive, capture, removed}.
  function listenersOf(target, type, create) {
    const { listeners } = stateOf(targets, target, "EventTarget");
    let found = MapPrototypeGet(listeners, type);
    if (found === undefined && create) {
      found = web.list();
      MapPrototypeSet(listeners, type, found);
    }
    return found;
  }

  function remove(list, listener) {
    listener.removed = true;
    let kept = 0;
    for (let i = 0; i < list.length; i++) if (!list[i].removed) list[kept++] = list[i];
    list.length = kept;
  }

  const isCapture = (options) => (typeof options === "object" && options !== null
    ? !!options.capture : !!options);

  class EventTarget {
    constructor() {
      WeakMapPrototypeSet(targets, this, { __proto__: null, listeners: new Map() });
    }

    addEventListener(type, callback, options = undefined) {
      stateOf(targets, this, "EventTarget");
      web.requireArguments(arguments.length, 2, "EventTarget.addEventListener");
      const capture = isCapture(options);
      const given = typeof options === "object" && options !== null ? options : { __proto__: null };
      const { once, passive, signal } = given;
      const stop = signal === undefined ? null : signalOf(signal);
      if (callback === null || callback === undefined) return;
      if (typeof callback !== "function" && typeof callback !== "object") {
        throw new TypeError("EventTarget.addEventListener: the listener must be a function");
      }
      if (stop !== null && stop.aborted) return;
      const list = listenersOf(this, `${type}`, true);
      for (let i = 0; i < list.length; i++) {
        if (list[i].callback === callback && list[i].capture === capture) return;
      }
      const listener = {
        __proto__: null, callback, capture, once: !!once, passive: !!passive, removed: false,
      };
      list[list.length] = listener;
      if (stop !== null) stop.steps[stop.steps.length] = () => remove(list, listener);
    }

    removeEventListener(type, callback, options = undefined) {
      const list = listenersOf(this, `${type}`, false);
      const capture = isCapture(options);
      if (list === undefined) return;
      for (let i = 0; i < list.length; i++) {
        if (list[i].callback === callback && list[i].capture === capture) {
          remove(list, list[i]);
          return;
        }
      }
    }

    dispatchEvent(event) {
      stateOf(targets, this, "EventTarget");
      const state = eventOf(event);
      if (state.dispatching) {
        throw new DOMException("the event is already being dispatched", "InvalidStateError");
      }
      state.trusted = false;
      return dispatch(this, event, state);
    }
  }

  function dispatch(target, event, state) {
    const list = listenersOf(target, state.type, false);
    state.target = target;
    state.current = target;
    state.phase = 2;
    state.dispatching = true;
    const handler = state.type === "abort" ? WeakMapPrototypeGet(signals, target) : undefined;
    if (handler !== undefined && typeof handler.onabort === "function") {
      call(handler.onabort, target, event);
    }
    if (list !== undefined) {
      const now = web.list(); // listeners added meanwhile wait for the next event
      for (let i = 0; i < list.length; i++) now[i] = list[i];
      for (let i = 0; i < now.length && !state.stoppedNow; i++) {
        const listener = now[i];
        if (listener.removed) continue;
        if (listener.once) remove(list, listener);
        state.passive = listener.passive;
        call(listener.callback, target, event);
        state.passive = false;
      }
    }
    state.current = null;
    state.phase = 0;
    state.dispatching = false;
    state.stopped = false;
    state.stoppedNow = false;
    return !state.canceled;
  }

  // A listener's error is reported and ends there: the one who dispatches did nothing wrong.
  function call(callback, target, event) {
    try {
      if (typeof callback === "function") ReflectApply(callback, target, [event]);
      else ReflectApply(callback.handleEvent, callback, [event]);
    } catch (error) {
      logUncaught(error);
    }
  }

  const SECRET = { __proto__: null };

  class AbortSignal extends EventTarget {
    constructor(secret = undefined) {
      if (secret !== SECRET) throw new TypeError("Illegal constructor: use an AbortController");
      super();
      WeakMapPrototypeSet(signals, this, {
        __proto__: null, aborted: false, reason: undefined, onabort: null, steps: web.list(),
      });
    }

    static abort(reason = undefined) {
      const signal = new AbortSignal(SECRET);
      const state = signalOf(signal);
      state.aborted = true;
      state.reason = orAbortError(reason);
      return signal;
    }

    static timeout(delay) {
      web.requireArguments(arguments.length, 1, "AbortSignal.timeout");
      const delayMs = +delay;
      if (!(delayMs >= 0 && delayMs <= 9007199254740991)) {
        throw new TypeError("AbortSignal.timeout: the delay must be a number of milliseconds");
      }
      const signal = new AbortSignal(SECRET);
      timers.start(() => {
        abort(signal, new DOMException("The operation was aborted due to timeout", "TimeoutError"));
      }, delayMs, false);
      return signal;
    }

    static any(sources) {
      web.requireArguments(arguments.length, 1, "AbortSignal.any");
      const items = web.list();
      if (ArrayIsArray(sources)) for (let i = 0; i < sources.length; i++) items[i] = sources[i];
      else for (const source of sources) items[items.length] = source;
      const signal = new AbortSignal(SECRET);
      const state = signalOf(signal);
      for (let i = 0; i < items.length; i++) {
        const source = signalOf(items[i]);
        if (source.aborted && !state.aborted) {
          state.aborted = true;
          state.reason = source.reason;
        }
      }
      for (let i = 0; i < items.length && !state.aborted; i++) {
        const source = signalOf(items[i]);
        source.steps[source.steps.length] = () => abort(signal, source.reason);
      }
      return signal;
    }

    get aborted() { return signalOf(this).aborted; }

    get reason() { return signalOf(this).reason; }

    get onabort() { return signalOf(this).onabort; }

    set onabort(handler) {
      const state = signalOf(this);
      state.onabort = typeof handler === "function" ? handler : null;
    }

    throwIfAborted() {
      const { aborted, reason } = signalOf(this);
      if (aborted) throw reason;
    }
  }

  function orAbortError(reason) {
    if (reason !== undefined) return reason;
    return new DOMException("This operation was aborted", "AbortError");
  }

  function abort(signal, reason) {
    const state = signalOf(signal);
    if (state.aborted) return;
    state.aborted = true;
    state.reason = orAbortError(reason);
    const { steps } = state;
    state.steps = web.list();
    for (let i = 0; i < steps.length; i++) steps[i]();
    const event = new Event("abort");
    const eventState = eventOf(event);
    eventState.trusted = true;
    dispatch(signal, event, eventState);
  }

  class AbortController {
    constructor() {
      WeakMapPrototypeSet(controllers, this, new AbortSignal(SECRET));
    }

    get signal() { return stateOf(controllers, this, "AbortController"); }

    abort(reason = undefined) { abort(stateOf(controllers, this, "AbortController"), reason); }
  }

  const classes = { __proto__: null, Event, EventTarget, AbortSignal, AbortController };
  for (const name in classes) {
    web.tag(classes[name], name);
    defineGlobal(name, classes[name]);
  }
  web.platform(Event, (object) => `Event {type: ${quote(eventOf(object).type)}}`);
  web.platform(AbortSignal, (object) => `AbortSignal {aborted: ${signalOf(object).aborted}}`);
  web.platform(AbortController, (object) => {
    const signal = stateOf(controllers, object, "AbortController");
    return `AbortController {signal: AbortSignal {aborted: ${signalOf(signal).aborted}}}`;
  });
  // Plain event targets show their own fields like any other object.
  web.platform(EventTarget);
}
