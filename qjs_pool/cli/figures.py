"""`qjs-pool stress` and `qjs-pool top`: times and memory, measured from outside the workers."""

from __future__ import annotations

import contextlib
import statistics
import time
from typing import Final

import psutil
from rich.live import Live
from rich.table import Table

from ..errors import QjsPoolError
from ..limits import MiB
from ..pool import Pool
from .output import console
from .run import EXIT_GUEST_ERROR, EXIT_MACHINE

# In the command line of a zygote, and thereby of everything it forks.
_MARK: Final = "qjs_pool.worker.zygote"
_REFRESH_S: Final = 2.0


def stress(sessions: int) -> int:
    """Hold that many sessions open at once; 1 if one of them answers wrongly."""
    out = console()
    before_bytes = psutil.virtual_memory().available
    opened_ms: list[float] = []
    answered_ms: list[float] = []
    wrong = 0
    try:
        with Pool(max_sessions=sessions) as pool, contextlib.ExitStack() as stack:
            pool.start()
            held = []
            for number in range(sessions):
                started = time.perf_counter()
                session = stack.enter_context(pool.session())
                session.eval(f"const mine = {number}")
                opened_ms.append((time.perf_counter() - started) * 1e3)
                held.append(session)
            taken_bytes = before_bytes - psutil.virtual_memory().available
            for number, session in enumerate(held):
                started = time.perf_counter()
                wrong += session.eval("mine").text != str(number)
                answered_ms.append((time.perf_counter() - started) * 1e3)
    except QjsPoolError as error:
        console(stderr=True).print(f"qjs-pool: {error}", style="red")
        return EXIT_MACHINE
    out.print(f"sessions open at once    {sessions}")
    out.print(f"open and first result    {_spread(opened_ms)}")
    out.print(f"a further eval in each   {_spread(answered_ms)}")
    out.print(f"memory taken             {taken_bytes / MiB:.0f} MiB (by MemAvailable)")
    out.print(f"per session              {taken_bytes / sessions / MiB:.2f} MiB")
    out.print(f"wrong answers            {wrong}", style="red" if wrong else "green")
    return EXIT_GUEST_ERROR if wrong else 0


def _spread(times_ms: list[float]) -> str:
    return f"median {statistics.median(times_ms):.2f} ms, slowest {max(times_ms):.2f} ms"


def top(*, once: bool) -> int:
    """Show what workers there are."""
    out = console()
    if once or not out.is_terminal:
        out.print(_workers(), soft_wrap=False)
        return 0
    with contextlib.suppress(KeyboardInterrupt), Live(console=out, screen=True) as live:
        while True:
            live.update(_workers())
            time.sleep(_REFRESH_S)
    return 0


def _workers() -> Table:
    table = Table(box=None, pad_edge=False)
    for title in ("pid", "parent", "role", "rss MiB", "cpu s", "age s"):
        table.add_column(title, justify="left" if title == "role" else "right")
    for process, role in _find():
        with contextlib.suppress(psutil.Error), process.oneshot():
            spent = process.cpu_times()
            table.add_row(
                str(process.pid),
                str(process.ppid()),
                role,
                f"{process.memory_info().rss / MiB:.1f}",
                f"{spent.user + spent.system:.2f}",
                f"{time.time() - process.create_time():.0f}",
            )
    return table


def _find() -> list[tuple[psutil.Process, str]]:
    found: dict[int, psutil.Process] = {}
    parents: dict[int, int] = {}
    for process in psutil.process_iter():
        with contextlib.suppress(psutil.Error):
            if any(_MARK in argument for argument in process.cmdline()[:4]):
                found[process.pid] = process
                parents[process.pid] = process.ppid()
    roles: list[tuple[psutil.Process, str]] = []
    with_children = set(parents.values())
    for pid, process in sorted(found.items()):
        # A family hangs below its anchor; the one at the far end serves.
        depth = 0
        above = parents[pid]
        while above in found:
            depth, above = depth + 1, parents[above]
        role = ("zygote", "anchor")[depth] if depth < 2 else "keeper"
        if depth >= 2 and pid not in with_children:
            role = "worker"
        roles.append((process, role))
    return roles
