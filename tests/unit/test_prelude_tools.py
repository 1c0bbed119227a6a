"""tools: calls to the host as promises, near misses, and what is sent."""

from __future__ import annotations

import json
from typing import Any

import pytest

from .prelude_guest import Guest

TOOLS: list[dict[str, Any]] = [
    {"name": "webSearch", "alias": "web_search", "required": ["query"], "description": "Finds."},
    {"name": "sendMail", "alias": "send-mail", "required": ["to", "body"]},
    {"name": "echo", "alias": "echo", "required": None},
]


@pytest.fixture
def guest() -> Guest:
    return Guest(tools=TOOLS)


def test_a_call_goes_out_and_its_answer_comes_back(guest: Guest) -> None:
    guest.start("tools.echo({v: [1, {a: 'x'}]})")
    assert not guest.settled
    assert [(call.name, call.args) for call in guest.calls] == [("echo", '{"v":[1,{"a":"x"}]}')]
    guest.answer(0, '{"ok":true}')
    assert guest.engine.finish().text == "{ok: true}"


def test_calls_run_at_once_and_each_settles_by_its_own_answer(guest: Guest) -> None:
    guest.start("Promise.all([tools.echo(1), tools.echo(2), tools.echo(3)])")
    assert len({call.id for call in guest.calls}) == 3
    for index in (2, 0, 1):
        guest.answer(index, str(index * 10))
    assert guest.engine.finish().text == "[0, 10, 20]"


def test_the_first_to_settle_wins_and_a_late_answer_does_no_harm(guest: Guest) -> None:
    guest.start("Promise.race([tools.echo(1), tools.echo(2)])")
    guest.answer(1, '"fast"')
    assert guest.engine.finish().text == "fast"
    assert guest.engine.poll(0.0).calls_open == 1
    guest.answer(0, '"late"')
    assert guest.engine.poll(0.0).calls_open == 0


def test_an_answer_is_taken_once(guest: Guest) -> None:
    guest.start("globalThis.p = tools.echo(1); p")
    call_id = guest.calls[0].id
    assert guest.engine.settle(call_id, True, "1")
    assert not guest.engine.settle(call_id, True, "2")
    assert not guest.engine.settle(999, True, "2")
    guest.advance()
    assert guest.engine.finish().text == "1"


@pytest.mark.parametrize("name", ["TypeError", "RangeError", "ToolError", "Error"])
def test_a_refusal_rejects_with_name_message_and_the_place_of_the_call(
    guest: Guest, name: str
) -> None:
    guest.start("1;\n(async () => {\n  await tools.echo({})\n})()")
    guest.refuse(0, name, 'row "17" has no é')
    error = guest.engine.finish().error
    assert error is not None
    assert (error.name, error.message) == (name, 'row "17" has no é')
    if PROBE_HAS_COLUMNS:
        assert "<input>:3:" in error.stack


PROBE_HAS_COLUMNS = "<input>:1:" in (getattr(Guest().outcome("null.x").error, "stack", ""))


def test_a_refusal_can_be_caught_as_an_ordinary_error(guest: Guest) -> None:
    guest.start("tools.echo().catch((e) => [e instanceof Error, e instanceof TypeError, `${e}`])")
    guest.refuse(0, "TypeError", "no")
    assert guest.engine.finish().text == '[true, true, "TypeError: no"]'


INPUTS = [
    ("webSearch('cats')", "webSearch", '{"query":"cats"}'),
    ("webSearch({query: 'cats'})", "webSearch", '{"query":"cats"}'),
    ("webSearch(5)", "webSearch", '{"input":5}'),
    ("sendMail('x')", "sendMail", '{"input":"x"}'),
    ("echo()", "echo", "{}"),
    ("echo(undefined)", "echo", "{}"),
    ("echo(null)", "echo", "{}"),
    ("echo('x')", "echo", '{"input":"x"}'),
    ("echo([1, 2])", "echo", '{"input":[1,2]}'),
    ("echo(true)", "echo", '{"input":true}'),
    ("echo(5n)", "echo", '{"input":{"$":["int","5"]}}'),
    ("echo(new Date(0))", "echo", '{"input":{"$":["date",0]}}'),
    ("echo(new Map([['a', 1]]))", "echo", '{"$":["map",[["a",1]]]}'),
    ("echo({$: 1})", "echo", '{"$":["obj",[["$",1]]]}'),
    ("echo({a: undefined})", "echo", "{}"),
    ("echo({a: 1}, 'ignored')", "echo", '{"a":1}'),
    ("web_search({query: 1})", "webSearch", '{"query":1}'),
    ("WebSearch({query: 1})", "webSearch", '{"query":1}'),
    ("websearch('x')", "webSearch", '{"query":"x"}'),
    ("send_mail({})", "sendMail", "{}"),
    ("['send-mail']({})", "sendMail", "{}"),
]


