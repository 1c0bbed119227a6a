"""Which tools a program gets, model call by model call."""

from __future__ import annotations

import logging
from typing import Any

import pytest

pytest.importorskip("langchain")
pytest.importorskip("langgraph")

from langchain.agents.middleware import AgentMiddleware
from langchain_core.tools import BaseTool, StructuredTool

from qjs_pool.middleware.ptc import Allowlist


def named(*names: str) -> list[BaseTool]:
    return [
        StructuredTool.from_function(func=lambda: None, name=name, description=name)
        for name in names
    ]


READ, WRITE, EXECUTE, EVAL = named("read_file", "write_file", "execute", "eval")


@pytest.mark.parametrize(
    ("entries", "chosen"),
    [
        ([], []),
        (["read_file"], ["read_file"]),
        (["*_file"], ["read_file", "write_file"]),
        (["*", "!execute"], ["read_file", "write_file"]),
        (["!execute", "*"], ["read_file", "write_file"]),
        (["*", "!*_file"], ["execute"]),
        (["read_file", "read_*", READ], ["read_file"]),
        (["eval", "execute"], ["execute"]),
        (["rea[dx]_file"], ["read_file"]),
    ],
)
def test_names_globs_exclusions_and_tools_are_mixed_and_the_tool_itself_is_never_exposed(
    entries: list[Any], chosen: list[str]
) -> None:
    allowlist = Allowlist(entries, "eval")
    assert [tool.name for tool in allowlist.select([EXECUTE, WRITE, READ, EVAL])] == chosen
    assert [name for name in ("read_file", "write_file", "execute", "eval")
            if allowlist.allows(name)] == sorted(chosen, key=["read_file", "write_file",
                                                              "execute"].index)  # fmt: skip


def test_a_tool_given_itself_wins_over_the_agents_of_the_same_name() -> None:
    (mine,) = named("read_file")
    (chosen,) = Allowlist([mine, "read_file"], "eval").select([READ])
    assert chosen is mine


def test_a_name_that_matches_nothing_is_warned_of_once(caplog: Any) -> None:
    allowlist = Allowlist(["read_file", "nosuch", "no_*", READ], "eval")
    with caplog.at_level(logging.WARNING, "qjs_pool.middleware"):
        for _ in range(3):
            allowlist.select([READ, WRITE])
    assert [record.getMessage() for record in caplog.records] == [
        "ptc entry 'nosuch' matches no tool of this agent",
        "ptc entry 'no_*' matches no tool of this agent",
    ]


def test_a_glob_never_breaks_a_run_by_what_it_matches(caplog: Any) -> None:
    tools = named("2fast", "a_b", "a-b")
    with caplog.at_level(logging.WARNING, "qjs_pool.middleware"):
        chosen = Allowlist(["*"], "eval").select([*tools, {"type": "web_search"}])
    assert [tool.name for tool in chosen] == ["a_b"]
    assert "'2fast'" in caplog.text
    assert "tool 'a-b' is not exposed: tools.aB is taken" in caplog.text


def test_names_of_the_pools_worker_functions_are_taken(caplog: Any) -> None:
    with caplog.at_level(logging.WARNING, "qjs_pool.middleware"):
        assert Allowlist(["*"], "eval").select([READ], reserved=["read_file"]) == []
    assert "tools.readFile is taken" in caplog.text


def test_the_tools_are_those_of_each_model_call(scripted: Any, ask: Any) -> None:
    class Filtering(AgentMiddleware[Any, Any, Any]):
        """From the second model call on there is no write_file."""

        def wrap_model_call(self, request: Any, handler: Any) -> Any:
            if len(request.messages) > 1:
                request = request.override(
                    tools=[tool for tool in request.tools if tool.name != "write_file"]
                )
            return handler(request)

    agent = scripted.agent(
        scripted.turn("Object.keys(tools)", "Object.keys(tools)"),
        Filtering(),
        scripted.middleware(ptc=["*"]),
        tools=[READ, WRITE],
    )
    assert scripted.texts(agent.invoke(ask())) == [
        '<result>["readFile", "writeFile"]</result>',
        '<result>["readFile"]</result>',
    ]
