"""The tool calls of one message: through the layers of `wrap_tool_call`, each to an answer.

A tool that fails, or is not there, answers with an error message: the model can read it. Layers see
the tool's exception before that, so that they may retry. What a layer raises itself is raised.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from langchain_core.messages import BaseMessage, ToolCall, ToolMessage, convert_to_messages
from langchain_core.runnables import RunnableConfig
from langchain_core.tools import BaseTool
from pydantic import ValidationError

from ..seam import (
    Command,
    GraphBubbleUp,
    ToolCallRequest,
    ToolRuntime,
    is_invalid_resume,
    msg_content_output,
)
from ..walk import Work, awalk, walk
from .hooks import (
    TOOL_CALL,
    Answer,
    InterruptRefused,
    Middleware,
    blamed,
    command_parts,
    is_interrupt,
)
from .injection import Injection, injected, injection_of
from .state import MESSAGES

_RUNTIME_FIELDS = frozenset(field.name for field in dataclasses.fields(ToolRuntime))
_Call = Callable[[ToolCallRequest], Any]
_AsyncCall = Callable[[ToolCallRequest], Awaitable[Any]]


class Surroundings(NamedTuple):
    """What the calls of one message have in common."""

    state: Mapping[str, Any]
    config: RunnableConfig
    runtime: Any  # the hooks' Runtime


class ToolBelt:
    """The tools of an agent, and the layers around their calls."""

    def __init__(self, tools: Iterable[BaseTool], layers: Sequence[Middleware]) -> None:
        self.by_name: dict[str, BaseTool] = {}
        for tool in tools:
            if self.by_name.setdefault(tool.name, tool) is not tool:
                raise ValueError(f"two tools have the name {tool.name!r}; names must differ")
        self._layers = layers
        self._injections = {name: injection_of(tool) for name, tool in self.by_name.items()}

    def call(self, call: ToolCall, around: Surroundings) -> Answer:
        """Make a call in this thread."""
        failures: list[BaseException] = []

        def do(_what: str, argument: Any) -> Any:
            tool, supplied = argument
            return tool.invoke(supplied, around.config)

        def core(request: ToolCallRequest) -> Any:
            return walk(self._steps(request, failures), do)

        try:
            made: _Call = core
            for middleware in reversed(self._layers):
                made = _wrapped(middleware, made)
            return _answer(made(self._request(call, around)))
        except Exception as error:
            return _failed(call, error, failures)

    def _steps(self, request: ToolCallRequest, failures: list[BaseException]) -> Work[Any]:
        """The call itself, within all layers."""
        try:
            tool, supplied = self._prepared(request)
            if tool is None:
                return self._unknown(request.tool_call)
            try:
                output = yield "invoke", (tool, supplied)
            except ValidationError as error:
                return _refused(request.tool_call, error)
            return _checked(request.tool_call, output)
        except Exception as error:
            if is_interrupt(error):
                raise InterruptRefused from error
            failures.append(error)
            raise

    async def acall(self, call: ToolCall, around: Surroundings) -> Answer:
        """Make a call in this event loop."""
        failures: list[BaseException] = []

        async def do(_what: str, argument: Any) -> Any:
            tool, supplied = argument
            return await tool.ainvoke(supplied, around.config)

        async def core(request: ToolCallRequest) -> Any:
            return await awalk(self._steps(request, failures), do)

        try:
            made: _AsyncCall = core
            for middleware in reversed(self._layers):
                made = _awrapped(middleware, made)
            return _answer(await made(self._request(call, around)))
        except Exception as error:
            return _failed(call, error, failures)

    def end_the_turn(self, calls: Sequence[ToolCall]) -> bool:
        """Whether what these calls answered is the agent's answer (`return_direct`)."""
        tools = [self.by_name[call["name"]] for call in calls if call["name"] in self.by_name]
        return bool(tools) and all(tool.return_direct for tool in tools)

    def _request(self, call: ToolCall, around: Surroundings) -> ToolCallRequest:
        state = dict(around.state)
        fields = {
            "state": state,
            "context": around.runtime.context,
            "config": around.config,
            "stream_writer": around.runtime.stream_writer,
            "tool_call_id": call["id"],
            "store": around.runtime.store,
            "tools": list(self.by_name.values()),
        }
        known = {name: value for name, value in fields.items() if name in _RUNTIME_FIELDS}
        return ToolCallRequest(
            tool_call=call,
            tool=self.by_name.get(call["name"]),
            state=state,
            runtime=ToolRuntime(**known),
        )

    def _prepared(self, request: ToolCallRequest) -> tuple[BaseTool | None, Any]:
        call, tool = request.tool_call, request.tool
        if tool is None:
            return None, None
        return tool, injected(call, request.runtime, self._injection(tool))

    def _injection(self, tool: BaseTool) -> Injection:
        known = self.by_name.get(tool.name)
        # A layer may bring a tool of its own, or a copy of ours.
        if known is not None and known.args_schema is tool.args_schema:
            return self._injections[tool.name]
        return injection_of(tool)

    def _unknown(self, call: ToolCall) -> ToolMessage:
        names = ", ".join(sorted(self.by_name)) or "none"
        return _error(call, f"there is no tool {call['name']!r}; available: {names}")


