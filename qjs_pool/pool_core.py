"""What `Pool` and `AsyncPool` share: options, the supervisor, idle workers, open sessions."""

from __future__ import annotations

import asyncio
import dataclasses
import inspect
import logging
import os
import secrets
import threading
import weakref
from collections import deque
from collections.abc import Callable, Mapping
from typing import Any, Final, Literal, get_args

from . import descriptors, snapshots
from .calls import RelayOptions
from .core import Core
from .errors import PoolExhausted, SessionClosed, UsageError
from .limits import Limits, seconds_or_error
from .link import Link
from .modules import checked_modules
from .options import SessionOptions
from .relay import Relay
from .runners import BackgroundLoop, DaemonThreads, Runner
from .supervisor import BaseImage, Supervisor
from .tools import Toolbox, ToolLike, check_names, guest_name
from .turnstile import Turnstile
from .wire import documents
from .wire import messages as wire
from .wire.layers import required_layers

Isolation = Literal["auto", "strict", "best-effort"]
Durability = Literal["eval", "none"]

_log: Final = logging.getLogger("qjs_pool")


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class PoolOptions:
    """Options of a pool, validated."""

    limits: Limits
    max_sessions: int
    min_idle: int
    isolation: Isolation
    durability: Durability
    clock: wire.Clock
    preload: str
    seed: int | str | None
    checkout_timeout: float | None
    worker_functions: Mapping[str, Callable[[Any], Any]]
    modules: dict[str, dict[str, str]]
    relay: RelayOptions
    snapshot_keys: tuple[bytes, ...] = ()  # the first one signs, any of them verifies

    def __post_init__(self) -> None:
        if not isinstance(self.limits, Limits):
            raise UsageError(f"limits={self.limits!r} is not a Limits")
        _whole("max_sessions", self.max_sessions, 1)
        _whole("min_idle", self.min_idle, 0)
        if self.min_idle > self.max_sessions:
            raise UsageError(f"min_idle={self.min_idle} is over max_sessions={self.max_sessions}")
        if self.checkout_timeout is not None:
            seconds_or_error("checkout_timeout", self.checkout_timeout)
        _one_of("isolation", self.isolation, get_args(Isolation))
        _one_of("durability", self.durability, get_args(Durability))
        _one_of("clock", self.clock, get_args(wire.Clock))
        if self.seed is not None and not isinstance(self.seed, (int, str)):
            raise UsageError(f"seed={self.seed!r} is neither an int nor a str")
        if not isinstance(self.preload, str):
            kind = type(self.preload).__name__
            raise UsageError(f"preload must be JavaScript source, not {kind}")


