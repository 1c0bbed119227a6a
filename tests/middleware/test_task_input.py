"""What a program gives to `task()`: the fields, their spellings, and the limits of a schema."""

from __future__ import annotations

import datetime
import re
from typing import Any

import pytest

pytest.importorskip("langchain")
pytest.importorskip("langgraph")

from qjs_pool.middleware.dispatch import ToolError
from qjs_pool.middleware.response_schema import SchemaRefused, checked_schema
from qjs_pool.middleware.task_input import TaskInput, checked_task

KNOWN = ["general-purpose", "reviewer"]
WORK = {"description": "d", "subagentType": "reviewer"}


@pytest.mark.parametrize(
    "args",
    [
        {"description": "d", "subagentType": "reviewer", "label": "l", "responseSchema": {}},
        {"description": "d", "subagent_type": "reviewer", "label": "l", "response_schema": {}},
        {"Description": "d", "subagent-type": "reviewer", "LABEL": "l", "responseschema": {}},
    ],
)
def test_fields_are_known_in_every_spelling(args: dict[str, Any]) -> None:
    assert checked_task(args, KNOWN) == TaskInput(
        description="d",
        subagent_type="reviewer",
        label="l",
        response_schema={"title": "subagent_answer"},
    )


def test_null_is_as_good_as_nothing() -> None:
    task = checked_task({**WORK, "label": None, "responseSchema": None}, KNOWN)
    assert task == TaskInput(description="d", subagent_type="reviewer")
    with pytest.raises(ToolError, match="requires subagentType"):
        checked_task({"description": "d", "subagentType": None}, KNOWN)


@pytest.mark.parametrize(
    ("args", "words"),
    [
        ({}, "task() requires description and subagentType"),
        ({"description": "d"}, "task() requires subagentType"),
        ({"subagentType": "reviewer"}, "task() requires description"),
        ({**WORK, "description": " \n"}, "task() requires description"),
        ({}, "subagentType is one of: general-purpose, reviewer"),
        ({"input": "d"}, "task() takes one object: task({ description, subagentType"),
        ("d", "task() takes one object"),
        ({**WORK, "prompt": "p"}, "task() has no field 'prompt'"),
        ({**WORK, "p" * 5000: "p"}, f"task() has no field {'p' * 60!r}:"),
        ({**WORK, "description": 5}, "description of task() must be a string"),
        ({**WORK, "subagentType": ["reviewer"]}, "subagentType of task() must be a string"),
        ({**WORK, "label": {}}, "label of task() must be a string"),
        ({**WORK, "responseSchema": "{}"}, "responseSchema of task() must be an object"),
        ({**WORK, "responseSchema": [1]}, "responseSchema of task() must be an object"),
        (
            {**WORK, "subagentType": "revewer"},
            "no subagent 'revewer', did you mean 'reviewer'? available: general-purpose, reviewer",
        ),
        ({**WORK, "subagentType": "x"}, "no subagent 'x'. available: general-purpose, reviewer"),
    ],
)
def test_what_is_wrong_is_said_in_the_programs_words(args: Any, words: str) -> None:
    with pytest.raises(ToolError, match=re.escape(words)):
        checked_task(args, KNOWN)


def test_where_the_subagents_are_not_known_any_name_goes_on_to_the_tool() -> None:
    assert checked_task({**WORK, "subagentType": "x"}, ()).subagent_type == "x"


def nested(levels: int, wrap: Any) -> dict[str, Any]:
    """A schema of so many levels, the outermost included."""
    schema: dict[str, Any] = {"type": "object"}
    for _ in range(levels - 1):
        schema = {"type": "object", **wrap(schema)}
    return schema


WRAPS = [
    lambda inner: {"properties": {"a": inner}},
    lambda inner: {"items": inner},
    lambda inner: {"items": [inner]},
    lambda inner: {"anyOf": [{"type": "null"}, inner]},
    lambda inner: {"$defs": {"a": inner}},
    lambda inner: {"additionalProperties": inner},
]


@pytest.mark.parametrize("wrap", WRAPS)
def test_a_schema_may_have_32_levels_and_no_more(wrap: Any) -> None:
    assert checked_schema(nested(32, wrap))["type"] == "object"
    with pytest.raises(SchemaRefused, match="over 32 levels"):
        checked_schema(nested(33, wrap))


def test_data_within_a_schema_is_no_level_of_it() -> None:
    default: Any = 1
    for _ in range(60):
        default = {"properties": {"a": default}}
    schema = {"properties": {"a": {"default": default, "enum": [default]}}}
    assert checked_schema(schema)["properties"] == schema["properties"]


def test_a_schema_may_have_1000_properties_in_all_and_no_more() -> None:
    def wide(more: int) -> dict[str, Any]:
        inner = {"properties": {f"b{n}": {} for n in range(500 + more)}}
        return {"properties": {"a": inner, **{f"a{n}": {} for n in range(499)}}}

    assert len(checked_schema(wide(0))["properties"]) == 500
    with pytest.raises(SchemaRefused, match="over 1000 properties"):
        checked_schema(wide(1))


def test_a_schema_may_have_64_kb_as_json_and_no_more() -> None:
    frame = len('{"description": ""}')
    assert checked_schema({"description": "x" * (65_536 - frame)})
    with pytest.raises(SchemaRefused, match="65537 bytes as JSON, and 65536 is the limit"):
        checked_schema({"description": "x" * (65_537 - frame)})
    with pytest.raises(SchemaRefused, match="is the limit"):
        checked_schema({"description": "\u20ac" * 30_000})  # three bytes each


@pytest.mark.parametrize(
    ("schema", "words"),
    [
        (None, "must be an object"),
        (True, "must be an object"),
        ({"default": datetime.datetime.min}, "must be plain JSON"),
        ({"default": float("nan")}, "must be plain JSON"),
        ({"type": "array", "items": {}}, "wrap a list into a property"),
        ({"type": "string"}, 'must have type "object" at its root'),
    ],
)
def test_what_is_no_schema_of_an_object_is_refused(schema: Any, words: str) -> None:
    with pytest.raises(SchemaRefused, match=re.escape(words)):
        checked_schema(schema)


@pytest.mark.parametrize(
    ("given", "title"),
    [
        ({}, "subagent_answer"),
        ({"title": ""}, "subagent_answer"),
        ({"title": " ! "}, "subagent_answer"),
        ({"title": 5}, "subagent_answer"),
        ({"title": "Finding"}, "Finding"),
        # Models are given it as the name of a tool, which has rules.
        ({"title": "Review of src/a.py"}, "Review_of_src_a_py"),
        ({"title": "x" * 100}, "x" * 64),
    ],
)
def test_a_schema_gets_a_title_that_can_name_a_tool(given: Any, title: str) -> None:
    schema = {**given, "type": "object"}
    assert checked_schema(schema) == {"type": "object", "title": title}
    assert schema == {**given, "type": "object"}  # what was given is not changed
