// How each kind of built-in object reads: names in front, contents of collections and buffers, errors.
const { arrayPrefix, emitKind, errorHeadline, functionText, objectPrefix } = (() => {
  const P = primordials;
  const {
    DatePrototypeGetTime, DatePrototypeToISOString, FunctionPrototypeToString,
    MapIteratorPrototypeNext, MapPrototypeEntries, MapPrototypeGetSize,
    NumberPrototypeToString, ObjectPrototypeHasOwnProperty, ReflectGetOwnPropertyDescriptor,
    ReflectGetPrototypeOf, SetIteratorPrototypeNext, SetPrototypeGetSize, SetPrototypeValues,
    StringPrototypeSlice, StringPrototypeStartsWith, TypedArrayPrototypeGetLength,
    TypedArrayPrototypeGetSymbolToStringTag, Uint8Array,
  } = P;

  function tagPart(about) {
    return about.tag === "" ? "" : `[${about.tag}] `;
  }

  function objectPrefix(about) {
    if (about.name === null) return `[Object: null prototype] ${tagPart(about)}`;
    if (about.name === "Object" && about.tag === "") return "";
    return `${about.name} ${tagPart(about)}`;
  }

  function arrayPrefix(about, length) {
    if (about.name === "Array" && about.tag === "") return "";
    if (about.name === null) return `[Array(${length}): null prototype] `;
    return `${about.name}(${length}) ${tagPart(about)}`;
  }

  function named(about, kind) {
    return about.name === null ? `[${kind}: null prototype]` : about.name;
  }

  // --- functions ----------------------------------------------------------------------------------
  function functionText(fn) {
    const own = ReflectGetOwnPropertyDescriptor(fn, "name");
    const name = own !== undefined && ObjectPrototypeHasOwnProperty(own, "value")
      && typeof own.value === "string" ? own.value : "";
    const shown = wellFormed(name.length > 200 ? `${StringPrototypeSlice(name, 0, 200)}…` : name);
    if (StringPrototypeStartsWith(FunctionPrototypeToString(fn), "class")) {
      const parent = ReflectGetPrototypeOf(fn);
      let base = "";
      if (parent !== null && typeof parent === "function" && !isProxy(parent)
        && parent !== P.FunctionPrototype) {
        const parentName = dataProperty(parent, "name");
        if (typeof parentName === "string" && parentName !== "") base = ` extends ${wellFormed(parentName)}`;
      }
      return `[class ${shown === "" ? "(anonymous)" : shown}${base}]`;
    }
    const prototype = ReflectGetPrototypeOf(fn);
    let kind = "Function";
    if (prototype === P.AsyncFunctionPrototype) kind = "AsyncFunction";
    else if (prototype === P.GeneratorFunctionPrototype) kind = "GeneratorFunction";
    else if (prototype === P.AsyncGeneratorFunctionPrototype) kind = "AsyncGeneratorFunction";
    return shown === "" ? `[${kind} (anonymous)]` : `[${kind}: ${shown}]`;
  }

  // --- errors -------------------------------------------------------------------------------------
  // `Name: message`, from data properties only: no guest getter runs.
  function errorHeadline(error) {
    const name = dataProperty(error, "name");
    const message = dataProperty(error, "message");
    const head = typeof name === "string" && name !== "" ? name : "Error";
    return typeof message === "string" && message !== "" ? `${head}: ${message}` : head;
  }

  function isErrorDetail(key) {
    return key === "name" || key === "message" || key === "stack" || key === "cause"
      || key === "errors" || key === "fileName" || key === "lineNumber" || key === "columnNumber";
  }

  function emitError(sheet, error) {
    emit(sheet, wellFormed(errorHeadline(error)));
    let isOpen = false;
    function part() {
      emit(sheet, isOpen ? ", " : " {");
      isOpen = true;
    }
    const keys = ownKeys(error, false, 0);
    for (let i = 0; i < keys.length && i < 100 && sheet.left >= 0; i++) {
      if (isErrorDetail(keys[i])) continue;
      part();
      emitProperties({ __proto__: null, sheet, count: 0 }, error, singleton(keys[i]));
    }
    if (ReflectGetOwnPropertyDescriptor(error, "cause") !== undefined) {
      part();
      emit(sheet, "[cause]: ");
      emitSlot(sheet, error, "cause");
    }
    if (ReflectGetOwnPropertyDescriptor(error, "errors") !== undefined) {
      part();
      emit(sheet, "[errors]: ");
      emitSlot(sheet, error, "errors");
    }
    if (isOpen) emit(sheet, "}");
  }

  function singleton(item) {
    const list = newList();
    list[0] = item;
    return list;
  }

  // --- collections and buffers ---------------------------------------------------------------------
  function emitMap(sheet, map, about, parts) {
    const size = MapPrototypeGetSize(map);
    const iterator = MapPrototypeEntries(map);
    emit(sheet, `${named(about, "Map")}(${size}) ${mapTag(about, "Map")}{`);
    renderEntries(parts, size, () => {
      const pair = MapIteratorPrototypeNext(iterator).value;
      emitValue(sheet, pair[0]);
      emit(sheet, " => ");
      emitValue(sheet, pair[1]);
    });
    if (sheet.left >= 0) emitProperties(parts, map, ownKeys(map, false, 0));
    emit(sheet, "}");
  }

  function emitSet(sheet, set, about, parts) {
    const size = SetPrototypeGetSize(set);
    const iterator = SetPrototypeValues(set);
    emit(sheet, `${named(about, "Set")}(${size}) ${mapTag(about, "Set")}{`);
    renderEntries(parts, size, () => emitValue(sheet, SetIteratorPrototypeNext(iterator).value));
    if (sheet.left >= 0) emitProperties(parts, set, ownKeys(set, false, 0));
    emit(sheet, "}");
  }

  // A subclass shows its own name; that it also is tagged "Map" needs no telling.
  function mapTag(about, own) {
    return about.tag === "" || about.tag === own ? "" : `[${about.tag}] `;
  }

  function emitTypedArray(sheet, array, about, parts) {
    const length = TypedArrayPrototypeGetLength(array);
    const type = TypedArrayPrototypeGetSymbolToStringTag(array);
    emit(sheet, `${about.name === null ? type : about.name}(${length}) [`);
    // An element inside the bounds is read from the buffer: no look-up on any prototype.
    renderEntries(parts, length, (index) => emitValue(sheet, array[index]));
    if (length <= 1000 && sheet.left >= 0) {
      emitProperties(parts, array, ownKeys(array, true, length));
    }
    emit(sheet, "]");
  }

  const SHOWN_BYTES = 50;
  function emitArrayBuffer(sheet, buffer) {
    const byteLength = P.ArrayBufferPrototypeGetByteLength(buffer);
    emit(sheet, "ArrayBuffer {");
    let bytes = null;
    try {
      bytes = new Uint8Array(buffer);
    } catch {
      emit(sheet, "(detached), "); // nothing to look into
    }
    if (bytes !== null) {
      let hex = "";
      const shown = byteLength < SHOWN_BYTES ? byteLength : SHOWN_BYTES;
      for (let i = 0; i < shown; i++) {
        hex += (i === 0 ? "" : " ") + (bytes[i] < 16 ? "0" : "") + NumberPrototypeToString(bytes[i], 16);
      }
      if (byteLength > shown) hex += ` ... ${byteLength - shown} more bytes`;
      emit(sheet, `[Uint8Contents]: <${hex}>, `);
    }
    emit(sheet, `byteLength: ${byteLength}}`);
  }

  function emitDataView(sheet, view) {
    let length = 0;
    let offset = 0;
    try {
      length = P.DataViewPrototypeGetByteLength(view);
      offset = P.DataViewPrototypeGetByteOffset(view);
    } catch {
      // Out of the bounds of a buffer that was shrunk: nothing to see.
    }
    emit(sheet, `DataView {byteLength: ${length}, byteOffset: ${offset}, buffer: `);
    emitValue(sheet, P.DataViewPrototypeGetBuffer(view));
    emit(sheet, "}");
  }

  function dateText(date) {
    const ms = DatePrototypeGetTime(date);
    return ms !== ms ? "Invalid Date" : DatePrototypeToISOString(date);
  }

  function flag(getter, regexp, letter) {
    return getter !== undefined && getter(regexp) ? letter : "";
  }

  // The `flags` getter would look up guest-visible properties; these read the object itself.
  function regExpText(regexp) {
    return `/${wellFormed(P.RegExpPrototypeGetSource(regexp))}/`
      + flag(P.RegExpPrototypeGetHasIndices, regexp, "d")
      + flag(P.RegExpPrototypeGetGlobal, regexp, "g")
      + flag(P.RegExpPrototypeGetIgnoreCase, regexp, "i")
      + flag(P.RegExpPrototypeGetMultiline, regexp, "m")
      + flag(P.RegExpPrototypeGetDotAll, regexp, "s")
      + flag(P.RegExpPrototypeGetUnicode, regexp, "u")
      + flag(P.RegExpPrototypeGetUnicodeSets, regexp, "v")
      + flag(P.RegExpPrototypeGetSticky, regexp, "y");
  }

  function emitBoxed(sheet, object, kind, value) {
    emit(sheet, `[${kind}: `);
    emitValue(sheet, value);
    emit(sheet, "]");
    emitTail(sheet, object, undefined, kind === "String" ? value.length : 0);
  }

  function emitOpaque(sheet, object, about, inside, parts) {
    emit(sheet, `${named(about, about.kind)} {${inside}`);
    parts.count = 1;
    emitProperties(parts, object, ownKeys(object, false, 0));
    emit(sheet, "}");
  }

  function emitKind(sheet, object, about, parts) {
    switch (about.kind) {
      case "Map": emitMap(sheet, object, about, parts); break;
      case "Set": emitSet(sheet, object, about, parts); break;
      case "TypedArray": emitTypedArray(sheet, object, about, parts); break;
      case "ArrayBuffer": emitArrayBuffer(sheet, object); break;
      case "DataView": emitDataView(sheet, object); break;
      case "Error": emitError(sheet, object); break;
      case "Date": emit(sheet, dateText(object)); emitTail(sheet, object); break;
      case "RegExp": emit(sheet, regExpText(object)); emitTail(sheet, object); break;
      case "Number": emitBoxed(sheet, object, "Number", P.NumberPrototypeValueOf(object)); break;
      case "String": emitBoxed(sheet, object, "String", P.StringPrototypeValueOf(object)); break;
      case "Boolean": emitBoxed(sheet, object, "Boolean", P.BooleanPrototypeValueOf(object)); break;
      case "Symbol": emitBoxed(sheet, object, "Symbol", P.SymbolPrototypeValueOf(object)); break;
      case "BigInt": emitBoxed(sheet, object, "BigInt", P.BigIntPrototypeValueOf(object)); break;
      // Whether it has settled can't be known without waiting; a model that reads this forgot to.
      case "Promise": emitOpaque(sheet, object, about, "<pending>", parts); break;
      case "WeakRef": emitOpaque(sheet, object, about, "<target unknown>", parts); break;
      default: emitOpaque(sheet, object, about, "<items unknown>", parts);
    }
  }

  return { __proto__: null, arrayPrefix, emitKind, errorHeadline, functionText, objectPrefix };
})();
