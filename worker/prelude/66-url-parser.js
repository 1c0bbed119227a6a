// The URL parser: text to record, after the WHATWG URL standard.
//
// The states and their names are the standard's, so that the two can be read side by side.
// What does not belong here: the classes guests see (67-url.js), host names (65-url-host.js).
const urlParser = (() => {
  const { StringFromCodePoint, StringPrototypeToLowerCase } = primordials;
  const { C0, FRAGMENT, PATH, QUERY, SPECIAL_QUERY, USERINFO, encodePoint, parseHost } = urlHost;
  const {
    DEFAULT_PORTS, blank, copyPath, hasCredentials, hasOpaquePath, hostOf, isAlpha, isDriveLetter,
    isSpecial, pathOf, shortenPath, startsWithDriveLetter,
  } = urlRecord;

  const EOF = -1;
  // Numbers, not the standard's words: a switch over strings costs as much as all the rest.
  const S = {
    __proto__: null, SCHEME_START: 0, SCHEME: 1, NO_SCHEME: 2, SPECIAL_RELATIVE_OR_AUTHORITY: 3,
    PATH_OR_AUTHORITY: 4, RELATIVE: 5, RELATIVE_SLASH: 6, SPECIAL_AUTHORITY_SLASHES: 7,
    SPECIAL_AUTHORITY_IGNORE_SLASHES: 8, AUTHORITY: 9, HOST: 10, HOSTNAME: 11, PORT: 12, FILE: 13,
    FILE_SLASH: 14, FILE_HOST: 15, PATH_START: 16, PATH: 17, OPAQUE_PATH: 18, QUERY: 19,
    FRAGMENT: 20,
  };
  const isDigit = (c) => c >= 0x30 && c <= 0x39;

  function dots(segment) {
    if (segment.length > 6) return 0;
    const text = StringPrototypeToLowerCase(segment);
    if (text === "." || text === "%2e") return 1;
    return text === ".." || text === ".%2e" || text === "%2e." || text === "%2e%2e" ? 2 : 0;
  }

  // The code points of the input without tabs and newlines; when parsing afresh, without the
  // blanks and control characters around it as well.
  function clean(input, trim) {
    const all = web.codePoints(input);
    let start = 0;
    let end = all.length;
    if (trim) {
      while (start < end && all[start] <= 0x20) start++;
      while (end > start && all[end - 1] <= 0x20) end--;
    }
    const points = web.list();
    for (let i = start; i < end; i++) {
      const c = all[i];
      if (c !== 0x9 && c !== 0xa && c !== 0xd) points[points.length] = c;
    }
    return points;
  }

  // Returns the record, or null for an invalid URL. With `override` (a state) it changes the given
  // `url` in place, as a setter does, and null means that the change was refused.
  function parse(input, base, url = blank(), override = null) {
    const points = clean(input, override === null);
    const end = points.length;
    let state = override === null ? S.SCHEME_START : override;
    let buffer = "";
    let buffered = 0; // code points in the buffer
    let atSignSeen = false;
    let passwordSeen = false;
    let inBrackets = false;

    const isSlash = (c) => c === 0x2f || (c === 0x5c && isSpecial(url));
    const endsAuthority = (c) => c === EOF || c === 0x3f || c === 0x23 || isSlash(c);
    const endHere = (c) => {
      if (c === 0x3f) {
        url.query = "";
        state = S.QUERY;
      } else if (c === 0x23) {
        url.fragment = "";
        state = S.FRAGMENT;
      }
    };
    const takeAuthority = (from) => {
      url.username = from.username;
      url.password = from.password;
      url.host = from.host;
      url.port = from.port;
    };

    for (let p = 0; ; p++) {
      const c = p < end ? points[p] : EOF;
      switch (state) {
        case S.SCHEME_START:
          if (isAlpha(c)) {
            buffer += StringFromCodePoint(c | 0x20);
            state = S.SCHEME;
          } else if (override === null) {
            state = S.NO_SCHEME;
            p--;
          } else return null;
          break;

        case S.SCHEME:
          if (isAlpha(c)) buffer += StringFromCodePoint(c | 0x20);
          else if (isDigit(c) || c === 0x2b || c === 0x2d || c === 0x2e) {
            buffer += StringFromCodePoint(c);
          } else if (c === 0x3a) {
            if (override !== null) {
              if (isSpecial(url) !== (DEFAULT_PORTS[buffer] !== undefined)) return null;
              if (buffer === "file" && (hasCredentials(url) || url.port !== null)) return null;
              if (url.scheme === "file" && url.host === "") return null;
              url.scheme = buffer;
              if (url.port === DEFAULT_PORTS[buffer]) url.port = null;
              return url;
            }
            url.scheme = buffer;
            buffer = "";
            if (url.scheme === "file") state = S.FILE;
            else if (isSpecial(url)) {
              state = base !== null && base.scheme === url.scheme
                ? S.SPECIAL_RELATIVE_OR_AUTHORITY : S.SPECIAL_AUTHORITY_SLASHES;
            } else if (points[p + 1] === 0x2f) {
              state = S.PATH_OR_AUTHORITY;
              p++;
            } else {
              url.path = "";
              state = S.OPAQUE_PATH;
            }
          } else if (override === null) {
            buffer = "";
            state = S.NO_SCHEME;
            p = -1;
          } else return null;
          break;

        case S.NO_SCHEME:
          if (base === null || (hasOpaquePath(base) && c !== 0x23)) return null;
          if (hasOpaquePath(base)) {
            url.scheme = base.scheme;
            url.path = base.path;
            url.query = base.query;
            endHere(c);
          } else {
            state = base.scheme === "file" ? S.FILE : S.RELATIVE;
            p--;
          }
          break;

        case S.SPECIAL_RELATIVE_OR_AUTHORITY:
          if (c === 0x2f && points[p + 1] === 0x2f) {
            state = S.SPECIAL_AUTHORITY_IGNORE_SLASHES;
            p++;
          } else {
            state = S.RELATIVE;
            p--;
          }
          break;

        case S.PATH_OR_AUTHORITY:
          if (c === 0x2f) state = S.AUTHORITY;
          else {
            state = S.PATH;
            p--;
          }
          break;

        case S.RELATIVE:
          url.scheme = base.scheme;
          if (isSlash(c)) {
            state = S.RELATIVE_SLASH;
            break;
          }
          takeAuthority(base);
          url.path = copyPath(base.path);
          url.query = base.query;
          if (c === 0x3f || c === 0x23) endHere(c);
          else if (c !== EOF) {
            url.query = null;
            shortenPath(url);
            state = S.PATH;
            p--;
          }
          break;

        case S.RELATIVE_SLASH:
          if (isSpecial(url) && isSlash(c)) state = S.SPECIAL_AUTHORITY_IGNORE_SLASHES;
          else if (c === 0x2f) state = S.AUTHORITY;
          else {
            takeAuthority(base);
            state = S.PATH;
            p--;
          }
          break;

        case S.SPECIAL_AUTHORITY_SLASHES:
          state = S.SPECIAL_AUTHORITY_IGNORE_SLASHES;
          if (c === 0x2f && points[p + 1] === 0x2f) p++;
          else p--;
          break;

        case S.SPECIAL_AUTHORITY_IGNORE_SLASHES:
          if (c !== 0x2f && c !== 0x5c) {
            state = S.AUTHORITY;
            p--;
          }
          break;

        case S.AUTHORITY:
          if (c === 0x40) {
            if (atSignSeen) buffer = "%40" + buffer;
            atSignSeen = true;
            const credentials = web.codePoints(buffer);
            for (let i = 0; i < credentials.length; i++) {
              if (credentials[i] === 0x3a && !passwordSeen) passwordSeen = true;
              else if (passwordSeen) url.password += encodePoint(credentials[i], USERINFO);
              else url.username += encodePoint(credentials[i], USERINFO);
            }
            buffer = "";
            buffered = 0;
          } else if (endsAuthority(c)) {
            if (atSignSeen && buffer === "") return null;
            p -= buffered + 1;
            buffer = "";
            state = S.HOST;
          } else {
            buffer += StringFromCodePoint(c);
            buffered++;
          }
          break;

        case S.HOST:
        case S.HOSTNAME:
          if (override !== null && url.scheme === "file") {
            state = S.FILE_HOST;
            p--;
          } else if ((c === 0x3a && !inBrackets) || endsAuthority(c)) {
            const toPort = c === 0x3a;
            if (buffer === "" && (toPort || isSpecial(url))) return null;
            if (toPort && override === S.HOSTNAME) return null;
            if (override !== null && buffer === "" && (hasCredentials(url) || url.port !== null)) {
              return null;
            }
            const host = parseHost(buffer, !isSpecial(url));
            if (host === null) return null;
            url.host = host;
            buffer = "";
            if (toPort) state = S.PORT;
            else if (override !== null) return url;
            else {
              state = S.PATH_START;
              p--;
            }
          } else {
            if (c === 0x5b) inBrackets = true;
            if (c === 0x5d) inBrackets = false;
            buffer += StringFromCodePoint(c);
          }
          break;

        case S.PORT:
          if (isDigit(c)) buffer += StringFromCodePoint(c);
          else if (endsAuthority(c) || override !== null) {
            if (buffer !== "") {
              const port = +buffer;
              if (port > 65535) return null;
              url.port = port === DEFAULT_PORTS[url.scheme] ? null : port;
              buffer = "";
              if (override !== null) return url;
            }
            if (override !== null) return null;
            state = S.PATH_START;
            p--;
          } else return null;
          break;

        case S.FILE:
          url.scheme = "file";
          url.host = "";
          if (c === 0x2f || c === 0x5c) state = S.FILE_SLASH;
          else if (base !== null && base.scheme === "file") {
            url.host = base.host;
            url.path = copyPath(base.path);
            url.query = base.query;
            if (c === 0x3f || c === 0x23) endHere(c);
            else if (c !== EOF) {
              url.query = null;
              if (startsWithDriveLetter(points, p)) url.path = web.list();
              else shortenPath(url);
              state = S.PATH;
              p--;
            }
          } else {
            state = S.PATH;
            p--;
          }
          break;

        case S.FILE_SLASH:
          if (c === 0x2f || c === 0x5c) state = S.FILE_HOST;
          else {
            if (base !== null && base.scheme === "file") {
              url.host = base.host;
              const first = base.path.length === 0 ? "" : base.path[0];
              if (!startsWithDriveLetter(points, p) && isDriveLetter(first)) url.path[0] = first;
            }
            state = S.PATH;
            p--;
          }
          break;

        case S.FILE_HOST:
          if (c === EOF || c === 0x2f || c === 0x5c || c === 0x3f || c === 0x23) {
            p--;
            if (override === null && isDriveLetter(buffer)) {
              state = S.PATH; // the buffer goes on as the first segment
              break;
            }
            let host = "";
            if (buffer !== "") host = parseHost(buffer, false);
            if (host === null) return null;
            url.host = host === "localhost" ? "" : host;
            if (override !== null) return url;
            buffer = "";
            state = S.PATH_START;
          } else buffer += StringFromCodePoint(c);
          break;

        case S.PATH_START:
          if (isSpecial(url)) {
            state = S.PATH;
            if (!isSlash(c)) p--;
          } else if (override === null && (c === 0x3f || c === 0x23)) endHere(c);
          else if (c !== EOF) {
            state = S.PATH;
            if (c !== 0x2f) p--;
          } else if (override !== null && url.host === null) url.path[url.path.length] = "";
          break;

        case S.PATH: {
          const endsPath = c === EOF || (override === null && (c === 0x3f || c === 0x23));
          if (!endsPath && !isSlash(c)) {
            buffer += encodePoint(c, PATH);
            break;
          }
          const kind = dots(buffer);
          if (kind === 2) shortenPath(url);
          if (kind !== 0) {
            if (!isSlash(c)) url.path[url.path.length] = "";
          } else {
            if (url.scheme === "file" && url.path.length === 0 && isDriveLetter(buffer)) {
              buffer = buffer[0] + ":";
            }
            url.path[url.path.length] = buffer;
          }
          buffer = "";
          if (override === null) endHere(c);
          break;
        }

        case S.OPAQUE_PATH:
          if (c === 0x3f || c === 0x23) endHere(c);
          else if (c === 0x20) {
            // A blank just before the query or fragment would be lost when the URL is parsed again.
            const next = points[p + 1];
            url.path += next === 0x3f || next === 0x23 ? "%20" : " ";
          } else if (c !== EOF) url.path += encodePoint(c, C0);
          break;

        case S.QUERY:
          if (c === EOF) break;
          if (override === null && c === 0x23) endHere(c);
          else url.query += encodePoint(c, isSpecial(url) ? SPECIAL_QUERY : QUERY);
          break;

        default: // FRAGMENT
          if (c !== EOF) url.fragment += encodePoint(c, FRAGMENT);
      }
      if (p >= end) return url;
    }
  }

  function originOf(url) {
    if (url.scheme === "blob") {
      const inner = parse(pathOf(url), null);
      return inner !== null && (inner.scheme === "http" || inner.scheme === "https")
        ? originOf(inner) : "null";
    }
    return isSpecial(url) && url.scheme !== "file" ? `${url.scheme}://${hostOf(url)}` : "null";
  }

  return { __proto__: null, S, originOf, parse };
})();
