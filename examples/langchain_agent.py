"""A LangChain agent that computes in a sandboxed REPL and calls its tools from there.

python examples/langchain_agent.py                              a scripted model, no key
python examples/langchain_agent.py --model openai:gpt-5-mini    a real one
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from typing import Any

from langchain.agents import create_agent
from langchain.chat_models import init_chat_model
from langchain_core.language_models.chat_models import BaseChatModel
from langchain_core.language_models.fake_chat_models import GenericFakeChatModel
from langchain_core.messages import AIMessage
from langchain_core.tools import tool
from langgraph.checkpoint.memory import InMemorySaver

from qjs_pool.middleware import CodeInterpreterMiddleware

STOCK = {"bolt": 1200, "nut": 80, "washer": 15}
QUESTION = "Which of bolt, nut and washer do we have fewer than 100 of?"
# What a model would say: one program instead of one step per tool call, and its result next turn.
SCRIPT = (
    """
const parts = ["bolt", "nut", "washer"];
const stock = await Promise.all(parts.map(async part => ({part, ...await tools.getStock({part})})));
const low = stock.filter(({count}) => count < 100);
console.log(`${stock.length} parts looked up`);
low
""",
    "low.map(({part}) => part).join(' and ')",
)


@tool
def get_stock(part: str) -> dict[str, int]:
    """How many of a part there are."""
    return {"count": STOCK[part]}


class Scripted(GenericFakeChatModel):
    """A model that says what it is told to."""

    def bind_tools(self, tools: Sequence[Any], **_: Any) -> Any:
        return self


def scripted(programs: Sequence[str]) -> BaseChatModel:
    """A model that runs the programs, one call of the tool each, and then has nothing to add."""
    calls = [
        AIMessage("", tool_calls=[{"name": "eval", "args": {"code": code}, "id": f"call{n}"}])
        for n, code in enumerate(programs)
    ]
    return Scripted(messages=iter([*calls, AIMessage("That is what the program says.")]))


def main() -> None:
    """Ask one question, and print the conversation."""
    arguments = argparse.ArgumentParser(description=__doc__)
    arguments.add_argument("--model", help="a model for init_chat_model, e.g. openai:gpt-5-mini")
    name = arguments.parse_args().model
    with CodeInterpreterMiddleware(ptc=["get_*"]) as interpreter:
        agent = create_agent(
            init_chat_model(name) if name else scripted(SCRIPT),
            tools=[get_stock],
            middleware=[interpreter],
            checkpointer=InMemorySaver(),
        )
        state = agent.invoke(
            {"messages": [{"role": "user", "content": QUESTION}]},
            {"configurable": {"thread_id": "example"}},
        )
    for message in state["messages"]:
        message.pretty_print()


if __name__ == "__main__":
    main()
