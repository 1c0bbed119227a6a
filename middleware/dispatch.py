"""From a guest's tool call to the agent's own tool path, and back.

A call goes through the handler that the agent gave the running eval, so that injection, retries,
logging and tracing apply as they do to a call by the model. What the tool itself returned is caught
on the way (a `RelayedTool`), because the handler's answer is a message: text.
"""

from __future__ import annotations

import asyncio
import contextvars
import dataclasses
import threading
from collections.abc import Callable, Mapping
from typing import Any, Final

from langchain_core.messages import ToolCall, ToolMessage
from langchain_core.runnables import RunnableConfig
from langchain_core.tools import BaseTool

from qjs_pool.errors import UsageError
from qjs_pool.pool_core import PoolCore
from qjs_pool.tools import describe_error

from .capture import Record, capturing, current_record, injected_names
from .seam import (
    Command,
    GraphBubbleUp,
    ToolCallRequest,
    ToolInvocationError,
    ToolRuntime,
    is_invalid_resume,
)
from .updates import StateUpdates
from .values import crossing

Handler = Callable[[ToolCallRequest], Any]

_INVOCATION_ERROR: Final = " with error:\n"
_INVOCATION_ADVICE: Final = "Please fix the error and try again."


class ToolError(UsageError):
    """A tool answered with an error message. A UsageError: shown to the guest under any policy
    but "none", as the agent would show it to the model."""


class CallCancelled(Exception):
    """The turn ended while the call ran."""


class StopEval(BaseException):
    """Ends the eval, unseen by the guest; `error` is what the eval's caller gets raised.

    No Exception, so that any pool's relay takes it for none of the guest's business.
    """

    def __init__(self, error: BaseException) -> None:
        super().__init__(error)
        self.error = error


class EvalScope:
    """One eval: where its tool calls go, and what they left behind. Thread-safe."""

    def __init__(
        self,
        *,
        request: ToolCallRequest | None,
        handler: Handler | None,
        runtime: ToolRuntime[Any, Any] | None,
        config: RunnableConfig,
        pool: PoolCore,
        propagate_errors: bool,
    ) -> None:
        self.config = config
        self.pool = pool
        self.over = False  # the eval has returned; what still runs is a straggler
        self.open: dict[int, Record] = {}
        self.updates = StateUpdates(None if runtime is None else runtime.state, config)
        self._request = request
        self._handler = handler
        self._runtime = runtime
        self._propagate_errors = propagate_errors
        self._lock = threading.Lock()
        self._started = 0
        self._failures: dict[tuple[str, str], str] = {}
        self.call_id = (runtime.tool_call_id if runtime is not None else None) or "eval"

    # --- calls ----------------------------------------------------------------------------------

    def start(self, tool_name: str) -> Record:
        with self._lock:
            self._started += 1
            index = self._started
            record = Record(index, f"{self.call_id}_ptc_{index}", tool_name, self.config, self.pool)
            self.open[index] = record
        return record

    def end(self, record: Record) -> None:
        with self._lock:
            self.open.pop(record.index, None)
        record.ended.set_result(None)

    def handle(self, record: Record, relayed: RelayedTool, args: Any) -> Any:
        """Pass the call on: the outcome, or for an async handler its awaitable."""
        call = ToolCall(
            name=relayed.tool.name,
            args={name: arg for name, arg in _named(args).items() if name not in relayed.injected},
            id=record.call_id,
            type="tool_call",
        )
        if self._request is None or self._handler is None:
            return None
        state = self.updates.state
        request = dataclasses.replace(
            self._request,
            tool_call=call,
            tool=relayed.stand_in,
            state=state,
            runtime=dataclasses.replace(
                self._request.runtime, tool_call_id=call["id"], config=self.config, state=state
            ),
        )
        return self._handler(request)

    @property
    def inside_agent(self) -> bool:
        """Whether there is a tool path to go through."""
        return self._handler is not None

    def settle(self, record: Record, outcome: Any) -> Any:
        """The value that the guest gets for the outcome of a call.

        Raises:
            ToolError: the outcome says that the tool failed.
        """
        items = outcome if isinstance(outcome, list) else [outcome]
        answer: Any = None
        for item in items:
            if isinstance(item, Command):
                self.updates.add(record.index, record.call_id, item)
                message = _answer_in(item, record.call_id)
                answer = message if message is not None else answer
            elif isinstance(item, ToolMessage):
                answer = item
        if isinstance(answer, ToolMessage) and answer.status == "error":
            raise ToolError(_plain_message(answer))
        if record.returned(answer):
            return crossing(record.value)
        return crossing(getattr(answer, "content", None))

    def failed(self, record: Record, error: BaseException) -> BaseException:
        """What to raise for the error of a call."""
        if isinstance(error, asyncio.CancelledError):
            # Nobody waits for a straggler's cancellation, and the next eval must not be told.
            return CallCancelled("the turn ended first") if self.over else error
        if isinstance(error, GraphBubbleUp) or is_invalid_resume(error):
            return StopEval(error)
        if not isinstance(error, Exception):
            return error
        if self._propagate_errors and not isinstance(error, ToolError):
            return StopEval(error)
        if isinstance(error, ToolInvocationError):
            error = ToolError(_plain_text(str(error)))
        described = describe_error(error, self.pool.options.relay.errors)
        with self._lock:
            self._failures[described] = record.tool_name
        return error

    def culprit(self, name: str, message: str) -> str | None:
        """The tool whose failure that error of the eval is, if it is one."""
        for (known_name, known_message), tool_name in self._failures.items():
            # A result may add to the message what became of the state.
            if name == known_name and message.startswith(known_message):
                return tool_name
        return None

    # --- the end --------------------------------------------------------------------------------

    def finish(self) -> list[Record]:
        """The eval has returned: the calls that go on without it."""
        with self._lock:
            self.over = True
            return list(self.open.values())


