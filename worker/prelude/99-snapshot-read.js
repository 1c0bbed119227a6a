// Documents back to globals: what 99-snapshot-make made is filled, and put where it belongs. What runs
// on the way (sources of functions) runs as guest code does.
//
//   restorePart(text)      0, or why the document is refused
//   restoreGlobals(order)  order: JSON list of document numbers, one for each global -> 0, or why not
{
  const P = primordials;
  const {
    JSONParse, MapPrototypeSet, ObjectPreventExtensions, ObjectSetPrototypeOf,
    ReflectDefineProperty, SetPrototypeAdd, StringPrototypeIncludes, WeakSetPrototypeAdd, globalThis,
  } = P;
  const { Refused, at, dataOf, keyOf, listOf, refuse, removeAbsent, requireThat, valueOf } = nodeMaker;

  const FORMAT = 1;

  const isObject = (value) =>
    (typeof value === "object" && value !== null) || typeof value === "function";

  let nodes = null; // of the document that is being read
  let made = null; // what they became
  function use(list, objects) {
    nodes = list;
    made = objects;
    nodeMaker.begin(list, objects);
  }

  function fill(n) {
    const node = nodes[n];
    const object = made[n];
    const letter = node[0];
    const data = dataOf(node);
    if (letter === "a") {
      for (let i = 0; i < data.length; i++) define(object, i, 7, valueOf(data[i]));
    } else if (letter === "m") {
      requireThat(data.length % 2 === 0, "a Map's entries");
      for (let i = 0; i < data.length; i += 2) {
        MapPrototypeSet(object, valueOf(data[i]), valueOf(data[i + 1]));
      }
    } else if (letter === "S") {
      for (let i = 0; i < data.length; i++) SetPrototypeAdd(object, valueOf(data[i]));
    } else if (letter === "r") object.lastIndex = valueOf(at(data, 2));
    else if (letter === "P") removeAbsent(object, at(data, 1));
    else if (letter === "c") removeAbsent(object, at(data, 4));
    const prototype = at(node, 3);
    if (prototype !== undefined && prototype !== 0) {
      const target = valueOf(prototype);
      requireThat(target === null || (isObject(target) && !isProxy(target)), "a prototype");
      requireThat(isObject(object), "a prototype of a symbol");
      ObjectSetPrototypeOf(object, target);
      if (letter === "e" && target === P.InternalErrorPrototype) {
        WeakSetPrototypeAdd(guestMadeErrors, object);
      }
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
    requireThat(isObject(object) && !isProxy(object), "properties of what has none");
    for (let i = 0; i < props.length;) {
      const head = props[i++];
      if (typeof head === "string") {
        requireThat(i < props.length, "a property without a value");
        define(object, head, 7, valueOf(props[i++]));
        continue;
      }
      const pair = listOf(head, "a key");
      const attributes = at(pair, 0);
      const isKnown = typeof attributes === "number" && attributes >= 0 && attributes < 16;
      requireThat(isKnown && pair.length === 2, "a key's attributes");
      const key = keyOf(valueOf(pair[1]));
      requireThat(i + ((attributes & 8) === 0 ? 0 : 1) < props.length, "a property without a value");
      if ((attributes & 8) === 0) {
        define(object, key, attributes, valueOf(props[i++]));
        continue;
      }
      const get = valueOf(props[i++]);
      const set = valueOf(props[i++]);
      requireThat(get === undefined || typeof get === "function", "an accessor");
      requireThat(set === undefined || typeof set === "function", "an accessor");
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
    if (whole[0] !== FORMAT) {
      const given = typeof whole[0] === "number" ? whole[0] : "none";
      refuse(`a document has format ${given}, this release reads ${FORMAT}`);
    }
    const globals = listOf(whole[1], "its globals");
    use(listOf(whole[2], "its nodes"), newList());
    for (let i = 0; i < nodes.length; i++) made[i] = undefined;
    if (StringPrototypeIncludes(text, '["m",')) nodeMaker.buryOrphans();
    nodeMaker.makeAll();
    for (let i = 0; i < nodes.length; i++) {
      const { length } = nodes[i];
      if (length < 4 && nodes[i][0] === "j") continue; // complete
      if (typeof made[i] === "symbol" || !isProxy(made[i])) fill(i);
    }
    for (let i = 0; i < nodes.length; i++) {
      if (nodes[i].length < 5 && nodes[i][0] !== "A") continue;
      if (!isObject(made[i]) || isProxy(made[i])) continue;
      if (nodes[i][0] === "A" && at(dataOf(nodes[i]), 1) === 1) {
        ReflectDefineProperty(made[i], "length", { __proto__: null, writable: false });
        mark(made[i]);
      }
      if (at(nodes[i], 4) === 1) ObjectPreventExtensions(made[i]);
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
      use(null, null);
    }
  };

  bridgeTable.restoreGlobals = (json) => {
    try {
      const order = listOf(JSONParse(json), "the order of globals");
      for (let i = 0; i < order.length; i++) {
        const isOne = order[i] >= 0 && order[i] < documents.length && (order[i] | 0) === order[i];
        requireThat(isOne, "the order of globals");
        const document = documents[order[i]];
        requireThat(document.next < document.globals.length, "the order of globals");
        const props = listOf(document.globals[document.next++], "a global");
        use(document.nodes, document.made);
        defineGlobalFrom(props);
      }
      return 0;
    } catch (thrown) {
      return reasonFor(thrown);
    } finally {
      documents = newList();
      use(null, null);
    }
  };

  // What is put back at each eval, or can't be replaced, stays what it is in this session.
  function defineGlobalFrom(props) {
    requireThat(props.length >= 2, "a global");
    const key = typeof props[0] === "string" ? props[0] : keyOf(valueOf(at(listOf(props[0], "a key"), 1)));
    if (isReplaceable(key)) defineAll(globalThis, props);
  }
}
