"""Hosts that fork (pre-fork servers): the child has a pool of its own, the parent notices nothing.

Each case runs in a host of its own, so that this test process, which may have threads, never
forks.
"""

from __future__ import annotations

import subprocess
import textwrap
from collections.abc import Callable

import pytest

RunPython = Callable[..., "subprocess.CompletedProcess[str]"]

_HEAD = """
import os, signal, sys, threading, time
from qjs_pool import AsyncPool, Limits, Pool, SessionClosed

def in_child(function):
    "Run it in a forked child; False if it failed or never ended."
    pid = os.fork()
    if pid == 0:
        try:
            signal.alarm(30)
            function()
            status = 0
        except BaseException as error:
            print("child:", repr(error), file=sys.stderr)
            status = 1
        sys.stdout.flush()
        os._exit(status)
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0

pool = Pool(limits=Limits(cpu=5.0, wall=20.0), min_idle=1)
session = pool.session()
session.eval("let n = 1; const next = (() => { let k = 0; return () => ++k })()")
pids = {session.pid, session._core.anchor_pid, pool._core.supervisor.pid}

def parent_is_well():
    assert session.eval("[n, next()]").value[0] == 1
    assert all(os.path.exists(f"/proc/{pid}") for pid in pids - {session.pid})
    with pool.session() as other:
        assert other.eval("typeof n").value == "undefined"
    assert pool.stats()["zygote_starts"] == 1
"""


def _host(run_python: RunPython, program: str) -> None:
    done = run_python(_HEAD + textwrap.dedent(program) + "\npool.close()\nprint('well')")
    assert (done.stdout, done.stderr, done.returncode) == ("well\n", "", 0)


def test_pool_used_in_a_forked_child_starts_a_zygote_of_its_own(run_python: RunPython) -> None:
    _host(
        run_python,
        """
        def child():
            assert pool.stats()["sessions"] == 0
            with pool.session() as mine:
                assert mine.eval("typeof n").value == "undefined"
                assert mine.eval("let m = 2; m").value == 2
                assert pool._core.supervisor.pid not in pids
                os.kill(mine.pid, signal.SIGKILL)
                assert mine.eval("m").value == 2
            pool.close()

        assert in_child(child)
        parent_is_well()
        """,
    )


def test_inherited_session_is_closed_in_the_child_and_open_in_the_parent(
    run_python: RunPython,
) -> None:
    _host(
        run_python,
        """
        def child():
            for use in (lambda: session.eval("1"), session.fork, session.reset):
                try:
                    use()
                except SessionClosed:
                    pass
                else:
                    raise AssertionError(use)
            session.interrupt()
            session.close()

        assert in_child(child)
        parent_is_well()
        """,
    )


@pytest.mark.parametrize("end", ["os._exit(0)", "sys.exit(0)", "os.kill(os.getpid(), 9)"])
def test_child_that_ends_leaves_the_workers_of_its_parent_alone(
    run_python: RunPython, end: str
) -> None:
    _host(
        run_python,
        f"""
        pid = os.fork()
        if pid == 0:
            import gc
            gc.collect()
            {end}
        os.waitpid(pid, 0)
        parent_is_well()
        """,
    )


def test_child_holds_no_descriptor_of_the_workers_of_its_parent(run_python: RunPython) -> None:
    """Or the workers would outlive the parent for as long as the child lives."""
    _host(
        run_python,
        """
        copy = session.fork()

        def child():
            kinds = [os.readlink(f"/proc/self/fd/{fd}") for fd in os.listdir("/proc/self/fd")
                     if os.path.lexists(f"/proc/self/fd/{fd}")]
            left = [kind for kind in kinds
                    if "socket" in kind or "pidfd" in kind or "event" in kind]
            assert left == [], left

        assert in_child(child)
        parent_is_well()
        copy.close()
        """,
    )


def test_fork_while_another_thread_evaluates_hangs_neither(run_python: RunPython) -> None:
    _host(
        run_python,
        """
        import warnings
        warnings.simplefilter("ignore", DeprecationWarning)  # of forking with threads
        busy = pool.session()
        stop = False
        def work():
            while not stop:
                assert busy.eval("1 + 1").value == 2
        thread = threading.Thread(target=work)
        thread.start()

        def child():
            with pool.session() as mine:
                assert mine.eval("1 + 1").value == 2
            pool.close()

        for _ in range(5):
            assert in_child(child)
        stop = True
        thread.join()
        busy.close()
        parent_is_well()
        """,
    )


def test_child_of_a_child_works_as_well(run_python: RunPython) -> None:
    _host(
        run_python,
        """
        def grandchild():
            with pool.session() as mine:
                assert mine.eval("1 + 1").value == 2
            pool.close()

        def child():
            with pool.session() as mine:
                assert mine.eval("let m = 1; m").value == 1
                assert in_child(grandchild)
                assert mine.eval("m").value == 1
            pool.close()

        assert in_child(child)
        parent_is_well()
        """,
    )


def test_asyncio_pool_works_in_a_forked_child(run_python: RunPython) -> None:
    _host(
        run_python,
        """
        import asyncio
        apool = AsyncPool()

        async def once():
            async with apool.session() as mine:
                assert (await mine.eval("1 + 1")).value == 2

        asyncio.run(once())

        def child():
            asyncio.run(once())
            asyncio.run(apool.close())

        assert in_child(child)
        asyncio.run(once())
        asyncio.run(apool.close())
        parent_is_well()
        """,
    )
