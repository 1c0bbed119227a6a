"""Large writes to the graph's state: what the reducer makes of packs, whoever wrote them."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from qjs_pool.middleware.packs import chunks_in, loose, packed, unpacked
from qjs_pool.middleware.saved import MALFORMED, SNAPSHOT_KEY, merged, read

_LARGE = b"a" * (1 << 20)
_OTHER = b"b" * (1 << 19)
_SMALL = b"c" * 100


def _entry(seq: int, hashes: list[str], **chunks: bytes) -> dict[str, Any]:
    return {
        "seq": seq, "head": f"h{seq}", "at": seq, "manifest": b"m", "hashes": hashes,
        "chunks": chunks,
    }  # fmt: skip


def _held(channel: dict[str, Any]) -> dict[str, bytes]:
    return {name: bytes(part) for name, part in chunks_in(channel["eval"]).items()}


def test_a_small_write_is_a_mapping_and_a_large_one_is_bytes() -> None:
    small = _entry(1, ["s"], s=_SMALL)
    assert packed("eval", small) == {"eval": small}
    assert isinstance(packed("eval", _entry(1, ["l"], l=_LARGE)), bytes)


def test_a_pack_holds_all_that_was_written() -> None:
    chunks = {"l": _LARGE, "s": _SMALL, "o": _OTHER}
    channel = merged(None, [packed("eval", _entry(3, ["s", "o", "l"], **chunks))])
    assert _held(channel) == chunks
    saved = read({"_qjs_pool_snapshot": channel}, "eval")
    assert (saved.seq, saved.head, saved.at, saved.manifest) == (3, "h3", 3, b"m")


def test_the_bytes_of_a_pack_are_referred_to_and_not_copied() -> None:
    pack = packed("eval", _entry(1, ["l", "o"], l=_LARGE, o=_OTHER))
    channel = merged({}, [pack])
    later = merged(channel, [{"eval": {"seq": 2, "head": "x"}}])
    assert [*later["eval"]["packs"].values()] == [pack]
    assert next(iter(later["eval"]["packs"].values())) is pack


def test_a_pack_goes_with_the_last_of_its_chunks() -> None:
    first = packed("eval", _entry(1, ["l", "o"], l=_LARGE, o=_OTHER))
    half = {"eval": _entry(2, ["o", "s"], s=_SMALL)}
    none = {"eval": _entry(3, ["s"])}
    assert _held(merged({}, [first, half])) == {"o": _OTHER, "s": _SMALL}
    channel = merged({}, [first, half, none])
    assert _held(channel) == {"s": _SMALL}
    assert "packs" not in channel["eval"]
    assert "places" not in channel["eval"]


def test_merging_in_batches_gives_what_merging_at_once_does() -> None:
    first = packed("eval", _entry(1, ["l"], l=_LARGE))
    second = packed("eval", _entry(2, ["l", "o", "p"], o=_OTHER, p=_OTHER + _OTHER))
    late = packed("eval", _entry(1, ["l"], l=_LARGE))  # of a parallel eval that was slower
    writes = [first, second, late]
    whole = merged({}, writes)
    assert merged(merged(merged({}, [first]), [second]), [late]) == whole
    assert _held(whole) == {"l": _LARGE, "o": _OTHER, "p": _OTHER + _OTHER}


def test_a_loose_entry_holds_the_chunks_and_no_packs() -> None:
    pack = packed("eval", _entry(1, ["l", "s"], l=_LARGE, s=_SMALL))
    entry = loose(merged({}, [pack])["eval"])
    assert entry["chunks"] == {"l": _LARGE, "s": _SMALL}
    assert "packs" not in entry
    assert "places" not in entry


@pytest.mark.parametrize("cut", [0, 3, 7, 8, 9, 40])
def test_a_pack_that_is_cut_gives_nothing_and_is_told_of(cut: int) -> None:
    pack = packed("eval", _entry(1, ["l"], l=_LARGE))
    assert isinstance(pack, bytes)
    assert unpacked(pack[:cut]) == {}
    saved = read({SNAPSHOT_KEY: merged({}, [pack[:cut]])}, "eval")
    assert not saved.holds_snapshot
    assert saved.lost == MALFORMED


def test_a_pack_that_claims_more_than_it_holds_gives_less() -> None:
    head = msgspec.msgpack.encode(["eval", _entry(1, ["l"]), "p", [["l", 1 << 62], ["m", 5]]])
    pack = b"QJSP" + len(head).to_bytes(4, "little") + head + b"abc"
    assert _held(merged({}, [pack])) == {"l": b"abc"}


@pytest.mark.parametrize(
    "places",
    [
        5, {"l": None}, {"l": ["p", -1, 5]}, {"l": ["p", 0, True]}, {"l": ["p", 0]},
        {"l": [None, 0, 1]}, {"l": [["p"], 0, 1]}, {"l": "abc"}, {"l": ["q", 0, 1]},
    ],
)  # fmt: skip
def test_places_that_cannot_be_right_are_none(places: Any) -> None:
    entry = {**_entry(1, ["l"]), "packs": {"p": b"xyz", None: b"x"}, "places": places}
    assert chunks_in(entry) == {}
    assert _held(merged({}, [{"eval": entry}])) == {}
