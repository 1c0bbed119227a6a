"""Commands made one: only where the graph's own channels come to the same state."""

from __future__ import annotations

import asyncio
import operator
from typing import Annotated, Any

import pytest

pytest.importorskip("langchain")
pytest.importorskip("langgraph")

from langchain.agents.middleware import AgentMiddleware, AgentState
from langchain_core.messages import ToolMessage
from langchain_core.tools import InjectedToolCallId, tool
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
        updates({"log": [1]}, {"log": 5}),
        updates("no update", {"log": [2]}),
    ],
)
def test_what_cannot_be_one_stays_several(several: list[Command[Any]]) -> None:
    assert merged(several, channels(odd=3)) is None


def test_of_what_the_graph_does_not_know_the_last_is_as_good_as_any() -> None:
    several = updates({"unknown": 1}, {"unknown": 2})
    assert merged(several, channels()) == Command(update={"unknown": 2})
    assert merged(several, {}) is None  # a graph that is not known may know it


def test_an_update_may_be_given_as_pairs() -> None:
    several = updates([("log", [1]), ("log", [2])], {"log": [3]}, (("x", 1),))
    assert merged(several, channels()) == Command(update={"log": [1, 2, 3], "x": 1})


def test_places_to_go_to_are_put_together() -> None:
    send = Send("a", 1)
    several = [Command(goto=send), Command(goto="b"), Command(update={"x": 1}, goto=["c", "b"])]
    assert merged(several, {}) == Command(update={"x": 1}, goto=[send, "b", "c", "b"])
    assert merged(several, {}, in_loop=True) == Command(update={"x": 1}, goto="b")


def test_a_command_for_the_graph_around_leaves_nothing_for_this_one() -> None:
    first = Command(update={"x": 1}, goto="a", graph=Command.PARENT)
    second = Command(update={"y": 1}, goto="b", graph=Command.PARENT)
    assert merged([Command(update={"z": 1}), first, second], {}) is first
    sends = [Command(goto=[Send(to, 1)], graph=Command.PARENT) for to in "ab"]
    assert merged([*sends, Command(update={"z": 1})], {}) == Command(
        goto=[Send("a", 1), Send("b", 1)], graph=Command.PARENT
    )


def test_one_goto_goes_along() -> None:
    assert merged([Command(goto="a"), Command(update={"x": 1})], {}) == Command(
        update={"x": 1}, goto="a"
    )


@pytest.mark.parametrize("how", ["invoke", "ainvoke"])
def test_whatever_its_calls_return_a_program_fails_no_deep_agent(
    scripted: Any, ask: Any, how: str
) -> None:
    class Counting(AgentState[Any]):
        odd: Annotated[int, lambda left, right: left * 2 + right]

    class Counts(AgentMiddleware[Any, Any, Any]):
        state_schema = Counting

    @tool
    def go(to: str, odd: int, call_id: Annotated[str, InjectedToolCallId]) -> Command[Any]:
        """Go to a node."""
        answer = ToolMessage("going", tool_call_id=call_id)
        return Command(update={"odd": odd, "nobody": odd, "messages": [answer]}, goto=to)

    program = """
    await tools.go({to: 'model', odd: 1});
    await tools.go({to: '__end__', odd: 2});
    await tools.go({to: 'model', odd: 3});
    'all'
    """
    agent = scripted.agent(
        scripted.turn(program),
        scripted.middleware(ptc=["go"]),
        Counts(),
        tools=[go],
        kind="deep",
    )
    given = {**ask(), "odd": 0}
    state = agent.invoke(given) if how == "invoke" else asyncio.run(agent.ainvoke(given))
    assert scripted.texts(state) == ["<result>all</result>"]
    assert state["odd"] == (1 * 2 + 2) * 2 + 3  # each counts, in the order of the calls
