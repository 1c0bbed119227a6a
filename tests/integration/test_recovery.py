"""The crash matrix: every way a worker can die, at every moment, and what is left standing.

Real workers die by real signals. Each test ends by proving that the next eval works, and that it
finds the state it should.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import select
import signal
import socket
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any, Final

import psutil
import pytest

from qjs_pool import EvalResult, Limits, Pool, Session
from qjs_pool.conversation import STAND_S
from qjs_pool.drive import drive

Until = Callable[..., None]

HOW: Final = {
    "SIGKILL": "killed by SIGKILL (9)",
    "SIGSEGV": "killed by SIGSEGV (11)",
    "SIGABRT": "killed by SIGABRT (6)",
    "exit": "exited with status 0",
}
how = pytest.mark.parametrize("how", HOW)

_BACK: Final = "the session is as it was before this eval"
_EMPTY: Final = "the session's state is lost, it starts empty"


def _crash_inside() -> Callable[[dict[str, str]], None]:
    """A worker function: the worker's own process ends, the way a broken engine would end it."""

    def crash(args: dict[str, str]) -> None:  # nested, so that it travels by value
        how = args["how"]
        if how == "SIGSEGV":
            ctypes.string_at(8)
        elif how == "SIGABRT":
            os.abort()
        os._exit(7)

    return crash


@pytest.fixture(scope="module")
def pool() -> Iterator[Pool]:
    limits = Limits(cpu=None, wall=60.0, memory=128 << 20)
    with Pool(limits=limits, min_idle=1, worker_functions={"crash": _crash_inside()}) as pool:
        yield pool


@pytest.fixture
def session(pool: Pool) -> Iterator[Session]:
    """A session with state that no snapshot could hold: a closure."""
    with pool.session() as session:
        session.eval("let n = 1; const next = (() => { let k = 10; return () => ++k })(); next()")
        yield session


def _end(session: Session, how: str) -> None:
    """End the worker that serves now, from outside."""
    if how == "exit":
        # It reads the end of its stream, as if the host had closed the session.
        talk = session._core._talk
        assert talk is not None
        talk.link.data.shutdown(socket.SHUT_WR)
    else:
        os.kill(_worker(session), signal.Signals[how])


def _worker(session: Session) -> int:
    pid = session._core.worker_pid
    assert pid is not None
    return pid


def _assert_as_before(session: Session) -> None:
    assert session.eval("n").value == 1
    assert session.eval("[next(), next()]").value == [12, 13]


def _assert_crashed(result: EvalResult, text: str) -> None:
    assert result.error is not None
    assert result.error.name == "WorkerCrashed"
    assert text in result.error.message
    assert _BACK in result.error.message
    assert result.state == "rolled_back"


def _park(session: Session) -> None:
    drive(session._core, session._core.park)


def _processes(session: Session) -> int:
    anchor = session._core.anchor_pid
    assert anchor is not None
    return len(psutil.Process(anchor).children(recursive=True))


# --- no keeper while nothing is asked -------------------------------------------------------------


def test_a_parked_session_is_its_worker_alone_and_has_a_keeper_again_when_it_is_used(
    session: Session, until: Until
) -> None:
    worker = session.pid
    _park(session)
    until(lambda: _processes(session) == 1, "the keeper stayed")
    assert session._core.worker_pid == worker
    _assert_as_before(session)
    assert session.eval("n = 5; tools.crash({ how: 'SIGSEGV' })").state == "rolled_back"
    assert session.eval("[n, next()]").value == [1, 14]


def test_parking_twice_is_parking_once(session: Session) -> None:
    _park(session)
    _park(session)
    _assert_as_before(session)


@how
def test_a_worker_that_dies_while_it_is_parked_takes_its_state_along_and_that_is_told(
    session: Session, until: Until, how: str
) -> None:
    _park(session)
    until(lambda: _processes(session) == 1, "the keeper stayed")
    _end(session, how)
    result = session.eval("typeof n")
    assert result.value == "undefined"
    assert _EMPTY in result.notes[0]
    assert session.eval("1 + 1").value == 2


def test_a_worker_that_dies_before_it_let_its_keeper_go_costs_nothing(session: Session) -> None:
    worker = session.pid  # it stands
    assert worker is not None
    os.kill(worker, signal.SIGSTOP)
    _park(session)
    _end(session, "SIGKILL")
    _assert_as_before(session)


