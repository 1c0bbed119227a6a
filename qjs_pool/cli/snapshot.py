"""`qjs-pool snapshot`: what is in a snapshot, without running anything of it."""

from __future__ import annotations

import dataclasses
import json
import sys
from pathlib import Path

import typer
from rich.table import Table
from rich.text import Text

from ..errors import SnapshotRejected
from ..snapshots import SnapshotInfo, inspect_snapshot
from .output import console, safe
from .run import EXIT_GUEST_ERROR


def snapshot(file: str, *, json_output: bool) -> int:
    """Print the globals of a snapshot with kind and size; the exit status."""
    try:
        blob = sys.stdin.buffer.read() if file == "-" else Path(file).read_bytes()
    except OSError as error:
        raise typer.BadParameter(f"cannot read {file}: {error.strerror}") from None
    try:
        info = inspect_snapshot(blob)
    except SnapshotRejected as error:
        console(stderr=True).print(safe(str(error)), style="red")
        return EXIT_GUEST_ERROR
    if json_output:
        sys.stdout.write(json.dumps(dataclasses.asdict(info)) + "\n")
    else:
        _print(info)
    return 0


def _print(info: SnapshotInfo) -> None:
    out = console()
    signed = "signed" if info.signed else "not signed"
    out.print(
        f"format {info.version}, {signed}, {info.size} bytes for {info.state_bytes} bytes of state"
    )
    if not info.globals:
        out.print("no globals")
        return
    table = Table(box=None, pad_edge=False)
    for title in ("global", "kind"):
        table.add_column(title, overflow="fold")
    table.add_column("bytes", justify="right")
    table.add_column("stored with", overflow="fold")
    groups: dict[int, list[str]] = {}
    for item in info.globals:
        groups.setdefault(item.group, []).append(item.name)
    for item in info.globals:
        others = groups[item.group]
        shown = ", ".join(name for name in others[:6] if name != item.name)
        # Names are the guest's choice.
        table.add_row(*(Text(safe(text)) for text in (item.name, item.kind)), str(item.size),
                      Text(safe(shown)))  # fmt: skip
    out.print(table)
