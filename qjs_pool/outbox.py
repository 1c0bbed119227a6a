"""What goes to a worker: frames that its stream takes at once, or when there is room again."""

from __future__ import annotations

from collections.abc import Callable

from .link import Link


class Outbox:
    """The writing side of one link's data stream.

    Args:
        link: whose stream it is.
        want_room: told whether the poller is to say when the stream has room.
    """

    def __init__(self, link: Link, want_room: Callable[[bool], None]) -> None:
        self._link = link
        self._want_room = want_room
        self._waiting = bytearray()
        self.taken_bytes = 0  # by the stream, since `start`

    def __len__(self) -> int:
        """How many bytes wait for room."""
        return len(self._waiting)

    def start(self) -> None:
        """Count from here."""
        self.taken_bytes = 0

    def send(self, frame: bytes) -> None:
        """Send a frame, or what of it the stream has no room for later."""
        idle = not self._waiting
        sent = max(0, self._link.write(frame)) if idle else 0
        self.taken_bytes += sent
        if sent < len(frame):
            self._waiting += memoryview(frame)[sent:]
            if idle:  # else the poller says when there is room
                self.flush()

    def flush(self) -> None:
        """There is room: send what waits."""
        taken = 0
        with memoryview(self._waiting) as waiting:
            while taken < len(waiting) and (sent := self._link.write(waiting[taken:])):
                if sent < 0:
                    # Whoever held the other end is gone, and its end will be reported.
                    self.taken_bytes -= len(waiting) - taken
                    sent = len(waiting) - taken
                taken += sent
                self.taken_bytes += sent
        # One move of what is left for each time the stream was full, not for each frame.
        del self._waiting[:taken]
        self._want_room(bool(self._waiting))
