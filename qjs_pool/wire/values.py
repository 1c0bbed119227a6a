"""Values between host and guest, as JSON with tags for what JSON lacks.

A special value is an object with the single key `$`: `{"$": ["map", [[k, v], …]]}`, and so on
(the full table is in docs/protocol.md). What comes from a worker is parsed by `msgspec`, after
its size and the number of its nodes were bounded; this module then only replaces tagged objects.
"""

from __future__ import annotations

import base64
import binascii
import dataclasses
import datetime
import decimal
import enum
import math
import pathlib
import uuid
from collections.abc import Mapping, Sequence, Set
from typing import Any, Final

import msgspec

from ..errors import GuestError, ValueConversionError, ValueTooLarge

MAX_DEPTH: Final = 200
_MAX_SAFE: Final = (1 << 53) - 1
_TAG: Final = "$"
_TAGGED: Final = b'{"$":'
_SLICE_BYTES: Final = 1 << 16
_EPOCH: Final = datetime.datetime(1970, 1, 1, tzinfo=datetime.UTC)

_decode_json: Final = msgspec.json.Decoder().decode
_encode_json: Final = msgspec.json.Encoder().encode


# --- guest to host ------------------------------------------------------------------------------


def decode_value(encoded: bytes, max_nodes: int) -> Any:
    """The Python value of `encoded`.

    Raises:
        ValueTooLarge: it has more than `max_nodes` nodes.
        ValueConversionError: it is not what this module's format allows.
    """
    # Every node but the first follows one of these bytes, so this bounds what decoding can
    # allocate, at the speed of memchr and whatever the worker claimed. It over-counts those in strings.
    nodes = 1 + encoded.count(b",") + encoded.count(b"[") + encoded.count(b"{")
    if nodes > max_nodes and _count_outside_strings(encoded) > max_nodes:
        raise ValueTooLarge(
            f"the value has about {nodes} nodes, over the cap of {max_nodes} "
            f"(Limits.value_bytes / 32)"
        )
    try:
        raw = _decode_json(encoded)
    except (msgspec.MsgspecError, RecursionError, UnicodeDecodeError) as error:
        raise ValueConversionError(f"the value is not well-formed: {error}") from None
    if _TAGGED not in encoded:
        return raw
    return _untag(raw, 0)


def _count_outside_strings(encoded: bytes) -> int:
    # Escaped backslashes and quotes go first; then every quote opens or closes a string. In
    # slices, because a split of 16 MiB of quotes at once would itself be the bomb.
    plain = encoded.replace(b"\\\\", b"").replace(b'\\"', b"")
    nodes, inside = 1, False
    for start in range(0, len(plain), _SLICE_BYTES):
        pieces = plain[start : start + _SLICE_BYTES].split(b'"')
        outside = b"".join(pieces[inside::2])
        nodes += outside.count(b",") + outside.count(b"[") + outside.count(b"{")
        inside ^= len(pieces) % 2 == 0
    return nodes


def _untag(raw: Any, depth: int) -> Any:
    if depth > 2 * MAX_DEPTH + 8:
        raise ValueConversionError(f"the value is nested deeper than {MAX_DEPTH}")
    if type(raw) is list:
        return [_untag(item, depth + 1) if type(item) in _CONTAINERS else item for item in raw]
    if type(raw) is not dict:
        return raw
    if len(raw) == 1 and _TAG in raw:
        return _special(raw[_TAG], depth + 1)
    return {
        key: _untag(item, depth + 1) if type(item) in _CONTAINERS else item
        for key, item in raw.items()
    }


_CONTAINERS: Final = (list, dict)
_NUMBERS: Final = {"nan": math.nan, "inf": math.inf, "-inf": -math.inf, "-0": -0.0}


def _special(tagged: Any, depth: int) -> Any:
    try:
        match tagged:
            case ["num", str(name)]:
                return _NUMBERS[name]
            case ["int", str(digits)]:
                return int(digits, 16)
            case ["date", int(ms) | float(ms)]:
                return _EPOCH + datetime.timedelta(milliseconds=ms)
            case ["bytes", str(text)]:
                return base64.b64decode(text, validate=True)
            case ["map", [*pairs]]:
                return _mapping([(_untag(k, depth + 2), _untag(v, depth + 2)) for k, v in pairs])
            case ["obj", [*pairs]]:
                return {str(key): _untag(item, depth + 2) for key, item in pairs}
            case ["error", str(name), str(message), str(stack)]:
                return GuestError(name, message, stack)
            case ["undef"]:
                return None
    except (KeyError, ValueError, TypeError, OverflowError, binascii.Error):
        pass
    raise ValueConversionError("the value carries a tag that this release does not know")


def _mapping(pairs: list[tuple[Any, Any]]) -> Any:
    """A dict, or the list of pairs when a key is not hashable or two keys are one in Python."""
    try:
        mapping = dict(pairs)
    except TypeError:
        return pairs
    return mapping if len(mapping) == len(pairs) else pairs


# --- host to guest ------------------------------------------------------------------------------


