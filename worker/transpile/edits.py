"""One list of edits over a source, applied once, and the way back from its output to the source.

What belongs here: byte offsets, the order of edits that meet at one place, the position map.
What does not: knowing any language.
"""

from __future__ import annotations

from bisect import bisect_right
from dataclasses import dataclass

# Every byte but CR and LF becomes a space: lines stay, and so do byte columns, which is what
# quickjs counts in (an "é" before the fault moves its column by two).
_BLANK = bytes(byte if byte in b"\r\n" else 0x20 for byte in range(256))

_CLOSE, _OPEN, _REPLACE = range(3)


def blanked(text: bytes) -> bytes:
    """The same lines and byte columns, with nothing in them."""
    return text.translate(_BLANK)


@dataclass(frozen=True, slots=True)
class Edited:
    """The output of `Edits.apply`: bytes, and the segments they came from, in order."""

    text: bytes
    starts: tuple[int, ...]  # where each segment begins in `text`
    sources: tuple[int, ...]  # where it begins in the source
    lengths: tuple[int, ...]  # how many source bytes it stands for

    def to_source(self, offset: int) -> int:
        """The source offset that the byte at `offset` of the output came from."""
        if not self.starts:
            return offset
        at = max(bisect_right(self.starts, offset) - 1, 0)
        return self.sources[at] + min(max(offset - self.starts[at], 0), self.lengths[at])

    def span(self, start: int, end: int) -> tuple[int, int]:
        """Where a span of the source went; neither end may lie inside a replaced one."""
        return self._to_output(start), self._to_output(end - 1) + 1

    def _to_output(self, offset: int) -> int:
        at = max(bisect_right(self.sources, offset) - 1, 0)
        return self.starts[at] + offset - self.sources[at]


class Edits:
    """Collects edits in any order. Of two that overlap, the outer one wins and the inner is void.

    Push the edits of an outer node before those of a node inside it: text opened by the outer one
    then stands before the inner's at one place, and text closed by it after.
    """

    __slots__ = ("_items", "source")

    def __init__(self, source: bytes) -> None:
        self.source = source
        self._items: list[tuple[int, int, int, int, bytes]] = []

    def __bool__(self) -> bool:
        return bool(self._items)

    def open(self, at: int, text: str) -> None:
        """Insert before what begins at `at`."""
        self._items.append((at, _OPEN, len(self._items), at, text.encode()))

    def close(self, at: int, text: str) -> None:
        """Insert after what ends at `at`, so before anything opened there."""
        self._items.append((at, _CLOSE, -len(self._items), at, text.encode()))

    def replace(self, start: int, end: int, text: str) -> None:
        """Put `text` in the place of a span, then the line breaks that the span had."""
        lines = self.source.count(b"\n", start, end)
        self._items.append((start, _REPLACE, -end, end, text.encode() + b"\n" * lines))

    def blank(self, start: int, end: int, lead: str = "") -> None:
        """Erase a span, keeping lines and columns; `lead` overwrites its first bytes."""
        covered = start + len(lead)
        text = lead.encode() + b"\n" * self.source.count(b"\n", start, covered)
        text += blanked(self.source[covered:end])
        self._items.append((start, _REPLACE, -end, end, text))

    def apply(self) -> Edited:
        source, out = self.source, bytearray()
        starts: list[int] = []
        sources: list[int] = []
        lengths: list[int] = []
        done = 0
        for start, _, _, end, text in sorted(self._items):
            if start < done:
                continue
            if start > done:
                starts.append(len(out))
                sources.append(done)
                lengths.append(start - done)
                out += source[done:start]
            starts.append(len(out))
            sources.append(start)
            lengths.append(end - start)
            out += text
            done = end
        starts.append(len(out))
        sources.append(done)
        lengths.append(len(source) - done)
        out += source[done:]
        return Edited(bytes(out), tuple(starts), tuple(sources), tuple(lengths))
