"""The global `task`: there where a tool is one, the guest's own name elsewhere."""

from __future__ import annotations

import pytest

from qjs_pool.worker.engine import HostCall

from .prelude_guest import Guest
from .snapshot_guest import Guest as Kept

SEARCH = {"name": "search", "alias": "search"}
TASK = {"name": "task", "alias": "task", "isGlobal": True, "description": "Start one."}


@pytest.fixture
def guest() -> Guest:
    return Guest(tools=[SEARCH, TASK])


def test_a_tool_that_is_a_global_is_called_by_its_name_alone(guest: Guest) -> None:
    guest.start("task({n: 1})")
    (call,) = guest.calls
    assert (call.name, call.args) == ("task", '{"n":1}')
    guest.answer(0, '"done"')
    assert guest.engine.finish().text == "done"


def test_it_is_neither_listed_nor_enumerable_and_tools_knows_it_all_the_same(guest: Guest) -> None:
    assert guest.text("[Object.keys(tools), Object.keys(globalThis), tools]") == (
        '[["search"], [], {search: [Function: search]}]'
    )
    assert guest.text("[tools.task === task, tools.Task === task, tools.$describe('task')]") == (
        '[true, true, "Start one."]'
    )
    assert guest.error("tools.nope()")[1] == "no tool nope. available: search"


def test_an_input_that_cannot_be_sent_rejects_and_names_the_global(guest: Guest) -> None:
    name, message = guest.error("const c = {}; c.c = c; task(c)")
    assert name == "ValueConversionError"
    assert message.startswith("the input of task() can't be sent")
    assert guest.calls == []


def test_without_such_a_tool_there_is_no_such_name() -> None:
    for guest in (Guest(tools=[SEARCH]), Guest(tools=[{**SEARCH, "name": "task"}])):
        assert guest.text("[typeof task, 'task' in globalThis]") == '["undefined", false]'
        assert guest.text("task = 5") == "5"
        # The guest's own persists as any other.
        assert guest.text("[task, Object.keys(globalThis)]") == '[5, ["task"]]'


def test_a_name_of_the_guests_gives_way_when_a_tool_takes_it(guest: Guest) -> None:
    own = Guest()
    own.text("task = 5")
    own.engine.configure_with({"tools": [TASK]})
    assert own.text("[typeof task, Object.keys(globalThis)]") == '["function", []]'


def test_a_constant_of_the_guests_stays_and_the_tool_is_reached_another_way() -> None:
    own = Guest()
    own.text("Object.defineProperty(globalThis, 'task', {value: 5}); 0")
    own.engine.configure_with({"tools": [TASK]})
    assert own.text("task") == "5"
    own.start("tools.task({n: 1})")
    assert [call.name for call in own.calls] == ["task"]


def test_when_the_tool_is_withdrawn_the_name_is_the_guests_and_old_references_reject(
    guest: Guest,
) -> None:
    guest.text("old = task; 0")
    guest.engine.configure_with({"tools": [SEARCH]})
    assert guest.text("typeof task") == "undefined"
    assert guest.error("old({})") == ("TypeError", "task() is not offered here")
    assert guest.error("tools.task({})")[1] == "no tool task. available: search"
    assert guest.text("task = 5") == "5"
    assert guest.text("task") == "5"
    guest.engine.configure_with({"tools": [TASK]})
    assert guest.text("task === old") == "true"


def test_no_snapshot_has_it_and_what_refers_to_it_comes_back_as_the_sessions_own() -> None:
    def session(body: bytes | None = None) -> Kept:
        kept = Kept(body)
        kept.engine.configure_with({"tools": [TASK]})
        return kept

    first = session()
    first.text("const start = task, all = {start: task}; 0")
    first.text("task = 'mine'")
    body = first.body()
    second = session(body)
    assert second.text("[start === task, all.start === task, Object.keys(globalThis)]") == (
        '[true, true, ["start", "all"]]'
    )
    without = Kept(body)
    assert without.text("[typeof task, typeof start]") == '["undefined", "function"]'


def test_the_guests_own_of_a_snapshot_gives_way_in_a_session_that_has_the_tool() -> None:
    own = Kept()
    own.text("var task = 5, other = 6")
    heir = Kept(own.body())
    heir.engine.configure_with({"tools": [TASK]})
    assert heir.text("[typeof task, other]") == '["function", 6]'
    later = Kept()
    later.engine.configure_with({"tools": [TASK]})
    later._snapshots.restore(own.body(), 1 << 26, 1 << 26, 5.0, lambda _: None)
    assert later.text("[typeof task, other]") == '["function", 6]'


def test_calls_are_numbered_with_those_of_the_tools(guest: Guest) -> None:
    guest.start("Promise.all([tools.search({}), task({}), tools.search({})])")
    calls: list[HostCall] = guest.calls
    assert [(call.id, call.name) for call in calls] == [(1, "search"), (2, "task"), (3, "search")]
