"""The wire protocol between host, zygote, anchor, keeper and worker: bytes in, typed messages out.

Both sides import this package, so it depends on nothing but `msgspec` and the standard library:
`frames` cuts a stream into bodies, `messages` gives every body its type, `channel` is the order
in which messages may come. No descriptor, process or clock is touched here.
"""

from .frames import FrameDecoder, ProtocolError, encode_frame

__all__ = ["FrameDecoder", "ProtocolError", "encode_frame"]
