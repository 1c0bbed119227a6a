"""Conversations and the sessions that hold their state.

A conversation is told apart by its checkpointer, its thread id and the namespace of its graph
within the run, so that a sub-agent's is its own; without a thread id by a private id in the state.
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
from concurrent.futures import Future
from typing import Any, Final, NamedTuple

from qjs_pool.core import Core
from qjs_pool.turnstile import Turnstile

from .capture import Record
from .carried import carried_in
from .ptc import Exposed

STATE_KEY: Final = "_qjs_pool_thread"
MAX_WAITING: Final = 64  # evals of one conversation in the queue
MAX_THREADS: Final = 4096
TURN_S: Final = 300.0  # how long a session stays between two evals of one turn
ORDER_S: Final = 0.25  # how long an eval waits for its predecessor to arrive
CARRIED: Final = 1  # the address of nothing
_KEPT_MESSAGES: Final = 8
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
    # The last part is the node that runs; what is left is the graph.
    namespace = str(configurable.get("checkpoint_ns") or "").rpartition("|")[0]
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


class Live:
    """A session, and where in the line of its conversation's states it is."""

    def __init__(self, core: Core) -> None:
        self.core = core
        self.head = ""  # as the last eval left it
        self.seq = 0
        self.base = ""  # the head that the graph's state had last, and the evals since
        self.since: set[str] = set()
        self.saved_seq = 0  # of the last snapshot
        self.manifest: bytes | None = None
        self.known: frozenset[str] = frozenset()  # chunks of it
        self.cost: tuple[float, int] | None = None  # seconds and bytes
        self.used = time.monotonic()
        self.persistent = False  # the graph's state has what it needs to come back

    def rebase(self, head: str, seq: int) -> None:
        """The graph's state has got as far as this session."""
        self.base, self.since = head, set()
        if self.head != head:  # it is new
            self.head, self.seq, self.saved_seq = head, seq, seq

    def advance(self, call_id: str, head: str, seq: int) -> None:
        """An eval has changed the state; `seq` is the graph's."""
        self.head, self.seq = head, max(self.seq, seq) + 1
        self.since.add(call_id)


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
        self.gone = ""  # why its session is, for a caller that has not carried the state
        self.used = time.monotonic()
        self.in_turn = False  # between a turn's first eval and its end
        self.stragglers: list[Record] = []
        self.leftovers: list[Core] = []  # sessions of single evals, with calls still running

    def touch(self) -> None:
        self.used = time.monotonic()
        if self.live is not None:
            self.live.used = self.used

    def say(self, note: str) -> None:
        """Tell the model with the next result."""
        self.note = f"{self.note}; {note}" if self.note else note


class CallOrder:
    """Evals of one model message enter the queue in the order in which the model wrote them.

    In an event loop they arrive in order by themselves; threads may overtake each other on the way.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._arrivals: OrderedDict[str, dict[int, Future[None]]] = OrderedDict()

    def predecessor(self, message: str, position: int) -> Future[None] | None:
        """To be waited for, `ORDER_S` at most: a call that something held back never arrives."""
        if position == 0:
            return None
        arrival = self._arrival(message, position - 1)
        return None if arrival.done() else arrival

    def arrived(self, message: str, position: int) -> None:
        arrival = self._arrival(message, position)
        with self._lock:
            if not arrival.done():
                arrival.set_result(None)

    def _arrival(self, message: str, position: int) -> Future[None]:
        with self._lock:
            arrivals = self._arrivals.setdefault(message, {})
            self._arrivals.move_to_end(message)
            while len(self._arrivals) > _KEPT_MESSAGES:
                self._arrivals.popitem(last=False)
            return arrivals.setdefault(position, Future())


def position_of(state: Any, call_id: str | None, tool_name: str) -> tuple[str, int] | None:
    """The model message that made a call, and which of its evals it is."""
    messages = state.get("messages") if isinstance(state, Mapping) else None
    for message in reversed(messages or ()):
        calls = [
            call for call in getattr(message, "tool_calls", None) or () if call["name"] == tool_name
        ]
        for position, call in enumerate(calls):
            if call["id"] == call_id:
                return str(calls[0]["id"]), position
        if calls:
            return None
    return None


class Registry:
    """The conversations of one middleware. Thread-safe; never waits.

    `park_s`: seconds that an unused session stays; `max_parked`: how many do.
    """

    def __init__(self, park_s: float, max_parked: int, release: Callable[[Core], None]) -> None:
        self._park_s = park_s
        self._max_parked = max_parked
        self._release = release
        self._lock = threading.Lock()
        self._threads: OrderedDict[ThreadKey, Thread] = OrderedDict()
        self._timer: threading.Timer | None = None
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

    def park(self, thread: Thread, live: Live) -> None:
        """Put a session aside, for a turn that starts from its state."""
        with self._lock:
            thread.parked[live.head] = live
        self.sweep()

    def take(self, thread: Thread, head: str) -> Live | None:
        """The parked session that is in that state."""
        with self._lock:
            live = thread.parked.pop(head, None)
        return None if live is None or live.core.closed else live

    def sweep(self) -> None:
        """Close sessions that are unused for too long, and the least recently used of too many."""
        now = time.monotonic()
        with self._lock:
            idle = sorted(self._idle(), key=lambda one: one[1].used)
            surplus = sum(not thread.in_turn for thread, _ in idle) - self._max_parked
            taken, next_s = [], math.inf
            for thread, live in idle:
                left_s = live.used + self._patience_s(thread) - now
                if left_s <= 0 or (surplus > 0 and not thread.in_turn):
                    surplus -= not thread.in_turn
                    taken.append(self._take(thread, live, "it was idle for too long"))
                else:
                    next_s = min(next_s, left_s)
            self._sweep_in(next_s)
            for thread in list(self._threads.values())[: max(0, len(self._threads) - MAX_THREADS)]:
                if thread.live is None and not thread.parked and thread.turns.holders == 0:
                    del self._threads[thread.key]
        for core in taken:
            self._release(core)

    def make_room(self) -> None:
        """Close the session that another conversation needs most, if there is one."""
        with self._lock:
            idle = min(self._idle(), key=lambda one: (one[0].in_turn, one[1].used), default=None)
            reason = "its worker was needed for another conversation"
            core = None if idle is None else self._take(*idle, reason)
        if core is not None:
            self._release(core)

    def _patience_s(self, thread: Thread) -> float:
        # A turn that failed, or waits for a person, has no end that would be told.
        return max(self._park_s, TURN_S) if thread.in_turn else self._park_s

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

    def _idle(self) -> list[tuple[Thread, Live]]:
        idle = []
        for thread in self._threads.values():
            idle += [(thread, live) for live in thread.parked.values()]
            # Whoever runs an eval holds a turn before it looks at the session.
            if thread.live is not None and thread.turns.holders == 0:
                idle.append((thread, thread.live))
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
                *thread.leftovers,
            )
        ]

    def after_fork(self) -> None:
        """In a forked child of the host: the sessions are the parent's."""
        self._lock = threading.Lock()
        self._threads = OrderedDict()
        self._timer = None


def _sweep_later(reference: weakref.ref[Registry]) -> None:
    registry = reference()
    if registry is not None:
        registry.timer_fired()


_registries: weakref.WeakSet[Registry] = weakref.WeakSet()


def _forget_all() -> None:
    for registry in list(_registries):
        registry.after_fork()


os.register_at_fork(after_in_child=_forget_all)
