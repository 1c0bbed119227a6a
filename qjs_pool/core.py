"""A session: its options, its worker wherever that is, and what each operation gives back.

The operations are steps (see `steps.py`). Whatever happened to the worker since the last
one is put right at the start of the next: a successor from its keeper, or a new worker.
"""

from __future__ import annotations

import dataclasses
import select
from collections.abc import Callable, Sequence
from typing import Final

from .conversation import STAND_S, Conversation
from .endings import Cause, Death
from .errors import SessionClosed, SnapshotRejected, SpawnError, UsageError
from .evals import ATTEMPTS, Evals, Held
from .exits import describe_death
from .holding import Suspension
from .large import pieces_of
from .link import Link
from .options import SessionOptions
from .outcomes import RESET
from .relay import Relay
from .result import check_caps
from .steps import Steps
from .supervisor import raise_refused
from .tools import Toolbox
from .trial import REFUSED, is_in_doubt, try_out
from .turnstile import Turnstile
from .wire import messages as wire
from .wire.documents import MAX_MANIFEST_BYTES, Buffer

MAX_WAITING: Final = 64
# CPU seconds for writing the state down; the guest's programs are not charged for it.
_SNAPSHOT_CPU_S: Final = 20.0
# Sent from event loops as well, and copied some times on the way: this much is a millisecond.
_PIECE_BYTES: Final = 1 << 18
_DIED_EVERY_TIME: Final = "the session's worker died at this request every time"


