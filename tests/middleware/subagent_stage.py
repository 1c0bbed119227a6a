"""A Deep Agent with subagents, built once; each test says what its models do."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Callable, Sequence
from typing import Any

from deepagents import create_deep_agent
from langchain_core.language_models.chat_models import BaseChatModel
from langchain_core.messages import AIMessage, BaseMessage, ToolMessage
from langchain_core.outputs import ChatGeneration, ChatResult

# What a model says, given what it is told and the names of the tools it may call.
Reply = Callable[[list[BaseMessage], Sequence[str]], AIMessage]

_ids = itertools.count(1)


class Acting(BaseChatModel):
    """A model that answers with whatever `act["reply"]` gives at the time."""

    act: Any  # a dict[str, Reply], which is not to be copied
    tools: tuple[str, ...] = ()

    @property
    def _llm_type(self) -> str:
        return "acting"

    def bind_tools(self, tools: Any, **_: Any) -> Any:
        names = tuple(tool["name"] if isinstance(tool, dict) else tool.name for tool in tools)
        return self.model_copy(update={"tools": names})

    def _generate(self, messages: list[BaseMessage], *_: Any, **__: Any) -> ChatResult:
        return ChatResult(
            generations=[ChatGeneration(message=self.act["reply"](messages, self.tools))]
        )


def echoing(messages: list[BaseMessage], _: Sequence[str]) -> AIMessage:
    """A subagent that says what it was told."""
    return AIMessage(f"did {messages[-1].content}")


def calling(name: str, **args: Any) -> AIMessage:
    """A message that calls one tool."""
    return AIMessage("", tool_calls=[{"name": name, "args": args, "id": f"c{next(_ids)}"}])


class Stage:
    """One agent: its own model runs the programs of a test, its subagent `helper` replies."""

    def __init__(self, middleware: Sequence[Any], **options: Any) -> None:
        self._lines: list[AIMessage] = []
        self.told: list[BaseMessage] = []  # what the agent's model was told last
        self.helper: dict[str, Reply] = {"reply": echoing}
        helper = {
            "name": "helper",
            "description": "Helps with one thing.",
            "system_prompt": "help",
            "model": Acting(act=self.helper),
            **options.pop("helper", {}),
        }
        self.agent = create_deep_agent(
            model=Acting(act={"reply": self._next}),
            middleware=list(middleware),
            subagents=[helper, *options.pop("subagents", [])],
            **options,
        )

    def _next(self, messages: list[BaseMessage], _: Sequence[str]) -> AIMessage:
        self.told = messages
        return self._lines.pop(0) if self._lines else AIMessage("done")

    def begin(self, *programs: str, reply: Reply = echoing) -> dict[str, Any]:
        """Have the next turn run the programs, one eval each; its input."""
        self._lines = [calling("eval", code=program) for program in programs]
        self.helper["reply"] = reply
        return {"messages": [("user", "go")]}

    def run(
        self, *programs: str, reply: Reply = echoing, how: str = "invoke", config: Any = None
    ) -> list[str]:
        """Run the programs, one eval each, in one turn; the texts of the answers."""
        given = self.begin(*programs, reply=reply)
        if how == "invoke":
            return texts(self.agent.invoke(given, config))
        return texts(asyncio.run(self.agent.ainvoke(given, config)))

    def stream(self, *programs: str, reply: Reply = echoing, how: str = "invoke") -> list[Any]:
        """As `run`: the events of the custom stream."""
        given = self.begin(*programs, reply=reply)
        if how == "invoke":
            return list(self.agent.stream(given, stream_mode="custom"))

        async def streamed() -> list[Any]:
            return [event async for event in self.agent.astream(given, stream_mode="custom")]

        return asyncio.run(streamed())


def texts(state: Any) -> list[str]:
    """What the evals of a turn answered."""
    return [
        str(message.content)
        for message in state["messages"]
        if isinstance(message, ToolMessage) and message.name == "eval"
    ]
