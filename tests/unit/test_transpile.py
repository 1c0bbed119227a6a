"""Programs as turns of a REPL: what persists, what the result is, how sloppy input is taken."""

from __future__ import annotations

import pytest

from qjs_pool.worker.transpile import transpile

from .transpile_cases import Repl, needs_columns, needs_static_blocks, run


@pytest.mark.parametrize(
    ("sources", "expected"),
    [
        (["const x = 40", "x + 2"], "42"),
        (["const x = 1", "const x = 2; x"], "2"),
        (["let n = 1", "let n = 5; n"], "5"),
        (["let n = 1", "let n; n"], "undefined"),
        (["let n = 1", "let m = 2, n\n[m, n]"], "[2,null]"),
        (["var n = 1", "var n; n"], "1"),
        (["let n = 1", "await 0; let n; n"], "undefined"),
        (["var n = 1", "await 0; var n; n"], "1"),
        (["class A { v() { return 1 } }", "class A { v() { return 2 } }\nnew A().v()"], "2"),
        (["class A {}\nA.name", "A.name"], "A"),
        (["class A { }\n(1)"], "1"),
        (["class A {}", "class B extends A {}", "new B() instanceof A"], "true"),
        (["function sq(a) { return a * a }", "sq(9)"], "81"),
        (["async function f() { return 1 }", "await f()"], "1"),
        (["function* g() { yield 4 }", "[...g()]"], "[4]"),
        (
            [
                "const { a, b: [c, ...d], e = 5, ...f } = { a: 1, b: [2, 3], g: 6 }",
                "[a, c, d, e, f]",
            ],
            '[1,2,[3],5,{"g":6}]',
        ),
        (["const f = () => 1, g = class {}", "[f.name, g.name]"], '["f","g"]'),
        (["loose = 5; loose", "loose"], "5"),
        (
            [
                "const gb = 1; let gc = 2",
                "[globalThis.gb, 'gc' in globalThis, delete globalThis.gc, typeof gc]",
            ],
            '[1,true,true,"undefined"]',
        ),
        (["for (const i of [1]) {}", "typeof i"], "undefined"),
        (["{ let hidden = 1; var shown = 2 }", "[typeof hidden, shown]"], '["undefined",2]'),
        (
            ["var fs = []; for (let i = 0; i < 2; i++) fs.push(() => i)", "fs.map((f) => f())"],
            "[0,1]",
        ),
    ],
)
def test_what_the_top_level_declares_persists_and_may_be_declared_again(
    sources: list[str], expected: str
) -> None:
    assert run(*sources) == expected


@pytest.mark.parametrize(
    ("sources", "expected"),
    [
        (["await Promise.resolve(7)"], "7"),
        (["const r = await Promise.resolve({ n: 3 });", "r.n"], "3"),
        (["const [p, q] = await Promise.all([1, 2].map(async (n) => n * 10))", "p + q"], "30"),
        (["const t = await 2\nt * 21"], "42"),
        (["function dbl(n) { return n * 2 }\nawait null;\ndbl(4)"], "8"),
        (["function dbl(n) { return n * 2 }\nawait null;\ndbl(4)", "dbl(5)"], "10"),
        (["early(); await 0; function early() { return globalThis.was = 3 }", "was"], "3"),
        (["const out = [];\nfor await (const n of [1, 2]) out.push(n);\nout"], "[1,2]"),
        (["for await (var v of [1, 2]);", "v"], "2"),
        (["class K { m() { return 5 } }\nawait 0", "new K().m()"], "5"),
        (["class K extends (await (class { z() { return 4 } })) {}", "new K().z()"], "4"),
        (
            ["if (await true) { var deep = 6 } else { var other }", "[deep, typeof other]"],
            '[6,"undefined"]',
        ),
        (["for (var i = 0, n = await 3; i < n; i++) { var last = i }", "[i, n, last]"], "[3,3,2]"),
        (["for (var { length } of ['a', await 'bb']);", "length"], "2"),
        (["const f = () => 1; await 0; f.name"], "f"),
        (["await 0; (() => 1)"], "function "),
        (["const f = async () => { await 1; return 2 }\nawait f()"], "2"),
        (["await 0; this === globalThis"], "true"),
        (["let v = 1; const get = () => v; await 0; v = 2; get()", "v = 3; get()"], "3"),
        (["x = await 1, y = 2"], "2"),
        (["await 1\n;[1, 2].map((n) => n + 1)"], "[2,3]"),
        (["var o = { async m() { await 1 } }; await 3"], "3"),
        (["`${await 4}`"], "4"),
        (["export const e = await 8; e"], "8"),
        (["export default await 9"], "9"),
        (["await 0; ({ a: 1 })"], '{"a":1}'),
        (["let a = await 1 // one\nlet b = 2 // two"], "undefined"),
    ],
)
def test_top_level_await_is_accepted(sources: list[str], expected: str) -> None:
    assert run(*sources) == expected