def test_a_copy_may_be_parked_from_its_start(session: Session, until: Until) -> None:
    core = session._core
    options = session._pool._core.copy_options(core)
    copy = drive(core, lambda: core.fork(options, parked=True))
    try:
        until(lambda: _processes(session) == 3, "the copy has a keeper")
        drive(copy, lambda: copy.eval("n = 7", 5.0))
        assert drive(copy, lambda: copy.eval("[n, next()]", 5.0)).value == [7, 12]
        _assert_as_before(session)
    finally:
        copy.close()


# --- one worker dies ------------------------------------------------------------------------------


@how
def test_worker_that_dies_while_idle_costs_the_session_nothing(session: Session, how: str) -> None:
    before = session.pid
    _end(session, how)
    result = session.eval("n")
    assert (result.value, result.state, result.notes) == (1, "kept", ())
    assert session.pid != before
    _assert_as_before(session)


@how
def test_worker_that_dies_in_js_is_reported_and_the_state_is_as_before(
    session: Session,
    how: str,
    start: Callable[..., Any],
    until: Callable[..., None],
    burning: Callable[[int], bool],
) -> None:
    pid = session.pid
    if how == "exit":
        result = session.eval("n = 2; next(); await tools.crash({how: 'exit'})")
        _assert_crashed(result, "exited with status 7")
    else:
        running = start(lambda: session.eval("n = 2; next(); for (;;);"))
        until(lambda: burning(pid))
        _end(session, how)
        _assert_crashed(running.result(10), HOW[how])
    _assert_as_before(session)


@pytest.mark.parametrize("how", ["SIGSEGV", "SIGABRT"])
def test_worker_that_crashes_by_itself_is_reported_and_the_state_is_as_before(
    session: Session, how: str
) -> None:
    result = session.eval(f"n = 2; await tools.crash({{how: '{how}'}})")
    # The filter lets no worker send a signal, so abort() ends with the trap behind it.
    _assert_crashed(result, HOW["SIGSEGV"])
    _assert_as_before(session)


@how
def test_worker_that_dies_while_it_waits_for_a_tool_is_reported_at_once(
    pool: Pool, how: str, start: Callable[..., Any]
) -> None:
    called, release = threading.Event(), threading.Event()

    def slow(_: Any) -> str:
        called.set()
        release.wait(20)
        return "late"

    with pool.session(tools={"slow": slow}) as session:
        session.eval("let n = 1; const next = (() => { let k = 10; return () => ++k })(); next()")
        assert session.pid  # it stands, so that the kill meets the one that waits
        running = start(lambda: session.eval("n = 2; n = await tools.slow({})"))
        assert called.wait(10)
        _end(session, how)
        result = running.result(10)  # the tool still hangs
        _assert_crashed(result, HOW[how])
        assert [(call.name, call.outcome) for call in result.calls] == [("slow", "cancelled")]
        assert "side effects may have happened" in result.notes[0]
        release.set()
        _assert_as_before(session)  # the late answer went nowhere


@how
def test_worker_that_dies_before_it_reads_a_large_program_runs_it_in_its_successor(
    session: Session, how: str, start: Callable[..., Any], until: Callable[..., None]
) -> None:
    """10 MB do not fit into the socket: the host is in the middle of writing when it happens."""
    pid = session.pid
    program = "/*" + "x" * 10_000_000 + "*/ n = 2"
    os.kill(pid, signal.SIGSTOP)
    running = start(lambda: session.eval(program))
    talk = session._core._talk
    assert talk is not None
    fd = talk.link.data.fileno()
    until(lambda: talk._watches.events(fd) & select.EPOLLOUT, "the stream is full")
    if how == "exit":
        talk.link.data.shutdown(socket.SHUT_WR)  # half a frame, and then the end
        os.kill(pid, signal.SIGCONT)
    else:
        os.kill(pid, signal.Signals[how])
        with contextlib.suppress(ProcessLookupError):  # SIGKILL needs none, and it may be gone
            os.kill(pid, signal.SIGCONT)
    result = running.result(20)
    if result.error is None:
        assert (result.value, session.eval("n").value) == (2, 2)  # it ran, once, and in full
        assert session.eval("[next(), next()]").value == [12, 13]
    else:
        _assert_crashed(result, HOW[how])  # it had read some: nothing ran
        _assert_as_before(session)
    if how == "SIGKILL":
        assert result.ok, "a stopped worker has read nothing, so the eval is safe to send again"


