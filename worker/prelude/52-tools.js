// `tools`: what the host offers, as an object of functions that return promises.
//
// A near miss helps: another spelling of the name works, a name that isn't there is answered with the
// nearest one and the list, and a lone string goes to the only required field.
const { makeTool, setValueLimits, showGlobalTool, tools } = (() => {
  const {
    ArrayPrototypeJoin, Map, MapPrototypeGet, MapPrototypeHas, MapPrototypeSet, ObjectDefineProperty,
    ObjectPrototype, Promise, Proxy, ReflectGetOwnPropertyDescriptor, ReflectOwnKeys,
    StringPrototypeCharCodeAt, StringPrototypeSlice, StringPrototypeStartsWith,
    StringPrototypeToLowerCase, TypeError,
  } = primordials;

  const MAX_LISTED = 30;
  let maxBytes = 16777216;
  let maxNodes = 1000000;
  let target = { __proto__: null }; // js name -> function; what Object.keys(tools) lists
  let unlisted = { __proto__: null }; // as `target`, for tools that are globals
  let loose = new Map(); // spellings, folded -> js name
  let about = new Map(); // js name -> description
  let names = newList();

  function failed(error) {
    return new Promise((_, reject) => reject(error));
  }

  // "web_search", "web-search" and "WebSearch" are all "websearch".
  function folded(name) {
    let out = "";
    for (let i = 0; i < name.length; i++) {
      const c = StringPrototypeCharCodeAt(name, i);
      if (c !== 95 && c !== 45 && c !== 46) out += name[i];
    }
    return StringPrototypeToLowerCase(out);
  }

  function encodeInput(value, required) {
    if (value === undefined || value === null) return "{}";
    const json = encodeValue(value, maxBytes, maxNodes);
    if (typeof value === "string" && required !== null && required.length === 1) {
      return `{${quote(required[0])}:${json}}`;
    }
    const isRecord = StringPrototypeStartsWith(json, "{")
      && (!StringPrototypeStartsWith(json, '{"$":["') || StringPrototypeStartsWith(json, '{"$":["obj"')
        || StringPrototypeStartsWith(json, '{"$":["map"'));
    return isRecord ? json : `{"input":${json}}`;
  }

  function makeTool(name, required, shownName) {
    const holder = {
      // Further arguments are ignored, so that `urls.map(tools.fetchUrl)` does what it says.
      [name](input) {
        let json;
        try {
          json = encodeInput(input, required);
        } catch (thrown) {
          const { type, message } = encodeFailure(thrown);
          const error = new TypeError(`the input of ${shownName} can't be sent: ${message}`);
          ObjectDefineProperty(error, "name", {
            __proto__: null, value: type, writable: true, enumerable: false, configurable: true,
          });
          return failed(error);
        }
        return hostCall(name, json);
      },
    };
    return holder[name];
  }

  // --- names that are not there --------------------------------------------------------------------
  function distance(a, b) {
    let row = newList();
    for (let j = 0; j <= b.length; j++) row[j] = j;
    for (let i = 1; i <= a.length; i++) {
      const next = newList();
      next[0] = i;
      for (let j = 1; j <= b.length; j++) {
        const cost = a[i - 1] === b[j - 1] ? 0 : 1;
        let best = row[j - 1] + cost;
        if (row[j] + 1 < best) best = row[j] + 1;
        if (next[j - 1] + 1 < best) best = next[j - 1] + 1;
        next[j] = best;
      }
      row = next;
    }
    return row[b.length];
  }

  function nearest(name) {
    const wanted = folded(StringPrototypeSlice(name, 0, 60));
    let best = "";
    let bestDistance = 0;
    for (let i = 0; i < names.length; i++) {
      const d = distance(wanted, folded(names[i]));
      if (d * 5 <= wanted.length * 2 && (best === "" || d < bestDistance)) {
        best = names[i];
        bestDistance = d;
      }
    }
    return best;
  }

  function unknownMessage(name) {
    if (names.length === 0) return `no tool ${name}: this session has no tools`;
    const near = nearest(name);
    const listed = newList();
    for (let i = 0; i < names.length && i < MAX_LISTED; i++) listed[i] = names[i];
    const more = names.length > MAX_LISTED ? ` and ${names.length - MAX_LISTED} more` : "";
    const hint = near === "" ? "." : `, did you mean ${near}?`;
    return `no tool ${name}${hint} available: ${ArrayPrototypeJoin(listed, ", ")}${more}`;
  }

  function missingTool(name) {
    const shown = wellFormed(cutText(name, 60, 0));
    return () => failed(new TypeError(unknownMessage(shown)));
  }

  const extras = {
    // What the host says about a tool; a name that isn't there is explained the same way.
    $describe(name) {
      const key = typeof name === "string" ? name : "";
      if (MapPrototypeHas(about, key)) return MapPrototypeGet(about, key);
      const other = MapPrototypeGet(loose, folded(key));
      if (other !== undefined) return MapPrototypeGet(about, other);
      return unknownMessage(wellFormed(cutText(key, 60, 0)));
    },
  };

  function lookUp(key) {
    if (typeof key === "symbol") return undefined;
    const own = target[key];
    if (own !== undefined) return own;
    if (key === "$describe") return extras.$describe;
    // A promise or a serializer that asks gets the answer an ordinary object would give.
    if (key === "then" || key === "toJSON" || key === "constructor" || key === "__proto__") return undefined;
    const builtin = ReflectGetOwnPropertyDescriptor(baseMethods, key);
    if (builtin !== undefined) return builtin.value;
    const other = MapPrototypeGet(loose, folded(key));
    if (other === undefined) return missingTool(key);
    return target[other] === undefined ? unlisted[other] : target[other];
  }

  // Methods that code calls on any object; captured, since the guest may change Object.prototype.
  const baseMethods = { __proto__: null };
  const inherited = [
    "hasOwnProperty", "isPrototypeOf", "propertyIsEnumerable", "toString", "toLocaleString", "valueOf",
  ];
  for (let i = 0; i < inherited.length; i++) baseMethods[inherited[i]] = ObjectPrototype[inherited[i]];

  const handler = {
    __proto__: null,
    get(_, key) { return lookUp(key); },
    has(_, key) { return typeof key === "string" && target[key] !== undefined; },
    ownKeys() { return ReflectOwnKeys(target); },
    getOwnPropertyDescriptor(_, key) {
      if (typeof key === "symbol" || target[key] === undefined) return undefined;
      return { __proto__: null, value: target[key], writable: false, enumerable: true, configurable: true };
    },
    getPrototypeOf() { return null; },
    set() { return false; },
    defineProperty() { return false; },
    deleteProperty() { return false; },
    setPrototypeOf() { return false; },
    preventExtensions() { return false; },
  };
  const tools = new Proxy({ __proto__: null }, handler);
  defineReserved("tools", tools);

  // What the formatter shows in its place: a plain object of the same functions.
  function showAs() {
    const shown = {};
    for (let i = 0; i < names.length; i++) {
      ObjectDefineProperty(shown, names[i], {
        __proto__: null, value: target[names[i]], enumerable: true, writable: true, configurable: true,
      });
    }
    registerProxy(tools, shown);
  }
  showAs();

  onConfigure((options) => {
    const given = options.tools;
    if (given === undefined) return;
    target = { __proto__: null };
    unlisted = { __proto__: null };
    loose = new Map();
    about = new Map();
    names = newList();
    for (let i = 0; given !== null && i < given.length; i++) {
      const { name, required, description, isGlobal } = given[i];
      if (isGlobal === true) continue;
      target[name] = makeTool(name, required === undefined ? null : required, `tools.${name}`);
      names[names.length] = name;
      MapPrototypeSet(about, name, typeof description === "string" ? description : "");
    }
    for (let i = 0; i < names.length; i++) addSpelling(names[i], names[i]);
    for (let i = 0; given !== null && i < given.length; i++) {
      const { name, alias, isGlobal } = given[i];
      if (isGlobal !== true && typeof alias === "string") addSpelling(alias, name);
    }
    showAs();
  });

  // A global is not listed, and works as `tools.<name>` all the same.
  function showGlobalTool(name, fn, description) {
    unlisted[name] = fn;
    MapPrototypeSet(about, name, typeof description === "string" ? description : "");
    addSpelling(name, name);
  }

  // The first tool of a spelling keeps it: two names that fold alike are told apart exactly.
  function addSpelling(spelling, name) {
    const key = folded(spelling);
    if (!MapPrototypeHas(loose, key)) MapPrototypeSet(loose, key, name);
  }

  return {
    __proto__: null,
    makeTool,
    setValueLimits(bytes, nodes) {
      maxBytes = bytes;
      maxNodes = nodes;
    },
    showGlobalTool,
    tools,
  };
})();
