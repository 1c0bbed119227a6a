"""One eval from its program to its result, in the calling thread or in an event loop.

Which session it runs in, and what is done at each step of an eval that may be suspended; the steps
themselves are in `suspended.py`.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any, Final

from qjs_pool import outcomes
from qjs_pool.core import Core
from qjs_pool.errors import SpawnError
from qjs_pool.evals import StateLost
from qjs_pool.holding import Suspension
from qjs_pool.journal import Journal
from qjs_pool.result import EvalResult

from .continuity import Continuity
from .dispatch import EvalScope
from .kept_journal import JournalRejected, Place
from .live import Live
from .options import Options
from .order import siblings_of
from .sandbox import Program, Sandbox
from .skills import Skills
from .suspended import Session, Suspensions
from .threads import Thread
from .walk import Work, awalk, walk

_RAN_BEFORE: Final = "a session that had run evals"
_ATTEMPTS: Final = 4


class EvalRuns:
    """Runs evals for one middleware."""

    def __init__(
        self,
        options: Options,
        sandbox: Sandbox,
        skills: Skills,
        continuity: Continuity,
        suspensions: Suspensions,
    ) -> None:
        self._options = options
        self._sandbox = sandbox
        self._skills = skills
        self._continuity = continuity
        self._suspensions = suspensions

    def run(
        self, thread: Thread, scope: EvalScope, place: Place | None, program: Program, runtime: Any
    ) -> tuple[Session, EvalResult]:
        """Run an eval in the calling thread, or go on with it.

        Raises:
            GraphInterrupt: it is suspended.
        """

        def do(what: str, argument: Any) -> Any:
            if what == "start":
                return walk(self._start(thread, scope, program, argument), do)
            if what == "skills":
                return self._skills.load(thread, program.code, runtime)
            if what == "open":
                return self._sandbox.open()
            if what == "obtain":
                return self._continuity.obtain(thread, runtime)
            if what == "run":
                return self._sandbox.run(*argument)
            if what == "resume":
                session, again = argument
                with self._alone(session, thread, scope) as ended:
                    return ended(self._sandbox.resume(session.core, program.toolbox, again))
            assert place is not None
            return place.get(argument) if what == "load" else place.put(*argument)

        return self._kept(thread, walk(self._steps(thread, scope, place, program, runtime), do))

    async def arun(
        self, thread: Thread, scope: EvalScope, place: Place | None, program: Program, runtime: Any
    ) -> tuple[Session, EvalResult]:
        """As `run`, in the running loop."""

        async def do(what: str, argument: Any) -> Any:
            if what == "start":
                return await awalk(self._start(thread, scope, program, argument), do)
            if what == "skills":
                return await self._skills.aload(thread, program.code, runtime)
            if what == "open":
                return await self._sandbox.open_async()
            if what == "obtain":
                return await self._continuity.aobtain(thread, runtime)
            if what == "run":
                return await self._sandbox.run_async(*argument)
            if what == "resume":
                session, again = argument
                with self._alone(session, thread, scope) as ended:
                    return ended(
                        await self._sandbox.resume_async(session.core, program.toolbox, again)
                    )
            assert place is not None
            return await (place.aget(argument) if what == "load" else place.aput(*argument))

        steps = self._steps(thread, scope, place, program, runtime)
        return self._kept(thread, await awalk(steps, do))

    def _start(
        self,
        thread: Thread,
        scope: EvalScope,
        program: Program,
        wanted: tuple[str, Journal] | None,
    ) -> Work[tuple[Session, EvalResult | Suspension]]:
        """Run the program, in the session that has the state for it."""
        yield "skills", None
        # A session that lost its state would start anew, and tell so with its result. Here there
        # is a snapshot to go back to; and what a person has approved runs in no empty REPL.
        whole = self._continuity.persists(thread) or wanted is not None
        attempts = _ATTEMPTS
        while True:
            note = thread.note
            if self._options.mode == "call":
                session = Session((yield "open", None), None)
            else:
                session = _session((yield "obtain", None))
            try:
                with self._alone(session, thread, scope) as ended:
                    journal = self._checked(wanted, session, thread, scope, note)
                    asked = program._replace(journal=journal, modules=thread.modules, whole=whole)
                    return session, ended((yield "run", (session.core, asked)))
            except StateLost as error:
                attempts -= 1
                if session.live is None or not attempts:
                    raise SpawnError(f"{error}, {_ATTEMPTS} times in a row") from None
                self._continuity.lose(thread, session.live)

    def _kept(self, thread: Thread, done: tuple[Session, EvalResult]) -> tuple[Session, EvalResult]:
        """What became of the eval, where the session's state has gone with it."""
        session, result = done
        if session.live is None or result.state != "reset" or not self._continuity.persists(thread):
            return done
        self._continuity.lose(thread, session.live)
        return session, outcomes.to_be_restored(result)

    def _steps(
        self, thread: Thread, scope: EvalScope, place: Place | None, program: Program, runtime: Any
    ) -> Any:
        siblings = siblings_of(
            getattr(runtime, "state", None), scope.call_id, self._options.tool_name
        )
        return self._suspensions.steps(thread, scope, place, program.toolbox, siblings)

    def _checked(
        self,
        wanted: tuple[str, Journal] | None,
        session: Session,
        thread: Thread,
        scope: EvalScope,
        note: str,
    ) -> Journal | None:
        """The journal that is to be replayed, if the session is as the eval had found it."""
        live = session.live
        scope.base = ""
        if live is not None:
            ran = "" if session.core.fresh else _RAN_BEFORE
            scope.base = live.head if self._continuity.persists(thread) else ran
        if wanted is None:
            return None
        base, journal = wanted
        if base != scope.base or thread.note != note:
            raise JournalRejected(
                "the suspended eval cannot be replayed: the REPL's state that it started from is "
                "not there any more"
            )
        return journal

    @contextlib.contextmanager
    def _alone(self, session: Session, thread: Thread, scope: EvalScope) -> Iterator[Any]:
        """Close a session that runs this eval only, unless the eval is suspended."""
        outcomes: list[Any] = []

        def ended(outcome: EvalResult | Suspension) -> EvalResult | Suspension:
            outcomes.append(outcome)
            return outcome

        try:
            yield ended
        finally:
            suspended = outcomes and isinstance(outcomes[0], Suspension)
            if session.live is None and not suspended:
                self._close(session.core, thread, scope)

    def _close(self, core: Core, thread: Thread, scope: EvalScope) -> None:
        # Closing cancels what still runs, and a half-done side effect is worse than a late one.
        if scope.open:
            thread.leftovers.append(core)
        else:
            self._sandbox.release(core)


def _session(live: Live) -> Session:
    return Session(live.core, live)
