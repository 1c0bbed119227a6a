"""The journal of an eval's tool calls, and the replay of a program against it.

What belongs here: which calls were made, what they answered, in which order the guest was told.
What does not: running tools (`relay.py`), and where a journal is kept.
"""

from __future__ import annotations

import hashlib
from collections import deque
from typing import Final

import msgspec

from .errors import QjsPoolError

_SHOWN_CHARS: Final = 200
_ENTRY_BYTES: Final = 512  # what an entry costs beside its texts


class ReplayDiverged(QjsPoolError):
    """A program that was replayed did something else than its journal says; it was stopped."""


class Entry(msgspec.Struct, array_like=True, forbid_unknown_fields=True):
    """A call: its name and input as the guest sent them; `ok` is None while it has no answer."""

    number: int  # from 1, in the order in which the eval made its calls
    name: str
    args: str  # JSON, byte for byte
    ok: bool | None = None
    payload: str = ""


class Journal(msgspec.Struct, array_like=True, frozen=True, forbid_unknown_fields=True):
    """The calls of an eval that is suspended.

    `told`: the answers that the guest has had, in order: the call's number, and how many calls it
    had made before. `kept`: the answers that it gets when the eval is resumed.
    """

    program: str  # SHA-256
    seed: str
    entries: list[Entry]
    told: list[tuple[int, int]]
    kept: list[int]

    def check(self, code: str) -> None:
        """Raise ReplayDiverged unless it is of that program."""
        if self.program != digest_of(code):
            raise ReplayDiverged("the journal of the suspended eval is of another program")


def digest_of(code: str) -> str:
    """What a journal says of its program."""
    return hashlib.sha256(code.encode("utf-8", "surrogatepass")).hexdigest()


class Recorder:
    """Writes the journal of an eval, up to `max_bytes` of inputs and answers."""

    def __init__(self, max_bytes: int) -> None:
        self.complete = True
        self._room = max_bytes
        self._entries: dict[int, Entry] = {}
        self._told: list[tuple[int, int]] = []

    def called(self, number: int, name: str, args: str) -> None:
        if self._takes(len(args) + _ENTRY_BYTES):
            self._entries[number] = Entry(number, name, args)

    def answered(self, number: int, ok: bool, payload: str) -> None:
        if self._takes(len(payload)):
            entry = self._entries[number]
            entry.ok, entry.payload = ok, payload

    def told(self, number: int, made: int) -> None:
        """The guest gets the answer, having made that many calls."""
        if self.complete:
            self._told.append((number, made))

    def journal(self, code: str, seed: str, kept: list[int]) -> Journal | None:
        """None if it grew too large."""
        if not self.complete:
            return None
        entries = [
            Entry(*msgspec.structs.astuple(self._entries[number]))
            for number in sorted(self._entries)
        ]
        return Journal(digest_of(code), seed, entries, list(self._told), kept)

    def _takes(self, size: int) -> bool:
        self._room -= size
        if self._room < 0:
            self.complete = False
            self._entries.clear()
            self._told.clear()
        return self.complete


class Replay:
    """A journal being gone through again.

    Calls may come in another order than they came in (a timer may be faster now), but no other
    calls, and no answer is told before the calls were made that were made before it then.
    """

    def __init__(self, journal: Journal) -> None:
        self.kept = list(journal.kept)
        self._entries = {entry.number: entry for entry in journal.entries}
        self._unmade = [entry.number for entry in journal.entries]
        self._told = deque(journal.told)

    @property
    def over(self) -> bool:
        """Whether everything happened again; from here on the program is on its own."""
        return not self._unmade and not self._told

    def match(self, name: str, args: str) -> Entry:
        """The call as the journal has it.

        Raises:
            ReplayDiverged: the journal has no such call.
        """
        for number in self._unmade:
            entry = self._entries[number]
            if entry.name == name and entry.args == args:
                self._unmade.remove(number)
                return entry
        expected = self._entries[self._unmade[0]] if self._unmade else None
        raise ReplayDiverged(
            f"the replayed program calls {name}({_cut(args)}), which its journal has not"
            + ("" if expected is None else f"; next is {expected.name}({_cut(expected.args)})")
        )

    def due(self) -> list[Entry]:
        """The answers that the guest is to be told now."""
        entries = []
        while self._told:
            number, made = self._told[0]
            if number in self._unmade or any(other <= made for other in self._unmade):
                break
            self._told.popleft()
            entries.append(self._entries[number])
        return entries

    def missing(self) -> ReplayDiverged:
        """The error for a program that ended before it had made all calls."""
        entry = self._entries[self._unmade[0]] if self._unmade else None
        what = "" if entry is None else f" without the call {entry.name}({_cut(entry.args)})"
        return ReplayDiverged(f"the replayed program stopped{what}, which its journal has")


def _cut(text: str) -> str:
    return text if len(text) <= _SHOWN_CHARS else f"{text[:_SHOWN_CHARS]}…"
