"""Worker functions: host-given Python callables that run inside the sandbox.

They are unpickled here, in the zygote and before any lockdown, because loading one imports
its modules. Pickles flow this one way only: host to worker.
"""

from collections.abc import Callable, Mapping
from typing import Any

Functions = Mapping[str, Callable[[Any], Any]]


def load_functions(pickled: Mapping[str, bytes]) -> Functions:
    """Unpickle each function.

    Raises:
        RuntimeError: one does not load or is not callable; its name is in the message.
    """
    loaded: dict[str, Callable[[Any], Any]] = {}
    if not pickled:
        return loaded
    import cloudpickle  # not at the top: it is a third of the zygote's start, and rarely needed

    for name, data in pickled.items():
        try:
            function = cloudpickle.loads(data)
        except Exception as error:
            raise RuntimeError(
                f"worker function {name!r} does not load in the worker: "
                f"{type(error).__name__}: {error}"
            ) from error
        if not callable(function):
            raise RuntimeError(f"worker function {name!r} is not callable")
        loaded[name] = function
    return loaded
