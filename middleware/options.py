"""The constructor's options, checked when they are given: a bad value names its option."""

from __future__ import annotations

import dataclasses
import math
import operator
import os
import re
import warnings
from collections.abc import Mapping, Sequence
from typing import Any, Final, Literal, get_args

from langchain_core.tools import BaseTool

from qjs_pool.errors import UsageError
from qjs_pool.limits import Limits
from qjs_pool.pool_front import PoolFront
from qjs_pool.tools import check_names

from .approval import Gates, checked_gates
from .seam import BaseStore
from .store import FolderStore, GraphStore, Store

Mode = Literal["thread", "turn", "call"]
Clock = Literal["off", "frozen", "real"]

_TOOL_NAME: Final = re.compile(r"[A-Za-z0-9_-]{1,64}\Z")
_OPTIONS_OF_LIMITS: Final = {
    "memory": "memory_limit",
    "stack": "max_stack_size",
    "cpu": "timeout",
    "wall": "wall_timeout",
    "result_chars": "max_result_chars",
    "console_chars": "max_result_chars",
    "host_calls": "max_ptc_calls",
    "snapshot_bytes": "max_snapshot_bytes",
}
# As the errors of `Limits` name the one that they are about.
_NAMED_LIMIT: Final = re.compile(rf"\b({'|'.join(_OPTIONS_OF_LIMITS)})(?==| is over)")


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """The options of one middleware, valid ones."""

    memory_limit: int
    timeout: float | None
    wall_timeout: float | None
    max_stack_size: int
    tool_name: str
    capture_console: bool
    max_result_chars: int
    ptc: tuple[str | BaseTool, ...]
    ptc_interrupt_on: Gates
    max_ptc_calls: int | None
    subagents: bool
    max_subagent_concurrency: int
    mode: Mode
    max_snapshot_bytes: int
    snapshot_keys: tuple[bytes, ...]  # the first one signs
    snapshot_store: Store | None
    park: float
    max_parked: int
    skills_backend: Any
    system_prompt: str | None
    clock: Clock
    pool: PoolFront | None
    propagate_tool_errors: bool
    limits: Limits


def checked_options(given: Mapping[str, Any]) -> Options:
    """The options of `CodeInterpreterMiddleware`.

    Raises:
        TypeError: a value is of the wrong kind; ValueError: out of range, or contradictory.
    """
    timeout = _cpu_seconds(given["timeout"])
    wall_timeout = _wall_seconds(given["wall_timeout"])
    stack = given["max_stack_size"]
    numbers = {
        "memory_limit": _whole(given, "memory_limit", 1 << 20),
        "max_stack_size": Limits().stack if stack is None else _whole(given, "max_stack_size", 1),
        "max_ptc_calls": None
        if given["max_ptc_calls"] is None
        else _whole(given, "max_ptc_calls", 1),
        "max_result_chars": _whole(given, "max_result_chars", 1),
        "max_subagent_concurrency": _whole(given, "max_subagent_concurrency", 1),
    }
    snapshot_bytes = (
        None if given["max_snapshot_bytes"] is None else _whole(given, "max_snapshot_bytes", 1)
    )
    ptc = _allowlist(given["ptc"])
    if "task" in ptc and given["subagents"] is True:
        warnings.warn(
            "'task' in ptc is deprecated: where an agent has subagents, programs start them with "
            "the global task(), which needs no entry",
            DeprecationWarning,
            stacklevel=3,
        )
    pool = given["pool"]
    if pool is not None and not isinstance(pool, PoolFront):
        raise TypeError(f"pool must be a qjs_pool Pool or AsyncPool, not {_kind(pool)}")
    return Options(
        memory_limit=numbers["memory_limit"] or 0,
        timeout=timeout,
        wall_timeout=wall_timeout,
        max_stack_size=numbers["max_stack_size"] or 0,
        tool_name=_tool_name(given["tool_name"]),
        capture_console=_flag(given, "capture_console"),
        max_result_chars=numbers["max_result_chars"] or 0,
        ptc=ptc,
        ptc_interrupt_on=checked_gates(given["ptc_interrupt_on"]),
        max_ptc_calls=numbers["max_ptc_calls"],
        subagents=_flag(given, "subagents"),
        max_subagent_concurrency=numbers["max_subagent_concurrency"] or 0,
        mode=_mode(given["mode"], given["snapshot_between_turns"]),
        max_snapshot_bytes=numbers["memory_limit"] or 0
        if snapshot_bytes is None
        else snapshot_bytes,
        snapshot_keys=_keys(given["snapshot_signing_key"]),
        snapshot_store=_store(given["snapshot_store"]),
        park=_park_seconds(given["park"]),
        max_parked=_whole(given, "max_parked", 0),
        skills_backend=_backend(given["skills_backend"]),
        system_prompt=_text_or_none(given, "system_prompt"),
        clock=_clock(given["clock"], pool),
        pool=pool,
        propagate_tool_errors=_flag(given, "propagate_tool_errors"),
        limits=_limits(numbers, timeout, wall_timeout, snapshot_bytes, pool),
    )


