"""TypeScript programs run as what they mean, on the lines they were written on."""

from __future__ import annotations

import pytest

from qjs_pool.worker.transpile import transpile

from .transpile_cases import Repl, needs_columns, run

TYPES = [
    ("const n: number = 2; n", "2"),
    ("interface Row { id: number; name?: string }\nconst rs: Row[] = [{ id: 1 }];\nrs.length", "1"),
    ("const id = <T,>(x: T): T => x; id<string>('a')", "a"),
    ("const o = { a: 1 } as const satisfies Record<string, number>; (o as any).a!", "1"),
    (
        "function g(this: any, a?: number, ...r: string[]): string { return `${a}${r.length}` }"
        "\ng()",
        "undefined0",
    ),
    ("type U = { a: string } | null;\nlet u: U = null;\nu", "null"),
    (
        "function ov(a: string): string;\nfunction ov(a: number): number;\n"
        "function ov(a: any) { return a }\nov(3)",
        "3",
    ),
    ("let y = 5 as number; y", "5"),
    ("(<T,>(a: T) => a)(1)", "1"),
    ("const c = { k: 1 } satisfies Record<string, number>; c.k", "1"),
    ("let x!: string; typeof x", "undefined"),
    ("let v: Map<string, Array<number>> = new Map<string, Array<number>>(); v.size", "0"),
    ("new Set<number>([1, 2]).size", "2"),
    ("const s = <string>'cast'; s", "cast"),
    ("const f = () => <any>{ a: 1 }; f().a", "1"),
    ("let n: number | undefined = 3; n!.toFixed(1)", "3.0"),
    ("const a = [3, 1] as number[]; a.sort((x: number, y: number): number => x - y)", "[1,3]"),
    ("function isS(x: unknown): x is string { return typeof x === 'string' }\nisS('a')", "true"),
    ("function must(x: any): asserts x is string {}\nmust(1); 2", "2"),
    ("async function load(): Promise<number> { return 4 }\nawait load()", "4"),
    ("for (const x of [1, 2] as number[]) x * 2", "4"),
    ("try { throw 1 } catch (e: unknown) { e }", "1"),
    ("const { a, b }: { a: number; b: number } = { a: 1, b: 2 }; a + b", "3"),
    ("const [p, q]: [number, string] = [1, 'z']; q", "z"),
    ("function d({ a = 1 }: { a?: number } = {}): number { return a }\nd()", "1"),
    ("let fn: (a: number) => string = (a) => String(a); fn(5)", "5"),
    ("type A = string\ntype B = A\nlet s: B = 'k'\ns", "k"),
    ("declare const outside: number; declare function ext(): void; 6", "6"),
    ("declare module 'x' { export const y: number }\ndeclare global { var z: number }\n7", "7"),
    ("const o = { m<T>(a: T): T { return a }, get x(): number { return 8 } }; o.m(o.x)", "8"),
    ("const k: unique symbol = Symbol() as any; typeof k", "symbol"),
    ("let t: keyof typeof console extends never ? 1 : 2; 9", "9"),
    ("const el = (x as any as { y: number }[])?.[0]?.y ?? 'none'; var x: any; el", "none"),
    ("(function (this: { n: number }, k: number) { return this.n + k }).call({ n: 1 }, 2)", "3"),
    ("(function (this: void) { return 4 })()", "4"),
    ("export type T = number; export interface I {}\nexport const z: T = 5; z", "5"),
    ("export default function f<T>(x: T): T { return x }\nf(3)", "3"),
    ("import type { A } from 'a'\nimport type B from 'b'\nexport type { A }\n2", "2"),
    (
        "abstract class S { abstract area(): number; twice() { return this.area() * 2 } }\n"
        "class Q extends S { area() { return 3 } }\nnew Q().twice()",
        "6",
    ),
    (
        "class C<T> implements Iterable<T>, I { [Symbol.iterator]() { return [][Symbol.iterator]() "
        "} }\n[...new C<number>()].length",
        "0",
    ),
    (
        "class F { public a: number = 1; private readonly b = 2; static c?: string; protected d!: "
        "any; declare e: number; [k: string]: any; sum(): number { return this.a + this.b } }\n"
        "[new F().sum(), Object.keys(new F()).join()]",
        '[3,"a,b,d"]',
    ),
    (
        "class M { private async m?(): Promise<number> { return 1 } static override s(): number "
        "{ return 2 } }\nM.s()",
        "2",
    ),
    (
        "class O { m(a: string): void; m(a: 1): void; m(a: any) { return a } }\nnew O().m(5)",
        "5",
    ),
    ("class G<in_ extends object = {}> extends Array<number> {}\nnew G().length", "0"),
    ("const g = f<string>; function f<T>(x: T) { return x }\ng('inst')", "inst"),
    ("label: for (const x of [1] as any) { break label }", "undefined"),
    ("let a = 1, b: number, c = 3 as number; [a, typeof b, c]", '[1,"undefined",3]'),
    ("var v: string = 'v'; var w: number; v", "v"),
    ("```ts\ninterface A { a: 1 }\nconst a: A = { a: 1 }\na.a\n```", "1"),
    ("return (5 as number) + 1", "6"),
    (
        "'use strict'; function s(a: number) { return this }\nconst r: string = typeof s(1); r",
        "undefined",
    ),
]

