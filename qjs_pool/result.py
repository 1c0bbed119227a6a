"""What an eval gives back."""

from __future__ import annotations

import dataclasses
from typing import Any, Final, Literal

from .errors import EvalError, GuestError, ValueConversionError, ValueTooLarge
from .limits import Limits
from .wire import ProtocolError
from .wire import messages as wire
from .wire.values import decode_value

_UNDECODED: Final = object()

SessionState = Literal["kept", "rolled_back", "reset"]


@dataclasses.dataclass(frozen=True, slots=True)
class Usage:
    """What an eval used. `peak_rss` is in bytes, as the worker reports it."""

    cpu_s: float
    wall_s: float
    peak_rss: int
    host_calls: int


@dataclasses.dataclass(frozen=True, slots=True)
class Call:
    """One tool call of an eval: sizes in bytes as JSON, outcome as it stood when the eval ended."""

    name: str
    ms: float
    bytes_in: int
    bytes_out: int
    outcome: Literal["ok", "error", "cancelled", "unknown"]


# Beyond its cap a cut text says how much is missing; and errors are cut by the worker's own rules.
_CUT_NOTE_CHARS: Final = 64
_ERROR_CHARS: Final = 64 << 10


def check_caps(done: wire.EvalDone, limits: Limits) -> None:
    """Check again, in the host, what the worker has to keep within the session's limits.

    Raises:
        ProtocolError: it did not; it is none of ours any more.
    """
    error, problem = done.error, done.value_error
    _check("text", len(done.text), limits.result_chars + _CUT_NOTE_CHARS)
    _check("stdout", len(done.stdout), limits.console_chars + _CUT_NOTE_CHARS)
    if done.value is not None:
        _check("value", len(done.value), limits.value_bytes)
    if error is not None:
        size = len(error.name) + len(error.message) + len(error.stack)
        _check("error", size, _ERROR_CHARS)
    if problem is not None:
        _check("value error", sum(map(len, problem)), _ERROR_CHARS)
    if done.notes:
        _check("notes", sum(map(len, done.notes)), _ERROR_CHARS)
    if done.state == "lost" and error is None:
        raise ProtocolError("a state was lost without an error")


def _check(what: str, size: int, cap: int) -> None:
    if size > cap:
        raise ProtocolError(f"the {what} of {size} is over its cap of {cap}")


class EvalResult:
    """The outcome of one eval. Never an exception: `error` says what went wrong in the guest.

    Attributes:
        text: the result as a console would show it, at most `result_chars`.
        stdout: what the program printed, at most `console_chars`.
        error: None, or the `GuestError`.
        state: "kept"; "rolled_back": the session is as before this eval; "reset": it is empty.
        kind: "handle" when the result is a function or symbol, else "value".
        usage, notes, calls: figures, one-line remarks, and the trace of tool calls.
    """

    __slots__ = ("_problem", "_value", "_wire", "calls", "error", "kind", "notes", "state",
                 "stdout", "text", "usage")  # fmt: skip

    def __init__(
        self,
        *,
        text: str,
        stdout: str,
        error: GuestError | None,
        state: SessionState,
        usage: Usage,
        kind: Literal["value", "handle"] = "value",
        notes: tuple[str, ...] = (),
        calls: tuple[Call, ...] = (),
        encoded: bytes | None = None,
        problem: tuple[str, str] | None = None,
        max_nodes: int = 0,
    ) -> None:
        self.text = text
        self.stdout = stdout
        self.error = error
        self.state = state
        self.usage = usage
        self.kind = kind
        self.notes = notes
        self.calls = calls
        self._wire = (encoded, max_nodes)
        self._problem = problem
        self._value: Any = _UNDECODED

    @property
    def ok(self) -> bool:
        """Whether the program ran to its end."""
        return self.error is None

    @property
    def value(self) -> Any:
        """The result as a Python value, decoded at the first access; None after an error.

        Raises:
            ValueConversionError: the value has a cycle or is nested too deep.
            ValueTooLarge: the value is over `Limits.value_bytes`.
        """
        if self._value is _UNDECODED:
            if self._problem is not None:
                kind, message = self._problem
                raise (ValueTooLarge if kind == "ValueTooLarge" else ValueConversionError)(message)
            encoded, max_nodes = self._wire
            self._value = None if encoded is None else decode_value(encoded, max_nodes)
            self._wire = (None, 0)
        return self._value

    def unwrap(self) -> Any:
        """The value; its text where it cannot cross (a cycle, too large), as of a function.

        So a program that is run for its effects needs no harmless last line: where the
        difference matters, `value` raises.

        Raises:
            EvalError: the eval failed.
        """
        if self.error is not None:
            raise EvalError(self.error)
        try:
            return self.value
        except (ValueConversionError, ValueTooLarge):
            return self.text

    def __repr__(self) -> str:
        outcome = f"error={str(self.error)!r}" if self.error else f"text={self.text[:60]!r}"
        return f"EvalResult({outcome}, state={self.state!r})"
