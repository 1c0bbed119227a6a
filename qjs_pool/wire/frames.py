"""Frame codec for the data stream: bytes to bodies and back.

What belongs here: the header and its size check. What does not: what a body means
(`messages.py`), whose turn it is (`channel.py`), reading a socket (the drivers).
"""

import struct
from typing import Final

_HEADER: Final = struct.Struct("<I")  # body length in bytes
HEADER_BYTES: Final = _HEADER.size

MAX_CODE_BYTES: Final = 16 << 20
# Code is the largest thing a host sends; the rest of an Eval, and values put into a session,
# have their own caps well below this one.
MAX_TO_WORKER_BYTES: Final = 64 << 20


class ProtocolError(Exception):
    """The peer sent what the protocol does not allow. The only way on is another worker."""


def encode_frame(body: bytes) -> bytes:
    """One frame: the little-endian 32-bit body length, then the body."""
    return _HEADER.pack(len(body)) + body


class FrameDecoder:
    """Cuts a byte stream into frame bodies, however the stream was split.

    `max_body_bytes` bounds what a peer can make us hold: a longer frame is refused when its
    header is seen, before its body is read. After a `ProtocolError` the decoder is spent.
    """

    __slots__ = ("_buffer", "_max_body_bytes")

    def __init__(self, max_body_bytes: int) -> None:
        self._buffer = bytearray()
        self._max_body_bytes = max_body_bytes

    def feed(self, data: bytes) -> list[bytes]:
        """The bodies that `data` completes, in order.

        Raises:
            ProtocolError: a header claims more than `max_body_bytes`.
        """
        buffer = self._buffer
        buffer += data
        bodies: list[bytes] = []
        start, held = 0, len(buffer)
        while held - start >= HEADER_BYTES:
            (length,) = _HEADER.unpack_from(buffer, start)
            if length > self._max_body_bytes:
                raise ProtocolError(
                    f"frame of {length} bytes exceeds the cap of {self._max_body_bytes}"
                )
            end = start + HEADER_BYTES + length
            if end > held:
                break
            with memoryview(buffer) as view:
                bodies.append(bytes(view[start + HEADER_BYTES : end]))
            start = end
        if start:
            del buffer[:start]
        return bodies

    @property
    def mid_frame(self) -> bool:
        """Whether the stream stopped inside a frame."""
        return bool(self._buffer)
