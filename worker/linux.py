"""Raw Linux calls that the lockdown needs and the standard library lacks. No policy here.

What belongs here: syscall numbers, ctypes signatures, errno handling, one thin function per
kernel call. What does not: which calls to make and in which order (`lockdown.py`), what a
worker may call (`seccomp.py`), what it may touch (`landlock.py`).
Importing this works everywhere; calling anything off Linux raises UnsupportedPlatform.
"""

from __future__ import annotations

import ctypes
import errno
import functools
import itertools
import os
import struct
import sys
from collections.abc import Iterable
from typing import Final

# The calls of the allow-list (seccomp.py) and of the lockdown itself; nothing else is needed.
# Calls that an architecture never had (fork, poll on aarch64) are absent from its table.
SYSCALLS: Final[dict[str, dict[str, int]]] = {
    "x86_64": {
        "read": 0, "write": 1, "close": 3, "poll": 7, "mmap": 9, "mprotect": 10, "munmap": 11,
        "brk": 12, "rt_sigaction": 13, "rt_sigprocmask": 14, "rt_sigreturn": 15, "ioctl": 16,
        "mremap": 25, "madvise": 28, "dup": 32, "getpid": 39, "sendto": 44, "recvfrom": 45,
        "sendmsg": 46, "recvmsg": 47, "shutdown": 48, "clone": 56, "fork": 57, "exit": 60,
        "wait4": 61, "fcntl": 72, "gettimeofday": 96, "getrusage": 98, "getppid": 110,
        "capget": 125, "capset": 126, "sigaltstack": 131, "gettid": 186, "futex": 202,
        "set_tid_address": 218, "restart_syscall": 219, "clock_gettime": 228,
        "clock_getres": 229, "clock_nanosleep": 230, "exit_group": 231, "waitid": 247,
        "ppoll": 271, "unshare": 272, "set_robust_list": 273, "pipe2": 293, "seccomp": 317,
        "getrandom": 318, "rseq": 334, "pidfd_open": 434, "close_range": 436,
        "landlock_create_ruleset": 444, "landlock_restrict_self": 446,
    },
    "aarch64": {
        "dup": 23, "fcntl": 25, "ioctl": 29, "close": 57, "pipe2": 59, "read": 63, "write": 64,
        "ppoll": 73, "capget": 90, "capset": 91, "exit": 93, "exit_group": 94, "waitid": 95,
        "set_tid_address": 96, "unshare": 97, "futex": 98, "set_robust_list": 99,
        "clock_gettime": 113, "clock_getres": 114, "clock_nanosleep": 115,
        "restart_syscall": 128, "sigaltstack": 132, "rt_sigaction": 134, "rt_sigprocmask": 135,
        "rt_sigreturn": 139, "getrusage": 165, "gettimeofday": 169, "getpid": 172,
        "getppid": 173, "gettid": 178, "sendto": 206, "recvfrom": 207, "shutdown": 210,
        "sendmsg": 211, "recvmsg": 212, "brk": 214, "munmap": 215, "mremap": 216, "clone": 220,
        "mmap": 222, "mprotect": 226, "madvise": 233, "wait4": 260, "seccomp": 277,
        "getrandom": 278, "rseq": 293, "pidfd_open": 434, "close_range": 436,
        "landlock_create_ruleset": 444, "landlock_restrict_self": 446,
    },
}  # fmt: skip

SIGCHLD: Final = 17  # named here since Windows, where this imports, has none

CLONE_CHILD_CLEARTID: Final = 0x00200000
CLONE_CHILD_SETTID: Final = 0x01000000
CLONE_NEWIPC: Final = 0x08000000
CLONE_NEWUSER: Final = 0x10000000
CLONE_NEWPID: Final = 0x20000000
CLONE_NEWNET: Final = 0x40000000

PR_SET_DUMPABLE: Final = 4
PR_CAPBSET_READ: Final = 23
PR_CAPBSET_DROP: Final = 24
PR_SET_CHILD_SUBREAPER: Final = 36
PR_SET_NO_NEW_PRIVS: Final = 38
PR_CAP_AMBIENT: Final = 47
PR_CAP_AMBIENT_CLEAR_ALL: Final = 4

CAP_SETPCAP: Final = 8
_CAP_VERSION_3: Final = 0x20080522
_CapHeader: Final = ctypes.c_uint32 * 2  # version, pid
_CapSets: Final = ctypes.c_uint32 * 6  # effective, permitted, inheritable: low words, high words
_NO_ARGUMENTS: Final = (0,) * 6
_PIECE_BYTES: Final = 1 << 14
_MAX_FD: Final = 0xFFFFFFFF


class UnsupportedPlatform(OSError):
    """This machine is not a Linux whose calls we know; an OSError so that a layer can be off."""


def require_linux() -> None:
    """Raise UnsupportedPlatform where there is no Linux kernel to ask for anything."""
    if sys.platform != "linux":
        raise UnsupportedPlatform(
            errno.ENOSYS, f"workers can be confined on Linux only, not on {sys.platform}"
        )


@functools.cache
def machine() -> str:
    """The key of this process's syscall table. A 32-bit build on a 64-bit kernel has none."""
    require_linux()
    name = os.uname().machine
    if name not in SYSCALLS or struct.calcsize("P") != 8 or sys.byteorder != "little":
        raise UnsupportedPlatform(errno.ENOSYS, f"no syscall table for this {name} process")
    return name


