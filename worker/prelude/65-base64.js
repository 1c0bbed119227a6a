// atob and btoa: the engine's where it has them (native speed), ours on the classic engine.
{
  const { ReflectApply, StringFromCharCode, StringPrototypeCharCodeAt } = primordials;
  const native = { __proto__: null, atob: primordials.atob, btoa: primordials.btoa };

  const DIGITS = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
  const VALUES = { __proto__: null };
  for (let i = 0; i < 64; i++) VALUES[StringPrototypeCharCodeAt(DIGITS, i)] = i;

  function invalid(what) {
    throw new DOMException(what, "InvalidCharacterError");
  }

  // Text grows by the chunk: the classic engine copies all of it at each concatenation.
  const CHUNK = 2048;
  const textOf = (codes) => ReflectApply(StringFromCharCode, undefined, codes);
  const digit = (bits) => StringPrototypeCharCodeAt(DIGITS, bits & 63);

  function encode(text) {
    let out = "";
    const codes = web.list();
    const { length } = text;
    for (let i = 0; i < length; i += 3) {
      let bits = 0;
      for (let k = 0; k < 3; k++) {
        const c = i + k < length ? StringPrototypeCharCodeAt(text, i + k) : 0;
        if (c > 0xff) invalid("btoa: the text has characters beyond Latin-1");
        bits = (bits << 8) | c;
      }
      const at = codes.length;
      codes[at] = digit(bits >> 18);
      codes[at + 1] = digit(bits >> 12);
      codes[at + 2] = i + 1 < length ? digit(bits >> 6) : 0x3d;
      codes[at + 3] = i + 2 < length ? digit(bits) : 0x3d;
      if (at + 4 < CHUNK) continue;
      out += textOf(codes);
      codes.length = 0;
    }
    return out + textOf(codes);
  }

  // "Forgiving" base64 of the WHATWG Infra standard: blanks are skipped, padding may be absent.
  function decode(text) {
    const digits = web.list();
    let count = 0;
    let padding = 0;
    for (let i = 0; i < text.length; i++) {
      const c = StringPrototypeCharCodeAt(text, i);
      if (c === 0x20 || c === 0x9 || c === 0xa || c === 0xc || c === 0xd) continue;
      if (c === 0x3d) {
        padding++;
        continue;
      }
      const value = VALUES[c];
      if (value === undefined || padding !== 0) invalid("atob: the text is not correctly encoded");
      digits[count++] = value;
    }
    if (count % 4 === 1 || padding > 2 || (padding !== 0 && (count + padding) % 4 !== 0)) {
      invalid("atob: the text is not correctly encoded");
    }
    let out = "";
    const codes = web.list();
    let bits = 0;
    let held = 0;
    for (let i = 0; i < count; i++) {
      bits = ((bits << 6) | digits[i]) & 0xfff;
      held += 6;
      if (held < 8) continue;
      held -= 8;
      codes[codes.length] = (bits >> held) & 0xff;
      if (codes.length === CHUNK) {
        out += textOf(codes);
        codes.length = 0;
      }
    }
    return out + textOf(codes);
  }

  // The engine throws a DOMException of its own kind: guests must see one kind only.
  function viaNative(convert, text, complaint) {
    try {
      return convert(text);
    } catch {
      return invalid(complaint);
    }
  }

  const methods = {
    atob(data) {
      web.requireArguments(arguments.length, 1, "atob");
      if (native.atob === undefined) return decode(`${data}`);
      return viaNative(native.atob, `${data}`, "atob: the text is not correctly encoded");
    },
    btoa(data) {
      web.requireArguments(arguments.length, 1, "btoa");
      if (native.btoa === undefined) return encode(`${data}`);
      return viaNative(native.btoa, `${data}`, "btoa: the text has characters beyond Latin-1");
    },
  };
  defineGlobal("atob", methods.atob);
  defineGlobal("btoa", methods.btoa);
}
