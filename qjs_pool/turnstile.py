"""First come, first served, for threads and event loops alike."""

from __future__ import annotations

import asyncio
import contextlib
import threading
import time
from collections import deque
from collections.abc import Coroutine
from concurrent.futures import Future
from concurrent.futures import wait as wait_for
from typing import Any, Final, TypeVar

from .errors import QueueFull

T = TypeVar("T")

# How often those who wait look whether an event loop was closed: no loop tells.
_LOOK_S: Final = 1.0
# Awaits on the way out of a visit, each of which makes its closing fail once.
_CLOSINGS: Final = 8


class Turnstile:
    """Lets `capacity` holders in at a time; the others wait in the order they came."""

    def __init__(self, capacity: int, max_waiting: int | None = None) -> None:
        self._capacity = capacity
        self._max_waiting = max_waiting
        self._lock = threading.Lock()
        self._holders = 0
        self._waiting: deque[Future[None]] = deque()
        self._visits: dict[Coroutine[Any, Any, Any], asyncio.AbstractEventLoop] = {}

    def enter(self, *, urgent: bool = False) -> Future[None] | None:
        """None: the caller is in. Else the future that resolves when it is.

        An urgent caller is let in next, however many wait.

        Raises:
            QueueFull: more than `max_waiting` wait already.
        """
        if self._holders >= self._capacity:
            self.end_dead()
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

    # --- waiting --------------------------------------------------------------------------------

    def wait(self, turn: Future[None] | None, timeout_s: float | None = None) -> None:
        """Wait in the calling thread for what `enter` gave. Any exception gives it up.

        Raises:
            TimeoutError: it took more than `timeout_s`.
        """
        if turn is None:
            return
        end = None if timeout_s is None else time.monotonic() + timeout_s
        try:
            while not turn.done():
                left = _LOOK_S if end is None else end - time.monotonic()
                if left <= 0:
                    raise TimeoutError
                if not wait_for([turn], min(left, _LOOK_S)).done:
                    self.end_dead()
            turn.result()
        except BaseException:
            self.give_up(turn)
            raise

    async def wait_async(self, turn: Future[None] | None) -> None:
        """As `wait`, in the running loop, within a visit."""
        if turn is None:
            return
        loop = asyncio.get_running_loop()
        woken: asyncio.Future[None] = loop.create_future()

        def wake() -> None:
            if not woken.done():
                woken.set_result(None)

        def let_in(_turn: Future[None]) -> None:
            with contextlib.suppress(RuntimeError):  # the loop is closed: its visits are ended
                loop.call_soon_threadsafe(wake)

        turn.add_done_callback(let_in)
        try:
            while not turn.done():
                if not (await asyncio.wait([woken], timeout=_LOOK_S))[0]:
                    self.end_dead()
            turn.result()
        except BaseException:
            self.give_up(turn)
            raise

    # --- event loops that are closed in mid-visit -----------------------------------------------

    async def attend(self, visit: Coroutine[Any, Any, T]) -> T:
        """Do all that comes between `enter` and `leave`, both included, in the running loop.

        If the loop is closed meanwhile, the next caller ends the visit, as cancelling would have.
        """
        self._visits[visit] = asyncio.get_running_loop()
        try:
            return await visit
        finally:
            self._visits.pop(visit, None)

    @property
    def has_dead(self) -> bool:
        """Whether there is a visit from an event loop that was closed."""
        return any(loop.is_closed() for loop in self._visits.copy().values())

    def end_dead(self) -> None:
        """End the visits from event loops that were closed: nobody else will."""
        for visit, loop in self._visits.copy().items():
            if loop.is_closed() and self._visits.pop(visit, None) is not None:
                _end(visit)


def _end(visit: Coroutine[Any, Any, Any]) -> None:
    for _ in range(_CLOSINGS):
        try:
            return visit.close()
        except RuntimeError:  # it awaits on its way out, or passes such an error on
            continue
        except ValueError:  # it is being closed: the garbage collector came first
            return None
