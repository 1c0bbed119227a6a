"""The anchor: first process of a session, parent of last resort, and the one that ends it.

It runs no guest code and reads nothing a worker could write. It reaps every process of its
session and leaves when none is left, or when the host lets go of the leash; as pid 1 of a pid
namespace its end removes all of them, otherwise it kills its process group, which no worker
can leave.
"""

import contextlib
import os
import resource
import select
import signal
import socket
from typing import Final, NoReturn

from qjs_pool.wire import messages as wire

from .serve import Image, run_first_worker
from .sockets import adopt_packet_socket

# Made in the zygote: each page that an anchor writes to, if only to count a reference, is a page
# of its own for as long as its session lives. So it does nothing that can be done before.
_UP: Final = wire.encode_body(wire.AnchorUp())


def run(
    spawn: wire.Spawn,
    fds: list[int],
    image: Image,
    layers: dict[str, str],
    skip: frozenset[str],
) -> NoReturn:
    """Be the anchor of a new session whose sockets are `fds` (leash, control, data)."""
    try:
        _run(spawn, fds, image, layers, skip)
    finally:
        # Whatever happened above, the zygote's code must never run in two processes.
        _end_session()


def _run(
    spawn: wire.Spawn,
    fds: list[int],
    image: Image,
    layers: dict[str, str],
    skip: frozenset[str],
) -> None:
    leash_fd, control_fd, data_fd = fds
    # Before any worker exists, so that the kernel's word for our pid cannot be a worker's.
    os.write(leash_fd, _UP)
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    first = image.fork()
    if first == 0:
        try:
            os.close(leash_fd)
            run_first_worker(spawn, control_fd, data_fd, image, layers, skip)
        finally:
            os._exit(wire.EXIT_INTERNAL)
    os.close(control_fd)
    os.close(data_fd)

    def reap(_number: int, _frame: object) -> None:
        while True:
            try:
                pid, status, usage = os.wait4(-1, os.WNOHANG)
            except ChildProcessError:
                _end_session()
            if pid == 0:
                return
            if pid == first and status != wire.EXIT_LEFT:
                _report(leash_fd, status, usage)

    signal.signal(signal.SIGCHLD, reap)
    reap(signal.SIGCHLD, None)  # what ended before the handler stood
    watch = select.poll()
    watch.register(leash_fd, 0)  # POLLHUP is always reported
    watch.poll()


def _report(leash_fd: int, status: int, usage: resource.struct_rusage) -> None:
    message = wire.FirstWorkerEnded(
        wait_status=status,
        cpu_s=usage.ru_utime + usage.ru_stime,
        peak_rss_bytes=usage.ru_maxrss * 1024,
    )
    leash = adopt_packet_socket(leash_fd)
    # The host may be gone, or does not read: the end of the leash says enough.
    with contextlib.suppress(OSError):
        leash.send(wire.encode_body(message), socket.MSG_DONTWAIT)


def _end_session() -> NoReturn:
    if os.getpid() != 1:
        os.killpg(0, signal.SIGKILL)
    os._exit(0)
