"""The seccomp program, run here by a small BPF machine: every number, both architectures.

The kernel's own view is in tests/adversarial; this one reaches what a test machine cannot:
the other architecture, the other C library, every number there is.
"""

from __future__ import annotations

import errno
import struct
from typing import Final

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from qjs_pool.worker import seccomp

ALLOW, KILL = "allow", "kill"
ARCHES: Final = {"x86_64": 0xC000003E, "aarch64": 0xC00000B7}
machines = pytest.mark.parametrize("machine", sorted(ARCHES))

# Written from the kernel's tables, apart from the code's own: what may pass whatever the
# arguments are, and what may pass with some.
UNCONDITIONAL: Final = {
    "x86_64": {
        0, 1, 3, 7, 11, 12, 13, 14, 15, 25, 32, 39, 46, 47, 45, 48, 60, 61, 96, 98, 110, 131, 186,
        219, 228, 229, 230, 231, 247, 271, 273, 293, 318, 434,
    },
    "aarch64": {
        23, 57, 59, 63, 64, 73, 93, 94, 95, 99, 113, 114, 115, 128, 132, 134, 135, 139, 165, 169,
        172, 173, 178, 207, 210, 211, 212, 214, 215, 216, 260, 278, 434,
    },
}  # fmt: skip
CONDITIONAL: Final = {
    "x86_64": {"mmap": 9, "mprotect": 10, "ioctl": 16, "madvise": 28, "sendto": 44, "clone": 56,
               "fcntl": 72, "futex": 202},
    "aarch64": {"fcntl": 25, "ioctl": 29, "futex": 98, "sendto": 206, "clone": 220, "mmap": 222,
                "mprotect": 226, "madvise": 233},
}  # fmt: skip
RSEQ: Final = {"x86_64": 334, "aarch64": 293}
LIBC_FORK: Final = 0x01200011


def decide(program: bytes, arch: int, number: int, *args: int) -> str:
    """What a kernel would do: interpret the five instructions that the program is made of."""
    data = struct.pack("=IIQ6Q", number, arch, 0, *args, *[0] * (6 - len(args)))
    accumulator = position = 0
    while True:
        code, then, otherwise, operand = struct.unpack_from("=HBBI", program, position * 8)
        position += 1
        match code:
            case 0x20:
                (accumulator,) = struct.unpack_from("=I", data, operand)
            case 0x54:
                accumulator &= operand
            case 0x15:
                position += then if accumulator == operand else otherwise
            case 0x35:
                position += then if accumulator >= operand else otherwise
            case 0x06:
                if operand == 0x7FFF0000:
                    return ALLOW
                if operand == 0x80000000:
                    return KILL
                assert operand & 0xFFFF0000 == 0x00050000
                return errno.errorcode[operand & 0xFFFF]
            case _:
                raise AssertionError(f"not an instruction that seccomp takes here: {code:#x}")


def answer(machine: str, number: int, *args: int, glibc: bool = True) -> str:
    program = seccomp.build_filter(machine, glibc=glibc)
    return decide(program, ARCHES[machine], number, *args)


@machines
def test_only_the_listed_calls_pass(machine: str) -> None:
    program = seccomp.build_filter(machine, glibc=True)
    passing = {n for n in range(1024) if decide(program, ARCHES[machine], n) == ALLOW}
    # With all arguments zero, sendto, mprotect, fcntl (F_DUPFD) and futex (FUTEX_WAIT) pass.
    zero_passes = {CONDITIONAL[machine][n] for n in ("sendto", "mprotect", "fcntl", "futex")}
    assert passing == UNCONDITIONAL[machine] | zero_passes


@machines
@settings(max_examples=30)  # each tries some 440 calls
@given(args=st.lists(st.integers(0, 2**64 - 1), min_size=6, max_size=6))
def test_no_arguments_open_a_denied_call(machine: str, args: list[int]) -> None:
    program = seccomp.build_filter(machine, glibc=True)
    known = UNCONDITIONAL[machine] | set(CONDITIONAL[machine].values())
    for number in set(range(480)) - known:
        late = number >= 424 or number == RSEQ[machine]
        expected = "ENOSYS" if late else "EPERM"
        assert decide(program, ARCHES[machine], number, *args) == expected


@machines
def test_calls_that_no_one_knows_yet_look_absent(machine: str) -> None:
    for number in (435, 436, 437, 439, 449, 471, 600, 100_000, 0x3FFFFFFF):
        assert answer(machine, number) == "ENOSYS"


@machines
@given(arch=st.integers(0, 2**32 - 1), number=st.integers(0, 2**32 - 1))
def test_another_architecture_is_killed(machine: str, arch: int, number: int) -> None:
    if arch != ARCHES[machine]:
        assert decide(seccomp.build_filter(machine, glibc=True), arch, number) == KILL


