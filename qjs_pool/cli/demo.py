"""`qjs-pool demo`: what the library does, shown on the data file that ships with it.

Every step has an expectation; the command fails if one of them does not hold.
"""

from __future__ import annotations

import os
import signal
import threading
import time
from collections.abc import Callable
from importlib import resources
from typing import Final

import psutil
from rich.syntax import Syntax
from rich.table import Table
from rich.text import Text

from ..errors import QjsPoolError
from ..limits import Limits, MiB
from ..pool import Pool
from ..result import EvalResult
from ..session import Session
from .output import console, describe_error, safe
from .run import EXIT_GUEST_ERROR, EXIT_MACHINE

_PROGRAMS: Final = (
    ("1-load.ts", None),
    ("2-audit.js", None),
    ("3-revenue.ts", None),
    ("4-slip.js", "TypeError"),
    ("5-repair.js", None),
)
_STATE: Final = "`${orders.length} orders, ${ranking.length} countries, best ${best.country}`"
_MEMORY_BOMB: Final = (
    "orders.length = 0; const hoard = []; for (;;) hoard.push(new ArrayBuffer(1 << 20));"
)
_ENDLESS_LOOP: Final = "for (;;) {}"
_MID_EVAL: Final = "orders.length = 0; for (;;) {}"
_CPU_S: Final = 2.0
_HOST_GROWTH_BYTES: Final = 32 * MiB


def demo() -> int:
    """Run it; 0 if everything went as it should."""
    started = time.monotonic()
    try:
        with Pool(limits=Limits(memory=64 * MiB, cpu=_CPU_S, wall=30.0), min_idle=1) as pool:
            failures = _Demo(pool).run()
    except QjsPoolError as error:
        console(stderr=True).print(f"qjs-pool: {error}", style="red")
        return EXIT_MACHINE
    out = console()
    took_s = time.monotonic() - started
    if failures:
        out.print(f"demo FAILED: {'; '.join(failures)}", style="bold red")
        return EXIT_GUEST_ERROR
    out.print(
        f"demo passed: {len(_PROGRAMS)} programs, 3 attacks, state and neighbour unharmed, "
        f"{took_s:.1f} s",
        style="bold green",
    )
    return 0


class _HostMemory:
    """The host's resident memory: now, and the most of it while a `with` block runs."""

    def __init__(self) -> None:
        self._host = psutil.Process()
        self._done = threading.Event()
        self.peak_bytes = 0

    def now_bytes(self) -> int:
        return int(self._host.memory_info().rss)

    def __enter__(self) -> _HostMemory:
        self.peak_bytes = self.now_bytes()
        self._done.clear()
        self._thread = threading.Thread(target=self._watch)
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._done.set()
        self._thread.join()

    def _watch(self) -> None:
        while not self._done.wait(0.005):
            self.peak_bytes = max(self.peak_bytes, self.now_bytes())


