"""The text of values: what the model reads. Exact, on one line, total."""

from __future__ import annotations

import time

import pytest

from .prelude_guest import Guest, engine_has

CASES = [
    # primitives
    ("'plain'", "plain"),
    ("undefined", "undefined"),
    ("null", "null"),
    ("true", "true"),
    ("-0", "-0"),
    ("[0.1 + 0.2, 1e21, NaN, -Infinity]", "[0.30000000000000004, 1e+21, NaN, -Infinity]"),
    ("[2n ** 64n, -5n]", "[18446744073709551616n, -5n]"),
    ("[Symbol('k'), Symbol()]", "[Symbol(k), Symbol()]"),
    # strings inside something
    (r"['say \"x\"', 'a\nb', '\u0001']", r'["say \"x\"", "a\nb", "\u0001"]'),
    ("['\\ud83d\\ude00', 'x\\ud800y']", '["\U0001f600", "x\ufffdy"]'),
    # objects
    ("({})", "{}"),
    (
        "({'a-b': 1, c: 2, 3: 4, $d: 5, _e: 6, '': 7})",
        '{"3": 4, "a-b": 1, c: 2, $d: 5, _e: 6, "": 7}',
    ),
    (
        "({[Symbol('k')]: 1, get g() { return 2 }, set s(v) {}, get b() {}, set b(v) {}})",
        "{g: [Getter], s: [Setter], b: [Getter/Setter], [Symbol(k)]: 1}",
    ),
    ("Object.defineProperty({a: 1}, 'hidden', {value: 2})", "{a: 1}"),
    ("Object.create(null)", "[Object: null prototype] {}"),
    (
        "(() => { class P { constructor() { this.x = 1 } } return [new P(), P.prototype] })()",
        "[P {x: 1}, {}]",
    ),
    (
        "({constructor: 1, toString: null, hasOwnProperty: 2})",
        "{constructor: 1, toString: null, hasOwnProperty: 2}",
    ),
    ("({[Symbol.toStringTag]: 'T'})", 'Object [T] {[Symbol(Symbol.toStringTag)]: "T"}'),
    # arrays
    ("[]", "[]"),
    ("[1, , undefined, null]", "[1, <1 empty item>, undefined, null]"),
    ("[, , 1, , , ]", "[<2 empty items>, 1, <2 empty items>]"),
    ("Object.assign([1, 2], {x: 'y'})", '[1, 2, x: "y"]'),
    ("new (class List extends Array {})(2)", "List(2) [<2 empty items>]"),
    ("(function () { return arguments })(1, 'a')", '[Arguments] [1, "a"]'),
    # collections
    ("[new Map([[1, {a: 2}]]), new Set(['x'])]", '[Map(1) {1 => {a: 2}}, Set(1) {"x"}]'),
    ("[new Map(), new Set()]", "[Map(0) {}, Set(0) {}]"),
    ("new (class Bag extends Map {})([['k', 1]])", 'Bag(1) {"k" => 1}'),
    ("[new WeakMap(), new WeakSet()]", "[WeakMap {<items unknown>}, WeakSet {<items unknown>}]"),
    # dates, expressions, boxes
    ("[new Date(0), new Date(NaN)]", "[1970-01-01T00:00:00.000Z, Invalid Date]"),
    ("[/a+/gi, /\\//]", "[/a+/gi, /\\//]"),
    (
        "[new Number(-0), new String('s'), new Boolean(false), Object(1n), Object(Symbol('q'))]",
        '[[Number: -0], [String: "s"], [Boolean: false], [BigInt: 1n], [Symbol: Symbol(q)]]',
    ),
    # functions
    (
        "[function add(a) {}, () => 1, async () => 1, function* g() {}, async function* ag() {}]",
        "[[Function: add], [Function (anonymous)], [AsyncFunction (anonymous)], "
        "[GeneratorFunction: g], [AsyncGeneratorFunction: ag]]",
    ),
    (
        "[class Q {}, class extends Array {}, Math.max]",
        "[[class Q], [class (anonymous) extends Array], [Function: max]]",
    ),
    ("Object.assign(function f() {}, {a: 1})", "[Function: f] {a: 1}"),
    # errors
    ("new TypeError('boom')", "TypeError: boom"),
    ("[new Error(''), new RangeError('r')]", "[Error, RangeError: r]"),
    ("Object.assign(new Error('e'), {code: 5, name: 'Custom'})", "Custom: e {code: 5}"),
    (
        "Object.defineProperty(new Error('out'), 'cause', {value: new TypeError('in')})",
        "Error: out {[cause]: TypeError: in}",
    ),
    (
        "new AggregateError([new Error('a'), 1], 'all')",
        "AggregateError: all {[errors]: [Error: a, 1]}",
    ),
    # buffers
    (
        "[new Uint8Array([1, 2]), new Float64Array(1), new BigInt64Array([5n])]",
        "[Uint8Array(2) [1, 2], Float64Array(1) [0], BigInt64Array(1) [5n]]",
    ),
    ("new Uint8Array([1, 255]).buffer", "ArrayBuffer {[Uint8Contents]: <01 ff>, byteLength: 2}"),
    (
        "new DataView(new ArrayBuffer(2), 1)",
        "DataView {byteLength: 1, byteOffset: 1, "
        "buffer: ArrayBuffer {[Uint8Contents]: <00 00>, byteLength: 2}}",
    ),
    # iterators and namespaces
    (
        "[(function* () {})(), [1].values(), Math]",
        "[Object [Generator] {}, Object [Array Iterator] {}, Object [Math] {}]",
    ),
    ("[new Promise(() => {})]", "[Promise {<pending>}]"),
    # cycles and sharing
    (
        "(() => { const c = {n: 1}; c.self = c; c.list = [c]; return c })()",
        "{n: 1, self: [Circular], list: [[Circular]]}",
    ),
    ("(() => { const s = {}; return [s, s] })()", "[{}, {}]"),
    # proxies read as what they stand for; no trap runs
    ("new Proxy({a: 1}, {get() { throw 1 }, ownKeys() { throw 2 }})", "{a: 1}"),
    ("[new Proxy([1], {}), Proxy.revocable({b: 2}, {}).proxy]", "[[1], {b: 2}]"),
]


