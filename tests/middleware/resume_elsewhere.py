"""Goes on with a suspended run in a process that knows only the database: DATABASE, KEY."""

from __future__ import annotations

import json
import sys
from typing import Any

from langchain.agents import create_agent
from langchain_core.language_models.fake_chat_models import GenericFakeChatModel
from langchain_core.messages import AIMessage, ToolMessage
from langchain_core.tools import tool
from langgraph.checkpoint.sqlite import SqliteSaver
from langgraph.types import Command, interrupt

from qjs_pool.middleware import CodeInterpreterMiddleware

effects: list[Any] = []


@tool
def ask(what: str) -> str:
    """Ask a person."""
    return f"{what}: {interrupt({'what': what})}"


@tool
def effect(n: Any) -> int:
    """Do something that must not be done twice."""
    effects.append(n)
    return len(effects)


class Model(GenericFakeChatModel):
    def bind_tools(self, tools: Any, **more: Any) -> Any:
        return self


with (
    SqliteSaver.from_conn_string(sys.argv[1]) as saver,
    CodeInterpreterMiddleware(ptc=["*"], snapshot_signing_key=sys.argv[2]) as middleware,
):
    agent = create_agent(
        Model(messages=iter([AIMessage("done")])), [ask, effect], middleware=[middleware],
        checkpointer=saver,
    )  # fmt: skip
    state = agent.invoke(Command(resume="from elsewhere"), {"configurable": {"thread_id": "a"}})
    texts = [one.content for one in state["messages"] if isinstance(one, ToolMessage)]
    print(json.dumps({"texts": texts, "effects": effects}))
