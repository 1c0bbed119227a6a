"""Functions, classes and what is lost: each comes back as itself or as a tombstone, never wrong."""

from __future__ import annotations

import pytest

from qjs_pool.wire import documents

from .prelude_guest import engine_has
from .snapshot_guest import Guest, after

_HAS_STATIC_BLOCKS = engine_has(
    "(() => { try { return !!eval('class C { static {} } 1') } catch { return false } })()"
)

_PROVEN = [
    ("function add(a, b) { return a + b }", "add(2, 3)", "5"),
    (
        "const rate = 2; const price = (n) => n * rate",
        "[price(4), price.name, price.length]",
        '[8, "price", 1]',
    ),
    ("function a() { return b() } function b() { return 4 }", "a()", "4"),
    ("let h; h = function (x) { return x < 2 ? 1 : x * h(x - 1) }", "[h(5), h.name]", '[120, "h"]'),
    ("const f = async () => 5, g = function* () { yield 2 }", "[await f(), [...g()]]", "[5, [2]]"),
    (
        "const o = { a: function () {}, b: function named() { return named.name } }",
        "[o.a.name, o.b()]",
        '["a", "named"]',
    ),
    (
        "const o = { f() { return this.n }, n: 7, *g() { yield 3 }, async h() { return 4 } }",
        "[o.f(), [...o.g()], await o.h(), o.f.name]",
        '[7, [3], 4, "f"]',
    ),
    (
        "const o = { get v() { return this._v }, set v(x) { this._v = x * 2 } }",
        "o.v = 4; [o.v, Object.keys(o)]",
        '[8, ["v", "_v"]]',
    ),
    (
        "const f = () => 1; f.extra = { a: 1 }; f.self = f",
        "[f(), f.extra.a, f.self === f]",
        "[1, 1, true]",
    ),
    (
        "const f = (a, b) => a; Object.defineProperty(f, 'name', { value: 'zed' });"
        " delete f.length",
        "[f.name, f.hasOwnProperty('length'), f(3)]",
        '["zed", false, 3]',
    ),
    (
        "function F(a, b = 2) { this.x = a } F.prototype.m = function () { return this.x };"
        " const i = new F(8)",
        "[F.length, i.m(), i instanceof F, i.constructor === F, new F(9).m()]",
        "[1, 8, true, true, 9]",
    ),
    ("'use strict'; const f = function () { return this }", "f()", "undefined"),
    (
        "const n = 1; if (n) { var f = () => n } try { var g = () => n } catch {}",
        "[f(), g()]",
        "[1, 1]",
    ),
    (
        "[3].forEach((v) => { globalThis.seen = v }); const keep = [(v) => v + 1]",
        "keep[0](seen)",
        "4",
    ),
    ("await 1; const f = (x) => x + 1; function g() { return f(1) }", "g()", "2"),
    (
        "export const f = () => 1; export default function named() { return 2 }",
        "[f(), named()]",
        "[1, 2]",
    ),
]


@pytest.mark.parametrize(("program", "question", "answer"), _PROVEN)
def test_function_at_global_scope_comes_back(program: str, question: str, answer: str) -> None:
    assert after(program).text(question) == answer


