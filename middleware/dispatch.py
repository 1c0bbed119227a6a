"""From a guest's tool call to the agent's own tool path, and back.

A call goes through the handler that the agent gave the running eval, so that injection, retries,
logging and tracing apply as they do to a call by the model. What the tool itself returned is caught
on the way (a `RelayedTool`), because the handler's answer is a message: text.
"""

from __future__ import annotations

import asyncio
import contextlib
import contextvars
import dataclasses
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Final, NamedTuple

from langchain_core.messages import ToolCall, ToolMessage
from langchain_core.runnables import RunnableConfig
from langchain_core.runnables.config import var_child_runnable_config
from langchain_core.tools import BaseTool

from qjs_pool.errors import UsageError
from qjs_pool.holding import Suspend
from qjs_pool.pool_core import PoolCore
from qjs_pool.relay import call_number
from qjs_pool.result import EvalResult
from qjs_pool.tools import describe_error

from .approval import Gates, Rejected, decided_args
from .bound import bound
from .capture import Record, capturing, current_record, injected_names
from .interrupts import Asked, Given, Question, asked_by, call_config
from .seam import (
    Command,
    GraphBubbleUp,
    GraphInterrupt,
    ToolCallRequest,
    ToolInvocationError,
    ToolRuntime,
    is_invalid_resume,
)
from .updates import StateUpdates
from .values import crossing

Handler = Callable[[ToolCallRequest], Any]

_NOTHING: Final = Given()
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
        gates: Gates,
        suspends: bool,
    ) -> None:
        self.config = config
        self.pool = pool
        self.over = False  # the eval has returned; what still runs is a straggler
        self.outer: EvalScope | None = None  # a call of its program has made this one
        self.conversation: object = None  # whose session it runs in
        self.open: dict[int, Record] = {}
        self.base = ""  # the state that it started from
        self.updates = StateUpdates(None if runtime is None else runtime.state, config)
        self._request = request
        self._handler = handler
        self._runtime = runtime
        self._propagate_errors = propagate_errors
        self._gates = gates
        self.suspends = suspends  # a call that is interrupted waits; else it ends the eval
        self._lock = threading.Lock()
        self._started = 0
        self._failures: dict[tuple[str, str], str] = {}
        self.call_id = (runtime.tool_call_id if runtime is not None else None) or "eval"

    # --- calls ----------------------------------------------------------------------------------

    def start(self, tool_name: str, given: Given) -> Record:
        with self._lock:
            # As the guest made them, in whatever order threads come by: ids and namespaces must
            # be the same when the call is run again.
            self._started += 1
            index = call_number.get(self._started)
            config = call_config(self.config, index, given)
            record = Record(index, f"{self.call_id}_ptc_{index}", tool_name, config, self.pool)
            self.open[index] = record
        return record

    def end(self, record: Record) -> None:
        with self._lock:
            self.open.pop(record.index, None)
        record.ended.set_result(None)

    def handle(
        self, record: Record, relayed: RelayedTool, args: Any, config: RunnableConfig
    ) -> Any:
        """Pass the call on: the outcome, or for an async handler its awaitable."""
        request = self._requested(record, relayed, args, config)
        return None if request is None or self._handler is None else self._handler(request)

    def admit(self, record: Record, relayed: RelayedTool, args: Any, given: Given) -> Any:
        """The input that the tool is called with, after a person's decision where one is needed.

        Raises:
            Suspend: it is to be made. ToolError: it was, against the call.
        """
        if given.decision is not None:
            try:
                return decided_args(given.decision, args)
            except Rejected as error:
                raise ToolError(str(error)) from None
        gate = self._gates.get(relayed.tool.name)
        if gate is None:
            return args
        try:
            request = self._requested(record, relayed, args, record.config)
            if not gate.applies(request):
                return args
            name, shown = relayed.tool.name, relayed.named(args)
            about = gate.describe(request, name, shown)
        except Exception as error:
            raise StopEval(error) from error  # a gate that fails lets nothing through
        action = {"id": record.call_id, "name": name, "args": shown, "description": about}
        asked = Asked((Question(record.call_id, name, action, gate.allowed),), given)
        raise Suspend(asked) if self.suspends else StopEval(_no_approval(name))

    def _requested(
        self, record: Record, relayed: RelayedTool, args: Any, config: RunnableConfig
    ) -> ToolCallRequest | None:
        if self._request is None:
            return None
        call = relayed.asked(record, args)
        state = self.updates.state
        return dataclasses.replace(
            self._request,
            tool_call=call,
            tool=relayed.stand_in,
            state=state,
            runtime=dataclasses.replace(
                self._request.runtime, tool_call_id=call["id"], config=config, state=state
            ),
        )

    @property
    def stream_writer(self) -> Callable[[Any], None] | None:
        """Writes to the run's custom stream, where there is a run."""
        return None if self._runtime is None else self._runtime.stream_writer

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

    def restore(self, commands: Sequence[tuple[int, str, Command[Any]]]) -> None:
        """Take over the updates of calls that were made before the eval was suspended."""
        for index, call_id, command in commands:
            self.updates.add(index, call_id, command)

    def failed(self, record: Record, error: BaseException, given: Given) -> BaseException:
        """What to raise for the error of a call."""
        if isinstance(error, GraphInterrupt) and self.suspends:
            return Suspend(asked_by(error, record.config, record.call_id, record.tool_name, given))
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

    @property
    def waits_for_itself(self) -> bool:
        """Whether a program that waits for this eval has the session that it is to run in."""
        outer = self.outer
        while outer is not None:
            if outer.conversation is self.conversation and not outer.over:
                return True
            outer = outer.outer
        return False

    # --- the end --------------------------------------------------------------------------------

    def finish(self, result: EvalResult | None) -> list[Record]:
        """The eval has ended: the calls that go on without it. Without a result, none is to."""
        traced = () if result is None else result.calls
        with self._lock:
            self.over = True
            for record in self.open.values():
                call = traced[record.index - 1] if record.index <= len(traced) else None
                record.given_up = result is None or (
                    call is not None and call.outcome == "cancelled"
                )
            return list(self.open.values())


