"""The asyncio pool: cancellation, order, and that no event loop is blocked or needed for good."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Coroutine, Iterator
from typing import Any

import pytest

from qjs_pool import AsyncPool, AsyncSession, Limits, PoolExhausted, SessionClosed, UsageError

_START = "let n = 1; const next = (() => { let k = 0; return () => ++k })()"


@pytest.fixture
def pool() -> Iterator[AsyncPool]:
    pool = AsyncPool(limits=Limits(cpu=30.0, wall=60.0))
    yield pool
    asyncio.run(pool.close())


Program = Callable[[AsyncSession], Coroutine[Any, Any, None]]


def _in_session(pool: AsyncPool, program: Program, **options: Any) -> None:
    async def main() -> None:
        async with pool.session(**options) as session:
            assert (await session.eval(_START)).ok
            await program(session)
            # Whatever happened: the session goes on, as before it.
            assert (await session.eval("[n, next()]")).value == [1, 1]

    asyncio.run(main())


async def _burn(session: AsyncSession, burning: Callable[[int], bool]) -> asyncio.Task[Any]:
    """A task whose eval runs in a loop by now."""
    running = asyncio.ensure_future(session.eval("n = 2; next(); for (;;);"))
    async with asyncio.timeout(20):
        while session.pid is None or not burning(session.pid):
            await asyncio.sleep(0.002)
    return running


async def _idle(pid: int, burning: Callable[[int], bool], alive: Callable[[int], bool]) -> float:
    """Seconds until the process was gone."""
    started = time.monotonic()
    async with asyncio.timeout(10):
        while alive(pid):
            await asyncio.sleep(0.002)
    return time.monotonic() - started


# --- cancellation ---------------------------------------------------------------------------------


def test_cancelled_eval_stops_the_guest_and_the_session_is_as_before(
    pool: AsyncPool, burning: Callable[[int], bool], alive: Callable[[int], bool]
) -> None:
    async def program(session: AsyncSession) -> None:
        running = await _burn(session, burning)
        pid = session.pid
        assert pid is not None
        running.cancel()
        with pytest.raises(asyncio.CancelledError):
            await running
        assert await _idle(pid, burning, alive) < 2.0  # it is 2 ms, where a processor is free

    _in_session(pool, program)


def test_eval_that_is_out_of_time_by_wait_for_is_stopped(
    pool: AsyncPool, alive: Callable[[int], bool], burning: Callable[[int], bool]
) -> None:
    async def program(session: AsyncSession) -> None:
        running = await _burn(session, burning)
        pid = session.pid
        assert pid is not None
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(running, 0.05)
        await _idle(pid, burning, alive)

    _in_session(pool, program)


def test_eval_cancelled_at_once_never_runs_on(pool: AsyncPool) -> None:
    """Cancelled at every point of its first milliseconds, the worker's start included."""

    async def program(session: AsyncSession) -> None:
        for delay in (0.0, 0.0, 0.0001, 0.0005, 0.001, 0.002, 0.003, 0.005, 0.01):
            running = asyncio.ensure_future(session.eval("n = 2; next(); for (;;);"))
            await asyncio.sleep(delay)
            running.cancel()
            with pytest.raises(asyncio.CancelledError):
                await running
            assert (await session.eval("n")).value == 1

    _in_session(pool, program)


def test_cancelled_eval_cancels_its_tools(pool: AsyncPool) -> None:
    async def main() -> None:
        called, cancelled = asyncio.Event(), asyncio.Event()

        async def hang(_: Any) -> None:
            called.set()
            try:
                await asyncio.sleep(60)
            except asyncio.CancelledError:
                cancelled.set()
                raise

        async with pool.session(tools={"hang": hang}) as session:
            await session.eval("let n = 1")
            running = asyncio.ensure_future(session.eval("n = 2; await tools.hang()"))
            await asyncio.wait_for(called.wait(), 10)
            running.cancel()
            with pytest.raises(asyncio.CancelledError):
                await running
            await asyncio.wait_for(cancelled.wait(), 10)
            assert (await session.eval("n")).value == 1

    asyncio.run(main())


