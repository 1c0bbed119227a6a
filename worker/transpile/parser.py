"""Parsers that give up in time: the process dies of a parse that runs out of memory.

A syntax tree takes up to 270 bytes for each byte of the program. What room there is for it changes
with the heap and its fragments, so the kernel is asked while the parser works.
"""

from __future__ import annotations

import mmap
from typing import Final

from tree_sitter import Language, Parser, Tree

# A parse of less is not watched: its tree is smaller than what is kept free.
PLAIN_BYTES: Final = 1 << 15
_SHORT_BYTES: Final = 1 << 12
# Kept free for all that is not asked about: what the parser takes between two looks, its stacks.
_SPARE_BYTES: Final = 24 << 20
_TREE_BYTES: Final = 300  # of a small program, for each of its bytes
# What is made out of a tree takes about that much for each of its nodes.
_NODE_BYTES: Final = 32
# Steps of the parser (of a hundred operations each) between two looks: a quarter of a MiB.
_STEPS: Final = 32


class NoRoom(Exception):
    """There is not the memory to read a program with. Nothing of it has run."""


class WatchedParser:
    """A parser of one language."""

    def __init__(self, language: Language) -> None:
        self._parser = Parser(language)

    def parse(self, text: bytes) -> Tree:
        """The tree of a text, errors included.

        Raises:
            NoRoom: there is no memory for it.
        """
        if len(text) <= PLAIN_BYTES:
            # Asking takes longer than reading a short program, whose tree is small in any case.
            if len(text) > _SHORT_BYTES:
                expect_room(_TREE_BYTES * len(text))
            return self._parser.parse(text)
        steps = 0

        def stop(_offset: int, _has_error: bool) -> bool:
            nonlocal steps
            steps += 1
            return steps % _STEPS == 0 and not _has_room(_SPARE_BYTES)

        expect_room(_SPARE_BYTES)
        try:
            # Only a text that is read in pieces lets itself be stopped.
            tree = self._parser.parse(
                lambda start, _point: text[start : start + PLAIN_BYTES], progress_callback=stop
            )
        except ValueError:
            self._parser.reset()  # or the next text would be taken for the rest of this one
            raise NoRoom from None
        expect_room(_NODE_BYTES * tree.root_node.descendant_count)
        return tree


def expect_room(size: int) -> None:
    """Raise NoRoom if the kernel would not give the process that many bytes more."""
    if not _has_room(size):
        raise NoRoom


def _has_room(size: int) -> bool:
    """Whether the kernel would give the process that much more memory."""
    try:
        mmap.mmap(-1, max(size, 1), flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS).close()
    except (OSError, MemoryError):
        return False
    return True
