// crypto.randomUUID and crypto.getRandomValues.
//
// The numbers come from the session's seeded generator (61-random.js): unpredictable between
// sessions that got their seed from the host's entropy, reproducible where the host chose a seed,
// and in no case fit for keys. So there is no `crypto.subtle`: a guest has no secret to keep.
{
  const { TypeError, TypedArrayPrototypeGetSymbolToStringTag, WeakSet, WeakSetPrototypeAdd,
    WeakSetPrototypeHas } = primordials;

  const MAX_BYTES = 65536;
  const INTEGER_VIEWS = {
    __proto__: null, Int8Array: 1, Uint8Array: 1, Uint8ClampedArray: 1, Int16Array: 1,
    Uint16Array: 1, Int32Array: 1, Uint32Array: 1, BigInt64Array: 1, BigUint64Array: 1,
  };
  const DIGITS = "0123456789abcdef";
  const instances = new WeakSet();

  function requireCrypto(object) {
    if (!WeakSetPrototypeHas(instances, object)) {
      throw new TypeError("Illegal invocation: this is not a Crypto");
    }
  }

  class Crypto {
    constructor() {
      throw new TypeError("Illegal constructor");
    }

    getRandomValues(array) {
      requireCrypto(this);
      const name = TypedArrayPrototypeGetSymbolToStringTag(array);
      if (name === undefined || INTEGER_VIEWS[name] === undefined) {
        throw new DOMException("an integer typed array is needed", "TypeMismatchError");
      }
      const bytes = web.bytesOf(array);
      const length = web.lengthOf(bytes);
      if (length > MAX_BYTES) {
        throw new DOMException(
          `crypto.getRandomValues: ${length} bytes are more than the ${MAX_BYTES} allowed at once`,
          "QuotaExceededError",
        );
      }
      for (let i = 0; i < length; i += 4) {
        const word = random.word();
        for (let k = 0; k < 4 && i + k < length; k++) bytes[i + k] = word >>> (8 * k);
      }
      return array;
    }

    randomUUID() {
      requireCrypto(this);
      let text = "";
      let word = 0;
      for (let i = 0; i < 32; i++) {
        word = i % 8 === 0 ? random.word() : word >>> 4;
        let digit = word & 15;
        if (i === 12) digit = 4; // version 4: random
        if (i === 16) digit = 8 | (digit & 3); // the variant of RFC 9562
        if (i === 8 || i === 12 || i === 16 || i === 20) text += "-";
        text += DIGITS[digit];
      }
      return text;
    }
  }

  const crypto = primordials.ObjectCreate(Crypto.prototype);
  WeakSetPrototypeAdd(instances, crypto);
  web.tag(Crypto, "Crypto");
  web.platform(Crypto, () => "Crypto {}");
  defineGlobal("Crypto", Crypto);
  defineGlobal("crypto", crypto);
}
