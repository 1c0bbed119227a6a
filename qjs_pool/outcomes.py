"""Results out of what became of an eval: it finished, or its worker died in it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from .endings import Death, death_error
from .errors import GuestError
from .limits import Limits
from .relay import Relay
from .result import EvalResult, SessionState, Usage
from .wire import messages as wire

ROLLED_BACK: Final = "the session is as it was before this eval"
FROM_SNAPSHOT: Final = "the session goes on as its last snapshot has it"
RESET: Final = "the session's state is lost, it starts empty"


def finished(
    done: wire.EvalDone,
    state: SessionState,
    wall_s: float,
    notes: Sequence[str],
    relay: Relay,
    limits: Limits,
) -> EvalResult:
    """The result of an eval that ended by itself; its calls end with it, or go on."""
    error = None
    if done.error is not None:
        error = GuestError(done.error.name, done.error.message, done.error.stack)
    if state != "kept":
        assert error is not None
        error = GuestError(error.name, f"{error.message}; {_remark(state)}", error.stack)
    # First settled wins: a value leaves calls running. Without one they have no purpose left.
    stopped = error is not None and error.name in ("Timeout", "Deadlock")
    calls, remarks = relay.end(cancel=state != "kept" or stopped, undone=state == "rolled_back")
    return EvalResult(
        text=done.text,
        stdout=done.stdout,
        error=error,
        state=state,
        usage=Usage(done.cpu_s, wall_s, done.peak_rss_bytes, relay.made),
        kind=done.kind,
        notes=(*notes, *done.notes, *remarks),
        calls=calls,
        encoded=done.value,
        problem=done.value_error,
        max_nodes=limits.value_nodes,
    )


def crashed(
    death: Death,
    state: SessionState,
    cpu_s: float | None,
    wall_s: float,
    notes: Sequence[str],
    relay: Relay,
    limits: Limits,
) -> EvalResult:
    """The result of an eval whose worker died."""
    name, message = death_error(death, cpu_s, wall_s, limits)
    calls, remarks = relay.end(cancel=True, undone=state == "rolled_back")
    return EvalResult(
        text="",
        stdout="",
        error=GuestError(name, f"{message}; {_remark(state)}"),
        state=state,
        usage=Usage(min(death.cpu_s, wall_s), wall_s, death.peak_rss_bytes, relay.made),
        notes=(*notes, *remarks),
        calls=calls,
    )


def to_be_restored(result: EvalResult) -> EvalResult:
    """The result of an eval that took the state along, where there is a snapshot to go back to."""
    error = result.error
    if error is not None:
        message = error.message.removesuffix(RESET) + FROM_SNAPSHOT
        error = GuestError(error.name, message, error.stack)
    return EvalResult(
        text=result.text,
        stdout=result.stdout,
        error=error,
        state="rolled_back",
        usage=result.usage,
        notes=result.notes,
        calls=result.calls,
    )


def _remark(state: SessionState) -> str:
    return ROLLED_BACK if state == "rolled_back" else RESET
