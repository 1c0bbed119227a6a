"""An event loop that was closed in mid-eval leaves a session that others go on with."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Coroutine, Iterator
from typing import Any

import pytest

from qjs_pool import AsyncPool, AsyncSession, Limits

_START = "var n = 1; var next = (() => { let k = 0; return () => ++k })()"
_EVAL = "n = 2; next(); await tools.hang({})"


def _quiet(work: Coroutine[Any, Any, Any]) -> asyncio.Task[Any]:
    """A task that may be destroyed without a word of the loop's."""
    task = asyncio.ensure_future(work)
    task._log_destroy_pending = False  # type: ignore[attr-defined]
    return task


class Left:
    """An event loop that is closed once a tool hangs in it; its tasks are never finished."""

    def __init__(self, *make: Callable[[], Coroutine[Any, Any, Any]]) -> None:
        self.loop = asyncio.new_event_loop()
        self.reached = asyncio.Event()
        self._make = make
        self.tasks: list[asyncio.Task[Any]] = []

    async def hang(self, _input: object) -> None:
        self.reached.set()
        await asyncio.Event().wait()

    def leave(self) -> None:
        async def until_it_hangs() -> None:
            self.tasks += [_quiet(make()) for make in self._make]
            await self.reached.wait()

        self.loop.run_until_complete(until_it_hangs())
        self.loop.close()


@pytest.fixture
def pool() -> Iterator[AsyncPool]:
    pool = AsyncPool(limits=Limits(cpu=30.0, wall=60.0), max_sessions=2)
    yield pool
    asyncio.run(pool.close())


def _opened(pool: AsyncPool, left: Left) -> AsyncSession:
    async def open_it() -> AsyncSession:
        session = await pool.session(tools={"hang": left.hang})
        assert (await session.eval(_START)).ok
        return session

    return asyncio.run(open_it())


def test_the_next_caller_goes_on_with_the_state_before_the_eval_of_a_closed_loop(
    pool: AsyncPool,
) -> None:
    left = Left(lambda: session.eval(_EVAL))
    session = _opened(pool, left)
    left.leave()
    result = asyncio.run(asyncio.wait_for(session.eval("[n, next()]"), 20))
    assert result.value == [1, 1]
    assert not left.tasks[0].done()  # it was referenced all the time


def test_those_who_waited_in_the_closed_loop_are_passed_over(pool: AsyncPool) -> None:
    queued = [lambda: session.eval("n += 10")] * 63
    left = Left(lambda: session.eval(_EVAL), *queued)
    session = _opened(pool, left)
    left.leave()
    assert asyncio.run(asyncio.wait_for(session.eval("[n, next()]"), 20)).value == [1, 1]


def test_a_caller_that_waits_already_goes_on_when_the_loop_is_closed(
    pool: AsyncPool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("qjs_pool.turnstile._LOOK_S", 0.02)
    left = Left(lambda: session.eval(_EVAL))
    session = _opened(pool, left)
    close = left.loop.close
    waits = threading.Event()

    def close_later() -> None:
        waits.wait(20)
        close()

    async def wait_for_it() -> Any:
        evaluation = asyncio.ensure_future(session.eval("[n, next()]"))
        while session._core.turns.waiting == 0:
            await asyncio.sleep(0)
        waits.set()
        return (await asyncio.wait_for(evaluation, 20)).value

    left.loop.close = lambda: None  # type: ignore[method-assign]
    left.leave()
    closer = threading.Thread(target=close_later)
    closer.start()
    assert asyncio.run(wait_for_it()) == [1, 1]
    closer.join()


def test_a_session_of_a_closed_loop_closes_and_its_slot_is_free(
    pool: AsyncPool, alive: Callable[[int], bool]
) -> None:
    left = Left(lambda: session.eval(_EVAL))
    session = _opened(pool, left)
    left.leave()
    asyncio.run(session.close())
    assert session._core.poller.closed  # whoever held the session has let go
    assert pool.stats()["sessions"] == 0


def test_those_who_waited_for_a_slot_in_a_closed_loop_get_none(pool: AsyncPool) -> None:
    async def leave_two() -> list[AsyncSession]:
        return [await pool.session() for _ in range(2)]

    async def give_back(sessions: list[AsyncSession]) -> None:
        for session in sessions:
            await session.close()

    sessions = asyncio.run(leave_two())
    loop = asyncio.new_event_loop()

    async def until_it_waits() -> None:
        opening.append(_quiet(pool._open(lambda: pool._core.new_core(None))))
        while pool._core.slots.waiting == 0:
            await asyncio.sleep(0)

    opening: list[asyncio.Task[AsyncSession]] = []
    loop.run_until_complete(until_it_waits())
    loop.close()
    asyncio.run(give_back(sessions))
    asyncio.run(give_back(asyncio.run(asyncio.wait_for(leave_two(), 20))))
    assert pool.stats()["waiting"] == 0
