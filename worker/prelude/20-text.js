// Strings for output: well-formed, quoted, cut. Primitives only, so nothing here runs guest code.
const { codePointLength, cutText, prefixUnits, quote, wellFormed } = (() => {
  const {
    JSONStringify, RegExpPrototypeExec, StringPrototypeCharCodeAt, StringPrototypeIncludes,
    StringPrototypeSlice, StringPrototypeToWellFormed,
  } = primordials;

  const REPLACEMENT = "\ufffd";
  // Counting code points exactly takes a look at every unit; past this many, units are counted.
  const EXACT_UNITS = 1048576;
  const PAIR = /[\ud800-\udbff][\udc00-\udfff]/g;

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
    let out = "";
    let kept = 0; // everything before this index is in `out`
    for (let i = 0; i < length; i++) {
      const unit = StringPrototypeCharCodeAt(text, i);
      if (unit < 0xd800 || unit > 0xdfff) continue;
      if (isLead(unit) && i + 1 < length && isTrail(StringPrototypeCharCodeAt(text, i + 1))) {
        i++;
        continue;
      }
      out += StringPrototypeSlice(text, kept, i) + REPLACEMENT;
      kept = i + 1;
    }
    return kept === 0 ? text : out + StringPrototypeSlice(text, kept);
  }

  // A JSON string literal, well-formed and without NUL. JSON.stringify of a primitive string looks
  // up nothing; it writes a lone surrogate as an escape that some decoders refuse.
  function quote(text) {
    const quoted = JSONStringify(text);
    return StringPrototypeIncludes(quoted, "\\ud") ? JSONStringify(wellFormed(text)) : quoted;
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
    PAIR.lastIndex = 0;
    while (RegExpPrototypeExec(PAIR, text) !== null) pairs++;
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

  return { __proto__: null, codePointLength, cutText, prefixUnits, quote, wellFormed };
})();
