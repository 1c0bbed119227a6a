"""Values both ways: what each becomes on the other side, and that no encoding can hurt the host."""

from __future__ import annotations

import base64
import collections
import contextlib
import dataclasses
import datetime as dt
import decimal
import enum
import json
import math
import pathlib
import sys
import types
import uuid
from collections.abc import Callable
from typing import Any, Final

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from qjs_pool.errors import GuestError, ValueConversionError, ValueTooLarge
from qjs_pool.wire.values import MAX_DEPTH, decode_value, encode_value

_NODES: Final = 10_000
_settings = settings(max_examples=80, deadline=None)  # a busy machine is no failure


def _encode(value: Any, max_bytes: int = 1 << 20, max_nodes: int = _NODES) -> Any:
    return json.loads(encode_value(value, max_bytes=max_bytes, max_nodes=max_nodes))


def _decode(encoded: Any, max_nodes: int = _NODES) -> Any:
    raw = encoded if isinstance(encoded, bytes) else json.dumps(encoded).encode()
    return decode_value(raw, max_nodes)


def _tagged(*tagged: Any) -> dict[str, Any]:
    return {"$": list(tagged)}


def _same(one: Any, other: Any) -> bool:
    """Equal, of one type, and -0.0 and NaN told apart."""
    return type(one) is type(other) and repr(one) == repr(other)


# --- guest to host ------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("encoded", "value"),
    [
        (1, 1), (1.5, 1.5), ("text", "text"), (True, True), (None, None), ([1, [2]], [1, [2]]),
        ({"a": {"b": 1}}, {"a": {"b": 1}}), ({"__proto__": 1}, {"__proto__": 1}),
        (b"5.0", 5.0), (b"1e300", 1e300), (_tagged("num", "nan"), math.nan),
        (_tagged("num", "inf"), math.inf), (_tagged("num", "-inf"), -math.inf),
        (_tagged("num", "-0"), -0.0), (_tagged("int", "ff"), 255),
        (_tagged("int", "-20000000000001"), -9007199254740993),
        (_tagged("bytes", "AAH/"), b"\x00\x01\xff"), (_tagged("bytes", ""), b""),
        (_tagged("date", 0), dt.datetime(1970, 1, 1, tzinfo=dt.UTC)),
        (_tagged("date", 1.5), dt.datetime(1970, 1, 1, 0, 0, 0, 1500, tzinfo=dt.UTC)),
        (_tagged("date", -62135596800000), dt.datetime(1, 1, 1, tzinfo=dt.UTC)),
        (_tagged("map", [["a", 1], [2, "b"]]), {"a": 1, 2: "b"}), (_tagged("map", []), {}),
        (_tagged("map", [[[1], 2]]), [([1], 2)]), (_tagged("map", [[{}, 2]]), [({}, 2)]),
        (_tagged("map", [[1, "a"], [True, "b"]]), [(1, "a"), (True, "b")]),
        (_tagged("error", "E", "m", "at f"), GuestError("E", "m", "at f")),
        (_tagged("obj", [["$", 1]]), {"$": 1}), (_tagged("obj", [["$", ["num", "nan"]]]),
        {"$": ["num", "nan"]}), ([_tagged("num", "nan"), 1], [math.nan, 1]),
        ({"a": 1, "$": ["num", "nan"]}, {"a": 1, "$": ["num", "nan"]}),
        (_tagged("map", [["k", _tagged("map", [["l", _tagged("int", "1")]])]]), {"k": {"l": 1}}),
    ],
)  # fmt: skip
def test_an_encoded_value_becomes_its_python_value(encoded: Any, value: Any) -> None:
    assert _same(_decode(encoded), value)


