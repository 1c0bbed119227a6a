"""The middleware's pool, its own or a shared one, and evals on its sessions from any driver."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

from qjs_pool.aio import drive_async
from qjs_pool.core import Core
from qjs_pool.drive import drive
from qjs_pool.errors import SessionClosed, SpawnError
from qjs_pool.holding import Suspension
from qjs_pool.journal import Journal
from qjs_pool.pool import Pool
from qjs_pool.pool_core import PoolCore
from qjs_pool.result import EvalResult
from qjs_pool.steps import Steps
from qjs_pool.tools import Toolbox
from qjs_pool.wire.documents import Buffer

from .options import Options
from .walk import Work, awalk, walk

Modules = dict[str, dict[str, str]]
Again = Mapping[int, Callable[[Any], Any]]


class Program(NamedTuple):
    """One program, and what it finds.

    `whole`: it runs with all of the session's state or not at all. `journal`: its own, where it was
    suspended elsewhere.
    """

    code: str
    toolbox: Toolbox
    modules: Modules
    suspends: bool
    whole: bool = False
    journal: Journal | None = None


class Sandbox:
    """Opens sessions and runs evals. One pool for sync and async callers, in any event loop.

    `make_room`: called when all slots are taken; it may close a session. `figures`: a bound method
    whose counts `Pool.stats()` has as `parked`.
    """

    def __init__(
        self,
        options: Options,
        make_room: Callable[[], None],
        figures: Callable[[], Mapping[str, int]],
    ) -> None:
        self._options = options
        self._make_room = make_room
        self._figures = figures
        self._told = False  # our figures are in the shared pool's
        self._lock = threading.Lock()
        self._own: Pool | None = None
        self._closed = False

    @property
    def pool(self) -> PoolCore:
        """The pool, started lazily: a turn without evals costs no process."""
        shared = self._options.pool
        with self._lock:
            if self._closed:
                raise SessionClosed("the middleware is closed; make another")
            if shared is not None:
                if not self._told:
                    self._told = True
                    shared._core.add_figures("parked", self._figures)
                return shared._core
            if self._own is None:
                self._own = Pool(limits=self._options.limits, clock=self._options.clock)
                self._own._core.add_figures("parked", self._figures)
            return self._own._core

    def close(self) -> None:
        """End the pool, if it is our own."""
        with self._lock:
            own, self._own, self._closed = self._own, None, True
        if own is not None:
            own.close()

    # --- sessions -------------------------------------------------------------------------------

    def open(self) -> Core:
        """A session, from a sync caller.

        Raises:
            PoolExhausted: all slots stayed in use for the pool's `checkout_timeout`.
        """
        pool = self.pool
        pool.take_slot(self._make_room)
        return self._adopted(pool)

    async def open_async(self) -> Core:
        """As `open`, blocking no event loop."""
        pool = self.pool
        await pool.take_slot_async(self._make_room)
        core = self._adopted(pool)
        if not pool.supervisor.running:
            try:
                await asyncio.to_thread(pool.supervisor.start)
            except BaseException:
                self.release(core)
                raise
        return core

    @staticmethod
    def _enter_for_copy(pool: PoolCore) -> bool:
        if 2 * pool.slots.holders >= pool.options.max_sessions:
            return False
        waiting = pool.slots.enter()
        if waiting is not None:
            pool.slots.give_up(waiting)
        return waiting is None

    def _adopted(self, pool: PoolCore) -> Core:
        try:
            core = pool.new_core(self._options.limits)
            pool.adopt(core)
        except BaseException:
            pool.slots.leave()
            raise
        return core

    def park(self, core: Core) -> None:
        """Have a session rest that has its state in the graph's state."""
        drive(core, core.park)

    async def park_async(self, core: Core) -> None:
        """As `park`, in the running loop."""
        await drive_async(core, core.park)

    def copy(self, core: Core) -> Core | None:
        """An independent copy of a session, parked; None where there is no room for one.

        A copy is a convenience, so it leaves half of the pool's sessions to others.
        """
        return walk(self._copy(core), lambda _what, make: drive(core, make))

    async def copy_async(self, core: Core) -> Core | None:
        """As `copy`, in the running loop."""

        async def do(_what: str, make: Callable[[], Steps[Core]]) -> Core:
            return await drive_async(core, make)

        return await awalk(self._copy(core), do)

    def _copy(self, core: Core) -> Work[Core | None]:
        pool = self.pool
        if not self._enter_for_copy(pool):
            return None
        try:
            options = pool.copy_options(core)
            copy: Core = yield "fork", lambda: core.fork(options, parked=True)
        except (SpawnError, OSError):  # its family is full, or the machine is
            pool.slots.leave()
            return None
        except BaseException:
            pool.slots.leave()
            raise
        pool.adopt(copy)
        return copy

    def release(self, core: Core) -> None:
        """Close a session; never waits for the guest."""
        core.close()
        owner = self._options.pool or self._own
        if owner is not None:  # else our own pool is closed, and it with it
            owner._core.release(core)

    # --- evals ----------------------------------------------------------------------------------

    def run(self, core: Core, program: Program) -> EvalResult | Suspension:
        """Run one program in the calling thread.

        Raises:
            StateLost: the program is to run in a whole session, and this is none.
        """
        result = drive(core, self._steps(core, program))
        self.pool.report_isolation(core.layers)
        return result

    async def run_async(self, core: Core, program: Program) -> EvalResult | Suspension:
        """As `run`, in the running loop; cancelling stops the guest."""
        result = await drive_async(core, self._steps(core, program))
        self.pool.report_isolation(core.layers)
        return result

    def resume(self, core: Core, toolbox: Toolbox, again: Again) -> EvalResult | Suspension:
        """Go on with a suspended eval, in the calling thread."""
        core.relay.toolbox = toolbox  # the same tools, as this caller runs them
        return drive(core, lambda: core.resume(again))

    async def resume_async(
        self, core: Core, toolbox: Toolbox, again: Again
    ) -> EvalResult | Suspension:
        """As `resume`, in the running loop."""
        core.relay.toolbox = toolbox
        return await drive_async(core, lambda: core.resume(again))

    def _steps(self, core: Core, program: Program) -> Callable[[], Steps[EvalResult | Suspension]]:
        toolbox, modules, code = program.toolbox, program.modules, program.code
        whole = program.whole
        pool = self.pool
        described = pool.toolbox_described(toolbox)
        installed = {**pool.options.modules, **modules}
        cpu_s = core.options.limits.cpu

        def steps() -> Steps[EvalResult | Suspension]:
            yield from core.configure(toolbox, described, installed)
            if program.suspends:
                journal = program.journal
                return (yield from core.eval_or_suspend(code, cpu_s, journal=journal, whole=whole))
            return (yield from core.eval(code, cpu_s, want_value=False, whole=whole))

        return steps

    # --- state ----------------------------------------------------------------------------------

    def snapshot(self, core: Core) -> list[bytes]:
        """The state as the pieces of a body."""
        return drive(core, core.snapshot)

    async def snapshot_async(self, core: Core) -> list[bytes]:
        """As `snapshot`, in the running loop."""
        return await drive_async(core, core.snapshot)

    def restore(self, core: Core, parts: Sequence[Buffer], modules: Modules) -> None:
        """Fill a new session from the parts of a body."""
        drive(core, self._restoring(core, parts, modules))

    async def restore_async(self, core: Core, parts: Sequence[Buffer], modules: Modules) -> None:
        """As `restore`, in the running loop."""
        await drive_async(core, self._restoring(core, parts, modules))

    def _restoring(
        self, core: Core, parts: Sequence[Buffer], modules: Modules
    ) -> Callable[[], Steps[None]]:
        toolbox = Toolbox.of(None)
        described = self.pool.toolbox_described(toolbox)
        installed = {**self.pool.options.modules, **modules}

        def steps() -> Steps[None]:
            # Without tools, which no restored code may call; the eval to come offers its own.
            yield from core.configure(toolbox, described, installed)
            yield from core.restore(parts)

        return steps
