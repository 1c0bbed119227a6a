// URL records: what a URL consists of, and its text form. Parsing is in 66-url-parser.js.
//
// A record's `path` is a list of segments, or a string where the path is opaque (mailto:, data:).
const urlRecord = (() => {
  const { StringPrototypeCharCodeAt } = primordials;

  const DEFAULT_PORTS = {
    __proto__: null, "http": 80, "https": 443, "ws": 80, "wss": 443, "ftp": 21, "file": null,
  };
  const isSpecial = (url) => DEFAULT_PORTS[url.scheme] !== undefined;
  const hasCredentials = (url) => url.username !== "" || url.password !== "";
  const hasOpaquePath = (url) => typeof url.path === "string";
  const isAlpha = (c) => (c | 0x20) >= 0x61 && (c | 0x20) <= 0x7a;

  function blank() {
    return {
      __proto__: null, scheme: "", username: "", password: "", host: null, port: null,
      path: web.list(), query: null, fragment: null,
    };
  }

  function copyPath(path) {
    if (typeof path === "string") return path;
    const copy = web.list();
    for (let i = 0; i < path.length; i++) copy[i] = path[i];
    return copy;
  }

  function isDriveLetter(text) {
    return text.length === 2 && isAlpha(StringPrototypeCharCodeAt(text, 0))
      && (text[1] === ":" || text[1] === "|");
  }

  function startsWithDriveLetter(points, at) {
    if (at + 2 > points.length || !isAlpha(points[at])) return false;
    if (points[at + 1] !== 0x3a && points[at + 1] !== 0x7c) return false;
    const after = at + 2 < points.length ? points[at + 2] : 0x2f;
    return after === 0x2f || after === 0x5c || after === 0x3f || after === 0x23;
  }

  function shortenPath(url) {
    const { path } = url;
    const isDrive = path.length === 1 && isDriveLetter(path[0]) && path[0][1] === ":";
    if (url.scheme === "file" && isDrive) return;
    if (path.length !== 0) path.length -= 1;
  }

  function pathOf(url) {
    if (hasOpaquePath(url)) return url.path;
    let out = "";
    for (let i = 0; i < url.path.length; i++) out += "/" + url.path[i];
    return out;
  }

  const hostOf = (url) => (url.host === null ? "" : url.host)
    + (url.port === null ? "" : `:${url.port}`);

  function serialize(url) {
    let out = url.scheme + ":";
    if (url.host !== null) {
      out += "//";
      if (hasCredentials(url)) {
        out += url.username + (url.password === "" ? "" : ":" + url.password) + "@";
      }
      out += hostOf(url);
    } else if (!hasOpaquePath(url) && url.path.length > 1 && url.path[0] === "") {
      out += "/."; // else the path would read as a host
    }
    out += pathOf(url);
    if (url.query !== null) out += "?" + url.query;
    if (url.fragment !== null) out += "#" + url.fragment;
    return out;
  }

  const cannotHaveCredentials = (url) =>
    url.host === null || url.host === "" || url.scheme === "file";

  return {
    __proto__: null, DEFAULT_PORTS, blank, cannotHaveCredentials, copyPath, hasCredentials,
    hasOpaquePath, hostOf, isAlpha, isDriveLetter, isSpecial, pathOf, serialize, shortenPath,
    startsWithDriveLetter,
  };
})();
