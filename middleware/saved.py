"""A conversation's REPL as the graph's state holds it: what is written, merged, signed and read.

    channel  {tool name: entry}, so that two middlewares of one agent do not meet; a large write
             is bytes, see `packs`
    entry    seq, head    the state after the last eval: its place in the line, and a random name
             at           the `seq` that the snapshot below was taken at
             manifest     sealed: it is signed, and names the chunks by hash
             chunks       {hash: bytes}; a write has those only that the entry before it had not
             packs, places                      large chunks, see `packs`
             hashes       of all chunks of that manifest
             whole        the `seq` at which the checkpoint last had all of this
             ref          instead of these three: the manifest's sealed hash, in a `snapshot_store`
             modules      skills whose code the state may need
             lost         why there is no snapshot

Whatever a checkpointer gives back is checked: nobody knows who has written to it.
"""

from __future__ import annotations

import dataclasses
import hashlib
from collections.abc import Mapping, Sequence
from typing import Any, Final

from qjs_pool import snapshots
from qjs_pool.errors import SnapshotRejected
from qjs_pool.snapshots import SnapshotDocument
from qjs_pool.wire.documents import Buffer

from .packs import chunks_in, live_packs, loose, unpacked
from .seam import HAS_DELTAS, Overwrite, channel_of

SNAPSHOT_KEY: Final = "_qjs_pool_snapshot"
MALFORMED: Final = "what the agent's state has of it is malformed"
_ANY_TOOL: Final = "*"  # no tool's name; for what cannot be told apart by tools
_SNAPSHOT_FIELDS: Final = (
    "manifest", "chunks", "packs", "places", "hashes", "ref", "modules", "lost",
)  # fmt: skip
_SMALL_BYTES: Final = 1 << 20  # reading that much costs nothing
_WHOLE_EVERY: Final = 20  # evals, where the whole is small

Keys = Sequence[bytes]


@dataclasses.dataclass(frozen=True, slots=True)
class Saved:
    """An entry, read."""

    seq: int = 0
    head: str = ""
    at: int = 0
    manifest: bytes | None = None
    chunks: Mapping[str, Buffer] = dataclasses.field(default_factory=dict)
    ref: bytes | None = None
    modules: tuple[str, ...] = ()
    lost: str = ""
    whole: int = 0

    @property
    def holds_snapshot(self) -> bool:
        return self.manifest is not None or self.ref is not None


def merged(value: Any, writes: Sequence[Any]) -> dict[str, Any]:
    """The reducer of the channel. Head and snapshot each go forward only: parallel evals of one
    step may be written in any order."""
    entries: dict[str, Any] = dict(value) if isinstance(value, Mapping) else {}
    for write in writes:
        if isinstance(write, bytes):
            write = unpacked(write) or MALFORMED
        if write is not None and not isinstance(write, Mapping) and not entries:
            entries[_ANY_TOOL] = {"lost": MALFORMED}
        elif isinstance(write, Mapping):
            for tool_name, entry in write.items():
                entries[tool_name] = _merged_entry(entries.get(tool_name), entry)
    return entries


def state_channel() -> Any:
    """The channel, or without langgraph the reducer."""
    return channel_of(merged)


def last_write(state: Any, tool_name: str, write: Any, written_bytes: int) -> tuple[Any, int]:
    """What a turn's last write is instead of `write`, and what has been written since the whole.

    The whole value, where it is little beside what was written: a checkpoint is read with all
    writes since the last whole one. An older langgraph has whole values in all of them anyway.

    Args:
        write: of the turn's last snapshot; None if there is none.
        written_bytes: to this channel, since the whole was.
    """
    channel = state.get(SNAPSHOT_KEY) if isinstance(state, Mapping) else None
    whole = merged(channel, [] if write is None else [write])
    saved = read({SNAPSHOT_KEY: whole}, tool_name)
    held_bytes = sum(map(len, saved.chunks.values()))
    is_many = held_bytes <= _SMALL_BYTES and saved.seq - saved.whole >= _WHOLE_EVERY
    if not HAS_DELTAS or not (is_many or written_bytes > _SMALL_BYTES + 4 * held_bytes):
        return write, written_bytes
    value = {name: loose(_mapping(entry)) for name, entry in whole.items()}
    value.setdefault(tool_name, {})["whole"] = saved.seq
    # A node of its own makes it: a step may have one of its kind.
    return Overwrite(value), 0


