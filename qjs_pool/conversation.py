"""The conversation with one session's worker: requests, answers, deaths and successors.

Its operations are steps (see `steps.py`).
"""

from __future__ import annotations

import select
import time
from collections.abc import Callable, Sequence
from typing import Final

from .endings import Cause, Clock, Death, earlier
from .holding import Suspension
from .link import Link
from .outbox import Outbox
from .relay import Relay
from .steps import Ready, Steps
from .watches import Watches
from .wire import FrameDecoder, ProtocolError
from .wire import messages as wire
from .wire.channel import Channel, State
from .wire.frames import MAX_TO_WORKER_BYTES
from .worker_log import re_emit

Answer = wire.EvalDone | wire.Done | Death | Suspension

# What a killed worker's keeper gets to report before the whole family is killed.
REPORT_S: Final = 2.0
# What a worker gets to stand, on a machine that swaps.
STAND_S: Final = 20.0
# Datagrams taken in at a time, and Readies expected during one request (it is one, as a rule).
_DATAGRAMS: Final = 64
_MAX_READIES: Final = 8
# What a stream takes as one piece, and a worker reads at once.
_ONE_PIECE_BYTES: Final = 1 << 14
# How long a cancelled operation may hold its thread or event loop up, at most.
_STOP_S: Final = 0.01


