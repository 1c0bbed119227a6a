"""Caps of values: what a bomb may cost the host, and that what is within the caps passes."""

from __future__ import annotations

import contextlib
import json
import subprocess
import sys
import time
import types
from collections.abc import Callable
from typing import Any, Final

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from qjs_pool.errors import ValueConversionError, ValueTooLarge
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


@pytest.mark.parametrize(
    "text",
    [
        "," * 500, "[" * 500, "{[," * 200, '"' * 500, '","' * 300, '\\"' * 300, "\\" * 501,
        '\\\\",[' * 100, '"' * 65_535 + "[" * 500, "é," * 300, "\n,\\n" * 200,
    ],
    ids=lambda text: repr(text[:6]),
)  # fmt: skip
@pytest.mark.parametrize("make", [lambda t: t, lambda t: [t, t], lambda t: {t: 1, "b": [t]}])
def test_what_is_inside_strings_does_not_count(text: str, make: Callable[[str], Any]) -> None:
    value = make(text)
    assert _decode(value, max_nodes=40) == value


@pytest.mark.parametrize(
    "text", ['\\"', '"', "\\", '\\\\"', ",", '"' * 65_535, "\\" * 65_535, 'a"' * 40_000]
)
def test_strings_with_quotes_and_backslashes_do_not_hide_a_bomb(text: str) -> None:
    bomb = [text, *([[]] * 200), text]
    with pytest.raises(ValueTooLarge):
        _decode(bomb, max_nodes=150)


@_settings
@given(_JSON, st.integers(1, 12))
def test_what_decodes_has_no_more_nodes_than_allowed(value: Any, max_nodes: int) -> None:
    def nodes(raw: Any) -> int:
        if isinstance(raw, list):
            return 1 + sum(map(nodes, raw))
        return 1 + sum(map(nodes, raw.values())) if isinstance(raw, dict) else 1

    encoded = json.dumps(value).replace('"$"', '"#"').encode()
    with contextlib.suppress(ValueConversionError, ValueTooLarge):
        assert nodes(decode_value(encoded, max_nodes)) <= max_nodes


def test_the_cap_counts_nodes_as_documented() -> None:
    assert _decode([1] * 9, max_nodes=12) == [1] * 9
    with pytest.raises(ValueTooLarge, match=r"Limits\.value_bytes"):
        _decode([1] * 99, max_nodes=12)


_BOMB = """
import resource, sys
from qjs_pool import Limits
from qjs_pool.errors import UsageError
from qjs_pool.wire.values import decode_value
kind, size = sys.argv[1], 16 << 20
bomb = {
    "lists": b"[" + b"[]," * (size // 3) + b"[]]",
    "objects": b"[" + b"{}," * (size // 3) + b"{}]",
    "texts": b"[" + b'"",' * (size // 3) + b'""]',
    "numbers": b"[" + b"1," * (size // 2) + b"1]",
    "quotes": b'"' * size,
    "escaped quotes": b'["' + b'\\\\"' * (size // 2) + b'",' + b"[]," * 9 + b"[]]",
    "nested": b"[" * (size // 2) + b"]" * (size // 2),
    "tags": b"[" + b'{"$":["num","nan"]},' * (size // 20) + b"1]",
    "pairs": b'{"$":["map",[' + b"[1,2]," * (size // 6) + b"[1,2]]]}",
    "nested tags": b'{"$":["map",[[1,' * (size // 32) + b"1" + b"]]]}" * (size // 32),
    "big integer": b'{"$":["int","' + b"f" * size + b'"]}',
}[kind]
nodes = Limits().value_nodes
before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
try:
    decode_value(bomb, nodes)
    outcome = "decoded"
except UsageError as error:
    outcome = type(error).__name__
print((resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) // 1024, outcome)
"""


