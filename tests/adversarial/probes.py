"""Escape attempts, and the process that tries them: `python -I probes.py SPEC` prints JSON.

What belongs here: one small attack per name, and a driver that sets the scene (a victim process,
listeners, leaked descriptors), then makes zygote, anchor and worker with the library's own
lockdown and has each worker try one attack. What does not: what the answers must be
(`test_escape_probes.py`). No pytest here, as it runs as a plain script in a fresh interpreter.
"""

from __future__ import annotations

import array
import ctypes
import json
import mmap
import os
import resource
import select
import signal
import socket
import struct
import sys
import tempfile
import threading
import time
import traceback
from collections.abc import Callable
from typing import Any, Final

from qjs_pool.worker import linux, lockdown

ORDINARY_UID: Final = 54321  # of no account
MAX_PROCESSES: Final = 12
BOMB: Final = 40

# name: (x86_64, aarch64); -1: not there. From the kernel's own headers.
NUMBERS: Final = {
    "accept4": (288, 242), "add_key": (248, 217), "adjtimex": (159, 171), "arch_prctl": (158, -1),
    "bind": (49, 200), "bpf": (321, 280), "capset": (126, 91), "chdir": (80, 49),
    "chroot": (161, 51), "clone": (56, 220), "clone3": (435, 435), "connect": (42, 203),
    "epoll_create1": (291, 20), "eventfd2": (290, 19), "execve": (59, 221), "execveat": (322, 281),
    "faccessat": (269, 48), "fanotify_init": (300, 262), "fchdir": (81, 50), "fchmod": (91, 52),
    "fchmodat": (268, 53), "fcntl": (72, 25), "finit_module": (313, 273), "flock": (73, 32),
    "fork": (57, -1), "fstat": (5, 80), "ftruncate": (77, 46), "futex": (202, 98),
    "getcwd": (79, 17), "getdents64": (217, 61), "init_module": (175, 105),
    "inotify_init1": (294, 26), "io_uring_setup": (425, 425), "ioctl": (16, 29), "iopl": (172, -1),
    "ioprio_set": (251, 30), "kcmp": (312, 272), "kexec_load": (246, 104), "keyctl": (250, 219),
    "kill": (62, 129), "linkat": (265, 37), "listen": (50, 201), "madvise": (28, 233),
    "memfd_create": (319, 279), "mkdirat": (258, 34), "mknodat": (259, 33), "mlock": (149, 228),
    "mmap": (9, 222), "modify_ldt": (154, -1), "mount": (165, 40), "mprotect": (10, 226),
    "mq_open": (240, 180), "msgget": (68, 186), "newfstatat": (262, 79), "open": (2, -1),
    "open_tree": (428, 428), "openat": (257, 56), "openat2": (437, 437),
    "perf_event_open": (298, 241), "personality": (135, 92), "pidfd_getfd": (438, 438),
    "pidfd_send_signal": (424, 424), "pivot_root": (155, 41), "pkey_mprotect": (329, 288),
    "prctl": (157, 167), "prlimit64": (302, 261), "process_vm_readv": (310, 270),
    "process_vm_writev": (311, 271), "ptrace": (101, 117), "readlinkat": (267, 78),
    "reboot": (169, 142), "rseq": (334, 293), "rt_sigqueueinfo": (129, 138),
    "sched_setaffinity": (203, 122), "sched_setscheduler": (144, 119), "seccomp": (317, 277),
    "semget": (64, 190), "sendfile": (40, 71), "sendto": (44, 206), "setfsuid": (122, 151),
    "setitimer": (38, 103), "setns": (308, 268), "setpgid": (109, 154), "setpriority": (141, 140),
    "setresgid": (119, 149), "setresuid": (117, 147), "setrlimit": (160, 164), "setsid": (112, 157),
    "setsockopt": (54, 208), "setxattr": (188, 5), "shmat": (30, 196), "shmget": (29, 194),
    "signalfd4": (289, 74), "socket": (41, 198), "socketpair": (53, 199), "splice": (275, 76),
    "stat": (4, -1), "statfs": (137, 43), "statx": (332, 291), "swapon": (167, 224),
    "symlinkat": (266, 36), "sysinfo": (99, 179), "syslog": (103, 116), "tgkill": (234, 131),
    "timer_create": (222, 107), "timerfd_create": (283, 85), "tkill": (200, 130),
    "truncate": (76, 45), "umask": (95, 166), "umount2": (166, 39), "uname": (63, 160),
    "unlinkat": (263, 35), "unshare": (272, 97), "userfaultfd": (323, 282),
}  # fmt: skip

