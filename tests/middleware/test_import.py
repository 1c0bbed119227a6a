"""The package without its extra."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Final

import pytest

_FORBID: Final = """
import sys

class Missing:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in {names!r}:
            raise ModuleNotFoundError(f"No module named {{name!r}}", name=name)

sys.meta_path.insert(0, Missing())
"""
_NEITHER: Final = _FORBID.format(names=("langchain", "langgraph"))

_TWO_TURNS: Final = """
from langchain_core.language_models.fake_chat_models import GenericFakeChatModel
from langchain_core.messages import AIMessage
from langchain_core.tools import tool
from qjs_pool.middleware import CodeInterpreterMiddleware
from qjs_pool.middleware.agent import Command, ToolRuntime, create_agent
from langchain_core.messages import ToolMessage

class Scripted(GenericFakeChatModel):
    def bind_tools(self, tools, **options):
        return self

def evals(code):
    return AIMessage("", tool_calls=[{"name": "eval", "args": {"code": code}, "id": "c"}])

@tool
def note(text: str, runtime: ToolRuntime) -> Command:
    "Note something in the state."
    answer = ToolMessage(f"noted {text}", tool_call_id=runtime.tool_call_id)
    return Command(update={"notes": [*runtime.state.get("notes", []), text], "messages": [answer]})

script = [
    evals("var n = 20; class K { get v() { return 2 } }; var k = new K();"
          "await tools.note({text: 'a'}); await tools.note({text: 'b'})"),
    AIMessage("one"), evals("n + k.v"), AIMessage("two"),
]
model = Scripted(messages=iter(script))
state = {"messages": []}
for _ in range(2):
    # A new worker each turn: what comes back, comes out of the state.
    with CodeInterpreterMiddleware(ptc=["note"]) as interpreter:
        agent = create_agent(model, [note], middleware=[interpreter])
        state = agent.invoke({**state, "messages": [*state["messages"], ("user", "go")]})
print(*(message.content for message in state["messages"] if message.type == "tool"))
print(state["notes"])
print(sorted({"langchain", "langgraph", "langchain_core"} & set(sys.modules)))
"""


def _run(program: str, check: bool = True) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-P", "-c", program],
        env={**os.environ, "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"},  # plugins import half the world
        capture_output=True,
        text=True,
        check=check,
    )


def test_without_langchain_the_middleware_runs_on_our_loop_and_its_state_lasts() -> None:
    assert _run(_NEITHER + _TWO_TURNS).stdout.splitlines() == [
        "<result>noted b</result> <result>22</result>",
        "['a', 'b']",
        "['langchain_core']",
    ]


def test_the_loop_and_our_stand_ins_pass_the_suite_that_langchain_passes() -> None:
    suite = Path(__file__).with_name("test_loop_parity.py")
    program = f"""
import pytest
code = pytest.main(
    ["-q", "-c", "/dev/null", "--import-mode=importlib", "-W", "error", "-p", "no:cacheprovider",
     "-k", "loop- and not repl", {str(suite)!r}]
)
print("langchain" in sys.modules or "langgraph" in sys.modules)
sys.exit(code)
"""
    done = _run(_NEITHER + program, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    assert " passed" in done.stdout
    assert done.stdout.splitlines()[-1] == "False"


@pytest.mark.parametrize("package", ["langchain", "langgraph"])
def test_an_installation_that_lacks_a_part_is_an_error_and_not_taken_for_none(package: str) -> None:
    pytest.importorskip("langchain")
    broken = {"langchain": "langchain_protocol", "langgraph": "ormsgpack"}[package]
    program = _FORBID.format(names=(broken,)) + "import qjs_pool.middleware.agent"
    done = _run(program, check=False)
    assert f"ModuleNotFoundError: No module named '{broken}" in done.stderr


def test_importing_the_package_does_not_import_langchain() -> None:
    loaded = _run("import sys, qjs_pool, qjs_pool.middleware; print(*sys.modules)").stdout.split()
    assert not {"langchain", "langgraph", "langchain_core", "asyncio"} & set(loaded)
