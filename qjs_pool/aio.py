"""The asyncio pool and session: the same steps, walked in an event loop.

No thread per session, and no descriptor stays registered with a loop between operations, so a
pool belongs to no loop in particular.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import Callable, Generator, Mapping
from types import TracebackType
from typing import Any, Final

from .checks import checked_code, checked_global, checked_timeout
from .core import Core
from .limits import Limits
from .pool_front import PoolFront
from .result import EvalResult
from .steps import Steps, T
from .tools import ToolLike

# Hashing more than this takes a thread, so that no event loop waits for it.
_OFF_LOOP_BYTES: Final = 1 << 18


async def drive_async(core: Core, make: Callable[[], Steps[T]]) -> T:
    """Wait for the session's turn, then run the steps to their end.

    Cancelling closes the steps, which stops the guest; the session goes on as before. So does
    whoever comes next after the loop was closed.
    """
    return await core.turns.attend(_drive(core, make))


async def _drive(core: Core, make: Callable[[], Steps[T]]) -> T:
    await core.turns.wait_async(core.turns.enter())
    core.relay.loop = asyncio.get_running_loop()
    try:
        return await _walk(core, make())
    finally:
        core.turns.leave()


async def _walk(core: Core, steps: Steps[T]) -> T:
    watch: _Watch | None = None
    poll = core.poller.poll
    try:
        deadline = next(steps)
        watch = _Watch(core)  # not before: a closed session has no poller to watch
        while True:
            await watch.wait(deadline)
            deadline = steps.send(poll(0))
    except StopIteration as stop:
        result: T = stop.value
        return result
    finally:
        if watch is not None:
            watch.close()
        steps.close()


class _Watch:
    """A core's poller, registered with the running loop for one operation."""

    def __init__(self, core: Core) -> None:
        self._fd = core.poller.fileno()
        self._loop = asyncio.get_running_loop()
        self._wake: asyncio.Future[None] | None = None
        self._loop.add_reader(self._fd, self._ready)

    async def wait(self, deadline: float | None) -> None:
        """Return when a descriptor is ready or the deadline has passed."""
        self._wake = self._loop.create_future()
        timer = None
        if deadline is not None:
            timer = self._loop.call_later(max(0.0, deadline - time.monotonic()), self._ready)
        try:
            await self._wake
        finally:
            if timer is not None:
                timer.cancel()

    def _ready(self) -> None:
        if self._wake is not None and not self._wake.done():
            self._wake.set_result(None)

    def close(self) -> None:
        with contextlib.suppress(RuntimeError):  # the loop is closed, and forgot it
            self._loop.remove_reader(self._fd)


class AsyncSession:
    """One conversation's state, for asyncio. Made by `AsyncPool.session()`.

    As `Session`, with `await`. Cancelling `eval` stops the guest; the session goes on as it was
    before that eval. It belongs to no event loop: any may use it, one operation at a time.
    """

    def __init__(self, pool: AsyncPool, core: Core) -> None:
        self._pool = pool
        self._core = core

    async def eval(self, code: str, *, timeout: float | None = None) -> EvalResult:
        """Run one program; see `Session.eval`."""
        source = checked_code(code)
        cpu_s = checked_timeout(timeout, self._core.options.limits)
        return await drive_async(self._core, lambda: self._core.eval(source, cpu_s))

    async def set(self, name: str, value: Any) -> None:
        """Make a host value a global of the session; see `Session.set`."""
        checked = checked_global(name, value, self._core.options.limits)
        await drive_async(self._core, lambda: self._core.set_global(*checked))

    async def fork(self) -> AsyncSession:
        """An independent copy of the session; see `Session.fork`."""
        pool = self._pool._core
        await pool.take_slot_async()
        try:
            options = pool.copy_options(self._core)
            core = await drive_async(self._core, lambda: self._core.fork(options))
        except BaseException:
            pool.slots.leave()
            raise
        pool.adopt(core)
        return AsyncSession(self._pool, core)

    async def snapshot(self, *, context: str = "") -> bytes:
        """The session's state as bytes; see `Session.snapshot`."""
        pieces = await drive_async(self._core, self._core.snapshot)
        seal = self._pool._core.sealed_snapshot
        if sum(map(len, pieces)) < _OFF_LOOP_BYTES:
            return seal(pieces, context)
        return await asyncio.to_thread(seal, pieces, context)

    async def reset(self) -> None:
        """Go on in a fresh worker, with nothing of the old state."""
        await drive_async(self._core, self._core.reset)

    def interrupt(self) -> None:
        """Stop the eval that runs now, from any thread; see `Session.interrupt`."""
        self._core.interrupt()

    @property
    def pid(self) -> int | None:
        """The pid of the worker, as last heard of; it changes with each checkpoint."""
        return self._core.worker_pid

    @property
    def limits(self) -> Limits:
        """The limits in force."""
        return self._core.options.limits

    @property
    def closed(self) -> bool:
        """Whether the session was closed."""
        return self._core.closed

    async def close(self) -> None:
        """Kill the worker. Idempotent; never waits for the guest."""
        self._core.close()
        self._pool._core.release(self._core)

    async def __aenter__(self) -> AsyncSession:
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await self.close()


