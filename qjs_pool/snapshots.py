"""Snapshots, on the host's side: envelope, hashes, signatures, and what is in one.

    blob     header, SHA-256 of the body, HMAC-SHA256 if signed, body (see `wire.documents`)
    header   magic "QJSS", version, flags (1: signed), two bytes of zero

The digest tells damage, the HMAC tells forgery: it covers header, digest and a context (the thread
the snapshot belongs to), so that one thread's state cannot be passed off as another's. Nothing in
here interprets a document, and no key ever leaves the host.
"""

from __future__ import annotations

import dataclasses
import hashlib
import hmac
import struct
from collections.abc import Iterable, Mapping, Sequence
from typing import Final

import msgspec

from .errors import SnapshotRejected, UsageError
from .large import Drain, copied
from .wire import documents
from .wire.documents import BadDocument, Buffer

_HEADER: Final = struct.Struct("<4sBBH")
_MAGIC: Final = b"QJSS"
_VERSION: Final = 1
_SIGNED: Final = 1
_DIGEST_BYTES: Final = 32
_PURPOSE: Final = b"qjs-pool snapshot\0"

Keys = Sequence[bytes]


@dataclasses.dataclass(frozen=True, slots=True)
class SnapshotGlobal:
    """A global in a snapshot. Those of one `group` share objects, and are stored together."""

    name: str
    kind: str  # "number", "array", "function", a class's name, or "not restorable (...)"
    size: int  # bytes, before compression
    group: int


@dataclasses.dataclass(frozen=True, slots=True)
class SnapshotInfo:
    """What a snapshot holds, read without running anything."""

    version: int
    signed: bool
    size: int  # bytes of the blob
    state_bytes: int  # of what it holds, before compression
    globals: tuple[SnapshotGlobal, ...]


@dataclasses.dataclass(frozen=True, slots=True)
class SnapshotDocument:
    """A snapshot taken apart: a manifest that names its chunks by hash, and the chunks.

    A chunk holds the globals that share objects, and changes only if one of them did: so of two
    snapshots of one session the equal chunks need to be stored once. `manifest` and `chunks` are
    as a worker sent them, hashed here.
    """

    manifest: bytes
    chunks: dict[str, bytes]

    @property
    def hashes(self) -> tuple[str, ...]:
        """The hashes of the chunks, in the manifest's order."""
        return tuple(_named(self.manifest).chunks)


class _Named(msgspec.Struct, array_like=True, frozen=True, forbid_unknown_fields=True):
    stored: bytes  # the manifest as it is in a body
    chunks: list[str]


_decode_named: Final = msgspec.json.Decoder(_Named).decode


def _named(manifest: bytes) -> _Named:
    try:
        return _decode_named(manifest)
    except (msgspec.MsgspecError, RecursionError, UnicodeDecodeError) as error:
        raise SnapshotRejected(f"the snapshot's manifest is damaged: {error}") from None


def take_apart(body: Buffer) -> SnapshotDocument:
    """Split a body into its manifest and chunks, which are copies.

    Raises:
        SnapshotRejected: the body is damaged.
    """
    return take_apart_pieces([body])


def take_apart_pieces(pieces: list[Buffer]) -> SnapshotDocument:
    """Split a body that came in pieces. Each is let go of as soon as possible: the list is emptied.

    Raises:
        SnapshotRejected: the body is damaged.
    """
    body = Drain(pieces)
    stored: bytes | None = None
    hashes: list[str] = []
    chunks: dict[str, bytes] = {}
    while body.left_bytes:
        prefix = body.take(documents.LENGTH_BYTES)
        if len(prefix) < documents.LENGTH_BYTES:
            raise SnapshotRejected("the snapshot is damaged: it is cut short")
        length = documents.length_of(prefix)
        if length > body.left_bytes:
            raise SnapshotRejected("the snapshot is damaged: it is cut short")
        part = body.take(length)
        if stored is None:
            stored = part
            continue
        hashes.append(hashlib.sha256(part).hexdigest())
        chunks[hashes[-1]] = part
    if stored is None:
        raise SnapshotRejected("the snapshot is damaged: it is empty")
    return SnapshotDocument(msgspec.json.encode(_Named(stored, hashes)), chunks)


def put_together(document: SnapshotDocument) -> bytes:
    """The body of a document, see `body_parts`."""
    return b"".join(body_parts(document.manifest, document.chunks))


def body_parts(manifest: bytes, chunks: Mapping[str, Buffer]) -> list[Buffer]:
    """The body of a document, part by part; every chunk must be what the manifest says.

    Raises:
        SnapshotRejected: a chunk is missing or is not the one that the manifest names.
    """
    named = _named(manifest)
    parts: list[Buffer] = []
    for number, name in enumerate(named.chunks):
        part = chunks.get(name)
        if part is None:
            raise SnapshotRejected(f"chunk {number} of the snapshot is missing")
        if hashlib.sha256(part).hexdigest() != name:
            raise SnapshotRejected(f"chunk {number} of the snapshot is damaged")
        parts.append(part)
    return documents.parts_of_body(named.stored, parts)


def pack(document: SnapshotDocument, *, keys: Keys = (), context: str = "") -> bytes:
    """A document as one blob, signed with the first of `keys` if there are any."""
    parts = body_parts(document.manifest, document.chunks)
    return seal_parts(parts, keys=keys, context=context)


def unpack(
    blob: bytes, *, keys: Keys = (), context: str = "", max_bytes: int | None = None
) -> SnapshotDocument:
    """The document of a blob; see `open_sealed` for what is refused."""
    return take_apart(open_sealed(blob, keys=keys, context=context, max_bytes=max_bytes))


