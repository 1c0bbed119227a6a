"""Landlock: deny every file, TCP port, outside signal and outside abstract socket there is.

What belongs here: the rights each Landlock ABI knows, and the one ruleset, which has no rules:
what it handles is denied. What does not: whether a missing Landlock stops the worker.
"""

from __future__ import annotations

import ctypes
import errno
import struct
from typing import Final

from . import linux

_CREATE_RULESET_VERSION: Final = 1

# Filesystem rights are numbered in the order in which they were added, so "all that ABI n
# knows" is a count of bits: execute, read, write, remove and make_* (13) with ABI 1; then refer
# (2), truncate (3), ioctl_dev (5). A right that the kernel does not know makes the whole ruleset
# fail with EINVAL, so none may be asked for too early.
_FS_RIGHTS: Final = {1: 13, 2: 14, 3: 15, 4: 15, 5: 16}
_NET_SINCE: Final = 4
_NET_RIGHTS: Final = 0b11  # bind and connect of TCP
_SCOPE_SINCE: Final = 6
_SCOPES: Final = 0b11  # abstract UNIX sockets and signals of processes outside the domain


def abi_version() -> int:
    """The Landlock ABI of this kernel, from 1; OSError where there is none."""
    return linux.syscall("landlock_create_ruleset", 0, 0, _CREATE_RULESET_VERSION)


def ruleset(abi: int) -> bytes:
    """The landlock_ruleset_attr that denies everything which this ABI can deny.

    Cut to the size that the ABI knows: an older kernel refuses fields it has not heard of.
    """
    if abi < 1:
        raise OSError(errno.EOPNOTSUPP, f"Landlock ABI {abi} is unknown")
    rights = (1 << _FS_RIGHTS[min(abi, max(_FS_RIGHTS))]) - 1
    fields = [rights]
    if abi >= _NET_SINCE:
        fields.append(_NET_RIGHTS)
    if abi >= _SCOPE_SINCE:
        fields.append(_SCOPES)
    return struct.pack(f"={len(fields)}Q", *fields)


def restrict_self() -> None:
    """Put this process, and all it forks, into an empty domain. Needs no_new_privs.

    Processes forked later share the domain, so the scopes do not part a keeper from its active.
    """
    attributes = ruleset(abi_version())
    buffer = ctypes.create_string_buffer(attributes, len(attributes))
    fd = linux.syscall("landlock_create_ruleset", ctypes.addressof(buffer), len(attributes), 0)
    try:
        linux.syscall("landlock_restrict_self", fd, 0)
    finally:
        linux.syscall("close", fd)
