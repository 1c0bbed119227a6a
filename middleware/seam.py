"""The types shared with an agent loop: langchain's and langgraph's where installed, else our own.

The only module that imports those two when it is loaded. Where they are installed theirs must be
used, on our own loop as well: a middleware or tool written for them subclasses and tests for them.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, Final

__all__ = [
    "HAS_DELTAS",
    "AgentMiddleware",
    "AgentState",
    "BaseChannel",
    "BaseCheckpointSaver",
    "BaseStore",
    "CheckpointTuple",
    "Command",
    "ContextT",
    "ExtendedModelResponse",
    "GraphBubbleUp",
    "GraphInterrupt",
    "InjectedState",
    "InjectedStore",
    "InvalidUpdateError",
    "ModelRequest",
    "ModelResponse",
    "Overwrite",
    "PrivateStateAttr",
    "ResponseT",
    "Runtime",
    "ToolCallRequest",
    "ToolInvocationError",
    "ToolRuntime",
    "answer_format",
    "channel_of",
    "get_config",
    "hook_config",
    "interrupt",
    "is_invalid_resume",
    "msg_content_output",
    "within_run",
]

# Writes of a channel between two checkpoints that hold its whole value. A large one would stall the
# event loop; a small one is written whole much earlier, see `Continuity`.
_WHOLE_EVERY: Final = 500


def _must_be(missing: ModuleNotFoundError, package: str) -> None:
    """Nothing else may be missing: a broken installation is not a missing one."""
    if (missing.name or "").partition(".")[0] != package:
        raise missing


if TYPE_CHECKING:
    HAS_LANGGRAPH = True
else:
    try:
        import langgraph.prebuilt  # noqa: F401
    except ModuleNotFoundError as error:
        _must_be(error, "langgraph")
        HAS_LANGGRAPH = False
    else:
        HAS_LANGGRAPH = True

if HAS_LANGGRAPH:
    from langgraph.channels.base import BaseChannel
    from langgraph.channels.binop import BinaryOperatorAggregate
    from langgraph.channels.ephemeral_value import EphemeralValue
    from langgraph.channels.untracked_value import UntrackedValue
    from langgraph.checkpoint.base import BaseCheckpointSaver, CheckpointTuple
    from langgraph.config import get_config
    from langgraph.errors import GraphBubbleUp, GraphInterrupt, InvalidUpdateError
    from langgraph.prebuilt.tool_node import (
        InjectedState,
        InjectedStore,
        ToolCallRequest,
        ToolInvocationError,
        ToolRuntime,
        msg_content_output,
    )
    from langgraph.runtime import Runtime
    from langgraph.store.base import BaseStore
    from langgraph.types import Command, interrupt

    try:
        from langgraph.types import Overwrite
    except ImportError:  # an older one
        from .standins import Overwrite  # type: ignore[assignment]
    try:
        from langgraph.errors import is_invalid_resume
    except ImportError:
        from .standins import is_invalid_resume
elif not TYPE_CHECKING:
    from .standins import (
        Command,
        GraphBubbleUp,
        GraphInterrupt,
        InjectedState,
        InjectedStore,
        InvalidUpdateError,
        Overwrite,
        Runtime,
        ToolCallRequest,
        ToolInvocationError,
        ToolRuntime,
        get_config,
        interrupt,
        is_invalid_resume,
        msg_content_output,
    )

    class BaseChannel:
        """Nothing is one."""

    class BaseCheckpointSaver:
        """Nothing is one."""

    class CheckpointTuple:
        """Nothing is one."""

    class BaseStore:
        """Nothing is one."""


try:
    from langgraph.channels.delta import DeltaChannel
except ImportError:
    HAS_DELTAS = False
else:
    HAS_DELTAS = True

if TYPE_CHECKING:
    HAS_LANGCHAIN = True
else:
    try:
        import langchain.agents.middleware.types  # noqa: F401
    except ModuleNotFoundError as error:
        # langchain without langgraph is as good as none.
        _must_be(error, "langchain" if HAS_LANGGRAPH else (error.name or "").partition(".")[0])
        HAS_LANGCHAIN = False
    else:
        HAS_LANGCHAIN = True

if HAS_LANGCHAIN:
    from langchain.agents.middleware.types import (
        AgentMiddleware,
        AgentState,
        ContextT,
        ModelRequest,
        ModelResponse,
        PrivateStateAttr,
        ResponseT,
        hook_config,
    )

    try:
        from langchain.agents.middleware.types import ExtendedModelResponse
    except ImportError:  # an older one
        from .standins import ExtendedModelResponse  # type: ignore[assignment]
elif not TYPE_CHECKING:
    from .standins import (
        AgentMiddleware,
        AgentState,
        ContextT,
        ExtendedModelResponse,
        ModelRequest,
        ModelResponse,
        PrivateStateAttr,
        ResponseT,
        hook_config,
    )


def channel_of(merged: Callable[[Any, Sequence[Any]], Any]) -> Any:
    """How a key of the state is merged that `merged(value, writes)` knows how to.

    For a graph a channel that stores writes, and every so many of them the whole value: a
    checkpoint in between is read out of the writes since then, so a large value that is gone costs
    nothing for long.
    """

    def merged_one(value: Any, write: Any) -> Any:
        return merged(value, [write])

    if not HAS_LANGGRAPH:
        return merged_one
    if not HAS_DELTAS:  # an older langgraph: each checkpoint has the whole value
        return BinaryOperatorAggregate(dict, merged_one)
    return DeltaChannel(merged, dict, snapshot_frequency=_WHOLE_EVERY)


def answer_format(schema: Any) -> Any:
    """How an agent of langchain's is told the shape of its answer; for a JSON schema."""
    from langchain.agents.structured_output import AutoStrategy  # there, where subagents are

    return AutoStrategy(schema)


def within_run(annotation: Any) -> bool:
    """Whether what annotates a key of the state says that its value is not to outlive the run."""
    if not HAS_LANGGRAPH:
        return False
    kinds = (UntrackedValue, EphemeralValue)
    return isinstance(annotation, kinds) or (
        isinstance(annotation, type) and issubclass(annotation, kinds)
    )
