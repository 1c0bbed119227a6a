"""An agent without LangChain and LangGraph, in two turns: its caller carries the state.

python examples/agent_loop.py    a scripted model; any chat model of langchain-core takes its place
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from langchain_core.language_models.fake_chat_models import GenericFakeChatModel
from langchain_core.messages import AIMessage
from langchain_core.tools import tool

from qjs_pool.middleware import CodeInterpreterMiddleware
from qjs_pool.middleware.agent import AgentMiddleware, create_agent, hook_config

PRICES = {"bolt": 4, "nut": 2, "washer": 1}
QUESTIONS = ("What do a bolt, a nut and a washer cost?", "And 25 of each?")
# What a model would say to them: one program each, the second on what the first has left.
SCRIPT = (
    """
const parts = ["bolt", "nut", "washer"];
const prices = await Promise.all(parts.map(part => tools.getPrice({ part })));
const total = prices.reduce((a, b) => a + b);
total
""",
    "25 * total",
)


@tool
def get_price(part: str) -> int:
    """What a part costs."""
    return PRICES[part]


class Budget(AgentMiddleware[Any, Any, Any]):
    """Ends a turn before a model call too many."""

    def __init__(self, calls: int) -> None:
        self.left = calls

    @hook_config(can_jump_to=["end"])
    def before_model(self, state: Any, runtime: Any) -> dict[str, Any] | None:
        if self.left == 0:
            return {"jump_to": "end", "messages": [AIMessage("The budget is used up.")]}
        self.left -= 1
        return None


class Scripted(GenericFakeChatModel):
    """A model that says what it is told to."""

    def bind_tools(self, tools: Sequence[Any], **_: Any) -> Any:
        return self


def scripted(programs: Sequence[str]) -> Scripted:
    """A model that answers each question with a program, and then with a word about it."""
    lines = []
    for n, code in enumerate(programs):
        call = {"name": "eval", "args": {"code": code}, "id": f"call{n}"}
        lines += [AIMessage("", tool_calls=[call]), AIMessage("That is what the program says.")]
    return Scripted(messages=iter(lines))


def main() -> None:
    """Ask both questions, and print the conversation."""
    state: dict[str, Any] = {"messages": []}
    with CodeInterpreterMiddleware(ptc=["get_price"]) as interpreter:
        agent = create_agent(
            scripted(SCRIPT), [get_price], middleware=[Budget(calls=3), interpreter]
        )
        for question in QUESTIONS:
            state["messages"] = [*state["messages"], ("user", question)]
            state = agent.invoke(state)
    for message in state["messages"]:
        message.pretty_print()


if __name__ == "__main__":
    main()
