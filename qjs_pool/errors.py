"""What this library raises. Guest faults are data (`EvalResult.error`); these are the host's and
the machine's, sorted by fault and by what is left standing.

QjsPoolError
├── UsageError              the caller's fault           nothing changed
│   ├── SessionClosed       session or pool is closed
│   ├── ValueConversionError, ValueTooLarge              the eval itself stands
│   └── QueueFull           too many evals wait on one session
├── EvalError               `unwrap()` of a failed eval; carries the GuestError
├── SnapshotRejected        the blob was refused         nothing changed
├── SpawnError              no worker could be started   no session was started
├── PoolExhausted           `max_sessions` stayed in use for `checkout_timeout`
└── IsolationUnavailable    a required layer is missing on this machine
"""

from __future__ import annotations

import dataclasses


@dataclasses.dataclass(frozen=True, slots=True)
class GuestError:
    """An error of the guest's program, as data.

    `name` is the JavaScript error name, or one of `Timeout`, `OutOfMemory`, `Deadlock`,
    `PTCCallBudgetExceeded`, `WorkerCrashed`, `Interrupted`. `stack` has one frame a line, with
    lines and columns of the program as it was sent; it may be empty.
    """

    name: str
    message: str
    stack: str = ""

    def __str__(self) -> str:
        return f"{self.name}: {self.message}"


class QjsPoolError(Exception):
    """Base of everything this library raises."""


class UsageError(QjsPoolError, ValueError):
    """The caller's mistake: the message names the value, the limit and the way out."""


class SessionClosed(UsageError):
    """The session or its pool is closed (or belongs to the process that forked this one)."""


class QueueFull(UsageError):
    """More evals wait on this session than its bound allows. Nothing ran."""


class ValueConversionError(UsageError):
    """A value has no counterpart on the other side (a cycle, too deep, an unknown type)."""


class ValueTooLarge(UsageError):
    """A value is over the byte or node cap. `EvalResult.text` still shows its start."""


class EvalError(QjsPoolError):
    """Raised by `EvalResult.unwrap()` when the eval failed; `error` is its `GuestError`."""

    def __init__(self, error: GuestError) -> None:
        super().__init__(str(error))
        self.error = error


class SnapshotRejected(QjsPoolError):
    """A snapshot is damaged, foreign, of another format, or too large. Nothing changed."""


class SpawnError(QjsPoolError):
    """No worker could be started."""


class PoolExhausted(QjsPoolError):
    """All `max_sessions` sessions stayed in use for as long as the checkout may wait."""


class IsolationUnavailable(QjsPoolError):
    """This machine lacks an isolation layer that the pool requires."""
