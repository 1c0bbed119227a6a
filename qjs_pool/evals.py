"""The evals of a session: run, suspended while a person is asked, gone on with, given up.

What belongs here: what an eval's caller gets, whatever happened. What does not: how the session
comes to a worker that serves (`core.py`), the messages of an eval (`conversation.py`).
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from typing import Any, Final, NamedTuple

from . import outcomes
from .conversation import Conversation
from .endings import Death
from .errors import SessionClosed
from .holding import Holding, Suspension
from .journal import Journal
from .options import SessionOptions
from .outcomes import RESET
from .relay import Relay
from .result import EvalResult, SessionState
from .steps import Steps
from .wire import messages as wire

ATTEMPTS: Final = 4
_GIVEN_UP: Final = "an eval that waited for a person was given up, and its calls with it"
_CANCELLED: Final = "the eval that made the call was given up before the call was answered"
_KEPT: Final = "its program had ended already, and the session has its changes"
_BACK: Final = "the session is as it was before that eval"
_AHEAD: Final = "what was given up last had ended already: the session has its changes"
# The largest journal, in values of the largest size.
_JOURNAL_VALUES: Final = 2


class StateLost(Exception):
    """The session's state is not what its evals were told; says why."""


class Held(NamedTuple):
    """An eval that is suspended."""

    talk: Conversation
    cpu_s: float | None
    worked_s: float  # seconds it has run, calls included
    since: float
    settled: bool
    replayed: bool = False


