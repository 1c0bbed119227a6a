"""Messages: each survives the way there, and nothing else than a message gets past a decoder."""

from __future__ import annotations

import contextlib
import functools
import struct
import tracemalloc
from collections.abc import Callable
from typing import Any, Final, get_args

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from qjs_pool.wire import ProtocolError
from qjs_pool.wire import messages as wire

_DECODERS: Final[dict[Any, Callable[[bytes], Any]]] = {
    wire.ToWorker: wire.decode_to_worker,
    wire.FromWorker: wire.decode_from_worker,
    wire.FromKeeper: wire.decode_from_keeper,
    wire.ToKeeper: wire.decode_to_keeper,
    wire.FromAnchor: wire.decode_from_anchor,
    wire.ToZygote: wire.decode_to_zygote,
    wire.FromZygote: wire.decode_from_zygote,
}
_settings = settings(max_examples=60, deadline=None)  # a busy machine is no failure
_KINDS: Final = [
    (kind, decode) for union, decode in _DECODERS.items() for kind in (get_args(union) or (union,))
]
_DONE: Final = wire.EvalDone(
    eval_id=1, text="1", stdout="", kind="value", value=b"1", value_error=None, error=None,
    state="kept", cpu_s=0.5, peak_rss_bytes=1 << 20, notes=[],
)  # fmt: skip


_TEXT: Final = st.text(max_size=20)


@functools.cache
def _instances(kind: Any) -> st.SearchStrategy[Any]:
    fields = msgspec.structs.fields(kind)
    return st.builds(kind, **{field.name: _values(field.type) for field in fields})


def _values(kind: Any) -> st.SearchStrategy[Any]:
    info = msgspec.inspect.type_info(kind)
    match info:
        case msgspec.inspect.UnionType(types):
            return st.one_of(*(_of(each) for each in types))
        case _:
            return _of(info)


def _of(info: msgspec.inspect.Type) -> st.SearchStrategy[Any]:
    inspect = msgspec.inspect
    match info:
        case inspect.NoneType():
            return st.none()
        case inspect.BoolType():
            return st.booleans()
        case inspect.BytesType():
            return st.binary(max_size=20)
        case inspect.StrType():
            return _TEXT
        case inspect.IntType(ge=low, le=high):
            lowest, highest = -(1 << 63), (1 << 64) - 1
            return st.integers(lowest if low is None else low, highest if high is None else high)
        case inspect.FloatType(ge=low, le=high):
            return st.floats(low, high, allow_nan=False)
        case inspect.LiteralType(values):
            return st.sampled_from(values)
        case inspect.StructType(cls):
            return _instances(cls)
        case inspect.ListType(item_type=item):
            return st.lists(_of(item), max_size=3)
        case inspect.TupleType(item_types=items):
            return st.tuples(*map(_of, items))
        case inspect.DictType(key_type=key, value_type=value):
            return st.dictionaries(_of(key), _of(value), max_size=2)
    raise AssertionError(f"no values for {info}")


@pytest.mark.parametrize(
    ("kind", "decode"), _KINDS, ids=lambda value: getattr(value, "__name__", "")
)
@_settings
@given(data=st.data())
def test_each_message_comes_out_as_it_went_in(
    kind: Any, decode: Callable[[bytes], Any], data: st.DataObject
) -> None:
    message = data.draw(_instances(kind))
    assert decode(wire.encode_body(message)) == message


def test_no_two_messages_share_a_tag() -> None:
    tags = [kind.__struct_config__.tag for kind, _ in _KINDS]
    assert len(set(tags)) == len(tags)


@pytest.mark.parametrize("decode", _DECODERS.values(), ids=str)
@_settings
@given(body=st.binary(max_size=300))
def test_garbage_is_a_protocol_error_and_nothing_else(
    decode: Callable[[bytes], Any], body: bytes
) -> None:
    with contextlib.suppress(ProtocolError):
        decode(body)


@_settings
@given(data=st.data())
def test_a_damaged_message_is_a_message_or_a_protocol_error(data: st.DataObject) -> None:
    kind, decode = data.draw(st.sampled_from(_KINDS))
    body = bytearray(wire.encode_body(data.draw(_instances(kind))))
    for _ in range(data.draw(st.integers(1, 4))):
        at = data.draw(st.integers(0, len(body) - 1))
        body[at] = data.draw(st.integers(0, 255))
    with contextlib.suppress(ProtocolError):
        decode(bytes(body))


