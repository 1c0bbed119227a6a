"""The host's descriptors for one worker: data stream, control socket, and a pidfd to kill it by.

Everything here is non-blocking and owned by exactly one `Link` or `Family`, which closes it.
Nothing a worker says is a pid: the kernel names the sender of each control message.
"""

from __future__ import annotations

import array
import contextlib
import fcntl
import os
import select
import signal
import socket
import struct
import termios
import threading
import time
from typing import Any, Final

from .errors import SpawnError
from .wire import ProtocolError
from .wire import messages as wire

_SO_PASSPIDFD: Final = 76  # Linux 6.5; not yet in the socket module
_SCM_CREDENTIALS: Final = 2
_SCM_PIDFD: Final = 4
_CREDENTIALS: Final = struct.Struct("iII")  # struct ucred: pid, uid, gid
_INT: Final = struct.Struct("i")
# Exactly what is expected, not a byte more: room to spare would be filled with descriptors that
# a worker sends along, and each would then be open in this process.
_ANCILLARY_BYTES: Final = socket.CMSG_SPACE(_CREDENTIALS.size) + socket.CMSG_SPACE(_INT.size)
# A session and its copies share one bound of processes (MAX_PROCESSES in the worker's serve.py),
# set before the guest runs since nothing in the sandbox may raise a limit: 8, and 5 per copy.
MAX_MEMBERS: Final = 5
_DATAGRAM_BYTES: Final = 1 << 14
# Read at a time. Python allocates all of it for each read, and beyond 128 KiB that is a mapping
# made and undone: 90 µs of an eval's 300.
_READ_BYTES: Final = 1 << 16


class Sender:
    """A process that the kernel vouched for: its pid, and a pidfd that is ours to close."""

    __slots__ = ("_lock", "fd", "pid")

    def __init__(self, pid: int, fd: int) -> None:
        self.pid = pid
        self.fd = fd
        # Kills come from any thread; a number that was closed meanwhile may be another's by now.
        self._lock = threading.Lock()

    def alive(self) -> bool:
        """Whether the process has not ended yet."""
        with self._lock:
            if self.fd < 0:
                return False
            poll = select.poll()
            poll.register(self.fd, select.POLLIN)
            return not poll.poll(0)

    def kill(self) -> None:
        """SIGKILL; nothing happens if it has ended."""
        with self._lock, contextlib.suppress(ProcessLookupError):
            if self.fd >= 0:
                signal.pidfd_send_signal(self.fd, signal.SIGKILL)

    def cpu_s(self) -> float | None:
        """CPU seconds it has used since it was forked; None if it has ended."""
        # The kernel's clock id for the CPU time of another process, see clock_getcpuclockid(3).
        try:
            return time.clock_gettime((~self.pid << 3) | 2)
        except OSError:
            return None

    def close(self) -> None:
        with self._lock:
            if self.fd >= 0:
                os.close(self.fd)
                self.fd = -1


def socket_pair(kind: socket.SocketKind) -> tuple[socket.socket, socket.socket]:
    """A pair (ours, theirs); ours is non-blocking."""
    ours, theirs = socket.socketpair(socket.AF_UNIX, kind)
    ours.setblocking(False)
    return ours, theirs


def vouching_pair() -> tuple[socket.socket, socket.socket]:
    """A packet pair (ours, theirs) on which the kernel names the sender of what we receive."""
    ours, theirs = socket_pair(socket.SOCK_SEQPACKET)
    ours.setsockopt(socket.SOL_SOCKET, socket.SO_PASSCRED, 1)
    with contextlib.suppress(OSError):
        ours.setsockopt(socket.SOL_SOCKET, _SO_PASSPIDFD, 1)
    return ours, theirs


def receive_vouched(sock: socket.socket) -> tuple[bytes, Sender | None] | None:
    """The next datagram and its sender; `(b"", None)` at the end, None when there is none yet."""
    try:
        body, ancillary, flags, _ = sock.recvmsg(
            _DATAGRAM_BYTES, _ANCILLARY_BYTES, socket.MSG_CMSG_CLOEXEC
        )
    except BlockingIOError:
        return None
    except OSError:
        return b"", None
    pid, pidfd = 0, -1
    for level, kind, data in ancillary:
        if level != socket.SOL_SOCKET:
            continue
        if kind == _SCM_CREDENTIALS:
            pid = _CREDENTIALS.unpack(data)[0]
        elif kind == _SCM_PIDFD:
            pidfd = _INT.unpack(data)[0]
        elif kind == socket.SCM_RIGHTS:
            for start in range(0, len(data) - len(data) % _INT.size, _INT.size):
                os.close(_INT.unpack_from(data, start)[0])
    if flags & socket.MSG_TRUNC:
        if pidfd >= 0:
            os.close(pidfd)
        raise ProtocolError(f"control message of over {_DATAGRAM_BYTES} bytes")
    if not body:
        if pidfd >= 0:
            os.close(pidfd)
        return b"", None
    if pidfd < 0 and pid > 0:
        # Before Linux 6.5 there is a gap between the message and this call in which the sender
        # may have ended and its pid been given away; `Family.owns` closes it.
        with contextlib.suppress(OSError):
            pidfd = os.pidfd_open(pid)
    return body, Sender(pid, pidfd) if pidfd >= 0 else None


