"""Commands made one: only where the graph's own channels come to the same state."""

from __future__ import annotations

import operator
from typing import Any

import pytest

pytest.importorskip("langchain")
pytest.importorskip("langgraph")

from langchain_core.messages import ToolMessage
from langgraph.channels import BinaryOperatorAggregate, LastValue
from langgraph.types import Command, Send

from qjs_pool.middleware.merging import merged


def forgetting(left: dict[str, Any] | None, right: dict[str, Any]) -> dict[str, Any]:
    """Merges; None makes a key go."""
    return {k: v for k, v in {**(left or {}), **right}.items() if v is not None}


def channels(**values: Any) -> dict[str, Any]:
    made: dict[str, Any] = {
        "files": BinaryOperatorAggregate(dict, forgetting),
        "log": BinaryOperatorAggregate(list, operator.add),
        "count": BinaryOperatorAggregate(int, operator.add),
        "odd": BinaryOperatorAggregate(int, lambda left, right: left * 2 + right),
        "last": LastValue(str),
    }
    for key, value in values.items():
        made[key] = made[key].from_checkpoint(value)
    return made


def updates(*several: Any) -> list[Command[Any]]:
    return [Command(update=update) for update in several]


def test_one_command_stays_what_it_is() -> None:
    command = Command(update=[("a", 1)], goto="x", graph=Command.PARENT)
    assert merged([command], {}) is command


def test_different_keys_are_put_together_and_messages_follow_each_other() -> None:
    first, second, third = (ToolMessage(str(n), tool_call_id=str(n)) for n in range(3))
    assert merged(
        updates({"last": "a", "messages": [first]}, {"x": 1, "messages": second}, None,
                {"messages": [third]}), channels(),
    ) == Command(update={"last": "a", "messages": [first, second, third], "x": 1})  # fmt: skip


@pytest.mark.parametrize(
    ("key", "now", "several", "value"),
    [
        ("files", {"/a": 0}, [{"/b": 1}, {"/b": 2}, {"/c": 3}], {"/b": 2, "/c": 3}),
        # That a key is to go must not be lost on the way.
        ("files", {"/a": 0}, [{"/a": 1}, {"/a": None}], {"/a": None}),
        ("log", [0], [[1], [2, 3]], [1, 2, 3]),
        ("count", 5, [1, 2, 3], 6),
    ],
)
def test_values_of_one_key_become_the_one_that_gives_the_same(
    key: str, now: Any, several: list[Any], value: Any
) -> None:
    made = merged(updates(*({key: one} for one in several)), channels(**{key: now}))
    assert made == Command(update={key: value})


@pytest.mark.parametrize(
    "several",
    [
        updates({"odd": 1}, {"odd": 2}),
        updates({"last": "a"}, {"last": "b"}),
        updates({"unknown": 1}, {"unknown": 1}),
        updates({"log": [1]}, {"log": 5}),
        updates([("log", [1])], {"log": [2]}),
        [Command(update={"x": 1}, graph=Command.PARENT), Command(update={"y": 1})],
        [Command(goto=Send("a", 1)), Command(goto="b")],
    ],
)
def test_what_cannot_be_one_stays_several(several: list[Command[Any]]) -> None:
    assert merged(several, channels(odd=3)) is None


def test_one_goto_goes_along() -> None:
    assert merged([Command(goto="a"), Command(update={"x": 1})], {}) == Command(
        update={"x": 1}, goto="a"
    )
