"""What the model is told. The golden files were written by hand, as what it should read."""

from __future__ import annotations

import enum
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any, Literal

import pytest

pytest.importorskip("langchain")
pytest.importorskip("langgraph")

from langchain.tools import InjectedState, ToolRuntime
from langchain_core.messages import SystemMessage, ToolMessage
from langchain_core.tools import BaseTool, StructuredTool, tool
from langgraph.types import Command
from pydantic import BaseModel, Field

from qjs_pool.middleware.signatures import signature_of

Ask = Callable[..., dict[str, Any]]

_GOLDEN = Path(__file__).parent / "golden"


def golden(name: str) -> str:
    return (_GOLDEN / name).read_text(encoding="utf-8").rstrip("\n")


class Depot(BaseModel):
    code: str = Field(description="Three letters")
    floor: int | None = None


class Line(BaseModel):
    sku: str
    qty: int = Field(default=1, description="How many.")
    ship_to: Depot


class Color(enum.Enum):
    RED = "red"
    BLUE = "blue"


@tool
def place_order(
    lines: list[Line],
    notes: dict[str, int],
    color: Color,
    speed: Literal["slow", "fast"] = "slow",
) -> list[Line]:
    """Place an order. Returns its lines."""
    return lines


@tool
def get_time() -> str:
    """The time."""
    return ""


class Node(BaseModel):
    name: str
    children: list[Node] = []


@tool
def walk(
    root: Node,
    runtime: ToolRuntime,
    state: Annotated[dict[str, Any], InjectedState],
    pair: tuple[int, str] = (1, "a"),
    anything: Any = None,
) -> Command[Any] | ToolMessage | None:
    """Walk a tree */ ```js."""
    return None


@tool(response_format="content_and_artifact")
def fetch(url: str) -> tuple[bytes, dict[str, str]]:
    """Fetch a page."""
    return b"", {}


mcp_tool = StructuredTool(
    name="mcp-list.items",
    description="Items of a server.",
    args_schema={
        "type": "object",
        "properties": {
            "filter": {"$ref": "#/$defs/Filter"},
            "max-items": {"type": ["integer", "null"], "default": 10},
            "tags": {"type": "array", "items": {"enum": ["a", "b", 3]}},
            "extra": {"type": "object", "additionalProperties": {"type": "string"}},
        },
        "required": ["filter"],
        "$defs": {
            "Filter": {"oneOf": [{"type": "string"}, {"$ref": "#/$defs/Range"}]},
            "Range": {
                "allOf": [
                    {"type": "object", "properties": {"lo": {"type": "number"}}},
                    {"type": "object", "properties": {"hi": {"type": "number"}}},
                ]
            },
        },
    },
    func=lambda **more: more,
)


def test_signatures_are_typescript_with_nested_models_inlined_and_descriptions_kept() -> None:
    tools: list[BaseTool] = [place_order, get_time, walk, fetch, mcp_tool]
    assert "\n\n".join(map(signature_of, tools)) == golden("signatures.ts")


def test_signatures_are_bounded_in_depth_and_size() -> None:
    schema: dict[str, Any] = {"type": "string"}
    for _ in range(50):
        schema = {"type": "object", "properties": {"deeper": schema}, "required": ["deeper"]}
    deep = StructuredTool(name="deep", description="", args_schema=schema, func=lambda **_: None)
    assert signature_of(deep).count("deeper") == 7
    fields = {f"field_{n}": {"type": "object", "properties": {f"f{m}": {"type": "string"}
              for m in range(50)}} for n in range(200)}  # fmt: skip
    wide = StructuredTool(
        name="wide", description="", args_schema={"type": "object", "properties": fields},
        func=lambda **_: None,
    )  # fmt: skip
    text = signature_of(wide)
    assert len(text) < 20_000
    assert "field_199?: unknown;" in text


def test_the_prompt_of_a_default_middleware(scripted: Any, ask: Ask) -> None:
    asked: list[Any] = []
    agent = scripted.agent(scripted.turn(), scripted.middleware(), asked=asked)
    agent.invoke(ask())
    assert asked[0][0].content == golden("default.md")


def test_the_prompt_with_tools_follows_what_was_there(scripted: Any, ask: Ask) -> None:
    asked: list[Any] = []
    agent = scripted.agent(
        scripted.turn(),
        scripted.middleware(
            ptc=["*"], mode="call", clock="real", timeout=None, wall_timeout=None,
            max_ptc_calls=10, memory_limit=1 << 30, tool_name="js", capture_console=False,
            max_result_chars=1000,
        ),
        tools=[get_time, fetch],
        system_prompt="Be brief.",
        asked=asked,
    )  # fmt: skip
    agent.invoke(ask())
    assert asked[0][0].content == golden("tools.md")


def test_past_fifty_tools_there_is_an_index_and_signatures_are_asked_for(
    scripted: Any, ask: Ask
) -> None:
    def of(city: str) -> str:
        return city

    tools = [
        StructuredTool.from_function(func=of, name=f"tool_{n:02}", description=f"Does {n}. More.")
        for n in range(51)
    ]
    asked: list[Any] = []
    agent = scripted.agent(
        scripted.turn("tools.$describe('tool07')"),
        scripted.middleware(ptc=["tool_*"]),
        tools=tools,
        asked=asked,
    )
    state = agent.invoke(ask())
    prompt = asked[0][0].content
    assert "- tools.tool07: Does 7.\n- tools.tool08: Does 8.\n" in prompt
    assert "city" not in prompt
    assert scripted.texts(state) == [
        "<result>/** Does 7. More. */\n"
        "tools.tool07(input: { city: string }): Promise&lt;string&gt;</result>"
    ]


def test_the_order_of_signatures_does_not_depend_on_that_of_the_tools(
    scripted: Any, ask: Ask
) -> None:
    prompts = []
    for tools in ([get_time, fetch, place_order], [place_order, get_time, fetch]):
        asked: list[Any] = []
        scripted.agent(
            scripted.turn(), scripted.middleware(ptc=["*"]), tools=tools, asked=asked
        ).invoke(ask())
        prompts.append(asked[0][0].content)
    assert prompts[0] == prompts[1]


def test_ones_own_text_replaces_the_built_in_one_and_signatures_follow_it(
    scripted: Any, ask: Ask
) -> None:
    asked: list[Any] = []
    agent = scripted.agent(
        scripted.turn(),
        scripted.middleware(system_prompt="Use `eval` for sums.", ptc=["get_time"]),
        tools=[get_time],
        asked=asked,
    )
    agent.invoke(ask())
    text = asked[0][0].content
    assert text.startswith("Use `eval` for sums.\n\n### Tools inside the REPL")
    assert "tools.getTime(): Promise<string>" in text


def test_a_system_message_of_blocks_keeps_its_blocks(scripted: Any, ask: Ask) -> None:
    asked: list[Any] = []
    block = {"type": "text", "text": "Be brief.", "cache_control": {"type": "ephemeral"}}
    agent = scripted.agent(
        scripted.turn(),
        scripted.middleware(system_prompt="REPL."),
        system_prompt=SystemMessage(content=[block]),
        asked=asked,
    )
    agent.invoke(ask())
    assert asked[0][0].content == [block, {"type": "text", "text": "\n\nREPL."}]
