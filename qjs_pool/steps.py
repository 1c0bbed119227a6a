"""Steps: what an operation of a session is to whoever drives it.

Every operation is a generator. It does its own non-blocking reads and writes, and yields a
deadline (a `time.monotonic()` value, or None) whenever it has to wait for the session's poller;
the driver waits, in a thread or in an event loop, and sends back what became ready. So each rule
is written once, and none of it knows threads or asyncio.
"""

from __future__ import annotations

from collections.abc import Generator
from typing import TypeVar

T = TypeVar("T")
Ready = list[tuple[int, int]]  # descriptors and their events, as `select.epoll.poll` gives them
Steps = Generator[float | None, Ready, T]
