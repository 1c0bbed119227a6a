"""The body of a snapshot: a manifest and documents, each stored compressed where that helps.

Worker and host both read it, and neither trusts it: sizes are checked before memory is taken. What
is in a document, only the engine knows (`prelude/98-snapshot-write.js`).

    body      u32 length of the stored manifest, the manifest, then each document: u32 length, bytes
    stored    one byte that says how (0 plain, 1 zstd), then the data
    manifest  JSON: [format, globals, modules], a global being [name, kind, number of its document,
              bytes]
"""

import struct
from collections.abc import Sequence
from typing import Annotated, Final

import msgspec
import zstandard

FORMAT: Final = 1
_LENGTH: Final = struct.Struct("<I")
LENGTH_BYTES: Final = _LENGTH.size
_PLAIN: Final = b"\0"
_ZSTD: Final = b"\1"
# Below this a frame's own header eats what compression saves.
_WORTH_BYTES: Final = 200
MAX_MANIFEST_BYTES: Final = 16 << 20


Buffer = bytes | memoryview


class BadDocument(ValueError):
    """Bytes that are not what they should be; the message says how."""


class Global(msgspec.Struct, array_like=True, frozen=True):
    """A global that the guest made: `bytes` is its share of its document, before compression."""

    name: str
    kind: str
    document: Annotated[int, msgspec.Meta(ge=0)]
    bytes: Annotated[int, msgspec.Meta(ge=0)]


class Manifest(msgspec.Struct, array_like=True, frozen=True):
    """What the documents hold, in the order in which the globals were made."""

    format: int
    globals: list[Global]
    modules: list[str] = []  # what has to be imported first


_decode_manifest: Final = msgspec.json.Decoder(Manifest).decode
encode_manifest: Final = msgspec.json.Encoder().encode


def decode_manifest(data: bytes) -> Manifest:
    """A manifest, checked for its shape.

    Raises:
        BadDocument: it is damaged, or of another format.
    """
    try:
        manifest = _decode_manifest(data)
    except (msgspec.MsgspecError, RecursionError, UnicodeDecodeError) as error:
        raise BadDocument(f"its manifest is damaged: {error}") from None
    if manifest.format != FORMAT:
        raise BadDocument(f"it has format {manifest.format}, this release reads {FORMAT}")
    return manifest


def store(data: bytes) -> bytes:
    """The stored form of a manifest or document."""
    if len(data) >= _WORTH_BYTES:
        packed = zstandard.ZstdCompressor(level=3).compress(data)
        if len(packed) < len(data):
            return _ZSTD + packed
    return _PLAIN + data


def unstore(stored: Buffer, max_bytes: int) -> bytes:
    """What was stored, at most `max_bytes` of it.

    Raises:
        BadDocument: it is damaged, or larger.
    """
    how, packed = stored[:1], memoryview(stored)[1:]
    if how == _PLAIN:
        size = len(packed)
    elif how == _ZSTD:
        try:
            size = zstandard.frame_content_size(packed)
        except zstandard.ZstdError as error:
            raise BadDocument(f"a part is damaged: {error}") from None
        if size < 0:
            raise BadDocument("a part does not say how large it is")
    else:
        raise BadDocument("a part is stored in an unknown way")
    if size > max_bytes:
        raise BadDocument(f"it unpacks to more than {max_bytes} bytes")
    if how == _PLAIN:
        return bytes(packed)
    try:
        # Never more than the frame says, so never more than `max_bytes`.
        data = zstandard.ZstdDecompressor().decompress(packed, max_output_size=max(size, 1))
    except zstandard.ZstdError as error:
        raise BadDocument(f"a part is damaged: {error}") from None
    if len(data) != size:
        raise BadDocument("a part is shorter than it says")
    return data


def parts_of_body(manifest: Buffer, documents: Sequence[Buffer]) -> list[Buffer]:
    """What a body is, part by part, out of a stored manifest and stored documents."""
    parts = [_LENGTH.pack(len(manifest)), manifest]
    for document in documents:
        parts += (_LENGTH.pack(len(document)), document)
    return parts


def join(manifest: Buffer, documents: Sequence[Buffer]) -> bytes:
    """A body out of a stored manifest and stored documents."""
    return b"".join(parts_of_body(manifest, documents))


def length_of(prefix: Buffer) -> int:
    """What the `LENGTH_BYTES` before a part say of its length."""
    (length,) = _LENGTH.unpack(prefix)
    return int(length)


def split(body: Buffer) -> tuple[memoryview, list[memoryview]]:
    """The stored manifest and the stored documents of a body: views of it, no copies.

    Raises:
        BadDocument: it is cut short.
    """
    parts: list[memoryview] = []
    view = memoryview(body)
    at = 0
    while at < len(body):
        if at + LENGTH_BYTES > len(body):
            raise BadDocument("it is cut short")
        length = length_of(view[at : at + LENGTH_BYTES])
        at += LENGTH_BYTES
        if at + length > len(body):
            raise BadDocument("it is cut short")
        parts.append(view[at : at + length])
        at += length
    if not parts:
        raise BadDocument("it is empty")
    return parts[0], parts[1:]
