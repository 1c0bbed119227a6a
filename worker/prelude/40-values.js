// Guest values as JSON for the host. Plain data is plain JSON; what JSON lacks is `{"$": [tag, ...]}`.
//
//   ["map", [[k, v], ...]]  ["bytes", base64]  ["date", ms]  ["int", hex]  ["num", "nan" | "inf" | "-inf"
//   | "-0"]  ["error", name, message, stack]  ["obj", [[k, v], ...]] (an object that has a key "$")
//
// Getters are read here and may run guest code; all bookkeeping is therefore saved around a nested
// encoding (a getter that calls a tool), and counts stop a bomb while it is encoded.
const { encodeFailure, encodeValue } = (() => {
  const P = primordials;
  const {
    ArrayIsArray, ArrayPrototype, ArrayPrototypeJoin, BigIntPrototypeToString, DatePrototypeGetTime,
    JSONStringify, MapIteratorPrototypeNext, MapPrototypeEntries, NumberIsSafeInteger, ObjectIs,
    ObjectKeys, ObjectPrototype, ReflectGetPrototypeOf, SetIteratorPrototypeNext,
    SetPrototypeValues, StringPrototypeIncludes, StringPrototypeIndexOf, TypedArrayPrototypeGetLength,
  } = P;

  const MAX_DEPTH = 200;
  // Dates that Python's datetime can hold: years 1 to 9999.
  const MIN_DATE_MS = -62135596800000;
  const MAX_DATE_MS = 253402300799999;
  // Where strings can't grow in place (the classic engine), joining pieces of this size keeps it linear.
  const PIECE_UNITS = 16384;

  let pieces = newList();
  let piece = "";
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

  function flush() {
    pieces[pieces.length] = piece;
    bytesLeft -= piece.length;
    piece = "";
    if (bytesLeft < 0) tooLarge();
  }

  function tooLarge() {
    if (nodesLeft < 0) {
      fail("ValueTooLarge", `the value has more than ${maxNodes} parts, the limit for one value`);
    }
    fail("ValueTooLarge", `the value takes more than ${maxBytes} bytes, the limit for one value`);
  }

  // Plain strings are the most common leaf: short ones without anything to escape are the rule.
  function quoted(text) {
    const length = text.length;
    if (length > bytesLeft) tooLarge();
    const json = JSONStringify(text);
    // Only an escape can hide a lone surrogate, and only an escape makes the literal longer.
    if (json.length !== length + 2 && StringPrototypeIncludes(json, "\\ud")) return quote(text);
    return json;
  }

  function numberText(value) {
    if (NumberIsSafeInteger(value)) return ObjectIs(value, -0) ? '{"$":["num","-0"]}' : `${value}`;
    if (value !== value) return '{"$":["num","nan"]}';
    if (value === Infinity) return '{"$":["num","inf"]}';
    if (value === -Infinity) return '{"$":["num","-inf"]}';
    const text = `${value}`;
    // Whole numbers past the safe range are floats to the host, and must look like floats.
    if (StringPrototypeIndexOf(text, ".") === -1 && StringPrototypeIndexOf(text, "e") === -1) {
      return `${text}.0`;
    }
    return text;
  }

  function encode(value, depth) {
    if (--nodesLeft < 0) tooLarge();
    switch (typeof value) {
      case "string": piece += quoted(value); break;
      case "number": piece += numberText(value); break;
      case "boolean": piece += value ? "true" : "false"; break;
      case "undefined": piece += "null"; break;
      case "bigint": piece += bigIntText(value); break;
      case "symbol": piece += quoted(primitiveText(value)); break;
      case "function": piece += quoted(formatText(value, 1000)); break;
      default:
        if (value === null) piece += "null";
        else encodeObject(value, depth);
    }
    if (piece.length > PIECE_UNITS) flush();
  }

  function bigIntText(value) {
    return `{"$":["int","${BigIntPrototypeToString(value, 16)}"]}`;
  }

  function encodeObject(object, depth) {
    if (depth >= MAX_DEPTH) {
      fail("ValueConversionError", `the value is nested deeper than ${MAX_DEPTH} levels`);
    }
    for (let i = 0; i < depth; i++) {
      if (open[i] === object) fail("ValueConversionError", "the value contains itself (a cycle)");
    }
    open[depth] = object;
    const prototype = ReflectGetPrototypeOf(object);
    if (prototype === ObjectPrototype || prototype === null) {
      encodePlain(object, depth);
    } else if (prototype === ArrayPrototype && ArrayIsArray(object)) {
      encodeArray(object, depth);
    } else {
      encodeKind(object, depth);
    }
    open[depth] = undefined;
  }

  // Quoted keys, remembered: rows of a table repeat theirs.
  let keyTexts = { __proto__: null };
  let keyCount = 0;
  function keyText(key) {
    const known = keyTexts[key];
    if (known !== undefined) return known;
    const text = `${quoted(key)}:`;
    if (keyCount === 1000) {
      keyTexts = { __proto__: null };
      keyCount = 0;
    }
    if (key.length < 100) {
      keyTexts[key] = text;
      keyCount++;
    }
    return text;
  }

  function encodePlain(object, depth) {
    const keys = ObjectKeys(object);
    const count = keys.length;
    for (let i = 0; i < count; i++) {
      if (keys[i] === "$") {
        encodeAsPairs(object, keys, depth);
        return;
      }
    }
    piece += "{";
    let isFirst = true;
    for (let i = 0; i < count; i++) {
      const key = keys[i];
      const value = object[key];
      if (value === undefined) continue;
      if (isFirst) isFirst = false;
      else piece += ",";
      piece += keyText(key);
      nodesLeft--;
      encode(value, depth + 1);
    }
    piece += "}";
  }

  // For an object that could be taken for a tag.
  function encodeAsPairs(object, keys, depth) {
    piece += '{"$":["obj",[';
    let isFirst = true;
    for (let i = 0; i < keys.length; i++) {
      const value = object[keys[i]];
      if (value === undefined) continue;
      piece += `${isFirst ? "" : ","}[${quoted(keys[i])},`;
      isFirst = false;
      nodesLeft--;
      encode(value, depth + 1);
      piece += "]";
    }
    piece += "]]}";
  }

  function encodeArray(array, depth) {
    const { length } = array;
    if (length > nodesLeft) {
      nodesLeft = -1;
      tooLarge();
    }
    piece += "[";
    for (let i = 0; i < length; i++) {
      if (i !== 0) piece += ",";
      encode(array[i], depth + 1);
    }
    piece += "]";
  }

  function encodeMap(map, depth) {
    const iterator = MapPrototypeEntries(map);
    piece += '{"$":["map",[';
    // A getter may add entries while we go: the node count ends that.
    for (let i = 0; ; i++) {
      const { done, value: pair } = MapIteratorPrototypeNext(iterator);
      if (done) break;
      piece += i === 0 ? "[" : ",[";
      nodesLeft--;
      encode(pair[0], depth + 1);
      piece += ",";
      encode(pair[1], depth + 1);
      piece += "]";
    }
    piece += "]]}";
  }

  function encodeSet(set, depth) {
    const iterator = SetPrototypeValues(set);
    piece += "[";
    for (let i = 0; ; i++) {
      const { done, value } = SetIteratorPrototypeNext(iterator);
      if (done) break;
      if (i !== 0) piece += ",";
      encode(value, depth + 1);
    }
    piece += "]";
  }

  function encodeError(error) {
    const { name, message, stack } = describeThrown(error);
    nodesLeft -= 3;
    piece += `{"$":["error",${quoted(name)},${quoted(message)},${quoted(stack)}]}`;
  }

  function encodeDate(date) {
    const ms = DatePrototypeGetTime(date);
    piece += ms >= MIN_DATE_MS && ms <= MAX_DATE_MS ? `{"$":["date",${ms}]}` : "null";
  }

  function encodeBytes(bytes) {
    if (bytes === null) {
      piece += "null"; // a detached or shrunk buffer
      return;
    }
    if (TypedArrayPrototypeGetLength(bytes) > bytesLeft) tooLarge();
    piece += `{"$":["bytes","${base64(bytes)}"]}`;
  }

  function encodeKind(object, depth) {
    const custom = customText(object);
    if (custom !== undefined) {
      piece += quoted(custom);
      return;
    }
    switch (kindOf(object)) {
      case "Array": encodeArray(object, depth); break;
      case "Map": encodeMap(object, depth); break;
      case "Set": encodeSet(object, depth); break;
      case "Date": encodeDate(object); break;
      case "Error": encodeError(object); break;
      case "TypedArray": case "ArrayBuffer": case "DataView": encodeBytes(bytesOfBuffer(object)); break;
      case "Number": encode(P.NumberPrototypeValueOf(object), depth); break;
      case "String": encode(P.StringPrototypeValueOf(object), depth); break;
      case "Boolean": encode(P.BooleanPrototypeValueOf(object), depth); break;
      case "BigInt": encode(P.BigIntPrototypeValueOf(object), depth); break;
      case "Symbol": encode(P.SymbolPrototypeValueOf(object), depth); break;
      // These hold nothing that could be read: their text says at least what they are.
      case "RegExp": case "Promise": case "WeakMap": case "WeakSet": case "WeakRef":
        piece += quoted(formatText(object, 1000));
        break;
      default: encodePlain(object, depth);
    }
  }

  // The JSON text of a value; throws what `encodeFailure` explains.
  function encodeValue(value, byteLimit, nodeLimit) {
    const saved = {
      __proto__: null, pieces, piece, bytesLeft, nodesLeft, maxBytes, maxNodes, open,
    };
    pieces = newList();
    piece = "";
    open = newList();
    bytesLeft = byteLimit;
    nodesLeft = nodeLimit;
    maxBytes = byteLimit;
    maxNodes = nodeLimit;
    failure = null;
    try {
      encode(value, 0);
      if (pieces.length === 0) {
        if (piece.length > byteLimit) tooLarge();
        return piece;
      }
      flush();
      return ArrayPrototypeJoin(pieces, "");
    } finally {
      ({ pieces, piece, bytesLeft, nodesLeft, maxBytes, maxNodes, open } = saved);
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

  return { __proto__: null, encodeFailure, encodeValue };
})();
