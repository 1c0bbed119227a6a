// TextEncoder and TextDecoder, after the WHATWG Encoding standard.
{
  const {
    ReflectApply, StringFromCharCode, StringPrototypeCharCodeAt, StringPrototypeSlice,
    StringPrototypeToLowerCase, RangeError, TypeError, Uint8Array,
  } = primordials;

  const REPLACEMENT = 0xfffd;
  const CHUNK = 2048; // code units per String.fromCharCode call, which takes them on the stack

  // Writes the UTF-8 of `text` from `start` on; stops before the code point that no longer fits.
  function writeUtf8(text, start, bytes, offset) {
    const length = text.length;
    const room = web.lengthOf(bytes);
    let at = offset;
    let i = start;
    for (; i < length; i++) {
      let c = StringPrototypeCharCodeAt(text, i);
      if (c < 0x80) {
        if (at + 1 > room) break;
        bytes[at++] = c;
        continue;
      }
      if (c < 0x800) {
        if (at + 2 > room) break;
        bytes[at++] = 0xc0 | (c >> 6);
        bytes[at++] = 0x80 | (c & 0x3f);
        continue;
      }
      let units = 1;
      if (c >= 0xd800 && c <= 0xdfff) {
        const next = c <= 0xdbff && i + 1 < length ? StringPrototypeCharCodeAt(text, i + 1) : 0;
        if (next >= 0xdc00 && next <= 0xdfff) {
          c = 0x10000 + ((c - 0xd800) << 10) + (next - 0xdc00);
          units = 2;
        } else {
          c = REPLACEMENT;
        }
      }
      if (units === 2) {
        if (at + 4 > room) break;
        bytes[at++] = 0xf0 | (c >> 18);
        bytes[at++] = 0x80 | ((c >> 12) & 0x3f);
      } else {
        if (at + 3 > room) break;
        bytes[at++] = 0xe0 | (c >> 12);
      }
      bytes[at++] = 0x80 | ((c >> 6) & 0x3f);
      bytes[at++] = 0x80 | (c & 0x3f);
      i += units - 1;
    }
    return { __proto__: null, read: i, written: at };
  }

  function utf8Encode(text) {
    // Most text is ASCII: one byte each, and no second copy.
    const exact = new Uint8Array(text.length);
    const { read, written } = writeUtf8(text, 0, exact, 0);
    if (read === text.length && written === text.length) return exact;
    const wide = new Uint8Array(written + 3 * (text.length - read));
    for (let i = 0; i < written; i++) wide[i] = exact[i];
    return web.copyBytes(wide, writeUtf8(text, read, wide, written).written);
  }

  // Code units become text by the chunk.
  function textOf(units, used) {
    units.length = used;
    return ReflectApply(StringFromCharCode, undefined, units);
  }

  // What a decoder carries from one streamed chunk to the next.
  function freshState(encoding, fatal, ignoreBOM) {
    return {
      __proto__: null, encoding, fatal, bomPending: !ignoreBOM,
      point: 0, needed: 0, lower: 0x80, upper: 0xbf, // UTF-8: the sequence that is being read
      first: -1, lead: 0, // UTF-16: half a code unit, half a pair
    };
  }

  function malformed(state) {
    if (state.fatal) throw new TypeError(`the encoded data is not valid ${state.encoding}`);
    return REPLACEMENT;
  }

  function decodeUtf8(state, bytes, length, isLast) {
    let { point, needed, lower, upper } = state;
    const units = web.list();
    let used = 0;
    let text = "";
    for (let i = 0; i < length; i++) {
      if (used >= CHUNK) {
        text += textOf(units, used);
        used = 0;
      }
      const byte = bytes[i];
      if (needed === 0) {
        if (byte < 0x80) units[used++] = byte;
        else if (byte >= 0xc2 && byte <= 0xdf) {
          needed = 1;
          point = byte & 0x1f;
        } else if (byte >= 0xe0 && byte <= 0xef) {
          if (byte === 0xe0) lower = 0xa0; // shorter forms exist
          if (byte === 0xed) upper = 0x9f; // surrogates
          needed = 2;
          point = byte & 0xf;
        } else if (byte >= 0xf0 && byte <= 0xf4) {
          if (byte === 0xf0) lower = 0x90;
          if (byte === 0xf4) upper = 0x8f; // beyond U+10FFFF
          needed = 3;
          point = byte & 0x7;
        } else units[used++] = malformed(state);
        continue;
      }
      const fits = byte >= lower && byte <= upper;
      lower = 0x80;
      upper = 0xbf;
      if (!fits) {
        // One replacement for the maximal subpart; this byte is then read afresh.
        needed = 0;
        units[used++] = malformed(state);
        i--;
        continue;
      }
      point = (point << 6) | (byte & 0x3f);
      if (--needed !== 0) continue;
      if (point > 0xffff) {
        units[used++] = 0xd800 + ((point - 0x10000) >> 10);
        units[used++] = 0xdc00 + ((point - 0x10000) & 0x3ff);
      } else {
        units[used++] = point;
      }
    }
    if (isLast && needed !== 0) units[used++] = malformed(state);
    state.point = point;
    state.needed = needed;
    state.lower = lower;
    state.upper = upper;
    return text + textOf(units, used);
  }

  function decodeUtf16(state, bytes, length, isLast) {
    const bigEndian = state.encoding === "utf-16be";
    let { first, lead } = state;
    const units = web.list();
    let used = 0;
    let text = "";
    for (let i = 0; i < length; i++) {
      if (used >= CHUNK) {
        text += textOf(units, used);
        used = 0;
      }
      if (first < 0) {
        first = bytes[i];
        continue;
      }
      const unit = bigEndian ? (first << 8) | bytes[i] : (bytes[i] << 8) | first;
      first = -1;
      const isTrail = unit >= 0xdc00 && unit <= 0xdfff;
      if (lead !== 0) {
        units[used++] = isTrail ? lead : malformed(state);
        lead = 0;
        if (isTrail) {
          units[used++] = unit;
          continue;
        }
      }
      if (unit >= 0xd800 && unit <= 0xdbff) lead = unit;
      else units[used++] = isTrail ? malformed(state) : unit;
    }
    if (isLast && (first >= 0 || lead !== 0)) units[used++] = malformed(state);
    state.first = first;
    state.lead = lead;
    return text + textOf(units, used);
  }

  // windows-1252 differs from Latin-1 in 0x80 to 0x9F only.
  const HIGH = [
    0x20ac, 0x81, 0x201a, 0x192, 0x201e, 0x2026, 0x2020, 0x2021, 0x2c6, 0x2030, 0x160, 0x2039,
    0x152, 0x8d, 0x17d, 0x8f, 0x90, 0x2018, 0x2019, 0x201c, 0x201d, 0x2022, 0x2013, 0x2014, 0x2dc,
    0x2122, 0x161, 0x203a, 0x153, 0x9d, 0x17e, 0x178,
  ];

  function decodeLatin(_state, bytes, length) {
    const units = web.list();
    let used = 0;
    let text = "";
    for (let i = 0; i < length; i++) {
      if (used >= CHUNK) {
        text += textOf(units, used);
        used = 0;
      }
      const byte = bytes[i];
      units[used++] = byte >= 0x80 && byte <= 0x9f ? HIGH[byte - 0x80] : byte;
    }
    return text + textOf(units, used);
  }

  const DECODERS = {
    __proto__: null, "utf-8": decodeUtf8, "utf-16le": decodeUtf16, "utf-16be": decodeUtf16,
    "windows-1252": decodeLatin,
  };

  function decodeChunk(state, bytes, isLast) {
    const text = DECODERS[state.encoding](state, bytes, web.lengthOf(bytes), isLast);
    if (!state.bomPending || text === "") return text;
    state.bomPending = false;
    const hasBOM = StringPrototypeCharCodeAt(text, 0) === 0xfeff
      && state.encoding !== "windows-1252";
    return hasBOM ? StringPrototypeSlice(text, 1) : text;
  }

  const LABELS = { __proto__: null };
  const names = {
    __proto__: null,
    "utf-8": [
      "utf-8", "utf8", "unicode-1-1-utf-8", "unicode11utf8", "unicode20utf8", "x-unicode20utf8",
    ],
    "utf-16le": [
      "utf-16le", "utf-16", "ucs-2", "iso-10646-ucs-2", "csunicode", "unicode", "unicodefeff",
    ],
    "utf-16be": ["utf-16be", "unicodefffe"],
    "windows-1252": [
      "windows-1252", "latin1", "iso-8859-1", "iso8859-1", "iso88591", "iso_8859-1", "ascii",
      "us-ascii", "ansi_x3.4-1968", "cp1252", "x-cp1252", "cp819", "ibm819", "l1", "csisolatin1",
      "iso-ir-100", "iso_8859-1:1987",
    ],
  };
  for (const name in names) {
    for (let i = 0; i < names[name].length; i++) LABELS[names[name][i]] = name;
  }

  function encodingOf(label) {
    let start = 0;
    let end = label.length;
    const blank = (at) => {
      const c = StringPrototypeCharCodeAt(label, at);
      return c === 0x20 || (c >= 0x9 && c <= 0xd && c !== 0xb);
    };
    while (start < end && blank(start)) start++;
    while (end > start && blank(end - 1)) end--;
    let trimmed = "";
    for (let i = start; i < end; i++) trimmed += label[i];
    const name = LABELS[StringPrototypeToLowerCase(trimmed)];
    if (name === undefined) throw new RangeError(`the encoding label '${label}' is not supported`);
    return name;
  }

  class TextEncoder {
    #brand = true;

    get encoding() {
      return this.#brand ? "utf-8" : "";
    }

    encode(input = "") {
      return this.#brand && utf8Encode(`${input}`);
    }

    encodeInto(source, destination) {
      web.requireArguments(this.#brand ? arguments.length : 0, 2, "TextEncoder.encodeInto");
      const bytes = web.bytesOf(destination);
      if (bytes === null) throw new TypeError("TextEncoder.encodeInto needs a Uint8Array");
      const { read, written } = writeUtf8(`${source}`, 0, bytes, 0);
      return { read, written };
    }
  }

  class TextDecoder {
    #encoding;
    #fatal;
    #ignoreBOM;
    #state = null; // the decoder of an unfinished stream

    constructor(label = "utf-8", options = undefined) {
      this.#encoding = encodingOf(`${label}`);
      this.#fatal = options == null ? false : !!options.fatal;
      this.#ignoreBOM = options == null ? false : !!options.ignoreBOM;
    }

    get encoding() { return this.#encoding; }

    get fatal() { return this.#fatal; }

    get ignoreBOM() { return this.#ignoreBOM; }

    decode(input = undefined, options = undefined) {
      const encoding = this.#encoding;
      const bytes = input === undefined ? new Uint8Array(0) : web.bytesOf(input);
      if (bytes === null) throw new TypeError("TextDecoder.decode needs an ArrayBuffer or a view");
      const stream = options == null ? false : !!options.stream;
      const state = this.#state || freshState(encoding, this.#fatal, this.#ignoreBOM);
      this.#state = null; // also after a fatal error
      const text = decodeChunk(state, bytes, !stream);
      if (stream) this.#state = state;
      return text;
    }
  }

  // Lossy, for our own use: no byte order mark is taken off.
  web.utf8Decode = (bytes) => decodeChunk(freshState("utf-8", false, true), bytes, true);
  web.utf8Encode = utf8Encode;

  web.tag(TextEncoder, "TextEncoder");
  web.tag(TextDecoder, "TextDecoder");
  defineGlobal("TextEncoder", TextEncoder);
  defineGlobal("TextDecoder", TextDecoder);
}