def _wrapped(middleware: Middleware, inner: _Call) -> _Call:
    def wrapped(request: ToolCallRequest) -> Any:
        passed: list[BaseException] = []

        def handler(request: ToolCallRequest) -> Any:
            try:
                return inner(request)
            except Exception as error:
                passed.append(error)
                raise

        with blamed(middleware, TOOL_CALL, passed):
            return _of_layer(middleware.wrap_tool_call(request, handler))

    return wrapped


def _awrapped(middleware: Middleware, inner: _AsyncCall) -> _AsyncCall:
    async def wrapped(request: ToolCallRequest) -> Any:
        passed: list[BaseException] = []

        async def handler(request: ToolCallRequest) -> Any:
            try:
                return await inner(request)
            except Exception as error:
                passed.append(error)
                raise

        with blamed(middleware, TOOL_CALL, passed):
            return _of_layer(await middleware.awrap_tool_call(request, handler))

    return wrapped


def _failed(call: ToolCall, error: Exception, failures: Sequence[BaseException]) -> Answer:
    """The answer for what the tool raised; anything else is raised."""
    if isinstance(error, GraphBubbleUp) or is_invalid_resume(error):
        raise error
    if not any(error is failure for failure in failures):
        raise error
    message = str(error)
    kind = type(error).__name__
    return _answer(_error(call, f"{kind}: {message}" if message else kind))


def _refused(call: ToolCall, error: ValidationError) -> ToolMessage:
    if is_invalid_resume(error):
        raise error
    problems = (
        f"{'.'.join(map(str, one['loc']))}: {one['msg']}" if one["loc"] else one["msg"]
        for one in error.errors(include_url=False, include_input=False, include_context=False)
    )
    return _error(call, f"invalid input for {call['name']}: {'; '.join(problems)}")


def _error(call: ToolCall, text: str) -> ToolMessage:
    return ToolMessage(text, name=call["name"], tool_call_id=call["id"], status="error")


def _checked(call: ToolCall, output: Any) -> Any:
    """What a tool returned: a message, or commands of which exactly one answers the call."""
    if isinstance(output, ToolMessage):
        content: Any = msg_content_output(output.content)
        output.content = content
        return output
    items = output if isinstance(output, list) else [output]
    answers = 0
    for item in items:
        if isinstance(item, ToolMessage):
            answers += item.tool_call_id == call["id"]
        elif isinstance(item, Command):
            update, _ = command_parts(item)
            for message in _messages(update):
                answers += getattr(message, "tool_call_id", None) == call["id"]
        else:
            raise TypeError(f"the tool returned {type(item).__name__}, not a message or a Command")
    if answers != 1:
        raise ValueError(
            f"a Command must bring one ToolMessage with the call's tool_call_id among its "
            f"update's messages; {call['name']} brought {answers or 'none'}"
        )
    return output


def _messages(update: Mapping[str, Any]) -> list[BaseMessage]:
    messages = update.get(MESSAGES, ())
    return convert_to_messages(messages if isinstance(messages, (list, tuple)) else [messages])


def _of_layer(output: Any) -> Any:
    for item in output if isinstance(output, list) else [output]:
        if not isinstance(item, (ToolMessage, Command)):
            raise TypeError(f"it returned {type(item).__name__}, not a ToolMessage or a Command")
    return output


def _answer(output: Any) -> Answer:
    updates: list[Mapping[str, Any] | None] = []
    jump: str | None = None
    for item in output if isinstance(output, list) else [output]:
        if isinstance(item, Command):
            update, goto = command_parts(item)
            jump = goto or jump
            updates.append(update or None)
        else:
            updates.append({MESSAGES: [item]})
    return Answer(updates, jump)