def _merged_entry(old: Any, new: Any) -> Any:
    if not isinstance(new, Mapping):
        return old if isinstance(old, Mapping) else {"lost": MALFORMED}
    if not isinstance(old, Mapping):
        old = {}
    entry = dict(old)
    if _number(new, "seq") >= _number(old, "seq"):
        entry["seq"], entry["head"] = new.get("seq"), new.get("head")
    if "at" not in new or _number(new, "at") < _number(old, "at"):
        return entry
    entry["at"] = new["at"]
    if not any(field in new for field in _SNAPSHOT_FIELDS):
        return entry  # the snapshot is as it was
    for field in _SNAPSHOT_FIELDS:
        entry.pop(field, None)
        if field in new:
            entry[field] = new[field]
    hashes = entry.get("hashes")
    if isinstance(hashes, (list, tuple)):
        known = {**_mapping(old.get("chunks")), **_mapping(new.get("chunks"))}
        names = [name for name in hashes if isinstance(name, str)]
        entry["chunks"] = {name: known[name] for name in names if name in known}
        entry.pop("packs", None)
        entry.pop("places", None)
        entry |= live_packs((old, new), (name for name in names if name not in known))
    return entry


def read(state: Any, tool_name: str) -> Saved:
    """What the graph's state has of a REPL; of fields that cannot be right, nothing."""
    channel = state.get(SNAPSHOT_KEY) if isinstance(state, Mapping) else None
    entries = _mapping({_ANY_TOOL: MALFORMED} if _is_malformed(channel) else channel)
    given = entries.get(tool_name, entries.get(_ANY_TOOL))
    entry = _mapping(given)
    head, modules, lost = entry.get("head"), entry.get("modules"), entry.get("lost")
    manifest, ref = entry.get("manifest"), entry.get("ref")
    return Saved(
        seq=_number(entry, "seq"),
        head=head if isinstance(head, str) else "",
        at=_number(entry, "at"),
        manifest=manifest if isinstance(manifest, bytes) else b"" if manifest is not None else None,
        chunks=chunks_in(entry),
        ref=ref if isinstance(ref, bytes) else b"" if ref is not None else None,
        modules=tuple(str(name) for name in modules) if isinstance(modules, (list, tuple)) else (),
        lost=MALFORMED if _is_malformed_entry(given) else lost if isinstance(lost, str) else "",
        whole=_number(entry, "whole"),
    )


def _is_malformed(channel: Any) -> bool:
    return channel is not None and not isinstance(channel, Mapping)


def _is_malformed_entry(entry: Any) -> bool:
    """Whether it cannot be one that was written here. What of it is right may be of use."""
    if entry is None:
        return False
    fields = _mapping(entry)
    numbers = all(type(fields.get(name, 0)) is int for name in ("seq", "at"))
    return not (numbers and "seq" in fields and isinstance(fields.get("head"), str))


def snapshot_fields(
    document: SnapshotDocument, known: frozenset[str], keys: Keys, context: str
) -> dict[str, Any]:
    """The fields of a write that carries the snapshot itself."""
    return {
        "manifest": snapshots.seal(document.manifest, keys=keys, context=context),
        "hashes": list(document.hashes),
        "chunks": {name: part for name, part in document.chunks.items() if name not in known},
    }


def reference_fields(manifest_hash: str, keys: Keys, context: str) -> dict[str, Any]:
    """The fields of a write whose snapshot is in a store."""
    return {"ref": snapshots.seal(manifest_hash.encode(), keys=keys, context=context)}


def opened_manifest(saved: Saved, keys: Keys, context: str, max_bytes: int) -> bytes:
    """The manifest that an entry holds.

    Raises:
        SnapshotRejected: it is damaged, or not signed as it should be.
    """
    return bytes(
        snapshots.open_sealed(saved.manifest, keys=keys, context=context, max_bytes=max_bytes)
    )


def opened_reference(saved: Saved, keys: Keys, context: str) -> str:
    """The hash of the manifest in the store.

    Raises:
        SnapshotRejected: it is damaged, or not signed as it should be.
    """
    text = snapshots.open_sealed(saved.ref, keys=keys, context=context, max_bytes=64)
    name = str(text, "ascii", "replace")
    if len(name) != 64 or not set(name) <= set("0123456789abcdef"):
        raise SnapshotRejected("the snapshot's reference is damaged")
    return name


def hash_of(data: bytes) -> str:
    """The name of a manifest or chunk."""
    return hashlib.sha256(data).hexdigest()


def _number(entry: Mapping[str, Any], field: str) -> int:
    value = entry.get(field)
    return value if isinstance(value, int) and not isinstance(value, bool) else 0


def _mapping(value: Any) -> Mapping[str, Any]:
    return value if isinstance(value, Mapping) else {}