@functools.cache
def _libc() -> ctypes.PyDLL:
    # PyDLL, not CDLL: the GIL stays held over the call. Nothing here blocks, and a clone that
    # comes back in the child must find the interpreter as it was.
    require_linux()
    libc = ctypes.PyDLL(None, use_errno=True)
    # Declared once, and not built for each call: a worker copies the pages of what it touches.
    libc.syscall.restype, libc.syscall.argtypes = ctypes.c_long, [ctypes.c_long] * 7
    libc.prctl.restype, libc.prctl.argtypes = ctypes.c_int, [ctypes.c_int] + [ctypes.c_ulong] * 4
    libc.fork.restype, libc.fork.argtypes = ctypes.c_int, []
    return libc


def is_glibc() -> bool:
    """Whether the C library is glibc; musl makes its fork with other flags."""
    return hasattr(_libc(), "gnu_get_libc_version")


def syscall(name: str, *args: int) -> int:
    """Make one call from the table with integer (or address) arguments; OSError on failure."""
    number = SYSCALLS[machine()].get(name)
    if number is None:
        raise UnsupportedPlatform(errno.ENOSYS, f"{name}: not on {machine()}")
    result: int = _libc().syscall(number, *args, *_NO_ARGUMENTS[len(args) :])
    if result < 0:
        raise _error(name)
    return result


def prctl(option: int, value: int = 0) -> int:
    """prctl(2) with one value; the rest are zeros, which newer options insist on."""
    result: int = _libc().prctl(option, value, 0, 0, 0)
    if result < 0:
        raise _error(f"prctl {option}")
    return result


def unshare(flags: int) -> None:
    """Move this process into new namespaces."""
    syscall("unshare", flags)


def fork() -> int:
    """os.fork without Python's handlers: 0 in the new process, its pid in the caller.

    Only for a single-threaded process: the handlers mend locks of threads that are gone, seed
    `random` and the like, and a quarter of the pages that a worker's fork costs goes to them.
    """
    pid: int = _libc().fork()
    if pid < 0:
        raise _error("fork")
    return pid


def clone_process(flags: int) -> int:
    """As `fork`, with namespace flags.

    libc's handlers do not run either, so a lock held by another thread would stay locked for good.
    """
    # A zero stack means "go on with a copy of this one", as fork does. CHILD_SETTID is not asked
    # for (its address is libc's secret): until its next fork the new process's libc remembers the
    # caller's thread id, which only matters to threads.
    return syscall("clone", flags | SIGCHLD, 0, 0, 0, 0)


def close_all_except(keep: Iterable[int]) -> None:
    """Close every descriptor of this process that is not in `keep`."""
    kept = sorted(set(keep))
    edges = [-1, *kept, _MAX_FD + 1]
    try:
        for below, above in itertools.pairwise(edges):
            if above - below > 1:
                syscall("close_range", below + 1, above - 1, 0)
    except OSError as problem:
        if problem.errno not in (errno.ENOSYS, errno.EPERM):  # before 5.9, or an older sandbox
            raise
        for fd in map(int, os.listdir("/proc/self/fd")):
            if fd not in kept:
                try:
                    os.close(fd)
                except OSError as gone:
                    if gone.errno != errno.EBADF:  # the listing's own descriptor is in it
                        raise


def capabilities() -> tuple[int, int, int]:
    """The effective, permitted and inheritable sets of this process, as bit masks."""
    header, sets = _CapHeader(_CAP_VERSION_3, 0), _CapSets()
    syscall("capget", ctypes.addressof(header), ctypes.addressof(sets))
    return sets[0] | sets[3] << 32, sets[1] | sets[4] << 32, sets[2] | sets[5] << 32


@functools.cache
def _last_capability() -> int:
    """The last one that this kernel knows; asked in the zygote, once."""
    capability = -1
    while _libc().prctl(PR_CAPBSET_READ, capability + 1, 0, 0, 0) >= 0:
        capability += 1
    return capability


def drop_capabilities() -> None:
    """Empty all capability sets; the bounding set too where CAP_SETPCAP is (still) held."""
    if capabilities()[0] >> CAP_SETPCAP & 1:
        for capability in range(_last_capability() + 1):
            prctl(PR_CAPBSET_DROP, capability)
    try:
        prctl(PR_CAP_AMBIENT, PR_CAP_AMBIENT_CLEAR_ALL)
    except OSError as problem:
        if problem.errno != errno.EINVAL:  # before Linux 4.3 there was no such set
            raise
    header, nothing = _CapHeader(_CAP_VERSION_3, 0), _CapSets()
    syscall("capset", ctypes.addressof(header), ctypes.addressof(nothing))
    if any(left := capabilities()):
        raise OSError(errno.EPERM, f"capabilities are left after the drop: {left}")


def namespace_id(kind: str) -> str:
    """The kernel's name for this process's namespace of a kind, such as 'net:[4026531840]'."""
    return os.readlink(f"/proc/self/ns/{kind}")


def read_file(path: str) -> str:
    """The text of one of the kernel's files."""
    # Bytes and UTF-8: any other codec is imported at first use, from files that nobody cannot read.
    fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        text = b""
        while piece := os.read(fd, _PIECE_BYTES):
            text += piece
        return text.decode()
    finally:
        os.close(fd)


def write_file(path: str, text: str) -> None:
    """Set one of the kernel's files: existing, and in a single write."""
    fd = os.open(path, os.O_WRONLY | os.O_CLOEXEC)
    try:
        os.write(fd, text.encode())
    finally:
        os.close(fd)


def _error(what: str) -> OSError:
    code = ctypes.get_errno()
    return OSError(code, f"{what}: {os.strerror(code)}")
