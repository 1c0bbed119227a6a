"""Sockets by number, and descriptors that come with a datagram."""

import array
import os
import socket
import struct
from typing import Final

LENGTH: Final = struct.Struct("<Q")  # of a message in several datagrams
_INT_BYTES: Final = array.array("i").itemsize


def adopt_packet_socket(fd: int) -> socket.socket:
    """The SOCK_SEQPACKET socket behind `fd`.

    Family, type and protocol are given because Python would otherwise ask the kernel with
    getsockopt, which the seccomp filter denies.
    """
    return socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET, 0, fileno=fd)


def adopt_stream_socket(fd: int) -> socket.socket:
    """The SOCK_STREAM socket behind `fd`; see `adopt_packet_socket`."""
    return socket.socket(socket.AF_UNIX, socket.SOCK_STREAM, 0, fileno=fd)


def receive(
    sock: socket.socket, *, max_fds: int, max_bytes: int = 1 << 16
) -> tuple[bytes, list[int]]:
    """One datagram and the descriptors that came with it; `(b"", [])` when the peer is gone."""
    space = socket.CMSG_SPACE(max_fds * _INT_BYTES) if max_fds else 0
    # MSG_TRUNC gives the datagram's real length, whatever the buffer holds.
    body, ancillary, flags, _ = sock.recvmsg(max_bytes, space, socket.MSG_CMSG_CLOEXEC)
    fds: list[int] = []
    for level, kind, data in ancillary:
        if level == socket.SOL_SOCKET and kind == socket.SCM_RIGHTS:
            numbers = array.array("i")
            numbers.frombytes(data[: len(data) - len(data) % _INT_BYTES])
            fds.extend(numbers)
    if flags & (socket.MSG_TRUNC | socket.MSG_CTRUNC):
        for fd in fds:
            os.close(fd)
        raise OSError("datagram cut short")
    return body, fds


def receive_large(sock: socket.socket) -> bytes:
    """A message in as many datagrams as it takes, after one with its length; b"" at the end."""
    head, _ = receive(sock, max_fds=0)
    if not head:
        return b""
    (length,) = LENGTH.unpack(head)
    body = bytearray()
    while len(body) < length:
        piece, _ = receive(sock, max_fds=0)
        if not piece:
            return b""
        body += piece
    return bytes(body)
