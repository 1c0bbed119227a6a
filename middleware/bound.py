"""Context variables that have a value for a while."""

from __future__ import annotations

import contextlib
import contextvars
from collections.abc import Iterator
from typing import TypeVar

T = TypeVar("T")


@contextlib.contextmanager
def bound(variable: contextvars.ContextVar[T], value: T) -> Iterator[None]:
    """Give a context variable a value within the block. Threads and tasks inherit it."""
    token = variable.set(value)
    try:
        yield
    finally:
        # A coroutine whose loop was closed is ended by somebody else, in another context: its own
        # one is gone with its task.
        with contextlib.suppress(ValueError):
            variable.reset(token)
