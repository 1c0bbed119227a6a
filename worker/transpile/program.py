"""What the transpiler hands to the engine, and how a position in it leads back to the source."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

from .edits import Edited

Kind = Literal["javascript", "typescript", "untouched"]


@dataclass(frozen=True, slots=True)
class Program:
    """Scripts to run in order by indirect (global, sloppy) eval; the last one's value counts.

    Every script has the layout of the whole program (what belongs to another one is blanked), so a
    position means the same in each of them.
    """

    scripts: tuple[str, ...]
    boxed: bool = False  # the last script's value is [value], or a Promise of [value]
    kind: Kind = "javascript"
    declared: tuple[str, ...] = ()  # top-level names, in order, each once
    _source: bytes = field(default=b"", repr=False)  # as sent, each line break an LF or CRLF
    _edited: Edited | None = field(default=None, repr=False)
    sites: str = (
        ""  # what the scripts hand to the prelude (see `proof`), as JSON; empty for nothing
    )

    def locate(self, line: int, column: int, script: int = -1) -> tuple[int, int]:
        """Lead a position reported by the engine back to the source as it was sent.

        Args:
            line: 1-based, as the engine gives it.
            column: 1-based, in UTF-8 bytes: that is what quickjs-ng counts.
            script: which script it is in; all have one layout, so it makes no difference.

        Returns:
            Line and column, 1-based, the column in code points. A position past the end of the
            source (in what was added behind it) becomes the end of the source.
        """
        sent = self._source
        text = sent if self._edited is None else self._edited.text
        start = 0
        for _ in range(line - 1):
            newline = text.find(b"\n", start)
            if newline < 0:
                start = len(text)
                break
            start = newline + 1
        end = text.find(b"\n", start)
        offset = min(start + max(column, 1) - 1, len(text) if end < 0 else end)
        if self._edited is not None:
            offset = self._edited.to_source(offset)
        return self.place(offset)

    def place(self, offset: int) -> tuple[int, int]:
        """Line and column, 1-based, of a byte of the source."""
        sent = self._source
        offset = min(offset, len(sent))
        begin = sent.rfind(b"\n", 0, offset) + 1
        return (
            sent.count(b"\n", 0, begin) + 1,
            len(sent[begin:offset].decode("utf-8", "replace")) + 1,
        )
