"""How an eval ends that did not end by itself: the clocks, why we killed, how its worker died.

What belongs here: deciding that time is up, and saying what happened. What does not: watching
descriptors and killing (`conversation.py`), going on afterwards (`core.py`).
"""

from __future__ import annotations

import enum
import time
from collections.abc import Callable
from typing import Final

from .exits import describe_death
from .limits import Limits, MiB
from .wire import messages as wire

# What the engine's own stop gets before the worker is killed: it reports, and keeps the state.
GRACE_S: Final = 0.25


class Cause(enum.Enum):
    """Why we killed a worker. Recorded before the kill, or its death would look like a crash."""

    CPU = "cpu"
    WALL = "wall"
    INTERRUPT = "interrupt"
    PROTOCOL = "protocol"


class Death:
    """How a worker ended. `recoverable`: its keeper holds the state of the last commit."""

    __slots__ = (
        "cause", "cpu_s", "peak_rss_bytes", "recoverable", "status", "unread_bytes", "violation",
    )  # fmt: skip

    def __init__(
        self,
        *,
        status: int | None = None,
        unread_bytes: int = 0,
        cpu_s: float = 0.0,
        peak_rss_bytes: int = 0,
        recoverable: bool = False,
        cause: Cause | None = None,
        violation: str = "",
    ) -> None:
        self.status = status
        self.unread_bytes = unread_bytes
        self.cpu_s = cpu_s
        self.peak_rss_bytes = peak_rss_bytes
        self.recoverable = recoverable
        self.cause = cause
        self.violation = violation


class Clock:
    """When an eval that did not end by itself is ended by us."""

    __slots__ = ("_cpu_check", "_cpu_s", "_wall_end")

    def __init__(self, wall_s: float | None, cpu_s: float | None) -> None:
        now = time.monotonic()
        self._wall_end = None if wall_s is None else now + wall_s + GRACE_S
        self._cpu_s = cpu_s
        self._cpu_check = None if cpu_s is None else now + cpu_s + GRACE_S

    def stood_still(self, seconds: float) -> None:
        """The eval was suspended that long."""
        if self._wall_end is not None:
            self._wall_end += seconds
        if self._cpu_check is not None:
            self._cpu_check += seconds

    def deadline(self) -> float | None:
        return earlier(self._wall_end, self._cpu_check)

    def overdue(self, cpu_used: Callable[[], float | None]) -> Cause | None:
        """The clock that ran out, if one did."""
        now = time.monotonic()
        if self._wall_end is not None and now >= self._wall_end:
            return Cause.WALL
        if self._cpu_s is not None and self._cpu_check is not None and now >= self._cpu_check:
            used = cpu_used()
            # Waiting for tools costs no CPU time: look again when it could be used up.
            left = self._cpu_s + GRACE_S - (used or 0.0)
            if left <= 0:
                return Cause.CPU
            self._cpu_check = now + max(left, 0.01)
        return None


def earlier(one: float | None, other: float | None) -> float | None:
    if one is None or other is None:
        return one if other is None else other
    return min(one, other)


def death_error(
    death: Death, cpu_s: float | None, wall_s: float, limits: Limits
) -> tuple[str, str]:
    """Name and message of the error of an eval whose worker died in it."""
    match death.cause:
        case Cause.CPU | Cause.WALL:
            return "Timeout", (
                f"VM {death.cpu_s:.1f} s{_of(cpu_s)}, wall {wall_s:.1f} s{_of(limits.wall)}; "
                f"it did not stop by itself and was killed"
            )
        case Cause.INTERRUPT:
            return "Interrupted", "the host stopped this eval"
        case Cause.PROTOCOL:
            return "WorkerCrashed", f"it broke the protocol: {death.violation}"
    if death.status is not None and death.status >> 8 == wire.EXIT_OUT_OF_MEMORY:
        return (
            "OutOfMemory",
            f"the worker ran into its memory limit of {limits.memory / MiB:g} MiB",
        )
    return "WorkerCrashed", describe_death(death.status, death.peak_rss_bytes)


def _of(limit_s: float | None) -> str:
    return "" if limit_s is None else f" of {limit_s:.1f} s"
