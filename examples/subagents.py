"""A Deep Agent whose program sends one subagent per file, all at once, and adds up what they find.

python examples/subagents.py                              scripted models, no key
python examples/subagents.py --model openai:gpt-5-mini    a real one
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Sequence
from typing import Any

from deepagents import create_deep_agent
from langchain.chat_models import init_chat_model
from langchain_core.language_models.chat_models import BaseChatModel
from langchain_core.messages import AIMessage, BaseMessage, ToolMessage
from langchain_core.outputs import ChatGeneration, ChatResult

from qjs_pool.middleware import CodeInterpreterMiddleware

FILES = {
    "/src/parse.py": "def parse(text):\n    return eval(text)  # TODO: use json\n",
    "/src/store.py": "def store(row):\n    pass  # TODO\n\n# TODO: index\n",
    "/src/main.py": "print('hello')\n",
}
QUESTION = f"Which of {', '.join(FILES)} have TODO comments, and how many in all?"
PROGRAM = """
const paths = ["/src/parse.py", "/src/store.py", "/src/main.py"];
const counts = await Promise.all(paths.map((path) => task({
  description: `Count the TODO comments in ${path}.`,
  subagentType: "reader",
  label: path,
  responseSchema: {
    type: "object", properties: { todos: { type: "integer" } }, required: ["todos"],
  },
})));
({
  files: paths.filter((_, n) => counts[n].todos > 0),
  total: counts.reduce((sum, count) => sum + count.todos, 0),
})
"""


class Scripted(BaseChatModel):
    """A model that says what a function of the conversation and its tools says."""

    reply: Callable[[list[BaseMessage], Sequence[str]], AIMessage]
    tools: Sequence[str] = ()

    @property
    def _llm_type(self) -> str:
        return "scripted"

    def bind_tools(self, tools: Sequence[Any], **_: Any) -> Any:
        return self.model_copy(update={"tools": [tool.name for tool in tools]})

    def _generate(self, messages: list[BaseMessage], *_: Any, **__: Any) -> ChatResult:
        return ChatResult(generations=[ChatGeneration(message=self.reply(messages, self.tools))])


def agent_says(messages: list[BaseMessage], _: Sequence[str]) -> AIMessage:
    """Run the program, then have nothing to add."""
    if isinstance(messages[-1], ToolMessage):
        return AIMessage("That is what the readers found.")
    return _call("eval", code=PROGRAM)


def reader_says(messages: list[BaseMessage], tools: Sequence[str]) -> AIMessage:
    """Read the file, count, and answer by the tool that stands for the wanted shape."""
    told = next(message for message in messages if message.type == "human")
    path = str(told.content).removesuffix(".").split()[-1]
    if not isinstance(messages[-1], ToolMessage):
        return _call("read_file", file_path=path)
    return _call(tools[-1], todos=str(messages[-1].content).count("TODO"))


def _call(name: str, **args: Any) -> AIMessage:
    return AIMessage("", tool_calls=[{"name": name, "args": args, "id": f"call_{name}"}])


def main() -> None:
    """Ask one question; print the subagents as they come and go, then the conversation."""
    arguments = argparse.ArgumentParser(description=__doc__)
    arguments.add_argument("--model", help="a model for init_chat_model, e.g. openai:gpt-5-mini")
    name = arguments.parse_args().model
    with CodeInterpreterMiddleware(max_subagent_concurrency=2) as interpreter:
        agent: Any = create_deep_agent(
            model=init_chat_model(name) if name else Scripted(reply=agent_says),
            middleware=[interpreter],
            subagents=[
                {
                    "name": "reader",
                    "description": "Reads one file and answers one question about it.",
                    "system_prompt": "Read the file you are told of, then answer.",
                    "model": init_chat_model(name) if name else Scripted(reply=reader_says),
                }
            ],
        )
        files = {path: {"content": text, "encoding": "utf-8"} for path, text in FILES.items()}
        given = {"messages": [{"role": "user", "content": QUESTION}], "files": files}
        state: dict[str, Any] = {}
        for mode, chunk in agent.stream(given, stream_mode=["custom", "values"]):
            if mode == "values":
                state = chunk
            elif chunk["type"] == "subagent":
                print(chunk["phase"], chunk.get("label", chunk["id"]))
    for message in state["messages"]:
        message.pretty_print()


if __name__ == "__main__":
    main()
