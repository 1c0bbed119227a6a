"""A session of a conversation, and which of the conversation's states it is in."""

from __future__ import annotations

import time

from qjs_pool.core import Core


class Live:
    """A session, and where in the line of its conversation's states it is."""

    def __init__(self, core: Core) -> None:
        self.core = core
        self.head = ""  # as the last eval left it
        self.seq = 0
        self.base = ""  # the head that the graph's state had last, and the evals since
        self.since: set[str] = set()
        self.saved_seq = 0  # of the last snapshot
        self.manifest: bytes | None = None
        self.known: frozenset[str] = frozenset()  # chunks of it
        self.cost: tuple[float, int] | None = None  # seconds and bytes
        self.written_bytes = 0  # to the graph's state since that was last written whole
        self.used = time.monotonic()
        self.persistent = False  # the graph's state has what it needs to come back
        self.at_turn_end = False  # nothing ran since: another branch may start from here
        self.spare = False  # a copy, for such a branch

    def copied(self, core: Core) -> Live:
        """The same place in the line, held by a copy of the session."""
        live = Live(core)
        live.head, live.seq, live.base, live.since = self.head, self.seq, self.base, set(self.since)
        live.saved_seq, live.manifest, live.known = self.saved_seq, self.manifest, self.known
        live.written_bytes = self.written_bytes
        live.cost, live.persistent = self.cost, self.persistent
        live.at_turn_end = live.spare = True
        return live

    def rebase(self, head: str, seq: int) -> None:
        """The graph's state has got as far as this session."""
        self.base, self.since = head, set()
        if self.head != head:  # it is new
            self.head, self.seq, self.saved_seq = head, seq, seq

    def advance(self, call_id: str, head: str, seq: int) -> None:
        """An eval has changed the state; `seq` is the graph's."""
        self.head, self.seq = head, max(self.seq, seq) + 1
        self.since.add(call_id)