def test_eval_cancelled_while_it_queues_never_runs_and_the_others_do(
    pool: AsyncPool, burning: Callable[[int], bool]
) -> None:
    async def program(session: AsyncSession) -> None:
        running = await _burn(session, burning)
        queued = [asyncio.ensure_future(session.eval(f"var q{i} = 1")) for i in range(3)]
        await asyncio.sleep(0)
        queued[1].cancel()
        session.interrupt()
        assert (await running).error.name == "Interrupted"
        results = await asyncio.gather(*queued, return_exceptions=True)
        assert [getattr(result, "ok", None) for result in results] == [True, None, True]
        assert (await session.eval("[typeof q0, typeof q1, typeof q2]")).value == [
            "number",
            "undefined",
            "number",
        ]

    _in_session(pool, program)


def test_session_whose_opening_was_cancelled_gives_its_slot_back() -> None:
    async def main() -> None:
        async with AsyncPool(max_sessions=1) as pool:
            for delay in (0.0, 0.0005, 0.002):
                opening = asyncio.ensure_future(_open(pool))
                await asyncio.sleep(delay)
                opening.cancel()
                try:
                    session = await opening
                except asyncio.CancelledError:
                    pass
                else:
                    await session.close()
            async with pool.session() as session:
                assert (await session.eval("1")).value == 1
            assert pool.stats()["sessions"] == 0

    asyncio.run(main())


async def _open(pool: AsyncPool) -> AsyncSession:
    return await pool.session()


# --- order and several at once --------------------------------------------------------------------


def test_evals_of_one_session_run_in_the_order_they_were_called(pool: AsyncPool) -> None:
    async def program(session: AsyncSession) -> None:
        await session.eval("const order = []")
        results = await asyncio.gather(
            *(session.eval(f"await 0; order.push({i}); order.length") for i in range(20))
        )
        assert [result.value for result in results] == list(range(1, 21))
        assert (await session.eval("order")).value == list(range(20))

    _in_session(pool, program)


def test_sessions_run_at_the_same_time(pool: AsyncPool) -> None:
    async def main() -> None:
        barrier = asyncio.Barrier(5)

        async def meet(_: Any) -> None:
            await barrier.wait()  # nobody passes alone

        async def one(i: int) -> int:
            async with pool.session(tools={"meet": meet}) as session:
                value: int = (await session.eval(f"await tools.meet(); {i}")).value
                return value

        async with asyncio.timeout(30):
            assert await asyncio.gather(*map(one, range(5))) == list(range(5))

    asyncio.run(main())


def test_event_loop_goes_on_through_start_evals_kills_and_close() -> None:
    async def main() -> float:
        worst, last, stop = 0.0, time.monotonic(), False

        async def tick() -> None:
            nonlocal worst, last
            while not stop:
                await asyncio.sleep(0.005)
                now = time.monotonic()
                worst, last = max(worst, now - last), now

        ticking = asyncio.ensure_future(tick())
        async with AsyncPool(limits=Limits(cpu=0.3)) as pool, pool.session() as session:
            await session.eval("var big = []; for (let i = 0; i < 1e5; i++) big.push({ i })")
            assert (await session.eval("for (;;);")).error.name == "Timeout"  # type: ignore[union-attr]
            os.kill(session.pid or 0, signal.SIGKILL)
            assert (await session.eval("big.length")).value == 100_000
            async with await session.fork() as copy:
                assert (await copy.eval("big.length")).value == 100_000
        stop = True
        await ticking
        return worst

    stall_s = asyncio.run(main())
    print(f"longest stall of the event loop: {stall_s * 1000:.1f} ms")
    assert stall_s < 0.2


# --- event loops come and go ----------------------------------------------------------------------


def test_pool_and_sessions_belong_to_no_event_loop(pool: AsyncPool) -> None:
    async def first() -> AsyncSession:
        session = await pool.session()
        await session.eval(_START)
        return session

    async def second(session: AsyncSession) -> None:
        assert (await session.eval("next()")).value == 1
        async with pool.session() as other:
            assert (await other.eval("typeof n")).value == "undefined"

    session = asyncio.run(first())
    asyncio.run(second(session))
    asyncio.run(second_value(session))
    asyncio.run(session.close())


