"""The syscall allow-list of a confined worker, as a classic BPF program.

What belongs here: which calls a worker may make, with which arguments, and what the others
answer. What does not: when it is installed (`lockdown.py`).

What a call that is not allowed answers:
- EPERM by default; the worker goes on, and its Python sees a PermissionError.
- ENOSYS for everything since the architectures share their numbers (424, Linux 5.1), known to
  us or not, and for rseq: C libraries try the new call first and fall back on ENOSYS only
  (clone3 to clone, faccessat2 to access). Such a kernel merely looks older than it is.
- the process is killed for a call through another architecture's entry (int 0x80, x32), whose
  numbers mean other things: no program that we run does it by accident.

No signal can be sent, not even to oneself: a filter cannot know the own pid after a fork. So
abort() fails to raise SIGABRT, and C libraries then end the process by a fault: the host
sees SIGSEGV (or SIGBUS, SIGILL) where it would have seen SIGABRT.

sendmsg carries its address behind a pointer that no filter can follow. The sockets of a session
must therefore be SOCK_STREAM or SOCK_SEQPACKET, where the kernel ignores or refuses one.
"""

from __future__ import annotations

import ctypes
import errno
import functools
import struct
from typing import Final, NamedTuple

from . import linux

AUDIT_ARCH: Final = {"x86_64": 0xC000003E, "aarch64": 0xC00000B7}
X32_BIT: Final = 0x40000000
FIRST_SHARED_NUMBER: Final = 424

RET_KILL_PROCESS: Final = 0x80000000
RET_ERRNO: Final = 0x00050000
RET_ALLOW: Final = 0x7FFF0000

_SET_MODE_FILTER: Final = 1
_FILTER_FLAG_TSYNC: Final = 1

_LOAD: Final = 0x20  # BPF_LD | BPF_W | BPF_ABS
_AND: Final = 0x54  # BPF_ALU | BPF_AND | BPF_K
_IF_EQUAL: Final = 0x15  # BPF_JMP | BPF_JEQ | BPF_K
_IF_AT_LEAST: Final = 0x35  # BPF_JMP | BPF_JGE | BPF_K
_RETURN: Final = 0x06  # BPF_RET | BPF_K

_NUMBER_OFFSET: Final = 0  # into struct seccomp_data
_ARCH_OFFSET: Final = 4
_ARGS_OFFSET: Final = 16

_PROT_EXEC: Final = 0x4
_MAP_SHARED: Final = 0x01
_MAP_ANONYMOUS: Final = 0x20
_FIONREAD: Final = 0x541B
_F_DUPFD, _F_GETFD, _F_SETFD, _F_GETFL, _F_SETFL, _F_DUPFD_CLOEXEC = 0, 1, 2, 3, 4, 1030
_FUTEX_WAIT, _FUTEX_WAKE, _FUTEX_WAIT_BITSET, _FUTEX_WAKE_BITSET = 0, 1, 9, 10
_FUTEX_MODIFIERS: Final = 0x80 | 0x100  # private, realtime clock
_MADV_DONTNEED, _MADV_FREE, _MADV_HUGEPAGE, _MADV_NOHUGEPAGE = 4, 8, 14, 15

_WORD: Final = 0xFFFFFFFF


class Check(NamedTuple):
    """`(word & mask) == value` for one 32-bit word of one argument.

    The low word is all the kernel reads of an int; `high` looks at the other half of a long.
    """

    argument: int
    value: int
    mask: int = _WORD
    high: bool = False


Alternatives = tuple[tuple[Check, ...], ...]


def _one_of(argument: int, *values: int, mask: int = _WORD) -> Alternatives:
    return tuple((Check(argument, value, mask),) for value in values)


def _exactly(argument: int, value: int) -> tuple[Check, ...]:
    return (Check(argument, value), Check(argument, 0, high=True))


# Every rule is a set of alternatives, of which one must hold in full. ((),) always holds.
_ALWAYS: Final[Alternatives] = ((),)
_NO_EXEC: Final = Check(2, 0, _PROT_EXEC)