_ARCH: Final = list(linux.SYSCALLS).index(linux.machine())
_LIBC: Final = ctypes.CDLL(None, use_errno=True)
_LIBC.syscall.restype = ctypes.c_long
_AT_FDCWD: Final = -100
_NOWHERE: Final = b"/nonexistent/x"
_READ, _WRITE, _EXEC = 1, 2, 4
_PRIVATE, _SHARED, _ANONYMOUS = 2, 1, 0x20
_NEWNS, _NEWUSER, _PARENT = 0x20000, 0x10000000, 0x8000


class AbsentError(Exception):
    """This architecture never had the call."""


class Scene:
    """What the attacks aim at. Made before the lockdown, as if it had been leaked into it."""

    def __init__(self) -> None:
        self.keep: list[int] = []
        self.page = mmap.mmap(-1, 4096, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
        self.address = ctypes.addressof(ctypes.c_char.from_buffer(self.page))
        self.code = mmap.mmap(
            -1, 4096, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS, prot=_READ | _WRITE | _EXEC
        )
        self.code.write(b"\xb8\x14\x00\x00\x00\xcd\x80\xc3")  # mov eax, 20; int 0x80; ret
        self.listener = socket.create_server(("127.0.0.1", 0))
        self.tcp_address = struct.pack(
            "=HH4s8x", socket.AF_INET, socket.htons(self.listener.getsockname()[1]), b"\x7f\0\0\1"
        )
        self.abstract = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self.abstract.bind("")  # the kernel picks a free abstract name
        self.abstract_address = struct.pack("=H", socket.AF_UNIX) + self.abstract.getsockname()
        self.directory = self._kept(os.open("/", os.O_RDONLY | os.O_DIRECTORY))
        fd, path = tempfile.mkstemp()
        os.unlink(path)
        self.file = self._kept(fd)
        self.stray = os.dup(fd)  # not kept
        self.queue_key = os.getpid() | 0x51000000
        self.victim, self._leash = self._start_victim()
        self.victim_fd = self._kept(os.pidfd_open(self.victim))

    def enter_worker(self) -> None:
        """What belongs to the worker's own namespaces."""
        self.tcp = self._kept(socket.socket(socket.AF_INET, socket.SOCK_STREAM).detach())
        pair = socket.socketpair(socket.AF_UNIX, socket.SOCK_DGRAM)
        self.datagrams, self._other = (self._kept(end.detach()) for end in pair)

    def close(self) -> None:
        os.close(self._leash)
        os.waitpid(self.victim, 0)

    def _kept(self, fd: int) -> int:
        self.keep.append(fd)
        return fd

    def _start_victim(self) -> tuple[int, int]:
        """A process outside the sandbox, with the uid of the workers, open to whoever may."""
        ready, stood = os.pipe()
        end, leash = os.pipe()
        pid = os.fork()
        if pid == 0:
            os.close(leash)
            os.setsid()
            if os.geteuid() == 0:
                become(lockdown.NOBODY)
            linux.prctl(linux.PR_SET_DUMPABLE, 1)
            _LIBC.prctl(0x59616D61, -1, 0, 0, 0)  # PR_SET_PTRACER_ANY, where Yama asks for it
            # Its own, so that it can remove it: the driver will be in another IPC namespace.
            queue = _LIBC.msgget(self.queue_key, 0o1666)
            os.write(stood, b"!")
            os.read(end, 1)  # until the driver is gone
            _LIBC.msgctl(queue, 0, None)
            os._exit(0)
        os.read(ready, 1)
        os.close(end)
        return pid, leash


def become(uid: int) -> None:
    os.setgroups([])
    os.setresgid(uid, uid, uid)
    os.setresuid(uid, uid, uid)


def attempt(name: str, *args: int | bytes) -> int:
    """One raw call: 0, or the errno."""
    number = NUMBERS[name][_ARCH]
    if number < 0:
        raise AbsentError
    words = (ctypes.c_long(a) if isinstance(a, int) else ctypes.c_char_p(a) for a in args)
    result = _LIBC.syscall(ctypes.c_long(number), *words)
    return ctypes.get_errno() if result == -1 else 0


def attempt_fork(name: str, *args: int) -> int:
    """A call that returns twice."""
    own = os.getpid()
    code = attempt(name, *args)
    if os.getpid() != own:
        os._exit(0)
    return code


def run_true(*call: Any) -> int:
    """The errno of an exec, tried in a fork as it does not return."""
    pid = os.fork()
    if pid == 0:
        os._exit(attempt(*call))
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])


