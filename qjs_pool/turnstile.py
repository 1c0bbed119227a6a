"""First come, first served, for threads and event loops alike."""

from __future__ import annotations

import contextlib
import threading
from collections import deque
from concurrent.futures import Future

from .errors import QueueFull


class Turnstile:
    """Lets `capacity` holders in at a time; the others wait in the order they came."""

    def __init__(self, capacity: int, max_waiting: int | None = None) -> None:
        self._capacity = capacity
        self._max_waiting = max_waiting
        self._lock = threading.Lock()
        self._holders = 0
        self._waiting: deque[Future[None]] = deque()

    def enter(self, *, urgent: bool = False) -> Future[None] | None:
        """None: the caller is in. Else the future that resolves when it is.

        An urgent caller is let in next, however many wait.

        Raises:
            QueueFull: more than `max_waiting` wait already.
        """
        with self._lock:
            if self._holders < self._capacity:
                self._holders += 1
                return None
            full = self._max_waiting is not None and len(self._waiting) >= self._max_waiting
            if full and not urgent:
                raise QueueFull(
                    f"{len(self._waiting)} evals wait on this session already, its bound is "
                    f"{self._max_waiting}; await some first, or use more sessions"
                )
            future: Future[None] = Future()
            if urgent:
                self._waiting.appendleft(future)
            else:
                self._waiting.append(future)
            return future

    def leave(self) -> None:
        """Hand over to the next in line that still waits."""
        with self._lock:
            while self._waiting:
                future = self._waiting.popleft()
                if future.set_running_or_notify_cancel():
                    break
            else:
                self._holders -= 1
                return
        future.set_result(None)  # not under the lock: it may run the waiter's callbacks

    @property
    def waiting(self) -> int:
        """How many wait to be let in."""
        return len(self._waiting)

    @property
    def holders(self) -> int:
        """How many are in."""
        return self._holders

    def give_up(self, future: Future[None]) -> None:
        """The caller no longer wants in; if it was let in meanwhile, the next one is."""
        # Gone at once, or those who gave up would count against `max_waiting`.
        with self._lock, contextlib.suppress(ValueError):
            self._waiting.remove(future)
        if not future.cancel():
            self.leave()
