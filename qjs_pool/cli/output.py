"""How results reach the terminal: guest text is made harmless, errors point at their line.

Guest text is untrusted: written to a terminal as it is, it could move the cursor, rewrite what
stands there or set the window's title. Into a file or a pipe it goes unchanged.
"""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Iterable
from typing import IO, Any, Final

from rich.console import Console
from rich.text import Text

from ..errors import GuestError, ValueConversionError, ValueTooLarge
from ..result import EvalResult

# C0 and C1 controls but tab and newline, DEL, and the marks that turn the direction of text.
_UNSAFE: Final = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069]")
_FRAME: Final = re.compile(r"^\s*at (?:.* \()?eval:(\d+):(\d+)\)?$")
_BARE_FRAME: Final = re.compile(r"^\s*at eval:\d+:\d+$")
_MAX_SOURCE_LINE: Final = 160


def console(*, stderr: bool = False) -> Console:
    """A console that takes every text literally."""
    stream = sys.stderr if stderr else sys.stdout
    reconfigure = getattr(stream, "reconfigure", None)
    if reconfigure is not None:
        reconfigure(errors="backslashreplace")  # a terminal in ASCII must not stop the output
    return Console(stderr=stderr, markup=False, highlight=False, emoji=False, soft_wrap=True)


def safe(text: str) -> str:
    """Guest text with control characters spelled out."""
    return _UNSAFE.sub(lambda match: f"\\u{ord(match[0]):04x}", text)


def write_guest_text(stream: IO[str], text: str) -> None:
    """One piece of guest output, with a newline at its end."""
    if text:
        shown = safe(text) if stream.isatty() else text
        stream.write(shown if shown.endswith("\n") else shown + "\n")
        stream.flush()


def describe_error(error: GuestError, code: str) -> str:
    """The error, the line of the program it points at, and the stack."""
    lines = [f"{error.name}: {error.message}" if error.message else error.name]
    if "\n" not in error.message:
        lines += _pointer(error.stack, code)
    if error.stack:
        lines.append(error.stack.rstrip("\n"))
    return safe("\n".join(lines))


def _pointer(stack: str, code: str) -> Iterable[str]:
    frames = stack.splitlines()
    # A bare frame is a position in parsed text: the program's own if nothing called the parser.
    if len(frames) > 1:
        frames = [frame for frame in frames if not _BARE_FRAME.match(frame)]
    match = next(filter(None, map(_FRAME.match, frames)), None)
    if match is None:
        return
    number, column = int(match[1]), int(match[2])
    source = code.rstrip().split("\n")
    if number > len(source):  # the end of input, some empty lines later
        number, column = len(source), len(source[-1]) + 1
    if not 1 <= number <= len(source) or len(source[number - 1]) > _MAX_SOURCE_LINE:
        return
    line = source[number - 1].rstrip("\r").replace("\t", " ")
    prefix = f"  {number} | "
    yield prefix + line
    yield " " * (len(prefix) - 2) + "| " + " " * (min(column, len(line) + 1) - 1) + "^"


def print_failure(out: Console, result: EvalResult, code: str) -> None:
    """The error of a result, if it has one, and its remarks."""
    if result.error is not None:
        out.print(Text(describe_error(result.error, code), style="red"))
    for note in result.notes:
        out.print(Text(f"note: {safe(note)}", style="dim"))


def as_json(result: EvalResult) -> str:
    """The result as one JSON object; `value` is left out where JSON has no word for it."""
    error, usage = result.error, result.usage
    fields: dict[str, Any] = {
        "ok": result.ok,
        "text": result.text,
        "stdout": result.stdout,
        "error": error and {"name": error.name, "message": error.message, "stack": error.stack},
        "usage": {
            "cpu_s": usage.cpu_s,
            "wall_s": usage.wall_s,
            "peak_rss": usage.peak_rss,
            "host_calls": usage.host_calls,
        },
        "notes": list(result.notes),
        "state": result.state,
    }
    encoded = json.dumps(fields, ensure_ascii=False)
    if not result.ok:
        return encoded
    try:
        value = json.dumps(result.value, ensure_ascii=False, allow_nan=False)
    except (ValueConversionError, ValueTooLarge, TypeError, ValueError):
        return encoded
    return f'{encoded[:-1]}, "value": {value}}}'