def _memory(scene: Scene) -> bytes:
    return struct.pack("=QQ", scene.address, 1)


def _open_path(path: str, flags: int = os.O_RDONLY) -> int:
    return attempt("openat", _AT_FDCWD, path.encode(), flags, 0o600)


def _create_file(_scene: Scene) -> int:
    path = f"/tmp/qjs-pool-probe-{os.getpid()}-{time.time_ns()}"
    code = _open_path(path, os.O_CREAT | os.O_WRONLY | os.O_EXCL)
    if code == 0:
        os.unlink(path)
    return code


def _os_error(action: Callable[[], object]) -> int:
    try:
        action()
    except OSError as problem:
        return problem.errno or -1
    return 0


_EXECVE_ARGS: Final = struct.pack("=2Q", 0, 0)  # no arguments, no environment

# What seccomp alone is enough against: each is one call that the allow-list does not have.
CALLS: Final[dict[str, Callable[[Scene], int]]] = {
    # files by name
    "open": lambda s: attempt("open", b"/etc/passwd", os.O_RDONLY, 0),
    "openat": lambda s: _open_path("/etc/passwd"),
    "openat2": lambda s: attempt(
        "openat2", _AT_FDCWD, b"/etc/passwd", struct.pack("=3Q", 0, 0, 0), 24
    ),
    "create_file": _create_file,
    "open_inherited_directory": lambda s: attempt("openat", s.directory, b"etc/passwd", 0, 0),
    "open_victim_environ": lambda s: _open_path(f"/proc/{s.victim}/environ"),
    "open_own_memory": lambda s: _open_path("/proc/self/mem", os.O_RDWR),
    "stat": lambda s: attempt("stat", b"/etc/passwd", bytes(256)),
    "newfstatat": lambda s: attempt("newfstatat", _AT_FDCWD, b"/etc/passwd", bytes(256), 0),
    "statx": lambda s: attempt("statx", _AT_FDCWD, b"/etc/passwd", 0, 0x7FF, bytes(256)),
    "faccessat": lambda s: attempt("faccessat", _AT_FDCWD, b"/etc/passwd", 0),
    "readlinkat": lambda s: attempt("readlinkat", _AT_FDCWD, b"/proc/self/exe", bytes(99), 99),
    "mkdirat": lambda s: attempt("mkdirat", _AT_FDCWD, _NOWHERE, 0o700),
    "unlinkat": lambda s: attempt("unlinkat", _AT_FDCWD, _NOWHERE, 0),
    "symlinkat": lambda s: attempt("symlinkat", b"/", _AT_FDCWD, _NOWHERE),
    "linkat": lambda s: attempt("linkat", _AT_FDCWD, _NOWHERE, _AT_FDCWD, _NOWHERE, 0),
    "mknodat": lambda s: attempt("mknodat", _AT_FDCWD, _NOWHERE, 0o10600, 0),
    "fchmodat": lambda s: attempt("fchmodat", _AT_FDCWD, _NOWHERE, 0o777),
    "truncate": lambda s: attempt("truncate", _NOWHERE, 0),
    "statfs": lambda s: attempt("statfs", b"/", bytes(256)),
    "setxattr": lambda s: attempt("setxattr", _NOWHERE, b"user.x", b"", 0, 0),
    "chdir": lambda s: attempt("chdir", b"/"),
    "getcwd": lambda s: attempt("getcwd", bytes(4096), 4096),
    "inotify_init1": lambda s: attempt("inotify_init1", 0),
    "mount": lambda s: attempt("mount", b"", _NOWHERE, b"tmpfs", 0, 0),
    "umount2": lambda s: attempt("umount2", _NOWHERE, 0),
    "open_tree": lambda s: attempt("open_tree", _AT_FDCWD, _NOWHERE, 0),
    # files by an inherited descriptor
    "fchdir": lambda s: attempt("fchdir", s.directory),
    "getdents64": lambda s: attempt("getdents64", s.directory, bytes(1024), 1024),
    "fstat": lambda s: attempt("fstat", s.directory, bytes(256)),
    "ftruncate": lambda s: attempt("ftruncate", s.file, 0),
    "fchmod": lambda s: attempt("fchmod", s.file, 0o600),
    "flock": lambda s: attempt("flock", s.file, 1),
    "sendfile": lambda s: attempt("sendfile", -1, -1, 0, 1),
    "splice": lambda s: attempt("splice", -1, 0, -1, 0, 1, 0),
    "map_file": lambda s: attempt("mmap", 0, 4096, _READ, _PRIVATE, s.file, 0),
    # network
    "socket_inet": lambda s: attempt("socket", socket.AF_INET, socket.SOCK_STREAM, 0),
    "socket_unix": lambda s: attempt("socket", socket.AF_UNIX, socket.SOCK_STREAM, 0),
    "socket_netlink": lambda s: attempt("socket", socket.AF_NETLINK, socket.SOCK_RAW, 0),
    "socketpair": lambda s: attempt("socketpair", socket.AF_UNIX, 1, 0, bytes(8)),
    "connect_tcp": lambda s: attempt("connect", s.tcp, s.tcp_address, 16),
    "connect_abstract": lambda s: attempt(
        "connect", s.datagrams, s.abstract_address, len(s.abstract_address)
    ),
    "send_abstract": lambda s: attempt(
        "sendto", s.datagrams, b"x", 1, 0, s.abstract_address, len(s.abstract_address)
    ),
    "bind_tcp": lambda s: attempt("bind", s.tcp, struct.pack("=HH12x", socket.AF_INET, 0), 16),
    "listen": lambda s: attempt("listen", s.tcp, 1),
    "accept4": lambda s: attempt("accept4", s.tcp, 0, 0, 0),
    "setsockopt": lambda s: attempt("setsockopt", s.tcp, 1, 2, struct.pack("=i", 1), 4),
    # programs, processes and their namespaces
    "execve": lambda s: run_true("execve", b"/bin/true", _EXECVE_ARGS, _EXECVE_ARGS),
    "execveat": lambda s: run_true(
        "execveat", s.directory, b"bin/true", _EXECVE_ARGS, _EXECVE_ARGS, 0
    ),
    "clone_without_libc_flags": lambda s: attempt_fork("clone", 17, 0, 0, 0, 0),
    "clone_parent": lambda s: attempt_fork("clone", 17 | _PARENT, 0, 0, 0, 0),
    "clone_user_namespace": lambda s: attempt_fork("clone", 17 | _NEWUSER, 0, 0, 0, 0),
    "clone3": lambda s: attempt("clone3", 0, 0),
    "raw_fork": lambda s: attempt_fork("fork"),
    "unshare_user": lambda s: attempt("unshare", _NEWUSER),
    "unshare_user_and_mount": lambda s: attempt("unshare", _NEWUSER | _NEWNS),
    "setns": lambda s: attempt("setns", s.victim_fd, 0),
    "setsid": lambda s: attempt("setsid"),
    "setpgid": lambda s: attempt("setpgid", 0, 0),
    "kill_outside": lambda s: attempt("kill", s.victim, 0),
    "kill_everyone": lambda s: attempt("kill", -1, 0),
    "kill_self": lambda s: attempt("kill", os.getpid(), 0),
    "kill_parent": lambda s: attempt("kill", os.getppid(), 0),
    "tkill": lambda s: attempt("tkill", s.victim, 0),
    "tgkill": lambda s: attempt("tgkill", s.victim, s.victim, 0),
    "pidfd_send_signal": lambda s: attempt("pidfd_send_signal", s.victim_fd, 0, 0, 0),
    "rt_sigqueueinfo": lambda s: attempt(
        "rt_sigqueueinfo", s.victim, 0, struct.pack("=3i116x", 0, 0, -1)
    ),
    "fcntl_setown": lambda s: attempt("fcntl", s.datagrams, 8, os.getpid()),
    "ptrace_seize": lambda s: attempt("ptrace", 0x4206, s.victim, 0, 0),
    "process_vm_readv": lambda s: attempt(
        "process_vm_readv", s.victim, _memory(s), 1, _memory(s), 1, 0
    ),
    "process_vm_writev": lambda s: attempt(
        "process_vm_writev", s.victim, _memory(s), 1, _memory(s), 1, 0
    ),
    "pidfd_getfd": lambda s: attempt("pidfd_getfd", s.victim_fd, 0, 0),
    "kcmp": lambda s: attempt("kcmp", os.getpid(), s.victim, 1, 0, 0),
    # own limits and rights
    "setrlimit": lambda s: attempt("setrlimit", 4, struct.pack("=2Q", 0, 0)),
    "prlimit64": lambda s: attempt("prlimit64", 0, 4, struct.pack("=2Q", 0, 0), 0),
    "prlimit64_outside": lambda s: attempt("prlimit64", s.victim, 4, 0, bytes(16)),
    "setresuid": lambda s: attempt("setresuid", -1, -1, -1),
    "setresgid": lambda s: attempt("setresgid", -1, -1, -1),
    "setfsuid": lambda s: attempt("setfsuid", 0),
    "capset": lambda s: attempt("capset", struct.pack("=Ii", 0x20080522, 0), bytes(24)),
    "prctl_dumpable": lambda s: attempt("prctl", 4, 1, 0, 0, 0),
    "seccomp": lambda s: attempt("seccomp", 2, 0, struct.pack("=I", 0x7FFF0000)),
    "personality": lambda s: attempt("personality", 0xFFFFFFFF),
    "umask": lambda s: attempt("umask", 0o077),
    "setpriority": lambda s: attempt("setpriority", 0, 0, 10),
    "sched_setaffinity": lambda s: attempt("sched_setaffinity", 0, 8, struct.pack("=Q", 1)),
    "sched_setscheduler": lambda s: attempt("sched_setscheduler", 0, 3, bytes(4)),
    "ioprio_set": lambda s: attempt("ioprio_set", 1, 0, 2 << 13 | 7),
    # memory
    "mmap_exec": lambda s: attempt("mmap", 0, 4096, _READ | _EXEC, _PRIVATE | _ANONYMOUS, -1, 0),
    "mmap_shared": lambda s: attempt("mmap", 0, 4096, _READ, _SHARED | _ANONYMOUS, -1, 0),
    "mprotect_exec": lambda s: attempt("mprotect", s.address, 4096, _READ | _EXEC),
    "pkey_mprotect": lambda s: attempt("pkey_mprotect", s.address, 4096, _READ | _EXEC, -1),
    "madvise_merge": lambda s: attempt("madvise", s.address, 4096, 12),
    "memfd_create": lambda s: attempt("memfd_create", b"x", 0),
    "mlock": lambda s: attempt("mlock", s.address, 4096),
    "userfaultfd": lambda s: attempt("userfaultfd", 1),
    "shmget": lambda s: attempt("shmget", 0x5EED0001, 0, 0),
    "shmat": lambda s: attempt("shmat", -1, 0, 0),
    "semget": lambda s: attempt("semget", 0x5EED0001, 0, 0),
    "msgget": lambda s: attempt("msgget", s.queue_key, 0),
    "mq_open": lambda s: attempt("mq_open", b"nonexistent", 0, 0, 0),
    "futex_lock_pi": lambda s: attempt("futex", s.address, 6 | 128, 0, 0, 0, 0),
    # the rest of the kernel's surface
    "io_uring_setup": lambda s: attempt("io_uring_setup", 1, 0),
    "bpf": lambda s: attempt("bpf", 0, 0, 0),
    "perf_event_open": lambda s: attempt("perf_event_open", 0, 0, -1, -1, 0),
    "keyctl": lambda s: attempt("keyctl", 0, -4, 1),
    "add_key": lambda s: attempt("add_key", 0, 0, 0, 0, -4),
    "init_module": lambda s: attempt("init_module", 0, 0, b""),
    "finit_module": lambda s: attempt("finit_module", -1, b"", 0),
    "kexec_load": lambda s: attempt("kexec_load", 0, 0, 0, 0xFFFF),
    "reboot": lambda s: attempt("reboot", 0, 0, 0, 0),
    "chroot": lambda s: attempt("chroot", b"/"),
    "pivot_root": lambda s: attempt("pivot_root", _NOWHERE, _NOWHERE),
    "syslog": lambda s: attempt("syslog", 10, 0, 0),
    "swapon": lambda s: attempt("swapon", _NOWHERE, 0),
    "adjtimex": lambda s: attempt("adjtimex", bytes(256)),
    "timer_create": lambda s: attempt("timer_create", 1, 0, bytes(8)),
    "setitimer": lambda s: attempt("setitimer", 0, bytes(32), 0),
    "timerfd_create": lambda s: attempt("timerfd_create", 1, 0),
    "eventfd2": lambda s: attempt("eventfd2", 0, 0),
    "signalfd4": lambda s: attempt("signalfd4", -1, bytes(8), 8, 0),
    "epoll_create1": lambda s: attempt("epoll_create1", 0),
    "fanotify_init": lambda s: attempt("fanotify_init", 0, 0),
    "uname": lambda s: attempt("uname", bytes(512)),
    "sysinfo": lambda s: attempt("sysinfo", bytes(256)),
    "ioctl_tty": lambda s: attempt("ioctl", s.file, 0x5412, b"x"),
    "iopl": lambda s: attempt("iopl", 0),
    "modify_ldt": lambda s: attempt("modify_ldt", 0, bytes(16), 16),
    "arch_prctl": lambda s: attempt("arch_prctl", 0x1003, bytes(8)),
    "rseq": lambda s: attempt("rseq", 0, 0, 0, 0),
}


