"""Nothing is left behind: no process, zombie, descriptor, thread or memory, on any path."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

import psutil
import pytest

from qjs_pool import Limits, Pool, Session, SpawnError

Until = Callable[..., None]
RunPython = Callable[..., "subprocess.CompletedProcess[str]"]


# --- many -----------------------------------------------------------------------------------------


def test_five_hundred_sessions_some_of_them_killed_leave_nothing(
    descriptors: Callable[[], set[str]],
    descendants: Callable[..., set[int]],
    until: Until,
) -> None:
    before = descendants()
    with Pool(limits=Limits(cpu=5.0), min_idle=1) as pool:

        def one(number: int) -> None:
            with pool.session() as session:
                assert session.eval(f"let n = {number}; n").value == number
                if number % 10 == 0:
                    os.kill(session.pid, signal.SIGKILL)
                    assert session.eval("n").value == number

        for number in range(20):
            one(number)
        until(lambda: pool.stats()["idle"] == 1)
        fds, threads = len(descriptors()), threading.active_count()
        rss = psutil.Process().memory_info().rss
        for number in range(20, 500):
            one(number)
        assert len(descriptors()) == fds
        assert threading.active_count() == threads
        assert psutil.Process().memory_info().rss - rss < 16 << 20
        zygote = pool._core.supervisor.pid
        # The idle session's anchor, keeper and worker are all that is still there.
        until(lambda: len(descendants(zygote)) <= 3, "the sessions' processes are gone")
    until(lambda: descendants() <= before, "all processes are gone")


@pytest.mark.timeout(300)  # on a busy machine; else it is a matter of ten seconds
def test_a_thousand_sessions_are_open_at_once_and_each_answers(
    descendants: Callable[..., set[int]], until: Until
) -> None:
    count = 1000
    before = descendants()
    with Pool(limits=Limits(cpu=10.0, wall=120.0), max_sessions=count) as pool:

        def begin(number: int) -> Session:
            session = stack.enter_context(pool.session())
            session.eval(f"let n = {number}")
            return session

        with contextlib.ExitStack() as stack, ThreadPoolExecutor(8) as threads:
            sessions = list(threads.map(begin, range(count)))
            assert pool.stats()["sessions"] == count
            values = list(threads.map(lambda one: one.eval("n").value, sessions))
            assert values == list(range(count))
        assert pool.stats()["sessions"] == 0
    until(lambda: descendants() <= before, "all processes are gone", 60.0)


def test_too_low_a_hard_limit_of_descriptors_is_a_clear_error_and_no_leak(
    run_python: RunPython,
) -> None:
    done = run_python(
        """
import os, resource
resource.setrlimit(resource.RLIMIT_NOFILE, (80, 80))
from qjs_pool import Pool, SpawnError
with Pool() as pool:
    sessions = []
    try:
        while len(sessions) < 100:
            sessions.append(pool.session())
    except SpawnError as error:
        print(error)
    first = sessions[0].eval("1 + 1")
    held = len(os.listdir("/proc/self/fd"))
    for _ in range(20):
        try:
            pool.session()
        except SpawnError:
            pass
    assert len(os.listdir("/proc/self/fd")) == held, "a failed start left descriptors open"
    sessions.pop().close()
    with pool.session() as again:
        print(len(sessions) >= 8, first.value, again.eval("1 + 1").value)
    for one in sessions:
        one.close()
"""
    )
    assert done.stderr == ""
    says, figures = done.stdout.splitlines()
    assert "no descriptors left" in says
    assert "hard limit 80" in says
    assert "ulimit -n" in says
    assert figures == "True 2 2"


def test_soft_limit_of_descriptors_is_raised_to_what_the_pool_may_need(
    run_python: RunPython,
) -> None:
    done = run_python(
        """
import resource
hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
resource.setrlimit(resource.RLIMIT_NOFILE, (64, hard))
from qjs_pool import Pool
with Pool(max_sessions=40) as pool:
    sessions = [pool.session() for _ in range(40)]
    print({one.eval("1 + 1").value for one in sessions})
    for one in sessions:
        one.close()
"""
    )
    assert (done.stdout, done.stderr) == ("{2}\n", "")


# --- the host goes --------------------------------------------------------------------------------

_HOST = """
import os, sys, threading, time
from qjs_pool import Limits, Pool
pool = Pool(limits=Limits(cpu=None, wall=None), min_idle=1)
release = threading.Event()
idle, busy, waiting = (pool.session(tools={"hang": lambda _: release.wait(60)}) for _ in range(3))
copy = idle.fork()
for one in (idle, busy, waiting, copy):
    one.eval("let n = 1")
    assert one.pid
called = threading.Event()
threading.Thread(target=lambda: busy.eval("for (;;);"), daemon=True).start()
threading.Thread(target=lambda: waiting.eval("await tools.hang()"), daemon=True).start()
while not waiting._core.relay.open_calls:
    time.sleep(0.001)
