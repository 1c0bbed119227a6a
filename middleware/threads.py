"""Conversations and the sessions that hold their state.

A conversation is told apart by its checkpointer, its thread id and the namespace of its graph
within the run, so that a subagent's is its own; without a thread id by a private id in the state.
"""

from __future__ import annotations

import math
import os
import threading
import time
import uuid
import weakref
from collections import OrderedDict
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from qjs_pool.core import Core
from qjs_pool.turnstile import Turnstile

from .capture import Record
from .carried import carried_in
from .live import Live
from .memory import MemoryGauge
from .order import CallOrder
from .ptc import Exposed
from .seam import GraphInterrupt

if TYPE_CHECKING:
    from .suspended import HeldEval

STATE_KEY: Final = "_qjs_pool_thread"
MAX_WAITING: Final = 64  # evals of one conversation in the queue
MAX_THREADS: Final = 4096
TURN_S: Final = 300.0  # how long a session stays between two evals of one turn
LOOK_S: Final = 10.0  # how often it is looked whether parked sessions take memory that is short
CARRIED: Final = 1  # the address of nothing
_MAX_DELAY_S: Final = 3600.0
_SLACK_S: Final = 0.05


class ThreadKey(NamedTuple):
    """Which conversation. `lasting`: a later turn can come back to it.

    `checkpointer` is 0 where nothing outlives the turn, `CARRIED` where the caller has the state.
    """

    checkpointer: int
    thread_id: str
    namespace: str
    lasting: bool


def new_private_id() -> str:
    """An id for a conversation that has none."""
    return uuid.uuid4().hex


def thread_id_of(config: Mapping[str, Any]) -> str | None:
    """The caller's thread id."""
    thread_id = (config.get("configurable") or {}).get("thread_id")
    return None if thread_id is None else str(thread_id)


def thread_key(config: Mapping[str, Any], state: Any) -> ThreadKey:
    """The conversation that a node or a tool runs in."""
    carried = carried_in(config)
    if carried is not None:
        lasting = not carried.namespace
        if carried.thread_id is not None:
            return ThreadKey(CARRIED, carried.thread_id, carried.namespace, lasting)
        private = state.get(STATE_KEY) if isinstance(state, Mapping) else None
        return ThreadKey(CARRIED, f"private {private or ''}", carried.namespace, lasting)
    configurable = config.get("configurable") or {}
    # A call that a program makes has its number there, see `interrupts.call_config`: whoever it is
    # made by, it is the same conversation. LangGraph's own numbers are never last.
    parts = str(configurable.get("checkpoint_ns") or "").split("|")
    while parts and parts[-1].isdecimal():
        parts.pop()
    # The last part is the node that runs; what is left is the graph.
    namespace = "|".join(parts[:-1])
    thread_id = thread_id_of(config)
    if thread_id is None:
        private = state.get(STATE_KEY) if isinstance(state, Mapping) else None
        return ThreadKey(0, f"private {private or ''}", namespace, False)
    checkpointer = configurable.get("__pregel_checkpointer")
    # A part with a colon names a task, which no other turn has.
    lasting = ":" not in namespace
    return ThreadKey(
        0 if isinstance(checkpointer, bool) or checkpointer is None else id(checkpointer),
        thread_id,
        namespace,
        lasting,
    )


class Thread:
    """One conversation: its session if it has one, its queue of evals, its tools and modules."""

    def __init__(self, key: ThreadKey) -> None:
        self.key = key
        self.turns = Turnstile(1, MAX_WAITING)
        self.order = CallOrder()
        self.live: Live | None = None
        self.parked: dict[str, Live] = {}  # of other branches, by their heads
        self.exposed: Exposed | None = None
        self.modules: dict[str, dict[str, str]] = {}
        self.missing_modules: set[str] = set()
        self.note = ""  # for the next result
        self.gone = ""  # why its session is
        self.unsaved = False  # that one had evals which the graph's state does not show
        self.used = time.monotonic()
        self.in_turn = False  # between a turn's first eval and its end
        self.holds = 0  # reasons to wait for a person, see Registry.hold
        self.suspended = False  # one of them: the turn was interrupted
        self.stragglers: list[Record] = []
        self.held: dict[str, HeldEval] = {}  # that wait for a person, by their tool call
        self.leftovers: list[Core] = []  # sessions of single evals, with calls still running

    def touch(self) -> None:
        self.used = time.monotonic()
        if self.live is not None:
            self.live.used = self.used

    def say(self, note: str) -> None:
        """Tell the model with the next result."""
        self.note = f"{self.note}; {note}" if self.note else note


class Idle(NamedTuple):
    """A session that nobody uses. The least one is the first to go."""

    held: bool  # a person is waited for
    in_turn: bool  # its turn goes on, or failed
    kept: bool  # no mere spare
    used: float
    thread: Thread
    live: Live


