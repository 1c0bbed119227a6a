"""One tool call as the relay knows it, and what a pool's relays are told to do with calls."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable
from typing import Any, Final, Literal, get_args

from .errors import UsageError
from .limits import seconds_or_error
from .runners import Cancel
from .tools import Tool, ToolErrors, unknown_policy


@dataclasses.dataclass(frozen=True, slots=True)
class ToolEvent:
    """What `on_tool_call` is told: a call's start, its end, or its error."""

    kind: Literal["start", "end", "error"]
    name: str
    call_id: int
    ms: float
    bytes: int


# What a tool may fail with. A SystemExit or KeyboardInterrupt raised by a tool ends its thread's
# work, not the host; other BaseExceptions are control flow of whoever made the tool.
_FAILURES: Final = (Exception, SystemExit, KeyboardInterrupt, GeneratorExit)


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class RelayOptions:
    """How a pool's sessions relay tool calls.

    `propagate`: exceptions that are no business of the guest's. They end the eval at once (its
    worker is killed, the session goes on as before) and are raised from it.
    """

    errors: ToolErrors = "message"
    timeout: float | None = None
    on_tool_call: Callable[[ToolEvent], None] | None = None
    propagate: Callable[[BaseException], bool] = lambda error: not isinstance(error, _FAILURES)

    def __post_init__(self) -> None:
        if self.errors not in get_args(ToolErrors):
            raise unknown_policy("tool_errors", self.errors)
        if self.timeout is not None:
            seconds = seconds_or_error("host_timeout", self.timeout)
            # The way to normalise a field of a frozen dataclass.
            object.__setattr__(self, "timeout", None if math.isinf(seconds) else seconds)
        if self.on_tool_call is not None and not callable(self.on_tool_call):
            raise UsageError(f"on_tool_call={self.on_tool_call!r} is not callable")


@dataclasses.dataclass(slots=True, eq=False)
class OpenCall:
    """A call that has no answer yet, and then its trace."""

    turn: int  # which of the session's evals made it
    call_id: int
    name: str
    number: int  # from 1, in its eval
    args: str  # empty once the tool has them, unless the call may have to wait for a person
    bytes_in: int
    tool: Tool
    started: float
    ends: float | None = None  # when it has to have answered
    cancel: Cancel | None = None  # None while it waits for a place
    again: Callable[[Any], Any] | None = None  # run in place of the tool, with the same input
    in_place: bool = False  # it takes one of the `host_concurrency` places
    outcome: Literal["ok", "error", "cancelled", "unknown"] = "unknown"
    bytes_out: int = 0
    ended: float = 0.0