# In the order of use: the program tests one number after the other.
_RULES: Final[dict[str, Alternatives]] = {
    # Open descriptors only: there is no call here that makes one out of a name.
    "read": _ALWAYS,
    "write": _ALWAYS,
    "recvmsg": _ALWAYS,
    "sendmsg": _ALWAYS,
    "recvfrom": _ALWAYS,
    "sendto": (_exactly(4, 0),),  # send() only, no destination of its own choice
    "poll": _ALWAYS,
    "ppoll": _ALWAYS,
    "close": _ALWAYS,
    "dup": _ALWAYS,
    "pipe2": _ALWAYS,
    "shutdown": _ALWAYS,
    # F_SETOWN and F_SETSIG would have the kernel send signals; F_SETLK, F_NOTIFY are surface.
    "fcntl": _one_of(1, _F_DUPFD, _F_GETFD, _F_SETFD, _F_GETFL, _F_SETFL, _F_DUPFD_CLOEXEC),
    "ioctl": _one_of(1, _FIONREAD),
    # Memory: private, anonymous, never executable. (QuickJS has no JIT.)
    "mmap": ((_NO_EXEC, Check(3, _MAP_ANONYMOUS, _MAP_ANONYMOUS | _MAP_SHARED)),),
    "mprotect": ((_NO_EXEC,),),
    "munmap": _ALWAYS,
    "mremap": _ALWAYS,
    "brk": _ALWAYS,
    # What allocators use; not MADV_MERGEABLE, which shares pages with strangers.
    "madvise": _one_of(2, _MADV_DONTNEED, _MADV_FREE, _MADV_HUGEPAGE, _MADV_NOHUGEPAGE),
    "clock_gettime": _ALWAYS,
    "clock_getres": _ALWAYS,
    "clock_nanosleep": _ALWAYS,
    "gettimeofday": _ALWAYS,
    "getrandom": _ALWAYS,
    # Waiting and waking. Priority inheritance and requeueing have a history of kernel bugs.
    "futex": _one_of(
        1,
        _FUTEX_WAIT, _FUTEX_WAKE, _FUTEX_WAIT_BITSET, _FUTEX_WAKE_BITSET,
        mask=_WORD & ~_FUTEX_MODIFIERS,
    ),
    # Handling a signal that comes from outside; SIGSTOP and SIGCONT need restart_syscall.
    "rt_sigaction": _ALWAYS,
    "rt_sigprocmask": _ALWAYS,
    "rt_sigreturn": _ALWAYS,
    "sigaltstack": _ALWAYS,
    "restart_syscall": _ALWAYS,
    # Checkpoints: fork, and wait for what was forked. The kernel waits for own children only,
    # and a pidfd is good for waiting only, as the calls that act on one are all denied.
    "clone": (
        _exactly(0, linux.CLONE_CHILD_SETTID | linux.CLONE_CHILD_CLEARTID | linux.SIGCHLD),
    ),
    "wait4": _ALWAYS,
    "waitid": _ALWAYS,
    "pidfd_open": _ALWAYS,
    "getpid": _ALWAYS,
    "gettid": _ALWAYS,
    "getppid": _ALWAYS,
    "getrusage": _ALWAYS,
    "set_robust_list": _ALWAYS,
    "exit_group": _ALWAYS,
    "exit": _ALWAYS,
}  # fmt: skip

# musl forks with the old call where there is one, and else with no flag but the signal.
_MUSL_RULES: Final[dict[str, Alternatives]] = _RULES | {
    "fork": _ALWAYS,
    "clone": (_exactly(0, linux.SIGCHLD),),
    "set_tid_address": _ALWAYS,
}


@functools.cache  # built once in the zygote: that saves each worker a third of a millisecond
def build_filter(machine: str, *, glibc: bool) -> bytes:
    """The BPF program for one architecture and C library."""
    numbers = linux.SYSCALLS[machine]
    program = [
        _statement(_LOAD, _ARCH_OFFSET),
        _jump(_IF_EQUAL, AUDIT_ARCH[machine], then=1),
        _statement(_RETURN, RET_KILL_PROCESS),
        _statement(_LOAD, _NUMBER_OFFSET),
    ]
    if machine == "x86_64":  # the x32 entry has the same arch value, and this bit in the number
        program += [
            _jump(_IF_AT_LEAST, X32_BIT, otherwise=1),
            _statement(_RETURN, RET_KILL_PROCESS),
        ]
    for name, alternatives in (_RULES if glibc else _MUSL_RULES).items():
        if name in numbers:
            block = _block(alternatives)
            program += [_jump(_IF_EQUAL, numbers[name], otherwise=len(block)), *block]
    program += [
        _jump(_IF_EQUAL, numbers["rseq"], then=1),
        _jump(_IF_AT_LEAST, FIRST_SHARED_NUMBER, otherwise=1),
        _statement(_RETURN, RET_ERRNO | errno.ENOSYS),
        _statement(_RETURN, RET_ERRNO | errno.EPERM),
    ]
    return b"".join(program)


def install(program: bytes) -> None:
    """Filter this process for good, and all it forks. Needs no_new_privs.

    TSYNC covers every thread, or fails: one left out would be a way around the filter.
    """
    buffer = ctypes.create_string_buffer(program, len(program))
    header = struct.pack("@HP", len(program) // 8, ctypes.addressof(buffer))
    pointer = ctypes.create_string_buffer(header, len(header))
    address = ctypes.addressof(pointer)
    if linux.syscall("seccomp", _SET_MODE_FILTER, _FILTER_FLAG_TSYNC, address):
        raise OSError(errno.EBUSY, "seccomp: a thread could not be filtered")


def _block(alternatives: Alternatives) -> list[bytes]:
    """The code behind a matching number: allow if one alternative holds, else EPERM."""
    block = [step for checks in alternatives for step in _alternative(checks)]
    return [*block, _statement(_RETURN, RET_ERRNO | errno.EPERM)]


def _alternative(checks: tuple[Check, ...]) -> list[bytes]:
    """Allow if all checks hold, else fall through to what follows."""
    code = [_statement(_RETURN, RET_ALLOW)]
    for check in reversed(checks):
        code = [
            _statement(_LOAD, _ARGS_OFFSET + 8 * check.argument + 4 * check.high),
            _statement(_AND, check.mask),
            _jump(_IF_EQUAL, check.value, otherwise=len(code)),  # else skip what is built so far
            *code,
        ]
    return code


def _statement(code: int, operand: int) -> bytes:
    return struct.pack("=HBBI", code, 0, 0, operand)


def _jump(code: int, operand: int, *, then: int = 0, otherwise: int = 0) -> bytes:
    return struct.pack("=HBBI", code, then, otherwise, operand)