@pytest.mark.parametrize(
    "source",
    [
        "async function f() { return await 5 }; f()",
        "(async () => { await 1 })()",
        "const o = { async m() { for await (const x of []) ; } }; o.m()",
        "class A { async m() { await 1 } }; new A().m()",
        "'await'; Promise.resolve()",
    ],
)
def test_await_in_a_nested_function_leaves_the_program_a_script(source: str) -> None:
    assert not transpile(source).boxed
    assert run(source) == "a promise"


@pytest.mark.parametrize(
    ("source", "expected"),
    [
        ("const two = 2; return two * 2", "4"),
        ("return", "undefined"),
        ("return 1, 2", "2"),
        ("if (true) { return 'in a block' }\n'after'", "in a block"),
        ("for (const x of [1, 2, 3]) if (x > 1) return x", "2"),
        ("try { return 1 } finally { var cleaned = true }", "1"),
        ("return { a: 1 }", '{"a":1}'),
        ("if (false) return 1\n5", "5"),
        ("return await 6", "6"),
        ("const f = () => { return 1 }\nreturn f()", "1"),
        ("return async () => 1", "function "),
        ("switch (1) { case 1: return 'one'\ndefault: return 'other' }", "one"),
        ("return 3 // comment", "3"),
    ],
)
def test_a_top_level_return_gives_the_result(source: str, expected: str) -> None:
    assert run(source) == expected


def test_a_returned_promise_is_not_awaited_by_the_wrapper() -> None:
    assert run("await 0; return Promise.resolve(1)") == "a promise"


def test_strict_programs_are_strict_and_still_persist() -> None:
    repl = Repl()
    assert "ReferenceError" in repl.error("'use strict'; undeclared = 1")
    assert repl.text("'use strict'\nconst s = 1; function f() { return this }\ns") == "1"
    assert repl.text("[s, typeof f()]") == '[1,"undefined"]'
    assert repl.text("sloppy = 2") == "2"
    assert repl.text("'use strict'") == "use strict"
    assert repl.text("'use strict'; function g(a = 1) { return a }; g()") == "1"


@pytest.mark.parametrize(
    "source",
    [
        "let a; let a",
        "const a = 1; var a",
        "class K {}\nclass K {}",
        "let f; function f() {}",
        "function f() {}\nlet f",
        "let a; { var a }",
        "let a; await 0; const a = 1",
        "class F {} function F() {}",
        "import a from 'm'; let a",
        "let [a, a] = [1, 2]",
        "return 1; let z; let z",
    ],
)
def test_a_name_declared_twice_in_one_program_is_a_syntax_error(source: str) -> None:
    repl = Repl()
    assert repl.error(source).startswith("SyntaxError: invalid redefinition")
    assert repl.text("typeof a + typeof f") == "undefinedundefined"


def test_a_redeclaration_is_reported_where_it_is() -> None:
    line, _ = Repl().place("let a = 1\nlet b\nlet a = 2\n")
    assert line == 3


@pytest.mark.parametrize(
    ("source", "expected"),
    [
        ("```js\n1+1\n```", "2"),
        ("```ts\nconst f1: number = 3\nf1 + 1\n```", "4"),
        ("\n\n```typescript\n5\n```\n\n", "5"),
        ("~~~\n6\n~~~", "6"),
        ("```\r\n7\r\n```\r\n", "7"),
        ("  ```JavaScript  \n  8\n  ```", "8"),
        ("````js\n9\n````", "9"),
    ],
)
def test_one_surrounding_fence_is_taken_off(source: str, expected: str) -> None:
    assert run(source) == expected


