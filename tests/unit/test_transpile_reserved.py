"""Functions whose name is a global that no declaration may replace."""

from __future__ import annotations

import pytest

from qjs_pool.worker.transpile import transpile

from .transpile_cases import Repl, needs_columns

RESERVED = frozenset({"task"})
# As the prelude defines its own: an accessor that can be assigned to, and not be redefined.
OURS = """
{ let current = "ours";
  Object.defineProperty(globalThis, "task", {
    get() { return current }, set(value) { current = value }, configurable: false }) }
"""


@pytest.fixture
def repl() -> Repl:
    repl = Repl()
    repl.outcome(OURS)
    return repl


def text(repl: Repl, source: str) -> object:
    outcome = repl.run(transpile(source, reserved=RESERVED))
    assert "text" in outcome, (outcome, repl.program and repl.program.scripts)
    return outcome["text"]


@pytest.mark.parametrize(
    ("source", "value"),
    [
        ("function task(a) { return a * 2 }\ntask(3)", "6"),
        ("task(3); function task(a) { return a * 2 }", "6"),
        ("async function task(a) { return a + 1 }\nawait task(1)", "2"),
        ("function* task() { yield 4 }; [...task()]", "[4]"),
        ("function*task() { yield 5 }; [...task()]", "[5]"),
        ("async function  task ( ) { return 6 } await task()", "6"),
        ("function\n  task\n(a) { return a }\ntask(7)", "7"),
        ("function task(n) { return n ? n * task(n - 1) : 1 } task(5)", "120"),
        ("function task() {} task.name", "task"),
        ("function one() { return task() } function task() { return 1 } one()", "1"),
        ("function task() { return 1 } function task() { return 2 } task()", "2"),
        ("function task(a: number): number { return a }\ntask(8 as number)", "8"),
        ("export function task() { return 9 }\ntask()", "9"),
        ("export default function task() { return 10 }\ntask()", "10"),
        ("'use strict'; function task() { return this } typeof task()", "undefined"),
        ("return task(); function task() { return 11 }", "11"),
        ("{ function task() { return 12 } } task()", "12"),
        ("const task = 13; task", "13"),
        ("class task { v() { return 14 } }; new task().v()", "14"),
    ],
)
def test_a_declared_function_stands_in_for_what_is_reserved(
    repl: Repl, source: str, value: str
) -> None:
    assert text(repl, source) == value


def test_without_it_the_engine_would_refuse_the_program(repl: Repl) -> None:
    outcome = repl.run(transpile("function task() {}", reserved=frozenset()))
    assert "cannot define variable 'task'" in str(outcome["error"])


@needs_columns
@pytest.mark.parametrize(
    ("source", "place"),
    [
        ("function task() { nope }\ntask()", (1, 19)),
        ("var a = 1; function task(a,\n b) { nope } task()", (2, 7)),
        ("function\ntask() {\n  nope }\ntask()", (3, 3)),
        ("function f() { nope } function task() { f() } task()", (1, 16)),
        ("function task() {} nope", (1, 20)),
    ],
)
def test_its_errors_are_located_in_the_source_as_sent(
    repl: Repl, source: str, place: tuple[int, int]
) -> None:
    outcome = repl.run(transpile(source, reserved=RESERVED))
    assert repl.program is not None
    line, column = outcome["line"], outcome["column"]
    assert isinstance(line, int)
    assert isinstance(column, int)
    assert repl.program.locate(line, column) == place
