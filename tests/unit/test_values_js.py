"""Values across the border: the encoding of what a program leaves, and of what the host puts in."""

from __future__ import annotations

import json
import math
import time
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from .prelude_guest import Guest, engine_has


@pytest.fixture(scope="module")
def guest() -> Guest:
    return Guest()


ENCODINGS = [
    ("undefined", "null"),
    ("null", "null"),
    ("[true, false]", "[true,false]"),
    ("'text'", '"text"'),
    ("[1, -1, 0, 2147483648, 9007199254740991, -9007199254740991]",
     "[1,-1,0,2147483648,9007199254740991,-9007199254740991]"),
    ("[0.5, 1e21, -1e-7]", "[0.5,1e+21,-1e-7]"),
    # whole numbers past the safe range are floats, and must not look like ints
    ("[9007199254740992, -1e20]", "[9007199254740992.0,-100000000000000000000.0]"),
    ("9007199254740992", "9007199254740992.0"),
    ("[NaN, Infinity, -Infinity, -0]",
     '[{"$":["num","nan"]},{"$":["num","inf"]},{"$":["num","-inf"]},{"$":["num","-0"]}]'),
    ("-0", '{"$":["num","-0"]}'),
    ("[255n, -255n, 0n]", '[{"$":["int","ff"]},{"$":["int","-ff"]},{"$":["int","0"]}]'),
    ("[1, , undefined]", "[1,null,null]"),
    ("({a: undefined, b: 1, c: undefined})", '{"b":1}'),
    ("({})", "{}"),
    ("[[], {}, [{}], [[]]]", "[[],{},[{}],[[]]]"),
    ("new Map([['k', 1], [{}, [2]]])", '{"$":["map",[["k",1],[{},[2]]]]}'),
    ("new Set([1, 'a'])", '[1,"a"]'),
    ("[new Date(86400000), new Date(NaN), new Date(8.64e15), new Date(-62135596800001)]",
     '[{"$":["date",86400000]},null,null,null]'),
    ("new Uint8Array([1, 2, 255])", '{"$":["bytes","AQL/"]}'),
    ("[new Uint8Array([1]).buffer, new DataView(new ArrayBuffer(2), 1), new Uint8Array(0)]",
     '[{"$":["bytes","AQ=="]},{"$":["bytes","AA=="]},{"$":["bytes",""]}]'),
    ("new Uint16Array([258]).subarray(0, 1)", '{"$":["bytes","AgE="]}'),
    ("[new Number(1), new String('s'), new Boolean(false), Object(1n)]",
     '[1,"s",false,{"$":["int","1"]}]'),
    ("[function f() {}, () => 1, Symbol('s')]",
     '["[Function: f]","[Function (anonymous)]","Symbol(s)"]'),
    ("({f() {}})", '{"f":"[Function: f]"}'),
    ("/a/g", '"/a/g"'),
    ("(() => { class P { constructor() { this.x = 1 } get y() { return 2 } } return new P() })()",
     '{"x":1}'),
    ("({get a() { return 1 }})", '{"a":1}'),
    ("Object.defineProperty({[Symbol('k')]: 1, a: 2}, 'b', {value: 3})", '{"a":2}'),
    ("Object.assign(Object.create(null), {a: 1})", '{"a":1}'),
    ("(() => { const s = {n: 1}; return [s, s] })()", '[{"n":1},{"n":1}]'),
    ("new Proxy({a: 1}, {})", '{"a":1}'),
    ("new Proxy([1, 2], {})", "[1,2]"),
    # what could be taken for a tag is written as pairs
    ("({$: ['map', []]})", '{"$":["obj",[["$",["map",[]]]]]}'),
    ("({$: 1, b: 2})", '{"$":["obj",[["$",1],["b",2]]]}'),
    ("({a: undefined, $: 1, c: undefined})", '{"$":["obj",[["$",1]]]}'),
    ("[{$: 1}, {$: 1}, {$: 1}, {$: 1}]", "[" + ",".join(['{"$":["obj",[["$",1]]]}'] * 4) + "]"),
    # text is well-formed
    (r"['a\u0000b', 'x\ud800y', '\u{1f600}', '\\ud800', '\ud83d']",
     '["a\\u0000b","x\ufffdy","\U0001f600","\\\\ud800","\ufffd"]'),
    (r"({'\ud800': '\udc00'})", '{"\ufffd":"\ufffd"}'),
    (r"({['__proto__']: 1})", '{"__proto__":1}'),
]  # fmt: skip


