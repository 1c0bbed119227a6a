"""What a snapshot keeps: every kind of value, with its identity, attributes and extras.

Each case is a program, a question asked after restoring, and the answer. `after` also checks that a
snapshot of what was restored is the same to the byte, so no generation loses anything.
"""

from __future__ import annotations

import pytest

from qjs_pool.wire import documents
from qjs_pool.worker.snapshots import SnapshotProblem

from .prelude_guest import engine_has
from .snapshot_guest import Guest, after

_VALUES = [
    (
        "const a = 1, b = 'x', c = true, d = null, e = undefined, f = 10n, g = -0, h = NaN",
        "[a, b, c, d, e, f, g, h]",
        '[1, "x", true, null, undefined, 10n, -0, NaN]',
    ),
    ("const i = [Infinity, -Infinity, 1e21, 5e-324]", "i", "[Infinity, -Infinity, 1e+21, 5e-324]"),
    ("const big = 2n ** 200n, neg = -5n", "[big === 2n ** 200n, neg]", "[true, -5n]"),
    (
        r"const s = '\ud800 \u0000 é 😀 \u2028'",
        r"[s.length, s === '\ud800 \u0000 é 😀 \u2028']",
        "[10, true]",
    ),
    (
        "globalThis[Symbol.for('k')] = 4; globalThis['odd name'] = 5",
        "[globalThis[Symbol.for('k')], globalThis['odd name']]",
        "[4, 5]",
    ),
    (
        "const x = { a: undefined, b: [undefined, null] }",
        "x",
        "{a: undefined, b: [undefined, null]}",
    ),
    (
        "const n = Object.create(null); n.a = 1; n.__proto__ = 'own'",
        "[n.a, Object.getPrototypeOf(n), Object.keys(n)]",
        '[1, null, ["a", "__proto__"]]',
    ),
    (
        """const j = JSON.parse('{"__proto__":{"x":1},"a":2}')""",
        "[Object.keys(j), j.x]",
        '[["__proto__", "a"], undefined]',
    ),
    (
        "const a = [1, , 3]; a.x = 'y'; a[5] = 6; Object.freeze(a)",
        "[a.length, a.x, 1 in a, 4 in a, Object.isFrozen(a)]",
        '[6, "y", false, false, true]',
    ),
    ("const far = []; far[4000000000] = 1", "[far.length, far[4000000000]]", "[4000000001, 1]"),
    (
        "const sealed = Object.seal({ a: 1 }), fixed = Object.preventExtensions({ b: 2 })",
        "[Object.isSealed(sealed), Object.isExtensible(fixed),"
        " Object.getOwnPropertyDescriptor(sealed, 'a').writable]",
        "[true, false, true]",
    ),
    (
        "const ro = Object.defineProperty({}, 'x', { value: 2 })",
        "const d = Object.getOwnPropertyDescriptor(ro, 'x');"
        " [d.value, d.writable, d.enumerable, d.configurable]",
        "[2, false, false, false]",
    ),
    (
        "Object.defineProperty(globalThis, 'fixed', { value: { a: 1 } })",
        "const d = Object.getOwnPropertyDescriptor(globalThis, 'fixed');"
        " [fixed.a, d.writable, d.enumerable, d.configurable]",
        "[1, false, false, false]",
    ),
    (
        "const m = new Map(); m.set(m, new Set([m])); m.x = 1",
        "[m.get(m).has(m), m.x]",
        "[true, 1]",
    ),
    (
        "const d = new Date(NaN), e = new Date(123.9); e.label = 'l'",
        "[Number.isNaN(d.getTime()), e.getTime(), e.label]",
        '[true, 123, "l"]',
    ),
    (
        "const r = /a(b)/gi; r.lastIndex = 3; r.x = 1",
        "[r.source, r.flags, r.lastIndex, r.x]",
        '["a(b)", "gi", 3, 1]',
    ),
    (
        "const b = [new Number(-0), new String('hé'), new Boolean(false), Object(5n)]; b[1].x = 1",
        "[Object.is(b[0].valueOf(), -0), b[1].length, b[1][1], b[1].x, b[2].valueOf(), b[3] + 1n,"
        " typeof b[3]]",
        '[true, 2, "é", 1, false, 6n, "object"]',
    ),
    (
        "const args = (function () { return arguments })(1, 2),"
        " strict = (function () { 'use strict'; return arguments })(3)",
        "[args.length, args[1], Object.prototype.toString.call(args), strict[0],"
        " [...strict].length]",
        '[2, 2, "[object Arguments]", 3, 1]',
    ),
    (
        "const ab = new ArrayBuffer(8), f = new Float64Array(ab); f[0] = 1.5;"
        " const u = new Uint8Array([1, 2, 3]).subarray(1), v = new DataView(ab, 4)",
        "[f[0], f.buffer === ab, v.buffer === ab, v.byteOffset, u.length, u[0],"
        " u.buffer.byteLength]",
        "[1.5, true, true, 4, 2, 2, 3]",
    ),
    (
        "const e = new RangeError('far'); e.code = 7;"
        " Object.defineProperty(e, 'cause', { value: new Error('near'), configurable: true })",
        "[e instanceof RangeError, e.message, e.cause.message, e.code, Object.keys(e),"
        " Object.prototype.toString.call(e), typeof e.stack]",
        '[true, "far", "near", 7, ["code"], "[object Error]", "string"]',
    ),
    (
        "const a = new AggregateError([new Error('a'), new TypeError('b')], 'many')",
        "[a.errors.length, a.errors[1] instanceof TypeError, a.message]",
        '[2, true, "many"]',
    ),
    (
        "const s = Symbol('x'), o = { [s]: 1 }, p = [s, Symbol.iterator, Symbol.for('r')]",
        "[o[s], p[0] === s, s.description, p[1] === Symbol.iterator, p[2] === Symbol.for('r')]",
        '[1, true, "x", true, true]',
    ),
    (
        "const u = new URL('https://x.y/z?q=1'), q = u.searchParams,"
        " alone = new URLSearchParams('a=1&b=2')",
        "q.set('q', '2'); [u.href, q === u.searchParams, alone.get('b')]",
        '["https://x.y/z?q=2", true, "2"]',
    ),
    (
        "const te = new TextEncoder(), td = new TextDecoder('utf-16le', { fatal: true })",
        "[te.encode('é').length, td.encoding, td.fatal]",
        '[2, "utf-16le", true]',
    ),
    (
        "const { floor, max: most } = Math, log = console.log, P = Array.prototype, g = globalThis",
        "[floor(1.5), most === Math.max, log === console.log, P === Array.prototype,"
        " g === globalThis]",
        "[1, true, true, true, true]",
    ),
    (
        "const mine = { constructor: 5, callee: 6, toJSON: 7 }",
        "mine",
        "{constructor: 5, callee: 6, toJSON: 7}",
    ),
]


