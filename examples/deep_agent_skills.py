"""A Deep Agent whose programs import the code of a skill.

python examples/deep_agent_skills.py                              a scripted model, no key
python examples/deep_agent_skills.py --model openai:gpt-5-mini    a real one
"""

from __future__ import annotations

import argparse
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from deepagents import create_deep_agent
from deepagents.backends import FilesystemBackend
from langchain.chat_models import init_chat_model
from langchain_core.language_models.chat_models import BaseChatModel
from langchain_core.language_models.fake_chat_models import GenericFakeChatModel
from langchain_core.messages import AIMessage

from qjs_pool.middleware import CodeInterpreterMiddleware

SKILL = {
    "SKILL.md": """---
name: quartiles
description: Quartiles of a list of numbers. Use it for any question about a distribution.
---
In the REPL: `const { quartiles } = await import("@/skills/quartiles")`, then `quartiles(numbers)`.
""",
    "index.ts": """import { sorted } from "./sorted";

export interface Quartiles { q1: number; median: number; q3: number }

export function quartiles(numbers: number[]): Quartiles {
  const all = sorted(numbers);
  const at = (part: number) => {
    const place = (all.length - 1) * part;
    const low = Math.floor(place);
    return all[low] + (all[Math.ceil(place)] - all[low]) * (place - low);
  };
  return { q1: at(0.25), median: at(0.5), q3: at(0.75) };
}
""",
    "sorted.ts": "export const sorted = (xs: number[]) => [...xs].sort((a, b) => a - b);\n",
}
QUESTION = "What are the quartiles of 7, 1, 3, 12, 5?"
SCRIPT = (
    """
const { quartiles } = await import("@/skills/quartiles");
quartiles([7, 1, 3, 12, 5])
""",
)


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
    """Put a skill into a folder, ask one question, and print the conversation."""
    arguments = argparse.ArgumentParser(description=__doc__)
    arguments.add_argument("--model", help="a model for init_chat_model, e.g. openai:gpt-5-mini")
    name = arguments.parse_args().model
    with tempfile.TemporaryDirectory() as folder:
        skill = Path(folder, "skills", "quartiles")
        skill.mkdir(parents=True)
        for file, text in SKILL.items():
            (skill / file).write_text(text, encoding="utf-8")
        backend = FilesystemBackend(root_dir=folder, virtual_mode=True)
        with CodeInterpreterMiddleware(skills_backend=backend) as interpreter:
            agent = create_deep_agent(
                model=init_chat_model(name) if name else scripted(SCRIPT),
                middleware=[interpreter],
                backend=backend,
                skills=["/skills/"],
            )
            state = agent.invoke({"messages": [{"role": "user", "content": QUESTION}]})
    for message in state["messages"]:
        message.pretty_print()


if __name__ == "__main__":
    main()
