"""Compiling a module: its names, its requests, and that nothing moves."""

from __future__ import annotations

import pytest

from qjs_pool.worker.transpile.modules import Module, ModuleSyntaxError, compile_module


def compiled(source: str, *, typescript: bool = False) -> Module:
    module = compile_module(source, typescript=typescript)
    assert module.refused is None, module.text
    return module


@pytest.mark.parametrize(
    ("source", "imports"),
    [
        ("import d from 'm'", [("d", 0, "default")]),
        ("import { a, b as c } from 'm'", [("a", 0, "a"), ("c", 0, "b")]),
        ("import { default as d, 'x y' as e } from 'm'", [("d", 0, "default"), ("e", 0, "x y")]),
        ("import * as ns from 'm'", [("ns", 0, "*")]),
        ("import d, * as ns from 'm'", [("d", 0, "default"), ("ns", 0, "*")]),
        ("import a from 'm'; import { b } from 'n'; import { c } from 'm'",
         [("a", 0, "default"), ("b", 1, "b"), ("c", 0, "c")]),
        ("import 'm'", []),
    ],
)  # fmt: skip
def test_imports_are_read(source: str, imports: list[tuple[str, int, str]]) -> None:
    assert list(compiled(source).imports) == imports


@pytest.mark.parametrize(
    ("source", "requests"),
    [
        ("import './a'; export * from './b'; import './a'; export { x } from './c'",
         ["./a", "./b", "./c"]),
        (r"import 'a\x62\u0063\u{64}\'\n\e'", ["abcd'\ne"]),
        ("import 'two\\\nlines'", ["twolines"]),
        ("import('./not static'); import.meta.url", []),
    ],
)  # fmt: skip
def test_requests_are_told_once_and_in_order(source: str, requests: list[str]) -> None:
    assert list(compiled(source).requests) == requests


@pytest.mark.parametrize(
    ("source", "exports", "reexports", "stars"),
    [
        ("export const a = 1, { b, c: [d, ...e], f = 2 } = x", ["a", "b", "d", "e", "f"], [], []),
        ("export let a; export var b; export function c() {} export class D {}",
         ["a", "b", "c", "D"], [], []),
        ("export async function* a() {} export function* b() {}", ["a", "b"], [], []),
        ("const a = 1; export { a, a as b, a as default, a as 'c d' }",
         ["a", "b", "default", "c d"], [], []),
        ("export { a as b, default, default as c } from 'm'",
         [], [("b", 0, "a"), ("default", 0, "default"), ("c", 0, "default")], []),
        ("export * from 'm'; export * as ns from 'n'", [], [("ns", 1, "*")], [0]),
        ("import { a as b } from 'm'; import * as ns from 'n'; export { b as c, ns }",
         [], [("c", 0, "a"), ("ns", 1, "*")], []),
        ("export default 1", ["default"], [], []),
        ("if (x) { var a = 1 } for (var b of y); export { a, b }", ["a", "b"], [], []),
    ],
)  # fmt: skip
def test_exports_are_read(
    source: str, exports: list[str], reexports: list[tuple[str, int, str]], stars: list[int]
) -> None:
    module = compiled(source)
    assert list(module.exports) == exports
    assert list(module.reexports) == reexports
    assert list(module.stars) == stars


@pytest.mark.parametrize(
    ("source", "requests"),
    [
        ("import type { A } from 'm'; import { type B } from 'n'; export type { C } from 'o'", []),
        ("import { A } from 'm'; let x: A; type B = A[]; function f(a: A): A { return a }", []),
        ("import * as ns from 'm'; let x: ns.A; let y: typeof ns", []),
        ("import { A, b } from 'm'; let x: A = b", ["m"]),
        ("import { A } from 'm'; class B extends A<string> {}", ["m"]),
        ("import { a } from 'm'; const o: object = { a }", ["m"]),
        ("import { A } from 'm'; export { A }; type B = A", ["m"]),
        ("import 'm'; type A = 1", ["m"]),
    ],
)
def test_typescript_drops_imports_of_which_nothing_is_a_value(
    source: str, requests: list[str]
) -> None:
    assert list(compiled(source, typescript=True).requests) == requests


def test_javascript_drops_no_import() -> None:
    module = compiled("import { unused } from 'm'")
    assert module.requests == ("m",)
    assert module.imports == (("unused", 0, "unused"),)


@pytest.mark.parametrize(
    ("source", "waits"),
    [
        ("await x", True),
        ("const a = await x", True),
        ("for await (const a of b);", True),
        ("if (a) { await b }", True),
        ("import a from 'm'; await a", True),
        ("export default await x", True),
        ("import a from 'm'; export * from 'n'", False),
        ("async function f() { await x }", False),
        ("export const f = async () => await x", False),
        ("'await x' // await", False),
    ],
)
def test_only_top_level_await_makes_it_wait(source: str, waits: bool) -> None:
    assert compiled(source).waits is waits


def test_lines_stay_and_a_position_leads_back() -> None:
    source = (
        "import {\n  a,\n  b,\n} from 'm';\n"
        "export default function () {\n  return a(1)\n}\n"
        "export {\n  b\n};\nexport const last: number = mark()\n"
    )
    module = compiled(source, typescript=True)
    lines = module.text.split("\n")
    line = next(number for number, text in enumerate(lines, 1) if "mark()" in text)
    assert line == 11
    column = lines[line - 1].encode().index(b"mark()") + 1
    assert module.program.locate(line, column) == (11, source.split("\n")[10].index("mark()") + 1)


def test_the_names_it_adds_do_not_occur_in_the_source() -> None:
    names = ("$s", "$e", "$i", "$m", "$g", "$d")
    source = f"const [{', '.join(names)}] = []; await 0; import('x'); export default 7"
    text = compiled(source).text
    assert text.startswith("(function($s1,$e1,$i1,$m1,$g1){with($s1){")
    assert "$i1('x')" in text
    assert "()=>$d1" in text


@pytest.mark.parametrize(
    ("source", "message", "place"),
    [
        ("const a = 1;\nexport { a as b };\nexport { a as b }", "duplicate export of 'b'", (3, 10)),
        ("export { a } from 'n'\nexport { x as a } from 'm'", "duplicate export of 'a'", (2, 10)),
        ("export default 1\nexport default 2", "duplicate export of 'default'", (2, 1)),
        ("let é; export { nowhere }", "export of 'nowhere', which is not declared", (1, 17)),
    ],
)
def test_exports_that_are_none_are_refused_with_their_place(
    source: str, message: str, place: tuple[int, int]
) -> None:
    with pytest.raises(ModuleSyntaxError, match=message) as caught:
        compile_module(source, typescript=False)
    assert (caught.value.line, caught.value.column) == place


@pytest.mark.parametrize(
    ("source", "place"),
    [
        ("import { a } from 'm'\nlet a = 1", (2, 5)),
        ("export const a = 1\nexport const b = [1,;\n", (2, 21)),
    ],
)
def test_a_syntax_error_is_left_to_the_engine_and_its_place_is_known(
    source: str, place: tuple[int, int]
) -> None:
    module = compile_module(source, typescript=False)
    assert module.refused == place
    assert not module.requests
