// URL and URLSearchParams, the classes guests see. All parsing is in 66-url-parser.js.
{
  const {
    ArrayIsArray, ArrayPrototypeSort, ObjectKeys, ReflectApply, StringPrototypeSlice,
    SymbolIterator, TypeError, WeakMap, WeakMapPrototypeGet, WeakMapPrototypeSet,
  } = primordials;
  const { FORM, USERINFO, decodeText, encodeText, split } = urlHost;
  const { cannotHaveCredentials, hasOpaquePath, hostOf, pathOf, serialize } = urlRecord;
  const { S, originOf, parse } = urlParser;

  // Entries are null-prototype records {name, value} in a list without prototype.
  const entry = (name, value) => ({ __proto__: null, name, value });

  const withoutLead = (text, lead) =>
    (text !== "" && text[0] === lead ? StringPrototypeSlice(text, 1) : text);

  function parseForm(text) {
    const entries = web.list();
    const parts = split(text, "&");
    for (let i = 0; i < parts.length; i++) {
      const part = parts[i];
      if (part === "") continue;
      let at = 0;
      while (at < part.length && part[at] !== "=") at++;
      entries[entries.length] = entry(decodeText(StringPrototypeSlice(part, 0, at), true),
        decodeText(StringPrototypeSlice(part, at + 1), true));
    }
    return entries;
  }

  // A form's own encoding: a space becomes "+", and more is escaped than in a URL.
  function encodeForm(text) {
    const parts = split(text, " ");
    let out = "";
    for (let i = 0; i < parts.length; i++) out += (i === 0 ? "" : "+") + encodeText(parts[i], FORM);
    return out;
  }

  function serializeForm(entries) {
    let out = "";
    for (let i = 0; i < entries.length; i++) {
      const { name, value } = entries[i];
      out += (i === 0 ? "" : "&") + encodeForm(name) + "=" + encodeForm(value);
    }
    return out;
  }

  // Lists of the guest: arrays by index, so that they work under a broken Symbol.iterator too.
  function itemsOf(source) {
    const items = web.list();
    if (ArrayIsArray(source)) {
      for (let i = 0; i < source.length; i++) items[i] = source[i];
    } else {
      for (const item of source) items[items.length] = item;
    }
    return items;
  }

  function entriesFrom(init) {
    if (typeof init !== "object" || init === null) {
      const text = `${init}`;
      return parseForm(withoutLead(text, "?"));
    }
    const entries = web.list();
    if (ArrayIsArray(init) || init[SymbolIterator] != null) {
      const pairs = itemsOf(init);
      for (let i = 0; i < pairs.length; i++) {
        const isPair = typeof pairs[i] === "object" && pairs[i] !== null;
        const pair = isPair ? itemsOf(pairs[i]) : web.list();
        if (pair.length !== 2) {
          throw new TypeError("URLSearchParams: each entry must be a [name, value] pair");
        }
        entries[i] = entry(`${pair[0]}`, `${pair[1]}`);
      }
      return entries;
    }
    const keys = ObjectKeys(init);
    for (let i = 0; i < keys.length; i++) entries[i] = entry(keys[i], `${init[keys[i]]}`);
    return entries;
  }

  // By index on the live list, as the standard has it: entries added meanwhile are visited.
  function* iterate(state, pick) {
    for (let i = 0; i < state.entries.length; i++) yield pick(state.entries[i]);
  }

  // The internals of our instances, out of sight: an illegal receiver has none.
  const paramsStates = new WeakMap(); // -> {entries, url}: the URL's state, null for one alone
  const urlStates = new WeakMap(); // -> {record, params}

  function stateOf(states, object, name) {
    const state = WeakMapPrototypeGet(states, object);
    if (state === undefined) throw new TypeError(`Illegal invocation: this is not a ${name}`);
    return state;
  }
  const paramsOf = (object) => stateOf(paramsStates, object, "URLSearchParams");
  const urlOf = (object) => stateOf(urlStates, object, "URL");

  function changed({ entries, url }) {
    if (url === null) return;
    const text = serializeForm(entries);
    url.record.query = text === "" ? null : text;
  }

  function keep(state, wanted) {
    const kept = web.list();
    for (let i = 0; i < state.entries.length; i++) {
      if (wanted(state.entries[i])) kept[kept.length] = state.entries[i];
    }
    state.entries = kept;
  }

  class URLSearchParams {
    constructor(init = "") {
      const other = WeakMapPrototypeGet(paramsStates, init);
      const state = { __proto__: null, entries: null, url: null };
      if (other === undefined) {
        state.entries = entriesFrom(init);
      } else {
        state.entries = other.entries;
        keep(state, () => true);
      }
      WeakMapPrototypeSet(paramsStates, this, state);
    }

    get size() { return paramsOf(this).entries.length; }

    append(name, value) {
      const state = paramsOf(this);
      web.requireArguments(arguments.length, 2, "URLSearchParams.append");
      state.entries[state.entries.length] = entry(`${name}`, `${value}`);
      changed(state);
    }

    delete(name, value = undefined) {
      const state = paramsOf(this);
      web.requireArguments(arguments.length, 1, "URLSearchParams.delete");
      const gone = matcher(name, value);
      keep(state, (each) => !gone(each));
      changed(state);
    }

    get(name) {
      const { entries } = paramsOf(this);
      const key = `${name}`;
      for (let i = 0; i < entries.length; i++) if (entries[i].name === key) return entries[i].value;
      return null;
    }

    getAll(name) {
      const { entries } = paramsOf(this);
      const key = `${name}`;
      const values = [];
      for (let i = 0; i < entries.length; i++) {
        if (entries[i].name === key) web.append(values, entries[i].value);
      }
      return values;
    }

    has(name, value = undefined) {
      const { entries } = paramsOf(this);
      const fits = matcher(name, value);
      for (let i = 0; i < entries.length; i++) if (fits(entries[i])) return true;
      return false;
    }

    set(name, value) {
      const state = paramsOf(this);
      web.requireArguments(arguments.length, 2, "URLSearchParams.set");
      const key = `${name}`;
      const text = `${value}`;
      let found = false;
      keep(state, (each) => {
        if (each.name !== key) return true;
        if (found) return false;
        found = true;
        each.value = text;
        return true;
      });
      if (!found) state.entries[state.entries.length] = entry(key, text);
      changed(state);
    }

    sort() {
      const state = paramsOf(this);
      ArrayPrototypeSort(state.entries, (a, b) => (a.name < b.name ? -1 : a.name > b.name ? 1 : 0));
      changed(state);
    }

    forEach(callback, thisArg = undefined) {
      const state = paramsOf(this);
      if (typeof callback !== "function") {
        throw new TypeError("URLSearchParams.forEach: the callback must be a function");
      }
      for (let i = 0; i < state.entries.length; i++) {
        const { name, value } = state.entries[i];
        ReflectApply(callback, thisArg, [value, name, this]);
      }
    }

    entries() { return iterate(paramsOf(this), ({ name, value }) => [name, value]); }

    keys() { return iterate(paramsOf(this), ({ name }) => name); }

    values() { return iterate(paramsOf(this), ({ value }) => value); }

    toString() { return serializeForm(paramsOf(this).entries); }
  }

  function matcher(name, value) {
    const key = `${name}`;
    if (value === undefined) return (each) => each.name === key;
    const text = `${value}`;
    return (each) => each.name === key && each.value === text;
  }

  function parsed(url, base) {
    const text = `${url}`;
    let baseRecord = null;
    if (base !== undefined) {
      baseRecord = parse(`${base}`, null);
      if (baseRecord === null) return null;
    }
    return parse(text, baseRecord);
  }

  function refill(state) {
    const params = WeakMapPrototypeGet(paramsStates, state.params);
    params.entries = parseForm(state.record.query === null ? "" : state.record.query);
  }

  // Setters that replace a part: what the parser refuses changes nothing.
  function setPart(object, value, state) {
    parse(`${value}`, null, urlOf(object).record, state);
  }

  function attach(object, record) {
    const state = { __proto__: null, record, params: new URLSearchParams() };
    WeakMapPrototypeGet(paramsStates, state.params).url = state;
    refill(state);
    WeakMapPrototypeSet(urlStates, object, state);
  }

  class URL {
    constructor(url, base = undefined) {
      web.requireArguments(arguments.length, 1, "URL");
      const record = parsed(url, base);
      if (record === null) {
        const against = base === undefined ? "" : ` (base '${base}')`;
        throw new TypeError(`Invalid URL: '${url}'${against}`);
      }
      attach(this, record);
    }

    static canParse(url, base = undefined) { return parsed(url, base) !== null; }

    static parse(url, base = undefined) {
      const record = parsed(url, base);
      if (record === null) return null;
      return new URL(serialize(record));
    }

    get href() { return serialize(urlOf(this).record); }

    set href(value) {
      const state = urlOf(this);
      const record = parse(`${value}`, null);
      if (record === null) throw new TypeError(`Invalid URL: '${value}'`);
      state.record = record;
      refill(state);
    }

    get origin() { return originOf(urlOf(this).record); }

    get protocol() { return urlOf(this).record.scheme + ":"; }

    set protocol(value) { setPart(this, `${value}:`, S.SCHEME_START); }

    get username() { return urlOf(this).record.username; }

    set username(value) {
      const { record } = urlOf(this);
      const text = encodeText(`${value}`, USERINFO);
      if (!cannotHaveCredentials(record)) record.username = text;
    }

    get password() { return urlOf(this).record.password; }

    set password(value) {
      const { record } = urlOf(this);
      const text = encodeText(`${value}`, USERINFO);
      if (!cannotHaveCredentials(record)) record.password = text;
    }

    get host() { return hostOf(urlOf(this).record); }

    set host(value) { if (!hasOpaquePath(urlOf(this).record)) setPart(this, value, S.HOST); }

    get hostname() {
      const { host } = urlOf(this).record;
      return host === null ? "" : host;
    }

    set hostname(value) {
      if (!hasOpaquePath(urlOf(this).record)) setPart(this, value, S.HOSTNAME);
    }

    get port() {
      const { port } = urlOf(this).record;
      return port === null ? "" : `${port}`;
    }

    set port(value) {
      const { record } = urlOf(this);
      const text = `${value}`;
      if (cannotHaveCredentials(record)) return;
      if (text === "") record.port = null;
      else setPart(this, text, S.PORT);
    }

    get pathname() { return pathOf(urlOf(this).record); }

    set pathname(value) {
      const { record } = urlOf(this);
      const text = `${value}`;
      if (hasOpaquePath(record)) return;
      record.path = web.list();
      setPart(this, text, S.PATH_START);
    }

    get search() {
      const { query } = urlOf(this).record;
      return query === null || query === "" ? "" : `?${query}`;
    }

    set search(value) {
      const state = urlOf(this);
      const text = `${value}`;
      state.record.query = text === "" ? null : "";
      if (text !== "") setPart(this, withoutLead(text, "?"), S.QUERY);
      refill(state);
    }

    get searchParams() { return urlOf(this).params; }

    get hash() {
      const { fragment } = urlOf(this).record;
      return fragment === null || fragment === "" ? "" : `#${fragment}`;
    }

    set hash(value) {
      const { record } = urlOf(this);
      const text = `${value}`;
      record.fragment = text === "" ? null : "";
      if (text !== "") setPart(this, withoutLead(text, "#"), S.FRAGMENT);
    }

    toString() { return serialize(urlOf(this).record); }

    toJSON() { return serialize(urlOf(this).record); }
  }

  web.tag(URL, "URL");
  web.tag(URLSearchParams, "URLSearchParams");
  web.hide(URLSearchParams.prototype, SymbolIterator, URLSearchParams.prototype.entries);
  web.platform(URL, (object) => `URL(${serialize(urlOf(object).record)})`);
  web.platform(URLSearchParams, (object) =>
    `URLSearchParams(${serializeForm(paramsOf(object).entries)})`);
  defineGlobal("URL", URL);
  defineGlobal("URLSearchParams", URLSearchParams);
}
