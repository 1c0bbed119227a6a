"""`CodeInterpreterMiddleware`: the hooks of the agent, each a few lines over what does the work."""

from __future__ import annotations

import inspect
import os
import weakref
from collections.abc import Awaitable, Callable, Mapping, Sequence
from types import TracebackType
from typing import Annotated, Any, NotRequired

from langchain_core.messages import SystemMessage
from langchain_core.tools import BaseTool

from qjs_pool.pool_front import PoolFront
from qjs_pool.tools import Toolbox

from .options import Clock, Mode, checked_options
from .prompts import calls_section, functions_section, repl_section, skills_section
from .saved import state_channel
from .seam import (
    AgentMiddleware,
    AgentState,
    BaseStore,
    ContextT,
    ModelRequest,
    ModelResponse,
    PrivateStateAttr,
    ResponseT,
    Runtime,
    ToolCallRequest,
    get_config,
)
from .threads import STATE_KEY, Thread, new_private_id, thread_id_of, thread_key
from .tool import Evaluator, ToolPath, tool_path

_MEMORY_BYTES = 64 << 20
_CHANNEL = state_channel()


class InterpreterState(AgentState[Any]):
    """What the middleware keeps in the graph's state: a private id, where no thread id is given,
    and the REPL's state."""

    _qjs_pool_thread: NotRequired[Annotated[str, PrivateStateAttr]]
    _qjs_pool_snapshot: NotRequired[Annotated[dict[str, Any], _CHANNEL, PrivateStateAttr]]


