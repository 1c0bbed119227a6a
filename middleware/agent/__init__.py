"""An agent loop on langchain-core alone, and the types that middlewares and tools for it need.

Where langchain and langgraph are installed the types are theirs, so that what was written for
`langchain.agents.create_agent` runs here unchanged.
"""

from __future__ import annotations

from ..seam import (
    AgentMiddleware,
    AgentState,
    Command,
    ExtendedModelResponse,
    InjectedState,
    ModelRequest,
    ModelResponse,
    Runtime,
    ToolCallRequest,
    ToolRuntime,
    hook_config,
)
from .executor import AgentExecutor, create_agent

__all__ = [
    "AgentExecutor",
    "AgentMiddleware",
    "AgentState",
    "Command",
    "ExtendedModelResponse",
    "InjectedState",
    "ModelRequest",
    "ModelResponse",
    "Runtime",
    "ToolCallRequest",
    "ToolRuntime",
    "create_agent",
    "hook_config",
]
