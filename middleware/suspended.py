"""Evals that wait for a person: put aside when the run is interrupted, gone on with when resumed.

In the process that ran it, the worker itself waits. Elsewhere, or when the worker is gone, the
program is replayed with the journal of its calls. Either way the rules are these steps, which a
sync and an async caller walk; each yields what is to be done, and gets the outcome.
"""

from __future__ import annotations

import dataclasses
import functools
import inspect
import time
from collections.abc import Callable, Generator, Mapping
from typing import Annotated, Any, Final, cast

from pydantic import AfterValidator

from qjs_pool.core import Core
from qjs_pool.holding import Suspension
from qjs_pool.journal import ReplayDiverged
from qjs_pool.result import EvalResult
from qjs_pool.tools import Toolbox

from .dispatch import EvalScope
from .interrupts import RESUMING, SCRATCHPAD, Asked, answers_of, interrupt_value
from .kept_journal import NO_JOURNAL, JournalRejected, Place, SuspendedEval
from .live import Live
from .options import Options
from .seam import GraphInterrupt, interrupt
from .threads import Thread

_VALIDATES: Final = "response_schema" in inspect.signature(interrupt).parameters


@dataclasses.dataclass
class Session:
    """The session that an eval runs in; `live` is None for one that runs nothing else."""

    core: Core
    live: Live | None


@dataclasses.dataclass
class HeldEval:
    """An eval whose worker waits."""

    place: str  # the eval's, so that another branch's is told apart
    session: Session
    base: str
    suspension: Suspension
    asked: Mapping[int, Asked]
    round: int
    scope: EvalScope
    since: float = dataclasses.field(default_factory=time.monotonic)

    @property
    def core(self) -> Core:
        return self.session.core


# What a sync or async caller does in between, and its arguments.
Start = tuple[str, Any]
Steps = Generator[Start, Any, tuple[Session, EvalResult]]
Again = Callable[..., Any]