class Evals:
    """The part of a session that runs programs; `Core` is the rest of it."""

    options: SessionOptions
    relay: Relay
    closed: bool
    lost: str  # what of its state is gone, until a result has told; "" if nothing is
    ahead: bool  # it has the changes of an eval whose caller has left, until a result has told
    _notes: list[str]  # other remarks for the next result
    _stopped: bool  # the eval that ran last was given up
    _running: bool
    _has_state: bool  # a program ran in it, or a host put something there
    _evals: int
    _held: Held | None

    # --- operations -----------------------------------------------------------------------------

    def eval(
        self, code: str, cpu_s: float | None, *, want_value: bool = True, whole: bool = False
    ) -> Steps[EvalResult]:
        """Run one program; whatever the guest does comes back as data.

        Args:
            whole: run it with all of the session's state, or not at all.

        Raises:
            StateLost: `whole`, and some state is gone, or there is some of an eval that was given
                up. Nothing ran.
        """
        outcome = yield from self._eval(code, cpu_s, want_value, None, whole)
        assert isinstance(outcome, EvalResult)
        return outcome

    def eval_or_suspend(
        self,
        code: str,
        cpu_s: float | None,
        *,
        journal: Journal | None = None,
        whole: bool = False,
    ) -> Steps[EvalResult | Suspension]:
        """Run one program whose tools may raise `Suspend`; it is then gone on with by `resume`.

        Any other operation gives a suspended eval up: the session is as it was before it.

        Args:
            journal: the calls of an eval of this program that was suspended elsewhere: they are
                not made again.
            whole: as for `eval`.

        Raises:
            ReplayDiverged: the program does something else than its journal says.
            StateLost: as for `eval`.
        """
        if journal is not None:
            journal.check(code)
        seed = self._eval_seed() if journal is None else journal.seed
        holding = Holding(code, seed, _JOURNAL_VALUES * self.options.limits.value_bytes, journal)
        return (yield from self._eval(code, cpu_s, False, holding, whole))

    @property
    def suspended(self) -> bool:
        """Whether an eval is suspended, and its worker lives."""
        held = self._held
        if held is None or self.closed:
            return False
        held.talk.look()
        return held.settled or (held.talk.death is None and not held.talk.going)

    @property
    def fresh(self) -> bool:
        """Whether it has run no eval."""
        return self._evals == 0

    def resume(self, again: Mapping[int, Callable[[Any], Any]]) -> Steps[EvalResult | Suspension]:
        """Go on with the suspended eval: its waiting calls are run again, as `again` says.

        Args:
            again: by the call's number, what to call with the input that the guest sent.
        """
        held, self._held = self._held, None
        if self.closed or held is None:
            raise SessionClosed("the session was closed while the eval was suspended")
        started = time.monotonic()
        outcome: wire.EvalDone | wire.Done | Death | Suspension | None = None
        self._running = True
        try:
            self.relay.resume(again)
            outcome = yield from held.talk.go_on(started - held.since)
        finally:
            self._running = False
            if outcome is None:
                self._stop(held.talk, held.settled)
        return self._ended(held.talk, outcome, held.cpu_s, started - held.worked_s)

    def to_be_replayed(self) -> None:
        """The suspended eval is run anew: no result is to say that it was given up."""
        if self._held is not None:
            self._held = self._held._replace(replayed=True)

    def give_up(self) -> None:
        """End the suspended eval, if there is one: the session is as it was before it."""
        held, self._held = self._held, None
        if held is None:
            return
        self._stop(held.talk, held.settled)
        became = _KEPT if held.settled else _BACK if self.options.durable else RESET
        note = became if held.replayed else f"{_GIVEN_UP}; {became}"
        if became == RESET:
            self.lost, held.talk.told = note, True
        elif not held.replayed:
            self._notes.append(note)

    def _stop(self, talk: Conversation, settled: bool = False) -> None:
        """Nobody waits for the eval any more: the guest must not go on."""
        if settled:  # it has returned already
            self._committing()
        else:
            talk.stop()
            self._stopped = True
        self.relay.end(cancel=True, undone=not settled, why=_CANCELLED if settled else "")

    def _eval_seed(self) -> str:
        return self.options.reseeded(f"eval {self._evals + 1}").seed

    def _eval(
        self,
        code: str,
        cpu_s: float | None,
        want_value: bool,
        holding: Holding | None,
        whole: bool,
    ) -> Steps[EvalResult | Suspension]:
        started = time.monotonic()
        limits = self.options.limits
        owed: list[wire.ToolAnswer] = []
        before: Conversation | None = None
        for attempt in range(ATTEMPTS):
            talk = yield from self._settle()
            if whole and (self.lost or self.ahead):
                if before is not None:
                    self.relay.end(cancel=True, undone=True)
                raise StateLost(self.lost or _AHEAD)
            if before is None:
                owed = self.relay.begin(holding)
            elif talk is not before:
                owed = []  # whoever waited for them is lost
            before = talk
            self._evals += 1
            seed = "" if holding is None else holding.seed
            request = wire.Eval(
                self._evals,
                code,
                cpu_s,
                limits.wall,
                limits.host_calls,
                want_value,
                seed,
                holding is not None,
            )
            outcome: wire.EvalDone | wire.Done | Death | Suspension | None = None
            had_state, self._has_state = self._has_state, True
            self._running = True
            try:
                outcome = yield from talk.exchange(request, limits.wall, cpu_s, owed)
            finally:
                self._running = False
                if outcome is None:  # cancelled, or Ctrl-C
                    self._stop(talk)
            if isinstance(outcome, Death) and attempt < ATTEMPTS - 1 and talk.untouched():
                self._has_state = had_state
                continue  # it died before it read a byte of this: nothing ran
            break
        return self._ended(talk, outcome, cpu_s, started)

    def _ended(
        self,
        talk: Conversation,
        outcome: wire.EvalDone | wire.Done | Death | Suspension | None,
        cpu_s: float | None,
        started: float,
    ) -> EvalResult | Suspension:
        """What the caller gets. `started`: as if the eval had never been suspended."""
        wall_s = time.monotonic() - started
        if self.closed:
            raise SessionClosed("the session was closed while this eval ran")
        if self.relay.failure is not None:
            talk.leaving = isinstance(outcome, Death)
            kept = isinstance(outcome, wire.EvalDone) and outcome.state != "lost"
            if kept:
                self._committing()
            self.relay.end(
                cancel=True, undone=isinstance(outcome, Death), why=_CANCELLED if kept else ""
            )
            failure, self.relay.failure = self.relay.failure, None  # or it would end the next one
            raise failure
        if isinstance(outcome, Suspension):
            now = time.monotonic()
            self._held = Held(talk, cpu_s, wall_s, now, outcome.settled)
            return outcome
        if isinstance(outcome, Death):
            talk.leaving = True
            return self._crashed(talk, outcome, cpu_s, wall_s)
        assert isinstance(outcome, wire.EvalDone)
        return self._finished(talk, outcome, wall_s)

    # --- results --------------------------------------------------------------------------------

    def _take_notes(self) -> list[str]:
        notes = [self.lost] if self.lost else [_AHEAD] if self.ahead else []
        notes += self._notes
        self.lost, self.ahead, self._notes = "", False, []
        return notes

    def _state_after(
        self, talk: Conversation, lost: bool, recoverable: bool = True
    ) -> SessionState:
        if not lost:
            return "kept"
        if recoverable and self.options.durable:
            return "rolled_back"
        talk.told = True
        return "reset"

    def _finished(self, talk: Conversation, done: wire.EvalDone, wall_s: float) -> EvalResult:
        state = self._state_after(talk, done.state == "lost")
        notes = self._take_notes()
        if state == "kept":
            self._committing()
        return outcomes.finished(done, state, wall_s, notes, self.relay, self.options.limits)

    def _crashed(
        self, talk: Conversation, death: Death, cpu_s: float | None, wall_s: float
    ) -> EvalResult:
        state = self._state_after(talk, True, death.recoverable)
        notes = self._take_notes()
        return outcomes.crashed(death, state, cpu_s, wall_s, notes, self.relay, self.options.limits)

    # --- what the rest of the session does ------------------------------------------------------

    def _settle(self) -> Steps[Conversation]:
        """The conversation with a living worker that has the session's options."""
        raise NotImplementedError

    def _committing(self) -> None:
        """What was just answered is secured by a checkpoint, if the session is durable."""
        raise NotImplementedError