print("ready", flush=True)
sys.stdin.read()
"""


@pytest.mark.parametrize("how", ["killed", "exits", "exits at once", "raises"])
def test_host_that_goes_takes_every_process_along(
    how: str, descendants: Callable[..., set[int]], alive: Callable[[int], bool]
) -> None:
    end = {
        "killed": "",
        "exits": "sys.exit(0)",
        "exits at once": "os._exit(0)",
        "raises": "raise SystemExit('x')",
    }[how]
    host = subprocess.Popen(
        [sys.executable, "-c", _HOST + end],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
    )
    with host:
        assert host.stdout is not None
        assert host.stdin is not None
        assert host.stdout.readline() == b"ready\n"
        processes = descendants(host.pid)
        # The zygote, five anchors or so, and for each of five members a keeper and a worker.
        assert len(processes) > 10
        if how == "killed":
            host.kill()
        else:
            host.stdin.close()
        host.wait(20)
        started = time.monotonic()
        while any(map(alive, processes)):
            assert time.monotonic() - started < 2.0
            time.sleep(0.002)


def test_ctrl_c_in_an_eval_is_a_keyboard_interrupt_and_the_session_goes_on() -> None:
    program = """
import signal
from qjs_pool import Limits, Pool
signal.signal(signal.SIGINT, signal.default_int_handler)  # a job in the background ignores it
with Pool(limits=Limits(cpu=None, wall=60.0)) as pool, pool.session() as session:
    session.eval("let n = 1")
    try:
        print(session.pid, flush=True)
        session.eval("n = 2; for (;;);")
    except KeyboardInterrupt:
        print("interrupted", session.eval("n").value, flush=True)
"""
    host = subprocess.Popen(
        [sys.executable, "-c", program], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    with host:
        assert host.stdout is not None
        worker = psutil.Process(int(host.stdout.readline()))
        spent = sum(worker.cpu_times()[:2])
        deadline = time.monotonic() + 20
        while sum(worker.cpu_times()[:2]) < spent + 0.05:
            assert time.monotonic() < deadline
        host.send_signal(signal.SIGINT)
        out, err = host.communicate(timeout=20)
    assert (out, err, host.returncode) == ("interrupted 1\n", "", 0)


# --- threads --------------------------------------------------------------------------------------


def test_workers_outlive_the_thread_that_started_the_pool() -> None:
    with ThreadPoolExecutor(1) as executor:
        pool = Pool(min_idle=1)
        session = executor.submit(lambda: pool.start().session()).result()
        executor.submit(session.eval, "let n = 1").result()
    with pool:  # the thread has ended
        assert session.eval("n").value == 1
        with pool.session() as other:
            assert other.eval("1 + 1").value == 2
        session.close()


def test_pool_starts_with_twenty_live_threads_and_a_held_lock(run_python: RunPython) -> None:
    done = run_python(
        """
import logging, threading
from qjs_pool import Pool
stop = threading.Event()
handler = logging.StreamHandler()
logging.getLogger().addHandler(handler)
def hold():
    with handler.lock:
        stop.wait()
threads = [threading.Thread(target=hold)] + [threading.Thread(target=stop.wait) for _ in range(20)]
for thread in threads:
    thread.start()
try:
    with Pool() as pool, pool.session() as session:
        print(session.eval("1 + 1").value)
finally:
    stop.set()
    for thread in threads:
        thread.join()
"""
    )
    assert (done.stdout, done.stderr, done.returncode) == ("2\n", "", 0)


# --- odd ends -------------------------------------------------------------------------------------


def test_stopped_worker_is_a_timeout_and_the_next_eval_works() -> None:
    with Pool(limits=Limits(cpu=0.5, wall=0.5)) as pool, pool.session() as session:
        session.eval("let n = 1")
        os.kill(session.pid, signal.SIGSTOP)
        result = session.eval("n = 2")
        assert result.error is not None
        assert result.error.name == "Timeout"
        assert "wall" in result.error.message
        assert result.state == "rolled_back"
        assert session.eval("n").value == 1


def test_failed_starts_leave_no_descriptor_process_or_slot(
    descriptors: Callable[[], set[str]], descendants: Callable[..., set[int]]
) -> None:
    before, processes = len(descriptors()), descendants()
    with Pool(preload="throw new Error('no')", max_sessions=2, checkout_timeout=1.0) as pool:
        for _ in range(5):
            with pytest.raises(SpawnError):
                pool.session()
        assert pool.stats()["sessions"] == 0
        assert len(descriptors()) == before
        assert descendants() <= processes


def test_dropped_sessions_and_pools_are_collected_with_their_processes(
    until: Until, descriptors: Callable[[], set[str]]
) -> None:
    done = subprocess.run(
        [
            sys.executable,
            "-c",
            """
import gc, os, time
from qjs_pool import Pool

def use():
    pool = Pool(min_idle=1)
    session = pool.session()
    return session.eval("1 + 1").value, pool._core.supervisor.pid, session.pid

value, *pids = use()
gc.collect()
deadline = time.monotonic() + 10
def runs(pid):
    try:
        return open(f"/proc/{pid}/stat").read().rsplit(")")[1].split()[0] != "Z"
    except FileNotFoundError:
        return False
while any(map(runs, pids)) and time.monotonic() < deadline:
    time.sleep(0.01)
print(value, list(map(runs, pids)))
""",
        ],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert (done.stdout, done.stderr) == ("2 [False, False]\n", "")
