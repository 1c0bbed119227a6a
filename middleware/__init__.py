"""The agent side: the middleware for LangChain and Deep Agents, and in `agent` a loop of our own.

Without the extra `langchain` it works too, on that loop. Public names are those in `__all__`, here
and in `agent`, nothing else.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .interpreter import CodeInterpreterMiddleware

__all__ = ["CodeInterpreterMiddleware"]

_HOMES = {"CodeInterpreterMiddleware": "interpreter"}


def __getattr__(name: str) -> Any:
    try:
        home = _HOMES[name]
    except KeyError:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}") from None
    return getattr(importlib.import_module(f".{home}", __name__), name)


def __dir__() -> list[str]:
    return sorted(__all__)
