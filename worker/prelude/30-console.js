// console: what is printed, held to a cap while it is printed. A call never throws.
//
// A loop that logs a gigabyte must not hold it: past the cap, characters are counted and dropped.
const { clearConsole, consoleText, logUncaught, setConsoleChars } = (() => {
  const {
    Map, MapPrototypeClear, MapPrototypeDelete, MapPrototypeGet, MapPrototypeSet, ObjectDefineProperty,
    ReflectDefineProperty, ReflectOwnKeys, StringPrototypeIndexOf, StringPrototypeSlice,
    SymbolToStringTag,
  } = primordials;

  let maxChars = 4000;
  let text = "";
  let chars = 0; // code points in `text`
  let lost = 0; // code points dropped since the cap was reached
  let indent = "";
  let isEmpty = true;
  let isUntouched = true; // nothing at all to clear
  const counts = new Map();

  // Dropped text is counted exactly up to here; past it, units stand for code points: counting
  // them would cost the guest more time than printing.
  const EXACT_LOST = 1000000;

  function write(line, more) {
    let piece = isEmpty ? line : `\n${line}`;
    isEmpty = false;
    if (chars >= maxChars) {
      lost += (lost < EXACT_LOST ? codePointLength(piece) : piece.length) + more;
      return;
    }
    const room = maxChars - chars;
    if (piece.length > room) {
      const units = prefixUnits(piece, room);
      if (units < piece.length) lost += codePointLength(StringPrototypeSlice(piece, units));
      piece = StringPrototypeSlice(piece, 0, units);
    }
    text += piece;
    chars += codePointLength(piece);
    if (more > 0) {
      chars = maxChars; // nothing may follow a piece that was itself cut
      lost += more;
    }
  }

  // One call, one line (more if its strings have line breaks); groups indent every line of it.
  function writeIndented(line, more) {
    if (indent === "") {
      write(line, more);
      return;
    }
    let out = indent;
    let from = 0;
    for (;;) {
      const at = StringPrototypeIndexOf(line, "\n", from);
      if (at === -1) break;
      out += StringPrototypeSlice(line, from, at + 1) + indent;
      from = at + 1;
      if (out.length > 2 * maxChars) break;
    }
    write(out + StringPrototypeSlice(line, from), more);
  }

  // Strings stand for themselves, everything else is formatted.
  function emitArgument(sheet, value) {
    if (typeof value !== "string") {
      emitValue(sheet, value);
    } else if (sheet.left < 0) {
      sheet.more += codePointLength(value);
    } else if (value.length > sheet.left + 1) {
      const shown = StringPrototypeSlice(value, 0, sheet.left + 1);
      sheet.more += codePointLength(value) - codePointLength(shown);
      emit(sheet, shown);
    } else {
      emit(sheet, value);
    }
  }

  function numberText(value, convert) {
    if (typeof value === "bigint") return `${value}n`;
    if (typeof value === "symbol" || typeof value === "object" || typeof value === "function") return "NaN";
    return primitiveText(convert(value));
  }

  // %j: JSON of plain data; what isn't plain reads as it does elsewhere.
  function emitJson(sheet, value) {
    try {
      emit(sheet, encodeValue(value, 2 * maxChars + 16, 10000));
    } catch {
      emitValue(sheet, value);
    }
  }

  // Writes the format string; returns the index of the first value it did not use.
  function emitFormat(sheet, values) {
    const format = values[0];
    let used = 1;
    let from = 0;
    for (let at = StringPrototypeIndexOf(format, "%", 0); at !== -1 && at + 1 < format.length;
      at = StringPrototypeIndexOf(format, "%", at)) {
      const letter = format[at + 1];
      if (letter === "%") {
        emitArgument(sheet, StringPrototypeSlice(format, from, at + 1));
        at += 2;
        from = at;
        continue;
      }
      if (used >= values.length || StringPrototypeIndexOf("sdifjoOc", letter) === -1) {
        at += 1;
        continue;
      }
      emitArgument(sheet, StringPrototypeSlice(format, from, at));
      const value = values[used++];
      at += 2;
      from = at;
      if (letter === "s") emitArgument(sheet, value);
      else if (letter === "d") emit(sheet, numberText(value, primordials.Number));
      else if (letter === "i") emit(sheet, numberText(value, primordials.parseInt));
      else if (letter === "f") emit(sheet, numberText(value, primordials.parseFloat));
      else if (letter === "j") emitJson(sheet, value);
      else if (letter !== "c") emitValue(sheet, value); // %c: a style, nothing to show
    }
    emitArgument(sheet, StringPrototypeSlice(format, from));
    return used;
  }

  // The line of one call. `values` is a rest array: own elements only.
  function lineOf(values, prefix) {
    const count = values.length;
    if (count === 1 && typeof values[0] === "string" && prefix === "") {
      return { __proto__: null, line: values[0], more: 0 };
    }
    const sheet = newSheet(maxChars);
    let next = 0;
    emit(sheet, prefix);
    if (count > 1 && typeof values[0] === "string") next = emitFormat(sheet, values);
    for (; next < count; next++) {
      if (next > 0) emit(sheet, " ");
      emitArgument(sheet, values[next]);
    }
    return { __proto__: null, line: sheet.text, more: sheet.more };
  }

  function print(values, prefix) {
    isUntouched = false;
    try {
      const { line, more } = lineOf(values, prefix);
      writeIndented(line, more);
    } catch {
      // Only the engine's limits end up here (a full stack or heap): the program meets them itself.
    }
  }

  function label(value) {
    if (value === undefined) return "default";
    return typeof value === "string" ? value : formatText(value, 100);
  }

  function openGroup() {
    isUntouched = false;
    if (indent.length < 64) indent += "  ";
  }

  const methods = {
    log(...values) { print(values, ""); },
    info(...values) { print(values, ""); },
    debug(...values) { print(values, ""); },
    warn(...values) { print(values, ""); },
    error(...values) { print(values, ""); },
    dirxml(...values) { print(values, ""); },
    dir(value) { print([typeof value === "string" ? quote(value) : value], ""); },
    trace(...values) { print(values, values.length === 0 ? "Trace" : "Trace: "); },
    assert(condition, ...values) {
      if (condition) return;
      print(values, values.length === 0 ? "Assertion failed" : "Assertion failed: ");
    },
    count(name) {
      const key = label(name);
      const known = MapPrototypeGet(counts, key);
      const count = (known === undefined ? 0 : known) + 1;
      MapPrototypeSet(counts, key, count);
      print([`${key}: ${count}`], "");
    },
    countReset(name) { MapPrototypeDelete(counts, label(name)); },
    group(...values) {
      if (values.length > 0) print(values, "");
      openGroup();
    },
    groupCollapsed(...values) {
      if (values.length > 0) print(values, "");
      openGroup();
    },
    groupEnd() { indent = StringPrototypeSlice(indent, 2); },
    table(data, columns) {
      let lines;
      try {
        lines = tableText(data, columns, maxChars);
      } catch {
        lines = undefined;
      }
      print([lines === undefined ? data : lines], "");
    },
    // There is no clock to time anything with; a program that tries goes on.
    time() {},
    timeEnd() {},
    timeLog() {},
    clear() {},
  };
  const names = ReflectOwnKeys(methods);

  // Methods can be replaced (until the next eval) but not deleted or turned into accessors, so that
  // reading them here runs no guest code.
  function build() {
    const console = {};
    for (let i = 0; i < names.length; i++) {
      ObjectDefineProperty(console, names[i], {
        __proto__: null, value: methods[names[i]], writable: true, enumerable: true, configurable: false,
      });
    }
    ObjectDefineProperty(console, SymbolToStringTag, {
      __proto__: null, value: "console", writable: false, enumerable: false, configurable: true,
    });
    return console;
  }

  let console = build();
  defineReserved("console", console, () => {
    for (let i = 0; i < names.length; i++) {
      const name = names[i];
      if (console[name] === methods[name]) continue;
      const isBack = ReflectDefineProperty(console, name, { __proto__: null, value: methods[name] });
      if (!isBack) return (console = build()); // it was frozen with another method in it
    }
    return console;
  });

  return {
    __proto__: null,
    clearConsole() {
      if (isUntouched) return;
      isUntouched = true;
      text = "";
      chars = 0;
      lost = 0;
      indent = "";
      isEmpty = true;
      MapPrototypeClear(counts);
    },
    consoleText() {
      if (isEmpty) return "";
      return wellFormed(lost > 0 ? `${text}… [truncated ${lost} chars]` : text);
    },
    // For errors that no program can catch any more: of timers, microtasks, finalizers.
    logUncaught(error) {
      const { name, message } = describeThrown(error);
      let line = message;
      if (isErrorObject(unwrapProxy(error))) line = message === "" ? name : `${name}: ${message}`;
      print([`Uncaught ${line}`], "");
    },
    setConsoleChars(limit) { maxChars = limit; },
  };
})();
