// One eval inside the engine: run, wait for its promise, and report. Python drives it step by step.
//
//   limits(resultChars, consoleChars, valueBytes, valueNodes)
//   run(source, flags)   flags: 1 first script, 2 last script, 4 boxed, 8 the value is wanted
//                        -> 0 settled, 1 pending
//   poll(nowMs)          -> 0 pending, 1 settled, and nothing else to tell; or a text of lines:
//                        "settled nextTimerMs|- openCalls", then for each call "id name" and its input;
//                        nowMs is below 0 while timers stand still
//   finish()             -> [text, stdout, kind, oom, value error, error] as a line of JSON, then the
//                           encoded value (or nothing)
//   abandon()            -> what was printed, as a JSON string; the eval is forgotten
{
  const {
    ArrayBuffer, ArrayIsArray, JSONStringify, ObjectPrototypeHasOwnProperty, PromisePrototypeThen,
    ReflectGetOwnPropertyDescriptor, indirectEval,
  } = primordials;

  const FIRST = 1;
  const LAST = 2;
  const BOXED = 4;
  const WANT_VALUE = 8;

  let resultChars = 4000;
  let valueBytes = 16777216;
  let valueNodes = 1000000;

  // The current eval. A reaction of an earlier one that fires late sees another generation.
  let generation = 0;
  let isSettled = true;
  let isError = false;
  let result;
  let wantsValue = false;

  function settle(failed, value) {
    isSettled = true;
    isError = failed;
    result = value;
  }

  function begin() {
    generation++;
    isSettled = false;
    isError = false;
    result = undefined;
    clearConsole();
    startCalls();
    restoreReserved();
    runHooks(hooks.evalStart);
  }

  // The program's value as it comes from the engine: in a box when a thenable must not be resolved by
  // the async function around it. A native promise is waited for; any other thenable is a value.
  function resolveWith(value, isBoxed) {
    let inner = value;
    let boxed = isBoxed;
    if (boxed && ArrayIsArray(inner)) {
      const slot = ReflectGetOwnPropertyDescriptor(inner, "0");
      inner = slot !== undefined && ObjectPrototypeHasOwnProperty(slot, "value") ? slot.value : undefined;
      boxed = false;
    }
    if (typeof inner !== "object" || inner === null || isProxy(inner) || !isPromiseLike(inner)
      || !waitFor(inner, boxed)) {
      settle(false, inner);
    }
  }

  // False when it only looks like a promise. The constructor that `then` looks up is locked on
  // Promise.prototype; one that a guest puts on its own promise or class may run guest code,
  // now, as part of its eval.
  function waitFor(promise, isBoxed) {
    const own = generation;
    try {
      PromisePrototypeThen(
        promise,
        (value) => { if (own === generation) resolveWith(value, isBoxed); },
        (reason) => { if (own === generation) settle(true, reason); },
      );
      return true;
    } catch {
      return false;
    }
  }

  bridgeTable.limits = (result, consoleChars, bytes, nodes) => {
    resultChars = result;
    valueBytes = bytes;
    valueNodes = nodes;
    setConsoleChars(consoleChars);
    setValueLimits(bytes, nodes);
    return 1;
  };

  bridgeTable.configure = (json) => {
    runHooks(hooks.configure, parseHostJson(json));
    return 1;
  };

  bridgeTable.run = (source, flags) => {
    if ((flags & FIRST) !== 0) begin();
    else if (isSettled) return 0; // an earlier script of the same program threw
    wantsValue = (flags & WANT_VALUE) !== 0;
    try {
      const value = indirectEval(source);
      if ((flags & LAST) !== 0) resolveWith(value, (flags & BOXED) !== 0);
    } catch (thrown) {
      settle(true, thrown);
    }
    return isSettled ? 0 : 1;
  };

  bridgeTable.poll = (nowMs) => {
    // Calls first: one that stops the eval stops its timers too, those that are due included.
    const timers = nowMs >= 0;
    if (timers && !hasRequests()) runHooks(hooks.poll, nowMs);
    const next = timers ? nextTimerMs(nowMs) : null;
    const open = openCalls();
    if (next === null && open === 0 && !hasRequests()) return isSettled ? 1 : 0;
    return flat(`${isSettled ? 1 : 0} ${next === null ? "-" : next} ${open}${drainOutbox()}`);
  };

  // --- the outcome -------------------------------------------------------------------------------
  function kindOfResult(value) {
    if (typeof value === "function" || typeof value === "symbol") return "handle";
    if (typeof value !== "object" || value === null || isProxy(value)) return "value";
    const kind = kindOf(value);
    return kind === "Promise" || kind === "WeakMap" || kind === "WeakSet" || kind === "WeakRef"
      ? "handle" : "value";
  }

  function printed() {
    const text = consoleText();
    return text === "" ? '""' : quote(text);
  }

  function errorOutcome(thrown) {
    let about;
    try {
      about = describeThrown(thrown);
    } catch (failure) {
      about = {
        __proto__: null, name: "Error", message: "the error could not be read", stack: "",
        oom: oomOf(failure),
      };
    }
    return `["",${printed()},"value",${about.oom},null,`
      + `[${quote(about.name)},${quote(about.message)},${quote(about.stack)}]]\n`;
  }

  // Reading and formatting fail only when the engine itself does.
  function oomOf(failure) {
    return describeThrown(failure).oom;
  }

  function valueOutcome(value) {
    let oom = 0;
    let text = "";
    let kind = "value";
    let encoded = "";
    let valueError = "null";
    try {
      text = formatText(value, resultChars);
      kind = kindOfResult(value);
    } catch (failure) {
      oom = oomOf(failure);
      text = "[the value could not be shown]";
    }
    if (wantsValue) {
      try {
        encoded = encodeValue(value, valueBytes, valueNodes);
      } catch (thrown) {
        const { type, message } = encodeFailure(thrown);
        valueError = `[${quote(type)},${quote(message)}]`;
        if (oom === 0) oom = oomOfReading(thrown);
      }
    }
    // A getter may have printed something: the console comes last.
    const shown = typeof value === "number" ? `"${text}"` : quote(text);
    return `[${shown},${printed()},"${kind}",${oom},${valueError},null]\n${encoded}`;
  }

  function oomOfReading(thrown) {
    return typeof thrown === "object" ? oomOf(thrown) : 0;
  }

  bridgeTable.finish = () => {
    const value = result;
    result = undefined;
    return flat(isError ? errorOutcome(value) : valueOutcome(value));
  };

  bridgeTable.abandon = () => {
    generation++;
    settle(false, undefined);
    dropCalls();
    abandonModules();
    const text = printed();
    clearConsole();
    return flat(text);
  };

  bridgeTable.stdout = () => flat(printed());

  bridgeTable.settle = (id, ok, json) => settleCall(id, ok, json);

  // --- upkeep ------------------------------------------------------------------------------------
  // Touches what an eval touches, so that a fork's first write to those pages is not on an eval's path.
  bridgeTable.warm = () => {
    const sample = { __proto__: null, n: indirectEval("0") };
    clearConsole();
    return formatText(sample, 100).length + encodeValue(sample, 100, 10).length
      + JSONStringify("").length;
  };

  // Throws when the heap is over a limit that was just lowered.
  bridgeTable.probeAlloc = () => {
    const probe = { __proto__: null, bytes: new ArrayBuffer(1) };
    return probe.bytes === undefined ? 0 : 1;
  };
}
