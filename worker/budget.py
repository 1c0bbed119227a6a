"""The time that one eval may take.

The engine has no clock of its own that we could trust with a whole eval: its time limit starts
anew at every call. So the budget is kept here, and each call into the engine gets what is left.
"""

import time
from typing import Final

_SHOWN_S: Final = 0.05  # what is not 0.0 when it is written down


class OutOfTime(Exception):
    """A budget is used up; the argument says which: "cpu" or "wall"."""


class Budget:
    """What an eval may use: CPU seconds and wall-clock seconds, None for no limit."""

    __slots__ = (
        "_cpu_end", "_cpu_left", "_cpu_read", "_cpu_start", "_wall_end", "_wall_start",
        "cpu_s", "timers_s", "tools_s", "wall_s",
    )  # fmt: skip

    def __init__(self, cpu_s: float | None, wall_s: float | None) -> None:
        self.cpu_s, self.wall_s = cpu_s, wall_s
        self.tools_s = 0.0  # wall seconds spent waiting for tools
        self.timers_s = 0.0  # ... and for timers, where no tool was called
        self._cpu_start = time.process_time()
        self._wall_start = self._cpu_read = time.monotonic()
        self._cpu_left = float("inf") if cpu_s is None else cpu_s
        self._cpu_end = self._cpu_start + self._cpu_left
        self._wall_end = None if wall_s is None else self._wall_start + wall_s

    def cpu_left(self) -> float | None:
        """CPU seconds for the next call into the engine: CPU time never outruns the wall."""
        wall = self.wall_left()
        if self.cpu_s is None:
            return wall
        # Nor can one thread use more of it than passes on the wall, whose clock is ten times
        # cheaper to read: the CPU clock is read again once half of what was left may be used.
        passed = time.monotonic() - self._cpu_read
        if passed > self._cpu_left / 2:
            self._cpu_read += passed
            self._cpu_left, passed = self._cpu_end - time.process_time(), 0.0
            if self._cpu_left <= 0:
                raise OutOfTime("cpu")
        left = self._cpu_left - passed
        return left if wall is None or left < wall else wall

    def wall_left(self) -> float | None:
        """Wall seconds left, None for no limit."""
        if self._wall_end is None:
            return None
        left = self._wall_end - time.monotonic()
        if left <= 0:
            raise OutOfTime("wall")
        return left

    def stood_still(self, seconds: float) -> None:
        """The eval was held that long."""
        self._wall_start += seconds
        if self._wall_end is not None:
            self._wall_end += seconds

    def cpu_used(self) -> float:
        return time.process_time() - self._cpu_start

    def spent(self) -> str:
        """Which clock stands where: `VM 2.0 s of 2.0 s, tools 4.1 s, wall 6.2 s`."""
        wall = time.monotonic() - self._wall_start
        timers = f"timers {self.timers_s:.1f} s, " if self.timers_s >= _SHOWN_S else ""
        return (
            f"VM {self.cpu_used():.1f} s{_of(self.cpu_s)}, tools {self.tools_s:.1f} s, {timers}"
            f"wall {wall:.1f} s{_of(self.wall_s)}"
        )


def _of(limit_s: float | None) -> str:
    return "" if limit_s is None else f" of {limit_s:.1f} s"
