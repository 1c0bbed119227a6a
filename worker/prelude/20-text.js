// Strings for output: well-formed, quoted, cut. Primitives only, so nothing here runs guest code.
const { codePointLength, cutText, flat, prefixUnits, quote, wellFormed } = (() => {
  const {
    ArrayPrototypeJoin, JSONStringify, RegExpPrototypeExec, StringPrototypeCharCodeAt,
    StringPrototypeIncludes, StringPrototypeIsWellFormed, StringPrototypeSlice, StringPrototypeToWellFormed,
  } = primordials;

  const REPLACEMENT = "\ufffd";
  // Counting code points exactly takes a look at every unit; past this many, units are counted.
  const EXACT_UNITS = 1048576;
  // Runs of pairs, of bounded length: the engine keeps a way back for each repetition.
  const PAIRS = /(?:[\ud800-\udbff][\udc00-\udfff]){1,500}/g;

  function isLead(unit) {
    return unit >= 0xd800 && unit <= 0xdbff;
  }

  function isTrail(unit) {
    return unit >= 0xdc00 && unit <= 0xdfff;
  }

  // The text with each lone surrogate replaced: nothing else can be encoded as UTF-8.
  function wellFormed(text) {
    if (StringPrototypeToWellFormed !== undefined) return StringPrototypeToWellFormed(text);
    const length = text.length;
    const parts = newList();
    let count = 0;
    let kept = 0; // everything before this index is in `parts`
    for (let i = 0; i < length; i++) {
      const unit = StringPrototypeCharCodeAt(text, i);
      if (unit < 0xd800 || unit > 0xdfff) continue;
      if (isLead(unit) && i + 1 < length && isTrail(StringPrototypeCharCodeAt(text, i + 1))) {
        i++;
        continue;
      }
      if (i > kept) parts[count++] = StringPrototypeSlice(text, kept, i);
      parts[count++] = REPLACEMENT;
      kept = i + 1;
    }
    if (count === 0) return text;
    parts[count] = StringPrototypeSlice(text, kept);
    return ArrayPrototypeJoin(parts, "");
  }

  // A JSON string literal, well-formed and without NUL. JSON.stringify of a primitive string looks
  // up nothing; it writes a lone surrogate as an escape that some decoders refuse.
  const quote = StringPrototypeIsWellFormed !== undefined
    ? (text) => JSONStringify(StringPrototypeIsWellFormed(text) ? text : wellFormed(text))
    : (text) => {
      const quoted = JSONStringify(text);
      return StringPrototypeIncludes(quoted, "\\ud") ? JSONStringify(wellFormed(text)) : quoted;
    };

  // A long string made by concatenation is a rope inside the engine, which the classic binding can't
  // hand over. Slicing makes it one piece.
  function flat(text) {
    return text.length < 256 ? text : StringPrototypeSlice(text, 0);
  }

  function codePointLength(text) {
    const length = text.length;
    let pairs = 0;
    if (length <= 64) {
      for (let i = 0; i + 1 < length; i++) {
        if (isLead(StringPrototypeCharCodeAt(text, i))
          && isTrail(StringPrototypeCharCodeAt(text, i + 1))) {
          pairs++;
          i++;
        }
      }
      return length - pairs;
    }
    if (length > EXACT_UNITS) {
      return codePointLength(StringPrototypeSlice(text, 0, EXACT_UNITS)) + length - EXACT_UNITS;
    }
    PAIRS.lastIndex = 0;
    for (let found = RegExpPrototypeExec(PAIRS, text); found !== null;
      found = RegExpPrototypeExec(PAIRS, text)) {
      pairs += found[0].length / 2;
    }
    return length - pairs;
  }

  // The units that the first `maxChars` code points take; never splits a pair.
  function prefixUnits(text, maxChars) {
    const length = text.length;
    if (length <= maxChars) return length;
    let at = 0;
    for (let chars = 0; chars < maxChars && at < length; chars++) {
      const isPair = isLead(StringPrototypeCharCodeAt(text, at)) && at + 1 < length
        && isTrail(StringPrototypeCharCodeAt(text, at + 1));
      at += isPair ? 2 : 1;
    }
    return at;
  }

  // At most `maxChars` code points of the text, then a marker that counts the rest.
  function cutText(text, maxChars, moreChars) {
    const units = prefixUnits(text, maxChars);
    const rest = units < text.length ? codePointLength(StringPrototypeSlice(text, units)) : 0;
    const lost = rest + moreChars;
    if (lost === 0) return text;
    return `${StringPrototypeSlice(text, 0, units)}… [truncated ${lost} chars]`;
  }

  return { __proto__: null, codePointLength, cutText, flat, prefixUnits, quote, wellFormed };
})();