class CodeInterpreterMiddleware(AgentMiddleware[InterpreterState, ContextT, ResponseT]):
    """Gives an agent a tool that runs JavaScript and TypeScript in a sandboxed worker process.

    Put it before the middlewares that are to see the tool calls which programs make.

    Args:
        memory_limit: bytes of JavaScript heap.
        timeout: CPU seconds per eval; waiting for tools is free. None or negative: no limit.
        tool_name: the name of the tool.
        capture_console: show the model what programs print.
        max_result_chars: cut a result, an error and the console output at so many characters.
        ptc: the agent's tools that programs may call, as `tools.<name>(input)`: names, globs
            (`"read_*"`), exclusions (`"!execute"`), and `BaseTool` objects.
        ptc_interrupt_on: tools whose calls by programs need a person's approval: True, or
            `{"allowed_decisions": [...], "description": text or callable, "when": callable}`, as
            in LangChain's human-in-the-loop middleware. Needs a checkpointer.
        max_ptc_calls: tool calls per eval. None: unlimited.
        subagents: let programs start subagents with `task()`, where the agent has them.
        max_subagent_concurrency: subagents of one conversation's programs that run at once; the
            rest waits.
        mode: what the REPL keeps: "thread" between turns, "turn" within one, "call" nothing.
        max_snapshot_bytes: the largest snapshot kept. None: as `memory_limit`.
        snapshot_signing_key: a secret, or several; the first signs, and snapshots that none of
            them has signed, for the same thread, are refused.
        snapshot_store: a folder, or a LangGraph store, for the bytes of snapshots; the graph's
            state then holds hashes only.
        park: seconds that a conversation's worker stays after its last eval, so that closures and
            all else that no snapshot can hold go on. 0: not at all.
        max_parked: workers that stay; the least recently used go first.
        skills_backend: a Deep Agents backend (or a callable that makes one) whose skills' code
            programs may import, as `@/skills/<name>`.
        system_prompt: replaces the built-in text about the REPL; signatures still follow it.
        max_stack_size: bytes of JavaScript stack. None: 1 MiB.
        wall_timeout: seconds per eval, everything counted. None: no limit.
        clock: what `Date` tells programs: "off", "frozen" (at the eval's start) or "real".
        pool: a `Pool` or `AsyncPool` to share. None: one of its own, started with the first eval
            and closed by `close()`. Limits left at their defaults are then the pool's.
        propagate_tool_errors: raise a tool's exception from the agent's run, as a call by the
            model would, instead of rejecting the program's promise.
        snapshot_between_turns: deprecated; False means `mode="turn"`.

    Raises:
        TypeError, ValueError: an option is no good; the message names it.
    """

    state_schema = InterpreterState

    def __init__(
        self,
        *,
        memory_limit: int = _MEMORY_BYTES,
        timeout: float | None = 5.0,
        tool_name: str = "eval",
        capture_console: bool = True,
        max_result_chars: int = 4000,
        ptc: Sequence[str | BaseTool] | None = None,
        max_ptc_calls: int | None = 256,
        subagents: bool = True,
        max_subagent_concurrency: int = 32,
        mode: Mode = "thread",
        max_snapshot_bytes: int | None = None,
        snapshot_signing_key: str | bytes | Sequence[str | bytes] | None = None,
        snapshot_store: str | os.PathLike[str] | BaseStore | None = None,
        park: float = 300.0,
        max_parked: int = 256,
        skills_backend: Any = None,
        system_prompt: str | None = None,
        max_stack_size: int | None = None,
        wall_timeout: float | None = 300.0,
        clock: Clock = "off",
        pool: PoolFront | None = None,
        propagate_tool_errors: bool = False,
        snapshot_between_turns: bool | None = None,
        ptc_interrupt_on: Mapping[str, Any] | None = None,
    ) -> None:
        given = locals()
        names = inspect.signature(CodeInterpreterMiddleware.__init__).parameters
        super().__init__()
        self._options = checked_options({name: given[name] for name in names if name != "self"})
        self._evaluator = Evaluator(self._options)
        self._base_prompt = (
            repl_section(self._options)
            if self._options.system_prompt is None
            else self._options.system_prompt
        )
        self.tools: Sequence[BaseTool] = [self._evaluator.tool()]
        weakref.finalize(self, self._evaluator.close)

    @property
    def name(self) -> str:
        """An agent may have several, under different tool names."""
        own = type(self).__name__
        return own if self._options.tool_name == "eval" else f"{own}_{self._options.tool_name}"

    def close(self) -> None:
        """End the REPLs, and the pool unless it is shared. Idempotent; never waits for a guest."""
        self._evaluator.close()

    def __enter__(self) -> CodeInterpreterMiddleware[ContextT, ResponseT]:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    # --- around a turn --------------------------------------------------------------------------

    def before_agent(
        self, state: InterpreterState, runtime: Runtime[ContextT]
    ) -> dict[str, Any] | None:
        """Make sure that the conversation has an identity, and start its turn."""
        self._evaluator.skills.check(state)
        config = _config()
        if thread_id_of(config) is None and not state.get(STATE_KEY):
            return {STATE_KEY: new_private_id()}
        thread = self._evaluator.registry.known(thread_key(config, state))
        if thread is not None:
            self._evaluator.start_turn(thread)
        return None

    async def abefore_agent(
        self, state: InterpreterState, runtime: Runtime[ContextT]
    ) -> dict[str, Any] | None:
        """As `before_agent`."""
        return self.before_agent(state, runtime)

    def after_agent(
        self, state: InterpreterState, runtime: Runtime[ContextT]
    ) -> dict[str, Any] | None:
        """Wait for tool calls that still run, and close what the next turn does not need."""
        thread = self._evaluator.registry.known(thread_key(_config(), state))
        if thread is not None:
            return self._evaluator.end_turn(thread, state)
        return None

    async def aafter_agent(
        self, state: InterpreterState, runtime: Runtime[ContextT]
    ) -> dict[str, Any] | None:
        """As `after_agent`."""
        thread = self._evaluator.registry.known(thread_key(_config(), state))
        if thread is not None:
            return await self._evaluator.aend_turn(thread, state)
        return None

    # --- around a model call --------------------------------------------------------------------

    def wrap_model_call(
        self,
        request: ModelRequest[ContextT],
        handler: Callable[[ModelRequest[ContextT]], ModelResponse[ResponseT]],
    ) -> ModelResponse[ResponseT]:
        """Offer the tools of this request inside the REPL, and tell the model about them."""
        return handler(self._prepared(request))

    async def awrap_model_call(
        self,
        request: ModelRequest[ContextT],
        handler: Callable[[ModelRequest[ContextT]], Awaitable[ModelResponse[ResponseT]]],
    ) -> ModelResponse[ResponseT]:
        """As `wrap_model_call`."""
        return await handler(self._prepared(request))

    def _prepared(self, request: ModelRequest[ContextT]) -> ModelRequest[ContextT]:
        thread = self._thread(request.state)
        thread.exposed = self._evaluator.exposed(request.tools)
        parts = [self._base_prompt]
        pool = self._options.pool
        functions = () if pool is None else pool._core.toolbox_described(Toolbox.of(None))
        if thread.exposed.tools or functions:
            concurrency = (pool._core.options if pool is not None else self._options).limits
            parts.append(calls_section(self._options, concurrency.host_concurrency))
        if thread.exposed.tools:
            parts.append(thread.exposed.prompt)
        if functions:
            parts.append(functions_section(functions))
        parts += thread.exposed.sections
        if names := self._evaluator.skills.names(request.state):
            parts.append(skills_section(names))
        return request.override(system_message=_extended(request.system_message, parts))

    def _thread(self, state: Any) -> Thread:
        return self._evaluator.registry.of(thread_key(_config(), state))

    # --- around a tool call ---------------------------------------------------------------------

    def wrap_tool_call(
        self, request: ToolCallRequest, handler: Callable[[ToolCallRequest], Any]
    ) -> Any:
        """Keep the way that tool calls go, for those which the program makes."""
        if request.tool_call["name"] != self._options.tool_name:
            return handler(request)
        with tool_path(ToolPath(request, handler, in_loop=False)):
            return handler(request)

    async def awrap_tool_call(
        self, request: ToolCallRequest, handler: Callable[[ToolCallRequest], Awaitable[Any]]
    ) -> Any:
        """As `wrap_tool_call`."""
        if request.tool_call["name"] != self._options.tool_name:
            return await handler(request)
        with tool_path(ToolPath(request, handler, in_loop=True)):
            return await handler(request)


def _config() -> Mapping[str, Any]:
    try:
        return get_config()
    except RuntimeError:  # a hook called from outside of a graph
        return {}


def _extended(message: SystemMessage | None, parts: Sequence[str]) -> SystemMessage:
    """The system message with our part behind it."""
    text = "\n\n".join(part for part in parts if part)
    if message is None or not message.content:
        return SystemMessage(content=text)
    if isinstance(message.content, str):
        return message.model_copy(update={"content": f"{message.content}\n\n{text}"})
    blocks = [*message.content, {"type": "text", "text": f"\n\n{text}"}]
    return message.model_copy(update={"content": blocks})
