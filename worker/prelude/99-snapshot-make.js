// Values and objects out of a snapshot's documents (98-snapshot-nodes says what is in one).
//
// A document is data of unknown origin: every part is checked before it is used. Lists made by JSON.parse
// have own elements up to their length, whatever became of Array.prototype; nothing past it is read.
const nodeMaker = (() => {
  const P = primordials;
  const {
    ArrayBuffer, ArrayBufferPrototypeGetByteLength, ArrayIsArray, BigInt, DataView, Date, Error,
    Map, MapPrototypeGet, Object, ObjectPrototypeHasOwnProperty, ReflectApply,
    ReflectDefineProperty, ReflectDeleteProperty, ReflectGetOwnPropertyDescriptor, ReflectOwnKeys,
    RegExp, RegExpPrototypeExec, Set, StringPrototypeStartsWith, Symbol, SymbolFor,
    TypedArrayPrototypeSet, Uint8Array, globalThis, indirectEval,
  } = P;
  const { URL, URLSearchParams, TextEncoder, TextDecoder } = globalThis;

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
    requireThat(n >= 0 && n < nodes.length && (n | 0) === n, "a reference leads nowhere");
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
    if (list.length === 3 && list[0] === "m") return exportNamed(list[1], list[2]);
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

  // The worker has imported what the snapshot needs; a module that is no more leaves a tombstone.
  function exportNamed(module, name) {
    const descriptor = exportOfModule(module, name);
    if (descriptor === undefined) return makeTombstone(`${name} of ${module}`, "module", true);
    return ObjectPrototypeHasOwnProperty(descriptor, "value") ? descriptor.value : descriptor.get();
  }

  function exportOfModule(module, name) {
    const record = MapPrototypeGet(modulesById, textOf(module, "a module"));
    if (record === undefined || record.run === null || record.run.state !== RunState.EVALUATED
      || record.run.hasError) return undefined;
    const namespace = namespaceOf(record);
    if (name === "*") return { __proto__: null, value: namespace };
    return ReflectGetOwnPropertyDescriptor(namespace, textOf(name, "an export"));
  }

  // Marks the nodes that can't be without a module that is no more: classes that extend one of its,
  // their prototypes, their instances.
  function buryOrphans() {
    let isDone = false;
    for (let pass = 0; !isDone; pass++) {
      requireThat(pass < 100, "prototypes of prototypes");
      isDone = true;
      for (let n = 0; n < nodes.length; n++) {
        if (made[n] !== undefined) continue;
        const node = listOf(nodes[n], "a node");
        const letter = at(node, 0);
        const need = letter === "c" ? at(dataOf(node), 1)
          : letter === "P" || letter === "M" ? at(dataOf(node), 0) : at(node, 3);
        if (!ArrayIsArray(need)) continue;
        const first = at(need, 0);
        const isOrphan = need.length === 3 ? exportOfModule(need[1], need[2]) === undefined
          : need.length === 1 && typeof first === "number" && first >= 0 && first < nodes.length
            && made[first] !== undefined;
        if (!isOrphan) continue;
        const path = need.length === 3 ? `${need[2]} of ${need[1]}` : tombstoneOf(made[first]).path;
        made[n] = makeTombstone(path, "module", letter === "c" || letter === "M");
        isDone = false;
      }
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
      const isLength = typeof length === "number" && length >= 0 && length % 1 === 0;
      requireThat(isLength && length <= 4294967295, "an array's length");
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
      const object = ReflectApply(at(data, 1) === 1 ? strictArguments : sloppyArguments, undefined, list);
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
    x: (data) => makeTombstone(
      textOf(at(data, 0), "a path"), textOf(at(data, 1), "a type"), at(data, 2) === 1,
    ),
    f: (data) => functionOf(data, false),
    n: (data) => functionOf(data, true),
  };

  function strictArguments() {
    return arguments;
  }
  const sloppyArguments = indirectEval("(function () { return arguments; })");

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
    const prototype = descriptor === undefined ? null : descriptor.value;
    requireThat(typeof prototype === "object" && prototype !== null, "a prototype of a function without");
    return prototype;
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
      if (made[n] !== undefined) continue; // buried
      const node = listOf(nodes[n], "a node");
      if (node.length > 1 && node[0] === "j" && typeof node[1] === "object" && node[1] !== null) {
        made[n] = node[1];
        continue;
      }
      const letter = textOf(at(node, 0), "a node's kind");
      const maker = MAKERS[letter];
      if (maker !== undefined && letter !== "p" && letter !== "f" && letter !== "n") {
        made[n] = maker(letter === "j" ? at(node, 1) : dataOf(node));
      } else if (maker !== undefined) later[later.length] = n;
      else requireThat(LATE[letter] !== undefined || letter === "c", "a node of an unknown kind");
    }
    // What needs symbols or runs sources, in the order of what it may refer to.
    for (let i = 0; i < later.length; i++) {
      const node = nodes[later[i]];
      made[later[i]] = MAKERS[node[0]](dataOf(node));
    }
    makeClasses();
    for (let n = 0; n < nodes.length; n++) {
      if (made[n] === undefined) made[n] = LATE[nodes[n][0]](dataOf(nodes[n]));
    }
  }

  const LATE = { __proto__: null, P: prototypeOf, M: memberOf, v: viewOf, Q: paramsOf };

  return {
    __proto__: null, Refused, at, buryOrphans, dataOf, keyOf, listOf, makeAll, refuse, removeAbsent,
    requireThat, valueOf,
    begin(list, objects) {
      nodes = list;
      made = objects;
    },
  };
})();
