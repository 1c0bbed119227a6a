"""From the text a model sent to the text that is parsed: same byte length, same lines.

What belongs here: the Markdown fence, line breaks that the grammars do not know, bytes they
stumble over. What does not: anything that needs a syntax tree of its own.
"""

from __future__ import annotations

import re

_FENCE = re.compile(r"[ \t]*(`{3,}|~{3,})[ \t]*([\w+#.-]*)[ \t]*")
_FENCED = re.compile(r"\s*(?:```|~~~)")
_LANGUAGES = frozenset(
    (
        *("", "js", "jsx", "mjs", "cjs", "javascript", "ecmascript", "node", "es6", "quickjs"),
        *("ts", "tsx", "mts", "cts", "typescript"),
    )
)
_SURROGATE = re.compile("[\ud800-\udfff]")
_HASHBANG = re.compile(rb"#![^\r\n]*")
_LONE_CR = re.compile(rb"\r(?!\n)")
_BOM = b"\xef\xbb\xbf"
SEPARATORS = re.compile(b"\xe2\x80[\xa8\xa9]")  # U+2028 and U+2029


def without_fence(source: str) -> str:
    """Blank the lines of one Markdown fence if it surrounds the whole text, else change nothing."""
    if _FENCED.match(source) is None:
        return source
    head = len(source) - len(source.lstrip())
    body = source.find("\n", head)
    opening = _FENCE.fullmatch(source[head:body].rstrip())
    tail = len(source.rstrip())
    last = source.rfind("\n", 0, tail) + 1
    if body < 0 or last <= body or opening is None or opening[2].lower() not in _LANGUAGES:
        return source
    closing = _FENCE.fullmatch(source[last:tail])
    if closing is None or closing[2] or not closing[1].startswith(opening[1]):
        return source
    # Two blocks with prose between them also begin and end with a fence.
    if any(line.lstrip().startswith(opening[1]) for line in source[body:last].splitlines()):
        return source
    return f"{' ' * body}{source[body:last]}{' ' * (tail - last)}{source[tail:]}"


def to_bytes(source: str) -> bytes:
    """UTF-8 with nothing in it that only means "here a text begins"; lone CRs become LFs.

    A lone CR is a line break to the language and to the engine, but not to the grammars; an LF in
    its place means the same everywhere, in templates and continued strings too.
    """
    try:
        text = source.encode()
    except UnicodeEncodeError:
        text = _SURROGATE.sub("\ufffd", source).encode()
    if text[:3] == _BOM:
        text = b"   " + text[3:]
    if text[:2] == b"#!":
        text = _HASHBANG.sub(lambda m: b" " * len(m[0]), text, count=1)
    if b"\r" in text:
        text = _LONE_CR.sub(b"\n", text)
    return text


def masked(text: bytes) -> bytes:
    """A stand-in for the parser only, which takes a NUL inside a string for an error."""
    return text.replace(b"\0", b" ") if b"\0" in text else text


def unescaped(text: bytes) -> bytes:
    r"""A second stand-in: in a tagged template, `\u` and `\x` need not be escapes (as in paths)."""
    return text.replace(b"\\u", b"\\n").replace(b"\\x", b"\\n")
