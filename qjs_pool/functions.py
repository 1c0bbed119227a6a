"""Worker functions on their way out: pickled by value, host to worker and never back."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from .errors import UsageError
from .tools import check_names, is_async


def pickled_functions(functions: Mapping[str, Callable[[Any], Any]]) -> dict[str, bytes]:
    """Each function as cloudpickle has it.

    Raises:
        UsageError: one is not callable, or cannot be pickled; the message names it.
    """
    if not isinstance(functions, Mapping):
        kind = type(functions).__name__
        raise UsageError(f"worker_functions must map names to functions, not be a {kind}")
    if not functions:
        return {}
    import cloudpickle

    check_names(functions)
    pickled: dict[str, bytes] = {}
    for name, function in functions.items():
        if not callable(function):
            raise UsageError(f"worker function {name!r} is not callable")
        if is_async(function):
            # There is no event loop in a worker, and nothing there to wait for.
            raise UsageError(f"worker function {name!r} is async; it must be a plain function")
        try:
            pickled[name] = cloudpickle.dumps(function)
        except Exception as error:
            raise UsageError(f"worker function {name!r} cannot be sent: {error}") from error
    return pickled
