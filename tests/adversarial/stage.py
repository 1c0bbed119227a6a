"""The host's side of the saboteur's play: real host code, with a saboteur in the worker's place."""

from __future__ import annotations

import contextlib
import os
import select
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Final

import psutil

from qjs_pool import EvalResult, Limits, Pool
from qjs_pool.calls import RelayOptions
from qjs_pool.core import Core
from qjs_pool.drive import drive
from qjs_pool.link import Family, Link, socket_pair, vouching_pair
from qjs_pool.options import SessionOptions
from qjs_pool.relay import Relay
from qjs_pool.runners import Runner
from qjs_pool.tools import Toolbox, ToolLike

_SCRIPT: Final = Path(__file__).with_name("saboteur.py")
_PATIENCE_S: Final = 20.0


class Stage:
    """A session whose first worker is a saboteur, and whose next ones are honest."""

    def __init__(
        self, pool: Pool, scene: str, limits: Limits, tools: dict[str, ToolLike] | None = None
    ) -> None:
        honest = pool._core
        toolbox = Toolbox.of(tools)
        runner = Runner(honest.threads, honest.background.get)
        self.limits = limits
        self.saboteurs: list[subprocess.Popen[bytes]] = []
        self.honest_workers = 0
        self._options = SessionOptions(
            limits=limits, durable=True, clock="off", seed="00", tools=toolbox.described()
        )

        def obtain(idle: bool) -> Link:
            if not self.saboteurs:
                return self._sabotaged_link(scene)
            self.honest_workers += 1
            return honest.obtain(limits)

        def make_relay(poller: select.epoll) -> Relay:
            return Relay(toolbox, limits, runner, RelayOptions(), poller)

        self.core = Core(self._options, obtain, make_relay)

    def _sabotaged_link(self, scene: str) -> Link:
        with contextlib.ExitStack() as theirs:
            ours: list[socket.socket] = []
            numbers: list[int] = []
            for make in (vouching_pair, vouching_pair, lambda: socket_pair(socket.SOCK_STREAM)):
                end, far_end = make()
                theirs.enter_context(far_end)
                ours.append(end)
                numbers.append(far_end.fileno())
            cap = str(self._options.max_frame_bytes)
            self.saboteurs.append(
                subprocess.Popen(
                    [sys.executable, str(_SCRIPT), scene, *map(str, numbers), cap],
                    pass_fds=numbers,
                    start_new_session=True,
                )
            )
        leash, control, data = ours
        return Link(Family(leash), data, control)

    def eval(self, code: str) -> EvalResult:
        return drive(self.core, lambda: self.core.eval(code, self.limits.cpu))

    @property
    def saboteur(self) -> psutil.Process:
        return psutil.Process(self.saboteurs[0].pid)

    def ended(self) -> int:
        """How the saboteur ended; it has to, once nobody needs it."""
        return self.saboteurs[0].wait(_PATIENCE_S)

    def close(self) -> None:
        self.core.close()
        for process in self.saboteurs:
            try:
                process.wait(_PATIENCE_S)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
                raise


def descriptors() -> int:
    """How many descriptors this process has open."""
    return len(os.listdir("/proc/self/fd"))


@contextlib.contextmanager
def peak_growth() -> Iterator[Callable[[], int]]:
    """By how many bytes this process has grown, at its peak, since the block began."""
    Path("/proc/self/clear_refs").write_text("5", encoding="ascii")  # forget the peak so far

    def read(field: str) -> int:
        for line in Path("/proc/self/status").read_text(encoding="ascii").splitlines():
            if line.startswith(field + ":"):
                return int(line.split()[1]) << 10
        raise AssertionError(field)

    before = read("VmRSS")
    yield lambda: read("VmHWM") - before
