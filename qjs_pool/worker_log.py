"""A worker's log lines, in the host's log."""

from __future__ import annotations

import logging
import re
from typing import Final

from .wire import messages as wire

_UNPRINTABLE: Final = re.compile(r"[^\n\t -~\xa0-\U0010ffff]")
_log: Final = logging.getLogger("qjs_pool.worker")


def re_emit(message: wire.Log) -> None:
    """Log it; indented and without control characters, so that a worker cannot forge a line."""
    text = _UNPRINTABLE.sub("?", message.text).replace("\n", "\n  | ")
    _log.log(message.level, "%s", text)