CODE = [
    ("enum Level { Low, High = 5, Top }\n[Level.Low, Level.Top, Level[5]]", '[0,6,"High"]'),
    ("enum E { A }\nE.A", "0"),
    ("enum E { A, B, }\nE", '{"0":"A","1":"B","A":0,"B":1}'),
    ("enum S { A = 'x', B = \"y\" }\nS", '{"A":"x","B":"y"}'),
    ("enum S { A = `x`, B = 3, C }\n[S.A, S.C, S[4]]", '["x",4,"C"]'),
    (
        "const enum F { None = 0, A = 1 << 0, B = 1 << 1, AB = A | B, C }\n[F.AB, F.C, F[2]]",
        '[3,4,"B"]',
    ),
    (
        "enum N { A = -1, B, 'c-d' = 7, ['e'] = 'f'.length }\n[N.A, N.B, N[-1], N['c-d'], N.e]",
        '[-1,0,"A",7,1]',
    ),
    ("enum R { A = 'a', B = A, C = R.A + 'c' }\n[R.B, R.C, Object.keys(R).length]", '["a","ac",3]'),
    ("enum M { A = 1 }\nenum M { B = A + 1 }\n[M.A, M.B, M[2]]", '[1,2,"B"]'),
    ("5; enum Q { A }", "5"),
    ("function f() { enum In { A = 4 } return In.A }\nf()", "4"),
    ("export enum X { A = 2 }\nX[2]", "A"),
    ("declare enum D { A }\n3", "3"),
    ("enum L {\n  // first\n  A, // one\n  B = 'b' as any, /* two */\n}\n[L.A, L.B]", '[0,"b"]'),
    (
        "namespace N { export const x = 1; const hidden = 2; export function f() { return hidden "
        "} }\n[N.x, N.f(), Object.keys(N).join()]",
        '[1,2,"f,x"]',
    ),
    ("namespace A.B.C { export const v: number = 3 }\nA.B.C.v", "3"),
    (
        "namespace P { export class K { m() { return 4 } } export enum E { Z = 9 } "
        "export namespace I { export const deep = 1 } export interface T {} }\n"
        "[new P.K().m(), P.E.Z, P.I.deep]",
        "[4,9,1]",
    ),
    ("namespace Q { export let n = 0; export function inc() { n++ } }\nQ.inc(); Q.inc(); Q.n", "2"),
    ("module W { export const { a, b: [c] } = { a: 1, b: [2] } }\n[W.a, W.c]", "[1,2]"),
    ("namespace T { export interface I {} export type X = 1 }\ntypeof T", "undefined"),
    ("function fn() { return fn.extra }\nnamespace fn { export const extra = 6 }\nfn()", "6"),
    ("class K {}\nnamespace K { export const v = 7 }\nK.v", "7"),
    ("namespace Y { export const a = 1 }\nnamespace Y { export const b = 2 }\nY", '{"a":1,"b":2}'),
    ("namespace Z { export const a = 1 }\nimport za = Z.a\nza", "1"),
    (
        "namespace Z { export namespace I { export const d = 2 } import a = I.d\n"
        "export const e = a }\nZ.e",
        "2",
    ),
    ("8; namespace V { export const a = 1 }", "8"),
    (
        "class P { constructor(private readonly x: number, public y = 2) {} "
        "sum() { return this.x + this.y } }\nnew P(3).sum()",
        "5",
    ),
    (
        "class A { constructor(protected a: number) {} }\nclass B extends A { constructor(public "
        "b: number) { super(b + 1) } }\n[new B(1).a, new B(1).b]",
        "[2,1]",
    ),
    (
        "class A {}\nclass B extends A { constructor(readonly b = 5) { v; super(); this.c = b } "
        "}\nvar v = 1; new B()",
        '{"b":5,"c":5}',
    ),
    (
        "class D { constructor(public a?: number, override b?: string, c?: any) {} }\n"
        "Object.keys(new D(1)).join()",
        "a,b",
    ),
]

