// Modules: what is known of them, how imports find exports, and namespace objects.
//
// Python finds and compiles a module and its dependencies, and hands them over before it answers an
// import (`stageModules`, then `commitModules`), so there is no state of loading here. A record
// is the module as compiled; its `run` is the module linked, and later evaluated (82), or null.
const {
  RunState, abandonRuns, collectModuleExports, enterModule, fillScope, hasExport, isLiveGetter,
  isModuleNamespace, linkModule, modulesById, namespaceOf, noExport,
} = (() => {
  const {
    ArrayPrototypeJoin, ArrayPrototypeSort, JSONParse, Map, MapPrototypeForEach, MapPrototypeGet,
    MapPrototypeHas, MapPrototypeSet, ObjectDefineProperty, ObjectPreventExtensions, Promise,
    ReflectGetOwnPropertyDescriptor, Set, SetPrototypeAdd, SetPrototypeForEach, SetPrototypeHas,
    SymbolToStringTag, SyntaxError, TypeError, WeakMap, WeakMapPrototypeHas, WeakMapPrototypeSet,
    WeakSet, WeakSetPrototypeAdd, WeakSetPrototypeHas, indirectEval,
  } = primordials;

  const ALL = "*"; // as the name of an export: the namespace
  const RunState = { __proto__: null, LINKED: 0, EVALUATING: 1, EVALUATING_ASYNC: 2, EVALUATED: 3 };
  const MAX_LISTED = 30;

  const registry = new Map(); // id -> record
  let staged = newList();

  // --- from Python ---------------------------------------------------------------------------------
  function newRecord(about, code) {
    const names = new Map(); // of its own exports -> index of the getter
    const indirect = new Map(); // name -> { dep, name }: exports of another module's
    for (let i = 0; i < about.exports.length; i++) MapPrototypeSet(names, about.exports[i], i);
    for (let i = 0; i < about.reexports.length; i++) {
      const entry = about.reexports[i];
      MapPrototypeSet(indirect, entry[0], { __proto__: null, dep: entry[1], name: entry[2] });
    }
    return {
      __proto__: null, id: about.id, about, code, names, indirect, links: newList(), targets: newList(),
      visit: 0, run: null, namespace: null,
    };
  }

  // `make` compiles, which runs nothing. Answers "", or [name, message, stack] of a syntax error.
  function stage(json, make) {
    const list = parseHostJson(json);
    try {
      const codes = make();
      for (let i = 0; i < list.length; i++) staged[staged.length] = newRecord(list[i], codes[i]);
      return "";
    } catch (thrown) {
      const { name, message, stack } = describeThrown(thrown);
      return flat(`[${quote(name)},${quote(message)},${quote(stack)}]`);
    }
  }

  // The source is a list of functions, one for each module.
  bridgeTable.stageModules = (json, source) => stage(json, () => indirectEval(source));
  bridgeTable.stageJson = (json, source) => stage(json, () => [JSONParse(source)]);

  // Of a graph with an error in it, nothing is kept.
  bridgeTable.commitModules = (isComplete) => {
    for (let i = 0; isComplete && i < staged.length; i++) {
      MapPrototypeSet(registry, staged[i].id, staged[i]);
    }
    staged = newList();
    return 1;
  };

  // --- finding exports ---------------------------------------------------------------------------
  const AMBIGUOUS = { __proto__: null };

  // { record, index } of the getter that a name leads to (index -1: the namespace), null, or AMBIGUOUS.
  function resolveExport(record, name, seen) {
    const key = `${record.id}\n${name}`;
    if (SetPrototypeHas(seen, key)) return null; // a circle of re-exports
    SetPrototypeAdd(seen, key);
    const index = MapPrototypeGet(record.names, name);
    if (index !== undefined) return { __proto__: null, record, index };
    const other = MapPrototypeGet(record.indirect, name);
    if (other !== undefined) {
      const dep = record.links[other.dep];
      if (other.name === ALL) return { __proto__: null, record: dep, index: -1 };
      return resolveExport(dep, other.name, seen);
    }
    if (name === "default") return null; // `export *` leaves it out
    const { stars } = record.about;
    let found = null;
    for (let i = 0; i < stars.length; i++) {
      const target = resolveExport(record.links[stars[i]], name, seen);
      if (target === AMBIGUOUS) return AMBIGUOUS;
      if (target === null) continue;
      if (found === null) found = target;
      else if (found.record !== target.record || found.index !== target.index) return AMBIGUOUS;
    }
    return found;
  }

  function addNames(record, isStar, seen, names) {
    if (SetPrototypeHas(seen, record)) return;
    SetPrototypeAdd(seen, record);
    const add = (_, name) => {
      if (!isStar || name !== "default") SetPrototypeAdd(names, name);
    };
    MapPrototypeForEach(record.names, add);
    MapPrototypeForEach(record.indirect, add);
    const { stars } = record.about;
    for (let i = 0; i < stars.length; i++) addNames(record.links[stars[i]], true, seen, names);
  }

  function exportedNames(record) {
    const names = new Set();
    addNames(record, false, new Set(), names);
    const list = newList();
    SetPrototypeForEach(names, (name) => { list[list.length] = name; });
    return ArrayPrototypeSort(list);
  }

  function noExport(record, name, importer, isAmbiguous) {
    const start = `module '${record.id}' `;
    const end = importer === "" ? "" : ` (imported by ${importer})`;
    if (isAmbiguous) {
      return new SyntaxError(`${start}has several exports named '${name}' by 'export *'${end}`);
    }
    const names = exportedNames(record);
    const more = names.length > MAX_LISTED ? ` and ${names.length - MAX_LISTED} more` : "";
    if (more !== "") names.length = MAX_LISTED;
    const listed = names.length === 0 ? "nothing" : ArrayPrototypeJoin(names, ", ");
    return new SyntaxError(`${start}has no export named '${name}'${end}; it exports ${listed}${more}`);
  }

  function mustResolve(record, name, importer) {
    const target = resolveExport(record, name, new Set());
    if (target === null || target === AMBIGUOUS) {
      throw noExport(record, name, importer, target === AMBIGUOUS);
    }
    return target;
  }

  // --- linking -----------------------------------------------------------------------------------
  let visits = 0;

  // Records reachable from `root` over those without a run, `root` first.
  function unlinked(root) {
    const found = newList();
    visits++;
    root.visit = visits;
    found[0] = root;
    for (let head = 0; head < found.length; head++) {
      const { about, links } = found[head];
      for (let i = 0; i < about.deps.length; i++) {
        const dep = MapPrototypeGet(registry, about.deps[i]);
        links[i] = dep;
        if (dep.run === null && dep.visit !== visits) {
          dep.visit = visits;
          found[found.length] = dep;
        }
      }
    }
    return found;
  }

  // Whether it is part of a cycle of modules that are being linked now.
  function reachesItself(record) {
    const stack = newList();
    visits++;
    stack[0] = record;
    while (stack.length !== 0) {
      const { links } = stack[stack.length - 1];
      stack.length -= 1;
      for (let i = 0; i < links.length; i++) {
        if (links[i] === record) return true;
        if (links[i].visit !== visits && isFresh(links[i])) {
          links[i].visit = visits;
          stack[stack.length] = links[i];
        }
      }
    }
    return false;
  }

  function isFresh(record) {
    return record.run === null || record.run.state === RunState.LINKED;
  }

  function checkNames(record) {
    const { imports, reexports, lenient } = record.about;
    for (let i = 0; i < imports.length; i++) {
      const dep = record.links[imports[i][1]];
      const name = imports[i][2];
      record.targets[i] = name === ALL ? { __proto__: null, record: dep, index: -1 }
        : mustResolve(dep, name, record.id);
    }
    for (let i = 0; !lenient && i < reexports.length; i++) {
      const entry = reexports[i];
      if (entry[2] !== ALL) mustResolve(record.links[entry[1]], entry[2], record.id);
    }
  }

  const liveGetters = new WeakSet();

  function setGetters(record, run, getters) {
    if (run.getters !== null) return; // once: the formatter relies on what they are
    const { exports, namesDefault } = record.about;
    for (let i = 0; i < exports.length; i++) {
      WeakSetPrototypeAdd(liveGetters, getters[i]);
      if (namesDefault && exports[i] === "default") {
        ObjectDefineProperty(getters[i](), "name", {
          __proto__: null, value: "default", writable: false, enumerable: false, configurable: true,
        });
      }
    }
    run.getters = getters;
  }

  // Enters the module's function: its function declarations and its getters are there afterwards.
  // With top-level await and without a gate, it then goes on until it first waits.
  function enterModule(record, run, gate) {
    const { code, id } = record;
    const body = code(
      run.scope,
      (getters) => setGetters(record, run, getters),
      (specifier) => importModule(specifier, id, newList()),
      { __proto__: null, url: id },
      gate,
    );
    if (record.about.waits) {
      run.promise = body();
    } else {
      run.steps = body();
      stepModule(run.steps);
    }
  }

  function newRun(record) {
    return {
      __proto__: null, record, state: RunState.LINKED, scope: { __proto__: null }, getters: null, steps: null,
      promise: null, release: null, isFilled: false, index: 0, ancestor: 0, pending: 0, order: 0,
      parents: newList(), cycleRoot: null, waiters: newList(), hasError: false, error: undefined,
      isInterrupted: false, stamp: 0,
    };
  }

  function instantiate(record) {
    const { run } = record;
    if (record.about.json) {
      const value = record.code;
      setGetters(record, run, [() => value]);
    } else if (!record.about.waits) {
      enterModule(record, run, undefined);
    } else if (reachesItself(record)) {
      // The others of its cycle may need its functions before it is its turn to run.
      enterModule(record, run, new Promise((resolve) => { run.release = resolve; }));
    }
    // Else it is entered when it is evaluated, so that what stands before its first await
    // runs in order with modules that don't wait.
  }

  function readOnly(local) {
    return () => {
      throw new TypeError(`'${local}' is read-only: it is an import`);
    };
  }

  // Puts the imports on the module's scope; some exporters with top-level await may not be entered yet.
  function fillScope(run) {
    const { imports } = run.record.about;
    run.isFilled = true;
    for (let i = 0; i < imports.length; i++) {
      const target = run.record.targets[i];
      const descriptor = { __proto__: null, enumerable: true, configurable: true };
      if (target.index < 0) {
        if (!canBeNamed(target.record)) {
          run.isFilled = false;
          continue;
        }
        descriptor.value = namespaceOf(target.record);
        descriptor.writable = false;
      } else {
        if (target.record.run.getters === null) {
          run.isFilled = false;
          continue;
        }
        descriptor.get = target.record.run.getters[target.index];
        descriptor.set = readOnly(imports[i][0]);
      }
      ObjectDefineProperty(run.scope, imports[i][0], descriptor);
    }
  }

  function linkModule(root) {
    if (root.run !== null) return;
    const fresh = unlinked(root);
    for (let i = 0; i < fresh.length; i++) checkNames(fresh[i]);
    for (let i = 0; i < fresh.length; i++) fresh[i].run = newRun(fresh[i]);
    for (let i = 0; i < fresh.length; i++) instantiate(fresh[i]);
    for (let i = 0; i < fresh.length; i++) fillScope(fresh[i].run);
  }

  // --- namespaces --------------------------------------------------------------------------------
  const namespaces = new WeakMap(); // namespace -> record

  // Whether every module that may be behind one of its names has been entered.
  function canBeNamed(root) {
    const queue = newList();
    visits++;
    root.visit = visits;
    queue[0] = root;
    for (let head = 0; head < queue.length; head++) {
      const { run, links } = queue[head];
      if (run === null || run.getters === null) return false;
      for (let i = 0; i < links.length; i++) {
        if (links[i].visit !== visits) {
          links[i].visit = visits;
          queue[queue.length] = links[i];
        }
      }
    }
    return true;
  }

  function namespaceOf(record) {
    if (record.namespace !== null) return record.namespace;
    const namespace = { __proto__: null };
    record.namespace = namespace; // first of all: two modules may export each other's
    const names = exportedNames(record);
    for (let i = 0; i < names.length; i++) {
      const target = resolveExport(record, names[i], new Set());
      if (target === null || target === AMBIGUOUS) continue;
      const descriptor = { __proto__: null, enumerable: true, configurable: false };
      if (target.index < 0) {
        descriptor.value = namespaceOf(target.record);
        descriptor.writable = false;
      } else {
        descriptor.get = target.record.run.getters[target.index];
        descriptor.set = undefined;
      }
      ObjectDefineProperty(namespace, names[i], descriptor);
    }
    ObjectDefineProperty(namespace, SymbolToStringTag, {
      __proto__: null, value: "Module", writable: false, enumerable: false, configurable: false,
    });
    ObjectPreventExtensions(namespace);
    WeakMapPrototypeSet(namespaces, namespace, record);
    return namespace;
  }

  // Forget runs that can't go on; an import of such a module links it anew.
  function abandonRuns(isLost) {
    const lost = newList();
    const forget = (record) => {
      lost[lost.length] = record.run;
      record.run = null;
      record.namespace = null;
    };
    MapPrototypeForEach(registry, (record) => {
      if (record.run !== null && isLost(record.run)) forget(record);
    });
    MapPrototypeForEach(registry, (record) => {
      const { run } = record;
      if (run !== null && run.cycleRoot !== null && run.cycleRoot.record.run !== run.cycleRoot) {
        forget(record);
      }
    });
    return lost;
  }

  // What the loaded modules export: object or function -> { id, name }, namespaces by the name "*".
  function collectModuleExports() {
    const found = new Map();
    const add = (value, id, name) => {
      if ((typeof value === "object" && value !== null) || typeof value === "function") {
        if (!MapPrototypeHas(found, value)) MapPrototypeSet(found, value, { __proto__: null, id, name });
      }
    };
    MapPrototypeForEach(registry, (record, id) => {
      const { run, about } = record;
      if (run === null || run.state !== RunState.EVALUATED || run.hasError) return;
      if (record.namespace !== null) add(record.namespace, id, ALL);
      for (let i = 0; i < about.exports.length; i++) {
        try {
          add(run.getters[i](), id, about.exports[i]);
        } catch {
          // A name that never got a value.
        }
      }
    });
    return found;
  }

  return {
    __proto__: null, RunState, abandonRuns, collectModuleExports, enterModule, fillScope, linkModule,
    namespaceOf, noExport,
    modulesById: registry,
    isLiveGetter(getter) { return WeakSetPrototypeHas(liveGetters, getter); },
    isModuleNamespace(object) { return WeakMapPrototypeHas(namespaces, object); },
    hasExport(record, name) {
      return ReflectGetOwnPropertyDescriptor(namespaceOf(record), name) !== undefined;
    },
  };
})();