class _Demo:
    def __init__(self, pool: Pool) -> None:
        self._pool = pool
        self._out = console()
        self._memory = _HostMemory()
        self._failures: list[str] = []

    def run(self) -> list[str]:
        with self._pool.session() as session, self._pool.session() as neighbour:
            neighbour.eval("let asked = 0")
            self._load(session)
            for name, error in _PROGRAMS:
                self._program(session, name, error)
            self._attacks(session, neighbour)
        return self._failures

    def _load(self, session: Session) -> None:
        csv = _data("orders.csv")
        session.set("orders_csv", csv)
        self._title("A data file")
        self._out.print(
            f"orders.csv, {len(csv.encode()):,} bytes, {csv.count(chr(10)) - 1:,} rows, is handed "
            f"to worker {session.pid} by\nsession.set('orders_csv', text). This host is process "
            f"{os.getpid()}, with {self._memory.now_bytes() / MiB:.0f} MiB of memory.\n"
        )

    def _program(self, session: Session, name: str, expected: str | None) -> None:
        code = _data(name)
        self._title(name)
        language = "typescript" if name.endswith(".ts") else "javascript"
        self._out.print(Syntax(code.rstrip(), language, background_color="default"))
        self._out.print()
        result = session.eval(code)
        if result.stdout:
            self._out.print(Text(safe(result.stdout.rstrip("\n"))))
        if result.error is None:
            self._out.print(Text("=> " + safe(result.text), style="cyan"))
        else:
            self._out.print(Text(describe_error(result.error, code), style="red"))
        usage = result.usage
        self._out.print(
            f"({usage.cpu_s * 1e3:.0f} ms of CPU, {usage.peak_rss / MiB:.0f} MiB in the worker)\n",
            style="dim",
        )
        self._expect(_name(result) == expected, f"{name} ended with {_name(result)}")

    # --- hostile programs -----------------------------------------------------------------------

    def _attacks(self, session: Session, neighbour: Session) -> None:
        self._title("Now the hostile ones")
        self._out.print(
            "The session holds the state from above. A second session counts along meanwhile.\n"
        )
        attacks: tuple[tuple[str, str, str, Callable[[], EvalResult]], ...] = (
            ("a memory bomb", _MEMORY_BOMB, "OutOfMemory", lambda: session.eval(_MEMORY_BOMB)),
            ("an endless loop", _ENDLESS_LOOP, "Timeout", lambda: session.eval(_ENDLESS_LOOP)),
            (
                "kill -9 of the worker in mid-eval",
                _MID_EVAL,
                "WorkerCrashed",
                lambda: _killed_in_mid_eval(session),
            ),
        )
        for asked, (title, code, expected, attack) in enumerate(attacks, 1):
            self._out.print(f"{title}:  {code}", style="bold")
            self._attack(session, attack, title, expected)
            answer = neighbour.eval("++asked").text
            self._expect(answer == str(asked), f"the neighbour answered {answer} after {title}")

    def _attack(
        self, session: Session, attack: Callable[[], EvalResult], title: str, expected: str
    ) -> None:
        state_before, rss_before, pid_before = (
            _state(session),
            self._memory.now_bytes(),
            session.pid,
        )
        started = time.monotonic()
        with self._memory:
            result = attack()
        took_s = time.monotonic() - started
        state_after = _state(session)
        rss_after = self._memory.now_bytes()
        error = result.error
        self._out.print(Text(f"=> {safe(str(error))}", style="red"))
        table = Table(box=None, pad_edge=False)
        for heading in ("", "before", "after"):
            table.add_column(heading)
        table.add_row("session", safe(state_before), safe(state_after))
        table.add_row(
            "host",
            f"{rss_before / MiB:.1f} MiB",
            f"{rss_after / MiB:.1f} MiB (peak {self._memory.peak_bytes / MiB:.1f} MiB)",
        )
        table.add_row("worker", f"pid {pid_before}", f"pid {session.pid}")
        self._out.print(table, soft_wrap=False)
        self._out.print(f"({took_s:.2f} s, state {result.state})\n", style="dim")
        self._expect(_name(result) == expected, f"{title} ended with {_name(result)}")
        self._expect(state_after == state_before, f"{title} changed the state to {state_after}")
        grown = self._memory.peak_bytes - rss_before
        self._expect(grown <= _HOST_GROWTH_BYTES, f"{title} made the host grow by {grown} bytes")

    def _title(self, text: str) -> None:
        self._out.print(f"--- {text} ---", style="bold")

    def _expect(self, holds: bool, failure: str) -> None:
        if not holds:
            self._failures.append(failure)


def _killed_in_mid_eval(session: Session) -> EvalResult:
    worker = psutil.Process(session.pid)
    spent = worker.cpu_times()
    idle_s = spent.user + spent.system

    def assassin() -> None:
        # Burnt CPU is the sign that the program runs.
        while (spent := worker.cpu_times()).user + spent.system < idle_s + 0.2:
            time.sleep(0.01)
        os.kill(worker.pid, signal.SIGKILL)

    thread = threading.Thread(target=assassin)
    thread.start()
    try:
        return session.eval(_MID_EVAL)
    finally:
        thread.join()


def _state(session: Session) -> str:
    result = session.eval(_STATE)
    return result.text if result.ok else str(result.error)


def _name(result: EvalResult) -> str | None:
    return None if result.error is None else result.error.name


def _data(name: str) -> str:
    return resources.files("qjs_pool.cli").joinpath("data", name).read_text(encoding="utf-8")