class Suspensions:
    """The steps of an eval that may be suspended, for one middleware."""

    def __init__(self, options: Options, release: Callable[[Core], None]) -> None:
        self._options = options
        self._release = release

    def steps(
        self,
        thread: Thread,
        scope: EvalScope,
        place: Place | None,
        toolbox: Toolbox,
        siblings: frozenset[str],
    ) -> Steps:
        """Run an eval to its result.

        Yields: ("start", None, or base and journal) for a Session and an outcome; ("resume",
            (session, again)) for an outcome; ("load", rounds) for a journal's bytes, ("save",
            (round, bytes)).

        Raises:
            GraphInterrupt: it is suspended.
            ReplayDiverged, JournalRejected: it cannot be gone on with.
        """
        if self._options.mode != "call":
            self._pass_by(thread, scope.call_id, siblings)
        if place is None:
            session, outcome = yield "start", None
            return session, outcome
        conf = scope.config["configurable"]
        rounds = len(conf[SCRATCHPAD].resume)
        pass_ = _Pass(conf[SCRATCHPAD])
        held: HeldEval | tuple[Session, EvalResult] | None
        held = self._taken(thread, scope, place, rounds)
        before = held is not None
        record: SuspendedEval | None = None
        if held is None and conf.get(RESUMING):
            blob = yield "load", rounds
            if blob is not None:
                record = place.opened(
                    blob, self._options.snapshot_keys, self._options.max_snapshot_bytes
                )
        if isinstance(held, HeldEval):
            scope.base = held.base
            scope.restore(held.scope.updates.commands)
        elif record is not None:
            # Asked before anything is run: there may be no answer yet.
            answers = pass_.ask(record.asked, record.round, before=True)
            scope.restore(record.commands)
            replayed = yield from self._replayed(scope, place, record)
            held = yield from self._gone_on(replayed, answers, scope, toolbox)
            if isinstance(held, HeldEval):
                yield from self._kept(thread, scope, place, held)
        else:
            if rounds:
                raise JournalRejected("the journal of the eval that was suspended is gone")
            session, outcome = yield "start", None
            if not isinstance(outcome, Suspension):
                return session, outcome
            asked = {call.number: call.payload for call in outcome.waiting}
            held = HeldEval(place.context, session, scope.base, outcome, asked, 0, scope)
            yield from self._kept(thread, scope, place, held)
        while isinstance(held, HeldEval):
            answers = pass_.ask(held.asked, held.round, before=before)
            before = False
            thread.held.pop(scope.call_id, None)
            held = yield from self._gone_on(held, answers, scope, toolbox)
            if isinstance(held, HeldEval):
                yield from self._kept(thread, scope, place, held)
        return held

    def _taken(
        self, thread: Thread, scope: EvalScope, place: Place, rounds: int
    ) -> HeldEval | None:
        """The eval that waits, if it is this one, as it was asked last, and its worker lives."""
        held = thread.held.get(scope.call_id)
        if held is None:
            return None
        if held.place == place.context and held.round <= rounds and held.core.suspended:
            return held
        if held.place == place.context and held.round <= rounds:
            held.core.to_be_replayed()
        self.drop(thread, scope.call_id)
        return None

    def _kept(self, thread: Thread, scope: EvalScope, place: Place, held: HeldEval) -> Any:
        """Put it aside, and what another process needs of it."""
        thread.held[scope.call_id] = held
        held.scope = scope
        held.since = time.monotonic()
        journal, blob = held.suspension.journal, NO_JOURNAL
        if journal is not None:
            commands = scope.updates.commands
            record = SuspendedEval(held.round, held.base, held.asked, commands, journal)
            blob = place.sealed(
                record, self._options.snapshot_keys, self._options.max_snapshot_bytes
            )
        yield "save", (held.round, blob)

    def _replayed(
        self, scope: EvalScope, place: Place, record: SuspendedEval
    ) -> Generator[Start, Any, HeldEval]:
        """The eval as it was when it was suspended, in a session that has only its journal."""
        session, outcome = yield "start", (record.base, record.journal)
        numbers = (
            [call.number for call in outcome.waiting] if isinstance(outcome, Suspension) else []
        )
        if numbers != sorted(record.asked):
            self._release_alone(session)
            raise ReplayDiverged("the replayed program does not wait for what was asked")
        return HeldEval(
            place.context, session, record.base, outcome, record.asked, record.round, scope
        )

    def _gone_on(
        self, held: HeldEval, answers: Mapping[str, Any], scope: EvalScope, toolbox: Toolbox
    ) -> Generator[Start, Any, HeldEval | tuple[Session, EvalResult]]:
        """Run the calls that waited again, with their answers, and the program after them."""
        again: dict[int, Again] = {}
        for call in held.suspension.waiting:
            tool = toolbox.find(call.name)
            if tool is None:
                self._release_alone(held.session)
                raise JournalRejected(f"the tool {call.name} is not there any more")
            given = held.asked[call.number].answered(answers)
            again[call.number] = functools.partial(cast("Again", tool.call), given=given)
        outcome = yield "resume", (held.session, again)
        if not isinstance(outcome, Suspension):
            return held.session, outcome
        asked = {call.number: call.payload for call in outcome.waiting}
        return dataclasses.replace(
            held,
            suspension=outcome,
            asked=asked,
            round=held.round + any(one.questions for one in held.asked.values()),
            scope=scope,
        )

    def drop(self, thread: Thread, call_id: str) -> None:
        """Give an eval up; its session tells so with its next result."""
        held = thread.held.pop(call_id, None)
        if held is not None:
            self._release_alone(held.session)

    def _release_alone(self, session: Session) -> None:
        """Close a session that was for one eval; another one goes on."""
        if session.live is None:
            self._release(session.core)

    def _pass_by(self, thread: Thread, call_id: str, siblings: frozenset[str]) -> None:
        """The session is to run this eval, and not another one that is suspended in it.

        Raises:
            GraphInterrupt: that one comes first, as the model has written; without a question.
        """
        others = [one for one in thread.held if one != call_id]
        if siblings & set(others):
            raise GraphInterrupt(())
        for other in others:
            self.drop(thread, other)


class _Pass:
    """One run of the node: LangGraph gives answers in the order in which they are asked for."""

    def __init__(self, scratchpad: Any) -> None:
        self._scratchpad = scratchpad
        self._asked = 0

    def ask(self, asked: Mapping[int, Asked], round_: int, *, before: bool) -> dict[str, Any]:
        """The answers to what the calls ask, by id.

        `before`: they were asked in an earlier run of the node.

        Raises:
            GraphInterrupt: there are none yet. ValueError: they are none. JournalRejected: they
                were given before it was asked.
        """
        questions = [one for number in sorted(asked) for one in asked[number].questions]
        while self._asked < round_:
            interrupt(None)
            self._asked += 1
        if not questions:  # something within a call waited for its turn
            if before:
                return {}
            raise GraphInterrupt(())
        if not before and (
            len(self._scratchpad.resume) > self._asked
            # Taken, as only that tells whether another call has had it.
            or self._scratchpad.get_null_resume(True) is not None
        ):
            # Whoever answered was asked something else: the calls of a run that is lost.
            raise JournalRejected("the answer was given before its question was asked")
        value = interrupt_value(questions)

        def checked(answer: Any) -> dict[str, Any]:
            return answers_of(questions, answer)

        answers: dict[str, Any]
        if _VALIDATES:  # before the answer is saved: a bad one can be given anew
            answers = interrupt(
                value, response_schema=cast("Any", Annotated[Any, AfterValidator(checked)])
            )
        else:
            answers = checked(interrupt(value))
        self._asked += 1
        return answers