@pytest.mark.parametrize(("source", "encoded"), ENCODINGS, ids=[s[:40] for s, _ in ENCODINGS])
def test_value_is_encoded_as_the_format_says(guest: Guest, source: str, encoded: str) -> None:
    assert guest.encoded(f"({source})") == encoded


@pytest.mark.parametrize(("source", "encoded"), ENCODINGS, ids=[s[:40] for s, _ in ENCODINGS])
def test_long_lists_are_encoded_like_short_ones(guest: Guest, source: str, encoded: str) -> None:
    """Lists of four and more go through native batches: the text must be the same."""
    for row, written in ((source, encoded), (f"{{v: {source}}}", f'{{"v":{encoded}}}')):
        if source == "undefined" and row != source:
            written = "{}"
        many = f"[1, ({row}), 'x', ({row}), ({row}), {{a: 1}}, ({row})]"
        assert guest.encoded(many) == f'[1,{written},"x",{written},{written},{{"a":1}},{written}]'


def test_an_error_keeps_name_message_and_stack(guest: Guest) -> None:
    source = "class Gone extends Error { constructor(m) { super(m); this.name = 'Gone' } }"
    tag, name, message, stack = json.loads(guest.encoded(f"{source}\n[new Gone('x')]"))[0]["$"]
    assert (tag, name, message) == ("error", "Gone", "x")
    assert "<input>" in stack


def test_every_batch_of_a_long_list_arrives_in_order(guest: Guest) -> None:
    rows = json.loads(guest.encoded("Array.from({length: 5000}, (_, i) => ({i, s: 'v' + i}))"))
    assert rows == [{"i": i, "s": f"v{i}"} for i in range(5000)]
    mixed = json.loads(
        guest.encoded("Array.from({length: 1000}, (_, i) => i % 3 ? i : i % 2 ? [i] : {k: {i}})")
    )
    assert mixed == [i if i % 3 else [i] if i % 2 else {"k": {"i": i}} for i in range(1000)]


@settings(max_examples=60, deadline=None)
@given(
    st.recursive(
        st.none()
        | st.booleans()
        | st.integers(-(2**53) + 1, 2**53 - 1)
        | st.floats(allow_nan=False, allow_infinity=False)
        | st.text(st.characters(codec="utf-8"), max_size=8),
        lambda inner: (
            st.lists(inner, max_size=8)
            | st.dictionaries(st.text(max_size=4).filter(lambda key: key != "$"), inner, max_size=5)
        ),
        max_leaves=30,
    )
)
def test_plain_data_comes_back_as_it_was(data: Any) -> None:
    text = json.dumps(data)
    assert _SHARED.engine.set_global("given", text)
    outcome = _SHARED.outcome("given")
    assert outcome.value is not None
    back = json.loads(outcome.value, object_hook=_untagged)
    assert _as_javascript(back) == _as_javascript(data)


_SHARED = Guest()


def _untagged(value: dict[str, Any]) -> Any:
    if list(value) == ["$"] and value["$"] == ["num", "-0"]:
        return -0.0
    return value


def _as_javascript(value: Any) -> Any:
    """Floats that are whole are ints to JavaScript, except where their sign is all there is."""
    if isinstance(value, float):
        if value == 0 and math.copysign(1, value) < 0:
            return "-0"
        if value.is_integer() and abs(value) < 2**53:
            return int(value)
        return value
    if isinstance(value, list):
        return [_as_javascript(item) for item in value]
    if isinstance(value, dict):
        # Keys that are indices come first in JavaScript: the order is not part of the value.
        return {key: _as_javascript(item) for key, item in value.items()}
    return value


@pytest.mark.parametrize(
    ("source", "type_name", "words"),
    [
        ("(() => { const c = {}; c.c = [c]; return c })()", "ValueConversionError", "cycle"),
        ("(() => { const c = []; c.push(1, 2, 3, c); return c })()",
         "ValueConversionError", "cycle"),
        ("(() => { const m = new Map(); m.set('m', m); return m })()",
         "ValueConversionError", "cycle"),
        ("({get a() { throw new RangeError('no') }})", "ValueConversionError", "RangeError: no"),
        ("({get a() { throw null }})", "ValueConversionError", "null"),
        ("new Proxy({}, {ownKeys() { throw new Error('trap') }})", "ValueConversionError", "trap"),
        ("(() => { let o = 1; for (let i = 0; i < 201; i++) o = [o]; return o })()",
         "ValueConversionError", "200"),
        ("(() => { let o = 1; for (let i = 0; i < 201; i++) o = {a: o}; return o })()",
         "ValueConversionError", "200"),
        ("(() => { let o = 1; for (let i = 0; i < 2e5; i++) o = [o]; return o })()",
         "ValueConversionError", "200"),
    ],
)  # fmt: skip
def test_what_cannot_be_encoded_says_why_and_the_text_is_there(
    guest: Guest, source: str, type_name: str, words: str
) -> None:
    name, message = guest.value_error(source)
    assert name == type_name
    assert words in message
    assert guest.text(source)


