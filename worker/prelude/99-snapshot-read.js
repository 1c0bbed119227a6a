// Documents (98-snapshot-write) back to globals. A document is data of unknown origin: every part is checked
// before it is used, and what runs (sources of functions) runs as guest code does.
//
//   restorePart(text)      0, or why the document is refused
//   restoreGlobals(order)  order: JSON list of document numbers, one for each global -> 0, or why not
{
  const P = primordials;
  const {
    ArrayBuffer, ArrayBufferPrototypeGetByteLength, ArrayIsArray, BigInt, DataView, Date, Error, Map,
    MapPrototypeSet, Object, ObjectDefineProperty, ObjectPreventExtensions, ObjectPrototype,
    ObjectPrototypeHasOwnProperty, ObjectSetPrototypeOf, ReflectApply, ReflectDefineProperty,
    ReflectDeleteProperty, ReflectGetOwnPropertyDescriptor, ReflectGetPrototypeOf, ReflectOwnKeys, RegExp,
    RegExpPrototypeExec, Set, SetPrototypeAdd, StringPrototypeStartsWith, Symbol, SymbolFor,
    TypedArrayPrototypeSet, Uint8Array, WeakSetPrototypeAdd, globalThis, indirectEval,
  } = P;
  const JSONParse = P.JSONParse;
  const { URL, URLSearchParams, TextEncoder, TextDecoder } = globalThis;

  const FORMAT = 1;
  const VIEWS = { __proto__: null, DataView };
  const viewNames = [
    "Int8Array", "Uint8Array", "Uint8ClampedArray", "Int16Array", "Uint16Array", "Int32Array",
    "Uint32Array", "BigInt64Array", "BigUint64Array", "Float16Array", "Float32Array", "Float64Array",
  ];
  for (let i = 0; i < viewNames.length; i++) VIEWS[viewNames[i]] = P[viewNames[i]];

  const Refused = { __proto__: null, reason: "" };
  function refuse(reason) {
    Refused.reason = reason;
    throw Refused;
  }

  function requireThat(condition, what) {
    if (!condition) refuse(`a document is damaged: ${what}`);
  }

  // Lists made by JSON.parse have own elements up to their length, whatever became of Array.prototype.
  function listOf(value, what) {
    requireThat(ArrayIsArray(value), what);
    return value;
  }

  function textOf(value, what) {
    requireThat(typeof value === "string", what);
    return value;
  }

  // The n-th item of a list, undefined past its end.
  const at = (list, n) => (n < list.length ? list[n] : undefined);

  let nodes = null; // of the document that is being read
  let made = null; // what they became; undefined: not yet

  function made1(n) {
    requireThat(typeof n === "number" && n >= 0 && n < nodes.length && (n | 0) === n, "a reference leads nowhere");
    const value = made[n];
    requireThat(value !== undefined, "a reference leads to nothing");
    return value;
  }

  function valueOf(value) {
    if (typeof value !== "object" || value === null) return value;
    const list = listOf(value, "a value is no list");
    if (list.length === 1) {
      const tag = list[0];
      if (typeof tag === "number") return made1(tag);
      switch (tag) {
        case "u": return undefined;
        case "-0": return -0;
        case "nan": return NaN;
        case "inf": return Infinity;
        case "-inf": return -Infinity;
        default: refuse("a document is damaged: an unknown constant");
      }
    }
    requireThat(list.length === 2, "a value of the wrong length");
    if (list[1] === 0) return list[0];
    const text = textOf(list[1], "a value without text");
    switch (list[0]) {
      case "b": return bigIntOf(text);
      case "w": {
        const symbol = wellKnownSymbol(text);
        return typeof symbol === "symbol" ? symbol : makeTombstone(`Symbol.${text}`, "symbol", false);
      }
      case "s": return SymbolFor(text);
      case "i": {
        const object = baseObject(text);
        return object === undefined ? makeTombstone(text, "missing here", true) : object;
      }
      case "t": {
        const names = ReflectOwnKeys(tools);
        for (let i = 0; i < names.length; i++) if (names[i] === text) return tools[text];
        return makeTombstone(`tools.${text}`, "no tool here", true);
      }
      default: return refuse("a document is damaged: an unknown value");
    }
  }

  function bigIntOf(text) {
    const isNegative = StringPrototypeStartsWith(text, "-");
    requireThat(RegExpPrototypeExec(HEX, text) !== null, "a BigInt without digits");
    const digits = isNegative ? P.StringPrototypeSlice(text, 1) : text;
    const value = BigInt(`0x${digits}`);
    return isNegative ? -value : value;
  }
  const HEX = /^-?[0-9a-f]+$/;

  // --- first pass: an empty object for each node ---------------------------------------------------
  const MAKERS = {
    __proto__: null,
    j: (data) => {
      requireThat(typeof data === "object" && data !== null, "plain data that is none");
      return data;
    },
    o: () => ({}),
    a: () => [],
    A: (data) => {
      const length = at(data, 0);
      requireThat(typeof length === "number" && length >= 0 && length <= 4294967295 && length % 1 === 0, "an array's length");
      const array = [];
      array.length = length;
      return array;
    },
    m: () => new Map(),
    S: () => new Set(),
    d: (data) => new Date(numberOf(at(data, 0))),
    r: (data) => new RegExp(textOf(at(data, 0), "a pattern"), textOf(at(data, 1), "flags")),
    e: (data) => {
      const error = new Error();
      const keys = ReflectOwnKeys(error);
      for (let i = 0; i < keys.length; i++) ReflectDeleteProperty(error, keys[i]);
      if (typeof at(data, 0) === "string") web.hide(error, "stack", data[0]);
      return error;
    },
    B: (data) => {
      const bytes = bytesFromBase64(textOf(at(data, 0), "bytes"));
      const length = P.TypedArrayPrototypeGetLength(bytes);
      if (data.length < 2) return P.TypedArrayPrototypeGetBuffer(bytes);
      requireThat(typeof data[1] === "number" && data[1] >= length, "a buffer's size");
      const buffer = new ArrayBuffer(length, { __proto__: null, maxByteLength: data[1] });
      TypedArrayPrototypeSet(new Uint8Array(buffer), bytes);
      return buffer;
    },
    p: (data) => {
      const value = valueOf(at(data, 0));
      requireThat(value !== undefined && value !== null && typeof value !== "object", "a boxed value");
      return Object(value);
    },
    g: (data) => {
      const length = at(data, 0);
      requireThat(typeof length === "number" && length >= 0 && length < 65536, "arguments");
      const list = [];
      list.length = length;
      const object = ReflectApply(argumentsOf, undefined, list);
      const keys = ReflectOwnKeys(object);
      for (let i = 0; i < keys.length; i++) ReflectDeleteProperty(object, keys[i]);
      return object;
    },
    U: (data) => new URL(textOf(at(data, 0), "a URL")),
    T: (data) => {
      if (data.length === 0) return new TextEncoder();
      const options = { __proto__: null, fatal: at(data, 1) === true, ignoreBOM: at(data, 2) === true };
      return new TextDecoder(textOf(data[0], "an encoding"), options);
    },
    y: (data) => (data.length === 0 ? Symbol() : Symbol(textOf(data[0], "a symbol's description"))),
    x: (data) => makeTombstone(textOf(at(data, 0), "a path"), textOf(at(data, 1), "a type"), at(data, 2) === 1),
    f: (data) => functionOf(data, false),
    n: (data) => functionOf(data, true),
  };

  function argumentsOf() {
    return arguments;
  }

  function numberOf(value) {
    const number = valueOf(value);
    requireThat(typeof number === "number", "a date");
    return number;
  }

  // The program is what guest code is: a source that isn't one function is refused after it ran.
  function evaluate(source, strict) {
    return indirectEval(strict ? `"use strict";(${source}\n)` : `(${source}\n)`);
  }

  function functionOf(data, isMethod) {
    const source = textOf(at(data, 0), "a function's source");
    const strict = at(data, 1) === 1;
    let fn;
    if (isMethod) {
      const literal = evaluate(`{${source}\n}`, strict);
      const keys = ReflectOwnKeys(literal);
      requireThat(keys.length === 1, "a method's source");
      const descriptor = ReflectGetOwnPropertyDescriptor(literal, keys[0]);
      fn = ObjectPrototypeHasOwnProperty(descriptor, "value") ? descriptor.value
        : descriptor.get === undefined ? descriptor.set : descriptor.get;
    } else fn = evaluate(source, strict);
    requireThat(typeof fn === "function" && !isProxy(fn), "a function's source");
    if (isMethod) proveMethod(fn, strict);
    else proveFunction(fn, strict);
    setNameAndLength(fn, at(data, 2), at(data, 3));
    removeAbsent(fn, at(data, 4));
    return fn;
  }

  function setNameAndLength(fn, name, length) {
    setUsual(fn, "name", name, "string");
    setUsual(fn, "length", length, "number");
  }

  function setUsual(fn, key, value, type) {
    const own = ReflectGetOwnPropertyDescriptor(fn, key);
    if (value === null) {
      if (own !== undefined) ReflectDeleteProperty(fn, key);
      return;
    }
    requireThat(typeof value === type, "a function's name or length");
    if (own !== undefined && own.value === value) return;
    ReflectDefineProperty(fn, key, {
      __proto__: null, value, writable: false, enumerable: false, configurable: true,
    });
  }

  function removeAbsent(object, absent) {
    if (absent === undefined) return;
    const keys = listOf(absent, "a list of members");
    for (let i = 0; i < keys.length; i++) ReflectDeleteProperty(object, keyOf(valueOf(keys[i])));
  }

  function keyOf(key) {
    requireThat(typeof key === "string" || typeof key === "symbol", "a key");
    return key;
  }

  function classOf(data) {
    const source = textOf(at(data, 0), "a class's source");
    const derives = ArrayIsArray(at(data, 1));
    let constructor;
    if (derives) {
      const base = valueOf(data[1]);
      // A class that extends null has the same prototype as one that extends nothing.
      const heritage = base === P.FunctionPrototype ? null : base;
      const make = evaluate(`($h)=>(${source}\n)`, true);
      requireThat(typeof make === "function" && !isProxy(make), "a class's source");
      constructor = ReflectApply(make, undefined, [heritage]);
    } else constructor = evaluate(source, true);
    requireThat(typeof constructor === "function" && !isProxy(constructor), "a class's source");
    const prototype = ReflectGetOwnPropertyDescriptor(constructor, "prototype");
    requireThat(prototype !== undefined && typeof prototype.value === "object" && prototype.value !== null
      && !isProxy(prototype.value), "a class's source");
    proveClass(constructor, derives, derives ? source : undefined);
    setNameAndLength(constructor, at(data, 2), at(data, 3));
    return constructor;
  }

  // Classes after functions, each after the one it extends; a chain of any length without recursion.
  function makeClasses() {
    for (let n = 0; n < nodes.length; n++) {
      if (nodes[n][0] !== "c" || made[n] !== undefined) continue;
      const waiting = newList();
      waiting[0] = n;
      while (waiting.length !== 0) {
        const top = waiting[waiting.length - 1];
        const data = dataOf(nodes[top]);
        const base = at(data, 1);
        const needed = ArrayIsArray(base) && base.length === 1 ? base[0] : undefined;
        if (typeof needed === "number" && needed >= 0 && needed < nodes.length && made[needed] === undefined
          && at(nodes[needed], 0) === "c") {
          requireThat(waiting.length <= nodes.length, "classes that extend each other");
          waiting[waiting.length] = needed;
          continue;
        }
        made[top] = classOf(data);
        waiting.length -= 1;
      }
    }
  }

  function prototypeOf(data) {
    const fn = valueOf(at(data, 0));
    requireThat(typeof fn === "function" && !isProxy(fn), "a prototype of no function");
    const descriptor = ReflectGetOwnPropertyDescriptor(fn, "prototype");
    requireThat(descriptor !== undefined && typeof descriptor.value === "object" && descriptor.value !== null,
      "a prototype of a function that has none");
    return descriptor.value;
  }

  function memberOf(data) {
    const owner = valueOf(at(data, 0));
    requireThat(typeof owner === "function" && !isProxy(owner), "a member of no class");
    const prototype = ReflectGetOwnPropertyDescriptor(owner, "prototype");
    const holder = at(data, 1) === "s" ? owner : prototype === undefined ? undefined : prototype.value;
    requireThat(typeof holder === "object" || typeof holder === "function", "a member of no class");
    const descriptor = ReflectGetOwnPropertyDescriptor(holder, keyOf(valueOf(at(data, 2))));
    const slot = at(data, 3);
    const fn = descriptor === undefined ? undefined : slot === "value" ? descriptor.value
      : slot === "get" ? descriptor.get : descriptor.set;
    requireThat(typeof fn === "function" && !isProxy(fn), "a member that is not in its class");
    setNameAndLength(fn, at(data, 4), at(data, 5));
    return fn;
  }

  function viewOf(data) {
    const View = VIEWS[textOf(at(data, 0), "a view's type")];
    requireThat(View !== undefined, "a view's type");
    const buffer = valueOf(at(data, 1));
    requireThat(typeof buffer === "object" && buffer !== null && !isProxy(buffer), "a view of nothing");
    ArrayBufferPrototypeGetByteLength(buffer); // throws if it isn't one
    requireThat(typeof at(data, 2) === "number" && typeof at(data, 3) === "number", "a view's place");
    return new View(buffer, data[2], data[3]);
  }

  function paramsOf(data) {
    const text = textOf(at(data, 0), "URL parameters");
    const url = data.length > 1 ? valueOf(data[1]) : undefined;
    return url === undefined ? new URLSearchParams(text) : platform.searchParams(url);
  }

  function dataOf(node) {
    const data = at(node, 1);
    return ArrayIsArray(data) ? data : NOTHING;
  }
  const NOTHING = newList();

  function makeAll() {
    const later = newList();
    for (let n = 0; n < nodes.length; n++) {
      const node = listOf(nodes[n], "a node");
      const letter = textOf(at(node, 0), "a node's kind");
      const maker = MAKERS[letter];
      if (maker !== undefined && letter !== "p" && letter !== "f" && letter !== "n") {
        made[n] = maker(letter === "j" ? at(node, 1) : dataOf(node));
      } else if (maker !== undefined) later[later.length] = n;
      else requireThat(LATE[letter] !== undefined || letter === "c", "a node of an unknown kind");
    }
    // What needs symbols or runs sources, in the order of what it may refer to.
    for (let i = 0; i < later.length; i++) made[later[i]] = MAKERS[nodes[later[i]][0]](dataOf(nodes[later[i]]));
    makeClasses();
    for (let n = 0; n < nodes.length; n++) {
      const late = LATE[nodes[n][0]];
      if (late !== undefined) made[n] = late(dataOf(nodes[n]));
    }
  }

  const LATE = { __proto__: null, P: prototypeOf, M: memberOf, v: viewOf, Q: paramsOf };

  // --- second pass: what is in them -----------------------------------------------------------------
  function fill(n) {
    const node = nodes[n];
    const object = made[n];
    const letter = node[0];
    const data = dataOf(node);
    if (letter === "j" && node.length < 4) return;
    if (letter === "a") {
      for (let i = 0; i < data.length; i++) define(object, i, 7, valueOf(data[i]));
    } else if (letter === "m") {
      requireThat(data.length % 2 === 0, "a Map's entries");
      for (let i = 0; i < data.length; i += 2) MapPrototypeSet(object, valueOf(data[i]), valueOf(data[i + 1]));
    } else if (letter === "S") {
      for (let i = 0; i < data.length; i++) SetPrototypeAdd(object, valueOf(data[i]));
    } else if (letter === "r") object.lastIndex = valueOf(at(data, 2));
    else if (letter === "P") removeAbsent(object, at(data, 1));
    else if (letter === "c") removeAbsent(object, at(data, 4));
    const prototype = at(node, 3);
    if (prototype !== undefined && prototype !== 0) {
      const target = valueOf(prototype);
      requireThat(target === null || ((typeof target === "object" || typeof target === "function") && !isProxy(target)), "a prototype");
      requireThat(typeof object === "object" || typeof object === "function", "a prototype of a symbol");
      ObjectSetPrototypeOf(object, target);
      if (letter === "e" && target === P.InternalErrorPrototype) WeakSetPrototypeAdd(guestMadeErrors, object);
    }
    const props = at(node, 2);
    if (props !== undefined && props !== 0) defineAll(object, listOf(props, "properties"));
  }

  const field = { __proto__: null, value: undefined, writable: true, enumerable: true, configurable: true };
  function define(object, key, attributes, value) {
    field.value = value;
    field.writable = (attributes & 1) !== 0;
    field.enumerable = (attributes & 2) !== 0;
    field.configurable = (attributes & 4) !== 0;
    const done = ReflectDefineProperty(object, key, field);
    field.value = undefined;
    requireThat(done, "a property that can't be");
    if (attributes !== 7) mark(object);
  }

  // Props as 98-snapshot-write has them, onto any object; returns how many items were read.
  function defineAll(object, props) {
    requireThat((typeof object === "object" && object !== null) || typeof object === "function", "properties of a symbol");
    requireThat(!isProxy(object), "properties of a tombstone");
    for (let i = 0; i < props.length;) {
      const head = props[i++];
      if (typeof head === "string") {
        requireThat(i < props.length, "a property without a value");
        define(object, head, 7, valueOf(props[i++]));
        continue;
      }
      const pair = listOf(head, "a key");
      const attributes = at(pair, 0);
      requireThat(typeof attributes === "number" && attributes >= 0 && attributes < 16 && pair.length === 2, "a key's attributes");
      const key = keyOf(valueOf(pair[1]));
      requireThat(i + ((attributes & 8) === 0 ? 0 : 1) < props.length, "a property without a value");
      if ((attributes & 8) === 0) {
        define(object, key, attributes, valueOf(props[i++]));
        continue;
      }
      const get = valueOf(props[i++]);
      const set = valueOf(props[i++]);
      requireThat((get === undefined || typeof get === "function") && (set === undefined || typeof set === "function"), "an accessor");
      mark(object);
      requireThat(ReflectDefineProperty(object, key, {
        __proto__: null, get, set, enumerable: (attributes & 2) !== 0, configurable: (attributes & 4) !== 0,
      }), "a property that can't be");
    }
  }

  // --- the whole --------------------------------------------------------------------------------------
  let documents = newList(); // { globals, nodes, made, next }, until all of them are there

  function read(text) {
    const whole = listOf(JSONParse(text), "it is no list");
    requireThat(whole.length === 3, "its length");
    if (whole[0] !== FORMAT) refuse(`a document has format ${typeof whole[0] === "number" ? whole[0] : "none"}, this release reads ${FORMAT}`);
    const globals = listOf(whole[1], "its globals");
    nodes = listOf(whole[2], "its nodes");
    made = newList();
    for (let i = 0; i < nodes.length; i++) made[i] = undefined;
    makeAll();
    for (let i = 0; i < nodes.length; i++) fill(i);
    for (let i = 0; i < nodes.length; i++) {
      if (at(nodes[i], 4) === 1 && typeof made[i] !== "symbol" && !isProxy(made[i])) ObjectPreventExtensions(made[i]);
    }
    documents[documents.length] = { __proto__: null, globals, nodes, made, next: 0 };
  }

  // Why a restore failed, as text; what isn't a refusal of ours was thrown by a source or by the engine.
  function reasonFor(thrown) {
    if (thrown === Refused) return Refused.reason;
    const about = describeThrown(thrown);
    if (about.oom !== 0) return "!memory";
    return `a value can't be made: ${about.name}: ${about.message}`;
  }

  bridgeTable.restorePart = (text) => {
    try {
      read(text);
      return 0;
    } catch (thrown) {
      documents = newList();
      return reasonFor(thrown);
    } finally {
      nodes = null;
      made = null;
    }
  };

  bridgeTable.restoreGlobals = (json) => {
    try {
      const order = listOf(JSONParse(json), "the order of globals");
      for (let i = 0; i < order.length; i++) {
        requireThat(typeof order[i] === "number" && order[i] >= 0 && order[i] < documents.length && order[i] % 1 === 0, "the order of globals");
        const document = documents[order[i]];
        requireThat(document.next < document.globals.length, "the order of globals");
        const props = listOf(document.globals[document.next++], "a global");
        ({ nodes, made } = document);
        defineGlobalFrom(props);
      }
      return 0;
    } catch (thrown) {
      return reasonFor(thrown);
    } finally {
      documents = newList();
      nodes = null;
      made = null;
    }
  };

  // A global of the base image stays what it is in this session.
  function defineGlobalFrom(props) {
    requireThat(props.length >= 2, "a global");
    const key = typeof props[0] === "string" ? props[0] : keyOf(valueOf(at(listOf(props[0], "a key"), 1)));
    if (!isBaseGlobal(key)) defineAll(globalThis, props);
  }
}
