"""Timing: many runs, medians, and figures that print with their unit."""

import dataclasses
import time
from collections.abc import Callable
from typing import Literal

Unit = Literal["s", "bytes", "sessions"]


@dataclasses.dataclass(frozen=True)
class Figure:
    """A median and the 90th percentile of some runs."""

    median: float
    p90: float
    unit: Unit = "s"

    def __str__(self) -> str:
        return f"{shown(self.median, self.unit)} ({shown(self.p90, self.unit)})"


def shown(value: float, unit: Unit) -> str:
    """A value in the unit that reads best."""
    if unit == "bytes":
        return f"{value / (1 << 20):.2f} MiB" if value >= 1 << 20 else f"{value / 1024:.1f} KiB"
    if unit == "sessions":
        return f"{value:.0f}"
    if value < 1e-3:
        return f"{value * 1e6:.0f} µs"
    return f"{value * 1e3:.1f} ms"


def timed(
    run: Callable[[], object],
    runs: int,
    *,
    gap_s: float = 0.0,
    per_run: int = 1,
    warmup: int = 3,
) -> Figure:
    """The time of one `run()`, divided by what it does `per_run`; `gap_s` of rest in between."""
    for _ in range(warmup):
        run()
    times = []
    for _ in range(max(runs, 5)):
        if gap_s:
            time.sleep(gap_s)
        started = time.perf_counter()
        run()
        times.append((time.perf_counter() - started) / per_run)
    return figure(times)


def figure(values: list[float], unit: Unit = "s") -> Figure:
    """The figure of these values."""
    ordered = sorted(values)
    return Figure(ordered[len(ordered) // 2], ordered[int(len(ordered) * 0.9)], unit)