class _Opening:
    """A session on its way: `await` it, or use it with `async with`."""

    def __init__(
        self, pool: AsyncPool, make: Callable[[], Core], snapshot: tuple[bytes, str] | None = None
    ) -> None:
        self._pool = pool
        self._make = make
        self._snapshot = snapshot  # and its context
        self._session: AsyncSession | None = None

    def __await__(self) -> Generator[Any, None, AsyncSession]:
        return self._pool._open(self._make, self._snapshot).__await__()

    async def __aenter__(self) -> AsyncSession:
        self._session = await self._pool._open(self._make, self._snapshot)
        return self._session

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self._session is not None:
            await self._session.close()


class AsyncPool(PoolFront):
    __doc__ = "`Pool` for asyncio: the same, with `async with` and `await`.\n\n" + (
        PoolFront.__doc__ or ""
    )

    async def start(self) -> AsyncPool:
        """Start the zygote and a first worker; see `Pool.start`. Blocks no event loop."""
        self._core.check_open()
        await asyncio.to_thread(self._core.supervisor.start)
        core = self._core.new_core(None)
        try:
            await drive_async(core, core.stand)
            self._core.report_isolation(core.layers)
            self._core.keep_idle(core)
        finally:
            core.close()
        self._core.refill()
        return self

    @property
    def isolation(self) -> dict[str, str]:
        """Each isolation layer: "on", or why not; empty until the pool was started."""
        return dict(self._core.layers)

    def session(
        self,
        *,
        limits: Limits | None = None,
        tools: Mapping[str, ToolLike] | None = None,
        modules: Mapping[str, Mapping[str, str]] | None = None,
        snapshot: bytes | None = None,
        snapshot_context: str = "",
    ) -> _Opening:
        """Open a session, with `await` or `async with`; see `Pool.session`.

        Async tools run as tasks of the event loop in which the eval is awaited.
        """
        return _Opening(
            self,
            lambda: self._core.new_core(limits, tools, modules),
            None if snapshot is None else (snapshot, snapshot_context),
        )

    async def _open(
        self, make: Callable[[], Core], snapshot: tuple[bytes, str] | None = None
    ) -> AsyncSession:
        pool = self._core
        pool.check_open()
        await pool.take_slot_async()
        try:
            core = make()
            pool.adopt(core)
        except BaseException:
            pool.slots.leave()
            raise
        try:
            if not pool.supervisor.running:
                await asyncio.to_thread(pool.supervisor.start)
            if snapshot is None:
                await drive_async(core, core.open)
            else:
                body = await self._opened(core, *snapshot)
                await drive_async(core, lambda: core.restore([body]))
        except BaseException:
            core.close()
            pool.release(core)
            raise
        pool.report_isolation(core.layers)
        return AsyncSession(self, core)

    async def _opened(self, core: Core, blob: bytes, context: str) -> memoryview:
        """The body of a snapshot, hashed and verified."""
        opened, limits = self._core.opened_snapshot, core.options.limits
        if isinstance(blob, bytes) and len(blob) >= _OFF_LOOP_BYTES:
            return await asyncio.to_thread(opened, blob, context, limits)
        return opened(blob, context, limits)

    async def close(self) -> None:
        """End all sessions and workers. Idempotent; never waits for a guest."""
        await asyncio.to_thread(self._core.close)

    async def __aenter__(self) -> AsyncPool:
        return await self.start()

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await self.close()