LINE_ENDS = [
    ("const b = 1, foo = 2\nconst a = b as number\n(foo)", "2"),
    ("const b = [7]\nconst a = b as number[]\n[0].length", "1"),
    ("let x: number\n[1].map((v) => v)", "[1]"),
    ("let x: number\n(5)", "5"),
    ("1\ninterface A {}\n(6)", "6"),
    ("var t = 1\ntype A = string\n[t]", "[1]"),
    ("function f(): number {\n  return <number>\n    4\n}\nf()", "4"),
    ("const f = (x: number):\n  number => x\nf(3)", "3"),
    ("const f = (x: number): {\n  a: number\n} => ({ a: x })\nf(3)", '{"a":3}'),
    ("const f = <\n  T,\n>(x: T) => x\nf(4)", "4"),
    ("const f = async <\n  T,\n>(x: T) => x\nawait f(4)", "4"),
    ("function f() {\n  return <T,>(\n    x: T) => x\n}\nf()(5)", "5"),
    ("class A { a: number\n['b'] = 1 }\nnew A()", '{"b":1}'),
    ("class A { a = 1\npublic ['b'] = 2 }\nnew A()", '{"a":1,"b":2}'),
    ("class A { a = 1\npublic *g() {} }\nnew A()", '{"a":1}'),
    ("class A { a = 3 as number\n['b'] = 1 }\nnew A()", '{"a":3,"b":1}'),
    ("const b = 1\nconst a = b as any\n`t`", "t"),
    ("let x: number\n+1", "1"),
    ("const a = 1 as number\n+ 2\na", "3"),
    ("const b = 4\nlet r = b!\nr", "4"),
    ("await 0\nconst b = 2\nlet c = b as number\n(c + 1)", "3"),
    ("const f = () => 1\ntype X = 1\n;(f)()", "1"),
    ("var q = 1\ndeclare var w: number\n(q)", "1"),
]


@pytest.mark.parametrize(("source", "expected"), TYPES)
def test_types_are_erased(source: str, expected: str) -> None:
    assert run(source) == expected


@pytest.mark.parametrize(("source", "expected"), CODE)
def test_enums_namespaces_and_parameter_properties_become_code(source: str, expected: str) -> None:
    assert transpile(source).kind == "typescript"
    assert run(source) == expected
    assert run("const first = await 0\n" + source) == expected


@pytest.mark.parametrize(("source", "expected"), LINE_ENDS)
def test_erasing_never_joins_or_splits_statements(source: str, expected: str) -> None:
    assert run(source) == expected


@pytest.mark.parametrize("source", [source for source, _ in TYPES + CODE + LINE_ENDS])
def test_lines_stay_where_they_are(source: str) -> None:
    scripts = transpile(source).scripts
    for script in scripts:
        lines = script.split("\n")
        for number, line in enumerate(source.split("\n")):
            kept = [word for word in ("return", "await", "super") if word in line]
            assert all(word in "".join(one.split("\n")[number] for one in scripts) for word in kept)
        assert len(lines) >= source.count("\n") + 1


def test_enums_and_namespaces_persist_and_the_last_definition_wins() -> None:
    repl = Repl()
    assert repl.text("enum E { A, B }\nnamespace N { export const a = 1 }") == "undefined"
    assert repl.text("[E.B, N.a]") == "[1,1]"
    assert repl.text("enum E { C = 3 }\nnamespace N { export const b = 2 }\nconst x: number = 1")
    assert repl.text("[Object.keys(E).join(), Object.keys(N).join()]") == '["3,C","b"]'
    assert repl.text("await 0; enum E { D }\nfunction f(): number { return E.D }\nf()") == "0"
    assert repl.text("[E.D, f()]") == "[0,0]"


@pytest.mark.parametrize(
    ("source", "kind"),
    [
        ("const a = 1, b = 2, c = 3; a < b > (c)", "javascript"),
        ("var f = 1, string = 2; f<string>('a')", "javascript"),
        ("x = y ? (z) : w => v", "javascript"),
        ("type\nA\n", "javascript"),
        ("const x: number = 1", "typescript"),
        ("x as any", "typescript"),
        ("new Map<string, number>()", "typescript"),
    ],
)
def test_only_what_is_no_javascript_is_taken_for_typescript(source: str, kind: str) -> None:
    assert transpile(source).kind == kind


@pytest.mark.parametrize(
    "source",
    [
        "@dec class A { x: number }",
        "import x = require('y')",
        "const a: = 1",
        "enum { A }",
        "let x: number = ",
    ],
)
def test_what_cannot_be_erased_is_refused_by_the_engine(source: str) -> None:
    assert Repl().error(source).startswith("SyntaxError")


@needs_columns
def test_columns_are_those_of_the_typescript_source() -> None:
    assert Repl().place("enum Long { First, Second = 5 }; nope") == (1, 34)
    assert Repl().place("class P { constructor(public x: number) {} }; nope") == (1, 47)
    assert Repl().place("const q = <any>1; nope as any") == (1, 19)
