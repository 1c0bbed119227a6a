"""Large writes of a conversation's REPL as bytes: a checkpointer takes and gives those as they are.

A serializer copies what is in a mapping several times over, and mostly in the event loop. So a
write with large chunks is a pack; the reducer reads its head, and what was merged refers to the
pack's bytes and never copies them.

    pack     magic "QJSP", u32 length of the head, the head, then the large chunks
    head     [tool name, entry, name of the pack, [[name, length] of each large chunk]]
    packs    {name: pack}                        of an entry, as merged
    places   {chunk's name: [pack's name, start, length]}
"""

from __future__ import annotations

import struct
import uuid
from collections.abc import Iterable, Mapping
from typing import Annotated, Any, Final

import msgspec

from qjs_pool.wire.documents import Buffer

_MAGIC: Final = b"QJSP"
_LENGTH: Final = struct.Struct("<I")
_HEAD: Final = len(_MAGIC) + _LENGTH.size
# Serializing that much takes a millisecond: a write with less is a plain mapping.
_LARGE_WRITE_BYTES: Final = 1 << 20
_LARGE_CHUNK_BYTES: Final = 64 << 10

_Size = Annotated[int, msgspec.Meta(ge=0)]


class _Head(msgspec.Struct, array_like=True, frozen=True, forbid_unknown_fields=True):
    tool_name: str
    entry: dict[str, Any]
    name: str
    chunks: list[tuple[str, _Size]]


_decode_head: Final = msgspec.msgpack.Decoder(_Head).decode


def packed(tool_name: str, entry: dict[str, Any]) -> dict[str, Any] | bytes:
    """The write of an entry; as bytes where it is large, which takes a copy of it all."""
    chunks: dict[str, bytes] = entry.get("chunks") or {}
    if sum(map(len, chunks.values())) < _LARGE_WRITE_BYTES:
        return {tool_name: entry}
    large = {name: part for name, part in chunks.items() if len(part) > _LARGE_CHUNK_BYTES}
    small = {name: part for name, part in chunks.items() if name not in large}
    head = msgspec.msgpack.encode(
        _Head(
            tool_name,
            {**entry, "chunks": small},
            uuid.uuid4().hex,
            [(name, len(part)) for name, part in large.items()],
        )
    )
    # Of bytes and nothing else, a join of this size lets other threads run.
    return b"".join((_MAGIC, _LENGTH.pack(len(head)), head, *large.values()))


def unpacked(pack: bytes) -> dict[str, Any]:
    """The write of a pack, its large chunks as places in it; nothing if it is none of ours."""
    if len(pack) < _HEAD or not pack.startswith(_MAGIC):
        return {}
    start = _HEAD + _LENGTH.unpack_from(pack, len(_MAGIC))[0]
    try:
        head = _decode_head(memoryview(pack)[_HEAD:start])
    except (msgspec.MsgspecError, RecursionError, UnicodeDecodeError):
        return {}
    places: dict[str, list[Any]] = {}
    for name, length in head.chunks:
        places[name] = [head.name, start, length]
        start += length
    entry = {**head.entry, "packs": {head.name: pack}, "places": places}
    return {head.tool_name: entry}


def live_packs(entries: Iterable[Mapping[str, Any]], names: Iterable[str]) -> dict[str, Any]:
    """The `packs` and `places` of those chunks, out of entries of which the later ones count."""
    packs: dict[Any, Any] = {}
    places: dict[Any, Any] = {}
    for entry in entries:
        packs.update(_mapping(entry.get("packs")))
        places.update(_mapping(entry.get("places")))
    used: dict[str, Any] = {}
    kept: dict[str, Any] = {}
    for name in names:
        pack = _pack_of(places.get(name))
        if pack is not None and pack in packs:
            used[pack] = packs[pack]
            kept[name] = places[name]
    return {"packs": used, "places": kept} if used else {}


def chunks_in(entry: Mapping[str, Any]) -> dict[str, Buffer]:
    """All chunks of a merged entry by their names: those in packs are views, no copies."""
    found: dict[str, Buffer] = {
        name: part
        for name, part in _mapping(entry.get("chunks")).items()
        if isinstance(part, bytes)
    }
    packs = _mapping(entry.get("packs"))
    for name, place in _mapping(entry.get("places")).items():
        if (pack_name := _pack_of(place)) is None or name in found:
            continue
        if isinstance(pack := packs.get(pack_name), bytes):
            _, start, length = place
            found[name] = memoryview(pack)[start : start + length]
    return found


def loose(entry: Mapping[str, Any]) -> dict[str, Any]:
    """The entry with copies of its chunks in place of the packs, which may hold others as well."""
    chunks = {name: bytes(part) for name, part in chunks_in(entry).items()}
    rest = {key: value for key, value in entry.items() if key not in ("packs", "places")}
    return {**rest, "chunks": chunks} if chunks else rest


def _pack_of(place: Any) -> str | None:
    """The name of the pack, of what is a place: nobody knows who has written it."""
    if not isinstance(place, (list, tuple)) or len(place) != 3:
        return None
    name, *numbers = place
    is_place = isinstance(name, str) and all(type(one) is int and one >= 0 for one in numbers)
    return name if is_place else None


def _mapping(value: Any) -> Mapping[Any, Any]:
    return value if isinstance(value, Mapping) else {}