@pytest.mark.parametrize(("call", "name", "args"), INPUTS)
def test_what_is_sent(guest: Guest, call: str, name: str, args: str) -> None:
    dot = "" if call.startswith("[") else "."
    guest.start(f"tools{dot}{call}; 0")
    assert [(made.name, made.args) for made in guest.calls] == [(name, args)]


def test_tools_can_be_handed_to_map(guest: Guest) -> None:
    guest.start("Promise.all(['a', 'b'].map(tools.webSearch))")
    assert [call.args for call in guest.calls] == ['{"query":"a"}', '{"query":"b"}']


@pytest.mark.parametrize(
    ("name", "message"),
    [
        (
            "webSerch",
            "no tool webSerch, did you mean webSearch? available: webSearch, sendMail, echo",
        ),
        ("fetchUrl", "no tool fetchUrl. available: webSearch, sendMail, echo"),
    ],
)
def test_an_unknown_tool_is_answered_with_the_nearest_and_the_list(
    guest: Guest, name: str, message: str
) -> None:
    assert guest.error(f"tools.{name}({{query: 'x'}})") == ("TypeError", message)
    assert guest.calls == []


def test_without_tools_every_call_says_so() -> None:
    for guest in (Guest(), Guest(tools=[]), Guest(tools=None)):
        assert guest.error("tools.anything()")[1] == "no tool anything: this session has no tools"
        assert guest.text("Object.keys(tools)") == "[]"


def test_tools_lists_its_names_and_is_no_thenable(guest: Guest) -> None:
    assert guest.text("Object.keys(tools)") == '["webSearch", "sendMail", "echo"]'
    assert guest.text(
        "[tools.then, tools.toJSON, tools[Symbol.iterator], 'echo' in tools, 'x' in tools]"
    ) == ("[undefined, undefined, undefined, true, false]")
    assert guest.text("(async () => typeof (await tools).echo)()") == "function"
    assert guest.text("tools") == (
        "{webSearch: [Function: webSearch], sendMail: [Function: sendMail], echo: [Function: echo]}"
    )
    assert guest.text("tools.echo === tools.echo") == "true"
    assert guest.text("`${tools}` + tools.hasOwnProperty('echo')") == "[object Object]true"


def test_tools_cannot_be_changed(guest: Guest) -> None:
    guest.outcome(
        "tools.echo = 1; delete tools.echo; Object.defineProperty(tools, 'x', {value: 1})"
    )
    assert guest.text("[typeof tools.echo, Object.keys(tools).length]") == '["function", 3]'
    assert guest.error("'use strict'; tools.echo = 1")[0] == "TypeError"


def test_describe_gives_the_description_of_a_tool_by_any_spelling(guest: Guest) -> None:
    assert guest.text("tools.$describe('webSearch')") == "Finds."
    assert guest.text("tools.$describe('web_search')") == "Finds."
    assert guest.text("tools.$describe('webSerch')").startswith("no tool webSerch, did you mean")


@pytest.mark.parametrize(
    ("value", "name", "words"),
    [
        ("(() => { const c = {}; c.c = c; return c })()", "ValueConversionError", "cycle"),
        ("{get a() { throw new Error('nope') }}", "ValueConversionError", "nope"),
        ("{a: 'x'.repeat(5000)}", "ValueTooLarge", "2000 bytes"),
    ],
)
def test_an_input_that_cannot_be_sent_rejects_the_call(value: str, name: str, words: str) -> None:
    guest = Guest(value_bytes=2000, tools=TOOLS)
    found, message = guest.error(f"tools.echo({value})")
    assert found == name
    assert "tools.echo" in message
    assert words in message
    assert guest.calls == []


def test_tools_can_be_replaced_between_evals(guest: Guest) -> None:
    guest.outcome("globalThis.old = tools.echo; 0")
    guest.engine.configure_with({"tools": [{"name": "other", "alias": "other"}]})
    assert guest.text("Object.keys(tools)") == '["other"]'
    assert guest.error("tools.echo()")[1] == "no tool echo. available: other"
    guest.engine.configure_with({"seed": "00"})
    assert guest.text("Object.keys(tools)") == '["other"]'


def test_three_hundred_tools_do_not_make_a_message_endless() -> None:
    guest = Guest(tools=[{"name": f"tool{i}", "alias": f"tool{i}"} for i in range(300)])
    _, message = guest.error("tools.nothingLikeIt()")
    assert message.endswith("and 270 more")
    assert guest.error(f"tools['{'x' * 100_000}']()")[1].startswith("no tool " + "x" * 60)


def test_a_large_input_and_answer_cross_whole(guest: Guest) -> None:
    guest.start("tools.echo({rows: Array.from({length: 2000}, (_, i) => ({i, s: 'v' + i}))})")
    rows = json.loads(guest.calls[0].args)["rows"]
    assert rows[1999] == {"i": 1999, "s": "v1999"}
    guest.answer(0, json.dumps(rows))
    assert guest.engine.finish().text.endswith("... 1900 more items]")
