"""A guest for the tests of the prelude: a real engine, and the loop a worker runs around it."""

from __future__ import annotations

import json
from typing import Any, Final

from qjs_pool.worker.engine import Engine, HostCall, Outcome

# The classic engine lacks what is newer than ES2020; these tell what it can do.
PROBE: Final = Engine()


def engine_has(expression: str) -> bool:
    """Whether the engine under test knows what `expression` asks for."""
    PROBE.run(expression, first=True, last=True, boxed=False, want_value=True)
    outcome = PROBE.finish()
    return outcome.error is None and outcome.value == b"true"


class Guest:
    """One engine. Programs run to their end; calls to the host are kept for the test to answer."""

    def __init__(
        self,
        *,
        result_chars: int = 4000,
        console_chars: int = 4000,
        value_bytes: int = 1 << 24,
        value_nodes: int = 1_000_000,
        cpu_s: float = 20.0,
        **options: Any,
    ) -> None:
        self.engine = Engine()
        self.engine.set_limits(
            result_chars=result_chars,
            console_chars=console_chars,
            value_bytes=value_bytes,
            value_nodes=value_nodes,
        )
        self.engine.set_stack(1 << 20)  # as the default limits have it
        # A loop in the prelude shall fail its test, not hang it.
        self.engine.set_cpu(cpu_s)
        if options:
            self.engine.configure_with(options)
        self.calls: list[HostCall] = []
        self.settled = False

    def start(self, source: str, *, boxed: bool = False) -> None:
        self.engine.run(source, first=True, last=True, boxed=boxed, want_value=True)
        self.advance()

    def advance(self) -> None:
        """Run all jobs and take the calls they made."""
        while True:
            while self.engine.run_job():
                pass
            status = self.engine.poll(0.0)
            self.calls += status.calls
            self.settled = status.settled
            if not self.engine.run_job():
                return

    def answer(self, index: int, value: str) -> None:
        assert self.engine.settle(self.calls[index].id, True, value)
        self.advance()

    def refuse(self, index: int, name: str, message: str) -> None:
        assert self.engine.settle(self.calls[index].id, False, json.dumps([name, message]))
        self.advance()

    def outcome(self, source: str, *, boxed: bool = False) -> Outcome:
        self.start(source, boxed=boxed)
        assert self.settled, "the program waits for something"
        return self.engine.finish()

    def text(self, source: str) -> str:
        outcome = self.outcome(source)
        assert outcome.error is None, outcome.error
        return outcome.text

    def stdout(self, source: str) -> str:
        outcome = self.outcome(source)
        assert outcome.error is None, outcome.error
        return outcome.stdout

    def error(self, source: str) -> tuple[str, str]:
        error = self.outcome(source).error
        assert error is not None, "the program did not throw"
        return error.name, error.message

    def encoded(self, source: str) -> str:
        outcome = self.outcome(source)
        assert outcome.value is not None, outcome.value_error or outcome.error
        return outcome.value.decode()

    def value_error(self, source: str) -> tuple[str, str]:
        outcome = self.outcome(source)
        assert outcome.error is None, outcome.error
        assert outcome.value is None
        assert outcome.value_error is not None
        return outcome.value_error
