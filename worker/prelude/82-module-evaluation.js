// Running modules, each once and after those it imports, as ECMAScript orders it: modules that don't wait
// run one after another; one with top-level await holds up only those that import it.
//
// The names follow the standard (InnerModuleEvaluation, AsyncModuleExecutionFulfilled, ...), without its
// recursion: chains of modules may be long. What runs a module works on its `run`, so that one which
// was abandoned can't touch the module when it is evaluated anew.
const { abandonModules, importModule, stepModule } = (() => {
  const {
    GeneratorFunctionPrototype, MapPrototypeGet, ObjectDefineProperty, Promise, PromisePrototypeThen,
    SyntaxError, globalThis, uncurryThis,
  } = primordials;
  const { EVALUATED, EVALUATING, EVALUATING_ASYNC, LINKED } = RunState;

  const INTERRUPTED = 3; // as describeThrown tells it
  const DONE = -1; // as a run's order: it was asynchronous, and is no more
  let orders = 0;
  let stamp = 0; // counts evals
  onEvalStart(() => { stamp++; });

  const stepModule = uncurryThis(GeneratorFunctionPrototype.prototype.next);

  function settle(run) {
    const { waiters } = run;
    run.waiters = newList();
    for (let i = 0; i < waiters.length; i++) {
      if (run.hasError) waiters[i].reject(run.error);
      else waiters[i].resolve();
    }
  }

  function fail(run, error) {
    run.state = EVALUATED;
    run.order = DONE;
    run.hasError = true;
    run.error = error;
    run.isInterrupted = describeThrown(error).oom === INTERRUPTED;
  }

  let current = null; // the run that is in `runNow`, or was interrupted there
  function runNow(run) {
    current = run;
    if (!run.isFilled) fillScope(run);
    if (run.steps !== null && !stepModule(run.steps).done) {
      throw new SyntaxError(`yield outside of a generator (${run.record.id})`);
    }
  }

  function startWaiting(run) {
    try {
      if (!run.isFilled) fillScope(run);
      if (run.promise === null) enterModule(run.record, run, undefined);
      else run.release();
    } catch (error) {
      rejected(run, error);
      return;
    }
    const after = PromisePrototypeThen(
      run.promise, () => fulfilled(run), (error) => rejected(run, error),
    );
    // Nothing but an interrupt gets there, and in the classic engine it does.
    PromisePrototypeThen(after, undefined, (error) => rejected(current, error));
  }

  function fulfilled(run) {
    if (run.state === EVALUATED) return;
    complete(run);
    const ready = availableAncestors(run);
    for (let i = 0; i < ready.length; i++) {
      const next = ready[i];
      if (next.state === EVALUATED) continue; // an error got there first
      if (next.record.about.waits) {
        startWaiting(next);
        continue;
      }
      try {
        runNow(next);
      } catch (error) {
        rejected(next, error);
        continue;
      }
      complete(next);
    }
  }

  function complete(run) {
    run.state = EVALUATED;
    run.order = DONE;
    settle(run);
  }

  function rejected(run, error) {
    const queue = newList();
    queue[0] = run;
    for (let head = 0; head < queue.length; head++) {
      const failing = queue[head];
      if (failing.state === EVALUATED) continue;
      fail(failing, error);
      const { parents } = failing;
      for (let i = 0; i < parents.length; i++) queue[queue.length] = parents[i];
      settle(failing);
    }
  }

  // Those that waited for nothing but this one, and those that now wait for nothing but them; in the
  // order in which they came to wait.
  function availableAncestors(run) {
    const queue = newList();
    const found = newList();
    queue[0] = run;
    for (let head = 0; head < queue.length; head++) {
      const { parents } = queue[head];
      for (let i = 0; i < parents.length; i++) {
        const parent = parents[i];
        if (parent.state === EVALUATED || (parent.cycleRoot !== null && parent.cycleRoot.hasError)) continue;
        if (--parent.pending !== 0) continue;
        let at = found.length;
        while (at > 0 && found[at - 1].order > parent.order) {
          found[at] = found[at - 1];
          at--;
        }
        found[at] = parent;
        if (!parent.record.about.waits) queue[queue.length] = parent;
      }
    }
    return found;
  }

  // --- the first pass: depth first, cycles found as Tarjan does ------------------------------------
  function evaluateGraph(root) {
    const stack = newList(); // runs whose cycle is not complete
    const frames = newList();
    let count = 0;

    function enter(run) {
      run.state = EVALUATING;
      run.stamp = stamp;
      run.index = count;
      run.ancestor = count++;
      stack[stack.length] = run;
      frames[frames.length] = { __proto__: null, run, at: 0 };
    }

    function leave(run) {
      if (run.pending > 0 || run.record.about.waits) {
        run.order = ++orders;
        if (run.pending === 0) startWaiting(run);
      } else {
        runNow(run);
      }
      if (run.ancestor !== run.index) return;
      for (let isRoot = false; !isRoot; stack.length -= 1) {
        const member = stack[stack.length - 1];
        isRoot = member === run;
        if (member.state === EVALUATING) {
          member.state = member.order === 0 ? EVALUATED : EVALUATING_ASYNC;
        }
        member.cycleRoot = run;
      }
    }

    try {
      enter(root);
      while (frames.length !== 0) {
        const frame = frames[frames.length - 1];
        const { run } = frame;
        if (frame.at === run.record.links.length) {
          leave(run);
          frames.length -= 1;
          continue;
        }
        let dep = run.record.links[frame.at].run;
        if (dep.state === LINKED) {
          enter(dep);
          continue; // and back here when it has been left
        }
        frame.at++;
        if (dep.state === EVALUATING) {
          if (dep.ancestor < run.ancestor) run.ancestor = dep.ancestor;
        } else {
          if (dep.cycleRoot !== null) dep = dep.cycleRoot;
          if (dep.hasError) throw dep.error;
        }
        if (dep.order > 0) {
          run.pending++;
          dep.parents[dep.parents.length] = run;
        }
      }
    } catch (error) {
      for (let i = 0; i < stack.length; i++) fail(stack[i], error);
    }
  }

  function evaluate(record, resolve, reject) {
    let { run } = record;
    if (run.state !== LINKED && run.cycleRoot !== null) run = run.cycleRoot;
    run.waiters[run.waiters.length] = { __proto__: null, resolve, reject };
    if (run.state === LINKED) evaluateGraph(run);
    if (run.state === EVALUATED) settle(run);
  }

  // --- import() ----------------------------------------------------------------------------------
  // What the program asks for; `names` are exports that have to be there.
  function importModule(specifier, importer, names) {
    return new Promise((resolve, reject) => {
      const request = `[${quote(`${specifier}`)},${quote(importer)}]`;
      const after = PromisePrototypeThen(hostCall("@import", request), (id) => {
        try {
          const record = MapPrototypeGet(modulesById, id);
          linkModule(record);
          evaluate(record, () => {
            for (let i = 0; i < names.length; i++) {
              if (!hasExport(record, names[i])) {
                reject(noExport(record, names[i], importer, false));
                return;
              }
            }
            resolve(namespaceOf(record));
          }, reject);
        } catch (error) {
          reject(error);
        }
      }, reject);
      PromisePrototypeThen(after, undefined, reject); // an interrupt
    });
  }

  // The transpiler makes `import(x)` of a program a call of this; a static import adds the names that
  // it wants. A guest may call it as it may call import().
  const methods = {
    import(specifier, options, ...wanted) {
      const names = newList();
      for (let i = 0; i < wanted.length; i++) names[i] = `${wanted[i]}`;
      return importModule(specifier, "", names);
    },
  };
  ObjectDefineProperty(globalThis, "$qjs_import", {
    __proto__: null, value: methods.import, writable: false, enumerable: false, configurable: false,
  });

  // An eval was given up, and with it what its modules were waiting for.
  function abandonModules() {
    const lost = abandonRuns((run) => run.state === LINKED || run.isInterrupted
      || (run.stamp === stamp && run.state !== EVALUATED));
    for (let i = 0; i < lost.length; i++) {
      if (lost[i].state !== EVALUATED) fail(lost[i], undefined);
    }
  }

  return { __proto__: null, abandonModules, importModule, stepModule };
})();