def _call_i386(scene: Scene) -> int:
    """getpid through the entry for 32-bit programs."""
    if linux.machine() != "x86_64":
        raise AbsentError
    code = ctypes.addressof(ctypes.c_char.from_buffer(scene.code))
    return int(ctypes.CFUNCTYPE(ctypes.c_long)(code)())


def _call_x32(_scene: Scene) -> int:
    """kill(0, 0), by its x32 number."""
    if linux.machine() != "x86_64":
        raise AbsentError
    return int(_LIBC.syscall(ctypes.c_long(0x40000000 | NUMBERS["kill"][0]), 0, 0))


def _bomb(_scene: Scene) -> int:
    """Fork processes that stay; how many could be had, up to BOMB."""
    for count in range(BOMB):
        try:
            if os.fork() == 0:
                time.sleep(600)  # ended by the anchor's end, or the test fails
                os._exit(0)
        except OSError:
            return count
    return BOMB


def _open_descriptors(scene: Scene) -> list[int]:
    """By trying, as nothing can be listed: those that can be duplicated, above 2."""
    found = []
    for fd in range(3, 64):
        try:
            os.close(os.dup(fd))
        except OSError:
            continue
        found.append(fd)
    return [fd for fd in found if fd not in scene.keep]


def _own_state(_scene: Scene) -> dict[str, object]:
    """What the kernel says of this process. Needs seccomp and Landlock out of the way."""
    names = [
        "AS", "DATA", "STACK", "CPU", "FSIZE", "NOFILE", "CORE", "MEMLOCK", "MSGQUEUE", "RTPRIO",
        "NPROC",
    ]  # fmt: skip
    bounding = [cap for cap in range(64) if _LIBC.prctl(23, cap, 0, 0, 0) == 1]
    return {
        "limits": {name: resource.getrlimit(getattr(resource, f"RLIMIT_{name}")) for name in names},
        "capabilities": linux.capabilities(),
        "bounding": bounding,
        "ids": [*os.getresuid(), *os.getresgid()],
        "groups": os.getgroups(),
        "no_new_privs": _LIBC.prctl(39, 0, 0, 0, 0),
        "dumpable": _LIBC.prctl(3, 0, 0, 0, 0),
        "oom_score_adj": int(linux.read_file("/proc/self/oom_score_adj")),
        "umask": os.umask(0),
        "parent": os.getppid(),
        "group": os.getpgid(0) == os.getpgid(os.getppid()),
        "threads": len(os.listdir("/proc/self/task")),
    }


