"""Figures of this process and the workers: room for descriptors, memory in use."""

from __future__ import annotations

import resource
from collections.abc import Iterable
from typing import Final

import psutil

PER_SESSION: Final = 6
_OF_THE_HOST: Final = 256


def make_room(max_sessions: int) -> None:
    """Raise the soft descriptor limit, as far as the hard one allows, to what the pool may need."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = max_sessions * PER_SESSION + _OF_THE_HOST
    if soft == resource.RLIM_INFINITY or soft >= wanted:
        return
    if hard != resource.RLIM_INFINITY:
        wanted = min(wanted, hard)
    if wanted > soft:
        resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))


def rss_bytes(pids: Iterable[int | None]) -> int:
    """Resident bytes of these workers together; shared pages count for each."""
    total = 0
    for pid in pids:
        if pid is not None:
            try:
                total += psutil.Process(pid).memory_info().rss
            except psutil.Error:
                continue
    return total
