"""The eval tool: one program, from the agent's call to the message that answers it."""

from __future__ import annotations

import asyncio
import concurrent.futures
import contextvars
from collections.abc import Iterator, Mapping
from concurrent.futures import Future
from contextlib import AbstractContextManager
from typing import Any, Final, NamedTuple

from langchain_core.messages import ToolMessage
from langchain_core.runnables import ensure_config
from langchain_core.tools import BaseTool, StructuredTool
from pydantic import BaseModel, Field

from qjs_pool.checks import checked_code
from qjs_pool.core import Core
from qjs_pool.errors import PoolExhausted, SessionClosed, UsageError
from qjs_pool.journal import ReplayDiverged
from qjs_pool.result import EvalResult

from .bound import bound
from .continuity import Continuity
from .dispatch import EvalScope, Handler, StopEval, within
from .eval_run import EvalRuns
from .kept_journal import JournalRejected, Place, place_of
from .options import Options
from .order import ORDER_S, position_of
from .prompts import CODE_DOC, tool_description
from .ptc import Allowlist, Exposed, ExposedSets, Offer
from .result import artifact_of, render_error, render_result
from .sandbox import Program, Sandbox
from .seam import GraphInterrupt, ToolCallRequest, ToolRuntime
from .skills import Skills
from .suspended import Suspensions
from .threads import Registry, Thread, thread_key
from .walk import Work, awalk, walk

Runtime = ToolRuntime[Any, Any]

_NO_LIMIT_S: Final = 300.0  # how long the end of a turn waits for calls when nothing else says so
_CLEAN_UP_S: Final = 1.0  # what a cancelled call gets to clean up after itself
_BY_RELAY: Final = ("TimeoutError", "ValueConversionError", "ValueTooLarge")


class EvalInput(BaseModel):
    """Input of the eval tool."""

    code: str = Field(description=CODE_DOC)


class ToolPath(NamedTuple):
    """How the agent runs the tool call at hand, and would run another."""

    request: ToolCallRequest
    handler: Handler
    in_loop: bool


_PATH: Final[contextvars.ContextVar[ToolPath | None]] = contextvars.ContextVar(
    "qjs_pool_tool_path", default=None
)


def tool_path(path: ToolPath) -> AbstractContextManager[None]:
    """Evals in this context dispatch their tool calls along that path."""
    return bound(_PATH, path)