def encode_value(value: Any, *, max_bytes: int, max_nodes: int) -> str:
    """JSON for a host value.

    int beyond the safe range becomes BigInt; bytes Uint8Array; datetime its ISO string; a mapping
    an object with its keys as text; a dataclass or Pydantic model an object of its fields.

    Raises:
        ValueConversionError: an unknown type, a cycle, or nested deeper than 200.
        ValueTooLarge: over `max_bytes` of JSON or `max_nodes` nodes.
    """
    encoded = _encode_json(_Encoder(max_bytes, max_nodes).plain(value, 0))
    if len(encoded) > max_bytes:
        raise ValueTooLarge(
            f"the value takes {len(encoded)} bytes as JSON, over the cap of {max_bytes} "
            f"(Limits.value_bytes)"
        )
    return encoded.decode()


class _Encoder:
    """Turns one value into what JSON can say, counting as it goes."""

    __slots__ = ("_bytes_left", "_max_bytes", "_max_nodes", "_nodes", "_open")

    def __init__(self, max_bytes: int, max_nodes: int) -> None:
        self._max_bytes = max_bytes
        self._max_nodes = max_nodes
        self._nodes = 0
        self._bytes_left = max_bytes
        self._open: set[int] = set()  # ids of the containers we are inside of

    def plain(self, value: Any, depth: int) -> Any:
        self._nodes += 1
        if self._nodes > self._max_nodes:
            raise ValueTooLarge(
                f"the value has more than {self._max_nodes} nodes (Limits.value_bytes / 32)"
            )
        kind = type(value)
        if kind is str:
            return self._text(value)
        if kind is int:
            if -_MAX_SAFE <= value <= _MAX_SAFE:
                return value
            return {_TAG: ["int", format(value, "x")]}
        if kind is float:
            return self._number(value)
        if value is None or kind is bool:
            return value
        if kind is dict or kind is list or kind is tuple:
            return self._container(value, depth)
        return self._other(value, depth)

    def _text(self, text: str) -> str:
        self._charge(len(text))
        if text.isascii():
            return text
        # Lone surrogates are legal in both languages and in neither's UTF-8.
        return text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")

    def _charge(self, size_bytes: int) -> None:
        self._bytes_left -= size_bytes
        if self._bytes_left < 0:
            raise ValueTooLarge(
                f"the value takes more than {self._max_bytes} bytes (Limits.value_bytes)"
            )

    def _number(self, value: float) -> Any:
        if math.isfinite(value) and (value != 0 or math.copysign(1, value) > 0):
            return value
        name = "nan" if math.isnan(value) else "-0" if value == 0 else f"{value:.0f}"
        return {_TAG: ["num", name]}

    def _container(self, value: Any, depth: int) -> Any:
        if depth >= MAX_DEPTH:
            raise ValueConversionError(f"the value is nested deeper than {MAX_DEPTH}")
        if id(value) in self._open:
            raise ValueConversionError("the value contains itself (a cycle)")
        self._open.add(id(value))
        try:
            if isinstance(value, Mapping):
                plain = {
                    self._text(key if type(key) is str else str(key)): self.plain(item, depth + 1)
                    for key, item in value.items()
                }
                return {_TAG: ["obj", list(plain.items())]} if _TAG in plain else plain
            return [self.plain(item, depth + 1) for item in value]
        finally:
            self._open.discard(id(value))

    def _other(self, value: Any, depth: int) -> Any:
        if isinstance(value, enum.Enum):
            return self.plain(value.value, depth)
        if isinstance(value, str):
            return self._text(str.__str__(value))
        if isinstance(value, int):
            return self.plain(int(value), depth)
        if isinstance(value, float):
            return self._number(float(value))
        if isinstance(value, (bytes, bytearray, memoryview)):
            self._charge(len(value) * 4 // 3)
            return {_TAG: ["bytes", base64.b64encode(value).decode()]}
        if isinstance(value, (datetime.date, datetime.time)):
            return value.isoformat()
        if isinstance(value, (decimal.Decimal, uuid.UUID, pathlib.PurePath, datetime.timedelta)):
            return self._text(str(value))
        if isinstance(value, GuestError):
            return {_TAG: ["error", *map(self._text, (value.name, value.message, value.stack))]}
        if dataclasses.is_dataclass(value) and not isinstance(value, type):
            names = [field.name for field in dataclasses.fields(value)]
            return self._container({name: getattr(value, name) for name in names}, depth)
        if callable(dump := getattr(value, "model_dump", None)):  # Pydantic, without importing it
            return self.plain(dump(), depth)
        if isinstance(value, (Mapping, Sequence, Set)):
            return self._container(value, depth)
        if callable(item := getattr(value, "item", None)) and not getattr(value, "shape", (1,)):
            return self.plain(item(), depth)  # a NumPy scalar
        raise ValueConversionError(
            f"a {type(value).__module__}.{type(value).__qualname__} has no counterpart in "
            f"JavaScript; pass plain data (dict, list, str, numbers, bytes, dates)"
        )
