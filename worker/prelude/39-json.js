// When JSON.stringify may be trusted with numbers and lists, and what to write where it may not.
const { canStringifyLists, isSimpleNumber, numberText } = (() => {
  const {
    ArrayPrototype, NumberIsSafeInteger, ObjectIs, ObjectPrototype, ObjectPrototypeHasOwnProperty,
    ReflectGetPrototypeOf, StringPrototypeIndexOf,
  } = primordials;

  // The engine's JSON.stringify keeps the containers it is in on an array, and pushes onto that with
  // a plain write: a setter on Array.prototype would get to see our lists.
  function canStringifyLists() {
    return ReflectGetPrototypeOf(ArrayPrototype) === ObjectPrototype
      && ReflectGetPrototypeOf(ObjectPrototype) === null
      && !ObjectPrototypeHasOwnProperty(ArrayPrototype, "0")
      && !ObjectPrototypeHasOwnProperty(ArrayPrototype, "1")
      && !ObjectPrototypeHasOwnProperty(ArrayPrototype, "2")
      && !ObjectPrototypeHasOwnProperty(ObjectPrototype, "0")
      && !ObjectPrototypeHasOwnProperty(ObjectPrototype, "1")
      && !ObjectPrototypeHasOwnProperty(ObjectPrototype, "2");
  }

  // One that JSON.stringify writes just as `numberText` does.
  function isSimpleNumber(value) {
    if ((value | 0) === value) return value !== 0 || 1 / value > 0;
    return value - value === 0 && (value % 1 !== 0 || NumberIsSafeInteger(value));
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

  return { __proto__: null, canStringifyLists, isSimpleNumber, numberText };
})();