def test_two_hundred_levels_are_encoded(guest: Guest) -> None:
    nest = "(() => {{ let o = {}; for (let i = 0; i < 200; i++) o = {}; return o }})()"
    assert guest.encoded(nest.format("1", "[o]")) == "[" * 200 + "1" + "]" * 200
    assert guest.encoded(nest.format("1", "{a: o}")) == '{"a":' * 200 + "1" + "}" * 200


@pytest.mark.parametrize(
    "source",
    [
        "'x'.repeat(2000)",
        "Array(300).fill('abcdef')",
        "Array.from({length: 300}, (_, i) => ({i, s: 'row'}))",
        "({a: {b: 'y'.repeat(999), c: 'y'.repeat(999)}})",
        "({['k'.repeat(2000)]: 1})",
        "new Uint8Array(2000)",
        "2n ** 10000n",
        "[['z'.repeat(500)], ['z'.repeat(500)], [['z'.repeat(500)]]]",
        "new Map([['m'.repeat(600), 'n'.repeat(600)]])",
        "Array(50).fill('w'.repeat(1e6))",
    ],
)
def test_a_value_over_its_bytes_is_refused_with_the_limit(source: str) -> None:
    guest = Guest(value_bytes=1000)
    name, message = guest.value_error(source)
    assert name == "ValueTooLarge"
    assert "1000 bytes" in message
    assert guest.encoded("'x'.repeat(900)") == '"' + "x" * 900 + '"'


def test_bytes_are_those_of_utf8_not_of_the_engine() -> None:
    guest = Guest(value_bytes=1000)
    assert guest.encoded("'é'.repeat(400)") == '"' + "é" * 400 + '"'
    name, message = guest.value_error("'é'.repeat(800)")
    assert name == "ValueTooLarge"
    assert "1602 bytes" in message


@pytest.mark.parametrize(
    "source",
    [
        "Array.from({length: 200}, () => [])",
        "Array.from({length: 200}, () => 1)",
        "Array.from({length: 60}, () => ({a: 1}))",
        "Object.fromEntries(Array.from({length: 80}, (_, i) => ['k' + i, i]))",
        "new Set(Array.from({length: 200}, (_, i) => i))",
        "new Map(Array.from({length: 60}, (_, i) => [i, i]))",
        "(() => { let o = []; for (let i = 0; i < 20; i++) o = [o, o]; return o })()",
        "(() => { const m = new Map(); const grow = {get a() { m.set({}, grow); return 1 }};"
        " m.set(0, grow); return m })()",
        "new Proxy([], {get(t, k) { return k === 'length' ? 1e9 : 1 }})",
        "new Array(2 ** 31)",
    ],
)
def test_a_value_of_too_many_parts_is_refused_with_the_limit(source: str) -> None:
    guest = Guest(value_nodes=150, cpu_s=5.0)
    name, message = guest.value_error(source)
    assert name == "ValueTooLarge"
    assert "150 parts" in message


def test_a_bomb_is_noticed_before_it_is_encoded() -> None:
    guest = Guest(value_bytes=1 << 20, value_nodes=10_000, cpu_s=10.0)
    source = "let o = ['x'.repeat(1000)]; for (let i = 0; i < 60; i++) o = [o, o]; o"
    started = time.process_time()
    name, _ = guest.value_error(source)
    assert name == "ValueTooLarge"
    assert time.process_time() - started < 1.0


def test_a_getter_that_calls_a_tool_does_not_disturb_the_encoding_around_it() -> None:
    guest = Guest(tools=[{"name": "note", "alias": "note"}])
    source = "[1, {get a() { tools.note({inner: [1, 2, 'x']}); return 5 }}, 'end', {b: 6}]"
    assert guest.encoded(source) == '[1,{"a":5},"end",{"b":6}]'
    guest.advance()
    assert [call.args for call in guest.calls] == ['{"inner":[1,2,"x"]}']


