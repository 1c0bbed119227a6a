// Host values from JSON: the reverse of 40-values, plus ["undef"]. The host is trusted to send what it
// says; what arrives here is data for the guest all the same.
const { decodeValue } = (() => {
  const {
    ArrayIsArray, BigInt, Date, JSONParse, Map, MapPrototypeSet, ObjectDefineProperty, ObjectKeys,
    StringPrototypeIncludes, StringPrototypeSlice, StringPrototypeStartsWith,
  } = primordials;

  function decodeValue(json) {
    const value = JSONParse(json);
    return StringPrototypeIncludes(json, '"$":') ? revive(value) : value;
  }

  // Only own properties are written, and only over themselves: no setter can be met.
  function revive(value) {
    if (typeof value !== "object" || value === null) return value;
    if (ArrayIsArray(value)) {
      for (let i = 0; i < value.length; i++) value[i] = revive(value[i]);
      return value;
    }
    const keys = ObjectKeys(value);
    if (keys.length === 1 && keys[0] === "$" && ArrayIsArray(value.$)) return untag(value.$);
    for (let i = 0; i < keys.length; i++) value[keys[i]] = revive(value[keys[i]]);
    return value;
  }

  function untag(tagged) {
    const content = tagged.length > 1 ? tagged[1] : undefined;
    switch (tagged[0]) {
      case "int": return toBigInt(content);
      case "num": return content === "nan" ? NaN : content === "inf" ? Infinity
        : content === "-inf" ? -Infinity : -0;
      case "bytes": return bytesFromBase64(content);
      case "date": return new Date(content);
      case "map": return toMap(content);
      case "obj": return toObject(content);
      default: return undefined;
    }
  }

  function toBigInt(hex) {
    return StringPrototypeStartsWith(hex, "-")
      ? -BigInt(`0x${StringPrototypeSlice(hex, 1)}`) : BigInt(`0x${hex}`);
  }

  function toMap(pairs) {
    const map = new Map();
    for (let i = 0; i < pairs.length; i++) MapPrototypeSet(map, revive(pairs[i][0]), revive(pairs[i][1]));
    return map;
  }

  function toObject(pairs) {
    const object = {};
    for (let i = 0; i < pairs.length; i++) {
      ObjectDefineProperty(object, pairs[i][0], {
        __proto__: null, value: revive(pairs[i][1]), writable: true, enumerable: true, configurable: true,
      });
    }
    return object;
  }

  return { __proto__: null, decodeValue };
})();
