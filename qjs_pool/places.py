"""Places for tool calls: who runs, who waits, and in which order those that wait start.

What belongs here: counting and queues. What does not: running a call, its time or its answer.
"""

from __future__ import annotations

from collections import defaultdict, deque
from typing import Generic, Protocol, TypeVar

from .tools import Tool


class Claim(Protocol):
    """What the places know of a call."""

    name: str
    tool: Tool
    in_place: bool  # set and cleared here


Call = TypeVar("Call", bound=Claim)


class Places(Generic[Call]):
    """The places of one session.

    Calls share `shared` places, first come first served. Those of a tool with a `concurrency` of
    its own have places of their own instead: slow ones then hold up none but their own kind.
    """

    def __init__(self, shared: int) -> None:
        self._shared = shared
        self._waiting: dict[str, deque[Call]] = {}  # by lane; the shared one is ""
        self._running: defaultdict[str, int] = defaultdict(int)

    def wait(self, call: Call) -> None:
        """Queue a call."""
        self._waiting.setdefault(_lane(call), deque()).append(call)

    def take(self) -> Call | None:
        """The next call that may start now, which takes a place; None if there is none."""
        for lane, queue in list(self._waiting.items()):
            call = queue[0]
            if self._running[lane] < (call.tool.concurrency or self._shared):
                self._remove(lane, queue, call)
                self._running[lane] += 1
                call.in_place = True
                return call
        return None

    def leave(self, call: Call) -> None:
        """A call's place is free again, if it has one."""
        if call.in_place:
            call.in_place = False
            self._running[_lane(call)] -= 1

    def withdraw(self, call: Call) -> bool:
        """Take a call out of the queue; False if it does not wait."""
        lane = _lane(call)
        queue = self._waiting.get(lane)
        if queue is None or call not in queue:
            return False
        self._remove(lane, queue, call)
        return True

    def clear(self) -> None:
        """Nobody waits any more; those that run keep their places. From any thread."""
        self._waiting = {}  # another one, as `take` may be looking through this

    def _remove(self, lane: str, queue: deque[Call], call: Call) -> None:
        queue.remove(call)  # at once where it is the first
        if not queue:
            self._waiting.pop(lane, None)


def _lane(call: Claim) -> str:
    return call.name if call.tool.concurrency is not None else ""