async def second_value(session: AsyncSession) -> None:
    assert (await session.eval("next()")).value == 2


def test_event_loop_that_ends_in_mid_eval_leaves_the_session_usable(pool: AsyncPool) -> None:
    async def first() -> AsyncSession:
        session = await pool.session()
        await session.eval(_START)
        _left_running.append(asyncio.ensure_future(session.eval("n = 2; for (;;);")))
        await asyncio.sleep(0.05)
        return session

    _left_running: list[asyncio.Task[Any]] = []
    session = asyncio.run(first())  # cancels what still runs
    assert _left_running[0].cancelled()

    async def second() -> None:
        assert (await session.eval("n")).value == 1
        await session.close()

    asyncio.run(second())


def test_loop_closed_without_closing_the_pool_makes_no_noise() -> None:
    program = """
import asyncio, gc
from qjs_pool import AsyncPool

async def main():
    pool = AsyncPool(min_idle=1)
    session = await pool.session()
    print((await session.eval("1 + 1")).value)
    asyncio.ensure_future(session.eval("for (;;);"))
    await asyncio.sleep(0.05)

asyncio.run(main())
gc.collect()
"""
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, timeout=60, check=False
    )
    assert (done.stdout, done.stderr, done.returncode) == ("2\n", "", 0)


# --- the pool's own promises ----------------------------------------------------------------------


def test_checkout_of_a_full_pool_waits_in_order_and_then_gives_up() -> None:
    async def main() -> None:
        async with AsyncPool(max_sessions=1, checkout_timeout=0.1) as pool:
            async with pool.session():
                with pytest.raises(PoolExhausted, match="max_sessions=1"):
                    await pool.session()
            async with pool.session() as session:
                assert (await session.eval("1")).value == 1

    asyncio.run(main())


def test_closing_the_pool_ends_running_and_waiting_evals_at_once(
    burning: Callable[[int], bool],
) -> None:
    async def main() -> None:
        pool = AsyncPool(limits=Limits(cpu=None, wall=None), max_sessions=1)
        session = await pool.session()
        await session.eval(_START)
        running = await _burn(session, burning)
        waiting = [asyncio.ensure_future(session.eval("1")) for _ in range(5)]
        opening = asyncio.ensure_future(_open(pool))
        await asyncio.sleep(0)
        async with asyncio.timeout(5):
            await pool.close()
            results = await asyncio.gather(running, *waiting, opening, return_exceptions=True)
        assert [type(result) for result in results] == [SessionClosed] * 7
        await pool.close()
        await session.close()

    asyncio.run(main())


def test_misuse_is_refused_as_in_the_sync_interface(pool: AsyncPool) -> None:
    async def program(session: AsyncSession) -> None:
        for code in (None, 5, b"1"):
            with pytest.raises(UsageError, match="code must be"):
                await session.eval(code)  # type: ignore[arg-type]
        with pytest.raises(UsageError, match="wider than the pool's"):
            await pool.session(limits=Limits(cpu=31.0))
        with pytest.raises(UsageError, match="identifier"):
            await session.set("no name", 1)

    _in_session(pool, program)


@pytest.mark.parametrize("what", ["set", "fork", "snapshot"])
def test_a_cancelled_request_of_any_kind_leaves_the_session_as_it_was(what: str) -> None:
    async def go() -> None:
        async with AsyncPool() as pool, await pool.session() as session:
            (await session.eval("let n = 1")).unwrap()
            request = {
                "set": lambda: session.set("n", "x" * 2_000_000),
                "fork": session.fork,
                "snapshot": session.snapshot,
            }[what]
            for _ in range(3):
                task = asyncio.ensure_future(request())
                await asyncio.sleep(0)  # it has sent its request, or a part of it
                task.cancel()
                with pytest.raises(asyncio.CancelledError):
                    await task
                assert (await session.eval("n")).value == 1

    asyncio.run(go())
