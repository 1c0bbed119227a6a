"""The order of the evals of one model message, whatever way they come."""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Mapping
from concurrent.futures import Future
from typing import Any, Final

ORDER_S: Final = 0.25  # how long an eval waits for its predecessor to arrive
_KEPT_MESSAGES: Final = 8


class CallOrder:
    """Evals of one model message enter the queue in the order in which the model wrote them.

    In an event loop they arrive in order by themselves; threads may overtake each other on the way.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._arrivals: OrderedDict[str, dict[int, Future[None]]] = OrderedDict()

    def predecessor(self, message: str, position: int) -> Future[None] | None:
        """To be waited for, `ORDER_S` at most: a call that something held back never arrives."""
        if position == 0:
            return None
        arrival = self._arrival(message, position - 1)
        return None if arrival.done() else arrival

    def again(self, message: str, position: int) -> None:
        """That eval was suspended: those after it wait for it once more when it is resumed."""
        with self._lock:
            if (arrivals := self._arrivals.get(message)) is not None:
                arrivals[position] = Future()

    def arrived(self, message: str, position: int) -> None:
        arrival = self._arrival(message, position)
        with self._lock:
            if not arrival.done():
                arrival.set_result(None)

    def _arrival(self, message: str, position: int) -> Future[None]:
        with self._lock:
            arrivals = self._arrivals.setdefault(message, {})
            self._arrivals.move_to_end(message)
            while len(self._arrivals) > _KEPT_MESSAGES:
                self._arrivals.popitem(last=False)
            return arrivals.setdefault(position, Future())


def position_of(state: Any, call_id: str | None, tool_name: str) -> tuple[str, int] | None:
    """The model message that made a call, and which of its evals it is."""
    messages = state.get("messages") if isinstance(state, Mapping) else None
    for message in reversed(messages or ()):
        calls = [
            call for call in getattr(message, "tool_calls", None) or () if call["name"] == tool_name
        ]
        for position, call in enumerate(calls):
            if call["id"] == call_id:
                return str(calls[0]["id"]), position
        if calls:
            return None
    return None


def siblings_of(state: Any, call_id: str, tool_name: str) -> frozenset[str]:
    """The evals that the model asked for in the same message."""
    messages = state.get("messages") if isinstance(state, Mapping) else None
    for message in reversed(messages or ()):
        ids = {
            str(call["id"])
            for call in getattr(message, "tool_calls", None) or ()
            if call["name"] == tool_name
        }
        if call_id in ids:
            return frozenset(ids)
    return frozenset()
