"""The sync driver: walks a session's steps in the calling thread."""

from __future__ import annotations

import time
from collections.abc import Callable

from .core import Core
from .steps import Steps, T


def drive(core: Core, make: Callable[[], Steps[T]]) -> T:
    """Wait for the session's turn, then run the steps to their end.

    An exception in here (Ctrl-C) closes the steps, which stops the guest.
    """
    core.turns.wait(core.turns.enter())
    core.relay.loop = None
    try:
        return _walk(core, make())
    finally:
        core.turns.leave()


def _walk(core: Core, steps: Steps[T]) -> T:
    wait = core.poller.poll
    try:
        deadline = next(steps)
        while True:
            left = None if deadline is None else max(0.0, deadline - time.monotonic())
            deadline = steps.send(wait(left))
    except StopIteration as stop:
        result: T = stop.value
        return result
    finally:
        steps.close()
