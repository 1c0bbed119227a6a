// A survey as text: one document per group of globals that share objects (see 98-snapshot-nodes).
//
//   snapshot(maxUnits)    takes it -> JSON: [globals, modules], a global being [name, kind, number of its
//                         document, share of the document's size]; or "!" and why there is none
//   snapshotPart(number)  the text of a document; it is forgotten here
{
  const {
    ArrayPrototype, ArrayPrototypeJoin, JSONStringify, MapPrototypeGet, ObjectPrototype,
    ObjectPrototypeHasOwnProperty, StringPrototypeSlice, SymbolPrototypeToString,
  } = primordials;

  const DIRTY = 1;
  const NODE = 2;
  const FORMAT = 1;

  let taken = null; // texts of the documents, until the host has fetched them

  // A guest that changed these would see our lists, or have its own code run.
  function canStringify() {
    return canStringifyLists() && !ObjectPrototypeHasOwnProperty(ObjectPrototype, "toJSON")
      && !ObjectPrototypeHasOwnProperty(ArrayPrototype, "toJSON");
  }

  // Our own lists and scalars only; `quote` is safe whatever the guest did.
  function textOf(value) {
    if (typeof value === "string") return quote(value);
    if (typeof value !== "object" || value === null) return `${value}`;
    const parts = newList();
    for (let i = 0; i < value.length; i++) parts[i] = textOf(value[i]);
    return `[${ArrayPrototypeJoin(parts, ",")}]`;
  }

  function kindText(state, value) {
    const id = MapPrototypeGet(state.memo, value);
    const record = id === undefined ? undefined : state.records[id];
    if (record !== undefined && record.kind === "Lost") return `not restorable (${record.type})`;
    return typeName(value);
  }

  // Numbers and the like share one document: each of its own would be smaller than its hash.
  function isShortScalar({ props, weight }) {
    const { isData, key, value } = props[0];
    return isData && typeof key === "string" && weight < 100 && typeof value !== "symbol"
      && (value === null || (typeof value !== "object" && typeof value !== "function"));
  }

  function write(state) {
    const isPlain = canStringify();
    const groups = newList(); // number of a global -> its document
    const documents = newList();
    const { globals, objects, flags, records, starts } = state;
    const local = newList();
    nodeWriter.begin(state, local, isPlain);
    let scalars = -1;
    for (let i = 0; i < globals.length; i++) {
      const group = groupOf(state.groups, i);
      if (groups[group] === undefined) {
        const isShort = isShortScalar(globals[i]);
        if (!isShort || scalars === -1) {
          groups[group] = documents.length;
          documents[documents.length] = {
            __proto__: null, globals: newList(), nodes: newList(), ids: newList(), weight: 0,
          };
          if (isShort) scalars = groups[group];
        } else groups[group] = scalars;
      }
      globals[i].document = groups[group];
      const document = documents[groups[group]];
      document.globals[document.globals.length] = i;
      document.weight += globals[i].weight + 1;
    }
    let owner = 0;
    for (let id = 0; id < objects.length; id++) {
      if (isPlain && (flags[id] & (DIRTY | NODE)) === 0) continue;
      if (records[id] !== undefined && records[id].kind === "Tool") continue;
      while (owner + 1 < starts.length && starts[owner + 1] <= id) owner++;
      const { ids } = documents[globals[owner].document];
      local[id] = ids.length;
      ids[ids.length] = id;
    }
    const texts = newList();
    let spent = 0; // units of the text, so at most its bytes
    for (let d = 0; d < documents.length; d++) {
      const { globals: members, ids, nodes } = documents[d];
      const named = newList();
      for (let i = 0; i < members.length; i++) named[i] = nodeWriter.propsOf(globals[members[i]].props);
      for (let i = 0; i < ids.length; i++) nodes[i] = nodeWriter.nodeOf(ids[i]);
      const whole = [FORMAT, named, nodes];
      texts[d] = isPlain ? JSONStringify(whole) : textOf(whole);
      spent += texts[d].length;
      if (spent > state.maxUnits) {
        SnapshotRefused.reason = "TooLarge";
        throw SnapshotRefused;
      }
    }
    const about = newList();
    for (let i = 0; i < globals.length; i++) {
      const { document, props, weight } = globals[i];
      const { isData, key, value } = props[0];
      const entry = newList();
      const name = typeof key === "string" ? key : SymbolPrototypeToString(key);
      entry[0] = wellFormed(StringPrototypeSlice(name, 0, 200));
      entry[1] = isData ? kindText(state, value) : "accessor";
      entry[2] = document;
      entry[3] = (weight + 1) / documents[document].weight;
      about[i] = entry;
    }
    const needed = nodeWriter.end();
    taken = texts;
    return textOf([about, needed]);
  }

  bridgeTable.snapshot = (maxUnits) => {
    taken = null;
    nodeWriter.end(); // one that was interrupted may have left its survey
    try {
      return write(survey(maxUnits));
    } catch (thrown) {
      nodeWriter.end();
      if (thrown === SnapshotRefused) return `!${SnapshotRefused.reason}`;
      throw thrown;
    }
  };

  bridgeTable.snapshotPart = (index) => {
    const text = taken[index];
    taken[index] = "";
    return text;
  };
}