def seal(body: Buffer, *, keys: Keys = (), context: str = "") -> bytes:
    """Put a body into its envelope."""
    return seal_parts([body], keys=keys, context=context)


def seal_parts(parts: Sequence[Buffer], *, keys: Keys = (), context: str = "") -> bytes:
    """Put the body that consists of these parts into its envelope, copying it once."""
    header = _HEADER.pack(_MAGIC, _VERSION, _SIGNED if keys else 0, 0)
    hashed = hashlib.sha256()
    for part in parts:
        hashed.update(part)
    digest = hashed.digest()
    tag = _tag(keys[0], header, digest, context) if keys else b""
    # Of bytes and nothing else, a join of this size lets other threads run.
    return b"".join((header, digest, tag, *parts))


def open_sealed(
    blob: object, *, keys: Keys = (), context: str = "", max_bytes: int | None = None
) -> memoryview:
    """The body of a blob: a view of it, no copy, or of a copy where others may write to it.

    Args:
        keys: any of them may have signed it; without keys a signature is not looked at.
        max_bytes: of the body.

    Raises:
        UsageError: `blob` is not bytes.
        SnapshotRejected: it is no snapshot, damaged, too large, of another format, not signed, or
            signed with another key or for another context.
    """
    header, signature, body = _envelope(blob)
    if max_bytes is not None and len(body) > max_bytes:
        raise SnapshotRejected(
            f"the snapshot of {len(body)} bytes is over the limit of {max_bytes} "
            "(Limits.snapshot_bytes)"
        )
    digest = hashlib.sha256(body).digest()
    if not hmac.compare_digest(digest, signature[:_DIGEST_BYTES]):
        raise SnapshotRejected("the snapshot is damaged: its digest does not fit")
    if keys:
        given = signature[_DIGEST_BYTES:]
        if not given:
            raise SnapshotRejected("the snapshot is not signed, and this pool has a signing key")
        if not any(hmac.compare_digest(given, _tag(key, header, digest, context)) for key in keys):
            raise SnapshotRejected(
                "the snapshot's signature does not fit: it was signed with another key or for "
                "another context, or someone changed it"
            )
    return body


def _envelope(blob: object) -> tuple[bytes, bytes, memoryview]:
    """Header, digest with signature, and body."""
    if not isinstance(blob, (bytes, bytearray, memoryview)):
        raise UsageError(f"snapshot must be bytes, not {type(blob).__name__}")
    data = blob if isinstance(blob, bytes) else copied(blob)
    if len(data) < _HEADER.size + _DIGEST_BYTES:
        raise SnapshotRejected("the snapshot is shorter than its header")
    magic, version, flags, _ = _HEADER.unpack_from(data)
    if magic != _MAGIC:
        raise SnapshotRejected("this is not a snapshot of qjs-pool")
    if version != _VERSION:
        raise SnapshotRejected(f"the snapshot has format {version}, this release reads {_VERSION}")
    start = _HEADER.size + _DIGEST_BYTES * (2 if flags & _SIGNED else 1)
    if len(data) < start:
        raise SnapshotRejected("the snapshot is shorter than its header")
    return data[: _HEADER.size], data[_HEADER.size : start], memoryview(data)[start:]


def _tag(key: bytes, header: bytes, digest: bytes, context: str) -> bytes:
    about = context.encode("utf-8", "surrogatepass")
    return hmac.digest(key, b"".join((_PURPOSE, header, digest, about)), "sha256")


def _parts(body: Buffer) -> tuple[memoryview, list[memoryview]]:
    try:
        return documents.split(body)
    except BadDocument as error:
        raise SnapshotRejected(f"the snapshot is damaged: {error}") from None


def inspect_snapshot(blob: bytes) -> SnapshotInfo:
    """List what a snapshot holds, without running, restoring or trusting anything in it.

    A signature is not verified here: names and sizes are what the worker that took it said.

    Raises:
        UsageError: `blob` is not bytes.
        SnapshotRejected: it is no snapshot, damaged, or of another format.
    """
    stored, _ = _parts(open_sealed(blob))
    try:
        data = documents.unstore(stored, documents.MAX_MANIFEST_BYTES)
        manifest = documents.decode_manifest(data)
    except BadDocument as error:
        raise SnapshotRejected(f"the snapshot is damaged: {error}") from None
    found = tuple(
        SnapshotGlobal(item.name, item.kind, item.bytes, item.document) for item in manifest.globals
    )
    header, _, _ = _envelope(blob)
    return SnapshotInfo(
        version=_VERSION,
        signed=bool(header[5] & _SIGNED),
        size=len(blob),
        state_bytes=sum(item.size for item in found),
        globals=found,
    )


def checked_keys(key: bytes | Iterable[bytes] | None) -> tuple[bytes, ...]:
    """The keys of a `snapshot_signing_key` option; the first one signs.

    Raises:
        UsageError: one is not bytes, or too short to be a secret.
    """
    if key is None:
        return ()
    keys = (key,) if isinstance(key, bytes) else key
    if isinstance(keys, (str, bytearray)) or not isinstance(keys, Iterable):
        raise UsageError("snapshot_signing_key must be bytes or a list of bytes")
    checked = tuple(keys)
    if not checked:
        raise UsageError("snapshot_signing_key is an empty list; None means unsigned snapshots")
    for item in checked:
        if not isinstance(item, bytes):
            raise UsageError(
                f"snapshot_signing_key must be bytes or a list of bytes, not {type(item).__name__}"
            )
        if len(item) < 16:
            raise UsageError(
                f"a snapshot_signing_key of {len(item)} bytes can be guessed; use "
                "secrets.token_bytes(32)"
            )
    return checked