def test_a_getter_runs_once_and_cannot_answer_differently_the_second_time(guest: Guest) -> None:
    source = (
        "n = 0; const row = {get v() { return ++n === 1 ? 1 : {$: ['map', []]} }}; "
        "[row, 1, 2, 3, 4, 5]"
    )
    assert guest.encoded(source) == '[{"v":1},1,2,3,4,5]'
    assert guest.text("n") == "1"


def test_the_value_is_left_out_when_nobody_wants_it(guest: Guest) -> None:
    source = "read = 0; ({get a() { read = 1; return 1 }})"
    guest.engine.run(source, first=True, last=True, boxed=False, want_value=False)
    outcome = guest.engine.finish()
    assert (outcome.value, outcome.value_error) == (None, None)
    assert guest.text("read") == "0"


# --- host to guest ------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("payload", "text"),
    [
        ('{"a":[1,"x",null,true]}', '{a: [1, "x", null, true]}'),
        ('{"$":["int","-ff"]}', "-255n"),
        ('[{"$":["int","20000000000000"]}]', "[9007199254740992n]"),
        ('{"$":["bytes","AQL/"]}', "Uint8Array(3) [1, 2, 255]"),
        ('{"$":["bytes",""]}', "Uint8Array(0) []"),
        ('{"$":["map",[["k",{"$":["int","1"]}],[1,2]]]}', 'Map(2) {"k" => 1n, 1 => 2}'),
        ('[{"$":["num","nan"]},{"$":["num","-inf"]},{"$":["num","-0"]}]', "[NaN, -Infinity, -0]"),
        ('[{"$":["undef"]}]', "[undefined]"),
        ('{"$":["date",0]}', "1970-01-01T00:00:00.000Z"),
        ('{"$":["obj",[["$",{"$":["int","1"]}]]]}', '{$: 1n}'),
        ('{"a":{"__proto__":{"x":1}}}', '{a: {__proto__: {x: 1}}}'),
        ('"a\\u0000b"', "a\0b"),
        ('{"say":"{\\"$\\":1}"}', '{say: "{\\"$\\":1}"}'),
    ],
)  # fmt: skip
def test_a_host_value_becomes_the_guest_value_it_stands_for(
    guest: Guest, payload: str, text: str
) -> None:
    assert guest.engine.set_global("fromHost", payload)
    assert guest.text("fromHost") == text


def test_base64_of_every_length_survives_the_round_trip(guest: Guest) -> None:
    for length in range(10):
        source = f"Uint8Array.from({{length: {length}}}, (_, i) => 250 + i)"
        encoded = guest.encoded(source)
        assert guest.engine.set_global("back", encoded)
        expected = ", ".join(str((250 + i) % 256) for i in range(length))
        assert guest.text("back") == f"Uint8Array({length}) [{expected}]"


def test_a_host_value_is_an_ordinary_variable_of_the_guest(guest: Guest) -> None:
    assert guest.engine.set_global("mine", "1")
    assert (
        guest.text(
            "mine++; [mine, Object.keys(globalThis).includes('mine'), delete globalThis.mine]"
        )
        == "[2, true, true]"
    )


def test_a_host_value_meets_no_setter_and_no_polluted_prototype() -> None:
    guest = Guest()
    guest.outcome(
        "hit = 0; for (const k of ['a', '0', '$', 'then', 'get', 'value']) "
        "for (const p of [Object.prototype, Array.prototype]) "
        "Object.defineProperty(p, k, {__proto__: null, set() { hit = 1 }, get() { hit = 1 }}); "
        "hit = 0"
    )
    payload = '{"a":[{"$":["int","1"]},2],"$b":{"$":["obj",[["$",1],["then",2]]]}}'
    assert guest.engine.set_global("clean", payload)
    assert guest.text("[clean, hit]") == "[{a: [1n, 2], $b: {$: 1, then: 2}}, 0]"


@pytest.mark.skipif(not engine_has("'resizable' in ArrayBuffer.prototype"), reason="engine too old")
def test_a_buffer_that_is_gone_is_null(guest: Guest) -> None:
    source = (
        "const b = new ArrayBuffer(8, {maxByteLength: 8}), v = new DataView(b, 4); b.resize(2); [v]"
    )
    assert guest.encoded(source) == "[null]"
