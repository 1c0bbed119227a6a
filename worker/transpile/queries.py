"""Queries of syntax trees, asked piece by piece.

What a query finds takes some hundred bytes for each find, and the library dies of an allocation
that fails. So a large program is asked about one piece after the other, each where there is room.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import ClassVar, Final

import tree_sitter_javascript
import tree_sitter_typescript
from tree_sitter import Language, Node, Query, QueryCursor

from .parser import PLAIN_BYTES, expect_room

JAVASCRIPT: Final = Language(tree_sitter_javascript.language())
TYPESCRIPT: Final = Language(tree_sitter_typescript.language_typescript())
# A find has four bytes of a program or more, and takes up to 700.
_ROOM_BYTES: Final = PLAIN_BYTES // 4 * 700

Captures = dict[str, list[Node]]


class SyntaxQuery:
    """A query of one language, compiled when first used.

    Compiling takes longer than all else that the zygote does to start, and a program in plain
    JavaScript needs few. `compile_queries` does it when there is time.
    """

    _all: ClassVar[list[SyntaxQuery]] = []

    def __init__(self, pattern: str, language: Language = TYPESCRIPT) -> None:
        self._pattern = pattern
        self._language = language
        self._query: Query | None = None
        SyntaxQuery._all.append(self)

    def matches(self, root: Node) -> Iterator[Captures]:
        """Each match within the node, in the order in which they begin, nearly.

        Raises:
            NoRoom: there is no memory for them.
        """
        for begin, end, cursor in self._pieces(root):
            for _, captures in cursor.matches(root):
                # One that reaches into several pieces is found in each of them.
                if begin <= min(node.start_byte for [node, *_] in captures.values()) < end:
                    yield captures

    def nodes(self, root: Node) -> Iterator[Node]:
        """Each node that the query captures."""
        for begin, end, cursor in self._pieces(root):
            for nodes in cursor.captures(root).values():
                yield from (node for node in nodes if begin <= node.start_byte < end)

    def occurs_in(self, root: Node) -> bool:
        """Whether there is a match within the node."""
        return any(cursor.captures(root) for _, _, cursor in self._pieces(root))

    def _pieces(self, root: Node) -> Iterator[tuple[int, int, QueryCursor]]:
        """A cursor for each piece of a node, and where in the program that begins and ends."""
        cursor = self.cursor()
        begin, end = root.start_byte, root.end_byte + 1
        if end - begin <= PLAIN_BYTES:
            yield begin, end, cursor
            return
        for at in range(begin, end, PLAIN_BYTES):
            expect_room(_ROOM_BYTES)
            cursor.set_byte_range(at, at + PLAIN_BYTES)
            yield at, at + PLAIN_BYTES, cursor

    def cursor(self) -> QueryCursor:
        """A cursor over the query."""
        if self._query is None:
            self._query = Query(self._language, self._pattern)
        return QueryCursor(self._query)

    @classmethod
    def compile_all(cls) -> None:
        """Compile those that are not yet."""
        for query in cls._all:
            query.cursor()
