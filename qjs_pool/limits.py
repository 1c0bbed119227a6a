"""What one session may use, validated when it is written down rather than when it is reached."""

from __future__ import annotations

import dataclasses
import math
import operator
from typing import Any, Final

from .errors import UsageError

MiB: Final = 1 << 20

_MIN_MEMORY_BYTES: Final = 1 * MiB
_MIN_STACK_BYTES: Final = 64 << 10
_MAX_STACK_BYTES: Final = 256 * MiB
_MAX_BYTES: Final = 1 << 40
# Frames to a worker have a cap of 64 MiB (`wire.frames`); a value must fit into one.
_MAX_VALUE_BYTES: Final = 48 * MiB
_MAX_CHARS: Final = 16 * MiB
# The kernel's waits take milliseconds as a 32-bit number; this is 11 days.
_MAX_SECONDS: Final = 1_000_000.0


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """Limits of a session; a pool's may be narrowed per session.

    Args:
        memory: bytes of JavaScript heap (at least 1 MiB).
        stack: bytes of JavaScript stack (64 KiB to 256 MiB); deeper recursion is a `RangeError`.
        cpu: CPU seconds per eval, time spent waiting for tools not counted. None: no limit.
        wall: seconds per eval, everything counted. None: no limit.
        result_chars: code points of `EvalResult.text`; the rest is cut and counted.
        console_chars: code points of `EvalResult.stdout`.
        value_bytes: encoded bytes of a value on its way in or out (and `value_bytes / 32` nodes).
        host_calls: tool calls per eval. None: no limit.
        host_concurrency: tool calls that run at once; the others wait.
        snapshot_bytes: uncompressed bytes of a snapshot. None: as `memory`.

    Raises:
        UsageError: a value is not a number of its kind, or out of its range.
    """

    memory: int = 64 * MiB
    stack: int = 1 * MiB
    cpu: float | None = 5.0
    wall: float | None = 300.0
    result_chars: int = 4000
    console_chars: int = 4000
    value_bytes: int = 16 * MiB
    host_calls: int | None = 256
    host_concurrency: int = 32
    snapshot_bytes: int | None = None

    def __post_init__(self) -> None:
        set_field = object.__setattr__  # the way to normalise a field of a frozen dataclass
        set_field(self, "memory", _integer("memory", self.memory, _MIN_MEMORY_BYTES, _MAX_BYTES))
        set_field(self, "stack", _integer("stack", self.stack, _MIN_STACK_BYTES, _MAX_STACK_BYTES))
        set_field(self, "cpu", _seconds("cpu", self.cpu))
        set_field(self, "wall", _seconds("wall", self.wall))
        for name in ("result_chars", "console_chars"):
            set_field(self, name, _integer(name, getattr(self, name), 1, _MAX_CHARS))
        set_field(
            self,
            "value_bytes",
            _integer("value_bytes", self.value_bytes, 64, _MAX_VALUE_BYTES),
        )
        if self.host_calls is not None:
            set_field(self, "host_calls", _integer("host_calls", self.host_calls, 0, 1 << 31))
        set_field(
            self,
            "host_concurrency",
            _integer("host_concurrency", self.host_concurrency, 1, 4096),
        )
        if self.snapshot_bytes is not None:
            set_field(
                self,
                "snapshot_bytes",
                _integer("snapshot_bytes", self.snapshot_bytes, 1024, _MAX_BYTES),
            )

    @property
    def value_nodes(self) -> int:
        """Nodes (scalars and containers) that a value may have.

        Bytes alone bound nothing: `[[],[],…` takes 3 bytes a list on the wire and 56 in a host.
        """
        return max(1, self.value_bytes // 32)

    @property
    def snapshot_room(self) -> int:
        """Bytes that a snapshot may take before compression."""
        return self.memory if self.snapshot_bytes is None else self.snapshot_bytes

    def narrowed(self, other: Limits) -> Limits:
        """These limits narrowed by `other`, whose default values mean "as the pool has it".

        Raises:
            UsageError: a value of `other` is wider than the one here.
        """
        fields: dict[str, Any] = {}
        for field in dataclasses.fields(self):
            mine, theirs = getattr(self, field.name), getattr(other, field.name)
            if theirs == field.default or theirs == mine:
                fields[field.name] = mine
            elif mine is None or (theirs is not None and theirs < mine):
                fields[field.name] = theirs
            else:
                raise UsageError(
                    f"session limit {field.name}={theirs} is wider than the pool's {mine}; "
                    f"a session can only narrow: raise it in Pool(limits=...)"
                )
        return Limits(**fields)


def _integer(name: str, value: object, low: int, high: int) -> int:
    try:
        if isinstance(value, bool):
            raise TypeError
        number = operator.index(value)  # type: ignore[arg-type]
    except TypeError:
        raise UsageError(f"{name}={value!r} is not an integer") from None
    if not low <= number <= high:
        raise UsageError(f"{name}={number} is out of range: {low} to {high}")
    return number


def _seconds(name: str, value: object) -> float | None:
    if value is None:
        return None
    seconds = seconds_or_error(name, value)
    return None if math.isinf(seconds) else seconds


def seconds_or_error(name: str, value: object) -> float:
    """A positive number of seconds (infinity included), or a UsageError naming it."""
    try:
        if isinstance(value, (bool, str, bytes)):
            raise TypeError
        seconds = float(value)  # type: ignore[arg-type]
    except (TypeError, ValueError):
        raise UsageError(f"{name}={value!r} is not a number of seconds") from None
    except OverflowError:  # an integer that no float can hold
        seconds = _MAX_SECONDS + 1
    if math.isnan(seconds) or seconds <= 0:
        raise UsageError(f"{name}={value!r} must be over 0 seconds, or None for no limit")
    if _MAX_SECONDS < seconds < math.inf:
        raise UsageError(
            f"{name} is over {_MAX_SECONDS:.0f} seconds; None is the way to say no limit"
        )
    return seconds
