// Helpers shared by the web-style globals (60 to 72), kept out of the guest's reach.
//
// What belongs here: small tools that keep our classes hardened. What does not: any global.
// Every file from here on is one closure: the prelude is a single scope and names must not clash.
const web = (() => {
  const {
    ArrayBufferIsView, ArrayBufferPrototypeGetByteLength, ObjectDefineProperty,
    ObjectGetPrototypeOf, ObjectSetPrototypeOf, StringPrototypeCharCodeAt, SymbolToStringTag,
    TypeError, TypedArrayPrototypeGetBuffer, TypedArrayPrototypeGetLength, TypedArrayPrototypeSet,
    Uint8Array, WeakSet, WeakSetPrototypeAdd, WeakSetPrototypeHas,
  } = primordials;

  // An array without a prototype: index writes can't reach setters on Array.prototype.
  function list() {
    return ObjectSetPrototypeOf([], null);
  }

  function hide(target, key, value) {
    ObjectDefineProperty(target, key, {
      __proto__: null, value, writable: true, enumerable: false, configurable: true,
    });
  }

  function tag(constructor, name) {
    ObjectDefineProperty(constructor.prototype, SymbolToStringTag, {
      __proto__: null, value: name, writable: false, enumerable: false, configurable: true,
    });
  }

  // Like push(), which would call setters on Array.prototype: for arrays handed to the guest.
  function append(array, value) {
    ObjectDefineProperty(array, array.length, {
      __proto__: null, value, writable: true, enumerable: true, configurable: true,
    });
  }

  // Marks a class of ours: how its instances are shown, and that structuredClone refuses them.
  const platformPrototypes = new WeakSet();
  function platform(constructor, show) {
    WeakSetPrototypeAdd(platformPrototypes, constructor.prototype);
    if (show !== undefined) registerInspector(constructor.prototype, show);
  }

  function isPlatformObject(value) {
    for (let at = ObjectGetPrototypeOf(value); at !== null; at = ObjectGetPrototypeOf(at)) {
      if (WeakSetPrototypeHas(platformPrototypes, at)) return true;
    }
    return false;
  }

  // A Uint8Array over the memory of any view or ArrayBuffer, or null. Runs no guest code.
  function bytesOf(value) {
    return ArrayBufferIsView(value) || isArrayBuffer(value) ? bytesOfBuffer(value) : null;
  }

  function isArrayBuffer(value) {
    if (typeof value !== "object" || value === null) return false;
    try {
      ArrayBufferPrototypeGetByteLength(value);
      return true;
    } catch {
      return false;
    }
  }

  // The first `length` bytes of an array that starts its buffer. subarray() and slice() would look
  // up a species, which guests can set.
  function copyBytes(bytes, length) {
    const copy = new Uint8Array(length);
    TypedArrayPrototypeSet(copy, new Uint8Array(TypedArrayPrototypeGetBuffer(bytes), 0, length));
    return copy;
  }

  // The Unicode scalar values of a string; a lone surrogate counts as U+FFFD (WebIDL USVString).
  function codePoints(text) {
    const points = list();
    const length = text.length;
    let count = 0;
    for (let i = 0; i < length; i++) {
      let c = StringPrototypeCharCodeAt(text, i);
      if (c >= 0xd800 && c <= 0xdfff) {
        const next = c <= 0xdbff && i + 1 < length ? StringPrototypeCharCodeAt(text, i + 1) : 0;
        if (next >= 0xdc00 && next <= 0xdfff) {
          c = 0x10000 + ((c - 0xd800) << 10) + (next - 0xdc00);
          i++;
        } else {
          c = 0xfffd;
        }
      }
      points[count++] = c;
    }
    return points;
  }

  function requireArguments(given, needed, what) {
    if (given < needed) {
      const plural = needed === 1 ? "" : "s";
      throw new TypeError(`${what} needs ${needed} argument${plural}, but only ${given} given`);
    }
  }

  return {
    __proto__: null, append, bytesOf, codePoints, copyBytes, hide, isArrayBuffer, isPlatformObject,
    list, platform, requireArguments, tag,
    // `bytes.length` is an inherited getter, which a guest can replace.
    lengthOf: TypedArrayPrototypeGetLength,
  };
})();