class Family:
    """A session and its copies: one anchor, killed as one."""

    __slots__ = ("_leash", "_lock", "anchor", "in_namespace", "members")

    def __init__(self, leash: socket.socket) -> None:
        self._leash = leash
        self.anchor: Sender | None = None
        self.members = 1
        self._lock = threading.Lock()
        self.in_namespace = False  # whether killing the anchor alone removes everything

    def fileno(self) -> int:
        return self._leash.fileno()

    def next_message(self) -> Any:
        """AnchorUp, FirstWorkerEnded, b"" at the end of the leash, None when there is nothing."""
        received = receive_vouched(self._leash)
        if received is None:
            return None
        body, sender = received
        if not body:
            return b""
        try:
            message = wire.decode_from_anchor(body)
            if isinstance(message, wire.AnchorUp) and self.anchor is None:
                self.anchor, sender = sender, None
            return message
        finally:
            if sender is not None:
                sender.close()

    def owns(self, sender: Sender) -> bool:
        """Whether `sender` is of this family: no worker can leave the anchor's process session."""
        if self.anchor is None:
            return False
        try:
            return os.getsid(sender.pid) == self.anchor.pid and sender.alive()
        except OSError:
            return False

    def kill(self) -> None:
        """End every process of the family now."""
        if self.anchor is None or not self.anchor.alive():
            return
        if not self.in_namespace:
            # The group first: once its leader is reaped, the number may be given away.
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.killpg(self.anchor.pid, signal.SIGKILL)
        self.anchor.kill()

    def join(self) -> bool:
        """Room for another member; False when there is none."""
        with self._lock:
            if self.members >= MAX_MEMBERS:
                return False
            self.members += 1
            return True

    def leave(self) -> None:
        """A member is closed; the last one ends the family."""
        with self._lock:
            self.members -= 1
            last = self.members <= 0
        if last:
            self.kill()
            self.abandon()

    def abandon(self) -> None:
        """Close the descriptors and nothing else (after a fork of the host they are a copy)."""
        self._leash.close()
        if self.anchor is not None:
            self.anchor.close()
            self.anchor = None


class Link:
    """The host's ends of one member of a family."""

    __slots__ = ("control", "data", "family", "layers", "original", "worker")

    def __init__(
        self,
        family: Family,
        data: socket.socket,
        control: socket.socket,
        *,
        original: bool = True,
    ) -> None:
        self.family = family
        self.original = original  # the member that the anchor itself started
        self.data = data
        self.control = control
        self.layers: dict[str, str] = {}  # the lockdown, as the worker reported it
        self.worker: Sender | None = None  # the one that serves evals now

    def next_control(self) -> Any:
        """Ready, Died, Refused, b"" at the end, None when there is nothing.

        Raises:
            ProtocolError: the message is malformed, or a Ready comes from outside the family.
        """
        received = receive_vouched(self.control)
        if received is None:
            return None
        body, sender = received
        if not body:
            return b""
        try:
            message = wire.decode_from_keeper(body)
            if isinstance(message, wire.Ready) and sender is not None:
                if not self.family.owns(sender):
                    # It may have ended in between, which its keeper will report.
                    return message
                if self.worker is not None:
                    self.worker.close()
                self.worker, sender = sender, None
            return message
        finally:
            if sender is not None:
                sender.close()

    def read(self) -> bytes | None:
        """What the stream holds; b"" at its end, None when there is nothing."""
        try:
            return self.data.recv(_READ_BYTES)
        except BlockingIOError:
            return None
        except OSError:
            return b""

    def has_unread(self) -> bool:
        """Whether anything that was written is still to be read, by whoever holds the other end."""
        count = array.array("i", [0])
        try:
            fcntl.ioctl(self.data, termios.TIOCOUTQ, count)
        except OSError:
            return False
        return count[0] > 0

    @property
    def hung_up(self) -> bool:
        """Whether nobody holds the other end of the stream, or of the leash, any more."""
        poll = select.poll()
        for end in (self.data, self.family):
            poll.register(end, 0)  # the end is always reported
        return bool(poll.poll(0))

    def write(self, data: bytes | memoryview) -> int:
        """Bytes taken: 0 when the stream is full, -1 when it is broken."""
        try:
            return self.data.send(data)
        except BlockingIOError:
            return 0
        except OSError:
            return -1

    def take_over(self) -> bool:
        """Tell the keeper to go on, on a fresh data stream; False when it is gone as well."""
        ours, theirs = socket_pair(socket.SOCK_STREAM)
        with theirs:
            try:
                socket.send_fds(
                    self.control, [wire.encode_body(wire.Takeover())], [theirs.fileno()]
                )
            except OSError:
                ours.close()
                return False
        self.data.close()
        self.data = ours
        return True

    def sibling(self) -> tuple[Link, list[socket.socket]]:
        """The link of a copy to be, and the far ends of its data and control sockets.

        Raises:
            OSError: no descriptors left.
            SpawnError: the family is as large as it may be.
        """
        data, data_end = socket_pair(socket.SOCK_STREAM)
        try:
            control, control_end = vouching_pair()
        except OSError:
            data.close()
            data_end.close()
            raise
        if not self.family.join():
            for end in (data, data_end, control, control_end):
                end.close()
            raise SpawnError(
                f"a session and its copies are at most {MAX_MEMBERS} at a time, as they share one "
                f"bound of processes; close one of them, or open another session"
            )
        return Link(self.family, data, control, original=False), [data_end, control_end]

    def send_sockets(self, ends: list[socket.socket]) -> bool:
        """Send descriptors with a single byte of the data stream; False when it is broken."""
        try:
            if ends:
                socket.send_fds(self.data, [b"f"], [end.fileno() for end in ends])
            else:
                self.data.send(b"f")
        except OSError:
            return False
        return True

    def close(self) -> None:
        """Kill this member and let go of it; the family's end with its last member."""
        if self.worker is not None:
            self.worker.kill()
        self.abandon_member()
        self.family.leave()

    def abandon_member(self) -> None:
        """Close this member's descriptors and nothing else."""
        self.data.close()
        self.control.close()
        if self.worker is not None:
            self.worker.close()
            self.worker = None
