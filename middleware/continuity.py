"""Which session goes on with a conversation: the one that still lives, or its snapshot's heir.

Every eval gives the state a new head, and the head is written to the graph's state with the eval's
own answer. A session is used for a state with its head only: after a fork, time travel, a restart
or a run whose end was lost, another one starts from the snapshot of exactly that checkpoint. The
snapshot is written with the answer as well while that is cheap, else at the end of the turn.

All of it holds a turn of the thread's queue.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
import uuid
import warnings
from collections.abc import Generator, Mapping
from typing import Any, Final

from qjs_pool import snapshots
from qjs_pool.errors import QjsPoolError, SnapshotRejected
from qjs_pool.result import EvalResult
from qjs_pool.snapshots import SnapshotDocument
from qjs_pool.wire.documents import MAX_MANIFEST_BYTES, Buffer

from .live import Live
from .options import Options
from .packs import packed
from .sandbox import Sandbox
from .saved import (
    MALFORMED,
    SNAPSHOT_KEY,
    Saved,
    hash_of,
    last_write,
    opened_manifest,
    opened_reference,
    read,
    reference_fields,
    snapshot_fields,
)
from .skills import Skills
from .threads import CARRIED, Registry, Thread
from .walk import awalk, walk

# A snapshot within an eval has to be as good as free. What the first one costs is not known: the
# worker's memory tells.
_CHEAP_S: Final = 0.1
_CHEAP_BYTES: Final = 64 << 10
_CHEAP_RSS_BYTES: Final = 96 << 20
# Hashing that much takes a millisecond: more is done in a thread.
_INLINE_BYTES: Final = 256 << 10

_LAST_LOST: Final = "what the last evals changed is lost"

Update = dict[str, Any]
# What a sync or an async caller has to do in between: its name and its argument.
Request = tuple[str, Any]
Work = Generator[Request, Any, Any]


class Continuity:
    """Sessions out of graph state, and graph state out of sessions, for one middleware."""

    def __init__(
        self, options: Options, registry: Registry, sandbox: Sandbox, skills: Skills
    ) -> None:
        self._options = options
        self._registry = registry
        self._sandbox = sandbox
        self._skills = skills
        self._store = options.snapshot_store
        self._keys = options.snapshot_keys

    # --- from state to session ------------------------------------------------------------------

    def obtain(self, thread: Thread, runtime: Any) -> Live:
        """The session for an eval. It may have died by now: see `lose`."""
        live: Live = self._drive(self._obtain(thread, runtime), thread, runtime)
        return live

    async def aobtain(self, thread: Thread, runtime: Any) -> Live:
        """As `obtain`, in an event loop."""
        live: Live = await self._adrive(self._obtain(thread, runtime), thread, runtime)
        return live

    def _obtain(self, thread: Thread, runtime: Any) -> Work:
        live = thread.live
        if live is not None and live.core.closed:
            live = thread.live = None
        if not self.persists(thread):
            if live is None:
                live = thread.live = Live((yield "open", None))
            return live
        state = getattr(runtime, "state", None)
        saved = read(state, self._options.tool_name)
        if live is not None:
            if self._goes_on(thread, state):
                return live
            if not _follows(live, saved, state, getattr(runtime, "tool_call_id", None)):
                thread.live = None
                self._registry.park(thread, live)
                live = None
            elif not live.at_turn_end:
                return live
        if live is None:
            live = thread.live = self._registry.take(thread, saved.head)
        if live is None or live.core.closed:
            live = yield from self._restored(thread, saved)
        elif thread.unsaved:
            thread.say(f"{_LAST_LOST}: {thread.gone}")
        live.rebase(saved.head, saved.seq)
        live.persistent = True
        thread.live, thread.gone, thread.unsaved = live, "", False
        yield from self._left_for_others(thread, live, saved)
        return live

    def _left_for_others(self, thread: Thread, live: Live, saved: Saved) -> Work:
        """Before a turn goes on from its checkpoint, park a copy there: another branch may too."""
        if not live.at_turn_end:
            return
        live.at_turn_end = False
        if live.head != saved.head or not self._registry.parks:
            return
        core = yield "copy", live.core
        if core is not None:
            self._registry.park(thread, live.copied(core))

    def _restored(self, thread: Thread, saved: Saved) -> Work:
        """A new session with what the snapshot has."""
        live = Live((yield "open", None))
        try:
            if saved.holds_snapshot:
                if saved.modules:
                    yield "modules", saved.modules
                document, parts = yield from self._body(thread, saved)
                yield "restore", (live.core, parts)
                # Each turn reads that much, until the checkpoint holds less of it.
                live.written_bytes = sum(map(len, saved.chunks.values()))
                live.manifest = document.manifest
                live.known = frozenset(document.hashes)
                self._registry.count("restored")
                if saved.at < saved.seq or thread.unsaved:
                    why = saved.lost or thread.gone or "their turn did not end"
                    thread.say(f"{_LAST_LOST}: {why}")
            elif saved.seq or saved.lost or thread.unsaved:
                reason = saved.lost or thread.gone or "the turn that made it did not end"
                thread.say(f"the REPL's state is lost, it starts empty: {reason}")
                if saved.lost == MALFORMED:
                    _warn(f"thread {thread.key.thread_id!r}: {reason}. The REPL starts empty")
            elif thread.gone and thread.key.checkpointer == CARRIED:
                thread.say(f"the REPL's state is lost, it starts empty: {thread.gone}")
        except SnapshotRejected as error:
            self._sandbox.release(live.core)
            thread.say(f"the REPL's state is lost, it starts empty: {error}")
            _warn(f"thread {thread.key.thread_id!r}: {error}. The REPL starts empty")
            live = Live((yield "open", None))
        except BaseException:
            self._sandbox.release(live.core)
            raise
        return live

    def lose(self, thread: Thread, live: Live) -> None:
        """Give up a session that has lost state: another one starts from the graph's state.

        That has nothing of an eval that its own step of the graph made before.
        """
        self._registry.count("died")
        thread.gone, thread.unsaved = "its worker died", live.head != live.base
        if not live.persistent and not live.core.fresh:
            thread.say(f"the REPL's state is lost, it starts empty: {thread.gone}")
        if thread.live is live:
            thread.live = None
        self._sandbox.release(live.core)

    def _body(self, thread: Thread, saved: Saved) -> Work:
        context = _context(thread)
        room_bytes = self._options.limits.snapshot_room + MAX_MANIFEST_BYTES
        chunks: Mapping[str, Buffer] = saved.chunks
        if saved.ref is not None:
            name = opened_reference(saved, self._keys, context)
            if self._store is None:
                raise SnapshotRejected("the snapshot is in a snapshot_store, and there is none")
            manifest = (yield "get", (name,)).get(name)
            if manifest is None or hash_of(manifest) != name:
                raise SnapshotRejected("the snapshot's manifest is not in the snapshot_store")
            chunks = yield "get", SnapshotDocument(manifest, {}).hashes
        else:
            manifest = opened_manifest(saved, self._keys, context, room_bytes)
        size_bytes = sum(map(len, chunks.values()))
        parts = yield "hash", (size_bytes, lambda: snapshots.body_parts(manifest, chunks))
        return SnapshotDocument(manifest, {}), parts

    # --- from session to state ------------------------------------------------------------------

    def after_eval(
        self, thread: Thread, live: Live, runtime: Any, result: EvalResult
    ) -> Update | None:
        """What the eval's answer brings to the graph's state."""
        work = self._after_eval(thread, live, runtime, result)
        update: Update | None = self._drive(work, thread, runtime)
        return update

    async def aafter_eval(
        self, thread: Thread, live: Live, runtime: Any, result: EvalResult
    ) -> Update | None:
        """As `after_eval`, in an event loop."""
        work = self._after_eval(thread, live, runtime, result)
        update: Update | None = await self._adrive(work, thread, runtime)
        return update

    def _after_eval(self, thread: Thread, live: Live, runtime: Any, result: EvalResult) -> Work:
        call_id = getattr(runtime, "tool_call_id", None)
        if not self.persists(thread) or call_id is None:
            return None
        saved = read(runtime.state, self._options.tool_name)
        if result.state == "rolled_back":
            live.since.add(call_id)
            return None
        unsaved = live.head != live.base
        live.advance(call_id, uuid.uuid4().hex, saved.seq)
        entry: Update = {"seq": live.seq, "head": live.head}
        cheap = (
            result.usage.peak_rss <= _CHEAP_RSS_BYTES
            if live.cost is None
            else live.cost[0] <= _CHEAP_S and live.cost[1] <= _CHEAP_BYTES
        )
        if cheap:
            try:
                entry |= yield from self._snapshot(thread, live, saved)
            except (QjsPoolError, OSError):  # the end of the turn will tell, unless it shrinks
                live.cost = (float("inf"), 0)
                if live.core.lost:  # its answer can tell, and so nothing is written of it
                    self.lose(thread, live)
                    thread.unsaved = unsaved
                    thread.say(f"what this eval changed is lost: {thread.gone}")
                    return None
        write = yield from self._write(entry)
        return {SNAPSHOT_KEY: write}

    def after_turn(self, thread: Thread, state: Any) -> Update | None:
        """What the end of the turn has to bring to the graph's state."""
        update: Update | None = self._drive(self._after_turn(thread, state), thread, None)
        return update

    async def aafter_turn(self, thread: Thread, state: Any) -> Update | None:
        """As `after_turn`, in an event loop."""
        update: Update | None = await self._adrive(self._after_turn(thread, state), thread, None)
        return update

    def _after_turn(self, thread: Thread, state: Any) -> Work:
        live = thread.live
        if live is None or not self.persists(thread):
            return None
        saved = read(state, self._options.tool_name)
        if not _follows(live, saved, state, None):
            return None
        live.at_turn_end = live.seq != 0
        if live.seq == saved.seq and (saved.at == saved.seq or saved.seq == 0):
            yield from self._at_rest(live)
            return self._last(live, state, None)  # it has it all
        entry: Update = {"seq": live.seq, "head": live.head}
        try:
            entry |= yield from self._snapshot(thread, live, saved)
        except Exception as error:
            # Whatever it was, a store that is down included: the run's answer is there.
            becomes = "goes on from the last snapshot"
            if live.core.lost:  # what there is of an older state is better than nothing
                self.lose(thread, live)
            else:
                entry |= {"at": live.seq, "lost": str(error)}
                becomes = "starts empty"
                thread.live = None
                self._sandbox.release(live.core)
            _warn(f"thread {thread.key.thread_id!r}: {error}. The next turn {becomes}")
        else:
            yield from self._at_rest(live)
        write = yield from self._write(entry)
        return self._last(live, state, write)

    def _at_rest(self, live: Live) -> Work:
        """What the session holds is on its way to the graph's state: no keeper needs to hold it."""
        if self._registry.parks:
            with contextlib.suppress(QjsPoolError, OSError):  # the next turn finds out
                yield "park", live.core

    def _write(self, entry: Update) -> Work:
        """The write of an entry."""
        size_bytes = sum(map(len, (entry.get("chunks") or {}).values()))
        return (yield "hash", (size_bytes, lambda: packed(self._options.tool_name, entry)))

    def _last(self, live: Live, state: Any, write: Any) -> Update | None:
        """The turn's last write; None if there is none."""
        write, live.written_bytes = last_write(
            state, self._options.tool_name, write, live.written_bytes
        )
        return None if write is None else {SNAPSHOT_KEY: write}

    def _snapshot(self, thread: Thread, live: Live, saved: Saved) -> Work:
        started = time.monotonic()
        pieces: list[Buffer] = yield "snapshot", live.core
        size_bytes = sum(map(len, pieces))
        if size_bytes > self._options.max_snapshot_bytes + MAX_MANIFEST_BYTES or (
            self._options.max_snapshot_bytes < 1024 < size_bytes
        ):
            raise SnapshotRejected("the state is over max_snapshot_bytes")
        document: SnapshotDocument = yield (
            "hash",
            (size_bytes, lambda: snapshots.take_apart_pieces(pieces)),
        )
        fields: Update = {"at": live.seq}
        # Of what was written the graph may have got nothing.
        held = saved.holds_snapshot and saved.at == live.saved_seq
        unchanged = held and live.manifest == document.manifest
        if not unchanged:
            context = _context(thread)
            if self._store is None:
                # Also of what this session has written, for an eval beside this one may have
                # dropped what the state still shows.
                known = frozenset(saved.chunks) & live.known
                fields |= snapshot_fields(document, known, self._keys, context)
                live.written_bytes += sum(map(len, fields["chunks"].values()))
            else:
                name = hash_of(document.manifest)
                new = {key: part for key, part in document.chunks.items() if key not in live.known}
                yield "put", {**new, name: document.manifest}
                fields |= reference_fields(name, self._keys, context)
            if thread.modules:
                fields["modules"] = sorted(thread.modules)
        live.manifest, live.known = document.manifest, frozenset(document.chunks)
        live.saved_seq = live.seq
        live.cost = (time.monotonic() - started, size_bytes)
        return fields

    def persists(self, thread: Thread) -> bool:
        """Whether the graph's state outlives the turn, and is to carry the REPL's."""
        return (
            self._options.mode == "thread" and thread.key.lasting and thread.key.checkpointer != 0
        )

    def _goes_on(self, thread: Thread, state: Any) -> bool:
        """Whether a caller that could have carried the REPL's state has kept the thread id only."""
        return thread.key.checkpointer == CARRIED and not (state or {}).get(SNAPSHOT_KEY)

    # --- the two drivers ------------------------------------------------------------------------

    def _drive(self, work: Work, thread: Thread, runtime: Any) -> Any:
        def do(what: str, argument: Any) -> Any:
            if what == "open":
                return self._sandbox.open()
            if what == "modules":
                return self._skills.load(thread, " ".join(argument), runtime)
            if what == "restore":
                core, body = argument
                return self._sandbox.restore(core, body, thread.modules)
            if what == "snapshot":
                return self._sandbox.snapshot(argument)
            if what == "park":
                return self._sandbox.park(argument)
            if what == "copy":
                return self._sandbox.copy(argument)
            if what == "hash":
                return argument[1]()
            assert self._store is not None
            return self._store.get(argument) if what == "get" else self._store.put(argument)

        return walk(work, do, _store_error)

    async def _adrive(self, work: Work, thread: Thread, runtime: Any) -> Any:
        async def do(what: str, argument: Any) -> Any:
            if what == "open":
                return await self._sandbox.open_async()
            if what == "modules":
                return await self._skills.aload(thread, " ".join(argument), runtime)
            if what == "restore":
                core, body = argument
                return await self._sandbox.restore_async(core, body, thread.modules)
            if what == "snapshot":
                return await self._sandbox.snapshot_async(argument)
            if what == "park":
                return await self._sandbox.park_async(argument)
            if what == "copy":
                return await self._sandbox.copy_async(argument)
            if what == "hash":
                size_bytes, job = argument
                return job() if size_bytes <= _INLINE_BYTES else await asyncio.to_thread(job)
            assert self._store is not None
            if what == "get":
                return await self._store.aget(argument)
            return await self._store.aput(argument)

        return await awalk(work, do, _store_error)


def _follows(live: Live, saved: Saved, state: Any, call_id: str | None) -> bool:
    """Whether that session is what the state says; if so it is noted as such."""
    if live.head == saved.head:
        live.rebase(saved.head, saved.seq)
        return True
    if live.base != saved.head:
        return False
    # Evals since then are in the history, or are made by the same message as this one.
    messages = state.get("messages") if isinstance(state, Mapping) else None
    accounted = set()
    for message in messages or ():
        if (answered := getattr(message, "tool_call_id", None)) is not None:
            accounted.add(answered)
        calls = {call["id"] for call in getattr(message, "tool_calls", None) or ()}
        if call_id in calls:
            accounted |= calls
    return live.since <= accounted


def _context(thread: Thread) -> str:
    """What a signature is bound to."""
    return f"{thread.key.thread_id}\n{thread.key.namespace}"


def _store_error(what: str, error: BaseException) -> BaseException:
    if what in ("get", "put") and isinstance(error, Exception):
        return SnapshotRejected(f"the snapshot_store failed: {type(error).__name__}: {error}")
    return error


def _warn(message: str) -> None:
    warnings.warn(message, RuntimeWarning, stacklevel=2)