@pytest.mark.parametrize("arch", [0x40000003, 0x40000028])  # i386, 32-bit arm
@machines
def test_32_bit_entries_are_killed(machine: str, arch: int) -> None:
    assert decide(seccomp.build_filter(machine, glibc=True), arch, 0) == KILL


@given(number=st.integers(0x40000000, 2**32 - 1))
def test_x32_numbers_are_killed(number: int) -> None:
    assert answer("x86_64", number) == KILL


@machines
@given(flags=st.integers(0, 2**64 - 1))
def test_clone_passes_with_the_flags_of_fork_only(machine: str, flags: int) -> None:
    clone = CONDITIONAL[machine]["clone"]
    assert answer(machine, clone, LIBC_FORK) == ALLOW
    for wrong in (flags, flags | LIBC_FORK, LIBC_FORK | 1 << 32, 17):
        if wrong != LIBC_FORK:
            assert answer(machine, clone, wrong) == "EPERM"


@machines
@given(prot=st.integers(0, 2**64 - 1), flags=st.integers(0, 2**64 - 1))
def test_no_memory_becomes_executable_shared_or_a_file(machine: str, prot: int, flags: int) -> None:
    mmap, mprotect = CONDITIONAL[machine]["mmap"], CONDITIONAL[machine]["mprotect"]
    executable = prot & 4
    private_anonymous = flags & 0x20 and not flags & 0x01
    assert (answer(machine, mprotect, 0, 4096, prot) == ALLOW) == (not executable)
    assert (answer(machine, mmap, 0, 4096, prot, flags) == ALLOW) == bool(
        not executable and private_anonymous
    )
    assert answer(machine, mmap, 0, 4096, 3, 0x22) == ALLOW  # as every allocator asks


@machines
@pytest.mark.parametrize(
    ("name", "args", "passes"),
    [
        ("ioctl", (0, 0x541B), True),  # FIONREAD
        ("ioctl", (0, 0x5412), False),  # TIOCSTI
        ("ioctl", (0, 0x5452), False),  # FIOASYNC
        ("fcntl", (0, 3), True),  # F_GETFL
        ("fcntl", (0, 4), True),  # F_SETFL
        ("fcntl", (0, 1030), True),  # F_DUPFD_CLOEXEC
        ("fcntl", (0, 8), False),  # F_SETOWN
        ("fcntl", (0, 10), False),  # F_SETSIG
        ("fcntl", (0, 6), False),  # F_SETLK
        ("fcntl", (0, 1031), False),  # F_SETPIPE_SZ
        ("futex", (0, 128), True),  # FUTEX_WAIT, private
        ("futex", (0, 9 | 128 | 256), True),  # FUTEX_WAIT_BITSET, private, realtime
        ("futex", (0, 6), False),  # FUTEX_LOCK_PI
        ("futex", (0, 11 | 128), False),  # FUTEX_WAIT_REQUEUE_PI
        ("futex", (0, 3), False),  # FUTEX_REQUEUE
        ("madvise", (0, 0, 4), True),  # MADV_DONTNEED
        ("madvise", (0, 0, 12), False),  # MADV_MERGEABLE
        ("madvise", (0, 0, 100), False),  # MADV_HWPOISON
        ("sendto", (0, 0, 0, 0, 0), True),  # send
        ("sendto", (0, 0, 0, 0, 1), False),
        ("sendto", (0, 0, 0, 0, 1 << 32), False),  # the high half of the address counts, too
    ],
)
def test_arguments_decide(machine: str, name: str, args: tuple[int, ...], passes: bool) -> None:
    assert answer(machine, CONDITIONAL[machine][name], *args) == (ALLOW if passes else "EPERM")


def test_musl_forks_in_its_own_way_and_in_no_other() -> None:
    assert answer("x86_64", 57, glibc=False) == ALLOW  # fork
    assert answer("x86_64", 57) == "EPERM"
    assert answer("x86_64", 58, glibc=False) == "EPERM"  # vfork
    for machine, clone in (("x86_64", 56), ("aarch64", 220)):
        assert answer(machine, clone, 17, glibc=False) == ALLOW
        assert answer(machine, clone, LIBC_FORK, glibc=False) == "EPERM"
        assert answer(machine, clone, 17 | 0x10000000, glibc=False) == "EPERM"


@machines
@pytest.mark.parametrize("glibc", [True, False])
def test_program_is_one_that_the_kernel_takes(machine: str, glibc: bool) -> None:
    program = seccomp.build_filter(machine, glibc=glibc)
    length = len(program) // 8
    assert len(program) % 8 == 0
    assert length <= 4096
    for position in range(length):
        code, then, otherwise, _ = struct.unpack_from("=HBBI", program, position * 8)
        if code in (0x15, 0x35):
            assert position + 1 + max(then, otherwise) < length
    assert struct.unpack_from("=H", program, len(program) - 8)[0] == 0x06
