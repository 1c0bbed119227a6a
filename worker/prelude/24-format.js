// Values as text, the way a console shows them, on one line. Total: it runs no guest code, never throws,
// and stops once it has made more than was asked for.
//
// What belongs here: containers, budget, cycles. How a leaf or an exotic object reads is in
// 26-format-kinds.js; what an object is, in 22-inspect.js.
const {
  customText, emit, emitProperties, emitSlot, emitTail, emitValue, formatText, newSheet, ownKeys,
  primitiveText, registerInspector, renderEntries, sheetText,
} = (() => {
  const {
    ArrayIsArray, Map, MapPrototypeGet, MapPrototypeHas, MapPrototypeSet, NumberPrototypeToString,
    ObjectGetOwnPropertySymbols, ObjectIs, ObjectKeys, ObjectPrototypeHasOwnProperty,
    ObjectPrototypePropertyIsEnumerable, ReflectGetOwnPropertyDescriptor, ReflectGetPrototypeOf,
    RegExpPrototypeExec, StringPrototypeSlice, SymbolPrototypeToString,
  } = primordials;

  const MAX_DEPTH = 32;
  const MAX_ITEMS = 100;
  const IDENTIFIER = /^[\p{ID_Start}$_][\p{ID_Continue}$\u200c\u200d]*$/u;

  // A sheet is one piece of output in the making. `left` units may still be written; what was left out
  // of a long string is counted in `more`. `open` are the objects we are inside of.
  function newSheet(maxChars) {
    // Code points are at least half as many as units; the final cut is exact.
    return {
      __proto__: null, text: "", left: 2 * maxChars + 16, more: 0, open: newList(), depth: 0, maxChars,
    };
  }

  function sheetText(sheet) {
    return wellFormed(cutText(sheet.text, sheet.maxChars, sheet.more));
  }

  function emit(sheet, text) {
    sheet.text += text;
    sheet.left -= text.length;
  }

  function emitQuoted(sheet, text) {
    const room = sheet.left > 0 ? sheet.left : 0;
    if (text.length > room + 1) {
      const shown = StringPrototypeSlice(text, 0, room + 1);
      sheet.more += codePointLength(text) - codePointLength(shown);
      emit(sheet, quote(shown));
    } else {
      emit(sheet, quote(text));
    }
  }

  function primitiveText(value) {
    switch (typeof value) {
      case "number": return ObjectIs(value, -0) ? "-0" : NumberPrototypeToString(value, 10);
      case "bigint": return `${value}n`;
      case "symbol": return SymbolPrototypeToString(value);
      default: return `${value}`; // undefined, boolean, null, string
    }
  }

  function emitValue(sheet, value) {
    if (typeof value === "string") emitQuoted(sheet, value);
    else if ((typeof value !== "object" && typeof value !== "function") || value === null) {
      if (typeof value === "bigint") emitBigInt(sheet, value);
      else emit(sheet, primitiveText(value));
    } else emitObject(sheet, unwrapProxy(value));
  }

  // Turning a huge BigInt into decimal digits takes quadratic time that no interrupt can stop.
  const HUGE_BIGINT = 1n << 65536n;
  function emitBigInt(sheet, value) {
    if (value < HUGE_BIGINT && value > -HUGE_BIGINT) emit(sheet, `${value}n`);
    else emit(sheet, value < 0n ? "[BigInt: below -2n ** 65536n]" : "[BigInt: above 2n ** 65536n]");
  }

  // --- printers that other files register for their classes --------------------------------------
  const inspectors = new Map(); // prototype -> printer

  function registerInspector(prototype, printer) {
    MapPrototypeSet(inspectors, prototype, printer);
  }

  function customText(object) {
    const prototype = ReflectGetPrototypeOf(object);
    if (prototype === null || !MapPrototypeHas(inspectors, prototype)) return undefined;
    try {
      const text = MapPrototypeGet(inspectors, prototype)(object);
      return typeof text === "string" ? text : undefined;
    } catch {
      return undefined; // only looks like one of that class
    }
  }

  // --- objects -----------------------------------------------------------------------------------
  function emitObject(sheet, object) {
    const { open } = sheet;
    const depth = sheet.depth;
    for (let i = 0; i < depth; i++) {
      if (open[i] === object) {
        emit(sheet, "[Circular]");
        return;
      }
    }
    if (depth > MAX_DEPTH && typeof object === "object") {
      emit(sheet, `[${ArrayIsArray(object) ? "Array" : describeObject(object).name || "Object"}]`);
      return;
    }
    const custom = customText(object);
    if (custom !== undefined) {
      emit(sheet, custom);
      return;
    }
    open[depth] = object;
    sheet.depth = depth + 1;
    formatObject(sheet, object);
    sheet.depth = depth;
    open[depth] = undefined;
  }

  function keyText(key) {
    if (typeof key === "symbol") return `[${SymbolPrototypeToString(key)}]`;
    return RegExpPrototypeExec(IDENTIFIER, key) !== null ? key : quote(key);
  }

  // Own enumerable keys, symbols last; of a long array only the items matter.
  function ownKeys(object, skipsIndices, length) {
    const keys = newList();
    let count = 0;
    if (!skipsIndices || length <= 1000) {
      const names = ObjectKeys(object);
      for (let i = 0; i < names.length; i++) {
        // Index keys come first and in order; a hole shortens their run, hence the comparison.
        if (skipsIndices && isIndexBelow(names[i], length)) continue;
        keys[count++] = names[i];
      }
    }
    const symbols = ObjectGetOwnPropertySymbols(object);
    for (let i = 0; i < symbols.length; i++) {
      if (ObjectPrototypePropertyIsEnumerable(object, symbols[i])) keys[count++] = symbols[i];
    }
    return keys;
  }

  function isIndexBelow(key, length) {
    const index = +key; // a string primitive: converts without guest code
    return index >= 0 && index < length && `${index}` === key;
  }

  function emitProperty(sheet, object, key) {
    emit(sheet, `${keyText(key)}: `);
    emitSlot(sheet, object, key);
  }

  function emitSlot(sheet, object, key) {
    const descriptor = ReflectGetOwnPropertyDescriptor(object, key);
    // A data descriptor has no own `get`: reading one would see Object.prototype's.
    if (descriptor === undefined) emit(sheet, "undefined");
    else if (ObjectPrototypeHasOwnProperty(descriptor, "value")) emitValue(sheet, descriptor.value);
    else if (descriptor.get === undefined) emit(sheet, "[Setter]");
    else if (isLiveGetter(descriptor.get)) emitExport(sheet, descriptor.get);
    else emit(sheet, descriptor.set === undefined ? "[Getter]" : "[Getter/Setter]");
  }

  // A module's export: its getter is `() => name`, and throws while the name has no value yet.
  function emitExport(sheet, getter) {
    let value;
    try {
      value = getter();
    } catch {
      emit(sheet, "<uninitialized>");
      return;
    }
    emitValue(sheet, value);
  }

  // The parts between a pair of brackets, separated by commas.
  function newParts(sheet) {
    return { __proto__: null, sheet, count: 0 };
  }

  function nextPart(parts) {
    if (parts.count++ > 0) emit(parts.sheet, ", ");
  }

  function emitMore(parts, count) {
    if (count <= 0) return;
    nextPart(parts);
    emit(parts.sheet, `... ${count} more item${count === 1 ? "" : "s"}`);
  }

  function emitProperties(parts, object, keys, isHidden) {
    const { sheet } = parts;
    let shown = 0;
    for (let i = 0; i < keys.length; i++) {
      if (isHidden !== undefined && isHidden(keys[i])) continue;
      if (shown === MAX_ITEMS) {
        emitMore(parts, keys.length - i);
        return;
      }
      if (sheet.left < 0) return;
      nextPart(parts);
      emitProperty(sheet, object, keys[i]);
      shown++;
    }
  }

  // Items of an array, runs of holes as one item each.
  function emitItems(parts, array, length) {
    const { sheet } = parts;
    let shown = 0;
    let i = 0;
    while (i < length && shown < MAX_ITEMS) {
      if (sheet.left < 0) return;
      if (ObjectPrototypeHasOwnProperty(array, i)) {
        nextPart(parts);
        emitSlot(sheet, array, i);
        i++;
      } else {
        const next = nextItem(array, i, length);
        const holes = next - i;
        nextPart(parts);
        emit(sheet, `<${holes} empty item${holes === 1 ? "" : "s"}>`);
        i = next;
      }
      shown++;
    }
    emitMore(parts, length - i);
  }

  function nextItem(array, from, length) {
    const near = from + 1000 < length ? from + 1000 : length;
    for (let i = from + 1; i < near; i++) {
      if (ObjectPrototypeHasOwnProperty(array, i)) return i;
    }
    if (near === length) return length;
    // A long run of holes: the list of keys is the shorter way.
    const keys = ObjectKeys(array);
    for (let k = 0; k < keys.length; k++) {
      const index = +keys[k];
      if (index >= near && index < length) return index;
      if (!(index >= 0)) break;
    }
    return length;
  }

  // `emitOne(n)` writes the n-th of `count` entries.
  function renderEntries(parts, count, emitOne) {
    const shown = count < MAX_ITEMS ? count : MAX_ITEMS;
    for (let i = 0; i < shown; i++) {
      if (parts.sheet.left < 0) return;
      nextPart(parts);
      emitOne(i);
    }
    emitMore(parts, count - shown);
  }

  function formatObject(sheet, object) {
    if (typeof object === "function") {
      emit(sheet, functionText(object));
      emitTail(sheet, object);
      return;
    }
    const about = describeObject(object);
    if (about.kind === "Array" || about.kind === "Arguments") {
      const length = dataProperty(object, "length");
      const size = typeof length === "number" && length > 0 ? length : 0;
      emit(sheet, about.kind === "Array" ? arrayPrefix(about, size) : "[Arguments] ");
      const parts = newParts(sheet);
      emit(sheet, "[");
      emitItems(parts, object, size);
      if (sheet.left >= 0) emitProperties(parts, object, ownKeys(object, true, size));
      emit(sheet, "]");
      return;
    }
    if (about.kind === "Object") {
      const parts = newParts(sheet);
      const isModule = isModuleNamespace(object);
      emit(sheet, isModule ? "[Module: null prototype] {" : `${objectPrefix(about)}{`);
      emitProperties(parts, object, ownKeys(object, false, 0));
      emit(sheet, "}");
      return;
    }
    emitKind(sheet, object, about, newParts(sheet));
  }

  // Own properties of something whose text stands for itself: a function, a date, an error.
  function emitTail(sheet, object, isHidden, indices) {
    const size = indices === undefined ? 0 : indices;
    const keys = ownKeys(object, size > 0, size);
    const parts = newParts(sheet);
    const mark = sheet.text.length;
    emit(sheet, " {");
    emitProperties(parts, object, keys, isHidden);
    if (parts.count === 0) {
      sheet.text = StringPrototypeSlice(sheet.text, 0, mark);
      sheet.left += 2;
    } else emit(sheet, "}");
  }

  // The whole text of a value, cut to `maxChars`. A string at the top stands for itself.
  function formatText(value, maxChars) {
    if (typeof value === "string") {
      return wellFormed(value.length <= maxChars ? value : cutText(value, maxChars, 0));
    }
    if (typeof value === "number" || typeof value === "boolean" || value == null) {
      return primitiveText(value);
    }
    const sheet = newSheet(maxChars);
    emitValue(sheet, value);
    return sheetText(sheet);
  }

  return {
    __proto__: null, customText, emit, emitProperties, emitSlot, emitTail, emitValue, formatText, newSheet,
    ownKeys, primitiveText, registerInspector, renderEntries, sheetText,
  };
})();