@pytest.fixture(scope="module")
def guest() -> Guest:
    return Guest()


@pytest.mark.parametrize(("source", "text"), CASES, ids=[source[:40] for source, _ in CASES])
def test_value_reads_as_a_console_would_show_it(guest: Guest, source: str, text: str) -> None:
    # Parentheses, so that what starts with a brace or a class is an expression.
    assert guest.text(f"({source})") == text


def test_nesting_beyond_32_levels_is_named_not_shown(guest: Guest) -> None:
    nest = "(() => {{ let o = {0}; for (let i = 0; i < 33; i++) o = {1}; return o }})()"
    assert guest.text(nest.format("1", "[o]")) == "[" * 33 + "1" + "]" * 33
    assert guest.text(nest.format("[1]", "[o]")) == "[" * 33 + "[Array]" + "]" * 33
    deep = guest.text(nest.format("{x: 1}", "{k: o}"))
    assert deep == "{k: " * 33 + "[Object]" + "}" * 33


def test_a_hundred_thousand_levels_are_formatted_at_once(guest: Guest) -> None:
    text = guest.text("let o = 1; for (let i = 0; i < 1e5; i++) o = [o]; o")
    assert text == "[" * 33 + "[Array]" + "]" * 33


@pytest.mark.parametrize(
    ("source", "end"),
    [
        ("Array.from({length: 150}, (_, i) => i)", "99, ... 50 more items]"),
        ("Array.from({length: 101}, (_, i) => i)", "99, ... 1 more item]"),
        ("new Set(Array.from({length: 150}, (_, i) => i))", "99, ... 50 more items}"),
        ("new Map(Array.from({length: 150}, (_, i) => [i, 1]))", "99 => 1, ... 50 more items}"),
        (
            "Object.fromEntries(Array.from({length: 150}, (_, i) => ['k' + i, i]))",
            "k99: 99, ... 50 more items}",
        ),
        ("new Uint8Array(150)", "0, ... 50 more items]"),
    ],
)
def test_items_beyond_a_hundred_are_counted(guest: Guest, source: str, end: str) -> None:
    text = guest.text(source)
    assert text.endswith(end)
    assert "more" not in text[: -len(end)]


def test_exactly_a_hundred_items_are_all_shown(guest: Guest) -> None:
    assert guest.text("Array.from({length: 100}, () => 1)") == f"[{', '.join('1' * 100)}]"


def test_a_long_string_is_cut_by_code_points_and_the_rest_counted() -> None:
    guest = Guest(result_chars=10)
    assert guest.text("'a'.repeat(25)") == "a" * 10 + "… [truncated 15 chars]"
    assert guest.text("'a'.repeat(10)") == "a" * 10
    smile = "\U0001f600"
    assert guest.text("'\\u{1f600}'.repeat(25)") == smile * 10 + "… [truncated 15 chars]"
    assert guest.text("'\\u{1f600}'.repeat(10)") == smile * 10


def test_a_cut_leaves_the_text_well_formed() -> None:
    guest = Guest(result_chars=3)
    assert guest.text("'ab\\ud83d' + '\\ude00' + 'cd'") == "ab\U0001f600… [truncated 2 chars]"
    assert guest.text("'ab\\ud83dcd'") == "ab\ufffd… [truncated 2 chars]"


