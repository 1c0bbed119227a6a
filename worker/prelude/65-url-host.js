// Host names of URLs: IPv4 and IPv6 numbers, domains to ASCII, percent-encoding sets.
//
// After the WHATWG URL standard. Domains are lower-cased, NFKC-normalised and punycoded, which is
// what UTS 46 does to ordinary names; its tables are not carried, and "xn--" labels not decoded.
const urlHost = (() => {
  const {
    MathFloor, MathPow, NumberPrototypeToString, StringFromCodePoint, StringPrototypeCharCodeAt,
    StringPrototypeIncludes, StringPrototypeNormalize, StringPrototypeSlice,
    StringPrototypeToLowerCase,
    StringPrototypeToUpperCase, Uint8Array,
  } = primordials;

  // Percent-encoding sets as bit masks over ASCII; everything beyond is always encoded.
  const FRAGMENT = 1, QUERY = 2, SPECIAL_QUERY = 4, PATH = 8, USERINFO = 16, C0 = 32, FORM = 64;
  const sets = new Uint8Array(128);
  const mark = (chars, mask) => {
    for (let i = 0; i < chars.length; i++) sets[StringPrototypeCharCodeAt(chars, i)] |= mask;
  };
  for (let c = 0; c < 128; c++) if (c < 0x20 || c > 0x7e) sets[c] = 127;
  mark(" \"<>`", FRAGMENT);
  mark(" \"#<>", QUERY | SPECIAL_QUERY | PATH | USERINFO | FORM);
  mark("'", SPECIAL_QUERY);
  mark("?^`{}", PATH | USERINFO | FORM);
  mark("/:;=@[\\]|", USERINFO | FORM);
  mark("$%&+,!'()~", FORM);

  const HEX = web.list();
  for (let i = 0; i < 256; i++) {
    HEX[i] = "%" + (i < 16 ? "0" : "") + StringPrototypeToUpperCase(NumberPrototypeToString(i, 16));
  }

  function encodePoint(c, mask) {
    if (c < 0x80) return (sets[c] & mask) !== 0 ? HEX[c] : StringFromCodePoint(c);
    if (c < 0x800) return HEX[0xc0 | (c >> 6)] + HEX[0x80 | (c & 63)];
    if (c < 0x10000) {
      return HEX[0xe0 | (c >> 12)] + HEX[0x80 | ((c >> 6) & 63)] + HEX[0x80 | (c & 63)];
    }
    return HEX[0xf0 | (c >> 18)] + HEX[0x80 | ((c >> 12) & 63)] + HEX[0x80 | ((c >> 6) & 63)]
      + HEX[0x80 | (c & 63)];
  }

  function encodeText(text, mask) {
    const points = web.codePoints(text);
    let out = "";
    for (let i = 0; i < points.length; i++) out += encodePoint(points[i], mask);
    return out;
  }

  function hexValue(c) {
    if (c >= 0x30 && c <= 0x39) return c - 0x30;
    const letter = c | 0x20;
    return letter >= 0x61 && letter <= 0x66 ? letter - 0x57 : -1;
  }

  // Percent-decodes to text, lossy UTF-8; `plusIsSpace` for form data.
  function decodeText(text, plusIsSpace) {
    const bytes = web.utf8Encode(text);
    const length = web.lengthOf(bytes);
    let used = 0;
    for (let i = 0; i < length; i++) {
      let byte = bytes[i];
      if (byte === 0x2b && plusIsSpace) byte = 0x20;
      else if (byte === 0x25 && i + 2 < length) {
        const high = hexValue(bytes[i + 1]);
        const low = hexValue(bytes[i + 2]);
        if (high >= 0 && low >= 0) {
          byte = high * 16 + low;
          i += 2;
        }
      }
      bytes[used++] = byte;
    }
    return web.utf8Decode(web.copyBytes(bytes, used));
  }

  // Split on a one-character separator, without String.prototype.split (it looks up Symbol.split).
  function split(text, separator) {
    const parts = web.list();
    let start = 0;
    for (let i = 0; i <= text.length; i++) {
      if (i < text.length && text[i] !== separator) continue;
      parts[parts.length] = StringPrototypeSlice(text, start, i);
      start = i + 1;
    }
    return parts;
  }

  // RFC 3492, encoding only.
  function punycode(points) {
    let out = "";
    const count = points.length;
    for (let i = 0; i < count; i++) if (points[i] < 128) out += StringFromCodePoint(points[i]);
    const basic = out.length;
    if (basic !== 0) out += "-";
    const digit = (d) => StringFromCodePoint(d < 26 ? 97 + d : 22 + d);
    let n = 128, delta = 0, bias = 72, handled = basic;
    while (handled < count) {
      let next = 0x110000;
      for (let i = 0; i < count; i++) if (points[i] >= n && points[i] < next) next = points[i];
      delta += (next - n) * (handled + 1);
      n = next;
      for (let i = 0; i < count; i++) {
        if (points[i] < n) delta++;
        if (points[i] !== n) continue;
        let q = delta;
        for (let k = 36; ; k += 36) {
          const t = k <= bias ? 1 : k >= bias + 26 ? 26 : k - bias;
          if (q < t) break;
          out += digit(t + ((q - t) % (36 - t)));
          q = MathFloor((q - t) / (36 - t));
        }
        out += digit(q);
        delta = handled === basic ? MathFloor(delta / 700) : MathFloor(delta / 2);
        delta += MathFloor(delta / (handled + 1));
        let k = 0;
        for (; delta > 455; k += 36) delta = MathFloor(delta / 35);
        bias = k + MathFloor((36 * delta) / (delta + 38));
        delta = 0;
        handled++;
      }
      delta++;
      n++;
    }
    return out;
  }

  const isIgnorable = (c) => c === 0xad || c === 0x200b || c === 0x2060 || c === 0xfeff
    || (c >= 0xfe00 && c <= 0xfe0f);

  function textOf(points) {
    let out = "";
    for (let i = 0; i < points.length; i++) out += StringFromCodePoint(points[i]);
    return out;
  }

  const startsEncoded = (label) =>
    label[0] === 0x78 && label[1] === 0x6e && label[2] === 0x2d && label[3] === 0x2d; // "xn--"

  function domainToAscii(domain) {
    const mapped = StringPrototypeNormalize(
      StringPrototypeToLowerCase(StringPrototypeNormalize(domain, "NFKC")), "NFKC");
    const points = web.codePoints(mapped);
    let out = "";
    let label = web.list();
    let ascii = true;
    for (let i = 0; i <= points.length; i++) {
      const c = i < points.length ? points[i] : 0x2e;
      if (c === 0x2e || c === 0x3002) {
        if (i !== points.length || label.length !== 0) {
          // A label that claims to be encoded already but isn't ASCII has no valid reading.
          if (!ascii && startsEncoded(label)) return null;
          out += ascii ? textOf(label) : "xn--" + punycode(label);
        }
        if (i < points.length) out += ".";
        label = web.list();
        ascii = true;
      } else if (!isIgnorable(c)) {
        if (c === 0xfffd) return null;
        if (c > 0x7f) ascii = false;
        label[label.length] = c;
      }
    }
    return out === "" ? null : out;
  }

  // One part of an IPv4 address: decimal, 0x hexadecimal or 0 octal. NaN when it is no number.
  function ipv4Number(part) {
    let radix = 10;
    let start = 0;
    if (part.length >= 2 && part[0] === "0") {
      const hex = part[1] === "x" || part[1] === "X";
      radix = hex ? 16 : 8;
      start = hex ? 2 : 1;
    }
    if (part === "") return NaN;
    let value = 0;
    for (let i = start; i < part.length; i++) {
      const digit = hexValue(StringPrototypeCharCodeAt(part, i));
      if (digit < 0 || digit >= radix) return NaN;
      value = value * radix + digit;
    }
    return value;
  }

  function endsInNumber(parts) {
    let last = parts.length - 1;
    if (parts[last] === "") {
      if (last === 0) return false;
      last--;
    }
    const part = parts[last];
    let digits = part !== "";
    for (let i = 0; i < part.length; i++) if (part[i] < "0" || part[i] > "9") digits = false;
    return digits || ipv4Number(part) === ipv4Number(part);
  }

  function parseIpv4(parts) {
    let count = parts.length;
    if (count > 1 && parts[count - 1] === "") count--;
    if (count > 4) return null;
    let address = 0;
    for (let i = 0; i < count; i++) {
      const value = ipv4Number(parts[i]);
      const limit = i === count - 1 ? MathPow(256, 5 - count) : 256;
      if (!(value < limit)) return null; // also NaN
      address += i === count - 1 ? value : value * MathPow(256, 3 - i);
    }
    let out = "";
    for (let i = 3; i >= 0; i--) {
      out += MathFloor(address / MathPow(256, i)) % 256;
      if (i !== 0) out += ".";
    }
    return out;
  }

  function parseIpv6(text) {
    const pieces = web.list();
    for (let i = 0; i < 8; i++) pieces[i] = 0;
    let piece = 0;
    let compress = -1;
    let at = 0;
    const code = (i) => (i < text.length ? StringPrototypeCharCodeAt(text, i) : -1);
    if (code(0) === 0x3a) {
      if (code(1) !== 0x3a) return null;
      at = 2;
      compress = ++piece;
    }
    while (at < text.length) {
      if (piece === 8) return null;
      if (code(at) === 0x3a) {
        if (compress !== -1) return null;
        at++;
        compress = ++piece;
        continue;
      }
      let value = 0;
      let length = 0;
      for (; length < 4 && hexValue(code(at)) >= 0; length++, at++) {
        value = value * 16 + hexValue(code(at));
      }
      if (code(at) === 0x2e) {
        if (length === 0 || piece > 6) return null;
        const quad = embeddedIpv4(StringPrototypeSlice(text, at - length));
        if (quad === null) return null;
        pieces[piece++] = quad[0] * 256 + quad[1];
        pieces[piece++] = quad[2] * 256 + quad[3];
        at = text.length;
        break;
      }
      if (code(at) === 0x3a) {
        if (++at === text.length) return null;
      } else if (at < text.length) {
        return null;
      }
      pieces[piece++] = value;
    }
    if (compress !== -1) {
      for (let swaps = piece - compress, to = 7; to !== 0 && swaps > 0; swaps--, to--) {
        const from = compress + swaps - 1;
        const held = pieces[from];
        pieces[from] = pieces[to];
        pieces[to] = held;
      }
    } else if (piece !== 8) {
      return null;
    }
    return serializeIpv6(pieces);
  }

  // The dotted tail of an IPv6 address: exactly four plain decimals, no leading zeros.
  function embeddedIpv4(text) {
    const parts = split(text, ".");
    if (parts.length !== 4) return null;
    const quad = web.list();
    for (let i = 0; i < 4; i++) {
      const part = parts[i];
      if (part === "" || part.length > 3 || (part.length > 1 && part[0] === "0")) return null;
      let value = 0;
      for (let k = 0; k < part.length; k++) {
        const digit = StringPrototypeCharCodeAt(part, k) - 0x30;
        if (digit < 0 || digit > 9) return null;
        value = value * 10 + digit;
      }
      if (value > 255) return null;
      quad[i] = value;
    }
    return quad;
  }

  function serializeIpv6(pieces) {
    let longest = 1; // a single zero is not compressed
    let compress = -1;
    for (let i = 0; i < 8; i++) {
      let run = 0;
      while (i + run < 8 && pieces[i + run] === 0) run++;
      if (run > longest) {
        longest = run;
        compress = i;
      }
      if (run !== 0) i += run - 1;
    }
    let out = "";
    for (let i = 0; i < 8; i++) {
      if (i === compress) {
        out += i === 0 ? "::" : ":";
        i += longest - 1;
        continue;
      }
      out += NumberPrototypeToString(pieces[i], 16);
      if (i !== 7) out += ":";
    }
    return out;
  }

  const FORBIDDEN_HOST = "\0\t\n\r #/:<>?@[\\]^|";

  function hasForbidden(host, isDomain) {
    for (let i = 0; i < host.length; i++) {
      const c = StringPrototypeCharCodeAt(host, i);
      if (isDomain && (c < 0x20 || c === 0x25 || c === 0x7f)) return true;
      if (StringPrototypeIncludes(FORBIDDEN_HOST, host[i])) return true;
    }
    return false;
  }

  // The host in its serialized form, or null when it is invalid.
  function parseHost(text, opaque) {
    // A read past the end of a string would reach String.prototype, hence the test for "".
    if (text !== "" && text[0] === "[") {
      if (text[text.length - 1] !== "]") return null;
      const address = parseIpv6(StringPrototypeSlice(text, 1, -1));
      return address === null ? null : `[${address}]`;
    }
    if (opaque) return hasForbidden(text, false) ? null : encodeText(text, C0);
    const domain = domainToAscii(decodeText(text, false));
    if (domain === null || hasForbidden(domain, true)) return null;
    const parts = split(domain, ".");
    return endsInNumber(parts) ? parseIpv4(parts) : domain;
  }

  return {
    __proto__: null, C0, FORM, FRAGMENT, PATH, QUERY, SPECIAL_QUERY, USERINFO, decodeText,
    encodePoint, encodeText, parseHost, split,
  };
})();