_SCOPE: Final[contextvars.ContextVar[EvalScope]] = contextvars.ContextVar("qjs_pool_eval")


def within(scope: EvalScope) -> contextlib.AbstractContextManager[None]:
    """Tool calls that start in this context are of that eval. Threads and tasks inherit it."""
    scope.outer = _SCOPE.get(None)
    return bound(_SCOPE, scope)


class Prepared(NamedTuple):
    """A call as the tool path gets it, and what its answer means to the guest."""

    args: Any
    config: RunnableConfig
    answer: Callable[[Any], Any] = lambda value: value


class RelayedTool:
    """One of the agent's tools as the relay calls it, in a thread or in an event loop."""

    def __init__(self, tool: BaseTool) -> None:
        self.tool = tool
        self.stand_in = capturing(tool)
        self.injected = injected_names(tool)

    @contextlib.contextmanager
    def prepared(self, scope: EvalScope, record: Record, args: Any) -> Iterator[Prepared]:
        """Around the call."""
        yield Prepared(args, record.config)

    def call(self, args: Any, given: Given = _NOTHING) -> Any:
        """For sync drivers; runs in a thread of its own. `given`: it is run again, with that."""
        scope = _SCOPE.get()
        record = scope.start(self.tool.name, given)
        try:
            args = scope.admit(record, self, args, given)
            if (response := _response(given)) is not None:
                return response
            with self._around(scope, record, args) as one:
                if scope.inside_agent:
                    outcome = scope.handle(record, self, one.args, one.config)
                else:
                    outcome = self.stand_in.invoke(self.asked(record, one.args), one.config)
                return one.answer(scope.settle(record, outcome))
        except BaseException as error:
            raise scope.failed(record, error, given) from None
        finally:
            scope.end(record)

    @contextlib.contextmanager
    def _around(self, scope: EvalScope, record: Record, args: Any) -> Iterator[Prepared]:
        with (
            current_record(record),
            self.prepared(scope, record, args) as one,
            _ambient(one.config),
        ):
            yield one

    async def acall(self, args: Any, given: Given = _NOTHING) -> Any:
        """For event loops; runs as a task of the caller's. As `call`."""
        scope = _SCOPE.get()
        record = scope.start(self.tool.name, given)
        record.task = asyncio.current_task()
        try:
            args = scope.admit(record, self, args, given)
            if (response := _response(given)) is not None:
                return response
            with self._around(scope, record, args) as one:
                if scope.inside_agent:
                    outcome = await scope.handle(record, self, one.args, one.config)
                else:
                    call = self.asked(record, one.args)
                    outcome = await self.stand_in.ainvoke(call, one.config)
                return one.answer(scope.settle(record, outcome))
        except BaseException as error:
            raise scope.failed(record, error, given) from None
        finally:
            scope.end(record)

    def named(self, args: Any) -> dict[str, Any]:
        """The arguments that a caller may give."""
        return {name: arg for name, arg in _named(args).items() if name not in self.injected}

    def asked(self, record: Record, args: Any) -> ToolCall:
        """The call as the agent's tool path knows calls."""
        call_id, named = record.call_id, self.named(args)
        return ToolCall(name=self.tool.name, args=named, id=call_id, type="tool_call")


def _ambient(config: RunnableConfig) -> contextlib.AbstractContextManager[None]:
    """What `get_config()` gives: middlewares around the tool may interrupt as well."""
    return bound(var_child_runnable_config, config)


def _response(given: Given) -> str | None:
    """What a person answered in place of the tool."""
    decision = given.decision
    if decision is None or decision["type"] != "respond":
        return None
    return str(decision["message"])


def _no_approval(name: str) -> UsageError:
    return UsageError(
        f"a call of {name} needs approval (ptc_interrupt_on), which needs a checkpointer"
    )


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
