"""What the runtime's tests share: waiting with a deadline, looking at processes from outside."""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import Future
from pathlib import Path
from typing import Any, Final

import psutil
import pytest

from qjs_pool import EvalResult, Pool, Session

_PATIENCE_S: Final = 20.0

Until = Callable[..., None]
Start = Callable[[Callable[[], Any]], "Future[Any]"]


def _until(condition: Callable[[], object], what: str = "", timeout_s: float = _PATIENCE_S) -> None:
    deadline = time.monotonic() + timeout_s
    while not condition():
        assert time.monotonic() < deadline, f"not within {timeout_s} s: {what or condition}"
        time.sleep(0.002)


@pytest.fixture(scope="session")
def until() -> Until:
    """`until(condition, what)`: wait until it holds, and fail if it doesn't come to that."""
    return _until


@pytest.fixture
def start() -> Iterator[Start]:
    """`start(function)`: run it in a thread of its own, and get its future."""
    threads: list[threading.Thread] = []

    def begin(function: Callable[[], Any]) -> Future[Any]:
        future: Future[Any] = Future()

        def run() -> None:
            try:
                future.set_result(function())
            except BaseException as error:
                future.set_exception(error)

        thread = threading.Thread(target=run, daemon=True)
        threads.append(thread)
        thread.start()
        return future

    yield begin
    for thread in threads:
        thread.join(_PATIENCE_S)
        assert not thread.is_alive(), "a call never came back"


@pytest.fixture(scope="session")
def family() -> Callable[[Session], dict[str, int]]:
    """`family(session)`: pids of its anchor, keeper and worker, as the machine sees them."""

    def pids(session: Session) -> dict[str, int]:
        worker = session.pid
        anchor = session._core.anchor_pid
        assert anchor is not None
        return {"anchor": anchor, "keeper": psutil.Process(worker).ppid(), "worker": worker}

    return pids


@pytest.fixture(scope="session")
def descendants() -> Callable[..., set[int]]:
    """`descendants(pid)`: its children, theirs, and so on; of this process by default.

    From /proc and not by psutil, which compares start times that it computes from the wall clock.
    """

    def look(pid: int | None = None) -> set[int]:
        parents: dict[int, int] = {}
        for entry in os.listdir("/proc"):
            if entry.isdigit():
                with contextlib.suppress(OSError):
                    stat = Path(f"/proc/{entry}/stat").read_text(encoding="utf-8")
                    parents[int(entry)] = int(stat.rpartition(")")[2].split()[1])
        found = {os.getpid() if pid is None else pid}
        while more := {child for child, parent in parents.items() if parent in found} - found:
            found |= more
        return found - {os.getpid() if pid is None else pid}

    return look


@pytest.fixture(scope="session")
def burning() -> Callable[[int], bool]:
    """`burning(pid)`: whether the process runs now and has used CPU time since the last look."""
    seen: dict[int, float] = {}

    def look(pid: int) -> bool:
        try:
            used = sum(psutil.Process(pid).cpu_times()[:2])
        except psutil.Error:
            return False
        return used > seen.setdefault(pid, used) + 0.02

    return look


@pytest.fixture(scope="session")
def alive() -> Callable[[int], bool]:
    """`alive(pid)`: whether the process exists and is no zombie."""

    def look(pid: int) -> bool:
        with contextlib.suppress(psutil.Error):
            return psutil.Process(pid).status() != psutil.STATUS_ZOMBIE
        return False

    return look


@pytest.fixture(scope="session")
def descriptors() -> Callable[[], set[str]]:
    """`descriptors()`: what this process has open, by number and kind."""

    def look() -> set[str]:
        found = set()
        for number in os.listdir("/proc/self/fd"):
            with contextlib.suppress(OSError):
                found.add(f"{number} {os.readlink(f'/proc/self/fd/{number}')}")
        return {entry for entry in found if "/proc/" not in entry}

    return look


@pytest.fixture(scope="session")
def run_python() -> Callable[..., subprocess.CompletedProcess[str]]:
    """`run_python(source, *args)`: a host process of its own; warnings are errors in it."""

    def run(source: str, *args: str, **options: Any) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [sys.executable, "-W", "error", "-c", source, *args],
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
            **options,
        )

    return run


@pytest.fixture
def run(pool: Pool) -> Callable[..., EvalResult]:
    """`run(files, *programs)`: the last result of a session with these files as module `@/m`."""

    def run(files: Mapping[str, str], *programs: str, **scopes: Mapping[str, str]) -> EvalResult:
        modules = {"@/m": files, **{f"@/{name}": of for name, of in scopes.items()}}
        with pool.session(modules=modules) as session:
            return [session.eval(program) for program in programs][-1]

    return run
