// The nodes of a snapshot's documents: what a survey found, in the form in which it is written.
//
// A document is `[format, globals, nodes]`. A value in it is a JSON scalar, or one of
//   [n]        the n-th node of this document         ["u"] ["-0"] ["nan"] ["inf"] ["-inf"]
//   [json, 0]  plain data, just as it is               ["b", hex] BigInt
//   ["i", name] an object that every session has       ["s", key] ["w", name] registered, well-known symbol
//   ["t", name] a function of `tools`              ["m", module, name] an export of a module
// A node is [kind, data, props, prototype, flags], the rest left off where there is nothing to say:
//   "j" json                        "o" object                     "a" array [items]
//   "A" [length, constant?] array whose items are props            "m" [k, v, ...]   "S" [v, ...]
//   "d" [ms]                        "r" [source, flags, lastIndex]  "e" [stack]
//   "B" [base64] or [base64, maxBytes]                             "v" [type, buffer, offset, length]
//   "p" [value] boxed               "g" [length, strict?] arguments "y" [description] symbol
//   "U" [href, params]              "Q" [text, url]                 "T" [] or [encoding, fatal, ignoreBOM]
//   "f" [source, strict, name, length, absent] function             "n" the same of a method
//   "c" [source, heritage, name, length, absent] class              "P" [function, absent] its prototype
//   "M" [class, where, key, slot, name, length] its method          "x" [path, type, callable] tombstone
// Props are key, value, ...: a key is text, or [attributes, key], and with attribute 8 (an accessor)
// two values follow. Prototype 0 is the kind's own; flag 1: not extensible.
const nodeWriter = (() => {
  const P = primordials;
  const {
    BigIntPrototypeToString, DatePrototypeGetTime, FunctionPrototypeToString,
    MapIteratorPrototypeNext, MapPrototypeEntries, MapPrototypeGet, ObjectPrototypeHasOwnProperty,
    ReflectGetOwnPropertyDescriptor, ReflectOwnKeys, RegExpPrototypeGetSource,
    SetIteratorPrototypeNext, SetPrototypeValues, SymbolKeyFor, SymbolPrototypeToString,
    StringPrototypeSlice, TypedArrayPrototypeGetBuffer, TypedArrayPrototypeGetByteOffset,
    TypedArrayPrototypeGetLength, TypedArrayPrototypeGetSymbolToStringTag, Uint8Array,
  } = P;

  const DIRTY = 1;
  const NODE = 2;

  // Lists of a fixed length: written with their items, they meet no setter on Array.prototype.
  const list1 = (a) => [a];
  const list2 = (a, b) => [a, b];

  const UNDEFINED = list1("u");
  const NEGATIVE_ZERO = list1("-0");
  const NAN = list1("nan");
  const INFINITE = list1("inf");
  const NEGATIVE_INFINITE = list1("-inf");
  const FLAGS = newList();
  const flagNames = [
    ["d", "HasIndices"], ["g", "Global"], ["i", "IgnoreCase"], ["m", "Multiline"], ["s", "DotAll"],
    ["u", "Unicode"], ["v", "UnicodeSets"], ["y", "Sticky"],
  ];
  for (let i = 0; i < flagNames.length; i++) {
    const get = P[`RegExpPrototypeGet${flagNames[i][1]}`];
    if (get !== undefined) FLAGS[FLAGS.length] = { __proto__: null, letter: flagNames[i][0], get };
  }

  let s = null; // the survey that is written
  let local = null; // number of an object -> its node in this document
  let modules = { __proto__: null }; // ids of the modules that are needed
  let isPlain = false; // JSON.stringify may be trusted with the guest's objects

  function valueOf(value) {
    switch (typeof value) {
      case "string": case "boolean": return value;
      case "number":
        if (value - value === 0) return value === 0 && 1 / value < 0 ? NEGATIVE_ZERO : value;
        return value !== value ? NAN : value > 0 ? INFINITE : NEGATIVE_INFINITE;
      case "undefined": return UNDEFINED;
      case "bigint": return list2("b", BigIntPrototypeToString(value, 16));
      case "symbol": {
        const known = wellKnownSymbol(value);
        if (known !== undefined) return list2("w", known);
        const key = SymbolKeyFor(value);
        if (key !== undefined) return list2("s", key);
        break;
      }
      default: if (value === null) return null;
    }
    const id = MapPrototypeGet(s.memo, value);
    if (id === undefined) return foreign(value);
    if (s.records[id] !== undefined && s.records[id].kind === "Tool") return list2("t", s.records[id].name);
    return isPlain && (s.flags[id] & (DIRTY | NODE)) === 0 ? list2(value, 0) : list1(local[id]);
  }

  function foreign(value) {
    const name = baseNameOf(value);
    if (name !== undefined) return list2("i", name);
    const { id: module, name: exported } = exportOf(value, s);
    if (modules[module] === undefined) modules[module] = true;
    return ["m", module, exported];
  }

  function keyOf(key, attributes) {
    if (attributes === 7 && typeof key === "string") return key;
    return list2(attributes, typeof key === "string" ? key : valueOf(key));
  }

  // The properties of an object that has only ordinary ones.
  function simpleProps(object) {
    const out = newList();
    const keys = ReflectOwnKeys(object);
    let n = 0;
    for (let i = 0; i < keys.length; i++) {
      out[n++] = keys[i];
      out[n++] = valueOf(object[keys[i]]);
    }
    return out;
  }

  function propsOf(props) {
    const out = newList();
    let n = 0;
    for (let i = 0; i < props.length; i++) {
      const { attributes, get, isData, key, set, value } = props[i];
      out[n++] = keyOf(key, attributes);
      if (isData) out[n++] = valueOf(value);
      else {
        out[n++] = valueOf(get);
        out[n++] = valueOf(set);
      }
    }
    return out;
  }

  function keysOf(keys) {
    const out = newList();
    for (let i = 0; i < keys.length; i++) out[i] = valueOf(keys[i]);
    return out;
  }

  function itemsOf(array) {
    const out = newList();
    const { length } = array;
    for (let i = 0; i < length; i++) out[i] = valueOf(array[i]);
    return out;
  }

  const NATURAL = {
    __proto__: null, Object: "Object", Map: "Map", Set: "Set", Date: "Date", RegExp: "RegExp",
    Array: "Array", Error: "Error", ArrayBuffer: "ArrayBuffer", DataView: "DataView",
    Arguments: "Object", URL: "URL",
    URLSearchParams: "URLSearchParams",
  };

  function naturalPrototype(record, object) {
    const name = record.kind === "TypedArray"
      ? TypedArrayPrototypeGetSymbolToStringTag(object) : NATURAL[record.kind];
    return name === undefined ? undefined : baseObject(`${name}.prototype`);
  }

  function finish(node, record, object, props) {
    const bare = record.prototype === undefined
      || record.prototype === naturalPrototype(record, object);
    node[2] = props;
    node[3] = bare ? 0 : valueOf(record.prototype);
    node[4] = record.extensible ? 0 : 1;
    // What says nothing is left off.
    if (node[4] === 0) {
      node.length = 4;
      if (bare) {
        node.length = 3;
        if (props.length === 0) node.length = 2;
      }
    }
    return node;
  }

  function nodeOf(id) {
    const object = s.objects[id];
    const record = s.records[id];
    if (record === undefined) {
      if (isPlain && (s.flags[id] & DIRTY) === 0) return ["j", object];
      if (P.ArrayIsArray(object)) return list2("a", itemsOf(object));
      return ["o", 0, simpleProps(object)];
    }
    if (isPlain && record.kind === "Object" && record.props === null && (s.flags[id] & DIRTY) === 0) {
      if (record.link === undefined) record.link = valueOf(record.prototype);
      return ["j", object, 0, record.link];
    }
    const kind = KINDS[record.kind];
    if (kind.length < 3) return kind(record, id);
    const data = newList();
    const node = newList();
    node[0] = kind(object, data, record);
    node[1] = data;
    const props = record.props === null ? simpleProps(object) : propsOf(record.props);
    return finish(node, record, object, props);
  }

  function stepText(key) {
    if (typeof key === "symbol") return `[${SymbolPrototypeToString(key)}]`;
    if (key === "") return "[...]"; // in a Map, a Set, a heritage
    return +key >= 0 ? `[${key}]` : `.${key}`;
  }

  function pathOf(id) {
    const { key } = s.globals[ownerOf(s, id)].props[0];
    let text = "";
    let at = id;
    for (let i = 0; s.parents[at] !== -1 && i < 20; i++) {
      const holder = s.objects[s.parents[at]];
      text = stepText(keyTo(s, holder, s.objects[at])) + text;
      at = s.parents[at];
    }
    const whole = (typeof key === "string" ? key : SymbolPrototypeToString(key)) + text;
    return wellFormed(StringPrototypeSlice(whole, 0, 200));
  }

  function viewOf(data, object, type, buffer, offset, length) {
    data[0] = type;
    data[1] = valueOf(buffer);
    data[2] = offset;
    data[3] = length;
    return "v";
  }

  // An accessor of the prototype in some engines.
  function inheritedStack(error) {
    return P.ErrorPrototypeGetStack === undefined ? undefined : P.ErrorPrototypeGetStack(error);
  }

  // Each fills `data` and returns the node's letter; those of one or two parameters return the node.
  const KINDS = {
    __proto__: null,
    Object(object, data, record) { return "o"; },
    Array(object, data, record) {
      data[0] = object.length;
      if (!ReflectGetOwnPropertyDescriptor(object, "length").writable) data[1] = 1;
      return "A";
    },
    Map(object, data, record) {
      const iterator = MapPrototypeEntries(object);
      for (let n = 0; ;) {
        const { done, value: pair } = MapIteratorPrototypeNext(iterator);
        if (done) return "m";
        data[n++] = valueOf(pair[0]);
        data[n++] = valueOf(pair[1]);
      }
    },
    Set(object, data, record) {
      const iterator = SetPrototypeValues(object);
      for (let n = 0; ; n++) {
        const { done, value } = SetIteratorPrototypeNext(iterator);
        if (done) return "S";
        data[n] = valueOf(value);
      }
    },
    Date(object, data, record) {
      data[0] = valueOf(DatePrototypeGetTime(object));
      return "d";
    },
    RegExp(object, data, record) {
      let flags = "";
      for (let i = 0; i < FLAGS.length; i++) if (FLAGS[i].get(object)) flags += FLAGS[i].letter;
      data[0] = RegExpPrototypeGetSource(object);
      data[1] = flags;
      data[2] = valueOf(object.lastIndex);
      return "r";
    },
    Error(object, data, record) {
      const own = ReflectGetOwnPropertyDescriptor(object, "stack");
      const stack = own === undefined ? inheritedStack(object) : own.value;
      if (typeof stack === "string") data[0] = stack;
      return "e";
    },
    ArrayBuffer(object, data, record) {
      data[0] = base64(new Uint8Array(object));
      if (P.ArrayBufferPrototypeGetResizable !== undefined && P.ArrayBufferPrototypeGetResizable(object)) {
        data[1] = P.ArrayBufferPrototypeGetMaxByteLength(object);
      }
      return "B";
    },
    TypedArray(object, data, record) {
      return viewOf(data, object, TypedArrayPrototypeGetSymbolToStringTag(object),
        TypedArrayPrototypeGetBuffer(object), TypedArrayPrototypeGetByteOffset(object),
        TypedArrayPrototypeGetLength(object));
    },
    DataView(object, data, record) {
      return viewOf(data, object, "DataView", P.DataViewPrototypeGetBuffer(object),
        P.DataViewPrototypeGetByteOffset(object), P.DataViewPrototypeGetByteLength(object));
    },
    Boxed(object, data, record) {
      const kind = kindOf(object);
      data[0] = valueOf(P[`${kind}PrototypeValueOf`](object));
      record.kind = kind; // for its prototype
      return "p";
    },
    Arguments(object, data, record) {
      const length = ReflectGetOwnPropertyDescriptor(object, "length");
      data[0] = length !== undefined && typeof length.value === "number" ? length.value : 0;
      const callee = ReflectGetOwnPropertyDescriptor(object, "callee");
      if (!ObjectPrototypeHasOwnProperty(callee, "value")) data[1] = 1;
      return "g";
    },
    URL(object, data, record) {
      data[0] = platform.href(object);
      data[1] = valueOf(platform.searchParams(object));
      return "U";
    },
    URLSearchParams(object, data, record) {
      data[0] = platform.formText(object);
      const url = MapPrototypeGet(s.paramsOwners, object);
      if (url !== undefined) data[1] = valueOf(url);
      return "Q";
    },
    TextEncoder(object, data, record) { return "T"; },
    TextDecoder(object, data, record) {
      data[0] = platform.encoding(object);
      data[1] = platform.fatal(object);
      data[2] = platform.ignoreBOM(object);
      return "T";
    },
    Function(fn, data, record) {
      const { proof } = record;
      if (proof.kind === "M") {
        data[0] = valueOf(proof.owner);
        data[1] = proof.where;
        data[2] = valueOf(proof.key);
        data[3] = proof.slot;
      } else {
        data[0] = proof.text === undefined ? FunctionPrototypeToString(fn) : proof.text;
        if (proof.kind === "c" && proof.heritage) data[1] = valueOf(P.ReflectGetPrototypeOf(fn));
        else data[1] = proof.strict ? 1 : 0;
      }
      data[data.length] = record.name;
      data[data.length] = record.length;
      if (record.absent.length !== 0) data[data.length] = keysOf(record.absent);
      return proof.kind === "m" ? "n" : proof.kind;
    },
    Prototype(object, data, record) {
      data[0] = valueOf(record.owner);
      if (record.absent.length !== 0) data[1] = keysOf(record.absent);
      return "P";
    },
    Symbol(record, id) {
      const text = P.SymbolPrototypeGetDescription === undefined
        ? StringPrototypeSlice(SymbolPrototypeToString(s.objects[id]), 7, -1)
        : P.SymbolPrototypeGetDescription(s.objects[id]);
      return list2("y", text === undefined ? newList() : list1(text));
    },
    Lost(record, id) {
      const data = newList();
      data[0] = record.path === null ? pathOf(id) : record.path;
      data[1] = record.type;
      data[2] = record.callable ? 1 : 0;
      return list2("x", data);
    },
  };

  return {
    __proto__: null, nodeOf, propsOf,
    begin(state, numbers, stringifies) {
      s = state;
      local = numbers;
      isPlain = stringifies;
      modules = { __proto__: null };
    },
    // Lets go of the survey; the modules that turned out to be needed.
    end() {
      const needed = newList();
      const ids = ReflectOwnKeys(modules);
      for (let i = 0; i < ids.length; i++) needed[i] = ids[i];
      s = null;
      local = null;
      return needed;
    },
  };
})();
