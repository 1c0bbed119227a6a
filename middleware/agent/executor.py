"""`create_agent`, and the executor that runs its turns: in a thread or in an event loop."""

from __future__ import annotations

import asyncio
import contextvars
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator, Mapping, Sequence
from concurrent.futures import wait
from typing import Any, Final, TypeVar

from langchain_core.messages import SystemMessage
from langchain_core.runnables import Runnable, RunnableConfig
from langchain_core.runnables.config import (
    get_async_callback_manager_for_config,
    get_callback_manager_for_config,
    get_executor_for_config,
    set_config_context,
)
from langchain_core.tools import BaseTool, tool

from ..seam import AgentState, ModelRequest
from .hooks import (
    MODEL_CALL,
    TOOL_CALL,
    Answer,
    InterruptRefused,
    arun_hook,
    checked_middlewares,
    run_hook,
    with_hook,
)
from .model_call import acall_model, call_model
from .run import Run, StreamMode
from .state import MESSAGES, State, StateRules
from .tool_calls import Surroundings, ToolBelt
from .turn import HookStep, ModelStep, Plan, SayStep, Step, Steps, ToolsStep

_DEFAULT_ITERATIONS: Final = 100
_T = TypeVar("_T")


def create_agent(
    model: Any,
    tools: Sequence[BaseTool | Callable[..., Any] | dict[str, Any]] = (),
    *,
    system_prompt: str | SystemMessage | None = None,
    middleware: Sequence[Any] = (),
    state_schema: type | None = None,
    max_iterations: int | None = _DEFAULT_ITERATIONS,
    name: str = "agent",
) -> AgentExecutor:
    """An agent: a model that calls tools until it has an answer.

    Args:
        model: a chat model of langchain-core.
        tools: tools, functions to make tools of, and a provider's own tools as dicts.
        system_prompt: goes in front of the messages of each model call.
        middleware: `AgentMiddleware` objects, the first one outermost.
        state_schema: a TypedDict, whose annotations say how keys of the state are merged.
        max_iterations: model calls per turn. When they are used up, the turn ends with an AIMessage
            whose `response_metadata` has `stop_reason` "max_iterations". None: no limit.
        name: of the run, as callback handlers see it.

    Raises:
        TypeError, ValueError: an argument is no good; the message says which.
    """
    if not hasattr(model, "bind_tools") or not hasattr(model, "invoke"):
        raise TypeError(f"model must be a chat model of langchain-core, not {type(model).__name__}")
    if max_iterations is not None and (
        isinstance(max_iterations, bool) or not isinstance(max_iterations, int)
    ):
        raise TypeError(f"max_iterations must be an int or None, not {max_iterations!r}")
    if max_iterations is not None and max_iterations < 1:
        raise ValueError(f"max_iterations={max_iterations} must be at least 1")
    return AgentExecutor(
        model, tools, system_prompt, middleware, state_schema, max_iterations, name
    )