@pytest.mark.parametrize(
    "kind",
    ["lists", "objects", "texts", "numbers", "quotes", "escaped quotes", "nested", "tags", "pairs",
     "nested tags", "big integer"],
)  # fmt: skip
def test_a_bomb_of_16_mib_grows_the_host_by_at_most_64_mib(kind: str) -> None:
    command = [sys.executable, "-c", _BOMB, kind]
    run = subprocess.run(command, capture_output=True, text=True, check=True, timeout=60)
    grown, outcome = run.stdout.split()
    assert int(grown) <= 64
    assert outcome in ("ValueTooLarge", "ValueConversionError", "decoded")
    if kind not in ("escaped quotes", "big integer"):
        assert outcome != "decoded"


def test_keys_of_a_map_that_all_have_one_hash_do_not_stall_the_host() -> None:
    modulus = sys.hash_info.modulus
    count = 40_000
    keys = [format(index * modulus + 1, "x") for index in range(1, count)]
    assert len({hash(int(key, 16)) for key in keys}) == 1
    encoded = _tagged("map", [[_tagged("int", key), 0] for key in keys])
    started = time.process_time()
    value = _decode(encoded, max_nodes=1 << 20)
    # As a dict it takes some 20 seconds of comparing each key with those before it.
    assert time.process_time() - started < 10.0
    assert [pair[0] for pair in value] == [int(key, 16) for key in keys]


def test_a_map_of_many_numbers_with_hashes_of_their_own_is_a_dict() -> None:
    pairs = [[number, number] for number in range(5_000)]
    assert _decode(_tagged("map", pairs), max_nodes=1 << 20) == {n: n for n in range(5_000)}


def _nested(depth: int, around: Callable[[Any], Any]) -> Any:
    value: Any = 1
    for _ in range(depth):
        value = around(value)
    return value


_AROUND: Final[dict[str, Callable[[Any], Any]]] = {
    "list": lambda v: [v],
    "object": lambda v: {"a": v},
    "map": lambda v: _tagged("map", [["k", v]]),
    "dollar": lambda v: _tagged("obj", [["$", v]]),
    "list with a tag": lambda v: [v, _tagged("num", "nan")],
}


@pytest.mark.parametrize("around", _AROUND.values(), ids=_AROUND)
def test_a_value_nested_as_deep_as_allowed_passes_and_a_deeper_one_does_not(
    around: Callable[[Any], Any],
) -> None:
    _decode(msgspec.json.encode(_nested(MAX_DEPTH, around)))
    with pytest.raises(ValueConversionError, match=f"deeper than {MAX_DEPTH}"):
        _decode(msgspec.json.encode(_nested(MAX_DEPTH + 1, around)))


@pytest.mark.parametrize("around", _AROUND.values(), ids=_AROUND)
@pytest.mark.parametrize("depth", [900, 5_000, 100_000])
def test_any_depth_is_a_conversion_error(depth: int, around: Callable[[Any], Any]) -> None:
    head, tail = json.dumps(around("@"), separators=(",", ":")).split('"@"')
    with pytest.raises(ValueConversionError, match="nested deeper"):
        decode_value((head * depth + "1" + tail * depth).encode(), 1 << 30)


@pytest.mark.parametrize("around", _AROUND.values(), ids=_AROUND)
def test_a_caller_without_stack_left_gets_a_conversion_error(
    around: Callable[[Any], Any],
) -> None:
    encoded = msgspec.json.encode(_nested(MAX_DEPTH, around))
    plain = _nested(MAX_DEPTH, lambda v: [v])

    def deeper(frames: int) -> None:
        if frames:
            return deeper(frames - 1)
        for call in (
            lambda: decode_value(encoded, _NODES),
            lambda: encode_value(plain, max_bytes=1 << 20, max_nodes=_NODES),
        ):
            with contextlib.suppress(ValueConversionError):
                call()
        return None

    used = len(_frames())
    for left in (60, 150, 300, 600):
        deeper(sys.getrecursionlimit() - used - left)


def _frames() -> list[types.FrameType]:
    frames, frame = [], sys._getframe()
    while frame is not None:
        frames.append(frame)
        frame = frame.f_back
    return frames
