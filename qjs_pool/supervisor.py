"""The supervisor: starts the zygote, asks it for sessions, and starts another one if it dies.

The host may have any number of threads, so it is never forked: the zygote is a fresh interpreter
with an empty environment, and sessions are forked from that. Live sessions do not depend on it.
"""

from __future__ import annotations

import contextlib
import dataclasses
import os
import select
import socket
import struct
import subprocess
import sys
import threading
import time
from typing import IO, Final

from .errors import IsolationUnavailable, SpawnError
from .link import Family, Link, socket_pair, vouching_pair
from .wire import ProtocolError
from .wire import messages as wire

START_TIMEOUT_S: Final = 30.0
_LENGTH: Final = struct.Struct("<Q")
_PIECE_BYTES: Final = 1 << 15
_STOP_TIMEOUT_S: Final = 2.0
# The isolated interpreter finds the installed package by itself; a host that runs from elsewhere
# (a --target folder, PYTHONPATH) lends its path, behind the interpreter's own.
_BOOTSTRAP: Final = (
    "import sys; "
    "sys.path += [p for p in sys.argv[2].split(chr(10)) if p and p not in sys.path]; "
    "from qjs_pool.worker.zygote import main; main(int(sys.argv[1]))"
)


@dataclasses.dataclass(frozen=True, slots=True)
class BaseImage:
    """What every session starts from, beyond the library's own code."""

    options: wire.Open  # of most sessions
    preload: str = ""
    functions: dict[str, bytes] = dataclasses.field(default_factory=dict)
    skip_layers: tuple[str, ...] = ()  # for tests: prove that the other layers hold alone


class _Died(SpawnError):
    """The zygote ended before it was up, and did not say why."""


