"""What the command line accepts as sizes and seconds, and how it becomes `Limits`."""

from __future__ import annotations

import re
from typing import Final

import typer

from ..errors import UsageError
from ..limits import Limits, seconds_or_error

_SIZE: Final = re.compile(r"(\d+(?:\.\d+)?)\s*([A-Za-z]*)")
_UNITS: Final = {
    "": 1,
    "b": 1,
    "kb": 10**3,
    "mb": 10**6,
    "gb": 10**9,
    "kib": 1 << 10,
    "mib": 1 << 20,
    "gib": 1 << 30,
}
# The defaults of `Limits` suit a model's context; somebody at a terminal wants the whole output.
_OUTPUT_CHARS: Final = 1_000_000


def parse_size(text: str) -> int:
    """`64MiB`, `1.5GB` or plain bytes, as bytes."""
    match = _SIZE.fullmatch(text.strip())
    unit = _UNITS.get(match[2].lower()) if match else None
    if match is None or unit is None:
        raise typer.BadParameter(
            f"{text!r} is no size: use bytes, or a number with KB, MB, GB, KiB, MiB or GiB"
        )
    return int(float(match[1]) * unit) if "." in match[1] else int(match[1]) * unit


def parse_seconds(text: str) -> float:
    """A number of seconds over 0; `none` is infinity, which `Limits` takes for no limit."""
    if text.strip().lower() == "none":
        return float("inf")
    try:
        return seconds_or_error("value", float(text))
    except ValueError:  # a UsageError is one as well
        raise typer.BadParameter(f"{text!r} is no number of seconds over 0, nor 'none'") from None


def limits_for(memory_bytes: int, cpu_s: float, wall_s: float) -> Limits:
    """The limits of a command's session."""
    try:
        return Limits(
            memory=memory_bytes,
            cpu=cpu_s,
            wall=wall_s,
            result_chars=_OUTPUT_CHARS,
            console_chars=_OUTPUT_CHARS,
        )
    except UsageError as error:
        raise typer.BadParameter(str(error)) from None