_VALID: Final = {
    field.name: getattr(_DONE, field.name) for field in msgspec.structs.fields(wire.EvalDone)
}


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("eval_id", "1"), ("eval_id", 1.5), ("eval_id", None), ("eval_id", True), ("text", 7),
        ("text", b"bytes"), ("text", None), ("stdout", ["a"]), ("kind", "other"),
        ("value", "text"), ("value", [1]), ("value_error", ["one"]), ("value_error", "ab"),
        ("value_error", ["a", "b", "c"]), ("error", ["a", "b"]), ("error", ["a", "b", "c", "d"]),
        ("error", {"name": "x"}), ("state", "reset"), ("cpu_s", -0.1), ("cpu_s", "1"),
        ("cpu_s", float("nan")), ("cpu_s", float("inf")), ("peak_rss_bytes", -1),
        ("peak_rss_bytes", 1.5), ("notes", "text"), ("notes", [1]), ("notes", ["x"] * 17),
    ],
)  # fmt: skip
def test_a_field_of_the_wrong_type_or_range_is_refused(field: str, value: Any) -> None:
    items = [32, *{**_VALID, field: value}.values()]
    with pytest.raises(ProtocolError):
        wire.decode_from_worker(msgspec.msgpack.encode(items))


def test_the_message_that_the_wrong_fields_are_put_into_is_itself_accepted() -> None:
    assert wire.decode_from_worker(msgspec.msgpack.encode([32, *_VALID.values()])) == _DONE


@pytest.mark.parametrize(
    "items",
    [
        [], [32], [99, 1], [-1], ["32", 1], [None], {}, {"type": 32}, 32, "EvalDone", None, [[32]],
        [33, 1, 2, "search"], [33, 1, 2, "search", "{}", "one too many"], [34, 1],
        [35, 51, "over the levels"], [35, -1, "under the levels"], [35, 10, "x" * 8193],
        [64, 1, {}],  # a keeper's message on the data stream
    ],
)  # fmt: skip
def test_another_shape_is_refused(items: Any) -> None:
    with pytest.raises(ProtocolError):
        wire.decode_from_worker(msgspec.msgpack.encode(items))


@pytest.mark.parametrize("status", [-1, 1 << 16, 1 << 40, -(1 << 63)])
def test_a_wait_status_that_no_kernel_gives_is_refused(status: int) -> None:
    with pytest.raises(ProtocolError):
        wire.decode_from_keeper(msgspec.msgpack.encode([65, 1, status, 0, 0.0, 0]))
    with pytest.raises(ProtocolError):
        wire.decode_from_anchor(msgspec.msgpack.encode([81, status, 0.0, 0]))


@pytest.mark.parametrize("opening", [b"\x91", b"\x81\xa1a", b"\xdd\x00\x00\x00\x01"])
@pytest.mark.parametrize("decode", _DECODERS.values(), ids=str)
def test_a_body_nested_a_million_deep_is_refused(
    decode: Callable[[bytes], Any], opening: bytes
) -> None:
    for head in (b"", b"\x92\x20", b"\x94\x21\x01\x02"):
        with pytest.raises(ProtocolError):
            decode(head + opening * 1_000_000 + b"\xc0")


def test_text_that_is_no_utf8_is_refused() -> None:
    good = msgspec.msgpack.encode([35, 10, "name"])
    assert wire.decode_from_worker(good) == wire.Log(10, "name")
    with pytest.raises(ProtocolError):
        wire.decode_from_worker(good.replace(b"name", b"n\xed\xa0\x80"))


def test_a_long_list_is_refused_before_it_is_made() -> None:
    """A list of empty texts takes a byte an entry on the wire, and eight in the host."""
    count = 4_000_000
    items = [32, *_VALID.values()]
    body = msgspec.msgpack.encode([*items[:-1], [""]])
    assert wire.decode_from_worker(body).notes == [""]
    bomb = body[:-2] + b"\xdd" + struct.pack(">I", count) + b"\xa0" * count
    tracemalloc.start()
    try:
        with pytest.raises(ProtocolError):
            wire.decode_from_worker(bomb)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert peak < 1 << 20


@pytest.mark.parametrize(
    "claim", [b"\xdb\xff\xff\xff\xff", b"\xc6\xff\xff\xff\xff", b"\xdd\xff\xff\xff\xff"]
)
def test_a_claimed_size_allocates_nothing(claim: bytes) -> None:
    body = b"\x93\x23\x0a" + claim
    tracemalloc.start()
    try:
        with pytest.raises(ProtocolError):
            wire.decode_from_worker(body)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert peak < 1 << 20