@pytest.mark.parametrize(("program", "question", "answer"), _VALUES)
def test_value_comes_back_as_it_was(program: str, question: str, answer: str) -> None:
    assert after(program).text(question) == answer


@pytest.mark.skipif(
    not engine_has("typeof ArrayBuffer.prototype.resize === 'function'"),
    reason="not in this engine",
)
def test_resizable_buffer_can_still_grow() -> None:
    guest = after("const b = new ArrayBuffer(2, { maxByteLength: 8 }); new Uint8Array(b)[1] = 7")
    assert guest.text("b.resize(4); [b.byteLength, new Uint8Array(b)[1]]") == "[4, 7]"


def test_objects_shared_by_globals_are_still_one() -> None:
    guest = after(
        "const shared = { n: 1 }, p = { shared }, q = [shared], m = new Map([[1, shared]])"
    )
    assert guest.text("shared.n = 5; [p.shared.n, q[0] === shared, m.get(1) === shared]") == (
        "[5, true, true]"
    )


def test_order_of_globals_and_of_properties_is_kept() -> None:
    guest = after("var z = {}, a = z, m = 1; var o = { b: 1, a: new Date(0), 1: 2 }")
    assert guest.text("[Object.keys(globalThis), Object.keys(o)]") == (
        '[["z", "a", "m", "o"], ["1", "b", "a"]]'
    )


@pytest.mark.parametrize(
    ("program", "question", "answer"),
    [
        (
            "var list = null; for (let i = 0; i < 50000; i++) list = { next: list }",
            "let n = 0; for (let at = list; at; at = at.next) n++; n",
            "50000",
        ),
        (
            "var deep = []; for (let i = 0; i < 50000; i++) deep = [deep]; 0",
            "let n = 0; for (let at = deep; at.length; at = at[0]) n++; n",
            "50000",
        ),
        (
            "var wide = []; for (let i = 0; i < 100000; i++) wide.push({ i }); 0",
            "wide.length + wide[99999].i",
            "199999",
        ),
    ],
)
def test_long_and_wide_graphs_are_no_problem(program: str, question: str, answer: str) -> None:
    guest = Guest()
    guest.outcome(program)
    assert guest.heir().text(question) == answer


def test_globals_of_the_engine_and_of_preload_are_no_part_of_it_but_may_be_referred_to() -> None:
    preload = (
        "globalThis.lib = { twice: (n) => 2 * n, list: [1] }; class Base { hi() { return 'hi' } }"
    )
    guest = after(
        "Array.prototype.extra = 1; Math.mine = 2; const { twice } = lib, l = lib.list;"
        " class Own extends Base {}; const own = new Own(), base = new Base()",
        preload=preload,
    )
    assert guest.text("[[].extra, Math.mine]") == "[undefined, undefined]"
    assert guest.text("[twice(4), twice === lib.twice, l === lib.list, own.hi(), base.hi()]") == (
        '[8, true, true, "hi", "hi"]'
    )