_SCOPE: Final[contextvars.ContextVar[EvalScope]] = contextvars.ContextVar("qjs_pool_eval")


def enter_scope(scope: EvalScope) -> contextvars.Token[EvalScope]:
    """Tool calls that start in this context are of that eval. Threads and tasks inherit it."""
    return _SCOPE.set(scope)


def leave_scope(token: contextvars.Token[EvalScope]) -> None:
    _SCOPE.reset(token)


class RelayedTool:
    """One of the agent's tools as the relay calls it, in a thread or in an event loop."""

    def __init__(self, tool: BaseTool) -> None:
        self.tool = tool
        self.stand_in = capturing(tool)
        self.injected = injected_names(tool)

    def call(self, args: Any) -> Any:
        """For sync drivers; runs in a thread of its own."""
        scope = _SCOPE.get()
        record = scope.start(self.tool.name)
        try:
            with current_record(record):
                if scope.inside_agent:
                    outcome = scope.handle(record, self, args)
                else:
                    outcome = self.stand_in.invoke(self._direct(record, args), scope.config)
            return scope.settle(record, outcome)
        except BaseException as error:
            raise scope.failed(record, error) from None
        finally:
            scope.end(record)

    async def acall(self, args: Any) -> Any:
        """For event loops; runs as a task of the caller's."""
        scope = _SCOPE.get()
        record = scope.start(self.tool.name)
        record.task = asyncio.current_task()
        try:
            with current_record(record):
                if scope.inside_agent:
                    outcome = await scope.handle(record, self, args)
                else:
                    call = self._direct(record, args)
                    outcome = await self.stand_in.ainvoke(call, scope.config)
            return scope.settle(record, outcome)
        except BaseException as error:
            raise scope.failed(record, error) from None
        finally:
            scope.end(record)

    def _direct(self, record: Record, args: Any) -> ToolCall:
        named = {k: v for k, v in _named(args).items() if k not in self.injected}
        return ToolCall(name=self.tool.name, args=named, id=record.call_id, type="tool_call")


def _named(args: Any) -> dict[str, Any]:
    # The bridge wraps what is no object; a worker that was taken over may send anything.
    if not isinstance(args, Mapping):
        return {"input": args}
    return {str(name): arg for name, arg in args.items()}


def _answer_in(command: Command[Any], call_id: str) -> Any:
    """The message in a command's update that answers the call, or else its last one."""
    update = command.update
    messages = update.get("messages", []) if isinstance(update, dict) else []
    last = None
    for message in messages if isinstance(messages, list) else []:
        if isinstance(message, ToolMessage) and message.tool_call_id == call_id:
            return message
        last = message
    return last


def _plain_message(message: ToolMessage) -> str:
    return _plain_text(message.text if isinstance(message.content, list) else message.content)


def _plain_text(text: str) -> str:
    """An invocation error without the echo of its arguments, which may be megabytes."""
    if not text.startswith("Error invoking tool "):
        return text
    head, found, tail = text.rpartition(_INVOCATION_ERROR)
    if not found:
        return text
    name = head.removeprefix("Error invoking tool ").split(" ", 1)[0].strip("'")
    problem = " ".join(tail.replace(_INVOCATION_ADVICE, "").split())
    return f"invalid input for {name}: {problem}"
