"""How a process ended, in words."""

from __future__ import annotations

import os
import signal
from typing import Final

from .wire import messages as wire

_MEANINGS: Final = {
    wire.EXIT_REFUSED: "refused to serve",
    wire.EXIT_ROLLBACK: "left to roll its state back",
    wire.EXIT_OUT_OF_MEMORY: "out of memory",
    wire.EXIT_PROTOCOL: "protocol violation by the host",
    wire.EXIT_INTERNAL: "internal error, see the log",
}


def describe_exit(wait_status: int) -> str:
    """`killed by SIGSYS (31)` or `exited with status 76 (out of memory)`."""
    try:
        code = os.waitstatus_to_exitcode(wait_status)
    except (ValueError, OverflowError):  # a keeper said it, and a taken-over one says anything
        return f"ended with the impossible wait status {wait_status}"
    if code >= 0:
        meaning = f" ({_MEANINGS[code]})" if code in _MEANINGS else ""
        return f"exited with status {code}{meaning}"
    try:
        name = signal.Signals(-code).name
    except ValueError:  # most real-time signals have no name
        return f"killed by signal {-code}"
    return f"killed by {name} ({-code})"


def describe_death(wait_status: int | None, peak_rss_bytes: int) -> str:
    """The exit in words, with the most memory the process held where that is known."""
    if wait_status is None:
        return "ended with its keeper, so nobody could say how"
    after = f" after {peak_rss_bytes / (1 << 20):.0f} MiB" if peak_rss_bytes else ""
    return describe_exit(wait_status) + after