@pytest.mark.parametrize(
    "source",
    [
        "```python\n1\n```",
        "```js\n1",
        "```js\n1\n```\nand\n```js\n2\n```",
        "```",
        "~~~ ~~~",
        "```js\n```js\n1\n```\n```",
    ],
)
def test_text_that_is_no_single_fenced_program_stays_as_it_is(source: str) -> None:
    assert transpile(source).scripts == (source,)
    assert Repl().error(source)


def test_a_fence_inside_a_template_stays() -> None:
    assert run("const md = `\\`\\`\\`js\n1\n\\`\\`\\``; md.split('\\n').length") == "3"


@pytest.mark.parametrize(
    ("source", "expected"),
    [
        ("export const x = 1; x", "1"),
        ("export default 7", "7"),
        ("5\nexport default [1, 2]", "[1,2]"),
        ("export default { a: 1 }", '{"a":1}'),
        ("export default function () {}", "function "),
        ("export default async function () {}", "function "),
        ("export default class {}", "function "),
        ("export default class Named {}\nNamed.name", "Named"),
        ("export default function named() {}\nnamed.name", "named"),
        ("export function f() { return 3 }\nf()", "3"),
        ("const a = 1; 4; export { a, a as b }", "4"),
        ("'x'\nexport {}\n;[1].length", "1"),
        ("var g = () => 1\nexport default (2)", "2"),
    ],
)
def test_export_is_a_plain_declaration(source: str, expected: str) -> None:
    assert run(source) == expected


@pytest.mark.parametrize(
    ("source", "names"),
    [
        ("import x from 'm'", ("x",)),
        ("import * as ns from 'm'", ("ns",)),
        ("import { a, b as c, 'd-e' as f } from 'm'", ("a", "c", "f")),
        ("import x, { y } from 'm'", ("x", "y")),
        ("import x, * as z from 'm'", ("x", "z")),
        ("import 'm'", ()),
        ("export * from 'm'", ()),
        ("export { a } from 'm'", ()),
    ],
)
def test_an_import_waits_for_a_dynamic_import(source: str, names: tuple[str, ...]) -> None:
    program = transpile(source)
    assert program.boxed
    assert program.declared == names
    assert "await $qjs_import('m'" in program.scripts[-1]
    # Without a loader every import is rejected, which shows that the program is well formed.
    assert "SyntaxError" not in Repl().error(source)


def test_imports_may_span_lines_without_moving_what_follows() -> None:
    program = transpile("import {\n  a,\n  b,\n} from 'm'\nlast()")
    assert program.scripts[-1].splitlines()[4].endswith("(last());")


@pytest.mark.parametrize(
    ("source", "expected"),
    [
        ("", "undefined"),
        ("  \n", "undefined"),
        ("// only\n/* comments */", "undefined"),
        ("1 + 1 // two", "2"),
        ("\ufeff1+1", "2"),
        ("#!/usr/bin/env node\n3", "3"),
        ("#!x\nawait 4", "4"),
        ("'a\u2028b'.length", "3"),
        ("1\u20282", "2"),
        ("const a = 1\u2029const b = 2\u2028a + b", "3"),
        ("const a = 1\rconst b = 2\ra + b", "3"),
        ("const a = 1\r\nconst b = 2\r\na + b\r\n", "3"),
        ("var \u5909\u6570 = 5; \u5909\u6570", "5"),
        ("let let_ = 1; let_", "1"),
        ("var async = 2; async", "2"),
        ("var of = 3; of", "3"),
        ("var let = 1; let", "1"),
        ("1_000", "1000"),
        ("<!-- html\n6", "6"),
        ("String.raw`\\u{ \\x`", "\\u{ \\x"),
        ("const a = String.raw`\\unit`; a", "\\unit"),
        ("try { throw 1 } catch { 2 }", "2"),
        ("var { get, set } = { get: 1, set: 2 }; get", "1"),
        ("l: for (;;) { break l }", "undefined"),
        ("var \\u0061b = 3; ab", "3"),
        ("const a = 1, b = 2, c = 3; a < b > (c)", "false"),
        ("var type = 1, as = 2, declare = 3; type + as + declare", "6"),
        ("type\nA = 1\nvar type, A", "1"),
        ("const x = { as: 1, type: 2 }; x.as", "1"),
    ],
)
def test_odd_but_valid_javascript_runs(source: str, expected: str) -> None:
    assert run(source) == expected


