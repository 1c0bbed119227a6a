"""Durability by fork: an eval either commits, or never happened.

After a committed eval the worker forks. The parent stays behind as the keeper, holding a
copy-on-write image of everything, closures included; the child serves the next eval. When the
child dies, the keeper says how, gets a fresh data socket, and forks again.
"""

import array
import contextlib
import fcntl
import os
import select
import socket
import termios
import time
from collections.abc import Callable
from typing import Final

from qjs_pool.wire import messages as wire

from .sockets import receive

_TOKEN: Final = b"t"
_FORK_ATTEMPTS: Final = 200
_FORK_PAUSE_S: Final = 0.005


class Seat:
    """What the worker after next needs to take the place of a keeper, once and for all.

    Between the fork of a checkpoint and the moment that the old keeper leaves there are two
    copies of the session, and the worker between them may be killed at any time. So there is one
    token: the new worker takes it before it speaks to the host, the old keeper before it reports
    a death, and whoever finds it gone leaves without a word.
    """

    __slots__ = ("_bye", "_token")

    def __init__(self, token: int, bye: int) -> None:
        self._token = token
        self._bye = bye

    def take(self) -> bool:
        """Take the token and send the old keeper away; False if it was gone."""
        taken = os.read(self._token, 1) == _TOKEN
        with contextlib.suppress(BrokenPipeError):  # it was killed, or knows already
            os.write(self._bye, _TOKEN)
        self.close()
        return taken

    def close(self) -> None:
        os.close(self._token)
        os.close(self._bye)


class Line:
    """What ties one worker to its host and to its keeper: the descriptors, and their generation."""

    __slots__ = ("control", "data", "fork", "generation", "seat")

    def __init__(
        self, data: socket.socket, control: socket.socket, fork: Callable[[], int]
    ) -> None:
        self.fork = fork
        self.data = data
        self.control = control
        self.generation = 0
        self.seat: Seat | None = None  # of the keeper of this worker, for its successor

    def let_keeper_go(self) -> None:
        """Have no keeper until the next checkpoint: what a worker waits without takes half."""
        if self.seat is not None:
            self.seat.take()
            self.seat = None


def checkpoint(line: Line) -> bool:
    """Leave this state behind as the keeper and go on in a child.

    Returns in the child only, each time there is a new one: whether it succeeds one that died.
    """
    successor = False
    while True:
        token_read, token_write = os.pipe()
        os.write(token_write, _TOKEN)
        os.close(token_write)  # so that a read finds the token or the end, and never waits
        bye_read, bye_write = os.pipe()
        pid = _fork_patiently(line.fork)
        line.generation += 1
        if pid == 0:
            os.close(bye_read)
            # The child does it, not the parent: after this there is a worker that serves.
            if line.seat is not None and not line.seat.take():
                os._exit(wire.EXIT_LEFT)
            line.seat = Seat(token_read, bye_write)
            return successor
        os.close(bye_write)
        _keep(line, pid, token_read, bye_read)
        successor = True
        os.close(token_read)
        os.close(bye_read)


def _fork_patiently(fork: Callable[[], int]) -> int:
    # EAGAIN comes from processes of ours that are not reaped yet, and passes. Skipping the
    # checkpoint instead would leave an acknowledged eval without a copy.
    for _ in range(_FORK_ATTEMPTS):
        try:
            return fork()
        except BlockingIOError:
            time.sleep(_FORK_PAUSE_S)
    return fork()


def _keep(line: Line, child: int, token: int, bye: int) -> None:
    """Wait for the child's end, report it, and wait for the data socket of its successor."""
    child_fd = os.pidfd_open(child)
    watch = select.poll()
    watch.register(child_fd, select.POLLIN)
    watch.register(bye, select.POLLIN)
    watch.register(line.control, 0)  # only its end: the child's messages are not ours to read
    while True:
        ready = dict(watch.poll())
        if bye in ready:
            if os.read(bye, 1):
                os._exit(wire.EXIT_LEFT)
            watch.unregister(bye)  # its end alone means that the child is going
        if line.control.fileno() in ready:
            os._exit(wire.EXIT_LEFT)
        if child_fd in ready:
            break
    if os.read(token, 1) != _TOKEN:
        os._exit(wire.EXIT_LEFT)  # the child died as a keeper, and its own child serves
    if line.seat is not None:
        # The child may have died before it took our predecessor's place. We hold what it held.
        line.seat.take()
        line.seat = None
    os.close(child_fd)
    _, status, usage = os.wait4(child, 0)
    died = wire.Died(
        generation=line.generation,
        wait_status=status,
        unread_bytes=_unread_bytes(line.data),
        cpu_s=usage.ru_utime + usage.ru_stime,
        peak_rss_bytes=usage.ru_maxrss * 1024,
    )
    try:
        line.control.send(wire.encode_body(died))
        body, fds = receive(line.control, max_fds=1)
    except OSError:
        os._exit(wire.EXIT_LEFT)
    if not body:
        os._exit(wire.EXIT_LEFT)
    wire.decode_to_keeper(body)
    if len(fds) != 1:
        os._exit(wire.EXIT_PROTOCOL)
    line.data.close()  # the dead worker may have left half a frame on it
    line.data = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM, 0, fileno=fds[0])


def _unread_bytes(sock: socket.socket) -> int:
    count = array.array("i", [0])
    fcntl.ioctl(sock.fileno(), termios.FIONREAD, count)
    return count[0]