class Supervisor:
    """Owner of the zygote process. Thread-safe."""

    def __init__(self, base: BaseImage) -> None:
        self._base = base
        self._lock = threading.Lock()
        self._zygote: subprocess.Popen[bytes] | None = None
        self._socket: socket.socket | None = None
        self._closed = False
        self.layers: dict[str, str] = {}
        self.starts = 0

    @property
    def running(self) -> bool:
        """Whether a spawn needs no start first."""
        sock = self._socket
        return sock is not None and not self._hung_up(sock)

    @property
    def pid(self) -> int | None:
        """The zygote's pid, None while there is none."""
        zygote = self._zygote
        return None if zygote is None else zygote.pid

    def start(self) -> None:
        """Start the zygote unless it runs; blocks for some 60 ms.

        Raises:
            SpawnError: it did not come up, with what it said.
        """
        with self._lock:
            self._start()

    def spawn(self, request: wire.Spawn) -> Link:
        """Ask for a session; it is there when its `Ready` arrives on the link.

        Raises:
            SpawnError: no zygote to be had, or no descriptors.
        """
        with self._lock, contextlib.ExitStack() as theirs, contextlib.ExitStack() as on_failure:
            ours: list[socket.socket] = []
            ends: list[int] = []
            try:
                for make in (vouching_pair, vouching_pair, _stream_pair):
                    end, their_end = make()
                    theirs.callback(their_end.close)  # not ours, whatever happens
                    on_failure.callback(end.close)
                    ours.append(end)
                    ends.append(their_end.fileno())
            except OSError as error:
                raise SpawnError(_descriptor_hint(error)) from error
            self._send_spawn(wire.encode_body(request), ends)
            on_failure.pop_all()
            leash, control, data = ours
            return Link(Family(leash), data, control)

    def _send_spawn(self, body: bytes, ends: list[int]) -> None:
        for attempt in (1, 2):
            self._start()
            assert self._socket is not None
            try:
                socket.send_fds(self._socket, [body], ends)
                return
            except OSError as error:
                # It died since the last spawn. Sessions that live go on without it.
                self._reap()
                if attempt == 2:
                    raise SpawnError(f"the zygote does not take requests: {error}") from error

    def _start(self) -> None:
        try:
            self._start_once()
        except _Died:
            self._start_once()  # somebody has killed it; one that can't live dies again

    def _start_once(self) -> None:
        if self._closed:
            raise SpawnError("the pool is closed")
        if self._socket is not None:
            if self._hung_up(self._socket):
                self._reap()
            else:
                return
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        path = "\n".join(entry for entry in sys.path if entry and "\n" not in entry)
        try:
            with theirs:
                # Not setsid by preexec_fn: that would run Python code between fork and exec.
                zygote = subprocess.Popen(
                    [sys.executable, "-I", "-c", _BOOTSTRAP, str(theirs.fileno()), path],
                    stdin=subprocess.DEVNULL,
                    stdout=subprocess.DEVNULL,
                    stderr=subprocess.PIPE,
                    env={},
                    close_fds=True,
                    pass_fds=(theirs.fileno(),),
                    start_new_session=True,
                    cwd="/",
                )
        except OSError as error:
            ours.close()
            raise SpawnError(f"the zygote did not start: {error}") from error
        assert zygote.stderr is not None
        try:
            with zygote.stderr as complaints:
                self._greet(ours, complaints)
        except BaseException:
            ours.close()
            zygote.kill()
            zygote.wait()
            raise
        self._zygote, self._socket = zygote, ours
        self.starts += 1

    def _greet(self, zygote: socket.socket, complaints: IO[bytes]) -> None:
        base = self._base
        skip = list(base.skip_layers)
        hello = wire.Base(
            [entry for entry in sys.path if entry],
            base.preload,
            base.functions,
            skip,
            base.options,
        )
        body = wire.encode_body(hello)
        zygote.settimeout(START_TIMEOUT_S)
        try:
            # In pieces: one datagram holds no more than the kernel's buffer for the socket.
            zygote.send(_LENGTH.pack(len(body)))
            for start in range(0, len(body), _PIECE_BYTES):
                zygote.send(body[start : start + _PIECE_BYTES])
            answer = zygote.recv(1 << 16)
        except OSError as error:
            raise _Died(f"the zygote did not start: {error}{_tail(complaints)}") from error
        finally:
            zygote.settimeout(None)
        if not answer:
            raise _Died(f"the zygote did not start{_tail(complaints)}")
        try:
            up = wire.decode_from_zygote(answer)
        except ProtocolError as error:
            raise SpawnError(f"the zygote is of another release: {error}") from error
        if up.problem is not None:
            raise SpawnError(f"the zygote did not start: {up.problem.strip()}")
        self.layers = up.layers

    @staticmethod
    def _hung_up(sock: socket.socket) -> bool:
        poll = select.poll()
        poll.register(sock, 0)
        return bool(poll.poll(0))

    def _reap(self) -> None:
        if self._socket is not None:
            self._socket.close()
            self._socket = None
        if self._zygote is not None:
            try:
                self._zygote.wait(_STOP_TIMEOUT_S)  # it leaves when its socket ends
            except subprocess.TimeoutExpired:
                self._zygote.kill()
                self._zygote.wait()
            self._zygote = None

    def close(self) -> None:
        """End the zygote. Sessions that live are not touched."""
        with self._lock:
            self._closed = True
            self._reap()

    def forget(self) -> None:
        """In a forked child of the host: drop what belongs to the parent, and start afresh."""
        self._lock = threading.Lock()  # a thread that does not exist here may hold the old one
        if self._socket is not None:
            self._socket.close()
            self._socket = None
        if self._zygote is not None:
            self._zygote.returncode = 0  # not our child: nothing to wait for or to warn about
            self._zygote = None


def _stream_pair() -> tuple[socket.socket, socket.socket]:
    return socket_pair(socket.SOCK_STREAM)


def raise_refused(refused: wire.Refused) -> None:
    """A worker that does not serve, as the exception that its host raises."""
    raise IsolationUnavailable(
        f"isolation layer {refused.layer!r} is missing on this machine: {refused.reason}. "
        f"See `qjs-pool doctor`; isolation='best-effort' runs without the layers it lacks."
    )


def _descriptor_hint(error: OSError) -> str:
    import resource

    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    return (
        f"no descriptors left for another session ({error}): each takes 5, the limit of this "
        f"process is {soft} (hard limit {hard}); raise it with `ulimit -n` or close sessions"
    )


def _tail(complaints: IO[bytes]) -> str:
    os.set_blocking(complaints.fileno(), False)
    deadline = time.monotonic() + 0.2
    text = b""
    while time.monotonic() < deadline:
        try:
            chunk = os.read(complaints.fileno(), 4096)
        except BlockingIOError:
            time.sleep(0.01)
            continue
        if not chunk:
            break
        text += chunk
    return f": {text.decode(errors='replace').strip()[-2000:]}" if text else ""