class Core(Evals):
    """One session, for one driver at a time; only `interrupt` and `close` may come in between.

    `obtain`: gives the link of a new worker; its argument is whether one that has stood idle will
    do, which may have died meanwhile.
    """

    def __init__(
        self,
        options: SessionOptions,
        obtain: Callable[[bool], Link],
        make_relay: Callable[[select.epoll], Relay],
    ) -> None:
        self.options = options
        self.poller = select.epoll()  # one descriptor that any event loop can wait for
        self.relay = make_relay(self.poller)
        self.turns = Turnstile(1, MAX_WAITING)  # operations run one at a time, in call order
        self.layers: dict[str, str] = {}
        self.recoveries = 0
        self._streams = 0
        self.closed = False
        self._obtain = obtain
        self._talk: Conversation | None = None
        self._opened = False  # the worker that stands now has the session's options
        self._seeded = False  # ... and its stream of random numbers
        self.lost = ""
        self.ahead = False
        self._notes: list[str] = []
        self._running = self._stopped = False
        self._held: Held | None = None
        self._has_state = False
        self._parked = False  # the worker has no keeper
        self._unparking = False  # it was asked for one, and has not answered yet
        self._ids = 0
        self._evals = 0

    # --- between operations ---------------------------------------------------------------------

    @property
    def worker_pid(self) -> int | None:
        """The pid of the worker, as the kernel names it."""
        talk = self._talk
        return None if talk is None or talk.link.worker is None else talk.link.worker.pid

    @property
    def anchor_pid(self) -> int | None:
        """The pid of the session's anchor, as the kernel names it."""
        talk = self._talk
        return (
            None
            if talk is None or talk.link.family.anchor is None
            else (talk.link.family.anchor.pid)
        )

    def interrupt(self) -> None:
        """Stop the eval that runs now, if one does, from any thread."""
        if self._talk is not None and self._running:
            self._talk.kill(Cause.INTERRUPT)

    def close(self) -> None:
        """Kill the worker and let go of every descriptor; any number of times, from any thread.

        It waits for nobody: an operation that runs now ends by the kill, those that wait find
        the session closed, and the descriptors go when the last of them has left.
        """
        if self.closed:
            return
        self.closed = True
        self.relay.close()
        talk = self._talk
        if talk is not None:
            talk.kill(Cause.INTERRUPT)
            if talk.link.family.members == 1:
                talk.link.family.kill()
        turn = self.turns.enter(urgent=True)
        if turn is None:
            self._let_go()
        else:
            turn.add_done_callback(lambda _: self._let_go())

    def _let_go(self) -> None:
        self._drop()
        self.relay.release()
        self.poller.close()
        self.turns.leave()

    def surrender(self) -> Link | None:
        """Give a worker that has run nothing away; None if there is none that stands."""
        talk, self._talk = self._talk, None
        if talk is None:
            return None
        talk.unwatch()
        if talk.standing and talk.death is None:
            return talk.link
        talk.link.close()
        return None

    def abandon(self) -> None:
        """In a forked child of the host: let go without touching the parent's worker."""
        self.closed = True
        # A thread that held the old one does not exist here.
        self.turns = Turnstile(1, MAX_WAITING)
        # Closed first: what is registered with it is registered for the parent as well.
        self.poller.close()
        talk, self._talk = self._talk, None
        if talk is not None:
            talk.link.abandon_member()
            talk.link.family.abandon()

    # --- operations -----------------------------------------------------------------------------

    def open(self) -> Steps[None]:
        """Have a worker that knows the session's options."""
        yield from self._settle()

    def stand(self) -> Steps[None]:
        """Have a worker that stands and has the session's options, whatever happened before."""
        talk = yield from self._settle()
        yield from talk.stand()

    def set_global(self, name: str, value: str) -> Steps[None]:
        """Put an encoded host value into the session as a global."""
        problem = yield from self._request(
            lambda request_id: wire.SetGlobal(request_id, name, value)
        )
        if problem is not None:
            raise UsageError(f"the global was not set: {problem}")
        self._has_state = True
        self._committing()

    def park(self) -> Steps[None]:
        """Let the keeper go until the next operation: a session at rest takes half the memory.

        For a state that is written down, as it is lost with the worker then.
        """
        talk = self._talk
        if talk is None or self._parked or self._held is not None or not self.options.durable:
            return
        yield from self.stand()
        if self._talk is talk:
            self._parked = True
            talk.park()

    def _unpark(self, talk: Conversation) -> Steps[None]:
        # Whoever is cancelled in here leaves the answer to the next operation: a worker that has
        # no keeper yet is not killed for that.
        if self._unparking:
            answer = yield from talk.hear(STAND_S)
        else:
            self._unparking = True
            self._ids += 1
            answer = yield from talk.exchange(wire.Unpark(self._ids), STAND_S, None)
        if isinstance(answer, wire.Done):
            self._parked = self._unparking = talk.parked = False
            talk.commits()
            yield from talk.stand()

    def fork(self, options: SessionOptions, *, parked: bool = False) -> Steps[Core]:
        """An independent copy of the session as it is now, closures included.

        `parked`: it is at rest, see `park`.
        """
        yield from self.stand()
        talk = self._talk
        assert talk is not None
        link, ends = talk.link.sibling()
        copy = Core(options, self._obtain, self.relay.copy)
        copy._talk = copy._converse(link)
        copy._evals, copy._has_state, copy.ahead = self._evals, self._has_state, self.ahead
        copy._parked = copy._talk.parked = parked and self.options.durable
        try:
            problem = yield from self._request(
                lambda request_id: wire.Fork(request_id, copy._parked)
            )
            asked = self._talk
            if problem is None and asked is not None:
                # Whoever was asked waits for this, and would else take a byte of the next frame:
                # a successor in another family, too, which has no use for our sockets.
                sent = asked.link.send_sockets(ends if asked is talk else [])
            if problem is not None or asked is not talk or self.lost or not sent:
                problem = problem or self.lost or "it died"
                raise SpawnError(f"the session was not copied: {problem}")
        except BaseException:
            copy.close()
            raise
        finally:
            for end in ends:
                end.close()
        return copy

    def snapshot(self) -> Steps[list[bytes]]:
        """The state as the pieces of a body (see `wire.documents`), unhashed and unsigned.

        One that is large for its limits was restored once, to be sure. Whoever joins the pieces
        copies it all, and should do so outside of any event loop.
        """
        limits = self.options.limits
        for _ in range(ATTEMPTS):
            talk = yield from self._settle()
            if self.lost:
                raise SnapshotRejected(f"no snapshot was taken: {self.lost}")
            self._ids += 1
            request = wire.Snapshot(self._ids, limits.snapshot_room, _SNAPSHOT_CPU_S)
            talk.room_bytes = limits.snapshot_room + MAX_MANIFEST_BYTES
            pieces: list[bytes] = []
            talk.pieces = pieces
            try:
                answer = yield from self._ask(talk, request, limits.wall, _SNAPSHOT_CPU_S)
            finally:
                talk.pieces = []
            if isinstance(answer, wire.Done):
                if answer.problem is not None:
                    raise SnapshotRejected(f"no snapshot was taken: {answer.problem}")
                if is_in_doubt(answer, limits.memory):
                    options = dataclasses.replace(self.options, tools=())
                    heir = Core(options, self._obtain, self.relay.copy)
                    yield from try_out(self, talk, heir, pieces)
                return pieces
            if answer.cause is not None:
                raise SnapshotRejected(f"no snapshot was taken: {_why_killed(answer)}")
        raise SnapshotRejected(f"no snapshot was taken: {_DIED_EVERY_TIME}")

    def restore(self, parts: Sequence[Buffer]) -> Steps[None]:
        """Fill a session that ran nothing from the parts of a body; it is secured then."""
        for _ in range(ATTEMPTS):
            talk = yield from self._settle()
            answer = yield from self._send_body(talk, parts)
            if isinstance(answer, wire.Done):
                if answer.problem is not None:
                    talk.leaving = True
                    raise SnapshotRejected(f"{REFUSED}{answer.problem}")
                self._committing()
                yield from talk.stand()
                if talk.death is None:
                    self._has_state, self.lost, self.ahead = True, "", False
                    return
            elif answer.cause is not None:
                raise SnapshotRejected(f"{REFUSED}{_why_killed(answer)}")
        raise SnapshotRejected(f"{REFUSED}{_DIED_EVERY_TIME}")

    def _send_body(self, talk: Conversation, parts: Sequence[Buffer]) -> Steps[wire.Done | Death]:
        limits = self.options.limits
        cpu_s = _SNAPSHOT_CPU_S if limits.cpu is None else limits.cpu
        left_bytes = sum(map(len, parts))
        for piece in pieces_of(parts, _PIECE_BYTES):
            left_bytes -= len(piece)
            more = left_bytes > 0
            self._ids += 1
            request = wire.Restore(self._ids, piece, more, limits.snapshot_room, cpu_s)
            answer = yield from self._ask(talk, request, limits.wall, cpu_s)
            if isinstance(answer, Death) or answer.problem is not None or not more:
                return answer
        raise AssertionError("a body is never empty")

    def configure(
        self,
        toolbox: Toolbox,
        described: tuple[wire.Tool, ...],
        modules: dict[str, dict[str, str]],
    ) -> Steps[None]:
        """Offer other tools and modules from the next eval on."""
        if described != self.options.tools or modules != self.options.modules:
            self.options = dataclasses.replace(self.options, tools=described, modules=modules)
            self._opened = False
        self.relay.toolbox = toolbox
        yield from self._settle()

    def reset(self) -> Steps[None]:
        """Go on in a new worker, with nothing of the old state."""
        self.give_up()
        self._drop()
        self._reseed()
        self.relay.forget()
        self._has_state, self.lost, self.ahead = False, "", False
        self._notes.clear()
        yield from self._settle()

    # --- getting to a worker that serves --------------------------------------------------------

    def _settle(self) -> Steps[Conversation]:
        """The conversation with a living worker that has the session's options."""
        for attempt in range(ATTEMPTS):
            if self.closed:
                raise SessionClosed("the session is closed; open another with pool.session()")
            self.give_up()
            talk = self._talk
            if talk is None:
                talk = self._talk = self._converse(self._obtain(attempt == 0))
                self._opened = False
            else:
                talk.look()
                if talk.going:
                    yield from talk.report()
                if self._stopped:
                    self._stopped = False
                    self.ahead = self.ahead or talk.is_ahead
                    if talk.is_ahead and talk.death is None:
                        talk.commits()
            if self._parked and talk.death is None:
                yield from self._unpark(talk)
            if talk.death is not None:
                yield from self._recover(talk, talk.death)
                continue
            if not self._opened:
                yield from self._open(talk)
            if talk.death is None and self._opened:
                return talk
        raise SpawnError(f"no worker stayed alive in {ATTEMPTS} attempts")

    def _converse(self, link: Link) -> Conversation:
        return Conversation(
            link,
            self.poller,
            self.options.max_frame_bytes,
            self.relay,
            lambda done: check_caps(done, self.options.limits),
        )

    def _open(self, talk: Conversation) -> Steps[None]:
        yield from talk.stand()
        if talk.refused is not None:
            refused = talk.refused
            self._drop()
            raise_refused(refused)
        if talk.death is not None:
            return
        self.layers = talk.link.layers or self.layers
        self._ids += 1
        message = self.options.message(self._ids, reseed=not self._seeded)
        answer = yield from self._ask(talk, message, STAND_S)
        self._opened = self._seeded = isinstance(answer, wire.Done)

    def _recover(self, talk: Conversation, death: Death) -> Steps[None]:
        uncommitted = talk.uncommitted
        self._opened = self._seeded = False
        if (yield from talk.take_over()):
            self.recoveries += 1
            self._unparking = False
            self._reseed()
            if uncommitted and not self.lost:
                self.lost = (
                    "what the previous eval changed is lost: its worker died "
                    f"({describe_death(death.status, death.peak_rss_bytes)}) before it was secured"
                )
            return
        if self._has_state and self._talk is talk and not talk.told:
            how = describe_death(death.status, death.peak_rss_bytes)
            self.lost = f"{RESET}: its worker died ({how})"
        self._has_state = self.ahead = False
        self._drop()
        self._reseed()
        self.relay.forget()

    def _reseed(self) -> None:
        """Another stream for Math.random than the one that a lost eval or state has seen."""
        self._streams += 1
        self.options = self.options.reseeded(f"stream {self._streams}")

    def _drop(self) -> None:
        talk, self._talk = self._talk, None
        self._opened = self._seeded = self._parked = self._unparking = self._stopped = False
        if talk is not None:
            talk.unwatch()
            talk.link.close()

    def _request(self, make: Callable[[int], wire.ToWorker]) -> Steps[str | None]:
        """Carry out a request that is not an eval; the problem it met, if any."""
        for _ in range(ATTEMPTS):
            talk = yield from self._settle()
            self._ids += 1
            answer = yield from self._ask(talk, make(self._ids), STAND_S)
            if isinstance(answer, wire.Done):
                return answer.problem
        raise SpawnError(_DIED_EVERY_TIME)

    def _ask(
        self,
        talk: Conversation,
        request: wire.ToWorker,
        wall_s: float | None,
        cpu_s: float | None = None,
    ) -> Steps[wire.Done | Death]:
        """Exchange what is no eval."""
        answer: wire.EvalDone | wire.Done | Death | Suspension | None = None
        try:
            answer = yield from talk.exchange(request, wall_s, cpu_s)
        finally:
            if answer is None:  # cancelled: its answer would be taken for the next request's
                talk.stop()
                self._stopped = True
        assert not isinstance(answer, (wire.EvalDone, Suspension))
        return answer

    def _committing(self) -> None:
        talk = self._talk
        if talk is not None and self.options.durable:
            talk.commits()


def _why_killed(death: Death) -> str:
    if death.cause is Cause.PROTOCOL:
        return f"the worker broke the protocol: {death.violation}"
    if death.cause is Cause.INTERRUPT:
        return "it was interrupted"
    return "it took too long"
