"""State that is gone with its worker is told until somebody has heard it, and never passed on."""

from __future__ import annotations

import asyncio
import contextlib
import os
import select
import signal
import socket
from collections.abc import Callable, Iterator
from typing import Any, Final

import pytest

from qjs_pool import AsyncPool, Limits, Pool, Session, SnapshotRejected, SpawnError
from qjs_pool.conversation import Conversation
from qjs_pool.core import Core
from qjs_pool.drive import drive
from qjs_pool.evals import StateLost
from qjs_pool.steps import Steps

_EMPTY: Final = "the session's state is lost, it starts empty"
_CLOSURE: Final = "let n = 1; const next = (() => { let k = 0; return () => ++k })(); next()"


@pytest.fixture
def kept(pool: Pool) -> Iterator[Session]:
    """A session with state that no snapshot could hold."""
    with pool.session() as session:
        session.eval(_CLOSURE)
        yield session


def _end_family(session: Session) -> None:
    """Kill the anchor, and so all of the session's processes; when it is gone, they are."""
    anchor = session._core.anchor_pid
    assert anchor is not None
    gone = os.pidfd_open(anchor)
    try:
        os.kill(anchor, signal.SIGKILL)
        assert select.select([gone], [], [], 20.0)[0]
    finally:
        os.close(gone)


def _assert_told_once(session: Session) -> None:
    result = session.eval("typeof n")
    assert result.value == "undefined"
    assert [_EMPTY in note for note in result.notes] == [True]
    assert session.eval("var n = 2; n").notes == ()


# --- what would pass the loss on ------------------------------------------------------------------


def test_no_snapshot_is_taken_of_a_session_that_lost_its_state(kept: Session, pool: Pool) -> None:
    _end_family(kept)
    for _ in range(2):  # asking again does not make it right
        with pytest.raises(SnapshotRejected, match=_EMPTY):
            kept.snapshot()
    _assert_told_once(kept)
    with pool.session(snapshot=kept.snapshot()) as heir:
        assert heir.eval("n").value == 2


def test_no_copy_is_made_of_a_session_that_lost_its_state(kept: Session) -> None:
    _end_family(kept)
    for _ in range(2):
        with pytest.raises(SpawnError, match=_EMPTY):
            kept.fork()
    _assert_told_once(kept)
    with kept.fork() as copy:
        assert copy.eval("n").value == 2


def test_a_program_that_needs_the_state_does_not_run_without_it(kept: Session) -> None:
    core = kept._core
    _end_family(kept)
    for _ in range(2):
        with pytest.raises(StateLost, match=_EMPTY):
            drive(core, lambda: core.eval("var ran = 1", 5.0, whole=True))
    result = kept.eval("typeof ran")
    assert result.value == "undefined"
    assert _EMPTY in result.notes[0]
    assert drive(core, lambda: core.eval("1 + 1", 5.0, whole=True)).value == 2


def test_a_global_that_is_set_into_an_empty_session_hides_no_loss(kept: Session) -> None:
    _end_family(kept)
    kept.set("m", 3)
    result = kept.eval("[typeof n, m]")
    assert result.value == ["undefined", 3]
    assert _EMPTY in result.notes[0]


def test_a_reset_or_a_restored_snapshot_ends_the_loss(kept: Session) -> None:
    blob = kept.snapshot()
    _end_family(kept)
    with pytest.raises(SnapshotRejected):
        kept.snapshot()
    kept.reset()
    assert kept.eval("typeof n").notes == ()
    with kept._pool.session(snapshot=blob) as heir:
        result = heir.eval("n")
        assert (result.value, result.notes) == (1, ())


# --- losses that nothing had told -----------------------------------------------------------------


def test_a_restored_session_that_dies_before_its_first_eval_says_so(
    kept: Session, pool: Pool
) -> None:
    with pool.session(snapshot=kept.snapshot()) as heir:
        _end_family(heir)
        _assert_told_once(heir)


def test_a_session_with_nothing_but_a_global_says_that_it_is_gone(pool: Pool) -> None:
    with pool.session() as session:
        session.set("n", 1)
        _end_family(session)
        _assert_told_once(session)


def test_a_session_that_ran_nothing_has_nothing_to_lose(pool: Pool) -> None:
    with pool.session() as session:
        _end_family(session)
        result = session.eval("1 + 1")
        assert (result.value, result.notes) == (2, ())


def test_a_family_that_dies_after_a_result_said_rolled_back_is_told(kept: Session) -> None:
    assert kept.eval("for (;;);", timeout=0.1).state in ("kept", "rolled_back")
    result = kept.eval("n = 2; Array.from({ length: 1e9 }, () => 'x'.repeat(1e6))")
    assert result.state == "rolled_back"
    _end_family(kept)
    _assert_told_once(kept)


