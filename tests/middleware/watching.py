"""A middleware that sees what the agent's tool path sees."""

from __future__ import annotations

from typing import Any

from langchain.agents.middleware import AgentMiddleware


class Watching(AgentMiddleware[Any, Any, Any]):
    """Notes every tool call that it sees."""

    def __init__(self) -> None:
        super().__init__()
        self.seen: list[tuple[str, dict[str, Any]]] = []

    def wrap_tool_call(self, request: Any, handler: Any) -> Any:
        self.seen.append((request.tool_call["name"], request.tool_call["args"]))
        return handler(request)

    async def awrap_tool_call(self, request: Any, handler: Any) -> Any:
        self.seen.append((request.tool_call["name"], request.tool_call["args"]))
        return await handler(request)