_CLASSES = [
    (
        "class P { constructor(x) { this.x = x } twice() { return this.x * 2 }"
        " get v() { return 5 } }"
        " const p = new P(4)",
        "[p.twice(), p.v, p instanceof P, new P(1).twice(), Object.keys(p), P.name]",
        '[8, 5, true, 2, ["x"], "P"]',
    ),
    (
        "class A { static n = 0; static list = [1]; static make() { return new this() }"
        " constructor() { A.n++ } } new A(); A.list.push(2); A.extra = 'e'",
        "const a = A.make(); [A.n, A.list, A.extra, a instanceof A]",
        '[2, [1, 2], "e", true]',
    ),
    (
        "const LIMIT = 3; class S { static cache = new Map([['k', 1]]); static max = LIMIT * 2 }"
        " S.cache.set('l', 2)",
        "[S.cache.get('l'), S.max]",
        "[2, 6]",
    ),
    (
        "class A { hi() { return 'A' } } class B extends A { hi() { return super.hi() + 'B' } }"
        " const b = new B()",
        "[b.hi(), b instanceof A, Object.getPrototypeOf(B) === A, new B().hi()]",
        '["AB", true, true, "AB"]',
    ),
    (
        "class Failed extends Error { constructor(m) { super(m); this.code = 3 } }"
        " const e = new Failed('boom')",
        "[e instanceof Failed, e instanceof Error, e.message, e.code, new Failed('z').message]",
        '[true, true, "boom", 3, "z"]',
    ),
    (
        "class Total extends Map { total() { let t = 0; for (const v of this.values()) t += v;"
        " return t } } const m = new Total([['a', 1], ['b', 2]])",
        "[m.total(), m.size, m instanceof Total]",
        "[3, 2, true]",
    ),
    (
        "class Stack extends Array { last() { return this[this.length - 1] } }"
        " const s = Stack.from([1, 2, 3])",
        "[s.last(), s.length, Array.isArray(s), s instanceof Stack]",
        "[3, 3, true, true]",
    ),
    (
        "class Nil extends null { static s() { return 1 } }",
        "[Nil.s(), Object.getPrototypeOf(Nil.prototype)]",
        "[1, null]",
    ),
    (
        "class It { *[Symbol.iterator]() { yield 3 } } const it = new It()",
        "[...it]",
        "[3]",
    ),
    (
        "class K { m() { return 1 } n() { return 2 } static s() { return 3 } }"
        " delete K.prototype.m;"
        " K.prototype.n = () => 9; delete K.s; K.prototype.self = K.prototype",
        "[K.prototype.m, new K().n(), K.s, K.prototype.self === K.prototype]",
        "[undefined, 9, undefined, true]",
    ),
    (
        "class K {} K.prototype.added = function () { return 1 }; delete K.prototype.constructor;"
        " const k = new K()",
        "[k.added(), k instanceof K, Object.getOwnPropertyNames(K.prototype)]",
        '[1, true, ["added"]]',
    ),
    (
        "class K { m() { return 1 } } K.prototype.m.extra = 5; const borrowed = K.prototype.m",
        "[K.prototype.m.extra, borrowed === K.prototype.m, borrowed()]",
        "[5, true, 1]",
    ),
    (
        "const k = new (class { f = 1; g() { return this.f } })(), Named = class { }",
        "Named.name",
        "Named",
    ),
    (
        "abstract class Shape { abstract area(): number; twice() { return this.area() * 2 } }\n"
        "class Square extends Shape { constructor(private s: number) { super() }"
        " area(): number { return this.s ** 2 } }\nconst sq = new Square(3)",
        "[sq.twice(), sq instanceof Shape]",
        "[18, true]",
    ),
]


@pytest.mark.parametrize(("program", "question", "answer"), _CLASSES)
def test_class_comes_back_with_statics_and_instances(
    program: str, question: str, answer: str
) -> None:
    assert after(program).text(question) == answer


def test_instances_of_one_class_need_not_be_alike() -> None:
    guest = after(
        "class P { constructor(x) { this.x = x } hi() { return this.x } }"
        " const all = [new P(1), new P(2), new P({ deep: [3] }), new P(-0), new P(() => 4)];"
        " all.push(Object.freeze(new P(5)), Object.setPrototypeOf([6], P.prototype), all[0]);"
        " Object.defineProperty(all[1], 'hidden', { value: 7 }); all[2].again = all[2]"
    )
    assert guest.text("all.map((p) => p instanceof P)") == (
        "[true, true, true, true, true, true, true, true]"
    )
    assert (
        guest.text(
            "[all[0].hi(), all[1].hidden, all[2].x.deep[0], Object.is(all[3].x, -0), all[4].x(),"
            " Object.isFrozen(all[5]), Array.isArray(all[6]), all[6][0], all[7] === all[0],"
            " all[2].again === all[2], Object.keys(all[1])]"
        )
        == '[1, 7, 3, true, 4, true, true, 6, true, true, ["x"]]'
    )


