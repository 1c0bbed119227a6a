"""Values between host and guest, as JSON with tags for what JSON lacks.

A special value is an object with the single key `$`: `{"$": ["map", [[k, v], …]]}`, and so on
(the full table is in docs/protocol.md). What comes from a worker is parsed by `msgspec`, after
its size and the number of its nodes were bounded; this module then only replaces tagged objects.
"""

from __future__ import annotations

import base64
import dataclasses
import datetime
import decimal
import enum
import math
import pathlib
import re
import uuid
from collections import Counter
from collections.abc import Callable, Mapping, Sequence, Set
from typing import Any, Final

import msgspec

from ..errors import GuestError, ValueConversionError, ValueTooLarge

MAX_DEPTH: Final = 200
# What the engine's BigInt holds, whatever its sign; its decoder would fail on more.
MAX_INT_BITS: Final = (1 << 20) - 64
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
    # allocate, at the speed of memchr and whatever the worker claimed. It over-counts: there may
    # be some in strings.
    nodes = 1 + encoded.count(b",") + encoded.count(b"[") + encoded.count(b"{")
    if nodes > max_nodes and _count_outside_strings(encoded) > max_nodes:
        raise ValueTooLarge(
            f"the value has about {nodes} nodes, over the cap of {max_nodes} "
            f"(Limits.value_bytes / 32)"
        )
    try:
        raw = _decode_json(encoded)
        if _TAGGED in encoded:
            return _untag(raw, 0)
    except RecursionError:
        raise _too_deep() from None
    except (msgspec.MsgspecError, UnicodeDecodeError) as error:
        raise ValueConversionError(f"the value is not well-formed: {error}") from None
    if encoded.count(b"[") + encoded.count(b"{") > MAX_DEPTH:
        _check_depth(raw)
    return raw


def _too_deep() -> ValueConversionError:
    return ValueConversionError(f"the value is nested deeper than {MAX_DEPTH}")


def _check_depth(raw: Any) -> None:
    # Level by level: what is too deep for us to walk is too deep for whoever gets it as well.
    level = [raw] if type(raw) in _CONTAINERS else []
    for _ in range(MAX_DEPTH):
        level = [
            item
            for container in level
            for item in (container.values() if type(container) is dict else container)
            if type(item) in _CONTAINERS
        ]
        if not level:
            return
    raise _too_deep()


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
    """`raw` without tags; `depth` is how many containers of the guest's it is inside of."""
    if type(raw) not in _CONTAINERS:
        return raw
    if type(raw) is dict and len(raw) == 1 and _TAG in raw:
        return _special(raw[_TAG], depth)
    if depth >= MAX_DEPTH:
        raise _too_deep()
    depth += 1
    if type(raw) is list:
        return [_untag(item, depth) if type(item) in _CONTAINERS else item for item in raw]
    return {
        key: _untag(item, depth) if type(item) in _CONTAINERS else item for key, item in raw.items()
    }


_CONTAINERS: Final = (list, dict)
_NUMBERS: Final = {"nan": math.nan, "inf": math.inf, "-inf": -math.inf, "-0": -0.0}
_HEX: Final = re.compile(r"-?[0-9a-f]+")
# Keys with one and the same hash that a dict is made of: past it, each costs as many comparisons.
_MAX_EQUAL_HASHES: Final = 16


def _special(tagged: Any, depth: int) -> Any:
    match tagged:
        case ["map" | "obj" as kind, list(pairs)]:
            if depth >= MAX_DEPTH:
                raise _too_deep()
            return _mapping(pairs, depth + 1) if kind == "map" else _object(pairs, depth + 1)
        case ["num", str(name)] if name in _NUMBERS:
            return _NUMBERS[name]
        case ["int", str(digits)] if _HEX.fullmatch(digits):
            return int(digits, 16)
        case ["date", int(ms) | float(ms)] if type(ms) is not bool:
            try:
                return _EPOCH + datetime.timedelta(milliseconds=ms)
            except OverflowError:
                raise _unknown_tag() from None
        case ["bytes", str(text)]:
            try:
                return base64.b64decode(text, validate=True)
            except ValueError:
                raise _unknown_tag() from None
        case ["error", str(name), str(message), str(stack)]:
            return GuestError(name, message, stack)
    raise _unknown_tag()


def _unknown_tag() -> ValueConversionError:
    return ValueConversionError("the value carries a tag that this release does not know")


def _object(pairs: list[Any], depth: int) -> dict[str, Any]:
    plain: dict[str, Any] = {}
    for pair in pairs:
        match pair:
            case [str(key), item]:
                plain[key] = _untag(item, depth)
            case _:
                raise _unknown_tag()
    return plain