class Conversation:
    """One link, and where we stand on it. Made anew when a session gets another family."""

    def __init__(
        self,
        link: Link,
        poller: select.epoll,
        max_frame_bytes: int,
        relay: Relay | None,
        check: Callable[[wire.EvalDone], None],
    ) -> None:
        self.link = link
        self.refused: wire.Refused | None = None
        self.death: Death | None = None
        # The worker of this generation said Ready (a link taken over may have heard it before).
        self.standing = link.worker is not None
        self.leaving = False  # it said that it leaves: a death is to come
        self.told = False  # a result says that its state is lost
        self.uncommitted = False  # acknowledged, and not yet secured by a checkpoint
        self.parked = False  # its worker has no keeper
        # Readies still to come: -1 when one came before we got to read what it was for.
        self._owed_readies = 0 if self.standing else 1
        self._relay = relay
        self._check = check
        self._poller = poller
        self._max_frame_bytes = max_frame_bytes
        self._decoder = FrameDecoder(max_frame_bytes)
        self._channel = Channel()
        self._cause: Cause | None = None
        self._violation = ""
        self._clock = Clock(None, None)  # of this request
        self._held_at: float | None = None  # since when the worker does nothing
        self._stood_s = 0.0  # of that, what no clock counts
        self._cpu_base = 0.0  # what the worker had used before this request
        self._cpu_at_kill: float | None = None
        self._kill_when_standing = False
        self._answer: wire.EvalDone | wire.Done | None = None
        self.pieces: list[bytes] = []  # of the snapshot that was asked for
        self.room_bytes = 0  # what they may still be
        self._outbox = Outbox(link, self._want_room)
        self._request_bytes = 0  # of this request alone, by the stream at once
        self._readies = 0  # heard during this request
        self.ended = False  # the stream ended: nobody is there any more
        self._kept = True  # somebody still holds the other end of the control socket
        self._generation = 0
        self._watches = Watches(poller)
        self._first_ended: wire.FirstWorkerEnded | None = None
        self._watches.set(link.data.fileno(), select.EPOLLIN)
        self._watches.set(link.control.fileno(), select.EPOLLIN)
        # A copy only needs to see the leash's end; its messages are for the original.
        self._watches.set(link.family.fileno(), select.EPOLLIN if link.original else 0)

    def unwatch(self) -> None:
        """Take our descriptors out of the poller; before they are closed."""
        self._watches.clear()

    # --- kills ----------------------------------------------------------------------------------

    def kill(self, cause: Cause, violation: str = "") -> None:
        """Kill the worker that serves; what its keeper holds lives on."""
        if self.death is not None or self._cause is not None:
            return
        self._cause, self._violation = cause, violation
        self._cpu_at_kill = self._cpu_used()
        if self.standing and self.link.worker is not None:
            self.link.worker.kill()
        else:
            # The one we know of may be the keeper by now: wait for the new one's Ready.
            self._kill_when_standing = True

    @property
    def going(self) -> bool:
        """Whether a death is to come: it said so, its stream ended, or we have killed it."""
        return self.death is None and (
            self.leaving or self.ended or (self._cause is not None and not self._kill_when_standing)
        )

    @property
    def is_ahead(self) -> bool:
        """Whether the worker has committed what nobody has heard the answer to."""
        return self._owed_readies < 0

    def commits(self) -> None:
        """The request that was just answered makes the worker leave a keeper behind.

        The Ready of the one that goes on is still to come, or came along with the answer.
        """
        self._owed_readies += 1
        if self._owed_readies > 0:
            self.standing, self.uncommitted = False, True

    def park(self) -> None:
        """Have the worker let its keeper go; the next request is an Unpark."""
        self.parked = True
        self._request(wire.Park())

    def stop(self) -> None:
        """Nobody waits for the answer any more: the guest must not go on."""
        self.look()
        # The worker that the last checkpoint left stands within a millisecond, as a rule. Without
        # its Ready there is nobody to kill, and nobody who would do it later.
        end = time.monotonic() + _STOP_S
        while not (self.standing or self.death) and (left := end - time.monotonic()) > 0:
            self._absorb(self._poller.poll(left))
        self.kill(Cause.INTERRUPT)
        self.leaving = True

    # --- steps ----------------------------------------------------------------------------------

    def look(self) -> None:
        """Take in what happened while nobody waited."""
        self._absorb(self._poller.poll(0))

    def stand(self) -> Steps[None]:
        """Wait for the worker's Ready, or for a death or refusal instead of it."""
        deadline = time.monotonic() + STAND_S
        while not (self.standing or self.death or self.refused):
            self._absorb((yield deadline))
            if self.ended:
                deadline = min(deadline, time.monotonic() + REPORT_S)
            if time.monotonic() >= deadline:
                self.give_up()

    def report(self) -> Steps[None]:
        """Wait for the death that is to come."""
        deadline = time.monotonic() + REPORT_S
        while self.going:
            self._absorb((yield deadline))
            if time.monotonic() >= deadline:
                self.give_up()

    def take_over(self) -> Steps[bool]:
        """Go on after a death with the keeper's state; False when there is nothing left of it."""
        death = self.death
        if death is None or not death.recoverable:
            return False
        self._watches.set(self.link.data.fileno(), None)
        if not self.link.take_over():
            return False
        self._watches.set(self.link.data.fileno(), select.EPOLLIN)
        self._decoder = FrameDecoder(self._max_frame_bytes)
        self._channel = Channel()
        self._cause, self._violation, self._kill_when_standing = None, "", False
        self._cpu_at_kill = None
        self._outbox = Outbox(self.link, self._want_room)
        self.death, self.standing, self.leaving, self.ended = None, False, False, False
        self.told = False
        self.uncommitted = False
        self._owed_readies = 1
        yield from self.stand()
        return self.standing

    def hear(self, wall_s: float) -> Steps[Answer]:
        """Wait for the answer to a request whose sender has left."""
        self._clock = Clock(wall_s, None)
        return (yield from self._wait())

    def exchange(
        self,
        request: wire.ToWorker,
        wall_s: float | None,
        cpu_s: float | None,
        owed: Sequence[wire.ToolAnswer] = (),
    ) -> Steps[Answer]:
        """Send a request and wait for its answer, or for the death of the worker.

        An eval that waits for a person gives a Suspension: see `go_on`.

        `owed`: answers of earlier evals' tool calls, delivered as this one starts.
        """
        worker = self.link.worker
        base = (worker.cpu_s() or 0.0) if worker is not None and self.standing else 0.0
        self._clock = Clock(wall_s, cpu_s)
        self._held_at = None
        self._cpu_base = base
        self._answer = None
        self._readies = 0
        self._outbox.start()
        self._request(request)
        self._request_bytes = self._outbox.taken_bytes
        if owed:
            self._send_answers(owed)
        return (yield from self._wait())

    def go_on(self, stood_s: float) -> Steps[Answer]:
        """Wait for an eval that was suspended for so long, and whose calls run again.

        The worker is held until they have ended: no timer and no other answer comes first.
        """
        self._clock.stood_still(stood_s)
        self._stood_s += stood_s
        return (yield from self._wait())

    def _wait(self) -> Steps[Answer]:
        relay, clock = self._relay, self._clock
        give_up_at: float | None = None
        while True:
            if isinstance(self._answer, wire.EvalDone) and relay is not None:
                relay.diverged()
                if relay.failure is not None or not relay.holds:
                    return self._answer
            elif self._answer is not None:
                return self._answer
            elif self.death is not None:
                return self.death
            if relay is not None and relay.frozen and relay.failure is None:
                if self._channel.state is State.RUNNING:
                    self._request(wire.Hold(self._channel.asked))
                if (self._answer is not None or self._held_at is not None) and relay.quiet:
                    suspension = relay.suspension(settled=self._answer is not None)
                    if suspension is not None:
                        return suspension
                    self._thaw(relay)
                    continue
            gone = self._cause is not None or self.ended
            if give_up_at is None and gone and self._answer is None:
                give_up_at = time.monotonic() + REPORT_S
            if relay is not None and relay.failure is not None:
                self.kill(Cause.INTERRUPT)
            deadline = give_up_at or earlier(
                clock.deadline(), None if relay is None else relay.deadline()
            )
            self._absorb((yield deadline))
            if relay is not None and give_up_at is None:
                self._send_answers(relay.expire())
            now = time.monotonic()
            done = self.death if self._answer is None else relay is None or not relay.holds
            if not done and deadline is not None:
                if give_up_at is not None and now >= give_up_at:
                    self.give_up()
                elif now >= deadline and (cause := clock.overdue(self._cpu_used)) is not None:
                    if isinstance(self._answer, wire.EvalDone):
                        return self._answer  # the calls go on without it
                    self.kill(cause)

    def _thaw(self, relay: Relay) -> None:
        """All calls have ended: the guest gets their answers, and goes on if it has not ended."""
        answers = relay.thaw()
        if self._channel.state is State.HELD:
            assert self._held_at is not None
            counted_s = max(0.0, time.monotonic() - self._held_at - self._stood_s)
            self._request(wire.Resume(self._channel.asked, counted_s))
        self._held_at = None
        self._send_answers(answers)

    def _send_answers(self, answers: Sequence[wire.ToolAnswer]) -> None:
        if self._channel.state is not State.RUNNING:
            if self._relay is not None:
                self._relay.owe(answers)  # the eval has its value: the next one gets them
            return
        for answer in answers:
            self._request(answer)

    def _request(self, message: wire.ToWorker) -> None:
        self._channel.sends(message)
        self._send(wire.to_frame(message))

    def _cpu_used(self) -> float | None:
        """CPU seconds of this request, by the kernel's word."""
        worker = self.link.worker
        used = worker.cpu_s() if worker is not None and self.standing else None
        return None if used is None else max(0.0, used - self._cpu_base)

    def untouched(self) -> bool:
        """Whether the dead worker had read nothing of the request."""
        death = self.death
        return (
            death is not None
            and death.recoverable
            and death.cause is None
            and (death.unread_bytes == self._outbox.taken_bytes or self._came_too_late())
        )

    def _came_too_late(self) -> bool:
        """Whether the request is unread, though the keeper had seen none of it when it looked."""
        # Of a single piece on the stream a worker reads all or nothing.
        alone = self._outbox.taken_bytes == self._request_bytes <= _ONE_PIECE_BYTES
        return alone and self.link.has_unread()

    # --- what becomes ready -----------------------------------------------------------------

    def _absorb(self, ready: Ready) -> None:
        link = self.link
        data_fd, control_fd = link.data.fileno(), link.control.fileno()
        leash_fd = link.family.fileno()
        control_ready = leash_ready = False
        for fd, events in ready:
            if fd == data_fd:
                # Before the control socket: an answer that was sent before its sender died
                # is an answer.
                if events & select.EPOLLOUT:
                    self._outbox.flush()
                if events & ~select.EPOLLOUT:
                    self._read_data()
            elif fd == control_fd:
                control_ready = True
            elif fd == leash_fd:
                leash_ready = True
            elif self._relay is not None:
                self._send_answers(self._relay.take_answers())
        if control_ready:
            self._read_control(link)
        if leash_ready:
            self._read_leash(link)

    def _read_data(self) -> bool:
        data = self.link.read()
        if data is None:
            return False
        if not data:
            self._end_stream()
            return False
        try:
            for body in self._decoder.feed(data):
                self._take(wire.decode_from_worker(body))
        except ProtocolError as error:
            # Nothing more is read from it; its keeper, or else the anchor, reports its end.
            self._watches.set(self.link.data.fileno(), None)
            self.kill(Cause.PROTOCOL, str(error))
        return True

    def _take(self, message: wire.FromWorker) -> None:
        self._channel.receives(message)
        if isinstance(message, wire.Log):
            re_emit(message)
        elif isinstance(message, wire.ToolCall):
            if self._relay is None:
                raise ProtocolError("a tool call in a session without tools")
            self._relay.call(message)
            self._send_answers(self._relay.replayed())
        elif isinstance(message, wire.Held):
            self._held_at, self._stood_s = time.monotonic(), 0.0
        elif isinstance(message, wire.SnapshotPart):
            self.room_bytes -= len(message.piece)
            if self.room_bytes < 0:
                raise ProtocolError("a snapshot larger than was asked for")
            self.pieces.append(message.piece)
        else:
            if isinstance(message, wire.EvalDone):
                self._check(message)
            self._answer = message
            self.leaving = isinstance(message, wire.EvalDone) and message.state == "lost"

    def _read_control(self, link: Link) -> None:
        if link.family.anchor is None:
            # Said before any worker existed, and needed to tell whose Ready this is.
            self._read_leash(link)
        try:
            # Not until there is none: a worker may send them faster than we read.
            for _ in range(_DATAGRAMS):
                if (message := link.next_control()) is None:
                    return
                if message == b"":
                    self._end_control()
                    return
                if isinstance(message, wire.Ready):
                    self._take_ready(message)
                elif isinstance(message, wire.Died):
                    self.standing = False
                    self.death = Death(
                        status=message.wait_status,
                        unread_bytes=message.unread_bytes,
                        cpu_s=message.cpu_s if self._cpu_at_kill is None else self._cpu_at_kill,
                        peak_rss_bytes=message.peak_rss_bytes,
                        recoverable=True,
                        cause=self._cause,
                        violation=self._violation,
                    )
                else:
                    self.refused = message
        except ProtocolError as error:
            # A keeper that lies cannot be gone back to.
            self._cause, self._violation = Cause.PROTOCOL, str(error)
            self.give_up()

    def _take_ready(self, ready: wire.Ready) -> None:
        self._readies += 1
        if self._readies > _MAX_READIES:
            raise ProtocolError("one Ready after the other")
        self._owed_readies = max(self._owed_readies - 1, -1)
        if self._owed_readies <= 0:
            self.standing, self.uncommitted = True, False
        if self.is_ahead and self._cause is not Cause.PROTOCOL and not self._kill_when_standing:
            # Whom we have killed had left this one behind, and was its keeper by then.
            self._cause, self.leaving = None, False
        self._generation = ready.generation
        if ready.layers:
            self.link.layers = ready.layers
            self.link.family.in_namespace = ready.layers.get("pid_namespace") == "on"
        if self._kill_when_standing and self.standing and self.link.worker is not None:
            self._kill_when_standing = False
            self.link.worker.kill()

    def _read_leash(self, link: Link) -> None:
        try:
            for _ in range(_DATAGRAMS):
                if (message := link.family.next_message()) is None:
                    return
                if message == b"":
                    self._watches.set(link.family.fileno(), None)
                    self.give_up()
                    return
                if isinstance(message, wire.FirstWorkerEnded):
                    self._first_ended = message
                    if self.ended:
                        self._die_unkept()
        except ProtocolError:
            self.give_up()

    def _end_stream(self) -> None:
        self.ended = True
        self._watches.set(self.link.data.fileno(), None)
        # The anchor reports its own child's end, long gone after two checkpoints; or nobody does.
        silent = not self._kept and (self._generation > 1 or self.parked or not self.link.original)
        if self._first_ended is not None or silent:
            self._die_unkept()

    def _end_control(self) -> None:
        self._kept = False
        self._watches.set(self.link.control.fileno(), None)
        while self.link.data.fileno() in self._watches:
            if not self._read_data():  # what came before the end counts
                break
        self._end_stream()

    def give_up(self) -> None:
        """Nobody reports: end the whole family, and take its state for lost."""
        self.link.family.kill()
        self._die_unkept()

    def _die_unkept(self) -> None:
        if self.death is not None and not self.death.recoverable:
            return
        ended = self._first_ended
        self.standing = False
        self.death = Death(
            status=None if ended is None else ended.wait_status,
            cpu_s=self._cpu_at_kill or 0.0,
            peak_rss_bytes=0 if ended is None else ended.peak_rss_bytes,
            cause=self._cause,
            violation=self._violation,
        )

    # --- writing --------------------------------------------------------------------------------

    def _send(self, frame: bytes) -> None:
        if len(self._outbox) > MAX_TO_WORKER_BYTES:
            self.kill(Cause.PROTOCOL, "it asks and does not read the answers")
        else:
            self._outbox.send(frame)

    def _want_room(self, wanted: bool) -> None:
        fd = self.link.data.fileno()
        if fd in self._watches:
            self._watches.set(fd, select.EPOLLIN | (select.EPOLLOUT if wanted else 0))
