"""The worker: reads requests from the host, answers them, and checkpoints after each eval.

One thread, one session, never reused for another. What an eval does is in `evals.py`; how its
state survives is in `keeper.py`.
"""

import contextlib
import os
import select
import signal
import socket
import traceback
from collections import deque
from collections.abc import Callable
from typing import Final, NamedTuple, NoReturn

from qjs_pool.wire import FrameDecoder, ProtocolError
from qjs_pool.wire import messages as wire
from qjs_pool.wire.frames import MAX_TO_WORKER_BYTES

from .engine import Engine
from .evals import EvalRunner
from .keeper import Line, checkpoint
from .lockdown import LayerFailure, Plan, confine
from .snapshots import PIECE_BYTES, SnapshotProblem, Snapshots
from .sockets import adopt_packet_socket, adopt_stream_socket, receive

_READ_BYTES: Final = 1 << 16
# For a session and four copies of it: the anchor and its zombies, and for each member the keeper,
# the worker and the one that a checkpoint forks. Fixed here, as nothing in the sandbox may raise a
# limit later; low, as a worker that was taken over has the memory limit once for each process.
MAX_PROCESSES: Final = 28
_NO_PROCESS: Final = "no process is left for it under the session's bound"
MAX_FILES: Final = 32


class Image(NamedTuple):
    """What the zygote has ready, for each worker to have a copy of."""

    engine: Engine
    evals: EvalRunner
    snapshots: Snapshots
    fork: Callable[[], int]


def run_first_worker(
    spawn: wire.Spawn,
    control_fd: int,
    data_fd: int,
    image: Image,
    layers: dict[str, str],
    skip: frozenset[str],
) -> NoReturn:
    """Lock this process down, then serve; a layer that is required and missing: say so, leave."""
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    control = adopt_packet_socket(control_fd)
    data = adopt_stream_socket(data_fd)
    plan = Plan(
        memory_bytes=spawn.memory_bytes,
        stack_bytes=spawn.stack_bytes,
        cpu_total_s=spawn.cpu_backstop_s,
        max_processes=MAX_PROCESSES,
        max_files=MAX_FILES,
        keep_fds=(control_fd, data_fd),
        required=frozenset(spawn.required_layers),
        skip=skip,
    )
    try:
        layers = confine(plan, layers)
    except LayerFailure as failure:
        control.send(wire.encode_body(wire.Refused(failure.layer, failure.reason)))
        os._exit(wire.EXIT_REFUSED)
    Worker(Line(data, control, image.fork), image, layers, durable=spawn.durable).run()


