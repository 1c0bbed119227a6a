// Guest values as JSON for the host. Plain data is plain JSON; what JSON lacks is `{"$": [tag, ...]}`.
//
//   ["map", [[k, v], ...]]  ["bytes", base64]  ["date", ms]  ["int", hex]  ["num", "nan" | "inf" | "-inf"
//   | "-0"]  ["error", name, message, stack]  ["obj", [[k, v], ...]] (an object whose first key is "$")
//
// Getters are read here and may run guest code; all bookkeeping is therefore saved around a nested
// encoding (a getter that calls a tool), and counts stop a bomb while it is encoded.
const { encodeFailure, encodeValue, encoder } = (() => {
  const {
    ArrayIsArray, ArrayPrototype, ArrayPrototypeJoin, BigIntPrototypeToString, JSONStringify, ObjectKeys,
    ObjectPrototype, ReflectGetPrototypeOf, StringPrototypeIncludes, StringPrototypeSlice,
  } = primordials;

  const MAX_DEPTH = 200;

  // Text is collected as tokens and joined now and then: a store costs a tenth of a concatenation.
  // Strings are written unescaped at first; a batch of them is checked by one native call, since
  // a call of JSON.stringify per string costs more than all the rest.
  const BATCH_TOKENS = 4000;
  const LONG_UNITS = 1000;

  let tokens = newList();
  let count = 0; // tokens in use
  let strings = newList(); // those written unescaped, and where
  let places = newList();
  let stringCount = 0;
  let stringUnits = 0;
  let pieces = newList();
  let pieceCount = 0;
  let bytesLeft = 0;
  let nodesLeft = 0;
  let maxBytes = 0;
  let maxNodes = 0;
  let open = newList();
  let failure = null; // set just before ours is thrown: a guest's own exception leaves it null

  function fail(type, message) {
    failure = { __proto__: null, type, message };
    throw failure;
  }

  function tooLarge() {
    if (nodesLeft < 0) {
      fail("ValueTooLarge", `the value has more than ${maxNodes} parts, the limit for one value`);
    }
    fail("ValueTooLarge", `the value takes more than ${maxBytes} bytes, the limit for one value`);
  }

  function flush() {
    // Two quotes and a comma each; anything longer holds an escape.
    if (stringCount !== 0 && (stringCount < 5 || !canStringifyLists()
      || JSONStringify(strings).length !== stringUnits + 3 * stringCount + 1)) {
      for (let i = 0; i < stringCount; i++) tokens[places[i]] = quote(strings[i]);
    }
    if (stringCount !== 0) {
      strings = newList();
      stringCount = 0;
      stringUnits = 0;
    }
    tokens.length = count;
    const piece = ArrayPrototypeJoin(tokens, "");
    count = 0;
    pieces[pieceCount++] = piece;
    bytesLeft -= piece.length;
    if (bytesLeft < 0) tooLarge();
  }

  // A string leaf. Held strings count at once: many references to a long one must not be joined.
  function emitString(text) {
    const { length } = text;
    if (length > LONG_UNITS) {
      if (length > bytesLeft) tooLarge();
      if (count !== 0) flush();
      tokens[count++] = quote(text);
      flush();
      return;
    }
    strings[stringCount] = text;
    places[stringCount++] = count;
    stringUnits += length;
    tokens[count++] = `"${text}"`;
    if (stringUnits > bytesLeft) tooLarge();
  }

  function encode(value, depth) {
    if (--nodesLeft < 0) tooLarge();
    if (count > BATCH_TOKENS) flush();
    switch (typeof value) {
      case "string": emitString(value); break;
      case "number":
        // Small integers other than 0, whose sign matters: most numbers are.
        tokens[count++] = (value | 0) === value && value !== 0 ? value : numberText(value);
        break;
      case "boolean": tokens[count++] = value ? "true" : "false"; break;
      case "undefined": tokens[count++] = "null"; break;
      case "bigint": emitBigInt(value); break;
      case "symbol": emitString(primitiveText(value)); break;
      case "function": emitString(formatText(value, 1000)); break;
      default: {
        if (value === null) {
          tokens[count++] = "null";
          return;
        }
        enter(value, depth);
        const prototype = ReflectGetPrototypeOf(value);
        if (prototype === ObjectPrototype || prototype === null) encodePlain(value, depth);
        else if (prototype === ArrayPrototype && ArrayIsArray(value)) encodeArray(value, depth);
        else encodeKind(value, depth);
      }
    }
  }

  function enter(object, depth) {
    if (depth >= MAX_DEPTH) {
      fail("ValueConversionError", `the value is nested deeper than ${MAX_DEPTH} levels`);
    }
    for (let i = 0; i < depth; i++) {
      if (open[i] === object) fail("ValueConversionError", "the value contains itself (a cycle)");
    }
    open[depth] = object;
  }

  function emitBigInt(value) {
    // Four bits a digit; the check comes first, since the conversion can't be interrupted.
    const digits = BigIntPrototypeToString(value, 16);
    if (digits.length > bytesLeft) tooLarge();
    tokens[count++] = `{"$":["int","${digits}"]}`;
    if (digits.length > LONG_UNITS) flush();
  }

  // Quoted keys with what stands before them, remembered: rows of a table repeat theirs.
  let firstKeys = { __proto__: null };
  let nextKeys = { __proto__: null };
  let keyCount = 0;
  function keyText(key, isFirst) {
    const text = quote(key);
    if (key.length > 100) {
      if (text.length > bytesLeft) tooLarge();
      return `${isFirst ? "{" : ","}${text}:`;
    }
    if (++keyCount > 1000) {
      firstKeys = { __proto__: null };
      nextKeys = { __proto__: null };
      keyCount = 0;
    }
    if (isFirst) return (firstKeys[key] = `{${text}:`);
    return (nextKeys[key] = `,${text}:`);
  }

  function encodePlain(object, depth) {
    const keys = ObjectKeys(object);
    const size = keys.length;
    let isFirst = true;
    for (let i = 0; i < size; i++) {
      const key = keys[i];
      const value = object[key];
      if (value === undefined) continue;
      let text;
      if (isFirst) {
        if (key === "$") {
          encodeAsPairs(object, keys, i, value, depth);
          return;
        }
        isFirst = false;
        text = firstKeys[key];
        if (text === undefined) text = keyText(key, true);
      } else {
        text = nextKeys[key];
        if (text === undefined) text = keyText(key, false);
      }
      tokens[count++] = text;
      // The common leaf is written here: a call costs as much as the rest of it.
      if (typeof value === "number" && (value | 0) === value && value !== 0) {
        tokens[count++] = value;
        nodesLeft -= 2;
      } else {
        nodesLeft--;
        encode(value, depth + 1);
      }
    }
    if (nodesLeft < 0) tooLarge();
    tokens[count++] = isFirst ? "{}" : "}";
  }

  // For an object that could be taken for a tag: a tag is an object whose only key is "$", and that may
  // be all that is left of this one when undefined values are left out.
  function encodeAsPairs(object, keys, start, first, depth) {
    tokens[count++] = '{"$":["obj",[';
    for (let i = start; i < keys.length; i++) {
      const value = i === start ? first : object[keys[i]];
      if (value === undefined) continue;
      tokens[count++] = i === start ? "[" : ",[";
      emitString(keys[i]);
      tokens[count++] = ",";
      nodesLeft--;
      encode(value, depth + 1);
      tokens[count++] = "]";
    }
    tokens[count++] = "]]}";
  }

  // Long lists of scalars and of flat records, which is what programs hand over, go through one native
  // call per batch. What is checked is what is written: a record is copied first, so that a getter
  // runs once and can't answer differently the second time.
  const BATCH_ITEMS = 200;
  const BATCH_UNITS = 65536;

  // Text units of a record of which JSON.stringify writes just what we would; -1 if it isn't one.
  function simpleRecordUnits(record) {
    const keys = ObjectKeys(record);
    const size = keys.length;
    if (size === 0) return 2;
    if (keys[0] === "$") return -1;
    let units = 4 * size;
    for (let i = 0; i < size; i++) {
      const key = keys[i];
      const value = record[key];
      switch (typeof value) {
        case "string": units += value.length; break;
        case "number":
          if (((value | 0) !== value || value === 0) && !isSimpleNumber(value)) return -1;
          units += 8;
          break;
        case "boolean": units += 5; break;
        default:
              if (value !== null) return -1;
      }
      units += key.length;
    }
    nodesLeft -= 2 * size;
    return units;
  }

  function encodeArray(array, depth) {
    const { length: given } = array;
    const length = typeof given === "number" && given > 0 ? given : 0; // a proxy answers what it likes
    // Whatever the items are, there are too many of them.
    if (length > nodesLeft) {
      nodesLeft = -1;
      tooLarge();
    }
    tokens[count++] = "[";
    if (length < 4 || depth + 1 >= MAX_DEPTH) {
      for (let i = 0; i < length; i++) {
        if (i !== 0) tokens[count++] = ",";
        encode(array[i], depth + 1);
      }
    } else {
      encodeLongArray(array, length, depth);
    }
    tokens[count++] = "]";
  }

  function encodeLongArray(array, length, depth) {
    const batch = newList();
    let size = 0;
    let units = 0;
    let isFirst = true;
    for (let i = 0; i < length; i++) {
      const item = array[i];
      let added = -1;
      let written = item;
      let isCopied = false;
      switch (typeof item) {
        case "number": if (isSimpleNumber(item)) added = 8; break;
        case "string": added = item.length; break;
        case "boolean": added = 5; break;
        case "object":
          if (item === null) {
            added = 4;
          } else if (ReflectGetPrototypeOf(item) === ObjectPrototype) {
            written = { __proto__: null, ...item };
            isCopied = true;
            added = simpleRecordUnits(written);
          }
      }
      if (added >= 0) {
        nodesLeft--;
        batch[size++] = written;
        units += added;
        if (size < BATCH_ITEMS && units < BATCH_UNITS) continue;
      }
      if (size !== 0) {
        emitBatch(batch, size, units, isFirst, depth);
        isFirst = false;
        size = 0;
        units = 0;
      }
      if (added < 0) {
        if (!isFirst) tokens[count++] = ",";
        isFirst = false;
        if (!isCopied) {
          encode(item, depth + 1);
        } else {
          nodesLeft--;
          enter(item, depth + 1);
          encodePlain(written, depth + 1);
        }
      }
    }
    if (size !== 0) emitBatch(batch, size, units, isFirst, depth);
  }

  function emitBatch(batch, size, units, isFirst, depth) {
    if (nodesLeft < 0 || units > 2 * bytesLeft + 1000) tooLarge();
    batch.length = size;
    const json = canStringifyLists() ? JSONStringify(batch) : "";
    if (json === "" || StringPrototypeIncludes(json, "\\ud")) {
      // There may be a lone surrogate. The nodes are counted twice then; rare enough.
      for (let i = 0; i < size; i++) {
        if (!isFirst || i !== 0) tokens[count++] = ",";
        encode(batch[i], depth + 1);
      }
      return;
    }
    if (!isFirst) tokens[count++] = ",";
    tokens[count++] = StringPrototypeSlice(json, 1, -1);
    flush();
  }

  // The JSON text of a value; throws what `encodeFailure` explains.
  function encodeValue(value, byteLimit, nodeLimit) {
    if (typeof value === "number" && byteLimit > 32) return numberText(value);
    const saved = {
      __proto__: null, tokens, count, strings, places, stringCount, stringUnits, pieces, pieceCount,
      bytesLeft, nodesLeft, maxBytes, maxNodes, open,
    };
    tokens = newList();
    count = 0;
    strings = newList();
    places = newList();
    stringCount = 0;
    stringUnits = 0;
    pieces = newList();
    pieceCount = 0;
    open = newList();
    bytesLeft = byteLimit;
    nodesLeft = nodeLimit;
    maxBytes = byteLimit;
    maxNodes = nodeLimit;
    failure = null;
    try {
      encode(value, 0);
      flush();
      return pieceCount === 1 ? pieces[0] : ArrayPrototypeJoin(pieces, "");
    } finally {
      ({
        tokens, count, strings, places, stringCount, stringUnits, pieces, pieceCount, bytesLeft,
        nodesLeft, maxBytes, maxNodes, open,
      } = saved);
    }
  }

  // Why a value could not be encoded: our own refusal, or what a getter threw.
  function encodeFailure(thrown) {
    if (thrown !== null && thrown === failure) return failure;
    const { name, message } = describeThrown(thrown);
    return {
      __proto__: null, type: "ValueConversionError", message: `reading the value threw ${name}: ${message}`,
    };
  }

  // For 41-value-kinds.js, which writes to the same text.
  const encoder = {
    __proto__: null,
    encode,
    encodeArray,
    encodePlain,
    emitString,
    put(text) {
      if (text.length > bytesLeft) tooLarge();
      tokens[count++] = text;
      if (text.length > LONG_UNITS) flush();
    },
    spend(nodes) { nodesLeft -= nodes; },
    requireBytes(bytes) { if (bytes > bytesLeft) tooLarge(); },
  };

  return { __proto__: null, encodeFailure, encodeValue, encoder };
})();
