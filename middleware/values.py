"""What a tool returned, as a value that can cross to the guest."""

from __future__ import annotations

import dataclasses
import datetime
import decimal
import enum
import pathlib
import uuid
from collections.abc import Mapping, Sequence, Set
from typing import Any, Final

from langchain_core.messages import BaseMessage
from pydantic import BaseModel

_MAX_DEPTH: Final = 200
# What the wire encodes by itself.
_LEAVES: Final = (
    str, int, float, bool, type(None), bytes, bytearray, memoryview, enum.Enum, datetime.date,
    datetime.time, datetime.timedelta, decimal.Decimal, uuid.UUID, pathlib.PurePath,
)  # fmt: skip


def crossing(value: Any, depth: int = 0) -> Any:
    """The value, with what has no counterpart in JavaScript as its text.

    A tool may return anything; a model would be shown its text, so the guest gets that too.
    """
    if isinstance(value, _LEAVES) or depth > _MAX_DEPTH:
        return value  # too deep, or a cycle: the wire says so
    if isinstance(value, BaseMessage):
        return crossing(value.content, depth + 1)
    if isinstance(value, BaseModel):
        return crossing(value.model_dump(), depth + 1)
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        fields = dataclasses.fields(value)
        return {field.name: crossing(getattr(value, field.name), depth + 1) for field in fields}
    if isinstance(value, Mapping):
        return {key: crossing(item, depth + 1) for key, item in value.items()}
    if isinstance(value, (Sequence, Set)):
        return [crossing(item, depth + 1) for item in value]
    if getattr(value, "shape", None) == () and hasattr(value, "item"):
        return value  # a NumPy scalar
    return str(value)
