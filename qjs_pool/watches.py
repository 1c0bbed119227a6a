"""Which descriptors a conversation has in its session's poller, and for which events."""

from __future__ import annotations

import select


class Watches:
    """Registers each descriptor once, and changes it only when the events do."""

    def __init__(self, poller: select.epoll) -> None:
        self._poller = poller
        self._events: dict[int, int] = {}

    def __contains__(self, fd: int) -> bool:
        return fd in self._events

    def events(self, fd: int) -> int:
        """What the descriptor is watched for; 0 if it is not."""
        return self._events.get(fd, 0)

    def set(self, fd: int, events: int | None) -> None:
        """Watch a descriptor for `events`, or with None no longer."""
        if events is None:
            if self._events.pop(fd, None) is not None:
                self._poller.unregister(fd)
        elif (known := self._events.get(fd)) != events:
            self._events[fd] = events
            if known is None:
                self._poller.register(fd, events)
            else:
                self._poller.modify(fd, events)

    def clear(self) -> None:
        """Watch nothing any more."""
        for fd in list(self._events):
            self.set(fd, None)
