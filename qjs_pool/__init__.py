"""qjs-pool: agent-written JavaScript and TypeScript in sandboxed QuickJS worker processes.

Names are resolved when first used, because the zygote imports this package too and must load
nothing of the host side.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .aio import AsyncPool, AsyncSession
    from .calls import ToolEvent
    from .errors import (
        EvalError,
        GuestError,
        IsolationUnavailable,
        PoolExhausted,
        QjsPoolError,
        QueueFull,
        SessionClosed,
        SnapshotRejected,
        SpawnError,
        UsageError,
        ValueConversionError,
        ValueTooLarge,
    )
    from .limits import Limits
    from .pool import Pool
    from .result import Call, EvalResult, Usage
    from .session import Session
    from .snapshots import (
        SnapshotDocument,
        SnapshotGlobal,
        SnapshotInfo,
        inspect_snapshot,
    )
    from .tools import Tool

_HOMES = {
    "AsyncPool": "aio",
    "AsyncSession": "aio",
    "Call": "result",
    "EvalError": "errors",
    "EvalResult": "result",
    "GuestError": "errors",
    "IsolationUnavailable": "errors",
    "Limits": "limits",
    "Pool": "pool",
    "PoolExhausted": "errors",
    "QjsPoolError": "errors",
    "QueueFull": "errors",
    "Session": "session",
    "SessionClosed": "errors",
    "SnapshotDocument": "snapshots",
    "SnapshotGlobal": "snapshots",
    "SnapshotInfo": "snapshots",
    "SnapshotRejected": "errors",
    "SpawnError": "errors",
    "Tool": "tools",
    "ToolEvent": "calls",
    "Usage": "result",
    "UsageError": "errors",
    "ValueConversionError": "errors",
    "ValueTooLarge": "errors",
    "inspect_snapshot": "snapshots",
}

__all__ = [
    "AsyncPool",
    "AsyncSession",
    "Call",
    "EvalError",
    "EvalResult",
    "GuestError",
    "IsolationUnavailable",
    "Limits",
    "Pool",
    "PoolExhausted",
    "QjsPoolError",
    "QueueFull",
    "Session",
    "SessionClosed",
    "SnapshotDocument",
    "SnapshotGlobal",
    "SnapshotInfo",
    "SnapshotRejected",
    "SpawnError",
    "Tool",
    "ToolEvent",
    "Usage",
    "UsageError",
    "ValueConversionError",
    "ValueTooLarge",
    "inspect_snapshot",
]


def __getattr__(name: str) -> Any:
    try:
        home = _HOMES[name]
    except KeyError:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}") from None
    return getattr(importlib.import_module(f".{home}", __name__), name)


def __dir__() -> list[str]:
    return sorted(__all__)