@needs_static_blocks
def test_newer_syntax_passes_through() -> None:
    assert run("class A { static #p = 1; static { this.q = A.#p + 1 } }; A.q") == "2"
    assert run("class A { static { this.q = 1 } }\nawait 0; A.q") == "1"


@pytest.mark.parametrize("source", ["foo(", "1 +* 2", "let 1", "f(a b)", "`${"])
def test_what_is_neither_language_is_left_for_the_engine_to_refuse(source: str) -> None:
    program = transpile(source)
    assert program.kind == "untouched"
    assert program.scripts == (source,)
    assert Repl().error(source).startswith("SyntaxError")


@needs_columns
@pytest.mark.parametrize(
    "source",
    [
        "const x = await f();\nfoo(1 ?)",
        "const n: number = 1;\nfoo(1 ?)",
        "import { a } from 'm';\nfoo(1 ?)",
        "export const q = 1;\nfoo(1 ?)",
        "if (a) return 1;\nfoo(1 ?)",
        "enum E { A }; interface I {};\nfoo(1 ?)",
        "const r: A = await f<B>();\nfoo(1 ?)",
        "class P { constructor(private x: number) {} }\nfoo(1 ?)",
    ],
)
def test_a_syntax_error_is_reported_where_it_is(source: str) -> None:
    repl = Repl()
    assert repl.error(source).startswith("SyntaxError: unexpected token in expression")
    assert repl.place(source) == (2, 8)


def test_declared_names_are_listed_once_in_order() -> None:
    source = "const b = 1; var a, b2; function f() { var no }\nclass C {}\nif (a) { var d }\nvar a"
    assert transpile(source).declared == ("b", "a", "b2", "f", "C", "d")


@needs_columns
@pytest.mark.parametrize(
    ("source", "place"),
    [
        ("nope", (1, 1)),
        ("const a = 1; let b; nope", (1, 21)),
        ("class A {} nope", (1, 12)),
        ("await 0; nope", (1, 10)),
        ("const a = await 0\n  nope", (2, 3)),
        ("// \u00e9\n'\u6f22\u00e9\U0001f600'; nope", (2, 8)),
        ("const s: string = '\u00e9'; nope", (1, 24)),
        ("await 0; class A {}; '\u00e9'; const { a } = {}; if (1) nope", (1, 52)),
        ("enum E { A, B }\nnope", (2, 1)),
        ("function f() { nope }\nawait 0\nf()", (1, 16)),
        ("```js\n\n  nope\n```", (3, 3)),
        ("'a\u2028b'\n nope", (2, 2)),
        ("1\u2028 nope", (2, 2)),
        ("1\r\n nope", (2, 2)),
        ("1\r nope", (2, 2)),
    ],
)
def test_errors_are_located_in_the_source_as_sent(source: str, place: tuple[int, int]) -> None:
    assert Repl().place(source) == place


@pytest.mark.parametrize(
    "source",
    [
        "(" * 100_000 + "1" + ")" * 100_000,
        "(" * 100_000,
        "await 0;" + "{" * 50_000 + "}" * 50_000,
        "await 0;" + "if (1) " * 50_000 + "1",
        "let " + "[" * 20_000 + "a" + "]" * 20_000 + " = 1",
        "let x: " + "Array<" * 10_000 + "a" + ">" * 10_000,
        "namespace A {" * 500 + "export const x = 1" + "}" * 500,
        "a:" * 1_000 + "await 1",
    ],
    ids=["parens", "open parens", "blocks", "ifs", "pattern", "types", "namespaces", "labels"],
)
def test_deep_nesting_is_no_trouble(source: str) -> None:
    assert transpile(source).scripts[-1].count("1") >= source.count("1")


def test_a_large_program_takes_the_same_way_as_a_small_one() -> None:
    lines = "".join(f"const v{n}: number = {n} as any\n" for n in range(2_000))
    assert run(lines + "await 0; v1999") == "1999"
    assert run(lines.replace(": number", "").replace(" as any", "") + "v1999") == "1999"


def test_a_position_behind_the_source_becomes_its_end() -> None:
    program = transpile("await 0;\nx")
    assert program.locate(3, 5) == (2, 2)
    assert program.locate(999, 1) == (2, 2)
    assert transpile("ab").locate(5, 9) == (1, 3)
