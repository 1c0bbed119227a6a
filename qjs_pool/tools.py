"""Tools as the host offers them, and the names under which the guest sees them."""

from __future__ import annotations

import dataclasses
import inspect
import re
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Final, Literal, get_args

from .errors import UsageError
from .limits import seconds_or_error
from .wire import messages as wire

ToolErrors = Literal["message", "type", "none"]

_SEPARATORS: Final = re.compile(r"[_\-. /:]+(.)?")
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
    """

    call: Callable[[Any], Any]
    required: tuple[str, ...] | None = None
    description: str = ""
    errors: ToolErrors | None = None
    timeout: float | None = None

    def __post_init__(self) -> None:
        if not callable(self.call):
            raise UsageError(f"tool call={self.call!r} is not callable")
        if self.errors is not None and self.errors not in get_args(ToolErrors):
            raise UsageError(
                f"errors={self.errors!r} is unknown; choose one of {', '.join(get_args(ToolErrors))}"
            )
        if self.timeout is not None:
            seconds_or_error("timeout", self.timeout)


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
            raise UsageError(
                f"tools must map names to callables, not be a {type(tools).__name__}"
            )
        named = {
            name: tool if isinstance(tool, Tool) else Tool(call=tool)
            for name, tool in (tools or {}).items()
        }
        check_names(named)
        return cls(named, {guest_name(name): tool for name, tool in named.items()})

    def find(self, name: str) -> Tool | None:
        """The tool that a guest's call names."""
        return self._by_guest_name.get(name)

    def described(self) -> tuple[wire.Tool, ...]:
        """The tools as the worker needs to know them."""
        return tuple(
            wire.Tool(
                guest_name(name),
                name,
                None if tool.required is None else list(tool.required),
                tool.description,
            )
            for name, tool in self.tools.items()
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
            raise UsageError(
                f"tool name {name!r} gives no JavaScript identifier; rename the tool"
            )
        other = taken.setdefault(guest_name(name), name)
        if other != name:
            raise UsageError(
                f"tools {other!r} and {name!r} would both be tools.{guest_name(name)}; "
                f"rename one of them"
            )


def is_async(call: Callable[[Any], Any]) -> bool:
    """Whether calling it gives a coroutine."""
    return inspect.iscoroutinefunction(call) or inspect.iscoroutinefunction(
        getattr(call, "__call__", None)  # noqa: B004  an object with an async __call__
    )