def _limits(
    numbers: Mapping[str, int | None],
    timeout: float | None,
    wall_timeout: float | None,
    snapshot_bytes: int | None,
    pool: PoolFront | None,
) -> Limits:
    """The limits of the sessions, checked against the pool they are to live in."""
    try:
        limits = Limits(
            memory=numbers["memory_limit"] or 0,
            stack=numbers["max_stack_size"] or 0,
            cpu=timeout,
            wall=wall_timeout,
            result_chars=numbers["max_result_chars"] or 0,
            console_chars=numbers["max_result_chars"] or 0,
            host_calls=numbers["max_ptc_calls"],
            snapshot_bytes=None if snapshot_bytes is None else max(snapshot_bytes, 1024),
        )
        if pool is not None:
            pool._core.options.limits.narrowed(limits)
    except UsageError as error:
        message = _NAMED_LIMIT.sub(lambda it: _OPTIONS_OF_LIMITS[it[1]], str(error), count=1)
        raise ValueError(message) from None
    return limits


def _cpu_seconds(value: object) -> float | None:
    seconds = _number("timeout", value)
    if seconds is None or seconds < 0 or math.isinf(seconds):
        return None
    if seconds == 0 or math.isnan(seconds):
        raise ValueError(
            f"timeout={value!r} leaves no CPU time; give seconds, or None for no limit"
        )
    return seconds


def _wall_seconds(value: object) -> float | None:
    seconds = _number("wall_timeout", value)
    if seconds is None or seconds == math.inf:
        return None
    if math.isnan(seconds) or seconds <= 0:
        raise ValueError(f"wall_timeout={value!r} must be over 0 seconds, or None for no limit")
    return seconds


def _number(name: str, value: object) -> float | None:
    if value is None:
        return None
    if isinstance(value, (bool, str, bytes)):
        raise TypeError(f"{name} must be a number of seconds or None, not {_kind(value)}")
    try:
        return float(value)  # type: ignore[arg-type]
    except (TypeError, ValueError):
        raise TypeError(f"{name} must be a number of seconds or None, not {_kind(value)}") from None
    except OverflowError:  # an integer that no float can hold
        raise ValueError(f"{name} is too large; None is the way to say no limit") from None


def _whole(given: Mapping[str, Any], name: str, low: int) -> int:
    value = given[name]
    try:
        if isinstance(value, bool):
            raise TypeError
        number = operator.index(value)
    except TypeError:
        raise TypeError(f"{name} must be an integer, not {_kind(value)}") from None
    if number < low:
        raise ValueError(f"{name}={number} must be at least {low}")
    return number


def _flag(given: Mapping[str, Any], name: str) -> bool:
    value = given[name]
    if not isinstance(value, bool):
        raise TypeError(f"{name} must be True or False, not {_kind(value)}")
    return value


def _text_or_none(given: Mapping[str, Any], name: str) -> str | None:
    value = given[name]
    if value is not None and not isinstance(value, str):
        raise TypeError(f"{name} must be a str or None, not {_kind(value)}")
    return value


def _tool_name(value: object) -> str:
    if not isinstance(value, str):
        raise TypeError(f"tool_name must be a str, not {_kind(value)}")
    if not _TOOL_NAME.match(value):
        raise ValueError(
            f"tool_name={value!r} must be 1 to 64 letters, digits, underscores or dashes"
        )
    return value


