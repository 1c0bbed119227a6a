"""The envelope: digests, signatures, contexts, hashes of chunks, and listings without running."""

from __future__ import annotations

import contextlib
import struct

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from qjs_pool import SnapshotDocument, SnapshotRejected, UsageError, inspect_snapshot
from qjs_pool.snapshots import (
    checked_keys,
    open_sealed,
    pack,
    put_together,
    seal,
    take_apart,
    unpack,
)
from qjs_pool.wire import documents
from qjs_pool.wire.documents import BadDocument, Global, Manifest

_settings = settings(max_examples=60, deadline=None)
_KEY = b"k" * 32
_OTHER = b"o" * 32


def _body(count: int = 2) -> bytes:
    manifest = Manifest(
        documents.FORMAT, [Global(f"g{n}", "number", n, 10) for n in range(count)], []
    )
    stored = documents.store(documents.encode_manifest(manifest))
    return documents.join(stored, [documents.store(b"document %d" % n) for n in range(count)])


@given(st.lists(st.binary(max_size=2000), max_size=5), st.binary(max_size=300))
@_settings
def test_bodies_come_apart_as_they_were_put_together(parts: list[bytes], head: bytes) -> None:
    stored = [documents.store(part) for part in parts]
    body = documents.join(documents.store(head), stored)
    manifest, found = documents.split(body)
    assert documents.unstore(manifest, 300) == head
    assert [documents.unstore(part, 2000) for part in found] == parts


def test_repetitive_data_is_compressed_and_small_data_is_left_alone() -> None:
    assert len(documents.store(b"x" * 100_000)) < 1000
    assert documents.store(b"abc") == b"\0abc"


def test_a_part_that_unpacks_to_more_than_it_may_is_refused_before_it_is_unpacked() -> None:
    bomb = documents.store(b"\0" * 50_000_000)
    assert len(bomb) < 10_000
    with pytest.raises(BadDocument, match="more than 1000 bytes"):
        documents.unstore(bomb, 1000)


@pytest.mark.parametrize(
    "stored", [b"", b"\2abc", b"\1", b"\1abc", b"\1\x28\xb5\x2f\xfd\x00\x58\x01\x00\x00"]
)
def test_a_part_that_is_no_part_is_refused(stored: bytes) -> None:
    with pytest.raises(BadDocument):
        documents.unstore(stored, 1000)


@given(st.binary(max_size=200))
@_settings
def test_garbage_is_a_body_or_refused_and_nothing_else(data: bytes) -> None:
    with contextlib.suppress(BadDocument):
        documents.split(data)


def test_a_length_beyond_the_end_is_refused() -> None:
    with pytest.raises(BadDocument, match="cut short"):
        documents.split(struct.pack("<I", 1 << 31) + b"abc")


def test_sealed_bodies_open_again() -> None:
    body = _body()
    assert open_sealed(seal(body)) == body
    assert open_sealed(seal(body, keys=[_KEY], context="t1"), keys=[_KEY], context="t1") == body
    # A pool without a key does not ask for one.
    assert open_sealed(seal(body, keys=[_KEY])) == body


def test_every_single_flipped_bit_is_noticed() -> None:
    blob = seal(_body(), keys=[_KEY])
    for at in range(len(blob)):
        for bit in range(8):
            damaged = bytearray(blob)
            damaged[at] ^= 1 << bit
            with pytest.raises(SnapshotRejected):
                open_sealed(bytes(damaged), keys=[_KEY])


def test_every_cut_is_noticed() -> None:
    blob = seal(_body())
    for end in range(len(blob)):
        with pytest.raises(SnapshotRejected):
            open_sealed(blob[:end])
    with pytest.raises(SnapshotRejected):
        open_sealed(blob + b"\0")


@pytest.mark.parametrize(
    ("signing", "context", "why"),
    [
        ([], "t1", "not signed"),
        ([_OTHER], "t1", "signature does not fit"),
        ([_KEY], "t2", "signature does not fit"),
        ([_KEY], "", "signature does not fit"),
    ],
)
def test_a_pool_with_a_key_takes_only_what_was_signed_for_that_context(
    signing: list[bytes], context: str, why: str
) -> None:
    blob = seal(_body(), keys=signing, context=context)
    with pytest.raises(SnapshotRejected, match=why):
        open_sealed(blob, keys=[_KEY], context="t1")


