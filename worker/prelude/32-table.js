// console.table: rows and columns in a frame, from own data properties (no getter runs).
const { tableText } = (() => {
  const {
    ArrayIsArray, Map, MapPrototypeGetSize, MapPrototypeHas, MapPrototypeSet, ObjectKeys,
    ObjectPrototypeHasOwnProperty, ReflectGetOwnPropertyDescriptor, StringPrototypeRepeat,
  } = primordials;

  const MAX_ROWS = 100;
  const MAX_COLUMNS = 20;
  const CELL_CHARS = 60;

  function slot(object, key) {
    const descriptor = ReflectGetOwnPropertyDescriptor(object, key);
    if (descriptor === undefined) return undefined;
    if (!ObjectPrototypeHasOwnProperty(descriptor, "value")) return "[Getter]";
    return cell(descriptor.value);
  }

  function cell(value) {
    return typeof value === "string" ? quoteShort(value) : formatText(value, CELL_CHARS);
  }

  function quoteShort(text) {
    return cutText(quote(text), CELL_CHARS, 0);
  }

  function isObject(value) {
    return typeof value === "object" && value !== null;
  }

  // The table as text; undefined for what has no rows.
  function tableText(given, wanted) {
    const data = unwrapProxy(given);
    if (!isObject(data)) return undefined;
    const kind = kindOf(data);
    if (kind !== "Array" && kind !== "Object") return undefined;
    const rowKeys = ObjectKeys(data);
    const rowCount = rowKeys.length < MAX_ROWS ? rowKeys.length : MAX_ROWS;
    const columns = newList();
    const known = new Map();
    let hasValues = false;
    const rows = newList();
    for (let i = 0; i < rowCount; i++) {
      const descriptor = ReflectGetOwnPropertyDescriptor(data, rowKeys[i]);
      const value = descriptor !== undefined && ObjectPrototypeHasOwnProperty(descriptor, "value")
        ? unwrapProxy(descriptor.value) : undefined;
      const isRow = isObject(value) && (kindOf(value) === "Array" || kindOf(value) === "Object");
      if (!isRow) hasValues = true;
      rows[i] = { __proto__: null, value, isRow };
      if (!isRow) continue;
      const keys = ObjectKeys(value);
      for (let k = 0; k < keys.length && columns.length < MAX_COLUMNS; k++) {
        if (MapPrototypeHas(known, keys[k])) continue;
        MapPrototypeSet(known, keys[k], MapPrototypeGetSize(known));
        columns[columns.length] = keys[k];
      }
    }
    const shown = ArrayIsArray(wanted) ? chosen(wanted) : columns;
    const grid = newList();
    grid[0] = headRow(shown, hasValues);
    for (let i = 0; i < rowCount; i++) grid[i + 1] = bodyRow(rowKeys[i], rows[i], shown, hasValues);
    const frame = draw(grid);
    const more = rowKeys.length - rowCount;
    return more > 0 ? `${frame}\n... ${more} more item${more === 1 ? "" : "s"}` : frame;
  }

  function chosen(wanted) {
    const columns = newList();
    for (let i = 0; i < wanted.length && i < MAX_COLUMNS; i++) {
      const descriptor = ReflectGetOwnPropertyDescriptor(unwrapProxy(wanted), `${i}`);
      if (descriptor !== undefined && typeof descriptor.value === "string") {
        columns[columns.length] = descriptor.value;
      }
    }
    return columns;
  }

  function headRow(columns, hasValues) {
    const row = newList();
    row[0] = "(index)";
    for (let i = 0; i < columns.length; i++) row[i + 1] = cutText(columns[i], CELL_CHARS, 0);
    if (hasValues) row[row.length] = "Values";
    return row;
  }

  function bodyRow(key, item, columns, hasValues) {
    const row = newList();
    row[0] = cutText(key, CELL_CHARS, 0);
    for (let i = 0; i < columns.length; i++) {
      const text = item.isRow ? slot(item.value, columns[i]) : undefined;
      row[i + 1] = text === undefined ? "" : text;
    }
    if (hasValues) row[row.length] = item.isRow ? "" : cell(item.value);
    return row;
  }

  function draw(grid) {
    const widths = newList();
    for (let r = 0; r < grid.length; r++) {
      for (let c = 0; c < grid[r].length; c++) {
        const width = codePointLength(grid[r][c]);
        if (widths[c] === undefined || width > widths[c]) widths[c] = width;
      }
    }
    let text = rule(widths, "┌", "┬", "┐");
    for (let r = 0; r < grid.length; r++) {
      text += "\n";
      for (let c = 0; c < widths.length; c++) {
        const content = grid[r][c];
        text += `│ ${content}${StringPrototypeRepeat(" ", widths[c] - codePointLength(content))} `;
      }
      text += "│";
      if (r === 0) text += `\n${rule(widths, "├", "┼", "┤")}`;
    }
    return `${text}\n${rule(widths, "└", "┴", "┘")}`;
  }

  function rule(widths, left, middle, right) {
    let text = left;
    for (let c = 0; c < widths.length; c++) {
      text += (c === 0 ? "" : middle) + StringPrototypeRepeat("─", widths[c] + 2);
    }
    return text + right;
  }

  return { __proto__: null, tableText };
})();
