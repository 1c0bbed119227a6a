"""One eval from its program to its result, in the calling thread or in an event loop.

Which session it runs in, and what is done at each step of an eval that may be suspended; the steps
themselves are in `suspended.py`.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any

from qjs_pool.core import Core
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
from .walk import awalk, walk

_RAN_BEFORE = "a session that had run evals"


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

        def start(wanted: tuple[str, Journal] | None) -> Any:
            self._skills.load(thread, program.code, runtime)
            note, replays = thread.note, wanted is not None
            if self._options.mode == "call":
                session = Session(self._sandbox.open(), None)
            else:
                session = _session(self._continuity.obtain(thread, runtime, replays=replays))
            with self._alone(session, thread, scope) as ended:
                journal = self._checked(wanted, session, thread, scope, note)
                asked = program._replace(journal=journal, modules=thread.modules)
                return session, ended(self._sandbox.run(session.core, asked))

        def do(what: str, argument: Any) -> Any:
            if what == "start":
                return start(argument)
            if what == "resume":
                session, again = argument
                with self._alone(session, thread, scope) as ended:
                    return ended(self._sandbox.resume(session.core, program.toolbox, again))
            assert place is not None
            return place.get(argument) if what == "load" else place.put(*argument)

        done: tuple[Session, EvalResult] = walk(
            self._steps(thread, scope, place, program, runtime), do
        )
        return done

    async def arun(
        self, thread: Thread, scope: EvalScope, place: Place | None, program: Program, runtime: Any
    ) -> tuple[Session, EvalResult]:
        """As `run`, in the running loop."""

        async def start(wanted: tuple[str, Journal] | None) -> Any:
            await self._skills.aload(thread, program.code, runtime)
            note, replays = thread.note, wanted is not None
            if self._options.mode == "call":
                session = Session(await self._sandbox.open_async(), None)
            else:
                session = _session(await self._continuity.aobtain(thread, runtime, replays=replays))
            with self._alone(session, thread, scope) as ended:
                journal = self._checked(wanted, session, thread, scope, note)
                asked = program._replace(journal=journal, modules=thread.modules)
                return session, ended(await self._sandbox.run_async(session.core, asked))

        async def do(what: str, argument: Any) -> Any:
            if what == "start":
                return await start(argument)
            if what == "resume":
                session, again = argument
                with self._alone(session, thread, scope) as ended:
                    return ended(
                        await self._sandbox.resume_async(session.core, program.toolbox, again)
                    )
            assert place is not None
            return await (place.aget(argument) if what == "load" else place.aput(*argument))

        done: tuple[Session, EvalResult] = await awalk(
            self._steps(thread, scope, place, program, runtime), do
        )
        return done

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
