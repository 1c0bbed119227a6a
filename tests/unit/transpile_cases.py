"""What the transpiler's tests share: a real engine that runs a program as the worker does."""

from __future__ import annotations

import json

import _quickjs
import pytest

from qjs_pool.worker.transpile import Program, transpile

# `undefined`, strings as they are, functions by name, everything else as JSON.
_HARNESS = r"""
((evaluate) => {
  let outcome = null;
  const show = (v) =>
    v === undefined ? "undefined" : typeof v === "string" ? v :
    typeof v === "function" ? "function " + v.name :
    typeof v === "object" && v instanceof Promise ? "a promise" :
    JSON.stringify(v);
  const fail = (e) => {
    const frame = /<input>:(\d+)(?::(\d+))?/.exec((e && e.stack) || "");
    outcome = { error: String(e), line: frame && +frame[1], column: frame && +(frame[2] || 0) };
  };
  const done = (v) => { outcome = { text: show(v) } };
  return (json) => {
    if (json === undefined) return JSON.stringify(outcome);
    const program = JSON.parse(json);
    outcome = null;
    try {
      let value;
      for (const script of program.scripts) value = evaluate(script);
      if (!program.boxed) done(value);
      else if (Array.isArray(value)) done(value[0]);
      else value.then((box) => done(box[0]), fail);
    } catch (e) { fail(e) }
  };
})((script) => (0, eval)(script))
"""


class Repl:
    """One engine context; programs run in it one after another."""

    def __init__(self) -> None:
        self._context = _quickjs.Context()
        self._harness = self._context.eval(_HARNESS)
        self.program: Program | None = None

    def outcome(self, source: str, force_function: bool = False) -> dict[str, object]:
        """`{"text": ...}` or `{"error": ..., "line": ..., "column": ...}` as the engine sees it."""
        return self.run(transpile(source, _force_function=force_function))

    def run(self, program: Program) -> dict[str, object]:
        self.program = program
        self._harness(json.dumps({"scripts": program.scripts, "boxed": program.boxed}))
        while self._context.execute_pending_job():
            pass
        outcome: dict[str, object] = json.loads(self._harness())
        assert outcome is not None, f"never settled: {program.scripts}"
        return outcome

    def text(self, source: str, force_function: bool = False) -> object:
        outcome = self.outcome(source, force_function)
        assert "text" in outcome, (outcome, self.program and self.program.scripts)
        return outcome["text"]

    def error(self, source: str) -> str:
        outcome = self.outcome(source)
        assert "error" in outcome, (outcome, self.program and self.program.scripts)
        return str(outcome["error"])

    def place(self, source: str) -> tuple[int, int]:
        """Line and column of the error's top frame, in the source; the column 1 without columns."""
        outcome = self.outcome(source)
        line, column = outcome.get("line"), outcome.get("column")
        assert isinstance(line, int), outcome
        assert isinstance(column, int)
        assert self.program is not None
        return self.program.locate(line, column)


def run(*sources: str) -> object:
    """The text of the last of these programs, run one after another in one context."""
    repl = Repl()
    return [repl.text(source) for source in sources][-1]


def _accepts(source: str) -> bool:
    try:
        _quickjs.Context().eval(source)
    except _quickjs.JSException:
        return False
    return True


has_columns = "native" in _quickjs.Context().eval("'x'.at ? 'native' : ''")
needs_columns = pytest.mark.skipif(not has_columns, reason="this engine reports no columns")
needs_static_blocks = pytest.mark.skipif(
    not _accepts("class A { static {} }"), reason="this engine has no static blocks"
)
