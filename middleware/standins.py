"""The types between an agent loop and its middlewares, for hosts without langchain or langgraph.

Each has the fields and the meaning of its namesake there, as far as a loop without checkpoints,
stores and structured output can have it, so that a middleware needs one spelling for both.
`seam.py` decides which one is used; nothing else imports this.
"""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, ClassVar, Final, Generic, Literal, NotRequired, Required, TypedDict, TypeVar

from langchain_core.messages import AIMessage, BaseMessage, SystemMessage, ToolCall
from langchain_core.messages.tool import ToolOutputMixin
from langchain_core.runnables import RunnableConfig
from langchain_core.runnables.config import var_child_runnable_config
from langchain_core.tools import BaseTool, InjectedToolArg, ToolException
from langchain_core.tools.base import _DirectlyInjectedToolArg

ContextT = TypeVar("ContextT")
ResponseT = TypeVar("ResponseT")
StateT = TypeVar("StateT")
CallableT = TypeVar("CallableT", bound=Callable[..., Any])

JumpTo = Literal["tools", "model", "end"]

# What a chat model takes as a list of blocks; any other list a tool returns is made into JSON.
_BLOCKS: Final = frozenset(
    {"text", "text-plain", "image", "image_url", "audio", "file", "video", "json", "document",
     "search_result", "custom_tool_call_output"}
)  # fmt: skip


# --- state and runtime ---------------------------------------------------------------------------


class AgentState(TypedDict, Generic[ResponseT]):
    """What every agent's state has."""

    messages: Required[list[Any]]
    jump_to: NotRequired[JumpTo | None]
    structured_response: NotRequired[ResponseT]


class OmitFromSchema:
    """Marks a key of the state that a graph hides from its callers. The loop hides none."""


PrivateStateAttr: Final = OmitFromSchema()


def _no_writer(chunk: Any) -> None:
    """There is no stream to write to."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Runtime(Generic[ContextT]):
    """What a hook gets beside the state. `context` is the caller's."""

    context: Any = None
    store: Any = None
    stream_writer: Callable[[Any], None] = _no_writer


@dataclasses.dataclass
class ToolRuntime(_DirectlyInjectedToolArg, Generic[ContextT, StateT]):
    """What a tool gets that has a parameter of this type. The model cannot supply it."""

    state: Any
    context: Any
    config: RunnableConfig
    stream_writer: Callable[[Any], None]
    tool_call_id: str | None
    store: Any
    tools: list[BaseTool] = dataclasses.field(default_factory=list)


class InjectedState(InjectedToolArg):
    """Annotates a tool's parameter that gets the state, or one key of it."""

    def __init__(self, field: str | None = None) -> None:
        self.field = field


class InjectedStore(InjectedToolArg):
    """Annotates a tool's parameter that gets a store. The loop has none."""


def get_config() -> RunnableConfig:
    """The configuration of what runs. RuntimeError outside of any run."""
    config = var_child_runnable_config.get()
    if not config:
        raise RuntimeError("get_config() was called outside of a run")
    return config


# --- updates -------------------------------------------------------------------------------------


@dataclasses.dataclass(frozen=True, kw_only=True)
class Command(ToolOutputMixin, Generic[StateT]):
    """An update of the state, and where to go on, as a tool or a hook may return it."""

    PARENT: ClassVar[Literal["__parent__"]] = "__parent__"

    graph: str | None = None
    update: Any = None
    resume: Any = None
    goto: Any = ()


@dataclasses.dataclass(frozen=True)
class Overwrite:
    """A value that takes the place of the old one, past the key's reducer."""

    value: Any


class GraphBubbleUp(Exception):
    """Control flow that is nobody's error: it goes through every handler."""


class GraphInterrupt(GraphBubbleUp):
    """A graph's run waits for a person; without langgraph none does."""


def interrupt(value: Any) -> Any:
    """Ask a person, which takes a graph's checkpoints.

    Raises:
        RuntimeError: always.
    """
    raise RuntimeError("interrupt() needs langgraph, and a graph with a checkpointer")


class InvalidUpdateError(Exception):
    """An update that the state's rules do not allow."""


class ToolInvocationError(ToolException):
    """Input that a tool's schema refuses."""


def is_invalid_resume(error: BaseException) -> bool:
    """Whether an interrupt was answered wrongly. There are none."""
    return False


def msg_content_output(output: Any) -> Any:
    """A tool's output as the content of a message: text, or blocks that models know."""
    if isinstance(output, str):
        return output
    if isinstance(output, list) and all(
        isinstance(block, dict) and block.get("type") in _BLOCKS for block in output
    ):
        return output
    try:
        return json.dumps(output, ensure_ascii=False)
    except (TypeError, ValueError):
        return str(output)


# --- calls ---------------------------------------------------------------------------------------