def _mode(value: object, snapshot_between_turns: object) -> Mode:
    mode = "thread" if value is None else value
    if mode not in get_args(Mode):
        raise ValueError(f"mode={value!r} is unknown; choose 'thread', 'turn' or 'call'")
    if snapshot_between_turns is None:
        return mode  # type: ignore[return-value]  # one of its values, just checked
    if not isinstance(snapshot_between_turns, bool):
        raise TypeError(
            f"snapshot_between_turns must be True or False, not {_kind(snapshot_between_turns)}"
        )
    alias: Mode = "thread" if snapshot_between_turns else "turn"
    warnings.warn(
        f"snapshot_between_turns is deprecated; use mode={alias!r}",
        DeprecationWarning,
        stacklevel=4,
    )
    if mode not in ("thread", alias):
        raise ValueError(
            f"snapshot_between_turns={snapshot_between_turns} means mode={alias!r}, "
            f"which contradicts mode={mode!r}"
        )
    return alias


def _clock(value: object, pool: PoolFront | None) -> Clock:
    if value not in get_args(Clock):
        raise ValueError(f"clock={value!r} is unknown; choose 'off', 'frozen' or 'real'")
    if pool is None:
        return value  # type: ignore[return-value]  # one of its values, just checked
    own: Clock = pool._core.options.clock
    # As with limits: the default means "as the pool has it".
    if value not in ("off", own):
        raise ValueError(
            f"clock={value!r} contradicts the pool's clock={own!r}; set it on the pool"
        )
    return own


def _keys(value: object) -> tuple[bytes, ...]:
    if value is None:
        return ()
    keys = value if isinstance(value, (list, tuple)) else (value,)
    for key in keys:
        if not isinstance(key, (str, bytes)):
            raise TypeError(
                f"snapshot_signing_key must be str or bytes, or a list of them, not {_kind(key)}"
            )
    if not keys or not all(keys):
        raise ValueError("snapshot_signing_key is empty; give a secret, or None")
    return tuple(
        key.encode("utf-8", "surrogatepass") if isinstance(key, str) else key for key in keys
    )


def _store(value: object) -> Store | None:
    if value is None:
        return None
    if isinstance(value, BaseStore):
        return GraphStore(value)
    if not isinstance(value, (str, os.PathLike)):
        raise TypeError(f"snapshot_store must be a folder or a LangGraph store, not {_kind(value)}")
    if not os.fspath(value):
        raise ValueError("snapshot_store is empty; give a folder, or None")
    return FolderStore(value)


def _park_seconds(value: object) -> float:
    seconds = _number("park", value)
    if seconds is None:
        raise TypeError("park must be a number of seconds, not None; 0 turns it off")
    if math.isnan(seconds) or seconds < 0:
        raise ValueError(f"park={value!r} must be at least 0 seconds")
    return seconds


def _backend(value: Any) -> Any:
    if value is None or callable(value):
        return value
    if not hasattr(value, "ls") or not hasattr(value, "download_files"):
        raise TypeError(
            f"skills_backend must be a Deep Agents backend (with ls and download_files) "
            f"or a callable that makes one, not {_kind(value)}"
        )
    return value


def _allowlist(value: Any) -> tuple[str | BaseTool, ...]:
    if value is None:
        return ()
    if isinstance(value, (str, BaseTool)) or not isinstance(value, (Sequence, set, frozenset)):
        raise TypeError(f"ptc must be a list of tool names and tools, not {_kind(value)}")
    for entry in value:
        if not isinstance(entry, (str, BaseTool)):
            raise TypeError(
                f"ptc entries must be tool names, patterns or BaseTool objects, not {_kind(entry)}"
            )
        if not isinstance(entry, BaseTool) and not entry.lstrip("!").strip():
            raise ValueError(f"ptc entry {entry!r} is empty")
    entries = tuple(sorted(value, key=str)) if isinstance(value, (set, frozenset)) else tuple(value)
    names = dict.fromkeys(
        entry.name if isinstance(entry, BaseTool) else entry
        for entry in entries
        if isinstance(entry, BaseTool) or not is_pattern(entry)
    )
    try:
        check_names(names)
    except UsageError as error:
        raise ValueError(f"ptc: {error}") from None
    if entries and all(isinstance(entry, str) and entry.startswith("!") for entry in entries):
        raise ValueError(f"ptc={list(entries)} only excludes; add '*' for all the others")
    return entries


def is_pattern(entry: str) -> bool:
    """Whether a `ptc` entry is a glob or an exclusion rather than a name."""
    return entry.startswith("!") or any(char in entry for char in "*?[")


def _kind(value: object) -> str:
    return "None" if value is None else type(value).__name__
