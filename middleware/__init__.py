"""The LangChain / Deep Agents middleware. Imports without langchain; using it needs the extra.

Public names are those in `__all__`, nothing else.
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
    try:
        module = importlib.import_module(f".{home}", __name__)
    except ModuleNotFoundError as error:
        if (error.name or "").partition(".")[0] not in ("langchain", "langgraph"):
            raise
        raise ImportError(
            f"{name} needs langchain and langgraph, and {error.name} is not installed: "
            f"pip install 'qjs-pool[langchain]' (or 'qjs-pool[deepagents]')"
        ) from error
    return getattr(module, name)


def __dir__() -> list[str]:
    return sorted(__all__)