class Worker:
    """A session's worker between two messages of its host."""

    def __init__(
        self,
        line: Line,
        image: Image,
        layers: dict[str, str],
        *,
        durable: bool,
    ) -> None:
        self._line = line
        self._engine = image.engine
        self._fork_process = image.fork
        self._layers = layers
        self._durable = durable
        self._decoder = FrameDecoder(MAX_TO_WORKER_BYTES)
        self._inbox: deque[wire.ToWorker] = deque()  # read, and not handled yet
        self._evals = image.evals
        self._evals.begin(self)
        self._snapshots = image.snapshots
        self._pieces: list[bytes] = []  # of a snapshot to be restored

    def run(self) -> NoReturn:
        """Serve until the host hangs up. Never returns, whatever goes wrong."""
        try:
            self._stand()
            while True:
                if not self._inbox:
                    self._receive()
                else:
                    self._handle(self._inbox.popleft())
        except MemoryError:
            os._exit(wire.EXIT_OUT_OF_MEMORY)
        except ProtocolError:
            os._exit(wire.EXIT_PROTOCOL)
        except BaseException:
            with contextlib.suppress(BaseException):
                self.send(wire.Log(40, traceback.format_exc()[-8000:]))
        finally:
            os._exit(wire.EXIT_INTERNAL)

    def read(self) -> list[wire.ToWorker]:
        """The messages that are there, or else in the next chunk (may be none); blocks for it."""
        if not self._inbox:
            self._receive()
        messages = list(self._inbox)
        self._inbox.clear()
        return messages

    @property
    def has_unread(self) -> bool:
        """Whether `read` needs no wait: what came in one chunk with a request."""
        return bool(self._inbox)

    def _receive(self) -> None:
        data = self._line.data.recv(_READ_BYTES)
        if not data:
            os._exit(wire.EXIT_LEFT)  # the host closed the session, or died
        self._inbox.extend(wire.decode_to_worker(body) for body in self._decoder.feed(data))

    def send(self, message: wire.FromWorker) -> None:
        """Send to the host; a host that is gone ends the worker."""
        try:
            self._line.data.sendall(wire.to_frame(message))
        except OSError:
            os._exit(wire.EXIT_LEFT)

    @property
    def data(self) -> socket.socket:
        """The stream to the host, for waiting on it."""
        return self._line.data

    def _handle(self, message: wire.ToWorker) -> None:
        match message:
            case wire.Eval():
                done = self._evals.run(message)
                self.send(done)
                if done.state == "lost":
                    os._exit(wire.EXIT_ROLLBACK)
                self._commit()
            case wire.ToolAnswer():
                self._evals.answer(message)
            case wire.SetGlobal():
                problem = self._evals.set_global(message)
                self.send(wire.Done(message.request_id, problem))
                self._commit()
            case wire.Open():
                self._evals.open(message)
                self.send(wire.Done(message.request_id, None))
            case wire.Fork():
                self._fork(message)
            case wire.Park():
                self._line.let_keeper_go()
            case wire.Unpark():
                self.send(wire.Done(message.request_id, None))
                self._commit()
            case wire.Snapshot():
                self._dump(message)
            case wire.Restore():
                self._restore(message)
            case wire.Hold():
                pass  # it crossed the eval's end
            case wire.Resume():
                raise ProtocolError("nothing is held")

    def _dump(self, message: wire.Snapshot) -> None:
        problem: str | None = None
        body, size_bytes = b"", 0
        try:
            body, size_bytes = self._snapshots.take(
                self._evals.memory_bytes, message.max_bytes, message.cpu_s
            )
        except SnapshotProblem as error:
            problem = str(error)
        for start in range(0, len(body), PIECE_BYTES):
            piece = body[start : start + PIECE_BYTES]
            self.send(wire.SnapshotPart(message.request_id, piece))
        self.send(wire.Done(message.request_id, problem, size_bytes))
        if problem is not None and not self._engine.can_allocate():
            os._exit(wire.EXIT_ROLLBACK)

    def _restore(self, message: wire.Restore) -> None:
        self._pieces.append(message.piece)
        if message.more:
            self.send(wire.Done(message.request_id, None))
            return
        body, self._pieces = b"".join(self._pieces), []
        problem: str | None = None
        try:
            self._snapshots.restore(
                body,
                self._evals.memory_bytes,
                message.max_bytes,
                message.cpu_s,
                lambda modules: self._evals.import_modules(modules, message.cpu_s),
            )
        except SnapshotProblem as error:
            problem = str(error)
        self.send(wire.Done(message.request_id, problem))
        if problem is not None:
            os._exit(wire.EXIT_ROLLBACK)  # half a state is none
        self._commit()

    def _commit(self) -> None:
        """Make the state as it is now the one that a later death goes back to."""
        if self._durable:
            self._stand()

    def _stand(self) -> None:
        """Leave a keeper behind if the session is durable, and tell the host who serves now."""
        if self._durable and checkpoint(self._line):
            # A successor: nothing of what its predecessor had received is ours.
            self._decoder = FrameDecoder(MAX_TO_WORKER_BYTES)
            self._inbox.clear()
        self._announce()
        # Touch what the next eval writes to while nobody waits: copying those pages on its path
        # would add half a millisecond to it. With a request there already, it has to anyway.
        if not self._request_waits():
            self._evals.warm()

    def _request_waits(self) -> bool:
        poll = select.poll()
        poll.register(self._line.data, select.POLLIN)
        return bool(poll.poll(0))

    def _announce(self) -> None:
        ready = wire.Ready(self._line.generation, self._layers)
        self._layers = {}  # said once
        try:
            self._line.control.send(wire.encode_body(ready))
        except OSError:
            os._exit(wire.EXIT_LEFT)

    def _fork(self, message: wire.Fork) -> None:
        """Make an independent copy of the session, on the two sockets that the host sends next."""
        stands_read, stands_write = os.pipe()
        # Two forks: the copy becomes the anchor's child, so that its end is nobody's business
        # here and this worker never has a child that it does not wait for.
        try:
            middle = self._fork_process()
        except BlockingIOError:
            os.close(stands_read)
            os.close(stands_write)
            self.send(wire.Done(message.request_id, _NO_PROCESS))
            return
        if middle == 0:
            try:
                if self._fork_process():
                    os._exit(0)
            except BlockingIOError:
                os._exit(wire.EXIT_INTERNAL)
            os.close(stands_read)
            self._become_copy(stands_write, parked=message.parked)
            return
        os.close(stands_write)
        os.waitpid(middle, 0)
        # The answer comes when there is a process for the copy, and the descriptors alone after
        # it: glued to other bytes of the stream they could be read, and lost, by a plain recv.
        problem = None if os.read(stands_read, 1) else _NO_PROCESS
        self.send(wire.Done(message.request_id, problem))
        os.read(stands_read, 1)  # its end: the copy has its descriptors, the stream is ours again
        os.close(stands_read)

    def _become_copy(self, stands: int, *, parked: bool) -> None:
        try:
            os.write(stands, b"s")
        except BrokenPipeError:
            os._exit(wire.EXIT_LEFT)  # the one to be copied was killed: its host has given up
        old = self._line
        _, fds = receive(old.data, max_fds=2, max_bytes=1)
        os.close(stands)
        if len(fds) != 2:
            os._exit(wire.EXIT_LEFT)  # the host has changed its mind, or died
        old.data.close()
        old.control.close()
        if old.seat is not None:
            old.seat.close()
        data_fd, control_fd = fds
        self._line = Line(
            adopt_stream_socket(data_fd), adopt_packet_socket(control_fd), self._fork_process
        )
        self._decoder = FrameDecoder(MAX_TO_WORKER_BYTES)
        self._inbox.clear()
        if parked:
            self._announce()
        else:
            self._stand()
