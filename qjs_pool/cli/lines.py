"""Whether what was typed at the REPL is a whole program, or goes on in the next line.

Only a convenience for the person typing: a scan of brackets, strings and comments here, then the
position of the engine's own SyntaxError. What a program means is for the worker to say.
"""

from __future__ import annotations

import re
from typing import Final

from ..errors import GuestError

_TOKEN: Final = re.compile(
    r"""
    (?P<space>\s+)
  | (?P<comment>//[^\n]*|/\*.*?\*/)
  | (?P<open_comment>/\*.*\Z)
  | (?P<string>"(?:\\.|[^"\\\n])*"|'(?:\\.|[^'\\\n])*')
  | (?P<word>[\w$]+)
  | (?P<other>.)
    """,
    re.VERBOSE | re.DOTALL,
)
_REGEX: Final = re.compile(r"/(?:\\.|\[(?:\\.|[^\]\\\n])*\]|[^/\\\[\n])+/[a-z]*")
_PAIRS: Final = {")": "(", "]": "[", "}": "{"}
# A slash after one of these starts a regular expression, else it divides.
_BEFORE_REGEX: Final = re.compile(r"(?:[(,=:\[!&|?{};+\-*%~^<>]|\b(?:return|typeof|case|in|of))\Z")
_END: Final = re.compile(r"^\s*at eval:(\d+):(\d+)$")


def is_open(code: str) -> bool:
    """Whether a bracket, template or comment of `code` is still open at its end."""
    stack: list[str] = []
    at, before = 0, "("
    while at < len(code):
        if stack and stack[-1] == "`":
            at = _template(code, at, stack)
            before = "x" if not stack or stack[-1] == "`" else "{"
            continue
        if code[at] == "/" and _BEFORE_REGEX.search(before) and (found := _REGEX.match(code, at)):
            at, before = found.end(), "x"
            continue
        token = _TOKEN.match(code, at)
        assert token is not None  # the last alternative takes any character
        at = token.end()
        kind, text = token.lastgroup, token[0]
        if kind == "open_comment":
            return True
        if kind in ("space", "comment"):
            continue
        before = text
        if text in ("(", "[", "{", "`"):
            stack.append(text)
        elif text in _PAIRS and (not stack or stack.pop() not in (_PAIRS[text], "${")):
            return False  # one too many is an error that the engine should report now
    return bool(stack)


def _template(code: str, at: int, stack: list[str]) -> int:
    """Past the next piece of the template that is on top of the stack."""
    while at < len(code):
        char = code[at]
        if char == "\\":
            at += 2
        elif char == "`":
            stack.pop()
            return at + 1
        elif char == "$" and code.startswith("${", at):
            stack.append("${")
            return at + 2
        else:
            at += 1
    return at


def ends_too_early(error: GuestError | None, code: str) -> bool:
    """Whether it is the parse error of a program that is right up to its end."""
    if error is None or error.name != "SyntaxError":
        return False
    match = _END.match(error.stack.rstrip("\n"))
    if match is None:
        return False
    source = code.rstrip()
    line = source.count("\n") + 1
    column = len(source) - (source.rfind("\n") + 1)
    return (int(match[1]), int(match[2])) > (line, column)