def _orphan(_scene: Scene) -> bool:
    """Whether a process whose parent has left is inherited by this worker's own parent."""
    own_parent = os.getppid()
    answer, told = os.pipe()
    middle = os.fork()
    if middle == 0:
        left_by = os.getpid()
        if os.fork() == 0:
            while os.getppid() == left_by:
                time.sleep(0.001)
            os.write(told, b"yes" if os.getppid() == own_parent else b"no")
        os._exit(0)
    os.waitpid(middle, 0)
    return os.read(answer, 9) == b"yes"


def _memory_use(scene: Scene) -> int:
    return attempt("mmap", 0, 4 << 30, _READ | _WRITE, _PRIVATE | _ANONYMOUS | 0x4000, -1, 0)


def _duplicate_until_refused(scene: Scene) -> int:
    for count in range(200):
        try:
            os.dup(scene.file)
        except OSError:
            return count
    return 200


def _burn(_scene: Scene) -> int:
    end = time.process_time() + 3
    while time.process_time() < end:
        pass
    return 0


def _serve(scene: Scene) -> str:
    """Everything that a worker needs to do, once."""
    left, right = socket.socket(fileno=scene.datagrams, family=1, type=2, proto=0), scene._other
    left.send(b"data")
    poll = select.poll()
    poll.register(right, select.POLLIN)
    assert poll.poll(1000)
    assert os.read(right, 9) == b"data"
    a, b = os.pipe()
    fds = array.array("i", [a])
    left.sendmsg([b"x"], [(socket.SOL_SOCKET, socket.SCM_RIGHTS, fds)])
    received = socket.socket(fileno=right, family=1, type=2, proto=0).recvmsg(9, 64)[1][0][2]
    os.write(b, b"through")
    child = os.fork()
    if child == 0:
        grandchild = os.fork()
        if grandchild == 0:
            os._exit(4)
        os._exit(os.waitstatus_to_exitcode(os.waitpid(grandchild, 0)[1]))
    watch = select.poll()
    watch.register(os.pidfd_open(child), select.POLLIN)
    assert watch.poll(5000)
    _pid, status, usage = os.wait4(child, 0)
    assert os.waitstatus_to_exitcode(status) == 4
    assert usage.ru_maxrss > 0
    block = [bytearray(1 << 20) for _ in range(32)]
    del block
    signal.signal(signal.SIGUSR1, signal.SIG_IGN)
    assert len(os.urandom(16)) == 16
    assert time.time() > 0 < time.process_time()
    time.sleep(0.001)
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss > 0
    traceback.format_exc()  # nothing here may import lazily: no file can be read any more
    return os.read(int.from_bytes(received, sys.byteorder), 9).decode()


