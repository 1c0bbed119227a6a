// How the encoder (40-values) writes what is neither plain data nor a list of it.
const { encodeKind } = (() => {
  const P = primordials;
  const {
    DatePrototypeGetTime, MapIteratorPrototypeNext, MapPrototypeEntries, SetIteratorPrototypeNext,
    SetPrototypeValues, TypedArrayPrototypeGetLength,
  } = P;
  const { emitString, encode, encodeArray, encodePlain, put, requireBytes, spend } = encoder;

  // Dates that Python's datetime can hold: years 1 to 9999.
  const MIN_DATE_MS = -62135596800000;
  const MAX_DATE_MS = 253402300799999;

  function encodeMap(map, depth) {
    const iterator = MapPrototypeEntries(map);
    put('{"$":["map",[');
    // A getter may add entries while we go: the node count ends that.
    for (let i = 0; ; i++) {
      const { done, value: pair } = MapIteratorPrototypeNext(iterator);
      if (done) break;
      put(i === 0 ? "[" : ",[");
      spend(1);
      encode(pair[0], depth + 1);
      put(",");
      encode(pair[1], depth + 1);
      put("]");
    }
    put("]]}");
  }

  function encodeSet(set, depth) {
    const iterator = SetPrototypeValues(set);
    put("[");
    for (let i = 0; ; i++) {
      const { done, value } = SetIteratorPrototypeNext(iterator);
      if (done) break;
      if (i !== 0) put(",");
      encode(value, depth + 1);
    }
    put("]");
  }

  function encodeError(error) {
    const { name, message, stack } = describeThrown(error);
    spend(3);
    put(`{"$":["error",${quote(name)},${quote(message)},${quote(stack)}]}`);
  }

  function encodeDate(date) {
    const ms = DatePrototypeGetTime(date);
    put(ms >= MIN_DATE_MS && ms <= MAX_DATE_MS ? `{"$":["date",${ms}]}` : "null");
  }

  function encodeBytes(bytes) {
    if (bytes === null) {
      put("null"); // a detached or shrunk buffer
      return;
    }
    requireBytes(TypedArrayPrototypeGetLength(bytes));
    put(`{"$":["bytes","${base64(bytes)}"]}`);
  }

  function encodeKind(object, depth) {
    const custom = customText(object);
    if (custom !== undefined) {
      emitString(custom);
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
        emitString(formatText(object, 1000));
        break;
      default: encodePlain(object, depth);
    }
  }

  return { __proto__: null, encodeKind };
})();
