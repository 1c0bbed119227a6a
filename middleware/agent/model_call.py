"""One model call: the request, through the layers of `wrap_model_call`, to the model and back."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from typing import Any, NamedTuple

from langchain_core.messages import AIMessage, BaseMessage
from langchain_core.runnables import RunnableConfig

from ..seam import ExtendedModelResponse, ModelRequest, ModelResponse
from .hooks import MODEL_CALL, Answer, Middleware, blamed, command_parts
from .state import JUMP, MESSAGES

Request = ModelRequest[Any]
Response = ModelResponse[Any]


class _Told(NamedTuple):
    """A response, and the updates that layers add to it, the innermost layer's first."""

    response: Response
    updates: list[dict[str, Any]]


_Call = Callable[[Request], _Told]
_AsyncCall = Callable[[Request], Awaitable[_Told]]


def call_model(layers: Sequence[Middleware], request: Request, config: RunnableConfig) -> Answer:
    """The updates of the state that a model call brings."""

    def core(asked: Request) -> _Told:
        return _told(_bound(asked).invoke(_conversation(asked), config))

    made: _Call = core
    for middleware in reversed(layers):
        made = _wrapped(middleware, made)
    return _answer(made(request))


async def acall_model(
    layers: Sequence[Middleware], request: Request, config: RunnableConfig
) -> Answer:
    """As `call_model`."""

    async def core(asked: Request) -> _Told:
        return _told(await _bound(asked).ainvoke(_conversation(asked), config))

    made: _AsyncCall = core
    for middleware in reversed(layers):
        made = _awrapped(middleware, made)
    return _answer(await made(request))


def _wrapped(middleware: Middleware, inner: _Call) -> _Call:
    def wrapped(asked: Request) -> _Told:
        passed: list[BaseException] = []
        below: list[dict[str, Any]] = []

        def handler(request: Request) -> Response:
            try:
                told = inner(request)
            except Exception as error:
                passed.append(error)
                raise
            below[:] = told.updates  # of a call that is made again, only the last one counts
            return told.response

        with blamed(middleware, MODEL_CALL, passed):
            return _with_own(middleware.wrap_model_call(asked, handler), below)

    return wrapped


def _awrapped(middleware: Middleware, inner: _AsyncCall) -> _AsyncCall:
    async def wrapped(asked: Request) -> _Told:
        passed: list[BaseException] = []
        below: list[dict[str, Any]] = []

        async def handler(request: Request) -> Response:
            try:
                told = await inner(request)
            except Exception as error:
                passed.append(error)
                raise
            below[:] = told.updates
            return told.response

        with blamed(middleware, MODEL_CALL, passed):
            return _with_own(await middleware.awrap_model_call(asked, handler), below)

    return wrapped


def _with_own(returned: Any, below: list[dict[str, Any]]) -> _Told:
    """What a layer returned, in whichever form."""
    updates = below
    if isinstance(returned, ExtendedModelResponse):
        if returned.command is not None:
            update, jump = command_parts(returned.command)
            if jump is not None or JUMP in update:
                raise ValueError("a response's command cannot go anywhere: use after_model")
            updates = [*below, update]
        returned = returned.model_response
    if isinstance(returned, AIMessage):
        returned = ModelResponse(result=[returned])
    if not isinstance(returned, ModelResponse):
        raise TypeError(
            f"it returned {type(returned).__name__}, not an AIMessage or a ModelResponse"
        )
    return _Told(returned, updates)


def _told(message: Any) -> _Told:
    if not isinstance(message, BaseMessage):
        raise TypeError(f"the model answered with {type(message).__name__}, not with a message")
    return _Told(ModelResponse(result=[message]), [])


def _answer(told: _Told) -> Answer:
    return Answer([{MESSAGES: list(told.response.result)}, *told.updates])


def _bound(request: Request) -> Any:
    if not request.tools:
        settings = request.model_settings
        return request.model.bind(**settings) if settings else request.model
    return request.model.bind_tools(
        request.tools, tool_choice=request.tool_choice, **request.model_settings
    )


def _conversation(request: Request) -> list[Any]:
    system = request.system_message
    return [*([] if system is None else [system]), *request.messages]