def test_a_container_is_cut_to_the_same_length() -> None:
    text = Guest(result_chars=20).text("Array.from({length: 90}, () => 'word')")
    shown, mark, rest = text.partition("… [truncated ")
    assert shown == '["word", "word", "wo'
    assert mark
    assert int(rest.removesuffix(" chars]")) > 0


@pytest.mark.parametrize(
    "source",
    [
        "Array.from({length: 3e5}, (_, i) => i)",
        "(() => { const o = {}; for (let i = 0; i < 2e5; i++) o['k' + i] = i; return o })()",
        "(() => { const z = []; z[2 ** 31] = 1; return z })()",
        "new Array(2 ** 32 - 1)",
        "(() => { let a = [1]; for (let i = 0; i < 25; i++) a = [a, a, a, a]; return a })()",
        "'x'.repeat(2e7)",
        "['x'.repeat(2e7)]",
        "(() => { let p = {}; for (let i = 0; i < 1e5; i++) p = Object.create(p); return p })()",
        "new Map(Array.from({length: 1e5}, (_, i) => [i, i]))",
    ],
)
def test_formatting_a_bomb_takes_a_bounded_time(source: str) -> None:
    guest = Guest(cpu_s=30.0)
    guest.engine.run(f"bomb = {source}; 1", first=True, last=True, boxed=False, want_value=False)
    guest.engine.finish()
    guest.engine.run("bomb", first=True, last=True, boxed=False, want_value=False)
    started = time.process_time()
    text = guest.engine.finish().text
    assert time.process_time() - started < 2.0
    assert len(text) < 4100


HOSTILE = [
    "Object.defineProperty({}, 'x', {enumerable: true, get() { hit = 1 }})",
    "({get [Symbol.toStringTag]() { hit = 1 }})",
    "({toString() { hit = 1 }, toJSON() { hit = 1 }, valueOf() { hit = 1 }})",
    "Object.defineProperty(function f() {}, 'name', {get() { hit = 1 }})",
    "Object.defineProperty(new Error('m'), 'message', {get() { hit = 1 }})",
    "Object.defineProperty(new Error('m'), 'stack', {get() { hit = 1 }})",
    "Object.defineProperty(new Error('m'), 'name', {get() { hit = 1 }})",
    "Object.create(new Proxy({}, {get() { hit = 1 }, getPrototypeOf() { hit = 1; return null }}))",
    "new Proxy(class {}, {get() { hit = 1 }, getOwnPropertyDescriptor() { hit = 1 }})",
    "new Proxy(new Proxy({}, {}), {ownKeys() { hit = 1; return [] }})",
    "Object.defineProperty({}, 'constructor', {get() { hit = 1 }})",
    "Object.create(Object.defineProperty({}, 'constructor', {get() { hit = 1 }}))",
    "Object.setPrototypeOf(new Map([[1, 2]]), {get size() { hit = 1; return 3 }})",
    "Object.defineProperty(/x/g, 'flags', {get() { hit = 1 }})",
    "Object.defineProperty(/x/g, 'lastIndex', {value: {valueOf() { hit = 1; return 0 }}})",
    "Object.defineProperty(new Date(0), 'toISOString', {get() { hit = 1 }})",
    "Object.defineProperty([1], 'length', {writable: false})",
    "(class extends Object.defineProperty(class {}, 'name', {get() { hit = 1 }}) {})",
]


@pytest.mark.parametrize("source", HOSTILE)
def test_formatting_runs_no_guest_code(source: str) -> None:
    guest = Guest()
    guest.engine.run(f"hit = 0; ({source})", first=True, last=True, boxed=False, want_value=False)
    outcome = guest.engine.finish()
    assert outcome.error is None
    assert outcome.text
    assert guest.text("hit") == "0"


def test_a_subclass_that_lies_about_its_nature_is_shown_as_a_plain_object(guest: Guest) -> None:
    assert guest.text("Object.create(Map.prototype)") == "Map {}"
    assert guest.text("({__proto__: Date.prototype})") == "Date {}"
    assert guest.text("({__proto__: Uint8Array.prototype})").startswith("Uint8Array")


@pytest.mark.skipif(not engine_has("'resizable' in ArrayBuffer.prototype"), reason="engine too old")
def test_a_view_whose_buffer_shrank_is_shown(guest: Guest) -> None:
    source = (
        "const b = new ArrayBuffer(8, {maxByteLength: 8}), v = new DataView(b, 4), "
        "u = new Uint8Array(b, 4); b.resize(2); [u, v]"
    )
    assert guest.text(source).startswith("[Uint8Array(0) [], DataView {byteLength: 0")