_NO_VALUES: Final = [
    None, 0, 1, True, "num", [], ["num"], {}, {"num": "nan"}, [[]], [None], ["other", 1],
    ["num", "NaN"], ["num", 1], ["num", None], ["num", "nan", 1], ["num", ["nan"]],
    ["int", ""], ["int", "-"], ["int", "+1"], ["int", "0x1"], ["int", " 1"], ["int", "1_0"],
    ["int", "g"], ["int", 1], ["int", None], ["int", "1", "2"], ["int", "\uff11"],
    ["date", "0"], ["date", None], ["date", True], ["date", []], ["date", 1e300], ["date", -1e300],
    ["date", 1 << 62], ["date", -(1 << 62)], ["date", 1, 2], ["date", 253402300800000],
    ["bytes", 1], ["bytes", "A"], ["bytes", "AA"], ["bytes", "A==="], ["bytes", "é"],
    ["bytes", "AAAA\n"], ["bytes", "AA AA"], ["bytes", ["AAAA"]],
    ["map"], ["map", None], ["map", {}], ["map", "ab"], ["map", 1], ["map", [1]], ["map", ["ab"]],
    ["map", [[1]]], ["map", [[1, 2, 3]]], ["map", [{"a": 1, "b": 2}]], ["map", [None]],
    ["map", [], []], ["map", [[1, {"$": ["other"]}]]], ["map", [[{"$": None}, 1]]],
    ["obj"], ["obj", {}], ["obj", [["a"]]], ["obj", [[1, 2]]], ["obj", [["a", 1, 2]]],
    ["obj", ["ab"]], ["obj", [[None, 1]]], ["obj", [["a", {"$": 1}]]],
    ["error"], ["error", "E"], ["error", "E", "m"], ["error", "E", "m", 1],
    ["error", "E", "m", None], ["error", "E", "m", "s", "more"], ["undef"],
]  # fmt: skip


@pytest.mark.parametrize("tagged", _NO_VALUES, ids=repr)
@pytest.mark.parametrize("place", [lambda v: v, lambda v: [1, v], lambda v: {"a": v}])
def test_a_malformed_tag_is_a_conversion_error_wherever_it_is(
    tagged: Any, place: Callable[[Any], Any]
) -> None:
    with pytest.raises(ValueConversionError):
        _decode(place({"$": tagged}))


@pytest.mark.parametrize(
    "encoded",
    [
        b"", b" ", b"[", b"[1", b"[1,]", b'{"a"}', b'{"a":}', b"nul", b"1 2", b"NaN", b"Infinity",
        b"1e400", b"-1e400", b"9" * 5000, b"\xff", b'"\xed\xa0\x80"', b'"\\ud800"', b'"\\x"',
        b'"a', b"\x00", b'{1:2}', b"'a'", b'{"$":["num","nan"]', b'{"$":["int","' + b"f" * 99,
    ],
    ids=repr,
)  # fmt: skip
def test_what_is_no_json_is_a_conversion_error(encoded: bytes) -> None:
    with pytest.raises(ValueConversionError):
        _decode(encoded)


_JSON: Final = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: (
        st.lists(inner, max_size=4)
        | st.dictionaries(st.sampled_from(["$", "a", ""]), inner, max_size=2)
        | st.tuples(st.sampled_from(["map", "obj", "int", "num", "date", "bytes", "error"]), inner)
        .map(lambda pair: {"$": list(pair)})
    ),
    max_leaves=20,
)  # fmt: skip


@_settings
@given(_JSON)
def test_any_json_decodes_or_is_refused_and_nothing_else(value: Any) -> None:
    with contextlib.suppress(ValueConversionError):
        _decode(value)


@_settings
@given(st.binary(max_size=100))
def test_any_bytes_decode_or_are_refused_and_nothing_else(encoded: bytes) -> None:
    with contextlib.suppress(ValueConversionError, ValueTooLarge):
        decode_value(encoded, 50)


@_settings
@given(st.data())
def test_a_damaged_encoding_decodes_or_is_refused_and_nothing_else(data: st.DataObject) -> None:
    seed = [
        _tagged("map", [["a", _tagged("int", "ff")], [_tagged("num", "nan"), None]]),
        _tagged("obj", [["$", _tagged("bytes", "AAAA")]]), _tagged("date", 12.5),
        _tagged("error", "E", "m", "s"), {"plain": [1, "two", 3.5]},
    ]  # fmt: skip
    encoded = bytearray(json.dumps(seed, separators=(",", ":")).encode())
    for _ in range(data.draw(st.integers(1, 4))):
        at = data.draw(st.integers(0, len(encoded) - 1))
        encoded[at : at + data.draw(st.integers(0, 3))] = data.draw(st.binary(max_size=3))
    with contextlib.suppress(ValueConversionError):
        decode_value(bytes(encoded), _NODES)


@_settings
@given(_JSON)
def test_plain_json_without_tags_comes_out_as_it_is(value: Any) -> None:
    encoded = json.dumps(value).replace('"$"', '"#"').encode()
    with contextlib.suppress(ValueConversionError):  # numbers that JSON does not have
        assert _same(_decode(encoded), msgspec.json.decode(encoded))


# --- host to guest ------------------------------------------------------------------------------