def test_without_durability_a_cancelled_eval_costs_the_state_and_the_next_result_says_so() -> None:
    async def cancel() -> None:
        async with AsyncPool(limits=Limits(cpu=None), durability="none") as pool:
            started = asyncio.Event()

            async def begin(args: Any) -> None:
                started.set()

            async with pool.session(tools={"begin": begin}) as session:
                await session.eval("let n = 1")
                running = asyncio.ensure_future(session.eval("await tools.begin({}); for (;;);"))
                await started.wait()
                running.cancel()
                with pytest.raises(asyncio.CancelledError):
                    await running
                result = await session.eval("typeof n")
                assert result.value == "undefined"
                assert [_EMPTY in note for note in result.notes] == [True]
                assert (await session.eval("typeof n")).notes == ()

    asyncio.run(cancel())


# --- operations that are given up half-way --------------------------------------------------------


def test_giving_up_while_a_keeper_is_asked_for_costs_a_parked_session_nothing(
    kept: Session,
) -> None:
    core = kept._core
    worker = kept.pid
    drive(core, core.park)
    os.kill(worker, signal.SIGSTOP)  # no answer comes before all of them have left
    for make in (core.stand, core.snapshot, lambda: core.eval("n = 2", 5.0)):
        _give_up(core, make(), 1)  # it has asked, and waits for the answer
    assert core.worker_pid == worker
    os.kill(worker, signal.SIGCONT)
    result = kept.eval("[n, next(), next()]")
    assert (result.value, result.notes) == ([1, 2, 3], ())
    assert core.recoveries == 0


def test_giving_up_while_a_loss_is_found_out_hides_no_loss(kept: Session) -> None:
    core = kept._core
    _end_family(kept)
    for waits in (1, 2, 3):  # given up later and later
        _give_up(core, core.stand(), waits)
    with pytest.raises(SnapshotRejected, match=_EMPTY):
        kept.snapshot()
    _assert_told_once(kept)


def _give_up(core: Core, steps: Steps[Any], waits: int) -> None:
    """Cancel an operation when it waits for that time, unless it has come to its end."""
    with contextlib.suppress(StopIteration):
        next(steps)
        for _ in range(waits - 1):
            steps.send(core.poller.poll(20.0))
    steps.close()


def test_a_keeper_whose_successors_die_one_after_the_other_still_has_the_state(
    kept: Session, monkeypatch: pytest.MonkeyPatch
) -> None:
    take_over: Callable[[Conversation], Any] = Conversation.take_over

    def to_die_at_once(talk: Conversation) -> Any:
        taken = yield from take_over(talk)
        talk.link.worker.kill()  # type: ignore[union-attr]
        yield from talk.report()
        return taken

    monkeypatch.setattr(Conversation, "take_over", to_die_at_once)
    os.kill(kept.pid, signal.SIGKILL)
    with pytest.raises(SpawnError, match="no worker stayed alive"):
        kept.eval("n = 2")
    monkeypatch.undo()
    result = kept.eval("[n, next()]")
    assert (result.value, result.notes) == ([1, 2], ())


# --- evals that are given up as they end ----------------------------------------------------------


@pytest.mark.parametrize("killed", ["after it has left a keeper", "while it leaves one"])
def test_an_eval_that_was_given_up_as_it_ended_is_told_and_leaves_a_whole_session(
    kept: Session, monkeypatch: pytest.MonkeyPatch, killed: str
) -> None:
    core = kept._core
    assert kept.pid  # it stands
    talk = core._talk
    assert talk is not None
    steps = core.eval("n = 2; next()", 5.0)
    next(steps)
    # It ends, commits, and a new worker stands: of all that nobody has taken note yet.
    _wait_for(talk.link.control)
    if killed == "while it leaves one":
        # What is killed is the worker that ran it, which is the new one's keeper by now.
        monkeypatch.setattr(talk, "look", lambda: None)
    steps.close()
    monkeypatch.undo()
    with pytest.raises(StateLost, match="has its changes"):
        drive(core, lambda: core.eval("1", 5.0, whole=True))
    result = kept.eval("[n, next()]")
    assert result.value == [2, 3]
    assert ["has its changes" in note for note in result.notes] == [True]
    assert kept.eval("n = 3; n").notes == ()
    os.kill(kept.pid, signal.SIGKILL)
    assert kept.eval("[n, next()]").value == [3, 4]


def _wait_for(end: socket.socket) -> None:
    assert select.select([end], [], [], 20.0)[0]