_LOST = [
    ("const f = (() => { let n = 0; return () => ++n })()", "f", "function"),
    ("const n = 1; const f = ((n) => () => n)(7)", "f", "function"),
    ("if (true) { const local = 5; var f = () => local }", "f", "function"),
    ("try { throw 3 } catch (e) { var f = () => e }", "f", "function"),
    ("for (const i of [1, 2]) { var f = () => i }", "f", "function"),
    ("for (let i = 0; i < 1; i++) { var f = () => 1 }", "f", "function"),
    ("function make() { return () => 1 } const f = make()", "f", "function"),
    ("const f = eval('() => 1')", "f", "function"),
    ("const f = new Function('return 1')", "f", "function"),
    ("const f = (() => 1).bind(null)", "f", "function"),
    ("namespace N { export function f() { return 1 } }", "N.f", "function"),
    ("class C { #p = 1; get p() { return this.#p } }", "C", "class"),
    ("class C { static { globalThis.ran = 1 } }", "C", "class"),
    ("var count = 0; class C { static id = ++count }", "C", "class"),
    ("var key = 'm'; class C { [key]() { return 1 } }", "C", "class"),
    ("const mixin = (B) => class extends B {}; class C extends mixin(Object) {}", "C", "class"),
    ("const C = (() => { let n = 1; return class { get() { return n } } })()", "C", "class"),
    ("class C { #p = 1 } const i = new C()", "i", "C"),
    ("const p = new Promise(() => {})", "p", "Promise"),
    ("const p = Promise.resolve(1)", "p", "Promise"),
    ("const g = (function* () { yield 1 })()", "g", "Generator"),
    ("const w = new WeakMap()", "w", "WeakMap"),
    ("const w = new WeakSet()", "w", "WeakSet"),
    ("const x = new Proxy({}, {})", "x", "Proxy"),
    ("const it = [1][Symbol.iterator]()", "it", "Array Iterator"),
    ("const c = new AbortController()", "c", "AbortController"),
]


@pytest.mark.parametrize(("program", "name", "kind"), _LOST)
def test_what_cannot_be_proven_or_written_is_a_tombstone(
    program: str, name: str, kind: str
) -> None:
    if "static {" in program and not _HAS_STATIC_BLOCKS:
        pytest.skip("not in this engine")
    guest = after(program)
    assert guest.error(f"{name}.anything") == (
        f"Error: Value for '{name}' was not restored because it is not serializable (type: {kind})."
    )


@pytest.mark.parametrize(
    "touch",
    ["f()", "new f()", "f.x", "f.x = 1", "'x' in f", "delete f.x", "Object.keys(f)", "`${f}`",
     "Object.getPrototypeOf(f)", "f instanceof Function", "JSON.stringify({ f })", "for (k in f);",
     "await f", "Object.freeze(f)", "f + 1"],
)  # fmt: skip
def test_touching_a_tombstone_says_what_was_lost(touch: str) -> None:
    guest = after("const f = (() => { let n = 0; return () => ++n })()")
    error = guest.error(touch)
    assert error == (
        "Error: Value for 'f' was not restored because it is not serializable (type: function)."
    )


def test_tombstone_may_be_looked_at_moved_and_replaced() -> None:
    guest = after("const o = { list: [1, (() => { let n; return () => n })()], ok: 2 }")
    assert guest.text("[typeof o.list[1], o]") == (
        '["function", {list: [1, [not restored: function o.list[1]]], ok: 2}]'
    )
    assert (
        guest.text("const g = o.list[1]; o.list[1] = () => 3; [o.list[1](), g === g]")
        == "[3, true]"
    )


def test_equal_text_is_no_proof() -> None:
    guest = after(
        "const n = 1; const top = () => n; const inner = ((n) => () => n)(7); const list = [top]"
    )
    assert guest.text("[top(), list[0] === top]") == "[1, true]"
    assert "'inner' was not restored" in guest.error("inner()")


