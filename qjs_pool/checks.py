"""Checks of what callers pass, shared by the sync and the asyncio interface."""

from __future__ import annotations

from typing import Any, Final

from .errors import UsageError
from .limits import Limits, seconds_or_error
from .wire.frames import MAX_CODE_BYTES
from .wire.values import encode_value, well_formed

_RESERVED: Final = frozenset(
    """await break case catch class const continue debugger default delete do else enum export
    extends false finally for function if implements import in instanceof interface let new null
    package private protected public return static super switch this throw true try typeof var
    void while with yield""".split()  # noqa: SIM905  as a list it is a page
)


def checked_code(code: object) -> str:
    """`code` as well-formed text within the cap."""
    if not isinstance(code, str):
        raise UsageError(f"code must be a str of JavaScript or TypeScript, not {_kind(code)}")
    size = len(code) if code.isascii() else len(code.encode("utf-8", "surrogatepass"))
    if size > MAX_CODE_BYTES:
        raise UsageError(
            f"code of {size} bytes is over the cap of {MAX_CODE_BYTES}; "
            f"pass data with session.set(name, value) instead"
        )
    return well_formed(code)


def checked_timeout(timeout: object, limits: Limits) -> float | None:
    """The CPU seconds of an eval."""
    if timeout is None:
        return limits.cpu
    seconds = seconds_or_error("timeout", timeout)
    if limits.cpu is not None and seconds > limits.cpu:
        raise UsageError(
            f"timeout={timeout!r} is over the session's limit cpu={limits.cpu}; "
            f"raise it in Limits(cpu=...)"
        )
    return None if seconds == float("inf") else seconds


def checked_global(name: object, value: Any, limits: Limits) -> tuple[str, str]:
    """A global's name and its encoded value."""
    if not isinstance(name, str) or not name.replace("$", "_").isidentifier():
        raise UsageError(f"name={name!r} is not a JavaScript identifier")
    if name in _RESERVED:
        raise UsageError(f"name={name!r} is a reserved word of JavaScript: no program can read it")
    if name == "__proto__":
        raise UsageError(f"name={name!r} is no global: it would be the prototype of all of them")
    return str(name), encode_value(
        value, max_bytes=limits.value_bytes, max_nodes=limits.value_nodes
    )


def _kind(value: object) -> str:
    return type(value).__name__
