"""What a query finds is the same, however small the pieces that it is asked about."""

from __future__ import annotations

import pytest

from qjs_pool.worker.transpile import queries, transpile

_TYPESCRIPT = """\
interface Point { x: number; y?: number }
type Pair<T> = { a: T; b: T };
enum Colour { Red, Green = 5, Blue = Green + 1 }
namespace Shapes { export const sides: number = 4; export function area(p: Point) { return p.x } }
import sides = Shapes.sides;
abstract class Base<T> {
  constructor(private readonly id: number, public name?: string) {}
  abstract go(): void
}
class Derived extends Base<string> {
  declare z: number; #secret = 1; override go(this: Derived): void { this.id! }
}
const f = async <T,>(a: T, b?: number): Promise<T> => a as T;
const wide = (a: number): (
  string) => `${<any>a}`;
let x = new Map<string, number[]>(), y = x satisfies object, z!: number;
function over(a: string): void; function over(a: any) { return a }
"""
_JAVASCRIPT = """\
class Holder { #kept = 1; static { this.made = 'a\u2028b' } get kept() { return this.#kept } }
const text = `one ${`two ${'three\u2029'} four`} five`, more = /[/]\u2028?/.source; // a comment
async function* walk(list) { for await (const one of list) yield await import('m' + one) }
"""


@pytest.mark.parametrize("size", [1, 3, 7, 64])
@pytest.mark.parametrize("source", [_TYPESCRIPT, _JAVASCRIPT])
def test_a_program_is_transpiled_the_same_in_pieces_of_any_size(
    monkeypatch: pytest.MonkeyPatch, source: str, size: int
) -> None:
    whole = transpile(source, 1)
    monkeypatch.setattr(queries, "PLAIN_BYTES", size)
    assert transpile(source, 1).scripts == whole.scripts
    assert transpile(source, 1).sites == whole.sites


def test_a_program_in_typescript_loses_its_types_in_pieces_as_well(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(queries, "PLAIN_BYTES", 5)
    program = transpile("let total: number = (1 as number) + 2!; interface A { b: string }", 0)
    # A script's declarations are globals of the REPL.
    assert "".join(program.scripts).split() == ["var", "total", "=", "(1", ")", "+", "2", ";", ";"]
