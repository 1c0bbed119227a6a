"""An agent whose programs send mails, each of which a person decides about.

python examples/approval.py           the decisions are made here, no key
python examples/approval.py --ask     they are asked for at the terminal
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from typing import Any

from langchain.agents import create_agent
from langchain_core.language_models.fake_chat_models import GenericFakeChatModel
from langchain_core.messages import AIMessage
from langchain_core.tools import tool
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.types import Command

from qjs_pool.middleware import CodeInterpreterMiddleware

PROGRAM = """
const names = ["ann", "bob", "eve"];
const addresses = await Promise.all(names.map(name => tools.findAddress({name})));
const sent = await Promise.allSettled(
  addresses.map(to => tools.sendEmail({to, text: "The build is green."})));
sent.map(({value, reason}) => value ?? reason.message)
"""
DECISIONS = [
    {"type": "approve"},
    {"type": "edit", "edited_action": {"name": "send_email", "args": {
        "to": "bob@example.com", "text": "The build is green, Bob."}}},
    {"type": "reject", "message": "not to her"},
]  # fmt: skip
SENT: list[tuple[str, str]] = []


@tool
def find_address(name: str) -> str:
    """The address of a person."""
    return f"{name}@example.com"


@tool
def send_email(to: str, text: str) -> str:
    """Send an email."""
    SENT.append((to, text))
    return f"sent to {to}"


class Scripted(GenericFakeChatModel):
    """A model that says what it is told to."""

    def bind_tools(self, tools: Sequence[Any], **_: Any) -> Any:
        return self


def asked_at_the_terminal(requests: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """A decision about each request."""
    decisions = []
    for request in requests:
        yes = input(f"{request['description']}\nSend it? [y/n] ").strip().lower() == "y"
        decisions.append({"type": "approve" if yes else "reject"})
    return decisions


def main() -> None:
    """Run the program up to its mails, decide about them, and let it go on."""
    arguments = argparse.ArgumentParser(description=__doc__)
    arguments.add_argument("--ask", action="store_true", help="ask at the terminal")
    ask = arguments.parse_args().ask
    call = {"name": "eval", "args": {"code": PROGRAM}, "id": "call1"}
    script = iter([AIMessage("", tool_calls=[call]), AIMessage("That is what became of them.")])
    thread: Any = {"configurable": {"thread_id": "example"}}
    with CodeInterpreterMiddleware(
        ptc=["find_address", "send_email"], ptc_interrupt_on={"send_email": True}
    ) as interpreter:
        agent: Any = create_agent(
            Scripted(messages=script),
            tools=[find_address, send_email],
            middleware=[interpreter],
            checkpointer=InMemorySaver(),
        )
        state = agent.invoke({"messages": [("user", "Tell everybody.")]}, thread)
        requests = state["__interrupt__"][0].value["action_requests"]
        for request in requests:
            print(f"waits: {request['name']} {request['args']}")
        decisions = asked_at_the_terminal(requests) if ask else DECISIONS
        state = agent.invoke(Command(resume={"decisions": decisions}), thread)
        print(state["messages"][-2].content)
    for to, text in SENT:
        print(f"sent: {to}: {text}")


if __name__ == "__main__":
    main()