@pytest.mark.parametrize("written_bytes", [1, 1_000_000, 6_000_000])
def test_worker_killed_while_it_reads_a_large_program_either_ran_it_or_did_not(
    session: Session, written_bytes: int, start: Callable[..., Any], until: Callable[..., None]
) -> None:
    assert session.pid  # it stands, so that the kill meets the one that reads
    running = start(lambda: session.eval("n = 2; /*" + "x" * 10_000_000 + "*/ n"))
    talk = session._core._talk
    assert talk is not None
    until(
        lambda: talk._outbox.taken_bytes > written_bytes or running.done(), "some of it was written"
    )
    os.kill(_worker(session), signal.SIGKILL)
    result = running.result(20)
    if result.ok:
        assert session.eval("n").value == 2
    else:
        _assert_crashed(result, HOW["SIGKILL"])
        _assert_as_before(session)


@how
def test_process_killed_right_after_a_result_leaves_either_the_new_state_or_a_note(
    session: Session, how: str
) -> None:
    """The checkpoint is in flight: the pid we know is the worker before its fork, or the keeper."""
    value = 1
    for round_ in range(10):
        assert session.eval(f"n = {round_ + 2}").value == round_ + 2
        with_state = {round_ + 2: False, value: True}
        _end(session, how)
        result = session.eval("n")
        assert result.state == "kept"
        assert result.value in with_state
        lost = any("died" in note and "is lost" in note for note in result.notes)
        assert lost == with_state[result.value], "a lost eval is told, and nothing else is"
        value = result.value
    assert session.eval("next()").value == 12


def test_result_and_the_word_that_its_state_is_safe_may_arrive_together(
    session: Session, until: Callable[..., None]
) -> None:
    """As they do in a busy host; then nothing more is to come, and nothing may be waited for."""
    assert session.pid
    core = session._core
    steps = core.eval("n = 2", None)
    next(steps)
    talk = core._talk
    assert talk is not None
    control = talk.link.control
    until(lambda: select.select([control], [], [], 0)[0], "the next worker stands")
    done = False
    while not done:  # nothing to wait for: both are there
        try:
            steps.send(core.poller.poll(0))
        except StopIteration:
            done = True
    started = time.monotonic()
    os.kill(session.pid, signal.SIGKILL)
    result = session.eval("n")
    assert (result.value, result.notes) == (2, ())
    assert time.monotonic() - started < STAND_S / 2


def test_tools_of_a_dead_worker_can_be_called_again(pool: Pool) -> None:
    with pool.session(tools={"echo": lambda value: value}) as session:
        assert session.eval("await tools.echo({v: 1})").value == {"v": 1}
        os.kill(session.pid, signal.SIGKILL)
        assert session.eval("await tools.echo({v: 2})").value == {"v": 2}


# --- the others die -------------------------------------------------------------------------------


def test_session_whose_keeper_was_killed_goes_on_and_has_one_again(
    session: Session, family: Callable[..., dict[str, int]], alive: Callable[[int], bool]
) -> None:
    os.kill(family(session)["keeper"], signal.SIGKILL)
    assert session.eval("n = 2").value == 2
    pids = family(session)
    assert alive(pids["keeper"])
    assert pids["keeper"] != pids["anchor"]
    os.kill(pids["worker"], signal.SIGKILL)
    result = session.eval("n")
    assert (result.value, result.notes) == (2, ())
    assert session.eval("next()").value == 12


def test_keeper_killed_and_then_the_worker_leaves_an_empty_session_that_says_so(
    session: Session,
    family: Callable[..., dict[str, int]],
    alive: Callable[[int], bool],
    until: Callable[..., None],
) -> None:
    pids = family(session)
    os.kill(pids["keeper"], signal.SIGKILL)
    os.kill(pids["worker"], signal.SIGKILL)
    # The anchor leaves when nobody is left: the keeper before this one may still be on its way out,
    # and hold the session's sockets.
    until(lambda: not any(map(alive, pids.values())))
    result = session.eval("typeof n")
    assert result.value == "undefined"
    assert len(result.notes) == 1
    assert _EMPTY in result.notes[0]
    assert session.eval("let n = 5; n").notes == ()
    os.kill(session.pid, signal.SIGKILL)
    assert session.eval("n").value == 5


@pytest.mark.parametrize("victims", [("keeper", "worker"), ("anchor",)])
def test_all_processes_of_a_session_killed_in_an_eval_give_an_empty_session_that_says_so(
    session: Session,
    victims: tuple[str, ...],
    family: Callable[..., dict[str, int]],
    start: Callable[..., Any],
    until: Callable[..., None],
    burning: Callable[[int], bool],
) -> None:
    pids = family(session)
    running = start(lambda: session.eval("for (;;);"))
    until(lambda: burning(pids["worker"]))
    for victim in victims:
        os.kill(pids[victim], signal.SIGKILL)
    result = running.result(10)
    assert result.error.name == "WorkerCrashed"
    assert _EMPTY in result.error.message
    assert result.state == "reset"
    after = session.eval("typeof n")
    assert (after.value, after.notes) == ("undefined", ())  # the result above has told it
    until(lambda: not any(map(psutil.pid_exists, pids.values())), "the old processes are gone")


