"""The pool: slots, idle workers, threads, figures, its end, and why it may not start."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import Any

import psutil
import pytest

from qjs_pool import (
    IsolationUnavailable,
    Limits,
    Pool,
    PoolExhausted,
    SessionClosed,
    SpawnError,
)

Start = Callable[[Callable[[], Any]], "Future[Any]"]
Until = Callable[..., None]


# --- slots ----------------------------------------------------------------------------------------


def test_session_of_a_full_pool_waits_and_the_first_to_wait_is_the_first_to_get_one(
    start: Start, until: Until
) -> None:
    with Pool(max_sessions=1) as pool:
        held = pool.session()
        got: list[int] = []

        def take(number: int) -> None:
            with pool.session() as session:
                got.append(number)
                assert session.eval("1").value == 1

        waiting = []
        for number in range(4):
            waiting.append(start(lambda number=number: take(number)))  # type: ignore[misc]
            until(lambda number=number: pool.stats()["waiting"] == number + 1)
        assert got == []
        held.close()
        for one in waiting:
            one.result(30)
        assert got == [0, 1, 2, 3]


def test_checkout_that_waited_too_long_says_what_is_full_and_takes_no_slot() -> None:
    with Pool(max_sessions=1, checkout_timeout=0.05) as pool:
        with pool.session():
            with pytest.raises(PoolExhausted, match=r"max_sessions=1 .*0\.05 s"):
                pool.session()
            assert pool.stats()["waiting"] == 0
        with pool.session() as session:
            assert session.eval("1").value == 1


def test_copies_take_slots_as_well() -> None:
    with Pool(max_sessions=2, checkout_timeout=0.05) as pool, pool.session() as session:
        with session.fork(), pytest.raises(PoolExhausted):
            session.fork()
        with session.fork() as copy:
            assert copy.eval("1").value == 1


def test_slot_of_a_session_that_was_refused_is_given_back() -> None:
    with Pool(max_sessions=1, checkout_timeout=0.05, limits=Limits(cpu=1.0)) as pool:
        for _ in range(3):
            with pytest.raises(ValueError, match="wider"):
                pool.session(limits=Limits(cpu=2.0))
        with pool.session() as session:
            assert session.eval("1").value == 1


# --- idle workers ---------------------------------------------------------------------------------


def test_idle_workers_are_started_ahead_and_made_up_for(until: Until) -> None:
    with Pool(min_idle=2) as pool:
        pool.start()
        assert pool.stats()["idle"] == 2
        sessions = [pool.session() for _ in range(3)]
        assert pool.stats()["idle"] == 2
        pids = {session.pid for session in sessions}
        assert len(pids) == 3
        for session in sessions:
            assert session.eval("typeof before + (before = 1)").value == "undefined1"
            session.close()


def test_idle_worker_that_died_is_not_handed_out(
    until: Until, alive: Callable[[int], bool], descendants: Callable[..., set[int]]
) -> None:
    with Pool(min_idle=1) as pool:
        pool.start()
        zygote = pool._core.supervisor.pid
        until(lambda: len(descendants(zygote)) == 3, "its anchor, keeper and worker")
        idle = descendants(zygote)
        for pid in idle:
            with contextlib.suppress(ProcessLookupError):  # the anchor takes the others along
                os.kill(pid, signal.SIGKILL)
        until(lambda: not any(map(alive, idle)))
        with pool.session() as session:
            result = session.eval("1 + 1")
            assert (result.value, result.notes) == (2, ())


def test_idle_workers_that_die_at_the_moment_they_are_needed_cost_no_session(
    descendants: Callable[..., set[int]], until: Until, alive: Callable[[int], bool]
) -> None:
    with Pool(min_idle=6) as pool:
        pool.start()
        zygote = pool._core.supervisor.pid
        for _ in range(4):
            pool._core.refill()
            until(lambda: len(descendants(zygote)) == 18, "six of anchor, keeper and worker")
            dying = descendants(zygote)
            for link in pool._core._idle:
                while link.family.anchor is None:
                    link.family.next_message()
                os.kill(link.family.anchor.pid, signal.SIGKILL)
            with pool.session() as session:
                until(lambda left=dying: not any(map(alive, left)))
                assert session.eval("1 + 1").value == 2


def test_narrower_memory_gets_a_worker_of_its_own_and_not_an_idle_one() -> None:
    with Pool(min_idle=1) as pool:
        pool.start()
        with pool.session(limits=Limits(memory=8 << 20)) as session:
            assert pool.stats()["idle"] == 1
            assert session.eval("new ArrayBuffer(9 << 20)").error is not None


# --- threads --------------------------------------------------------------------------------------


def test_sessions_from_many_threads_work_and_are_counted() -> None:
    with Pool(max_sessions=4, limits=Limits(cpu=5.0)) as pool:

        def work(number: int) -> int:
            total = 0
            with pool.session() as session:
                session.eval(f"let n = {number}")
                for _ in range(3):
                    total += session.eval("n").value
            return total

        with ThreadPoolExecutor(12) as threads:
            assert list(threads.map(work, range(30))) == [3 * number for number in range(30)]
        stats = pool.stats()
        assert (stats["sessions_opened"], stats["sessions_closed"]) == (30, 30)
        assert (stats["sessions"], stats["waiting"], stats["zygote_starts"]) == (0, 0, 1)


def test_one_session_may_be_used_from_many_threads() -> None:
    with Pool() as pool, pool.session() as session:
        session.eval("let n = 0")
        with ThreadPoolExecutor(8) as threads:
            values = list(threads.map(lambda _: session.eval("++n").value, range(40)))
        assert sorted(values) == list(range(1, 41))


def test_figures_tell_sessions_memory_and_recoveries() -> None:
    with Pool(max_sessions=7) as pool, pool.session() as session:
        session.eval("let n = 1")
        os.kill(session.pid, signal.SIGKILL)
        session.eval("n")
        stats = pool.stats()
        assert stats["sessions"] == 1
        assert stats["max_sessions"] == 7
        assert stats["recoveries"] == 1
        assert stats["rss_bytes"] > 1 << 20


# --- the end --------------------------------------------------------------------------------------


def test_close_returns_at_once_whoever_runs_or_waits(
    start: Start, until: Until, burning: Callable[[int], bool]
) -> None:
    release = threading.Event()
    pool = Pool(limits=Limits(cpu=None, wall=None), max_sessions=3)
    sessions = [pool.session(tools={"hang": lambda _: release.wait(30)}) for _ in range(3)]
    pids = [session.pid for session in sessions]
    running = [start(lambda one=one: one.eval("for (;;);")) for one in sessions[:2]]  # type: ignore[misc]
    running.append(start(lambda: sessions[2].eval("await tools.hang()")))
    until(lambda: burning(pids[0]))
    until(lambda: burning(pids[1]))
    until(lambda: sessions[2]._core.relay.open_calls)
    queued = [start(lambda: sessions[0].eval("1")) for _ in range(5)]
    until(lambda: sessions[0]._core.turns.waiting == 5)
    opening = [start(pool.session) for _ in range(3)]
    until(lambda: pool.stats()["waiting"] == 3)
    started = time.monotonic()
    pool.close()
    for one in (*running, *queued, *opening):
        with pytest.raises(SessionClosed):
            one.result(5)
    assert time.monotonic() - started < 5
    pool.close()
    for session in sessions:
        session.close()
    release.set()
    until(lambda: not any(map(psutil.pid_exists, pids)))


def test_pool_closes_in_a_with_block_that_raises() -> None:
    sessions = []

    def use() -> None:
        with Pool() as pool:
            sessions.append(pool.session())
            raise KeyError

    with pytest.raises(KeyError):
        use()
    assert sessions[0].closed


def test_unused_pool_starts_nothing(descendants: Callable[..., set[int]]) -> None:
    before = descendants()
    with Pool(min_idle=3) as pool:
        assert descendants() <= before
        assert pool.stats()["zygote_starts"] == 0


# --- isolation ------------------------------------------------------------------------------------


def test_isolation_tells_each_layer() -> None:
    with Pool() as pool:
        layers = pool.isolation
        assert {"seccomp", "rlimits", "no_new_privs", "landlock", "uid"} <= layers.keys()
        assert layers["seccomp"] == "on"


@pytest.mark.parametrize("mode", ["auto", "strict"])
def test_pool_without_a_layer_it_needs_does_not_start(mode: Any) -> None:
    with Pool(isolation=mode, _skip_layers=("seccomp",)) as pool:
        with pytest.raises(IsolationUnavailable, match="seccomp"):
            pool.start()
        with pytest.raises(IsolationUnavailable, match="qjs-pool doctor"):
            pool.session()
        assert pool.stats()["sessions"] == 0


def test_strict_needs_what_auto_does_without(caplog: pytest.LogCaptureFixture) -> None:
    with (
        Pool(isolation="strict", _skip_layers=("landlock",)) as pool,
        pytest.raises(IsolationUnavailable, match="landlock"),
    ):
        pool.start()
    with Pool(isolation="auto", _skip_layers=("landlock",)) as pool, pool.session() as session:
        assert session.eval("1 + 1").value == 2
        assert pool.isolation["landlock"] != "on"
    assert "landlock" in caplog.text


def test_best_effort_runs_without_a_layer_and_says_loudly_which_once(
    caplog: pytest.LogCaptureFixture,
) -> None:
    with Pool(isolation="best-effort", _skip_layers=("seccomp",)) as pool:
        for _ in range(2):
            with pool.session() as session:
                assert session.eval("1 + 1").value == 2
        assert pool.isolation["seccomp"] != "on"
    warnings = [record.getMessage() for record in caplog.records if record.levelname == "WARNING"]
    assert len([text for text in warnings if "seccomp" in text]) == 1


# --- why it may not start -------------------------------------------------------------------------


def _fake_python(folder: Path, script: str) -> str:
    path = folder / "python"
    path.write_text(f"#!/bin/sh\n{script}\n", encoding="utf-8")
    path.chmod(0o755)
    return str(path)


@pytest.mark.parametrize(
    ("script", "says"),
    [
        ("echo 'ModuleNotFoundError: No module named _quickjs' >&2; exit 1", "named _quickjs"),
        ("exit 3", "the zygote did not start"),
        ("kill -9 $$", "the zygote did not start"),
    ],
)
def test_worker_that_cannot_start_is_an_error_with_what_it_said(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    descriptors: Callable[[], set[str]],
    descendants: Callable[..., set[int]],
    script: str,
    says: str,
) -> None:
    monkeypatch.setattr(sys, "executable", _fake_python(tmp_path, script))
    before, processes = len(descriptors()), descendants()
    with Pool() as pool:
        with pytest.raises(SpawnError, match=says):
            pool.start()
        with pytest.raises(SpawnError, match=says):
            pool.session()
        assert pool.stats()["sessions"] == 0
        assert descendants() <= processes, "no zombie of it is left"
    assert len(descriptors()) == before


def test_a_zygote_that_is_killed_while_it_starts_is_started_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    mark = tmp_path / "killed"
    script = f'[ -e {mark} ] || {{ : > {mark}; kill -9 $$; }}; exec {sys.executable} "$@"'
    monkeypatch.setattr(sys, "executable", _fake_python(tmp_path, script))
    with Pool() as pool, pool.session() as session:
        assert mark.exists()
        assert session.eval("1 + 1").value == 2


def test_missing_interpreter_is_a_spawn_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "executable", "/nonexistent/python")
    with Pool() as pool, pytest.raises(SpawnError, match="/nonexistent/python"):
        pool.start()


def test_worker_starts_although_the_host_shadows_modules_and_runs_elsewhere(
    tmp_path: Path, run_python: Callable[..., subprocess.CompletedProcess[str]]
) -> None:
    """The zygote is isolated from the host's folder and environment."""
    (tmp_path / "socket.py").write_text("raise ImportError('shadowed')\n", encoding="utf-8")
    done = run_python(
        "from qjs_pool import Pool\n"
        "import os; os.chdir(os.environ['SHADOW'])\n"
        "with Pool() as pool, pool.session() as session: print(session.eval('1 + 1').value)",
        env={**os.environ, "SHADOW": str(tmp_path), "PYTHONSTARTUP": "/nonexistent"},
    )
    assert (done.stdout, done.stderr) == ("2\n", "")
