"""Tools as the host offers them, and the names under which the guest sees them."""

from __future__ import annotations

import asyncio
import dataclasses
import inspect
import math
import re
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Final, Literal, get_args

from .errors import UsageError
from .limits import seconds_or_error
from .wire import messages as wire
from .wire.values import well_formed

ToolErrors = Literal["message", "type", "none"]

_SEPARATORS: Final = re.compile(r"[_\-. /:]+(.)?")
# Taken: by helpers of `tools` itself, and by promises (an object with `then` is one).
_RESERVED: Final = frozenset({"then", "$describe"})
# What any tool says to its caller on purpose, whoever the caller is; by name, as the libraries that
# define them are none of ours.
_ALWAYS_SHOWN: Final = frozenset({"ValidationError", "ToolException"})
# What may be a global: of any other name a program, a snapshot or the engine may have its own.
_GLOBALS: Final = frozenset({"task"})
_IDENTIFIER: Final = re.compile(r"[A-Za-z_$][\w$]*\Z", re.ASCII)


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Tool:
    """A tool for a session, where a plain callable does not say enough.

    Args:
        call: sync or async; gets the input (a dict, as a rule) and returns plain data.
        required: names of the input's required fields; a lone string goes to the only one.
        description: what `tools.$describe(name)` answers.
        errors: what the guest learns of an exception: "message" (class and message), "type"
            (class only), "none". None: as the pool.
        timeout: seconds for one call; None: as the pool's `host_timeout`.
        concurrency: calls of it that run at once in a session, the rest waits; it then takes none
            of the session's `host_concurrency` places. None: it takes those.
        is_global: programs call it by its name alone, as `task(input)`. Only `task` may be one.
        holds: an eval that may be suspended stops where it has called this tool, and does not
            return, until the call has ended.
    """

    call: Callable[[Any], Any]
    required: tuple[str, ...] | None = None
    description: str = ""
    errors: ToolErrors | None = None
    timeout: float | None = None
    concurrency: int | None = None
    is_global: bool = False
    holds: bool = False

    def __post_init__(self) -> None:
        if not callable(self.call):
            raise UsageError(f"tool call={self.call!r} is not callable")
        if self.errors is not None and self.errors not in get_args(ToolErrors):
            raise unknown_policy("errors", self.errors)
        if self.required is not None:
            names = self.required
            if isinstance(names, str) or not all(isinstance(name, str) for name in names):
                raise UsageError(f"required={names!r} must be a tuple of field names")
        if not isinstance(self.description, str):
            raise UsageError(f"description={self.description!r} is not text")
        if self.timeout is not None:
            seconds = seconds_or_error("timeout", self.timeout)
            # The way to normalise a field of a frozen dataclass.
            object.__setattr__(self, "timeout", None if math.isinf(seconds) else seconds)
        many = self.concurrency
        if many is not None and (isinstance(many, bool) or not isinstance(many, int) or many < 1):
            raise UsageError(f"concurrency={many!r} must be a whole number of at least 1, or None")


ToolLike = Callable[[Any], Any] | Tool


@dataclasses.dataclass(frozen=True, slots=True)
class Toolbox:
    """The tools of one session, under the host's names."""

    tools: Mapping[str, Tool]
    _by_guest_name: Mapping[str, Tool]

    @classmethod
    def of(cls, tools: Mapping[str, ToolLike] | None) -> Toolbox:
        """Check names and callables.

        Raises:
            UsageError: a name gives no JavaScript identifier, or two names give the same one.
        """
        if tools is not None and not isinstance(tools, Mapping):
            raise UsageError(f"tools must map names to callables, not be a {type(tools).__name__}")
        named = {
            name: tool if isinstance(tool, Tool) else Tool(call=tool)
            for name, tool in (tools or {}).items()
        }
        check_names(named)
        for name, tool in named.items():
            if tool.is_global and guest_name(name) not in _GLOBALS:
                raise UsageError(f"tool {name!r} can't be a global; only 'task' can")
        return cls(named, {guest_name(name): tool for name, tool in named.items()})

    def find(self, name: str) -> Tool | None:
        """The tool that a guest's call names."""
        return self._by_guest_name.get(name)

    def described(self) -> tuple[wire.Tool, ...]:
        """The tools as the worker needs to know them."""
        return tuple(
            wire.Tool(
                guest_name(name),
                well_formed(name),
                None if tool.required is None else [well_formed(n) for n in tool.required],
                well_formed(tool.description),
                tool.is_global,
                tool.holds,
            )
            for name, tool in self.tools.items()
        )


def unknown_policy(option: str, value: object) -> UsageError:
    """The error for a policy of tool errors that there is none of."""
    return UsageError(
        f"{option}={value!r} is unknown; choose one of {', '.join(get_args(ToolErrors))}"
    )


def guest_name(name: str) -> str:
    """The JavaScript name of a tool: `web_search` and `web-search` become `webSearch`."""
    head, *rest = _SEPARATORS.split(name)
    return head + "".join(
        (part or "").upper() if index % 2 == 0 else part or "" for index, part in enumerate(rest)
    )


def check_names(names: Iterable[str]) -> None:
    """Raise UsageError for a name that is no identifier in JavaScript, or that collides."""
    taken: dict[str, str] = {}
    for name in names:
        if not isinstance(name, str) or not _IDENTIFIER.match(guest_name(name)):
            raise UsageError(f"tool name {name!r} gives no JavaScript identifier; rename the tool")
        if guest_name(name) in _RESERVED:
            raise UsageError(f"tool name {name!r} has a meaning of its own; rename the tool")
        other = taken.get(guest_name(name))
        if other is not None:
            raise UsageError(
                f"tools {other!r} and {name!r} would both be tools.{guest_name(name)}; "
                f"rename one of them"
            )
        taken[guest_name(name)] = name


def is_async(call: Callable[[Any], Any]) -> bool:
    """Whether calling it gives a coroutine."""
    return inspect.iscoroutinefunction(call) or inspect.iscoroutinefunction(
        getattr(call, "__call__", None)  # noqa: B004  an object with an async __call__
    )


def describe_error(error: BaseException, policy: ToolErrors) -> tuple[str, str]:
    """What the guest learns of a tool's exception: name and message, never a traceback."""
    if isinstance(error, asyncio.CancelledError):
        return "Cancelled", "the call was cancelled"
    if policy == "none":
        return "ToolError", "the tool failed"
    name = type(error).__name__
    told = {kind.__name__ for kind in type(error).__mro__} & _ALWAYS_SHOWN
    if policy == "type" and not told and not isinstance(error, UsageError):
        return name, "the tool failed"
    try:
        return name, str(error)[:4000]
    except Exception:  # an exception with a broken __str__ is the tool's fault, as the rest
        return name, "the tool failed"
