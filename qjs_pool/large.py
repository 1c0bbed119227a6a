"""Copies of large data in the making of which other threads run, those of event loops first of all.

One copy of 50 MB keeps the interpreter's lock for as long as it takes: 50 ms in which no other
thread does anything. Here it is made slice by slice, and the lock is let go of after each.
(Hashing, compressing and joins of many `bytes` let go of it by themselves.)
"""

from __future__ import annotations

import io
import time
from collections import deque
from collections.abc import Iterator, Sequence
from typing import Final

from .wire.documents import Buffer

SLICE_BYTES: Final = 1 << 18  # 0.1 ms


def slices(data: Buffer, size: int = SLICE_BYTES) -> Iterator[memoryview]:
    """Views of all of it, one after the other; whoever waits for the lock runs in between."""
    view = memoryview(data)
    for start in range(0, len(view), size):
        yield view[start : start + size]
        # Not before the switch interval is over would it be taken from us: 5 ms, each time that
        # the other thread has waited for anything.
        time.sleep(0)


def copied(data: Buffer | bytearray) -> bytes:
    """A copy of any buffer."""
    view = memoryview(data)
    if not view.c_contiguous:
        return bytes(view)
    return Drain([view.cast("B")]).take(view.nbytes)


def pieces_of(parts: Sequence[Buffer], size: int) -> Iterator[bytes]:
    """The same bytes in pieces of `size`, the last one less."""
    waiting: list[Buffer] = []
    room = size
    for part in parts:
        view = memoryview(part)
        while len(view) >= room:
            yield b"".join((*waiting, view[:room]))
            view, waiting, room = view[room:], [], size
        waiting.append(view)
        room -= len(view)
    if room < size:
        yield b"".join(waiting)


class Drain:
    """Data in pieces, taken from the front; what was taken is let go of, in the list as well."""

    def __init__(self, pieces: list[Buffer]) -> None:
        self._pieces = deque(memoryview(piece) for piece in pieces)
        pieces.clear()
        self.left_bytes = sum(map(len, self._pieces))

    def take(self, size: int) -> bytes:
        """The next `size` bytes, or all that are left."""
        taken = io.BytesIO()
        while size > 0 and self._pieces:
            piece = self._pieces.popleft()
            if len(piece) > size:
                self._pieces.appendleft(piece[size:])
                piece = piece[:size]
            for part in slices(piece):
                taken.write(part)
            size -= len(piece)
            self.left_bytes -= len(piece)
        return taken.getvalue()