SPECIALS: Final[dict[str, Callable[[Scene], Any]]] = {
    "serve": _serve,
    "own_state": _own_state,
    "bomb": _bomb,
    "stray_descriptors": _open_descriptors,
    "orphan": _orphan,
    "write_file": lambda s: _os_error(lambda: os.write(s.file, b"x")),
    "map_4_gib": _memory_use,
    "duplicate": _duplicate_until_refused,
    "burn_cpu": _burn,
    "abort": lambda s: os.abort(),
    "call_i386": _call_i386,
    "call_x32": _call_x32,
}


# --- the driver --------------------------------------------------------------------------------


def main(spec: dict[str, Any]) -> None:
    """Try each probe of the spec in a worker of its own, and print what came of it."""
    if spec["uid"]:
        become(spec["uid"])
        linux.prctl(linux.PR_SET_DUMPABLE, 1)  # as it is for a user who started this himself
    make_worse(spec)
    skip = frozenset(spec["skip"])
    scene = Scene()
    zygote = lockdown.prepare_zygote(skip) if spec["confined"] else {}
    out = {"zygote": zygote, "layers": {}, "results": {}}
    for name in spec["probes"]:
        result = run_worker(name, scene, spec, zygote, skip)
        out["layers"] = result.pop("layers", out["layers"])
        out["results"][name] = result
    scene.close()
    json.dump(out, sys.stdout)