def test_a_signature_cannot_be_moved_to_another_body() -> None:
    signed, other = seal(_body(1), keys=[_KEY]), seal(_body(2), keys=[_KEY])
    forged = other[:40] + signed[40:72] + other[72:]
    with pytest.raises(SnapshotRejected, match="signature does not fit"):
        open_sealed(forged, keys=[_KEY])


def test_keys_can_be_rotated() -> None:
    old = seal(_body(), keys=[_OTHER])
    assert open_sealed(old, keys=[_KEY, _OTHER]) == _body()
    new = seal(_body(), keys=[_KEY, _OTHER])
    assert open_sealed(new, keys=[_KEY]) == _body()
    with pytest.raises(SnapshotRejected):
        open_sealed(new, keys=[_OTHER])


def test_another_version_and_another_kind_of_file_are_named() -> None:
    blob = bytearray(seal(_body()))
    blob[4] = 9
    with pytest.raises(SnapshotRejected, match="has format 9, this release reads 1"):
        open_sealed(bytes(blob))
    with pytest.raises(SnapshotRejected, match="not a snapshot"):
        open_sealed(b"PK\x03\x04" + b"\0" * 60)
    with pytest.raises(UsageError, match="must be bytes, not str"):
        open_sealed("text")


def test_a_body_over_the_limit_is_refused_by_the_host() -> None:
    with pytest.raises(SnapshotRejected, match="over the limit of 10"):
        open_sealed(seal(_body()), max_bytes=10)


def test_document_names_its_chunks_by_hash_and_goes_back_together() -> None:
    document = take_apart(_body(3))
    assert len(document.chunks) == 3
    assert document.hashes == tuple(document.chunks)
    assert put_together(document) == _body(3)
    assert unpack(pack(document, keys=[_KEY], context="t"), keys=[_KEY], context="t") == document


def test_equal_chunks_of_two_snapshots_have_equal_hashes() -> None:
    one, other = take_apart(_body(2)), take_apart(_body(3))
    assert set(one.chunks) < set(other.chunks)
    assert one.manifest != other.manifest


def test_a_missing_or_foreign_chunk_is_refused() -> None:
    document = take_apart(_body(2))
    first, second = document.hashes
    with pytest.raises(SnapshotRejected, match="chunk 1 of the snapshot is missing"):
        put_together(SnapshotDocument(document.manifest, {first: document.chunks[first]}))
    swapped = {first: document.chunks[second], second: document.chunks[first]}
    with pytest.raises(SnapshotRejected, match="chunk 0 of the snapshot is damaged"):
        put_together(SnapshotDocument(document.manifest, swapped))
    with pytest.raises(SnapshotRejected, match="manifest is damaged"):
        put_together(SnapshotDocument(b"[1]", {}))


def test_inspection_lists_globals_with_kind_and_size() -> None:
    blob = seal(_body(2), keys=[_KEY])
    info = inspect_snapshot(blob)
    assert (info.version, info.signed, info.size, info.state_bytes) == (1, True, len(blob), 20)
    assert [(item.name, item.kind, item.size, item.group) for item in info.globals] == [
        ("g0", "number", 10, 0),
        ("g1", "number", 10, 1),
    ]


def test_inspection_refuses_a_manifest_bomb_and_a_manifest_of_another_shape() -> None:
    bomb = documents.join(documents.store(b" " * (documents.MAX_MANIFEST_BYTES + 1)), [])
    with pytest.raises(SnapshotRejected, match="unpacks to more"):
        inspect_snapshot(seal(bomb))
    for manifest in (b"{}", b"[1]", b"[2, [], []]", b"[" * 5000, b'[1, [["n", "k", -1, 0]], []]'):
        with pytest.raises(SnapshotRejected, match="damaged"):
            inspect_snapshot(seal(documents.join(documents.store(manifest), [])))


@pytest.mark.parametrize(
    "key", ["text", b"short", [], [b"k" * 32, "text"], 5, [b"k" * 32, b"short"]]
)
def test_a_key_that_is_none_is_refused_when_the_pool_is_made(key: object) -> None:
    with pytest.raises(UsageError, match="snapshot_signing_key"):
        checked_keys(key)  # type: ignore[arg-type]


def test_no_key_one_key_and_many_keys_are_accepted() -> None:
    assert checked_keys(None) == ()
    assert checked_keys(_KEY) == (_KEY,)
    assert checked_keys([_KEY, _OTHER]) == (_KEY, _OTHER)