class AgentExecutor(Runnable[dict[str, Any], dict[str, Any]]):
    """Runs an agent's turns. Made by `create_agent`; keeps nothing between turns.

    Input and output is the state, a dict: `messages`, and what middlewares keep there. Give a
    turn's output, with a message more, to the next turn, and the conversation goes on.
    """

    def __init__(
        self,
        model: Any,
        tools: Sequence[Any],
        system_prompt: str | SystemMessage | None,
        middleware: Sequence[Any],
        state_schema: type | None,
        max_iterations: int | None,
        name: str,
    ) -> None:
        middlewares = checked_middlewares(middleware)
        own = [tool for one in middlewares for tool in getattr(one, "tools", None) or ()]
        made = [one if isinstance(one, (dict, BaseTool)) else tool(one) for one in (*own, *tools)]
        self.name: str = name
        self._model = model
        self._system = (
            SystemMessage(content=system_prompt)
            if isinstance(system_prompt, str)
            else system_prompt
        )
        schemas = [one.state_schema for one in middlewares]
        self._rules = StateRules(
            [*([] if state_schema is None else [state_schema]), *schemas, AgentState]
        )
        self._plan = Plan(middlewares, max_iterations)
        self._around_model = with_hook(middlewares, MODEL_CALL)
        self._belt = ToolBelt(
            (one for one in made if isinstance(one, BaseTool)), with_hook(middlewares, TOOL_CALL)
        )
        provided = [one for one in made if isinstance(one, dict)]
        self._tools: list[BaseTool | dict[str, Any]] = [*self._belt.by_name.values(), *provided]

    # --- the ways to run a turn -----------------------------------------------------------------

    def invoke(
        self,
        input: Mapping[str, Any],  # noqa: A002  # Runnable's name for it
        config: RunnableConfig | None = None,
        *,
        context: Any = None,
        **_: Any,
    ) -> dict[str, Any]:
        """Run a turn; the state at its end.

        Args:
            input: the state, with `messages` in any form that langchain-core understands.
            config: as of every Runnable. `configurable.thread_id` names the conversation,
                `max_concurrency` bounds the tool calls that run at once.
            context: for hooks and tools, as `runtime.context`.

        Raises:
            Whatever the model or a hook raises; a note says which hook. Not what tools raise.
        """
        last: State = {}
        for last in self.stream(input, config, context=context, stream_mode="values"):  # noqa: B007
            pass
        return last

    async def ainvoke(
        self,
        input: Mapping[str, Any],  # noqa: A002
        config: RunnableConfig | None = None,
        *,
        context: Any = None,
        **_: Any,
    ) -> dict[str, Any]:
        """As `invoke`."""
        last: State = {}
        async for last in self.astream(input, config, context=context, stream_mode="values"):  # noqa: B007
            pass
        return last

    def stream(  # type: ignore[override]  # its keywords are named
        self,
        input: Mapping[str, Any],  # noqa: A002
        config: RunnableConfig | None = None,
        *,
        stream_mode: StreamMode = "updates",
        context: Any = None,
        **_: Any,
    ) -> Iterator[dict[str, Any]]:
        """Run a turn, step by step.

        Args:
            stream_mode: "updates" gives `{node: update}` for each update of the state, where node
                is "model", "tools" (one update per call, in their order) or
                "<middleware>.<hook>" (update None: it changed nothing); "values" gives the state,
                first as it came in and then after each step.
        """
        run = Run(self._rules, input, config, context, stream_mode)
        callbacks = get_callback_manager_for_config(run.config)
        manager = callbacks.on_chain_start(
            None, dict(input), name=run.name(self.name), run_id=run.config.get("run_id")
        )
        try:
            yield from run.first()
            steps = self._plan.steps(run.state)
            step = next(steps, None)
            while step is not None:
                config = run.child(manager.get_child())
                with set_config_context(config) as surroundings:
                    answer = surroundings.run(self._do, step, run, config)
                chunks = run.take(step, answer)
                step = _after(steps, run.state, answer)
                yield from chunks
        except BaseException as error:
            manager.on_chain_error(error)
            if isinstance(error, InterruptRefused):
                raise _refusal(error) from None
            raise
        manager.on_chain_end(run.returned())

    async def astream(  # type: ignore[override]
        self,
        input: Mapping[str, Any],  # noqa: A002
        config: RunnableConfig | None = None,
        *,
        stream_mode: StreamMode = "updates",
        context: Any = None,
        **_: Any,
    ) -> AsyncIterator[dict[str, Any]]:
        """As `stream`."""
        run = Run(self._rules, input, config, context, stream_mode)
        callbacks = get_async_callback_manager_for_config(run.config)
        manager = await callbacks.on_chain_start(
            None, dict(input), name=run.name(self.name), run_id=run.config.get("run_id")
        )
        try:
            for chunk in run.first():
                yield chunk
            steps = self._plan.steps(run.state)
            step = next(steps, None)
            while step is not None:
                config = run.child(manager.get_child())
                with set_config_context(config) as surroundings:
                    answer = await _in_context(surroundings, self._ado(step, run, config))
                chunks = run.take(step, answer)
                step = _after(steps, run.state, answer)
                for chunk in chunks:
                    yield chunk
        except BaseException as error:
            await manager.on_chain_error(error)
            if isinstance(error, InterruptRefused):
                raise _refusal(error) from None
            raise
        await manager.on_chain_end(run.returned())

    # --- steps ----------------------------------------------------------------------------------

    def _do(self, step: Step, run: Run, config: RunnableConfig) -> Answer:
        if isinstance(step, HookStep):
            return run_hook(step.middleware, step.hook, run.view(), run.runtime)
        if isinstance(step, ModelStep):
            return call_model(self._around_model, self._request(run), config)
        if isinstance(step, SayStep):
            return step.answer
        around = Surroundings(run.view(), config, run.runtime)
        if len(step.calls) == 1:
            return self._joined(step, [self._belt.call(step.calls[0], around)])
        with get_executor_for_config(config) as threads:
            futures = [threads.submit(self._belt.call, call, around) for call in step.calls]
            wait(futures)
            return self._joined(step, [future.result() for future in futures])

    async def _ado(self, step: Step, run: Run, config: RunnableConfig) -> Answer:
        if isinstance(step, HookStep):
            return await arun_hook(step.middleware, step.hook, run.view(), run.runtime)
        if isinstance(step, ModelStep):
            return await acall_model(self._around_model, self._request(run), config)
        if isinstance(step, SayStep):
            return step.answer
        around = Surroundings(run.view(), config, run.runtime)
        calls = [self._belt.acall(call, around) for call in step.calls]
        return self._joined(step, await _all(calls, config.get("max_concurrency")))

    def _request(self, run: Run) -> ModelRequest[Any]:
        state: Any = run.view()
        return ModelRequest(
            model=self._model,
            messages=list(state[MESSAGES]),
            system_message=self._system,
            tools=list(self._tools),
            state=state,
            runtime=run.runtime,
        )

    def _joined(self, step: ToolsStep, answers: Sequence[Answer]) -> Answer:
        """The answers of all calls of a message, in their order."""
        jumps = [answer.jump for answer in answers if answer.jump is not None]
        if self._belt.end_the_turn(step.calls):
            jumps.append("end")
        return Answer(
            [update for answer in answers for update in answer.updates],
            "end" if "end" in jumps else jumps[-1] if jumps else None,
        )


def _after(steps: Steps, state: State, answer: Answer) -> Step | None:
    try:
        return steps.send((state, answer.jump))
    except StopIteration:
        return None


def _refusal(error: InterruptRefused) -> RuntimeError:
    """An error for callers: a graph around the run would take one that bubbles up for its own."""
    return RuntimeError(str(error))


async def _in_context(context: contextvars.Context, work: Coroutine[Any, Any, _T]) -> _T:
    return await asyncio.get_running_loop().create_task(work, context=context)


async def _all(calls: Sequence[Coroutine[Any, Any, _T]], at_once: int | None) -> list[_T]:
    """The results in order. After an error the others are cancelled, and waited for."""
    if at_once is None:
        tasks = [asyncio.ensure_future(call) for call in calls]
    else:
        room = asyncio.Semaphore(at_once)

        async def bounded(call: Coroutine[Any, Any, _T]) -> _T:
            async with room:
                return await call

        tasks = [asyncio.ensure_future(bounded(call)) for call in calls]
    try:
        return list(await asyncio.gather(*tasks))
    except BaseException:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        raise
