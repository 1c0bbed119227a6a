// Bytes and base64: the only form in which binary data crosses.
const { base64, bytesFromBase64, bytesOfBuffer } = (() => {
  const P = primordials;
  const {
    ArrayBufferIsView, ArrayPrototypeJoin, StringFromCharCode, StringPrototypeCharCodeAt,
    TypedArrayPrototypeGetBuffer, TypedArrayPrototypeGetByteLength, TypedArrayPrototypeGetByteOffset,
    TypedArrayPrototypeGetLength, TypedArrayPrototypeGetSymbolToStringTag, Uint8Array,
    Uint8ArrayFromBase64, Uint8ArrayPrototypeToBase64,
  } = P;

  const ALPHABET = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
  const codes = new Uint8Array(64);
  const values = new Uint8Array(128);
  for (let i = 0; i < 64; i++) {
    codes[i] = StringPrototypeCharCodeAt(ALPHABET, i);
    values[codes[i]] = i;
  }

  // The bytes behind a buffer or view, not copied; null when it has none any more.
  function bytesOfBuffer(object) {
    try {
      if (!ArrayBufferIsView(object)) return new Uint8Array(object);
      if (TypedArrayPrototypeGetSymbolToStringTag(object) !== undefined) {
        return new Uint8Array(
          TypedArrayPrototypeGetBuffer(object), TypedArrayPrototypeGetByteOffset(object),
          TypedArrayPrototypeGetByteLength(object),
        );
      }
      return new Uint8Array(
        P.DataViewPrototypeGetBuffer(object), P.DataViewPrototypeGetByteOffset(object),
        P.DataViewPrototypeGetByteLength(object),
      );
    } catch {
      return null;
    }
  }

  const ownToBase64 = (bytes) => {
    const length = TypedArrayPrototypeGetLength(bytes);
    const pieces = newList();
    let text = "";
    for (let i = 0; i < length; i += 3) {
      const a = bytes[i];
      const b = i + 1 < length ? bytes[i + 1] : 0;
      const c = i + 2 < length ? bytes[i + 2] : 0;
      text += StringFromCharCode(
        codes[a >> 2], codes[((a & 3) << 4) | (b >> 4)],
        i + 1 < length ? codes[((b & 15) << 2) | (c >> 6)] : 61,
        i + 2 < length ? codes[c & 63] : 61,
      );
      if (text.length > 8192) {
        pieces[pieces.length] = text;
        text = "";
      }
    }
    pieces[pieces.length] = text;
    return ArrayPrototypeJoin(pieces, "");
  };

  const ownFromBase64 = (text) => {
    let { length } = text;
    while (length > 0 && StringPrototypeCharCodeAt(text, length - 1) === 61) length--;
    const bytes = new Uint8Array((length * 3) >> 2);
    let at = 0;
    let bits = 0;
    let held = 0;
    for (let i = 0; i < length; i++) {
      held = ((held << 6) | values[StringPrototypeCharCodeAt(text, i) & 127]) & 0xfffff;
      bits += 6;
      if (bits >= 8) {
        bits -= 8;
        bytes[at++] = (held >> bits) & 255;
      }
    }
    return bytes;
  };

  // The native ones are a hundred times faster, where there are any.
  return {
    __proto__: null,
    bytesOfBuffer,
    base64: Uint8ArrayPrototypeToBase64 === undefined ? ownToBase64 : (b) => Uint8ArrayPrototypeToBase64(b),
    bytesFromBase64: Uint8ArrayFromBase64 === undefined ? ownFromBase64 : (t) => Uint8ArrayFromBase64(t),
  };
})();