def test_session_whose_anchor_was_killed_while_idle_starts_empty_and_says_so(
    session: Session, family: Callable[..., dict[str, int]], until: Callable[..., None]
) -> None:
    pids = family(session)
    os.kill(pids["anchor"], signal.SIGKILL)
    until(lambda: not any(map(psutil.pid_exists, pids.values())), "the old processes are gone")
    result = session.eval("typeof n")
    assert result.value == "undefined"
    assert _EMPTY in result.notes[0]
    assert session.eval("1 + 1").value == 2


def test_live_sessions_do_not_need_the_zygote_and_the_next_session_starts_another() -> None:
    with Pool(limits=Limits(cpu=2.0)) as pool, pool.session() as session:
        session.eval("let n = 0; const add = (() => { let k = 0; return () => n = ++k })()")
        zygote = pool._core.supervisor.pid
        assert zygote is not None
        os.kill(zygote, signal.SIGKILL)
        for count in range(1, 301):
            assert session.eval("add()").value == count
        os.kill(session.pid, signal.SIGKILL)
        assert session.eval("add()").value == 301
        with pool.session() as other:
            assert other.eval("typeof add").value == "undefined"
        assert pool.stats()["zygote_starts"] == 2
        assert session.eval("add()").value == 302


# --- durability "none" ----------------------------------------------------------------------------


def test_without_durability_a_worker_lost_while_idle_is_told_with_the_next_result(
    alive: Callable[[int], bool], until: Callable[..., None]
) -> None:
    with Pool(limits=Limits(cpu=2.0), durability="none") as pool, pool.session() as session:
        session.eval("let n = 1")
        pid = session.pid
        os.kill(pid, signal.SIGKILL)
        until(lambda: not alive(pid))
        result = session.eval("typeof n")
        assert result.value == "undefined"
        assert len(result.notes) == 1
        assert _EMPTY in result.notes[0]
        assert HOW["SIGKILL"] in result.notes[0]
        assert session.eval("n = 2; n").notes == ()
        assert session.eval("n").value == 2


def test_without_durability_a_worker_lost_in_an_eval_leaves_an_empty_session() -> None:
    with (
        Pool(
            limits=Limits(cpu=2.0),
            durability="none",
            worker_functions={"crash": _crash_inside()},
        ) as pool,
        pool.session() as session,
    ):
        session.eval("let n = 1")
        result = session.eval("await tools.crash({how: 'SIGSEGV'})")
        assert result.error is not None
        assert result.error.name == "WorkerCrashed"
        assert HOW["SIGSEGV"] in result.error.message
        assert _EMPTY in result.error.message
        assert result.state == "reset"
        after = session.eval("typeof n")
        assert (after.value, after.notes) == ("undefined", ())


def test_worker_that_died_just_before_its_request_came_runs_it_in_its_successor(
    session: Session, monkeypatch: pytest.MonkeyPatch
) -> None:
    session.eval("let counted = 1").unwrap()
    os.kill(session.pid, signal.SIGKILL)
    talk = session._core._talk
    assert talk is not None
    # The keeper has looked for what is unread, and reported; the host has not heard it yet.
    assert select.select([talk.link.control], [], [], 20)[0]
    monkeypatch.setattr(talk, "look", lambda: None)
    result = session.eval("++counted")
    assert (result.error, result.text, result.state) == (None, "2", "kept")


# --- again and again ------------------------------------------------------------------------------


def test_a_hundred_crashes_in_a_row_leave_nothing_and_lose_nothing(
    session: Session,
    family: Callable[..., dict[str, int]],
    descriptors: Callable[[], set[str]],
    descendants: Callable[..., set[int]],
    until: Callable[..., None],
) -> None:
    anchor = family(session)["anchor"]
    session.eval("await tools.crash({how: 'exit'})")
    assert session.pid
    open_before, threads = len(descriptors()), threading.active_count()
    for round_ in range(100):
        crash = ("SIGSEGV", "exit")[round_ % 2]
        assert not session.eval(f"n = 2; await tools.crash({{how: '{crash}'}})").ok
    assert session.pid
    assert len(descriptors()) == open_before
    assert threading.active_count() == threads
    until(
        lambda: len(descendants(anchor)) == 2,
        "only the keeper and the worker are left under the anchor",
    )
    _assert_as_before(session)
