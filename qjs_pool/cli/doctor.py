"""`qjs-pool doctor`: what isolation this machine gives, layer by layer."""

from __future__ import annotations

import contextlib
import logging
import os
import platform
from collections.abc import Iterator, Mapping
from importlib import metadata
from typing import Final

from rich.table import Table
from rich.text import Text

from ..errors import QjsPoolError
from ..pool import Pool
from ..wire.layers import LAYERS, required_layers
from .output import console

_MEANING: Final = {
    "rlimits": "hard ceilings by the kernel: memory, CPU, no files, no core dumps",
    "no_new_privs": "no program run by a worker could gain privileges",
    "capabilities": "all dropped",
    "uid": "nobody when started by root, else the same ordinary user",
    "non_dumpable": "no other process of the user can read a worker's memory",
    "seccomp": "an allow-list of system calls: no open, socket, exec or ptrace",
    "landlock": "second wall: no files, no TCP, no signals to outside",
    "user_namespace": "its own user ids, which make the other namespaces possible",
    "pid_namespace": "sees no other process; ending its anchor ends all of it",
    "net_namespace": "a network without interfaces",
    "ipc_namespace": "no shared memory or queues of others",
    "process_bound": "a cap on the processes a session can fork",
    "oom_score": "the kernel's out-of-memory killer takes a worker before the host",
}
_MODES: Final = ("strict", "auto", "best-effort")


def doctor(*, skip_layers: tuple[str, ...] = ()) -> int:
    """Print the findings; 1 if a pool with the default `isolation="auto"` cannot start here.

    Args:
        skip_layers: layers to leave off, as on a machine that lacks them.
    """
    out = console()
    out.print(f"qjs-pool  {_version('qjs-pool')}")
    out.print(f"kernel    {platform.system()} {platform.release()} {platform.machine()}")
    out.print(f"python    {platform.python_version()} ({platform.python_implementation()})")
    out.print(f"engine    {_engine()}")
    out.print(f"user      {'root' if os.geteuid() == 0 else f'uid {os.geteuid()}'}\n")
    try:
        with (
            _only_errors(),  # the table says it all
            Pool(isolation="best-effort", _skip_layers=skip_layers) as pool,
        ):
            layers = pool.isolation
            with pool.session() as session:
                answer = session.eval("6 * 7")
    except QjsPoolError as error:
        out.print(f"no worker can be started: {error}", style="red")
        return 1
    out.print(_table(layers), soft_wrap=False)
    out.print()
    missing = {name for name in LAYERS if layers.get(name) != "on"}
    for mode in _MODES:
        lacking = sorted(required_layers(mode) & missing)
        verdict = f"cannot start: lacks {', '.join(lacking)}" if lacking else "starts"
        out.print(f"isolation={mode!r:14} {verdict}", style="red" if lacking else "green")
    if answer.text != "42":
        out.print(f"a worker answered wrongly: {answer!r}", style="red")
        return 1
    return int(bool(required_layers("auto") & missing))


@contextlib.contextmanager
def _only_errors() -> Iterator[None]:
    logger = logging.getLogger("qjs_pool")
    before = logger.level
    logger.setLevel(logging.ERROR)
    try:
        yield
    finally:
        logger.setLevel(before)


def _table(layers: Mapping[str, str]) -> Table:
    table = Table(box=None, pad_edge=False)
    for title in ("layer", "state", "what it does"):
        table.add_column(title, overflow="fold")
    for name in _MEANING:
        state = layers.get(name, "not reported")
        shown = Text(state, style="green" if state == "on" else "yellow")
        table.add_row(name, shown, _MEANING[name])
    return table


def _engine() -> str:
    for name in ("quickjs-ng", "quickjs"):
        try:
            return f"{name} {metadata.version(name)}"
        except metadata.PackageNotFoundError:
            continue
    return "of unknown distribution"


def _version(name: str) -> str:
    try:
        return metadata.version(name)
    except metadata.PackageNotFoundError:
        return "not installed"