@pytest.mark.parametrize(
    "pollution",
    [
        "Object.prototype.toJSON = function () { return 'bad' }",
        "Array.prototype.toJSON = () => 'bad'",
        "Object.defineProperty(Array.prototype, '0', { set(v) { globalThis.stolen = v } })",
        "Object.defineProperty(Object.prototype, 'value', { set(v) { globalThis.stolen = v } })",
        "Object.prototype.get = 1; Object.prototype.writable = false",
        "Map.prototype.get = Map.prototype.set = () => { globalThis.stolen = 1 }",
        "Function.prototype.call = Function.prototype.apply = () => { globalThis.stolen = 1 }",
        "Array.prototype[Symbol.iterator] = function () { globalThis.stolen = 1; return [] }",
        "JSON.stringify = JSON.parse = () => { globalThis.stolen = 1 }; Reflect.ownKeys = null",
        "String.prototype.slice = () => { globalThis.stolen = 1 }",
        "Object.setPrototypeOf(globalThis, null)",
    ],
)
def test_polluted_prototypes_neither_see_nor_change_a_snapshot(pollution: str) -> None:
    guest = Guest()
    guest.outcome(
        "var o = { a: { b: [{ c: 1 }, null, 'x'] }, d: new Map([[1, { e: 2 }]]) }; var keep = o.a"
    )
    guest.outcome(pollution)
    heir = guest.heir()
    assert heir.text("[o.a.b[0].c, o.a.b[2], o.d.get(1).e, keep === o.a]") == '[1, "x", 2, true]'
    assert heir.text("typeof stolen") == "undefined"
    guest.outcome("var probe = typeof stolen")
    assert guest.heir().text("probe") == "undefined"


def test_hostile_getters_and_proxies_never_run() -> None:
    guest = Guest()
    guest.text(
        "var ran = 0; const trap = () => { ran++; for (;;) {} };"
        " const all = new Proxy({}, { get: () => trap, has: trap, ownKeys: trap });"
        " var o = { get a() { return trap() }, set b(v) { trap() } };"
        " var p = new Proxy({}, new Proxy({}, { get: trap }));"
        " var child = Object.create(new Proxy({}, { getPrototypeOf: trap, get: trap }));"
        " var tagged = { get [Symbol.toStringTag]() { return trap() } };"
        " var list = Object.defineProperty([1], 0, { get: trap, configurable: true });"
        " class C { static get [Symbol.species]() { return trap() } get x() { return trap() } }"
        " var c = new C(), f = Object.defineProperty(() => 1, 'name', { get: trap });"
        " Object.setPrototypeOf(globalThis, new Proxy({}, { get: trap, has: trap }));"
        " 0"
    )
    heir = guest.heir()
    assert guest.text("ran") == "0"
    assert heir.text("ran") == "0"


@pytest.mark.parametrize(
    "make",
    [
        "const list = []; for (let i = 0; i < 100000; i++) list.push({ a: i })",
        "const all = { rows: { list: [] } };"
        "for (let i = 0; i < 100000; i++) all.rows.list.push([i])",
        "const map = new Map(); for (let i = 0; i < 100000; i++) map.set(i, { a: i })",
        "const set = new Set(); for (let i = 0; i < 100000; i++) set.add({ a: i })",
        "let chain = null; for (let i = 0; i < 100000; i++) chain = { chain, i }",
    ],
    ids=["list", "nested list", "Map", "Set", "chain"],
)
def test_a_state_over_its_limit_is_refused_without_being_looked_through(make: str) -> None:
    guest = Guest()
    guest.text(make)
    # To look at all of them takes half a second of CPU time; this would be refused for that.
    with pytest.raises(SnapshotProblem, match="takes more than 131072 bytes"):
        guest.body(1 << 17, cpu_s=0.1)
    assert guest.text("1 + 1") == "2"


@pytest.mark.parametrize(
    "state",
    [
        "Array(3000).fill(1)",
        "Array.from({ length: 300 }, () => ({ a: 1 }))",
        "'x'.repeat(900)",
        "new Map([[1, 'a'], ['b', [2]]])",
        "new Set([1, 2, [3]])",
        "new Uint8Array(500)",
        "({ a: undefined, b: 1n, c: [NaN, -0], d: Symbol.iterator })",
        "[[[[]]], {}, { b: { c: {} } }]",
    ],
)
def test_a_limit_as_large_as_the_document_is_enough(state: str) -> None:
    guest = Guest()
    guest.text(f"const state = {state}")
    _, stored = documents.split(guest.body())
    size = sum(len(documents.unstore(part, 1 << 20)) for part in stored)
    assert guest.body(size)
    with pytest.raises(SnapshotProblem, match=f"takes more than {size - 1} bytes"):
        guest.body(size - 1)
