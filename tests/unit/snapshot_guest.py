"""A guest for the tests of snapshots: an engine that runs programs as a worker does; its heirs."""

from __future__ import annotations

from typing import Final

from qjs_pool.worker.engine import Engine, Outcome
from qjs_pool.worker.snapshots import Snapshots
from qjs_pool.worker.transpile import transpile

MEMORY_BYTES: Final = 128 << 20
_CPU_S: Final = 30.0


class Guest:
    """One engine; `heir()` is another one, restored from a snapshot of this one."""

    _tickets = 1

    def __init__(self, body: bytes | None = None, *, preload: str = "") -> None:
        self.engine = Engine()
        self.engine.set_stack(1 << 20)
        if preload:
            program = transpile(preload)
            self.engine.preload(program.scripts, boxed=program.boxed)
        self.engine.set_memory(MEMORY_BYTES)
        self._preload = preload
        self._snapshots = Snapshots(self.engine)
        if body is not None:
            self._snapshots.restore(body, MEMORY_BYTES, MEMORY_BYTES, _CPU_S, lambda _: None)

    def outcome(self, code: str) -> Outcome:
        Guest._tickets += 1
        program = transpile(code, Guest._tickets)
        if program.sites:
            self.engine.prove(Guest._tickets, program.sites)
        self.engine.set_cpu(_CPU_S)
        last = len(program.scripts) - 1
        for index, script in enumerate(program.scripts):
            self.engine.run(
                script,
                first=index == 0,
                last=index == last,
                boxed=program.boxed and index == last,
                want_value=False,
            )
        while self.engine.run_job():
            pass
        assert self.engine.poll(0.0).settled, "the program waits for something"
        return self.engine.finish()

    def text(self, code: str) -> str:
        outcome = self.outcome(code)
        assert outcome.error is None, outcome.error
        return outcome.text

    def error(self, code: str) -> str:
        error = self.outcome(code).error
        assert error is not None, "the program did not throw"
        return f"{error.name}: {error.message}"

    def body(self, max_bytes: int = MEMORY_BYTES, *, cpu_s: float = _CPU_S) -> bytes:
        return self._snapshots.take(MEMORY_BYTES, max_bytes, cpu_s)[0]

    def heir(self) -> Guest:
        return Guest(self.body(), preload=self._preload)


def after(*programs: str, preload: str = "") -> Guest:
    """The heir of a guest that ran the programs; its own snapshot must give the same one again."""
    guest = Guest(preload=preload)
    for program in programs:
        guest.text(program)
    heir = guest.heir()
    # What was restored is as good as what was made: no generation loses anything.
    assert heir.heir().body() == heir.body()
    return heir
