"""Calls of an eval that wait for a person, and calls that are replayed: the relay's part of it.

What is kept meanwhile is in `holding.py`.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from typing import Any, Final

from .calls import OpenCall
from .errors import ValueTooLarge
from .holding import Holding, SuspendedTooLate, Suspension, Waiting
from .journal import ReplayDiverged
from .places import Places
from .wire import messages as wire

_log: Final = logging.getLogger("qjs_pool.tools")


class SuspendedCalls:
    """The part of a relay that suspends and replays; `Relay` is the rest of it."""

    failure: BaseException | None
    made: int
    _turn: int
    _holding: Holding | None
    _matched: dict[int, OpenCall]
    _open: dict[int, OpenCall]
    _timed: dict[int, OpenCall]
    _places: Places[OpenCall]
    _waiting_bytes: int

    @property
    def frozen(self) -> bool:
        """Whether the guest is to do nothing: a call of this eval waits for a person."""
        return self._holding is not None and self._holding.frozen

    @property
    def quiet(self) -> bool:
        """Whether no call of this eval runs, or is to run."""
        waiting = () if self._holding is None else self._holding.waiting
        return all(
            call.turn != self._turn or call.call_id in waiting or call.number in self._matched
            for call in self._open.values()
        )

    @property
    def holds(self) -> bool:
        """Whether the eval may not return yet, though its value is there."""
        holding = self._holding
        return holding is not None and any(
            call.turn == self._turn and (call.tool.holds or call.call_id in holding.waiting)
            for call in self._open.values()
        )

    def suspension(self, *, settled: bool) -> Suspension | None:
        """What waits for a person, if anything does."""
        holding = self._holding
        if holding is None or not holding.waiting or holding.replaying:
            return None
        return holding.suspension(settled)

    def resume(self, again: Mapping[int, Callable[[Any], Any]]) -> None:
        """Run the calls that wait again, each as `again` says for its number."""
        assert self._holding is not None
        for waiting in self._holding.resume():
            call = self._open[waiting.call_id]
            call.again, call.cancel = again[waiting.number], None
            self._places.wait(call)
            self._waiting_bytes += call.bytes_in
        self._start_waiting()

    def thaw(self) -> list[wire.ToolAnswer]:
        """The guest goes on: what it is to be told."""
        holding = self._holding
        if holding is None:
            return []
        answers = holding.thaw(self.made)
        if holding.replay is not None and holding.replaying and not answers:
            self.failure = self.failure or holding.replay.missing()
        return answers

    def replayed(self) -> list[wire.ToolAnswer]:
        """Answers out of the journal whose time has come."""
        holding = self._holding
        if holding is None or holding.replay is None:
            return []
        answers = []
        for entry in holding.replay.due():
            call = self._matched.pop(entry.number)
            answer = self._settled(call, bool(entry.ok), entry.payload)
            answers += self._told(call, answer)
        if holding.replay.over and holding.waiting:
            holding.frozen = True
        return answers

    def diverged(self) -> None:
        """The program's value is there: an error if its journal says that it made more calls."""
        holding = self._holding
        if holding is not None and holding.replay is not None and holding.replaying:
            self.failure = self.failure or holding.replay.missing()

    def _recorded(self, call: OpenCall, args: str, holding: Holding) -> bool:
        """Note a call in the journal; in a replay, take what became of it from there."""
        if holding.replay is None or holding.replay.over:
            holding.recorder.called(call.number, call.name, args)
            return False
        try:
            entry = holding.replay.match(call.name, args)
        except ReplayDiverged as error:
            self.failure = self.failure or error
            return True
        call.number = entry.number
        holding.recorder.called(call.number, call.name, args)
        call.cancel = lambda: None
        if entry.ok is None:
            call.args = args
            holding.suspend(Waiting(call.number, call.call_id, call.name, args, None))
            return True
        if call.number in holding.replay.kept:
            holding.recorder.answered(call.number, entry.ok, entry.payload)
            holding.keep_last(call.number, self._settled(call, entry.ok, entry.payload))
        else:
            self._matched[call.number] = call
        return True

    def _suspend(self, call: OpenCall, payload: Any, holding: Holding) -> Exception | None:
        """Leave a call open until the eval is resumed; the error if that can't be."""
        if call.turn != self._turn:
            return self._too_late(call)
        if holding.waiting_bytes + len(call.args) > holding.max_bytes:
            return ValueTooLarge(
                f"calls with more than {holding.max_bytes} bytes of input wait for a person already"
            )
        call.cancel = lambda: None
        self._timed.pop(call.call_id, None)
        holding.suspend(Waiting(call.number, call.call_id, call.name, call.args, payload))
        holding.frozen = True
        return None

    def _too_late(self, call: OpenCall) -> SuspendedTooLate:
        """The error of a call that is to wait for a person when no eval can wait with it."""
        problem = (
            f"{call.name} was to ask a person, but the eval that called it had returned already: "
            "nobody was asked; await the call in the program that makes it"
        )
        # The guest may catch it: whoever relies on being asked is to learn of it all the same.
        _log.warning("%s, or let the tool hold its eval (ptc_interrupt_on)", problem)
        return SuspendedTooLate(problem)

    def _told(self, call: OpenCall, answer: wire.ToolAnswer) -> list[wire.ToolAnswer]:
        """The answer, if the guest may have it now."""
        holding = self._holding
        if holding is None:
            return [answer]
        number = call.number if call.turn == self._turn else 0
        if number:
            holding.recorder.answered(number, answer.ok, answer.payload)
        if holding.frozen:
            holding.keep(number, answer)
            return []
        if number:
            holding.recorder.told(number, self.made)
        return [answer]

    # --- what the rest of the relay does --------------------------------------------------------

    def _settled(self, call: OpenCall, ok: bool, payload: str) -> wire.ToolAnswer:
        """The answer of a call that has ended."""
        raise NotImplementedError

    def _start_waiting(self) -> None:
        """Start calls, as there are places."""
        raise NotImplementedError