class Registry:
    """The conversations of one middleware. Thread-safe; never waits.

    `park_s`: seconds that an unused session stays; `max_parked`: how many do.
    """

    def __init__(
        self,
        park_s: float,
        max_parked: int,
        release: Callable[[Core], None],
    ) -> None:
        self._park_s = park_s
        self._max_parked = max_parked
        self._release = release
        self._is_short = MemoryGauge().is_short
        self._lock = threading.Lock()
        self._threads: OrderedDict[ThreadKey, Thread] = OrderedDict()
        self._timer: threading.Timer | None = None
        self._counts = dict.fromkeys(
            ("taken_over", "copied", "restored", "expired", "evicted", "died"), 0
        )
        _registries.add(self)

    def of(self, key: ThreadKey) -> Thread:
        """The conversation, made when it is new."""
        with self._lock:
            thread = self._threads.get(key)
            if thread is None:
                thread = self._threads[key] = Thread(key)
            self._threads.move_to_end(key)
            thread.touch()
            return thread

    def known(self, key: ThreadKey) -> Thread | None:
        """The conversation, if there is one."""
        with self._lock:
            return self._threads.get(key)

    def forget(self, thread: Thread) -> None:
        """The conversation is over."""
        with self._lock:
            if self._threads.get(thread.key) is thread:
                del self._threads[thread.key]

    # --- sessions that nobody uses --------------------------------------------------------------

    @property
    def parks(self) -> bool:
        """Whether sessions stay after their turn."""
        return self._park_s > 0 and self._max_parked > 0

    def park(self, thread: Thread, live: Live) -> None:
        """Put a session aside, for a turn that starts from its state."""
        surplus = []
        with self._lock:
            # Of what a conversation has left behind the last state is the likely one to branch off.
            if live.spare:
                self._counts["copied"] += 1
                surplus = [one for one in thread.parked.values() if one.spare]
            if (twin := thread.parked.get(live.head)) is not None and twin not in surplus:
                surplus.append(twin)
            for one in surplus:
                thread.parked.pop(one.head, None)
            thread.parked[live.head] = live
        for one in surplus:
            self._release(one.core)
        self.sweep()

    def take(self, thread: Thread, head: str) -> Live | None:
        """The parked session that is in that state."""
        with self._lock:
            live = thread.parked.pop(head, None)
            if live is not None:
                live.spare = False
                live.used = time.monotonic()
                self._counts["taken_over"] += 1
        return live

    def count(self, what: str) -> None:
        """Note for the figures that something happened."""
        with self._lock:
            self._counts[what] += 1

    def figures(self) -> dict[str, int]:
        """How many sessions are parked and held now, and how often what became of them."""
        with self._lock:
            idle = self._idle()
            parked = sum(not one.in_turn for one in idle)
            held = sum(one.held for one in idle) + len(self._held())
            return {"sessions": parked, "held": held, **self._counts}

    def hold(self, thread: Thread) -> None:
        """A person is waited for: the conversation's session stays however long that takes.

        It still goes for lack of room, after all that nobody waits for.
        """
        with self._lock:
            thread.holds += 1

    def unhold(self, thread: Thread) -> None:
        """The person has answered; from now on time counts again. Undoes one `hold`."""
        with self._lock:
            thread.holds -= 1
            thread.touch()
        self.sweep()

    def stopped(self, thread: Thread, error: BaseException) -> None:
        """An eval ended by an error of the run's: if that waits for a person, so does the session.

        As `hold`, until the conversation's next eval, or the end of a turn.
        """
        with self._lock:
            if isinstance(error, GraphInterrupt) and not thread.suspended:
                thread.suspended = True
                thread.holds += 1

    def resume(self, thread: Thread) -> None:
        """Undo what `stopped` did, if it did anything."""
        with self._lock:
            if thread.suspended:
                thread.suspended = False
                thread.holds -= 1
                thread.touch()

    def sweep(self) -> None:
        """Close sessions that are unused for too long, and the least of too many.

        When memory is short, every spare goes, and a quarter of the others that are parked.
        """
        now = time.monotonic()
        is_short = self._is_short()  # before the lock: it reads files
        with self._lock:
            idle = sorted(self._idle(), key=_order)
            parked = [one for one in idle if not one.in_turn or one.held]
            surplus = len(parked) - self._max_parked
            if is_short:
                spares = sum(not one.kept for one in parked)
                surplus = max(surplus, spares + -(-(len(parked) - spares) // 4))
            taken, next_s = [], math.inf
            for one in idle:
                left_s = math.inf if one.held else one.used + self._patience_s(one) - now
                is_parked = not one.in_turn or one.held
                if left_s <= 0 or (surplus > 0 and is_parked):
                    self._counts["expired" if left_s <= 0 else "evicted"] += 1
                    surplus -= is_parked
                    reason = self._why_gone(one, expired=left_s <= 0, is_short=is_short)
                    taken.append(self._take(one.thread, one.live, reason))
                else:
                    next_s = min(next_s, left_s, LOOK_S)
            self._sweep_in(next_s)
            dead = [thread for thread in self._threads.values() if thread.turns.has_dead]
            for thread in list(self._threads.values())[: max(0, len(self._threads) - MAX_THREADS)]:
                if thread.live is None and not thread.parked and thread.turns.holders == 0:
                    del self._threads[thread.key]
        for thread in dead:
            thread.turns.end_dead()
        for core in taken + self._too_many_held():
            self._release(core)

    def _too_many_held(self) -> list[Core]:
        """Evals that have waited longest, of too many: they are replayed if they are resumed."""
        with self._lock:
            held = sorted(self._held(), key=lambda one: one[2].since)
            return [self._take_held(*one) for one in held[: max(0, len(held) - self._max_parked)]]

    def _held(self) -> list[tuple[Thread, str, HeldEval]]:
        return [
            (thread, call_id, held)
            for thread in self._threads.values()
            if thread.turns.holders == 0
            for call_id, held in thread.held.items()
        ]

    @staticmethod
    def _take_held(thread: Thread, call_id: str, held: HeldEval) -> Core:
        del thread.held[call_id]
        if thread.live is not None and thread.live.core is held.core:
            thread.live = None
        return held.core

    def make_room(self) -> None:
        """Close the session that another conversation needs most, if there is one."""
        with self._lock:
            idle = min(self._idle(), key=_order, default=None)
            reason = "its worker was needed for another conversation"
            core = None if idle is None else self._take(idle.thread, idle.live, reason)
            if core is None and (held := min(self._held(), key=_since, default=None)):
                core = self._take_held(*held)
            self._counts["evicted"] += core is not None
        if core is not None:
            self._release(core)

    def _patience_s(self, one: Idle) -> float:
        # A turn that failed, or waits for a person, has no end that would be told.
        return max(self._park_s, TURN_S) if one.in_turn else self._park_s

    def _why_gone(self, one: Idle, *, expired: bool, is_short: bool) -> str:
        if not one.in_turn and not self.parks:
            return "no session stays after its turn (park or max_parked is 0)"
        if expired:
            return "it was idle for too long"
        return "memory was short" if is_short else "too many others were parked (max_parked)"

    def _sweep_in(self, seconds: float) -> None:
        if self._timer is None and seconds < math.inf:
            delay_s = min(seconds, _MAX_DELAY_S) + _SLACK_S
            # It must not keep the registry, and so the middleware, from being collected.
            self._timer = threading.Timer(delay_s, _sweep_later, [weakref.ref(self)])
            self._timer.daemon = True
            self._timer.start()

    def timer_fired(self) -> None:
        """Called by the timer."""
        with self._lock:
            self._timer = None
        self.sweep()

    def _idle(self) -> list[Idle]:
        idle = []
        for thread in self._threads.values():
            for live in thread.parked.values():
                idle.append(Idle(False, False, not live.spare, live.used, thread, live))
            if thread.held:  # no clock runs while a person is asked
                continue
            live_now = thread.live
            # Whoever runs an eval holds a turn before it looks at the session.
            if live_now is not None and thread.turns.holders == 0:
                held = thread.holds > 0
                idle.append(Idle(held, thread.in_turn, True, live_now.used, thread, live_now))
        return idle

    @staticmethod
    def _take(thread: Thread, live: Live, reason: str) -> Core:
        if thread.live is live:
            thread.live = None
            thread.gone = reason
            if not live.persistent:
                thread.say(f"the REPL's state is lost, it starts empty: {reason}")
        else:
            thread.parked.pop(live.head, None)
        return live.core

    def drain(self) -> list[Core]:
        """Every session; the registry is empty afterwards."""
        with self._lock:
            threads, self._threads = list(self._threads.values()), OrderedDict()
            timer, self._timer = self._timer, None
        if timer is not None:
            timer.cancel()
        return [
            core
            for thread in threads
            for core in (
                *(live.core for live in (thread.live, *thread.parked.values()) if live),
                *(held.core for held in thread.held.values() if held.session.live is None),
                *thread.leftovers,
            )
        ]

    def after_fork(self) -> None:
        """In a forked child of the host: the sessions are the parent's."""
        self._lock = threading.Lock()
        self._threads = OrderedDict()
        self._timer = None


def _order(one: Idle) -> tuple[bool, bool, bool, float]:
    return one.held, one.in_turn, one.kept, one.used


def _since(one: tuple[Thread, str, HeldEval]) -> float:
    return one[2].since


def _sweep_later(reference: weakref.ref[Registry]) -> None:
    registry = reference()
    if registry is not None:
        registry.timer_fired()


_registries: weakref.WeakSet[Registry] = weakref.WeakSet()


def _forget_all() -> None:
    for registry in list(_registries):
        registry.after_fork()


os.register_at_fork(after_in_child=_forget_all)