class _Colour(enum.Enum):
    RED = "red"


class _Level(enum.IntEnum):
    HIGH = 3


class _Word(enum.StrEnum):
    YES = "yes"


@dataclasses.dataclass
class _Point:
    x: int
    at: dt.date


class _Named(tuple):  # type: ignore[type-arg]
    __slots__ = ()


class _Texty(str):
    __slots__ = ()

    def __str__(self) -> str:
        return "not what it says"


_UUID: Final = uuid.UUID("12345678123456781234567812345678")


@pytest.mark.parametrize(
    ("value", "encoded"),
    [
        (1, 1), (2**53 - 1, 2**53 - 1), (-(2**53) + 1, -(2**53) + 1), (True, True), (None, None),
        (2**53, _tagged("int", "20000000000000")), (-(2**64), _tagged("int", "-10000000000000000")),
        (1.5, 1.5), (0.0, 0.0), (-0.0, _tagged("num", "-0")), (math.nan, _tagged("num", "nan")),
        (math.inf, _tagged("num", "inf")), (-math.inf, _tagged("num", "-inf")),
        ("a\x00\u2028é😀", "a\x00\u2028é😀"), ("\ud800x", "\ufffdx"),
        ("\ude00\ud83d", "\ufffd\ufffd"),
        (_Texty("text"), "text"), (b"\x00\xff", _tagged("bytes", "AP8=")),
        (bytearray(b"ab"), _tagged("bytes", "YWI=")), (memoryview(b"ab"), _tagged("bytes", "YWI=")),
        (memoryview(b"abcd")[::2], _tagged("bytes", "YWM=")),
        ((1, 2), [1, 2]), (_Named((1,)), [1]), ({1}, [1]), (frozenset({1}), [1]),
        (range(3), [0, 1, 2]),
        (collections.deque([1]), [1]), ({1: 2}.keys(), [1]), ({"a": (1,)}, {"a": [1]}),
        ({1: "a", None: "b", 1.5: "c", (1, 2): "d"},
         {"1": "a", "None": "b", "1.5": "c", "(1, 2)": "d"}),
        ({_Colour.RED: 1, _Word.YES: 2}, {"red": 1, "yes": 2}), ({_Texty("k"): 1}, {"k": 1}),
        ({"\ud800": 1}, {"\ufffd": 1}),
        ({"$": 1}, _tagged("obj", [["$", 1]])),
        ({"$": ["num", "nan"]}, _tagged("obj", [["$", ["num", "nan"]]])),
        ({"$": 1, "a": 2}, _tagged("obj", [["$", 1], ["a", 2]])),
        ({"__proto__": 1}, {"__proto__": 1}),
        (types.MappingProxyType({"a": 1}), {"a": 1}), (_Colour.RED, "red"), (_Level.HIGH, 3),
        (_Word.YES, "yes"),
        (dt.datetime(2024, 2, 29, 12, tzinfo=dt.UTC), "2024-02-29T12:00:00+00:00"),
        (dt.datetime(2024, 2, 29, 12, 0, 0, 5), "2024-02-29T12:00:00.000005"),
        (dt.date(2024, 2, 29), "2024-02-29"), (dt.time(1, 2), "01:02:00"),
        (dt.timedelta(days=1), "1 day, 0:00:00"), (decimal.Decimal("1.10"), "1.10"),
        (_UUID, str(_UUID)), (pathlib.PurePosixPath("/a/b"), "/a/b"),
        (_Point(1, dt.date(2024, 1, 1)), {"x": 1, "at": "2024-01-01"}),
        (GuestError("E", "m", "s"), _tagged("error", "E", "m", "s")),
        (collections.OrderedDict(b=1, a=2), {"b": 1, "a": 2}),
        (collections.Counter("aa"), {"a": 2}),
    ],
    ids=lambda value: repr(value)[:40],
)  # fmt: skip
def test_a_host_value_is_encoded_as_documented(value: Any, encoded: Any) -> None:
    assert _encode(value) == encoded
    if isinstance(value, float) and not isinstance(encoded, dict):
        assert _same(_encode(value), encoded)


def test_a_pydantic_model_is_an_object_of_its_fields() -> None:
    pydantic = pytest.importorskip("pydantic")
    inner = pydantic.create_model("Inner", when=(dt.date, ...), raw=(bytes, ...))
    outer = pydantic.create_model("Outer", inners=(list[inner], ...), price=(decimal.Decimal, ...))
    value = outer(inners=[inner(when=dt.date(2024, 1, 1), raw=b"ab")], price="1.50")
    assert _encode([value]) == [
        {"inners": [{"when": "2024-01-01", "raw": _tagged("bytes", "YWI=")}], "price": "1.50"}
    ]
    with pytest.raises(ValueConversionError):
        _encode(outer)  # the class itself


