"""Stacks: what an error report tells of where it came from, and that it tells nothing of ours."""

from __future__ import annotations

import pytest

from qjs_pool.worker.stacks import PRELUDE_LINE_BASE, clean_stack

from .prelude_guest import Guest, engine_has

HAS_COLUMNS = "<input>:1:" in (getattr(Guest().outcome("null.x").error, "stack", ""))


@pytest.mark.skipif(
    not engine_has("new Error('', {cause: 1}).cause === 1"), reason="no Error cause in this engine"
)
def test_the_stack_tells_causes() -> None:
    source = (
        "const a = new Error('root'); const b = new TypeError('mid', {cause: a}); a.cause = b;"
        "throw new Error('top', {cause: b})"
    )
    error = Guest().outcome(source).error
    assert error is not None
    lines = [line for line in error.stack.split("\n") if not line.startswith("    at ")]
    assert lines[:3] == [
        "[cause]: TypeError: mid",
        "[cause]: Error: root",
        "[cause]: TypeError: mid",
    ]
    assert len(lines) < 6


def test_the_stack_tells_the_members_of_an_aggregate() -> None:
    error = Guest().outcome("throw new AggregateError([new Error('a'), 'b'], 'all')").error
    assert error is not None
    assert "[errors]: Error: a\n" in error.stack
    assert "[errors]: b\n" in error.stack


def identity(line: int, column: int) -> tuple[int, int]:
    return line, column


def test_a_cleaned_stack_shows_the_program_and_nothing_of_ours() -> None:
    source = "function inner() {\n  null.x\n}\nfunction outer() {\n  inner()\n}\nouter()"
    error = Guest().outcome(source).error
    assert error is not None
    lines = [line.strip() for line in clean_stack(error.stack, identity).split("\n")]
    assert len(lines) == 3
    assert lines[0].startswith("at inner (eval:2")
    assert lines[1].startswith("at outer (eval:5")
    assert lines[2].startswith("at <eval> (eval")
    if HAS_COLUMNS:
        assert lines[1:] == ["at outer (eval:5:3)", "at <eval> (eval:7:1)"]


def test_a_cleaned_stack_keeps_the_eval_of_the_guest() -> None:
    error = Guest().outcome("function f() {\n  return (0, eval)('\\nnull.x')\n}\nf()").error
    assert error is not None
    text = clean_stack(error.stack, identity)
    assert "at eval (native)" in text
    assert str(PRELUDE_LINE_BASE)[:3] not in text
    assert text.split("\n")[-1].strip().startswith("at <eval> (eval")


def test_a_cleaned_stack_of_a_job_has_no_prelude_frames() -> None:
    source = "(async () => {\n  await null;\n  await [1].map((x) => {\n    null.y\n  })\n})()"
    error = Guest().outcome(source).error
    assert error is not None
    text = clean_stack(error.stack, identity)
    assert "eval:4" in text
    assert str(PRELUDE_LINE_BASE)[:3] not in text


def test_positions_go_through_locate() -> None:
    stack = (
        "    at f (<input>:3:5)\n    at <input>:4:1\n    at native (native)\n"
        f"    at <anonymous> (<input>:{PRELUDE_LINE_BASE + 7}:1)\n"
        "[cause]: Error: x\n    at g (<input>:9)\n    at h (<input>)\n"
    )
    shown = clean_stack(stack, lambda line, column: (line - 1, column + 10))
    assert shown == (
        "    at f (eval:2:15)\n    at eval:3:11\n    at native (native)\n"
        "[cause]: Error: x\n    at g (eval:8)\n    at h (eval)"
    )
