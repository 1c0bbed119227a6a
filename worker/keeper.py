"""Durability by fork: an eval either commits, or never happened.

After a committed eval the worker forks. The parent stays behind as the keeper, holding a
copy-on-write image of everything, closures included; the child serves the next eval. When the
child dies, the keeper says how, gets a fresh data socket, and forks again.
"""

import array
import fcntl
import os
import select
import socket
import termios
import time
from typing import Final

from qjs_pool.wire import messages as wire

from .sockets import receive

_BYE: Final = b"b"
_FORK_ATTEMPTS: Final = 200
_FORK_PAUSE_S: Final = 0.005


class Line:
    """What ties one worker to its host and to its keeper: the descriptors, and their generation."""

    __slots__ = ("bye", "control", "data", "generation")

    def __init__(self, data: socket.socket, control: socket.socket) -> None:
        self.data = data
        self.control = control
        self.generation = 0
        self.bye: int | None = None  # write end of the pipe to the previous keeper


def checkpoint(line: Line) -> bool:
    """Leave this state behind as the keeper and go on in a child.

    Returns in the child only, each time there is a new one: whether it succeeds one that died.
    """
    successor = False
    while True:
        bye_read, bye_write = os.pipe()
        pid = _fork_patiently()
        line.generation += 1
        if pid == 0:
            os.close(bye_read)
            if line.bye is not None:
                os.close(line.bye)
            line.bye = bye_write
            return successor
        os.close(bye_write)
        # We stand, so the keeper before us may leave. Not earlier: until the fork had
        # succeeded it held the only copy of the committed state.
        if line.bye is not None:
            os.write(line.bye, _BYE)
            os.close(line.bye)
            line.bye = None
        _keep(line, pid, bye_read)
        successor = True
        os.close(bye_read)


def _fork_patiently() -> int:
    # EAGAIN comes from processes of ours that are not reaped yet, and passes. Skipping the
    # checkpoint instead would leave an acknowledged eval without a copy.
    for _ in range(_FORK_ATTEMPTS):
        try:
            return os.fork()
        except BlockingIOError:
            time.sleep(_FORK_PAUSE_S)
    return os.fork()


def _keep(line: Line, child: int, bye_read: int) -> None:
    """Wait for the child's end, report it, and wait for the data socket of its successor."""
    child_fd = os.pidfd_open(child)
    watch = select.poll()
    watch.register(child_fd, select.POLLIN)
    watch.register(bye_read, select.POLLIN)
    watch.register(line.control, 0)  # only its end: the child's messages are not ours to read
    while True:
        ready = dict(watch.poll())
        if bye_read in ready:
            if os.read(bye_read, 1) == _BYE:
                os._exit(wire.EXIT_LEFT)
            watch.unregister(bye_read)  # its end alone means that the child is going
        if line.control.fileno() in ready:
            os._exit(wire.EXIT_LEFT)
        if child_fd in ready:
            break
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
