"""An eval that stops while a person is asked: what its relay keeps meanwhile.

A tool that needs an answer from outside raises `Suspend`. From then on the guest is told nothing:
answers of other calls are kept, and the worker is asked to hold. When no call is running any more
the eval is suspended: a `Suspension` instead of a result, until it is resumed or given up.
"""

from __future__ import annotations

import dataclasses
from typing import Any

from .journal import Journal, Recorder, Replay
from .wire import messages as wire


class Suspend(BaseException):
    """Raised by a tool: its call stays open until the eval is resumed, unseen by the guest.

    `payload`: for whoever resumes the eval. Where an eval can't be suspended it is raised from it.
    """

    def __init__(self, payload: Any) -> None:
        super().__init__(payload)
        self.payload = payload


class SuspendedTooLate(Exception):
    """A tool asked for a person's answer when its eval had already returned."""


@dataclasses.dataclass(frozen=True, slots=True)
class Waiting:
    """A suspended call. `payload` is the Suspend's, None in a replay."""

    number: int  # from 1, in the order in which the eval made its calls
    call_id: int
    name: str  # the guest's
    args: str  # JSON, byte for byte as the guest sent it
    payload: Any


@dataclasses.dataclass(frozen=True, slots=True)
class Suspension:
    """An eval that is suspended: its waiting calls in their order, and its journal so far.

    `settled`: the program's value is there, and given when the calls have ended.
    """

    waiting: tuple[Waiting, ...]
    journal: Journal | None  # None: it is too large
    settled: bool


class Holding:
    """What the relay keeps for one eval that may be suspended."""

    def __init__(
        self, code: str, seed: str, max_bytes: int, journal: Journal | None = None
    ) -> None:
        self.code = code
        self.seed = seed
        self.frozen = False  # the guest is told nothing
        self.waiting: dict[int, Waiting] = {}  # by call id
        self.waiting_bytes = 0
        self.max_bytes = max_bytes
        self.recorder = Recorder(max_bytes)
        self.replay = None if journal is None else Replay(journal)
        self._kept: list[tuple[int, wire.ToolAnswer]] = []
        self._last: dict[int, wire.ToolAnswer] = {}  # replayed ones, kept when it was suspended

    @property
    def replaying(self) -> bool:
        """Whether the guest still does what it did before."""
        return self.replay is not None and not self.replay.over

    def suspend(self, waiting: Waiting) -> None:
        """A call waits for a person."""
        self.waiting[waiting.call_id] = waiting
        self.waiting_bytes += len(waiting.args)

    def resume(self) -> list[Waiting]:
        """The calls that waited; they are to be run again."""
        if self.replay is not None:
            # As they were kept then, whatever the order of the calls now.
            self._kept += [(number, self._last[number]) for number in self.replay.kept]
            self.replay = None
        waiting, self.waiting, self.waiting_bytes = list(self.waiting.values()), {}, 0
        return waiting

    def keep_last(self, number: int, answer: wire.ToolAnswer) -> None:
        """Keep an answer until a replayed eval is resumed, as it was kept before."""
        self._last[number] = answer

    def keep(self, number: int, answer: wire.ToolAnswer) -> None:
        """Keep an answer until the guest may be told. `number` is 0 for a call of another eval."""
        self._kept.append((number, answer))

    def thaw(self, made: int) -> list[wire.ToolAnswer]:
        """The guest goes on, and gets what was kept."""
        self.frozen = False
        kept, self._kept = self._kept, []
        for number, _ in kept:
            if number:
                self.recorder.told(number, made)
        return [answer for _, answer in kept]

    def left(self, *, undone: bool) -> list[wire.ToolAnswer]:
        """What is kept when the eval ends; of one that never happened, other evals' answers."""
        kept, self._kept = self._kept, []
        return [answer for number, answer in kept if not (undone and number)]

    def suspension(self, settled: bool) -> Suspension:
        """What the eval's caller gets."""
        kept = [number for number, _ in self._kept if number]
        if self.replay is not None:
            kept = [*self.replay.kept, *kept]
        waiting = sorted(self.waiting.values(), key=lambda one: one.number)
        journal = self.recorder.journal(self.code, self.seed, kept)
        return Suspension(tuple(waiting), journal, settled)