def make_worse(spec: dict[str, Any]) -> None:
    """Be a machine, or a container, that has less than this one."""
    for name, value in spec.get("hard_limits", {}).items():
        resource.setrlimit(getattr(resource, name), (value, value))
    if lost := spec.get("without_capabilities", []):
        effective, permitted, _ = linux.capabilities()
        keep = effective & permitted & ~sum(1 << capability for capability in lost)
        low, high = keep & 0xFFFFFFFF, keep >> 32
        data = struct.pack("=6I", low, low, 0, high, high, 0)
        assert attempt("capset", struct.pack("=Ii", 0x20080522, 0), data) == 0
    if denied := spec.get("denied_calls", {}):
        code = [struct.pack("=HBBI", 0x20, 0, 0, 0)]
        for name, error in denied.items():
            number = linux.SYSCALLS[linux.machine()][name]
            code.append(struct.pack("=HBBI", 0x15, 0, 1, number))
            code.append(struct.pack("=HBBI", 0x06, 0, 0, 0x50000 | error))
        code.append(struct.pack("=HBBI", 0x06, 0, 0, 0x7FFF0000))
        program = ctypes.create_string_buffer(b"".join(code))
        header = struct.pack("@HP", len(code), ctypes.addressof(program))
        assert _LIBC.prctl(38, 1, 0, 0, 0) == 0
        assert attempt("seccomp", 1, 0, header) == 0


