"""How much memory is left for parked workers: the machine's, or what its control group may use.

Read at most once a second; figures, no decisions (those are `threads.Registry`'s).
"""

from __future__ import annotations

import pathlib
import threading
import time
from typing import Final

import psutil

_GROUP: Final = pathlib.Path("/sys/fs/cgroup")
_EVERY_S: Final = 1.0
_FLOOR_SHARE: Final = 20  # of the memory there is: a twentieth
_MOST_FLOOR_BYTES: Final = 512 << 20


class MemoryGauge:
    """Whether memory is short: less is available than a twentieth of it, 512 MiB at most.

    In a control group with a limit (a container), the group's limit and use count if they leave
    less than the machine does; page cache that the kernel can drop counts as available.
    """

    def __init__(self, group: pathlib.Path = _GROUP) -> None:
        self._group = group
        self._lock = threading.Lock()
        self._looked: float | None = None
        self._short = False

    def is_short(self) -> bool:
        """The answer of the last second, or a new one."""
        with self._lock:
            now = time.monotonic()
            if self._looked is None or now - self._looked >= _EVERY_S:
                self._looked = now
                self._short = any(
                    available < min(total // _FLOOR_SHARE, _MOST_FLOOR_BYTES)
                    for available, total in self._readings()
                )
            return self._short

    def _readings(self) -> list[tuple[int, int]]:
        machine = psutil.virtual_memory()
        readings = [(machine.available, machine.total)]
        try:
            limit = int((self._group / "memory.max").read_text())  # "max": no limit
            used = int((self._group / "memory.current").read_text())
            stat = (self._group / "memory.stat").read_text().split()
            cached = int(stat[stat.index("inactive_file") + 1])
        except (OSError, ValueError, IndexError):
            return readings  # no such group, or no limit
        return [*readings, (limit - used + cached, limit)]