def test_numpy_scalars_are_numbers_and_arrays_are_refused() -> None:
    numpy = pytest.importorskip("numpy")
    values = [numpy.int64(5), numpy.float32(0.5), numpy.bool_(True), numpy.float64("nan"),
              numpy.uint64(2**63), numpy.str_("a"), numpy.array(7)]  # fmt: skip
    assert _encode(values) == [
        5, 0.5, True, _tagged("num", "nan"), _tagged("int", "8000000000000000"), "a", 7
    ]  # fmt: skip
    with pytest.raises(ValueConversionError, match="ndarray"):
        _encode(numpy.array([1, 2]))


class _SaysItself:
    def model_dump(self) -> _SaysItself:
        return self


class _CannotSay:
    def model_dump(self) -> Any:
        raise RuntimeError("broken")


def _nested(depth: int, around: Callable[[Any], Any]) -> Any:
    value: Any = 1
    for _ in range(depth):
        value = around(value)
    return value


def _cycles() -> list[Any]:
    one: list[Any] = []
    one.append(one)
    two: dict[str, Any] = {"a": [{}]}
    two["a"][0]["b"] = two
    return [one, two]


@pytest.mark.parametrize(
    "value",
    [object(), lambda: 1, int, print, 1j, iter([1]), (n for n in [1]), {1: 2}.values(), sys,
     ValueError("x"), [object()], {"a": {"b": object()}}, _SaysItself(), _CannotSay(), _SaysItself,
     *_cycles(), _nested(MAX_DEPTH + 1, lambda v: [v]), _nested(MAX_DEPTH + 1, lambda v: {"a": v}),
     _nested(100_000, lambda v: [v]), NotImplemented, ...],
    ids=lambda value: type(value).__name__,
)  # fmt: skip
def test_what_has_no_counterpart_is_a_conversion_error(value: Any) -> None:
    with pytest.raises(ValueConversionError):
        _encode(value)


def test_the_same_object_twice_is_no_cycle() -> None:
    shared = [1]
    assert _encode([shared, shared, {"a": shared}]) == [[1], [1], {"a": [1]}]


@pytest.mark.parametrize(
    "value",
    ["x" * 1001, b"x" * 1001, ["x" * 400] * 3, {"k" * 600: "v" * 600}, 16**1200, "é" * 600,
     "\n" * 600, decimal.Decimal("9" * 1200), {"a": b"x" * 900}],
    ids=lambda value: type(value).__name__,
)  # fmt: skip
def test_a_value_over_the_byte_cap_is_too_large(value: Any) -> None:
    with pytest.raises(ValueTooLarge, match="1000"):
        _encode(value, max_bytes=1000)


@pytest.mark.parametrize(
    "value",
    [[0] * 100, {n: n for n in range(100)}, [[]] * 100, range(10**12), [[[0] * 9] * 9] * 9],
    ids=lambda value: type(value).__name__,
)
def test_a_value_over_the_node_cap_is_too_large(value: Any) -> None:
    with pytest.raises(ValueTooLarge, match="50 nodes"):
        _encode(value, max_nodes=50)


def test_a_value_of_exactly_the_caps_passes() -> None:
    assert _encode("x" * 998, max_bytes=1000) == "x" * 998
    assert _encode([0] * 49, max_nodes=50) == [0] * 49


@_settings
@given(
    st.recursive(
        st.none() | st.booleans() | st.integers() | st.floats() | st.binary(max_size=9)
        | st.text(max_size=9),
        lambda inner: st.lists(inner, max_size=4)
        | st.dictionaries(st.text(max_size=4) | st.just("$"), inner, max_size=3),
        max_leaves=15,
    )
)  # fmt: skip
def test_what_is_encoded_decodes_to_the_same(value: Any) -> None:
    encoded = encode_value(value, max_bytes=1 << 20, max_nodes=_NODES)
    assert repr(decode_value(encoded.encode(), _NODES)) == repr(value)


def test_bytes_are_encoded_as_base64_does() -> None:
    for size in range(7):
        assert _encode(b"x" * size) == _tagged("bytes", base64.b64encode(b"x" * size).decode())