def _mapping(raw: list[Any], depth: int) -> Any:
    """A dict, or the list of pairs when a key is not hashable or two keys are one in Python."""
    pairs: list[tuple[Any, Any]] = []
    for pair in raw:
        match pair:
            case [key, item]:
                pairs.append((_untag(key, depth), _untag(item, depth)))
            case _:
                raise _unknown_tag()
    # Hashes of numbers are no secret: a guest can make 100,000 integers that all have the same,
    # and a dict of them would cost the host minutes. Texts and bytes are hashed with a secret.
    numbers = Counter(hash(key) for key, _ in pairs if isinstance(key, (int, float)))
    if numbers and max(numbers.values()) > _MAX_EQUAL_HASHES:
        return pairs
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
        ValueTooLarge: over `max_bytes` of JSON or `max_nodes` nodes, or an int over `MAX_INT_BITS`.
    """
    try:
        encoded = _encode_json(_Encoder(max_bytes, max_nodes).plain(value, 0))
    except RecursionError:
        # Within the cap, but the caller's own stack leaves no room for it.
        raise _too_deep() from None
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
        # The common leaves are written out: a call for each would cost as much again.
        if kind is str:
            self._bytes_left -= len(value)
            if self._bytes_left < 0:
                self._charge(0)
            return value if value.isascii() else well_formed(value)
        if kind is int:
            if -_MAX_SAFE <= value <= _MAX_SAFE:
                return value
            return self._bigint(value)
        if kind is float:
            # Finite and not zero, whose sign JSON would lose.
            return value if value and value - value == 0 else self._number(value)
        if value is None or kind is bool:
            return value
        if kind is dict or kind is list or kind is tuple:
            return self._container(value, depth)
        return self._other(value, depth)

    def _bigint(self, value: int) -> Any:
        if value.bit_length() > MAX_INT_BITS:
            raise ValueTooLarge(
                f"an int of {value.bit_length()} bits is over the {MAX_INT_BITS} that a BigInt "
                f"holds here; pass it as text or bytes"
            )
        self._charge(value.bit_length() // 4)
        return {_TAG: ["int", format(value, "x")]}

    def _text(self, text: str) -> str:
        self._charge(len(text))
        return well_formed(text)

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
            raise _too_deep()
        if id(value) in self._open:
            raise ValueConversionError("the value contains itself (a cycle)")
        self._open.add(id(value))
        try:
            if isinstance(value, Mapping):
                plain = {
                    key if type(key) is str and key.isascii() else _key_text(key): self.plain(
                        item, depth + 1
                    )
                    for key, item in value.items()
                }
                self._charge(sum(map(len, plain)))
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
            self._charge(memoryview(value).nbytes * 4 // 3)
            return {_TAG: ["bytes", base64.b64encode(bytes(value)).decode()]}
        if isinstance(value, (datetime.date, datetime.time)):
            return value.isoformat()
        if isinstance(value, (decimal.Decimal, uuid.UUID, pathlib.PurePath, datetime.timedelta)):
            return self._text(str(value))
        if isinstance(value, GuestError):
            return {_TAG: ["error", *map(self._text, (value.name, value.message, value.stack))]}
        if dataclasses.is_dataclass(value) and not isinstance(value, type):
            names = [field.name for field in dataclasses.fields(value)]
            return self._container({name: getattr(value, name) for name in names}, depth)
        if isinstance(value, (Mapping, Sequence, Set)):
            return self._container(value, depth)
        if not isinstance(value, type):
            if callable(dump := getattr(value, "model_dump", None)):  # Pydantic, not imported
                return self._stand_in(dump, depth)
            if callable(item := getattr(value, "item", None)) and getattr(value, "shape", 0) == ():
                return self._stand_in(item, depth)  # a NumPy scalar
        raise ValueConversionError(
            f"a {type(value).__module__}.{type(value).__qualname__} has no counterpart in "
            f"JavaScript; pass plain data (dict, list, str, numbers, bytes, dates)"
        )

    def _stand_in(self, make: Callable[[], Any], depth: int) -> Any:
        # One level deeper, or an object that gives another of its kind would never end.
        if depth >= MAX_DEPTH:
            raise _too_deep()
        try:
            plain = make()
        except Exception as error:
            raise ValueConversionError(f"the value does not say what it is: {error}") from error
        return self.plain(plain, depth + 1)


def _key_text(key: object) -> str:
    if isinstance(key, enum.Enum):
        key = key.value
    return well_formed(str.__str__(key) if isinstance(key, str) else str(key))


def well_formed(text: str) -> str:
    """`text` with U+FFFD for lone surrogates: legal in both languages, and in neither's UTF-8."""
    if text.isascii():
        return text
    return text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
