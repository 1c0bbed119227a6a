"""`create_agent`, and the executor that runs its turns: in a thread or in an event loop."""

from __future__ import annotations

import asyncio
import contextvars
import uuid
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator, Mapping, Sequence
from concurrent.futures import wait
from typing import Any, Final, Literal, TypeVar, get_args

from langchain_core.messages import SystemMessage
from langchain_core.runnables import Runnable, RunnableConfig, ensure_config, patch_config
from langchain_core.runnables.config import (
    get_async_callback_manager_for_config,
    get_callback_manager_for_config,
    get_executor_for_config,
    set_config_context,
)
from langchain_core.tools import BaseTool, tool

from ..carried import CARRIED_KEY, Carried
from ..seam import AgentState, ModelRequest, Runtime
from .hooks import (
    MODEL_CALL,
    TOOL_CALL,
    Answer,
    arun_hook,
    checked_middlewares,
    run_hook,
    with_hook,
)
from .model_call import acall_model, call_model
from .state import MESSAGES, State, StateRules
from .tool_calls import Surroundings, ToolBelt
from .turn import HookStep, ModelStep, Plan, SayStep, Step, Steps, ToolsStep

StreamMode = Literal["updates", "values"]
_DEFAULT_ITERATIONS: Final = 100
_GRAPHS_OWN: Final = ("__pregel_", "checkpoint_")
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
        run = _Run(self._rules, input, config, context, stream_mode)
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
            raise
        manager.on_chain_end(self._rules.returned(run.state))

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
        run = _Run(self._rules, input, config, context, stream_mode)
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
            raise
        await manager.on_chain_end(self._rules.returned(run.state))

    # --- steps ----------------------------------------------------------------------------------

    def _do(self, step: Step, run: _Run, config: RunnableConfig) -> Answer:
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

    async def _ado(self, step: Step, run: _Run, config: RunnableConfig) -> Answer:
        if isinstance(step, HookStep):
            return await arun_hook(step.middleware, step.hook, run.view(), run.runtime)
        if isinstance(step, ModelStep):
            return await acall_model(self._around_model, self._request(run), config)
        if isinstance(step, SayStep):
            return step.answer
        around = Surroundings(run.view(), config, run.runtime)
        calls = [self._belt.acall(call, around) for call in step.calls]
        return self._joined(step, await _all(calls, config.get("max_concurrency")))

    def _request(self, run: _Run) -> ModelRequest[Any]:
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


class _Run:
    """One turn: its state as far as it has got, and what all of its steps get."""

    def __init__(
        self,
        rules: StateRules,
        given: Mapping[str, Any],
        config: RunnableConfig | None,
        context: Any,
        mode: StreamMode,
    ) -> None:
        if not isinstance(given, Mapping):
            raise TypeError(f"the input must be a state, a dict, not {type(given).__name__}")
        if mode not in get_args(StreamMode):
            raise ValueError(f"stream_mode={mode!r} is unknown; choose 'updates' or 'values'")
        self.state = rules.opened(given)
        self.config = ensure_config(config)
        self.runtime: Any = Runtime(context=context)
        self._rules = rules
        self._mode = mode
        self._configurable, self._thread_id, self._namespace = _own(self.config)

    def name(self, default: str) -> str:
        """Of the run, for callback handlers."""
        return self.config.get("run_name") or default

    def view(self) -> State:
        """The state, for others: what they do to it is not done to ours."""
        return {**self.state, MESSAGES: list(self.state[MESSAGES])}

    def child(self, callbacks: Any) -> RunnableConfig:
        """The configuration of what a step runs."""
        carried = Carried(self._thread_id, self._namespace, self._rules.slots(self.state))
        config = patch_config(self.config, callbacks=callbacks)
        config["configurable"] = {**self._configurable, CARRIED_KEY: carried}
        return config

    def first(self) -> list[dict[str, Any]]:
        """What a stream starts with."""
        return [self._rules.returned(self.state)] if self._mode == "values" else []

    def take(self, step: Step, answer: Answer) -> list[dict[str, Any]]:
        """Go on to the state that a step led to; what a stream gives of that."""
        for update in answer.updates:
            if update is not None:
                self.state = self._rules.applied(self.state, update)
        if self._mode == "values":
            return [self._rules.returned(self.state)]
        return [{step.node: update} for update in answer.updates]


def _own(config: RunnableConfig) -> tuple[dict[str, Any], str | None, str]:
    """What is configurable without what is a surrounding run's; the thread; the run's namespace.

    A run within another run, on the same thread, has a REPL of its own, as a sub-agent has.
    """
    given = config.get("configurable", {})
    own = {name: value for name, value in given.items() if not name.startswith(_GRAPHS_OWN)}
    around = own.pop(CARRIED_KEY, None)
    thread_id = given.get("thread_id")
    thread_id = None if thread_id is None else str(thread_id)
    within = isinstance(around, Carried) and around.thread_id == thread_id
    within = within or bool(given.get("checkpoint_ns"))
    return own, thread_id, f"run:{uuid.uuid4().hex}" if within else ""


def _after(steps: Steps, state: State, answer: Answer) -> Step | None:
    try:
        return steps.send((state, answer.jump))
    except StopIteration:
        return None


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
