"""The zygote: loads everything once, then forks a session's anchor for each Spawn.

Single-threaded and free of guest code: it never reads from a worker. Its one input is the
supervisor's socket; when that ends (the host closed the pool, or died) it leaves, and every
anchor notices by its own leash.
"""

import gc
import os
import select
import signal
import socket
import sys
import time
import traceback
from typing import Final, NoReturn

from qjs_pool.wire import ProtocolError
from qjs_pool.wire import messages as wire

from . import anchor, linux
from .engine import Engine
from .evals import EvalRunner
from .functions import load_functions
from .holes import fill_holes
from .lockdown import prepare_zygote, spawn_anchor
from .serve import Image
from .snapshots import Snapshots
from .sockets import adopt_packet_socket, receive, receive_large
from .transpile import compile_queries, transpile

_PRELOAD_CPU_S: Final = 10.0
# An idle worker is asked for when the one before it is taken, by a session whose first eval then
# has to share the processors with our fork; so that fork waits, unless more is asked of us.
_IDLE_PAUSE_MS: Final = 10


class _Unusable(Exception):
    """What the host wants in the base image cannot be there; the message says why."""


def main(supervisor_fd: int) -> NoReturn:
    """Serve the supervisor on `supervisor_fd` until it hangs up."""
    supervisor = adopt_packet_socket(supervisor_fd)
    # A host that dies must take us along by EOF alone; nothing typed at its terminal is ours.
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)
    # Some hosts ignore SIGCHLD or block signals, and both pass through exec: the lockdown waits
    # for a probe of its own, and anchors live by that signal.
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    signal.pthread_sigmask(signal.SIG_SETMASK, ())
    os.environ["TZ"] = "UTC0"  # the guest's time zone, whatever the machine's is
    time.tzset()
    try:
        _serve(supervisor)
    except _Unusable as error:
        _say(supervisor, wire.ZygoteUp(wire.PROTOCOL, {}, str(error)))
        os._exit(1)
    except BaseException:
        problem = traceback.format_exc()[-4000:]
        _say(supervisor, wire.ZygoteUp(wire.PROTOCOL, {}, problem))
        os._exit(1)
    os._exit(0)


def _serve(supervisor: socket.socket) -> None:
    body = receive_large(supervisor)
    if not body:
        return
    base = wire.decode_to_zygote(body)
    if not isinstance(base, wire.Base):
        raise ProtocolError(f"expected Base, got {type(base).__name__}")
    known = set(sys.path)
    sys.path += [entry for entry in base.sys_path if entry not in known]
    engine = Engine()
    try:
        functions = load_functions(base.functions)
        if base.preload:
            program = transpile(base.preload)
            engine.preload(program.scripts, boxed=program.boxed, cpu_s=_PRELOAD_CPU_S)
    except (RuntimeError, ValueError) as error:
        raise _Unusable(str(error)) from error
    # Worker functions are anyone's Python, and may rely on what os.fork does for it.
    fork = os.fork if functions else linux.fork
    image = Image(engine, EvalRunner(engine, functions), Snapshots(engine), fork)
    image.evals.prepare(base.options)
    skip = frozenset(base.skip_layers)
    layers = prepare_zygote(skip)
    # Anchors are reaped by the kernel: nobody asks us how one ended, the host holds a pidfd.
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)
    _settle_heap()
    _silence_stdio()
    _say(supervisor, wire.ZygoteUp(wire.PROTOCOL, layers, None))
    prepared = False
    more = select.poll()
    more.register(supervisor, select.POLLIN)
    while True:
        body, fds = receive(supervisor, max_fds=3)
        if not body:
            return
        spawn = wire.decode_to_zygote(body)
        if not isinstance(spawn, wire.Spawn) or len(fds) != 3:
            raise ProtocolError(f"expected Spawn with 3 sockets, got {len(fds)}")
        if spawn.idle:
            more.poll(_IDLE_PAUSE_MS)
        try:
            pid = spawn_anchor(skip)
        except OSError:
            # No process to be had now. Closing the leash unanswered tells the host so.
            pid = -1
        if pid == 0:
            supervisor.close()
            anchor.run(spawn, fds, image, layers, skip)
        for fd in fds:
            os.close(fd)
        if not prepared:
            # Off the path of the first session, which does without.
            compile_queries()
            image.evals.rehearse()
            _settle_heap()
            prepared = True


def _settle_heap() -> None:
    """Have workers write to as few of the pages that all of them share as can be."""
    gc.collect()
    fill_holes()
    # What is alive now never moves to another generation, where a collection would write to it.
    gc.freeze()


def _silence_stdio() -> None:
    null = os.open(os.devnull, os.O_RDWR)
    for fd in (0, 1, 2):
        os.dup2(null, fd)
    os.close(null)


def _say(supervisor: socket.socket, message: wire.ZygoteUp) -> None:
    try:
        supervisor.send(wire.encode_body(message))
    except OSError:
        os._exit(0)
