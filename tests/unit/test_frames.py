"""The frame codec: any split gives the same frames, and garbage costs no more than the cap."""

from __future__ import annotations

import struct
import tracemalloc

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from qjs_pool.wire import FrameDecoder, ProtocolError, encode_frame
from qjs_pool.wire.frames import HEADER_BYTES

_settings = settings(max_examples=60, deadline=None)  # a busy machine is no failure
_CAP = 64
_BODIES = st.lists(st.binary(max_size=_CAP), max_size=8)


@_settings
@given(_BODIES, st.data())
def test_splitting_the_stream_anywhere_never_changes_the_frames(
    bodies: list[bytes], data: st.DataObject
) -> None:
    stream = b"".join(map(encode_frame, bodies))
    cuts = sorted(data.draw(st.lists(st.integers(0, len(stream)), max_size=9)))
    decoder, got = FrameDecoder(_CAP), []
    for start, end in zip([0, *cuts], [*cuts, len(stream)], strict=True):
        got += decoder.feed(stream[start:end])
    assert got == bodies
    assert not decoder.mid_frame


@_settings
@given(_BODIES)
def test_byte_by_byte_gives_the_same_frames(bodies: list[bytes]) -> None:
    decoder, got = FrameDecoder(_CAP), []
    for byte in b"".join(map(encode_frame, bodies)):
        got += decoder.feed(bytes([byte]))
    assert got == bodies


@_settings
@given(_BODIES, st.binary(min_size=1, max_size=_CAP), st.data())
def test_a_stream_that_stops_inside_a_frame_is_seen_to(
    bodies: list[bytes], last: bytes, data: st.DataObject
) -> None:
    frame = encode_frame(last)
    cut = data.draw(st.integers(1, len(frame) - 1))
    decoder = FrameDecoder(_CAP)
    assert decoder.feed(b"".join(map(encode_frame, bodies)) + frame[:cut]) == bodies
    assert decoder.mid_frame
    assert decoder.feed(frame[cut:]) == [last]
    assert not decoder.mid_frame


@_settings
@given(st.lists(st.binary(max_size=200), max_size=20))
def test_garbage_gives_bodies_within_the_cap_or_a_protocol_error(chunks: list[bytes]) -> None:
    decoder = FrameDecoder(_CAP)
    for chunk in chunks:
        try:
            bodies = decoder.feed(chunk)
        except ProtocolError:
            return
        assert all(len(body) <= _CAP for body in bodies)


@pytest.mark.parametrize("length", [_CAP + 1, 1 << 20, (1 << 31) + 5, (1 << 32) - 1])
def test_a_frame_over_the_cap_is_refused_at_its_header(length: int) -> None:
    decoder = FrameDecoder(_CAP)
    assert decoder.feed(encode_frame(b"good")) == [b"good"]
    assert decoder.feed(struct.pack("<I", length)[:3]) == []
    with pytest.raises(ProtocolError, match=str(length)):
        decoder.feed(struct.pack("<I", length)[3:])


def test_a_frame_of_exactly_the_cap_passes() -> None:
    assert FrameDecoder(_CAP).feed(encode_frame(b"x" * _CAP)) == [b"x" * _CAP]


def test_a_claimed_length_allocates_nothing_and_a_held_frame_no_more_than_it_has() -> None:
    cap, chunk = 8 << 20, b"x" * (64 << 10)
    decoder = FrameDecoder(cap)
    tracemalloc.start()
    try:
        decoder.feed(struct.pack("<I", cap))
        assert tracemalloc.get_traced_memory()[0] < 64 << 10
        fed = 0
        while fed + len(chunk) < cap:
            assert decoder.feed(chunk) == []
            fed += len(chunk)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    # A bytearray grows by an eighth at a time, and holds old and new while it moves.
    assert peak < 2.5 * cap


def test_many_frames_in_one_chunk_are_cut_in_linear_time() -> None:
    bodies = [b""] * 200_000
    decoder = FrameDecoder(_CAP)
    assert decoder.feed(b"\0" * HEADER_BYTES * len(bodies)) == bodies