class PoolCore:
    """The state of a pool. Thread-safe; never waits for anything but the zygote's start."""

    def __init__(
        self,
        options: PoolOptions,
        functions: dict[str, bytes],
        skip_layers: tuple[str, ...] = (),
    ) -> None:
        self.options = options
        self.supervisor = Supervisor(
            BaseImage(
                options=self._session_options(options.limits, "").message(0, reseed=False),
                preload=options.preload,
                functions=functions,
                skip_layers=skip_layers,
            )
        )
        self.slots = Turnstile(options.max_sessions)
        self.threads = DaemonThreads()  # for sync tools
        self.background = BackgroundLoop()  # for async tools of sync sessions
        self.closed = False
        self.layers: dict[str, str] = {}
        self.counters = {"sessions_opened": 0, "sessions_closed": 0}
        self._required = sorted(required_layers(options.isolation))
        self._lock = threading.Lock()
        self._idle: deque[Link] = deque()
        self._cores: set[Core] = set()
        self._draws = 0
        self._figures: dict[str, list[weakref.WeakMethod[Callable[[], Mapping[str, int]]]]] = {}
        _pools.add(self)

    # --- sessions -------------------------------------------------------------------------------

    def new_core(
        self,
        limits: Limits | None,
        tools: Mapping[str, ToolLike] | None = None,
        modules: Mapping[str, Mapping[str, str]] | None = None,
    ) -> Core:
        """A session's core; its worker comes with its first operation."""
        self.check_open()
        options = self.options
        if limits is not None and not isinstance(limits, Limits):
            raise UsageError(f"limits={limits!r} is not a Limits")
        toolbox = self.toolbox(tools)
        narrowed = options.limits if limits is None else options.limits.narrowed(limits)
        session = self._session_options(narrowed, self._draw_seed(), toolbox, modules)
        runner = Runner(self.threads, self.background.get)
        return Core(
            session,
            lambda idle: self.obtain(narrowed, idle=idle),
            lambda poller: Relay(toolbox, narrowed, runner, options.relay, poller),
        )

    def _session_options(
        self,
        limits: Limits,
        seed: str,
        toolbox: Toolbox | None = None,
        modules: Mapping[str, Mapping[str, str]] | None = None,
    ) -> SessionOptions:
        options = self.options
        return SessionOptions(
            limits=limits,
            durable=options.durability == "eval",
            clock=options.clock,
            seed=seed,
            tools=self.toolbox_described(toolbox or Toolbox.of(None)),
            modules={**options.modules, **checked_modules(modules)},
        )

    def toolbox(self, tools: Mapping[str, ToolLike] | None) -> Toolbox:
        """The tools of a session, checked against the pool's worker functions."""
        toolbox = Toolbox.of(tools)
        check_names([*self.options.worker_functions, *toolbox.tools])
        return toolbox

    def toolbox_described(self, toolbox: Toolbox) -> tuple[wire.Tool, ...]:
        """All that the guest finds in `tools`: the session's own and the worker functions."""
        functions = (
            wire.Tool(guest_name(name), name, None, inspect.getdoc(function) or "")
            for name, function in self.options.worker_functions.items()
        )
        return (*functions, *toolbox.described())

    def take_slot(self, make_room: Callable[[], None] = lambda: None) -> None:
        """Wait for room for a session. `make_room`: called where there is none.

        Raises:
            PoolExhausted: there was none for `checkout_timeout` seconds.
        """
        turn = self.slots.enter()
        if turn is not None:
            make_room()
        try:
            self.slots.wait(turn, self.options.checkout_timeout)
        except TimeoutError:
            raise self.exhausted() from None

    async def take_slot_async(self, make_room: Callable[[], None] = lambda: None) -> None:
        """As `take_slot`, in the running loop."""
        await self.slots.attend(self._take_slot_async(make_room))

    async def _take_slot_async(self, make_room: Callable[[], None]) -> None:
        turn = self.slots.enter()
        if turn is not None:
            make_room()
        try:
            async with asyncio.timeout(self.options.checkout_timeout):
                await self.slots.wait_async(turn)
        except TimeoutError:
            raise self.exhausted() from None

    def opened_snapshot(self, blob: bytes, context: str, limits: Limits) -> memoryview:
        """The body of a snapshot; costs a hash over all of it."""
        _check_context(context)
        return snapshots.open_sealed(
            blob,
            keys=self.options.snapshot_keys,
            context=context,
            max_bytes=limits.snapshot_room + documents.MAX_MANIFEST_BYTES,
        )

    def sealed_snapshot(self, pieces: list[bytes], context: str) -> bytes:
        """A body in its envelope; costs a hash over all of it."""
        _check_context(context)
        return snapshots.seal_parts(pieces, keys=self.options.snapshot_keys, context=context)

    def adopt(self, core: Core) -> None:
        """Take a session into the pool's keeping."""
        with self._lock:
            self.check_open()
            self._cores.add(core)
            self.counters["sessions_opened"] += 1

    def release(self, core: Core) -> None:
        """A session was closed: its slot is free."""
        with self._lock:
            if core not in self._cores:
                return
            self._cores.discard(core)
            self.counters["sessions_closed"] += 1
        self.slots.leave()

    def copy_options(self, core: Core) -> SessionOptions:
        """Options for a copy of a session: its own stream of Math.random."""
        with self._lock:
            self._draws += 1
            return core.options.reseeded(f"copy {self._draws}")

    def _draw_seed(self) -> str:
        with self._lock:
            self._draws += 1
            if self.options.seed is None:
                return secrets.token_hex(16)
            base = SessionOptions(
                limits=self.options.limits, durable=False, clock="off", seed=str(self.options.seed)
            )
            return base.reseeded(f"session {self._draws}").seed

    def check_open(self) -> None:
        """Raise SessionClosed when the pool is closed."""
        if self.closed:
            raise SessionClosed("the pool is closed; create another Pool")

    def exhausted(self) -> PoolExhausted:
        """The error of a checkout that waited too long."""
        options = self.options
        return PoolExhausted(
            f"all max_sessions={options.max_sessions} sessions stayed in use for "
            f"{options.checkout_timeout} s (checkout_timeout); close sessions or raise one of them"
        )

    # --- workers --------------------------------------------------------------------------------

    def obtain(self, limits: Limits, *, idle: bool = True) -> Link:
        """A link to a worker that stands, or is about to: an idle one where one fits and will do.

        The last one may die at any time: whoever got one that did asks for a new one.
        """
        self.check_open()
        link = None
        if idle and self._kernel_limits(limits) == self._kernel_limits(self.options.limits):
            self._end_dead()
            with self._lock:
                if self._idle:
                    link = self._idle.popleft()
        if link is None:
            link = self._spawn(limits)
        self.refill()
        return link

    def _end_dead(self) -> None:
        """Let go of idle workers that were killed meanwhile."""
        with self._lock:
            dead = [link for link in self._idle if link.hung_up]
            for link in dead:
                self._idle.remove(link)
        for link in dead:
            link.close()

    def refill(self) -> None:
        """Ask for idle workers until there are `min_idle`."""
        self._end_dead()
        while not self.closed:
            with self._lock:
                room = self.options.max_sessions - len(self._cores)
                if len(self._idle) >= min(self.options.min_idle, max(room, 0)):
                    return
            link = self._spawn(self.options.limits, idle=True)
            with self._lock:
                if not self.closed:
                    self._idle.append(link)
                    continue
            link.close()

    def keep_idle(self, core: Core) -> None:
        """Use the worker of a session that ran nothing as an idle one, or end it."""
        link = core.surrender()
        if link is None:
            return
        surplus: Link | None = link
        with self._lock:
            if not self.closed and self.options.min_idle:
                # First in line, as it stands. One that was asked for meanwhile is too many.
                self._idle.appendleft(link)
                surplus = self._idle.pop() if len(self._idle) > self.options.min_idle else None
        if surplus is not None:
            surplus.close()

    def _spawn(self, limits: Limits, *, idle: bool = False) -> Link:
        descriptors.make_room(self.options.max_sessions)
        memory, stack = self._kernel_limits(limits)
        return self.supervisor.spawn(
            wire.Spawn(
                memory_bytes=memory,
                stack_bytes=stack,
                cpu_backstop_s=None,
                required_layers=self._required,
                durable=self.options.durability == "eval",
                idle=idle,
            )
        )

    @staticmethod
    def _kernel_limits(limits: Limits) -> tuple[int, int]:
        # What the kernel enforces is set before the lockdown and can't be changed after it.
        return limits.memory, limits.stack

    def report_isolation(self, layers: Mapping[str, str]) -> None:
        """Remember the lockdown of a worker; say loudly, once, what it lacks."""
        if self.layers:
            return
        self.layers = dict(layers)
        missing = {name: why for name, why in layers.items() if why != "on"}
        if missing:
            _log.warning(
                "isolation is weaker than it could be: %s",
                "; ".join(f"{name} is {why}" for name, why in missing.items()),
            )

    # --- figures, the end -----------------------------------------------------------------------

    def add_figures(self, name: str, source: Callable[[], Mapping[str, int]]) -> None:
        """Have `stats()` show the counts of a user of this pool, as a mapping under `name`.

        `source` is a bound method of an object that the pool does not keep alive; it must not wait.
        Those of one name are added up, and one that is added twice counts once.
        """
        reference = weakref.WeakMethod(source)
        with self._lock:
            known = self._figures.setdefault(name, [])
            known[:] = [one for one in known if one() is not None]
            if reference not in known:
                known.append(reference)

    def _added_figures(self) -> dict[str, dict[str, int]]:
        with self._lock:  # not held while they are asked: they have locks of their own
            asked = [(name, one()) for name, known in self._figures.items() for one in known]
        figures: dict[str, dict[str, int]] = {}
        for name, source in asked:
            sums = figures.setdefault(name, {})
            for what, number in ({} if source is None else source()).items():
                sums[what] = sums.get(what, 0) + number
        return figures

    def stats(self) -> dict[str, Any]:
        """Counters and the sessions' memory; see `Pool.stats`."""
        with self._lock:
            cores = list(self._cores)
            idle = len(self._idle)
            counters = dict(self.counters)
        return {
            **counters,
            "sessions": len(cores),
            "idle": idle,
            "waiting": self.slots.waiting,
            "max_sessions": self.options.max_sessions,
            "recoveries": sum(core.recoveries for core in cores),
            "zygote_starts": self.supervisor.starts,
            "rss_bytes": descriptors.rss_bytes([core.worker_pid for core in cores]),
            **self._added_figures(),
        }

    def close(self) -> None:
        """End every session, idle worker and the zygote. Idempotent; waits for no guest."""
        with self._lock:
            self.closed = True
            cores, self._cores = list(self._cores), set()
            idle, self._idle = list(self._idle), deque()
        for core in cores:
            core.close()
            self.slots.leave()  # whoever waits for a slot is let in, to find the pool closed
        for link in idle:
            link.close()
        self.supervisor.close()
        self.threads.close()
        self.background.close()

    def forget(self) -> None:
        """In a forked child of the host: nothing of the parent's is ours; start afresh."""
        self._lock = threading.Lock()  # a thread that does not exist here may hold the old one
        for core in self._cores:
            core.abandon()
        for link in self._idle:
            link.abandon_member()
            link.family.abandon()
        self._cores, self._idle = set(), deque()
        self.slots = Turnstile(self.options.max_sessions)
        self.threads, self.background = DaemonThreads(), BackgroundLoop()
        self.supervisor.forget()


_pools: weakref.WeakSet[PoolCore] = weakref.WeakSet()


def _forget_all() -> None:
    for pool in list(_pools):
        pool.forget()


os.register_at_fork(after_in_child=_forget_all)


def _check_context(context: object) -> None:
    if not isinstance(context, str):
        raise UsageError(f"snapshot context={context!r} is not a str")


def _whole(name: str, value: object, low: int) -> None:
    if isinstance(value, bool) or not isinstance(value, int):
        raise UsageError(f"{name}={value!r} is not an integer")
    if value < low:
        raise UsageError(f"{name}={value} must be at least {low}")


def _one_of(name: str, value: object, allowed: tuple[str, ...]) -> None:
    if value not in allowed:
        raise UsageError(f"{name}={value!r} is unknown; choose one of {', '.join(allowed)}")