@dataclasses.dataclass(frozen=True, kw_only=True)
class ModelRequest(Generic[ContextT]):
    """A model call to be made. `messages` are without the system message."""

    model: Any
    messages: list[Any]
    system_message: SystemMessage | None = None
    tool_choice: Any = None
    tools: list[Any] = dataclasses.field(default_factory=list)
    state: Any = dataclasses.field(default_factory=lambda: {"messages": []})
    runtime: Any = None
    model_settings: dict[str, Any] = dataclasses.field(default_factory=dict)

    @property
    def system_prompt(self) -> str | None:
        """The text of the system message."""
        return None if self.system_message is None else str(self.system_message.text)

    def override(self, **changes: Any) -> ModelRequest[ContextT]:
        """A copy with other values; `system_prompt` is short for a system message of that text.

        Raises:
            TypeError: there is no such field.
            ValueError: both `system_prompt` and `system_message`.
        """
        if "system_prompt" in changes:
            if "system_message" in changes:
                raise ValueError("give system_prompt or system_message, not both")
            text = changes.pop("system_prompt")
            changes["system_message"] = None if text is None else SystemMessage(content=text)
        return dataclasses.replace(self, **changes)


@dataclasses.dataclass
class ModelResponse(Generic[ResponseT]):
    """What a model call gave: as a rule one AIMessage."""

    result: list[BaseMessage]
    structured_response: Any = None


@dataclasses.dataclass
class ExtendedModelResponse(Generic[ResponseT]):
    """A response, and an update of the state that `wrap_model_call` adds to it."""

    model_response: ModelResponse[ResponseT]
    command: Command[Any] | None = None


@dataclasses.dataclass(frozen=True, kw_only=True)
class ToolCallRequest:
    """A tool call to be made. `tool` is None where the agent has none of that name."""

    tool_call: ToolCall
    tool: BaseTool | None
    state: Any
    runtime: Any

    def override(self, **changes: Any) -> ToolCallRequest:
        """A copy with other values. Another `state` is what the tool gets injected, too.

        Raises:
            TypeError: there is no such field.
        """
        if "state" in changes and "runtime" not in changes and self.runtime is not None:
            changes["runtime"] = dataclasses.replace(self.runtime, state=changes["state"])
        return dataclasses.replace(self, **changes)


# --- middlewares ---------------------------------------------------------------------------------


def hook_config(*, can_jump_to: list[JumpTo] | None = None) -> Callable[[CallableT], CallableT]:
    """Declare where a hook may jump to, by returning `{"jump_to": ...}`."""

    def declared(hook: CallableT) -> CallableT:
        if can_jump_to is not None:
            hook.__can_jump_to__ = can_jump_to  # type: ignore[attr-defined]
        return hook

    return declared


class AgentMiddleware(Generic[StateT, ContextT, ResponseT]):
    """Base of middlewares: override the hooks you need, their sync form, the async one or both.

    Hooks around a turn and around a model call get the state and the runtime, and return an update
    of the state or None. The wrappers get a request and a handler that goes on with it.
    """

    state_schema: type[Any] = AgentState
    tools: Sequence[BaseTool] = ()

    @property
    def name(self) -> str:
        """Unique within an agent."""
        return type(self).__name__

    def before_agent(self, state: Any, runtime: Any) -> dict[str, Any] | None:
        """Once, before the turn."""
        return None

    async def abefore_agent(self, state: Any, runtime: Any) -> dict[str, Any] | None:
        """As `before_agent`."""
        return None

    def before_model(self, state: Any, runtime: Any) -> dict[str, Any] | None:
        """Before each model call."""
        return None

    async def abefore_model(self, state: Any, runtime: Any) -> dict[str, Any] | None:
        """As `before_model`."""
        return None

    def after_model(self, state: Any, runtime: Any) -> dict[str, Any] | None:
        """After each model call, before the tools it called."""
        return None

    async def aafter_model(self, state: Any, runtime: Any) -> dict[str, Any] | None:
        """As `after_model`."""
        return None

    def after_agent(self, state: Any, runtime: Any) -> dict[str, Any] | None:
        """Once, after the turn."""
        return None

    async def aafter_agent(self, state: Any, runtime: Any) -> dict[str, Any] | None:
        """As `after_agent`."""
        return None

    def wrap_model_call(
        self, request: ModelRequest[Any], handler: Callable[[ModelRequest[Any]], ModelResponse[Any]]
    ) -> ModelResponse[Any] | AIMessage | ExtendedModelResponse[Any]:
        """Around each model call."""
        raise NotImplementedError(f"{self.name} has awrap_model_call only: use ainvoke or astream")

    async def awrap_model_call(
        self,
        request: ModelRequest[Any],
        handler: Callable[[ModelRequest[Any]], Awaitable[ModelResponse[Any]]],
    ) -> ModelResponse[Any] | AIMessage | ExtendedModelResponse[Any]:
        """As `wrap_model_call`."""
        raise NotImplementedError(f"{self.name} has wrap_model_call only: use invoke or stream")

    def wrap_tool_call(
        self, request: ToolCallRequest, handler: Callable[[ToolCallRequest], Any]
    ) -> Any:
        """Around each tool call."""
        raise NotImplementedError(f"{self.name} has awrap_tool_call only: use ainvoke or astream")

    async def awrap_tool_call(
        self, request: ToolCallRequest, handler: Callable[[ToolCallRequest], Awaitable[Any]]
    ) -> Any:
        """As `wrap_tool_call`."""
        raise NotImplementedError(f"{self.name} has wrap_tool_call only: use invoke or stream")