def test_guest_cannot_register_a_function_that_it_did_not_write_at_global_scope() -> None:
    guest = after(
        "const n = 1; const made = ((n) => () => n)(7);"
        " for (const number of [0, 1, 2, 7]) $qjs_own(number, 0, made);"
        " try { $qjs_own = (...given) => given[2] } catch {}"
        " const fine = () => n"
    )
    assert guest.text("fine()") == "1"
    assert "'made' was not restored" in guest.error("made()")


def test_registering_is_invisible_to_the_program() -> None:
    guest = Guest()
    assert guest.text("(x) => x") == "[Function (anonymous)]"
    assert guest.text("const f = (x) => x, { g = () => 1 } = {}; [f.name, g.name, `${f}`]") == (
        '["f", "g", "(x) => x"]'
    )
    assert guest.text("function h() {}") == "undefined"
    assert guest.text("'x'; function i() {}") == "x"
    assert guest.text("new class { v = 1 }().v") == "1"
    assert guest.text("[({ m() {} }).m.name, `${({ m() { return 1 } }).m}`]") == (
        '["m", "m() { return 1 }"]'
    )
    assert guest.text("const o = { __proto__: null, a() { return 1 } }; o.a()") == "1"
    assert guest.text("Object.keys(globalThis)") == '["f", "g", "h", "i", "o"]'


def test_methods_with_super_keep_their_home() -> None:
    guest = Guest()
    assert (
        guest.text(
            "const o = { __proto__: { m() { return 1 } }, m() { return super.m() + 1 } }; o.m()"
        )
        == "2"
    )


def test_redeclaring_after_a_restore_works_as_before() -> None:
    guest = after("const total = 1; class K {} function f() { return 1 }")
    assert guest.text(
        "const total = 2; class K { v() { return total } } function f() { return 3 }"
    ) == ("undefined")
    assert guest.text("[new K().v(), f()]") == "[2, 3]"


def test_a_class_that_lost_its_base_is_lost_with_its_instances() -> None:
    guest = after(
        "const A = (() => { let n = 1; return class A { get() { return n } } })();"
        " class B extends A {} const b = new B(), ok = 1"
    )
    assert "'B' was not restored" in guest.error("new B()")
    assert "(type: B)" in guest.error("b.get()")
    assert guest.text("ok") == "1"


def test_functions_of_tools_are_known_by_name() -> None:
    tools = {"tools": [{"name": "search", "required": None, "description": ""}]}
    guest = Guest()
    guest.engine.configure_with(tools)
    guest.text("const find = tools.search, all = tools")
    body = guest.body()
    heir = Guest()
    heir.engine.configure_with(tools)
    heir._snapshots.restore(body, 1 << 26, 1 << 26, 5.0, lambda _: None)
    assert heir.text("[find === tools.search, all === tools]") == "[true, true]"
    assert "'tools.search' was not restored" in Guest(body).error("find()")


@pytest.mark.parametrize(
    ("program", "question", "answer"),
    [
        ("const URL = 'https://x.test'", "[URL]", '["https://x.test"]'),
        ("class Map { hi() { return 1 } }; const m = new Map()", "m instanceof Map && m.hi()", "1"),
        ("function parseInt(text) { return 'mine ' + text }", "[parseInt('7')]", '["mine 7"]'),
        ("const old = Set; Set = 5", "[Set, new old([1]).size]", "[5, 1]"),
        ("globalThis.isNaN = undefined", "[typeof isNaN]", '["undefined"]'),
        ("const tools = 1, console = 2", "[typeof tools, typeof console]", '["object", "object"]'),
        ("Array.prototype.extra = 1; const Array2 = Array", "[].extra", "undefined"),
    ],
)
def test_a_global_named_like_a_built_in_one_comes_back_instead_of_it(
    program: str, question: str, answer: str
) -> None:
    assert after(program).text(question) == answer


def test_a_program_that_replaced_nothing_has_no_globals_in_its_snapshot() -> None:
    guest = Guest()
    guest.text("1 + 1")
    head, stored = documents.split(guest.body())
    manifest = documents.decode_manifest(documents.unstore(head, 1 << 20))
    assert (manifest.globals, stored) == ([], [])
