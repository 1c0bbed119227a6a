"""Modules in a session: what import gives, in which order modules run, how an import fails."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from qjs_pool import EvalResult, Pool

Run = Callable[..., EvalResult]


def _error(result: EvalResult) -> tuple[str, str]:
    assert result.error is not None, result.text
    return result.error.name, result.error.message


# --- what import gives ----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("program", "value"),
    [
        ("import { a } from '@/m'; a", 1),
        ("import { a as b, c } from '@/m'; [b, c]", [1, 3]),
        ("import d from '@/m'; d", "the default"),
        ("import { default as d } from '@/m'; d", "the default"),
        ("import d, { a } from '@/m'; [d, a]", ["the default", 1]),
        ("import * as ns from '@/m'; ns.a + ns.c", 4),
        ("import d, * as ns from '@/m'; [d, ns.default]", ["the default", "the default"]),
        ("import { 'not a name' as n } from '@/m'; n", 4),
        ("const { a, default: d } = await import('@/m'); [a, d]", [1, "the default"]),
        ("(await import('@/m')).a", 1),
        ("import('@/m').then((m) => m.a)", 1),
        ("import '@/m'; globalThis.ran", 1),
        ("import { a } from '@/m/index.js'; a", 1),
        ("import { a } from '@/m/index'; a", 1),
        ("import { a } from '@/m/'; a", 1),
        ("import { a } from '@/m/./x/../index.js'; a", 1),
        ("const name = 'm'; (await import(`@/${name}`)).a", 1),
        ("(await import({ toString: () => '@/m' })).a", 1),
        ("const m: typeof import('@/m') = await import('@/m'); m.a", 1),
        ("import type { T } from '@/nowhere'; import { a } from '@/m'; const n: number = a; n", 1),
        ("import { a } from '@/m' with { type: 'js' }; a", 1),
        ("export { a } from '@/m'; 5", 5),
        ("export * from '@/m'; globalThis.ran", 1),
    ],
)
def test_a_program_imports(run: Run, program: str, value: object) -> None:
    source = """
        export const a = 1, c = 3; const n = 4;
        export { n as "not a name" };
        export default "the default";
        globalThis.ran = (globalThis.ran ?? 0) + 1;
    """
    result = run({"index.js": source}, program)
    assert result.error is None, result.error
    assert result.value == value


@pytest.mark.parametrize(
    ("export", "expression", "value"),
    [
        ("export let x = 1; export function more() { x++ }", "m.more(), m.more(), m.x", 3),
        ("export var x = 1, { y, z: [w] } = { y: 2, z: [3] }", "[m.x, m.y, m.w]", [1, 2, 3]),
        ("export function f() { return 5 }", "m.f()", 5),
        ("export async function f() { return 5 }", "m.f()", 5),
        ("export function* g() { yield 1; yield 2 }", "[...m.g()]", [1, 2]),
        ("export class K { v() { return 6 } }", "new m.K().v()", 6),
        ("export default class { v() { return 7 } }", "[new m.default().v(), m.default.name]",
         [7, "default"]),
        ("export default class K { v() { return 7 } }", "[new m.default().v(), m.default.name]",
         [7, "K"]),
        ("export default function () { return 8 }", "[m.default(), m.default.name]",
         [8, "default"]),
        ("export default function* () { yield 8 }", "[[...m.default()], m.default.name]",
         [[8], "default"]),
        ("export default async function () { return 8 }", "m.default()", 8),
        ("export default async () => 8", "[await m.default(), m.default.name]", [8, "default"]),
        ("export default function named() { return 8 }", "m.default.name", "named"),
        ("export default [1, 2].map((n) => n * 2)", "m.default", [2, 4]),
        ("export default { a: 1 }", "m.default", {"a": 1}),
        ("export default 1 + 1\n;[3].length", "m.default", 2),
        ("const a = 1\nexport { a as default, a as b }", "[m.default, m.b]", [1, 1]),
        ("export { later }; let later = 4; later = 5", "m.later", 5),
        ("export {}", "Object.keys(m)", []),
        ("const o = { import: 1 }; export default o.import", "m.default", 1),
        ("export default import.meta.url", "m.default", "@/m/index.ts"),
        ("export default typeof this", "m.default", "undefined"),
        ("export default (() => { try { nowhere = 1 } catch (e) { return e.name } })()",
         "m.default", "ReferenceError"),
        # TypeScript
        ("export const n: number = 1; export type T = string; export interface I { a: 1 }",
         "Object.keys(m)", ["n"]),
        ("export enum E { A, B = 5 }; export const enum F { C = 'c' }", "[m.E.B, m.E[0], m.F.C]",
         [5, "A", "c"]),
        ("export namespace N { export const x = 1; export function f() { return x + 1 } }",
         "[m.N.x, m.N.f()]", [1, 2]),
        ("export namespace T { export type X = 1 } export const n = 1", "Object.keys(m)", ["n"]),
        ("interface I {} type T = I; export { I, type T }; export const n: T = {}",
         "Object.keys(m)", ["n"]),
        ("export abstract class A { abstract f(): void; g() { return 1 } }",
         "new (class extends m.A {})().g()", 1),
        ("export function f(a: string): void; export function f(a: number): void;\n"
         "export function f(a: any) { return a }", "m.f(3)", 3),
        ("export declare const z: number; export default interface D {}", "Object.keys(m)", []),
        ("namespace N { export const b = 2 } export import c = N.b; const t: N.x = 0", "m.c", 2),
    ],
)  # fmt: skip
def test_a_module_exports(run: Run, export: str, expression: str, value: object) -> None:
    result = run({"index.ts": export}, f"const m = await import('@/m'); {expression}")
    assert result.error is None, result.error
    assert result.value == value


def test_a_module_imports_as_a_program_does(run: Run) -> None:
    files = {
        "index.ts": """
            import d, { a as b, "odd name" as odd } from "./lib";
            import * as ns from "./lib/index.js";
            import data from "./data.json" with { type: "json" };
            import "./effect.mjs";
            import type { T } from "no/such/module";
            import { OnlyAType } from "neither";
            const typed: OnlyAType = { v: [d, b, odd, ns.a, data.list, effects] };
            export default typed;
            declare const effects: string;
        """,
        "lib/index.ts": "export default 0; export const a = 1; export { a as 'odd name' }",
        "data.json": '{"list": [1, {"__proto__": 2}]}',
        "effect.mjs": "globalThis.effects = 'done'",
    }
    result = run(files, "import typed from '@/m'; typed.v")
    assert result.value == [0, 1, 1, 1, [1, {"__proto__": 2}], "done"]


@pytest.mark.parametrize(
    ("specifier", "file"),
    [
        ("./b", "a/b.ts"),
        ("./b.js", "a/b.ts"),
        ("./c.mjs", "a/c.mts"),
        ("./d", "a/d.js"),
        ("./e", "a/e/index.mjs"),
        ("./f", "a/f.json"),
        ("./g.min", "a/g.min.js"),
        (".", "a/index.ts"),
        ("..", "index.ts"),
        ("../z", "z.ts"),
        ("../a/./b.ts", "a/b.ts"),
        ("@/m", "index.ts"),
        ("@/m/z.ts", "z.ts"),
        ("@/other", "@/other/index.js"),
    ],
)
def test_a_specifier_finds_its_file(run: Run, specifier: str, file: str) -> None:
    names = ["index.ts", "z.ts"] + [
        f"a/{n}" for n in ("b.ts", "c.mts", "d.js", "e/index.mjs", "g.min.js", "index.ts")
    ]
    files = dict.fromkeys(names, "export default import.meta.url")
    files |= {"a/f.json": '"@/m/a/f.json"', "a/main.js": f"export * as it from '{specifier}'"}
    other = {"index.js": "export default import.meta.url"}
    result = run(files, "(await import('@/m/a/main.js')).it.default", other=other)
    assert result.value == (file if file.startswith("@") else f"@/m/{file}"), result.error


def test_an_exact_name_wins_over_a_guessed_one(run: Run) -> None:
    files = {"x.ts": "export default 'ts'", "x.js": "export default 'js'", "x/index.js": "bad("}
    assert run(files, "(await import('@/m/x.js')).default").value == "js"
    assert run(files, "(await import('@/m/x')).default").value == "ts"


def test_a_name_has_one_module_also_where_one_scope_lies_in_another(pool: Pool) -> None:
    modules = {
        "@/a/b": {"index.js": "export default 'inner'"},
        "@/a": {
            "b/index.js": "export default 'outer'",
            "b/only.js": "export default 'only outer'",
            "c.js": "export { default } from './b'; export { default as only } from './b/only'",
        },
    }
    with pool.session(modules=modules) as session:
        assert session.eval("(await import('@/a/b')).default").value == "inner"
        assert session.eval("(await import('@/a/b/only')).default").value == "only outer"
        program = "const c = await import('@/a/c'); [c.default, c.only]"
        assert session.eval(program).value == ["inner", "only outer"]


# --- bindings -------------------------------------------------------------------------------------


def test_bindings_are_live_on_every_way(run: Run) -> None:
    files = {
        "counter.ts": "export let n = 0; export const bump = () => { n += 1 }",
        "again.js": "export { n as count, bump } from './counter.ts';"
        "export * as all from './counter'",
        "index.js": """
            import { count, bump, all } from './again.js';
            import * as ns from './counter';
            bump();
            export const seen = () => [count, all.n, ns.n, ns === all];
        """,
    }
    result = run(
        files,
        "import { seen } from '@/m'; const { bump } = await import('@/m/again'); bump(); seen()",
    )
    assert result.value == [2, 2, 2, True]


def test_an_import_cannot_be_assigned_to_and_neither_can_a_namespace(run: Run) -> None:
    files = {
        "a.js": "export let n = 1",
        "index.js": """
            import { n } from './a.js'; import * as ns from './a.js';
            const tried = (f) => { try { f(); return 'no error' } catch (e) { return e.name } };
            export default [
              tried(() => { n = 2 }), tried(() => { n++ }), tried(() => { ns.n = 2 }),
              tried(() => { ns = 1 }), tried(() => { ns.more = 1 }),
              tried(() => { delete ns.n }), n,
            ];
        """,
    }
    result = run(files, "(await import('@/m')).default")
    assert result.value == ["TypeError"] * 6 + [1]


def test_an_imported_function_is_called_without_an_object(run: Run) -> None:
    files = {
        "a.js": "export function me() { return this }\nexport default { me: me }",
        "index.ts": """
            import { me } from './a.js'; import o from './a.js'; import * as ns from './a.js';
            let first = 0
            me()
            first = me() === undefined ? 1 : 2
            if (first) me(); else me()
            switch (first) { case 1: me() }
            for (const x of [1]) me()
            const inner = (me) => me();
            export default [
              me(), me?.(), me``, (me)(), (me as any)(), me!(), [1].map(() => me())[0],
              inner(() => 'local'), o.me() === o, ns.me() === ns, typeof new (me as any)(), first,
            ];
        """,
    }
    result = run(files, "(await import('@/m')).default")
    nothing = [None] * 7
    assert result.value == [*nothing, "local", True, True, "object", 1], result.error


def test_a_local_name_hides_an_import(run: Run) -> None:
    files = {
        "a.js": "export const x = 'import'; export const f = () => 'import'",
        "index.js": """
            import { x, f } from './a.js';
            const own = ((x) => { const f = () => x; return f() })('local');
            function g() { { let x = 'block'; var r = x } return [r, x] }
            export default [own, ...g(), { x, f: f() }];
        """,
    }
    result = run(files, "(await import('@/m')).default")
    assert result.value == ["local", "block", "import", {"x": "import", "f": "import"}]


def test_a_namespace_is_what_the_language_says(run: Run) -> None:
    source = "export const b = 1; export let a = 2; export default 3; export function f() {}"
    checks = """
        import * as ns from '@/m';
        const again = await import('@/m/index.js');
        const own = Object.getOwnPropertyDescriptor(ns, 'a');
        [ns === again, Object.keys(ns), Object.getPrototypeOf(ns), ns[Symbol.toStringTag],
         Object.isExtensible(ns), own.enumerable, own.configurable, 'toString' in ns]
    """
    result = run({"index.js": source}, checks)
    assert result.value == [
        True, ["a", "b", "default", "f"], None, "Module", False, True, False, False,
    ]  # fmt: skip
    assert run({"index.js": source}, "import('@/m')").text == (
        "[Module: null prototype] {a: 2, b: 1, default: 3, f: [Function: f]}"
    )
    assert run({"index.js": source}, "import('@/m')").value == {
        "a": 2, "b": 1, "default": 3, "f": "[Function: f]",
    }  # fmt: skip


# --- re-exports -----------------------------------------------------------------------------------


def test_a_name_goes_through_a_chain_of_re_exports(run: Run) -> None:
    files = {
        "index.js": "export * from './1.js'; export { deep as renamed } from './1.js'",
        "1.js": "import { deep, other } from './2.js'; export { deep, other as default }",
        "2.js": "export * from './3.js'; export { default as other } from './3.js'",
        "3.js": "export const deep = 'deep'; export default 'other'",
    }
    result = run(files, "const m = await import('@/m'); [Object.keys(m), m.deep, m.renamed]")
    assert result.value == [["deep", "renamed"], "deep", "deep"]
    assert run(files, "(await import('@/m/1')).default").value == "other"


def test_a_name_that_two_stars_give_is_left_out_unless_it_is_the_same(run: Run) -> None:
    files = {
        "index.js": "export * from './a.js'; export * from './b.js'; export const own = 'index'",
        "a.js": "export const x = 'a', own = 'a'; export { same } from './c.js'; export default 1",
        "b.js": "export const x = 'b'; export * from './c.js'",
        "c.js": "export const same = 'c'",
        "user.js": "import { x } from './index.js'",
    }
    result = run(files, "const m = await import('@/m'); [Object.keys(m), m.own, m.same]")
    assert result.value == [["own", "same"], "index", "c"]
    assert _error(run(files, "import '@/m/user'")) == (
        "SyntaxError",
        "module '@/m/index.js' has several exports named 'x' by 'export *' (imported by "
        "@/m/user.js)",
    )


def test_modules_that_export_each_others_names_and_namespaces(run: Run) -> None:
    files = {
        "a.js": "export * from './b.js'; export const a = 1; export * as theirs from './b.js'",
        "b.js": "export * from './a.js'; export const b = 2; export * as theirs2 from './a.js'",
        "round.js": "export { x } from './round2.js'",
        "round2.js": "export { x } from './round.js'",
    }
    result = run(files, "const m = await import('@/m/a'); [m.a, m.b, m.theirs.theirs2 === m]")
    assert result.value == [1, 2, True]
    assert "has no export named 'x'" in _error(run(files, "import '@/m/round'"))[1]


def test_what_typescript_would_erase_is_not_missed(run: Run) -> None:
    files = {
        "index.ts": "export { Row, parse, type Other } from './impl'; import { Row } from './impl';"
        "export { Row as Line }; export const rows: Row[] = []",
        "impl.ts": "export interface Row {} export const parse = () => 1",
        "plain.ts": "export { Row, parse } from './impl'",
    }
    assert run(files, "Object.keys(await import('@/m'))").value == ["parse", "rows"]
    assert run(files, "Object.keys(await import('@/m/plain'))").value == ["parse"]
    program = "import { Row, parse } from '@/m'; const r: Row = parse(); r"
    assert run(files, program).value == 1


# --- order, cycles, top-level await ---------------------------------------------------------------

_LOG = "(globalThis.log ??= []).push"


def test_each_module_runs_once_and_after_what_it_imports(run: Run) -> None:
    files = {
        "index.js": f"{_LOG}('index'); import './b.js'; import './a.js'; export default 1",
        "a.js": f"import './c.js'; {_LOG}('a')",
        "b.js": f"import './c.js'; {_LOG}('b')",
        "c.js": f"{_LOG}('c')",
    }
    programs = ["import '@/m'", "import '@/m'; await import('@/m/c'); log"]
    assert run(files, *programs).value == ["c", "b", "a", "index"]
    together = "await Promise.all([import('@/m/a'), import('@/m'), import('@/m/b')]); log"
    assert run(files, together).value == ["c", "a", "b", "index"]


def test_functions_of_a_cycle_are_there_before_their_module_runs(run: Run) -> None:
    files = {
        "even.js": "import { odd } from './odd.js'; export function even(n) "
        "{ return n === 0 || odd(n - 1) }\nexport const ready = 'even'",
        "odd.js": "import { even, ready } from './even.js'; export function odd(n) "
        "{ return n !== 0 && even(n - 1) }\nexport const early = even(10);"
        "export const state = () => ready",
        "default.js": "import { v } from './default2.js'; export { v }\n"
        "export default function () { return 'hoisted' }",
        "default2.js": "import f from './default.js'; export const v = f()",
    }
    program = "const { even } = await import('@/m/even'); const o = await import('@/m/odd');"
    assert run(files, program + "[even(7), o.early, o.state()]").value == [False, True, "even"]
    assert run(files, "(await import('@/m/default')).v").value == "hoisted"


def test_a_variable_of_a_cycle_is_not_there_before_its_module_ran(run: Run) -> None:
    files = {
        "a.js": "import { b } from './b.js'; export const a = 1; export { b }",
        "b.js": "import { a } from './a.js';\n\nexport const b = a + 1",
    }
    programs = ["await import('@/m/a')", "await import('@/m/b')"]
    result = run(files, programs[0])
    assert _error(result) == ("ReferenceError", "a is not initialized")
    assert result.error is not None
    assert "at <anonymous> (@/m/b.js:" in result.error.stack
    assert _error(run(files, *programs)) == ("ReferenceError", "a is not initialized")


def test_a_module_may_import_itself(run: Run) -> None:
    files = {"index.js": "import * as me from './index.js'; export const f = () => me.f === f"}
    assert run(files, "(await import('@/m')).f()").value is True


def test_top_level_await_holds_up_only_those_that_import_it(run: Run) -> None:
    files = {
        "index.js": f"import './slow.js'; import './quick.js'; {_LOG}('index')",
        "slow.js": f"{_LOG}('slow 1'); await null; await null; {_LOG}('slow 2');"
        "export const v = await Promise.resolve(5)",
        "quick.js": f"{_LOG}('quick')",
        "parent.js": f"import {{ v }} from './slow.js'; import './quick.js'; {_LOG}('parent ' + v)",
    }
    assert run(files, "import '@/m'; log").value == ["slow 1", "quick", "slow 2", "index"]
    both = "await Promise.all([import('@/m'), import('@/m/parent')]); log"
    assert run(files, both).value == ["slow 1", "quick", "slow 2", "index", "parent 5"]


def test_modules_that_wait_run_side_by_side_and_their_importers_in_order(run: Run) -> None:
    files = {
        "index.js": f"import './p1.js'; import './p2.js'; {_LOG}('index')",
        "p1.js": f"import './w1.js'; {_LOG}('p1')",
        "p2.js": f"import './w2.js'; import './w1.js'; {_LOG}('p2')",
        "w1.js": f"{_LOG}('w1 begins'); await new Promise((r) => setTimeout(r, 20));"
        f"{_LOG}('w1 ends')",
        "w2.js": f"{_LOG}('w2 begins'); await new Promise((r) => setTimeout(r, 1));"
        f"{_LOG}('w2 ends')",
    }
    assert run(files, "import '@/m'; log").value == [
        "w1 begins", "w2 begins", "w2 ends", "w1 ends", "p1", "p2", "index",
    ]  # fmt: skip


def test_a_cycle_with_top_level_await_comes_to_an_end(run: Run) -> None:
    files = {
        "a.js": "import { b } from './b.js'; export function fa() { return 'fa' }"
        "await null; export const a = `a after ${b}`",
        "b.js": "import { fa } from './a.js'; await null; export const b = `b with ${fa()}`",
        "c.js": "import { a } from './a.js'; import { b } from './b.js'; export default [a, b]",
    }
    result = run(files, "(await import('@/m/c')).default")
    assert result.value == ["a after b with fa", "b with fa"]


def test_a_module_that_waits_for_its_own_import_is_a_deadlock(run: Run) -> None:
    result = run({"index.js": "await import('@/m')"}, "await import('@/m')")
    assert result.error is not None
    assert result.error.name == "Deadlock"


def test_a_module_calls_tools_while_it_loads_and_an_import_is_no_call(pool: Pool) -> None:
    files = {"index.js": "export const rate = await tools.rate({ of: 'EUR' })", "b.js": ""}
    with pool.session(modules={"@/m": files}, tools={"rate": lambda args: 1.5}) as session:
        result = session.eval("import '@/m/b'; import { rate } from '@/m'; rate")
        assert result.value == 1.5
        assert [call.name for call in result.calls] == ["rate"]
        assert result.usage.host_calls == 1