def run_worker(
    name: str, scene: Scene, spec: dict[str, Any], zygote: dict[str, str], skip: frozenset[str]
) -> dict[str, Any]:
    """Anchor and worker for one probe; both gone, with all they forked, when this returns."""
    answers, report_fd = os.pipe()
    anchor = lockdown.spawn_anchor(skip) if spec["confined"] else os.fork()
    if anchor == 0:
        os.close(answers)
        if not spec["confined"]:
            os.setsid()
        worker = os.fork()
        if worker == 0:
            try:
                _be_worker(name, scene, spec, zygote, skip, report_fd)
            finally:
                os._exit(70)
        _pid, status = os.waitpid(worker, 0)
        os.write(report_fd, json.dumps({"status": status}).encode() + b"\n")
        while True:
            signal.pause()
    os.close(report_fd)
    text = _read_until(answers, b'"status"', within_s=20)
    # Where there is a pid namespace, the end of the anchor alone must take everything along.
    in_namespace = zygote.get("pid_namespace") == "on" and "pid_namespace" not in skip
    (os.kill if in_namespace else os.killpg)(anchor, signal.SIGKILL)
    os.waitpid(anchor, 0)
    gone = _read_until(answers, None, within_s=5) is not None  # the last writer's end is EOF
    os.close(answers)
    result: dict[str, Any] = {"gone": gone}
    if text is None:
        return result | {"hangs": True}
    for line in text.splitlines():
        result |= json.loads(line)
    status = result.pop("status")
    if os.WIFSIGNALED(status):
        result["signal"] = os.WTERMSIG(status)
    elif os.WEXITSTATUS(status):
        result["exit"] = os.WEXITSTATUS(status)
    return result


def _be_worker(
    name: str,
    scene: Scene,
    spec: dict[str, Any],
    zygote: dict[str, str],
    skip: frozenset[str],
    report_fd: int,
) -> None:
    def report(**facts: object) -> None:
        os.write(report_fd, json.dumps(facts).encode() + b"\n")

    scene.enter_worker()
    if spec.get("thread"):
        threading.Thread(target=time.sleep, args=(600,), daemon=True).start()
    if spec["confined"]:
        plan = lockdown.Plan(
            memory_bytes=64 << 20,
            stack_bytes=1 << 20,
            cpu_total_s=1,
            max_processes=spec.get("max_processes", MAX_PROCESSES),
            max_files=64,
            keep_fds=(report_fd, *scene.keep),
            required=frozenset(spec["required"]),
            skip=skip,
        )
        scene.keep.append(report_fd)
        try:
            started = time.perf_counter()
            layers = lockdown.confine(plan, zygote)
            report(layers=layers, confine_s=time.perf_counter() - started)
        except lockdown.LayerFailure as failure:
            report(refused=[failure.layer, failure.reason])
            os._exit(0)
    else:
        scene.keep.append(report_fd)
    try:
        if name in CALLS:
            report(errno=CALLS[name](scene))
        else:
            report(value=SPECIALS[name](scene))
    except AbsentError:
        report(absent=True)
    except BaseException as problem:
        report(problem=repr(problem))
        raise
    os._exit(0)


def _read_until(fd: int, mark: bytes | None, *, within_s: float) -> bytes | None:
    """What comes up to a mark, or up to the end; None if neither is there in time."""
    poll = select.poll()
    poll.register(fd, select.POLLIN)
    text = b""
    end = time.monotonic() + within_s
    while poll.poll(max(0.0, end - time.monotonic()) * 1000):
        chunk = os.read(fd, 1 << 16)
        text += chunk
        if not chunk or (mark is not None and mark in text and text.endswith(b"\n")):
            return text
    return None


if __name__ == "__main__":
    main(json.loads(sys.argv[1]))