class Evaluator:
    """Runs programs for one middleware."""

    def __init__(self, options: Options) -> None:
        self.options = options
        self.registry = Registry(options.park, options.max_parked, self._release)
        self.sandbox = Sandbox(options, self.registry.make_room, self.registry.figures)
        reserved = options.pool._core.options.worker_functions if options.pool is not None else ()
        self._offer = Offer(options, Allowlist(options.ptc, options.tool_name), reserved)
        self.skills = Skills(options.skills_backend, self._offer.allows)
        self.continuity = Continuity(options, self.registry, self.sandbox, self.skills)
        self.suspensions = Suspensions(options, self._release)
        self.runs = EvalRuns(options, self.sandbox, self.skills, self.continuity, self.suspensions)
        self._sets = ExposedSets(self._offer.expose)

    def tool(self) -> BaseTool:
        """The tool for the agent."""

        # `runtime` is injected by the agent, and has a default for calls from outside of one.
        def run(code: str, runtime: Runtime = None) -> Any:  # type: ignore[assignment]
            return self.evaluate(code, runtime)

        async def arun(code: str, runtime: Runtime = None) -> Any:  # type: ignore[assignment]
            return await self.aevaluate(code, runtime)

        return StructuredTool.from_function(
            func=run,
            coroutine=arun,
            name=self.options.tool_name,
            description=tool_description(self.options.mode),
            args_schema=EvalInput,
            infer_schema=False,
        )

    def exposed(self, available: Any) -> Exposed:
        """What the guest gets of the tools that are available."""
        return self._sets.of(self._offer.tools(available))

    # --- evals ----------------------------------------------------------------------------------

    def evaluate(self, code: str, runtime: Runtime | None) -> Any:
        """Run a program in the calling thread."""
        thread, scope, place = self._begin(runtime, in_loop=False)

        def do(what: str, argument: Any) -> Any:
            if what == "enter":
                return self._enter(thread, runtime)
            if what == "run":
                return self.runs.run(thread, scope, place, argument, runtime)
            return self.continuity.after_eval(thread, argument[0], runtime, argument[1])

        with within(scope):
            return walk(self._steps(thread, scope, code, runtime, in_loop=False), do)

    async def aevaluate(self, code: str, runtime: Runtime | None) -> Any:
        """Run a program in the running event loop."""
        thread, scope, place = self._begin(runtime, in_loop=True)

        async def do(what: str, argument: Any) -> Any:
            if what == "enter":
                return await self._aenter(thread, runtime)
            if what == "run":
                return await self.runs.arun(thread, scope, place, argument, runtime)
            return await self.continuity.aafter_eval(thread, argument[0], runtime, argument[1])

        with within(scope):
            steps = self._steps(thread, scope, code, runtime, in_loop=True)
            return await thread.turns.attend(awalk(steps, do))

    def _steps(
        self, thread: Thread, scope: EvalScope, code: str, runtime: Runtime | None, *, in_loop: bool
    ) -> Work[Any]:
        queued, update, result = self.options.mode != "call", None, None
        try:
            program = self._program(thread, scope, code, in_loop=in_loop)
            if queued:
                yield "enter", None
            try:
                session, result = yield "run", program
                if session.live is not None:
                    update = yield "after", (session.live, result)
            except GraphInterrupt:
                self._suspended(thread, runtime)
                raise
            finally:
                if queued:
                    thread.turns.leave()
        except StopEval as stop:
            self.registry.stopped(thread, stop.error)
            raise stop.error from None
        except (asyncio.CancelledError, GeneratorExit):
            if not thread.key.lasting:  # nobody can come back to it
                self._let_go(thread)
            raise
        except (ReplayDiverged, JournalRejected) as error:
            self.suspensions.drop(thread, scope.call_id)
            self._let_go(thread)  # it may have run half of it
            return self._refused(error, runtime)
        except (UsageError, PoolExhausted) as error:
            return self._refused(error, runtime)
        finally:
            thread.stragglers += scope.finish(result)
            thread.touch()
        return self._answered(result, thread, scope, runtime, update)

    def _program(self, thread: Thread, scope: EvalScope, code: str, *, in_loop: bool) -> Program:
        assert thread.exposed is not None
        if self.options.mode != "call" and scope.waits_for_itself:
            raise UsageError("the program that made this call runs in this session, and waits")
        toolbox = thread.exposed.in_loop if in_loop else thread.exposed.in_threads
        return Program(checked_code(code), toolbox, thread.modules, scope.suspends)

    def _begin(
        self, runtime: Runtime | None, *, in_loop: bool
    ) -> tuple[Thread, EvalScope, Place | None]:
        config = ensure_config()
        state = None if runtime is None else runtime.state
        thread = self.registry.of(thread_key(config if runtime is None else runtime.config, state))
        if thread.exposed is None:  # no model call came before: a resumed run, or no agent at all
            thread.exposed = self.exposed(getattr(runtime, "tools", ()))
        thread.in_turn = True
        self.registry.resume(thread)
        self.registry.sweep()
        path = _PATH.get()
        if (
            path is not None
            and runtime is not None
            and path.in_loop is in_loop
            and path.request.tool_call["id"] == runtime.tool_call_id
        ):
            request, handler = path.request, path.handler
        else:
            request, handler = None, None
        call_id = None if runtime is None else runtime.tool_call_id
        place = None if call_id is None else place_of(config, call_id)
        scope = EvalScope(
            request=request,
            handler=handler,
            runtime=runtime,
            config=config,
            pool=self.sandbox.pool,
            propagate_errors=self.options.propagate_tool_errors,
            gates=self.options.ptc_interrupt_on,
            suspends=place is not None,
        )
        scope.conversation = thread
        return thread, scope, place

    def _suspended(self, thread: Thread, runtime: Runtime | None) -> None:
        """The evals after it, of the same message, wait for it when it is resumed."""
        if (position := self._position(runtime)) is not None:
            thread.order.again(*position)

    # --- the queue of a conversation ------------------------------------------------------------

    def _enter(self, thread: Thread, runtime: Runtime | None) -> None:
        position = self._position(runtime)
        if position is not None and (before := thread.order.predecessor(*position)) is not None:
            concurrent.futures.wait([before], ORDER_S)
        try:
            turn = thread.turns.enter()
        finally:
            if position is not None:
                thread.order.arrived(*position)
        thread.turns.wait(turn)

    async def _aenter(self, thread: Thread, runtime: Runtime | None) -> None:
        position = self._position(runtime)
        if position is not None and (before := thread.order.predecessor(*position)) is not None:
            await asyncio.wait([asyncio.wrap_future(before)], timeout=ORDER_S)
        try:
            turn = thread.turns.enter()
        finally:
            if position is not None:
                thread.order.arrived(*position)
        await thread.turns.wait_async(turn)

    def _position(self, runtime: Runtime | None) -> tuple[str, int] | None:
        if runtime is None:
            return None
        return position_of(runtime.state, runtime.tool_call_id, self.options.tool_name)

    # --- answers --------------------------------------------------------------------------------

    def _answered(
        self,
        result: EvalResult,
        thread: Thread,
        scope: EvalScope,
        runtime: Runtime | None,
        update: dict[str, Any] | None,
    ) -> Any:
        note, thread.note = thread.note, ""
        content = render_result(
            result,
            max_chars=self.options.max_result_chars,
            show_console=self.options.capture_console,
            failed_tool=_failed_tool(result, scope),
            notes=(note,) if note else (),
        )
        call_id = None if runtime is None else runtime.tool_call_id
        if call_id is None:
            return content
        return scope.updates.returned(self._message(content, call_id, artifact_of(result)), update)

    def _refused(self, error: Exception, runtime: Runtime | None) -> Any:
        """The answer when nothing ran: the model may try again, in another way or later."""
        if isinstance(error, SessionClosed):
            raise error
        replay = isinstance(error, (ReplayDiverged, JournalRejected))
        remark = "No call that waited was made." if replay else "Nothing ran."
        name, message = type(error).__name__, f"{error}. {remark}"
        content = render_error(name, message, max_chars=self.options.max_result_chars)
        call_id = None if runtime is None else runtime.tool_call_id
        return content if call_id is None else self._message(content, call_id, None)

    def _message(
        self, content: str, call_id: str, artifact: Mapping[str, Any] | None
    ) -> ToolMessage:
        return ToolMessage(
            content, tool_call_id=call_id, name=self.options.tool_name, artifact=artifact
        )

    # --- the end of a turn ----------------------------------------------------------------------

    def end_turn(self, thread: Thread, state: Any) -> dict[str, Any] | None:
        """Wait for the turn's calls, then close what no later turn needs; the update of state."""
        for calls, patience_s in self._awaited(thread):
            concurrent.futures.wait(calls, patience_s)
        self._cancel_calls(thread)
        if self._is_over(thread) or thread.live is None:
            return None
        self._enter(thread, None)
        try:
            return self.continuity.after_turn(thread, state)
        finally:
            thread.turns.leave()
            self.registry.sweep()

    async def aend_turn(self, thread: Thread, state: Any) -> dict[str, Any] | None:
        """As `end_turn`, in an event loop."""
        return await thread.turns.attend(self._aend_turn(thread, state))

    async def _aend_turn(self, thread: Thread, state: Any) -> dict[str, Any] | None:
        for calls, patience_s in self._awaited(thread):
            await asyncio.wait(map(asyncio.wrap_future, calls), timeout=patience_s)
        self._cancel_calls(thread)
        if self._is_over(thread) or thread.live is None:
            return None
        await self._aenter(thread, None)
        try:
            return await self.continuity.aafter_turn(thread, state)
        finally:
            thread.turns.leave()
            self.registry.sweep()

    def _awaited(self, thread: Thread) -> Iterator[tuple[list[Future[None]], float]]:
        """The turn's calls that still run, and for how many seconds they are waited for."""
        wall_s = self.options.limits.wall
        running = [one for one in thread.stragglers if one.goes_on]
        if calls := [one.ended for one in running if not one.given_up]:
            yield calls, _NO_LIMIT_S if wall_s is None else wall_s
        # Those whose eval was stopped are cancelled. A thread never hears of it.
        if calls := [one.ended for one in running if one.given_up and one.task is not None]:
            yield calls, _CLEAN_UP_S

    def _cancel_calls(self, thread: Thread) -> None:
        thread.in_turn = False
        self.registry.resume(thread)
        stragglers, thread.stragglers = thread.stragglers, []
        for record in stragglers:
            if record.goes_on:
                record.cancel()
        leftovers, thread.leftovers = thread.leftovers, []
        for core in leftovers:
            self.sandbox.release(core)

    def _is_over(self, thread: Thread) -> bool:
        """Whether nothing can come back to the session; then it is closed."""
        if self.options.mode == "thread" and thread.key.lasting:
            return False
        self._let_go(thread)
        self.registry.forget(thread)
        return True

    def _let_go(self, thread: Thread) -> None:
        live, thread.live = thread.live, None
        if live is not None:
            self.sandbox.release(live.core)

    def start_turn(self, thread: Thread) -> None:
        """What an earlier turn, which failed, has left behind."""
        thread.missing_modules.clear()
        self.registry.resume(thread)
        for call_id in list(thread.held):  # nobody resumed them
            self.suspensions.drop(thread, call_id)
        if self.options.mode != "thread":
            self._cancel_calls(thread)
            self._is_over(thread)

    def _release(self, core: Core) -> None:
        self.sandbox.release(core)

    def close(self) -> None:
        """Close every session, and the pool if it is the middleware's own."""
        for core in self.registry.drain():
            self.sandbox.release(core)
        self.sandbox.close()


def _failed_tool(result: EvalResult, scope: EvalScope) -> str | None:
    """The tool whose failure the eval's error is, if it is one."""
    error = result.error
    if error is None:
        return None
    culprit = scope.culprit(error.name, error.message)
    if culprit is None and error.name in _BY_RELAY:
        # These are said by the relay, about a call of which the tool itself knows nothing.
        failed = [call.name for call in result.calls if call.outcome == "error"]
        culprit = failed[-1] if failed else None
    return culprit
