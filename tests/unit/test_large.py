"""Copies of large data, slice by slice: whatever the pieces were, the bytes are the same."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from qjs_pool.large import SLICE_BYTES, Drain, copied, pieces_of, slices

_PIECES = st.lists(st.binary(max_size=9), max_size=6)


@given(_PIECES, st.integers(1, 7))
def test_parts_come_in_pieces_of_one_size_and_a_shorter_last_one(
    parts: list[bytes], size: int
) -> None:
    pieces = list(pieces_of(parts, size))
    assert b"".join(pieces) == b"".join(parts)
    assert all(len(piece) == size for piece in pieces[:-1])
    assert all(0 < len(piece) <= size for piece in pieces)


@given(_PIECES, st.lists(st.integers(0, 20)))
def test_a_drain_gives_the_bytes_in_order_and_says_what_is_left(
    pieces: list[bytes], sizes: list[int]
) -> None:
    whole, at = b"".join(pieces), 0
    drain = Drain(list(pieces))
    for size in sizes:
        assert drain.take(size) == whole[at : at + size]
        at = min(len(whole), at + size)
        assert drain.left_bytes == len(whole) - at


def test_a_drained_list_holds_nothing_any_more() -> None:
    pieces = [b"ab", b"cd"]
    drain = Drain(pieces)
    assert pieces == []
    assert drain.take(3) == b"abc"


def test_copies_are_bytes_of_their_own_whatever_the_buffer() -> None:
    source = bytearray(bytes(range(256)) * (SLICE_BYTES // 128))
    whole = bytes(source)
    copy = copied(source)
    source[0] = 99
    assert copy == whole
    assert copied(memoryview(b"abcdef")[::2]) == b"ace"
    assert copied(memoryview(b"abcdefgh").cast("H")) == b"abcdefgh"
    assert copied(b"") == b""


def test_slices_are_views_of_all_of_it() -> None:
    data = bytes(range(10))
    assert [bytes(part) for part in slices(data, 4)] == [data[:4], data[4:8], data[8:]]
