"""The lockdown: how a worker gives up everything, step by step, before it serves a guest.

What belongs here: the fixed order, the reason of each step, and what counts as missing.
What does not: the kernel calls (`linux.py`), the filter's contents (`seccomp.py`, `landlock.py`).

    prepare_zygote   once per zygote, after all imports: uid, user/net/ipc namespaces
    spawn_anchor     once per session: a process in user and pid namespaces of its own
    confine          once per session, in its first worker: the rest. Forks inherit all of it.

A layer is "on" only if it holds in full; anything less is "off: <reason>".
"""

from __future__ import annotations

import errno
import os
import sys
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from typing import Final

from qjs_pool.wire.layers import LAYERS

from . import landlock, linux, seccomp

if sys.platform != "win32":
    import resource

_ON: Final = "on"

NOBODY: Final = 65534
_OOM_SCORE_PATH: Final = "/proc/self/oom_score_adj"

# Room beside the engine's heap: the interpreter's own copies of results and frames (16 MiB
# values, up to three copies at a time) and the first arenas of the allocator.
_MEMORY_SLACK_BYTES: Final = 64 << 20
# Room beside the engine's stack, which is counted from where the engine is entered: the
# interpreter's frames below it, C helpers and signal frames above it.
_STACK_SLACK_BYTES: Final = 4 << 20

# What clone and unshare answer where namespaces are not to be had, as opposed to a failure
# that another try may not meet (EAGAIN, ENOMEM).
_NO_NAMESPACES: Final = frozenset(
    {errno.EPERM, errno.EACCES, errno.EINVAL, errno.ENOSPC, errno.EUSERS, errno.ENOSYS}
)

# Namespaces a worker must not be in, by kind, noted by prepare_zygote: the machine's net and
# ipc, the zygote's user and pid. A layer is believed when the kernel shows another name.
_foreign_namespaces: dict[str, str] = {}


class LayerFailure(Exception):
    """A layer that must be there is not. The worker must not serve."""

    def __init__(self, layer: str, reason: str) -> None:
        super().__init__(f"{layer}: {reason}")
        self.layer = layer
        self.reason = reason


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """What one worker is confined to."""

    memory_bytes: int  # the engine's heap limit; the process gets room for its own on top
    stack_bytes: int  # the engine's stack limit, likewise
    cpu_total_s: int | None  # per process, over all of its evals; a backstop
    max_processes: int  # in the session's user namespace, anchor and zombies included
    max_files: int
    keep_fds: tuple[int, ...]
    required: frozenset[str] = frozenset()
    skip: frozenset[str] = frozenset()  # for tests and diagnosis: leave these layers out


# --- in the zygote -----------------------------------------------------------------------------


def prepare_zygote(skip: frozenset[str] = frozenset()) -> dict[str, str]:
    """Take from the zygote what no session needs; call it once, after all imports.

    Returns layer -> "on" or "off: <reason>" for the layers that are made here or are probed.
    """
    linux.require_linux()
    report: dict[str, str] = {}
    os.umask(0o077)

    # The highest score: a worker goes before anything else on the machine. Set before the uid:
    # afterwards the file belongs to root, as the process is not dumpable.
    _attempt(report, "oom_score", skip, partial(linux.write_file, _OOM_SCORE_PATH, "1000"))

    _note_foreign_namespaces("net", "ipc")
    # With the machine's own CAP_SYS_ADMIN where there is one: these then belong to a namespace
    # in which a worker can never gain anything, and work where user namespaces do not.
    if os.geteuid() == 0:
        _unshare_net_and_ipc(report, skip)

    # The uid before the user namespace: in it, no id but the own would be there to change to.
    _attempt(report, "uid", skip, _leave_root)

    # Leaving root made the process non-dumpable, and then its id maps are root's to write. For
    # this moment another process of nobody could look in; there is no secret here to see.
    linux.prctl(linux.PR_SET_DUMPABLE, 1)
    _attempt(report, "user_namespace", skip, _unshare_user)
    _unshare_net_and_ipc(report, skip)  # what is still missing
    if "non_dumpable" not in skip:
        linux.prctl(linux.PR_SET_DUMPABLE, 0)
    # What the new user namespace gave. A nested one can be made without.
    if "capabilities" not in skip:
        linux.drop_capabilities()

    _note_foreign_namespaces("user", "pid")
    _probe_anchor(report, skip)
    with suppress(linux.UnsupportedPlatform):  # confine() reports it
        _filter()
    return report


def _leave_root() -> None:
    """Become nobody if root. A root of a user namespace that has no nobody may stay."""
    if 0 not in (*os.getresuid(), *os.getresgid()):
        return
    try:
        os.setgroups([])
        os.setresgid(NOBODY, NOBODY, NOBODY)
        os.setresuid(NOBODY, NOBODY, NOBODY)
    except OSError:
        # Outside of that namespace it is an ordinary user, as any other that runs a pool.
        if 0 in os.getresuid() and _is_root_outside():
            raise


def _is_root_outside() -> bool:
    for line in linux.read_file("/proc/self/uid_map").splitlines():
        inside, outside, _count = map(int, line.split())
        if inside == 0:
            return outside == 0
    return True


def _unshare_net_and_ipc(report: dict[str, str], skip: frozenset[str]) -> None:
    for layer, flag in (
        ("net_namespace", linux.CLONE_NEWNET),
        ("ipc_namespace", linux.CLONE_NEWIPC),
    ):
        if report.get(layer) != _ON:
            _attempt(report, layer, skip, partial(linux.unshare, flag))


def _unshare_user() -> None:
    uid, gid = os.geteuid(), os.getegid()
    linux.unshare(linux.CLONE_NEWUSER)
    # An anchor may nest its own only if its ids mean something in here. It writes no map
    # itself, which ends the chain: a worker cannot nest another and be root in it.
    linux.write_file("/proc/self/setgroups", "deny")
    linux.write_file("/proc/self/uid_map", f"{uid} {uid} 1")
    linux.write_file("/proc/self/gid_map", f"{gid} {gid} 1")


def _probe_anchor(report: dict[str, str], skip: frozenset[str]) -> None:
    """Learn whether sessions will get user and pid namespaces, from one that ends at once."""

    def probe() -> None:
        flags = _anchor_flags(skip)
        if not flags & linux.CLONE_NEWPID:
            raise OSError(errno.EPERM, "needs a user namespace")
        pid = linux.clone_process(flags)
        if pid == 0:
            os._exit(0)
        os.waitpid(pid, 0)

    _attempt(report, "pid_namespace", skip, probe)


# --- in the anchor -----------------------------------------------------------------------------


def spawn_anchor(skip: frozenset[str] = frozenset()) -> int:
    """Fork the first process of a session: 0 in the anchor, its pid in the zygote.

    It leads a process group of its own. It is pid 1 of its own pid namespace where that is to
    be had, else a child subreaper; in both cases it inherits every orphan of its session.
    """
    linux.require_linux()
    pid = _fork_anchor(_anchor_flags(skip))
    if pid == 0:
        os.setsid()
        if os.getpid() != 1:
            linux.prctl(linux.PR_SET_CHILD_SUBREAPER, 1)
        # A new user namespace came with all capabilities in it; waiting needs none.
        if "capabilities" not in skip:
            linux.drop_capabilities()
    return pid


def _anchor_flags(skip: frozenset[str]) -> int:
    if "user_namespace" in skip:  # without one, a pid namespace would need CAP_SYS_ADMIN
        return 0
    return linux.CLONE_NEWUSER | (0 if "pid_namespace" in skip else linux.CLONE_NEWPID)


def _fork_anchor(flags: int) -> int:
    for wanted in dict.fromkeys((flags, flags & ~linux.CLONE_NEWPID)):
        try:
            if wanted:
                return linux.clone_process(wanted)
        except OSError as problem:
            if problem.errno not in _NO_NAMESPACES:
                raise
    return os.fork()  # confine() finds the namespaces missing, and judges


# --- in the worker -----------------------------------------------------------------------------


def confine(plan: Plan, inherited: Mapping[str, str]) -> dict[str, str]:
    """Give up, in this process and all it forks, everything that serving does not need.

    Args:
        plan: the limits, the descriptors to keep, and which layers there must be.
        inherited: what prepare_zygote returned.

    Returns:
        Every layer of LAYERS -> "on" or "off: <reason>".

    Raises:
        LayerFailure: a required layer is missing, or a limit could not be set.
    """
    linux.require_linux()
    _expect_single_thread()
    report = dict.fromkeys(LAYERS, "off: not prepared in the zygote") | dict(inherited)
    _verify_namespaces(report, plan.skip)
    _close_descriptors(plan.keep_fds)
    for layer, step in _STEPS:
        _attempt(report, layer, plan.skip, partial(step, plan, report))
    for layer in LAYERS:
        if layer in plan.required and report[layer] != _ON:
            raise LayerFailure(layer, report[layer].removeprefix("off: "))
    return report


def _expect_single_thread() -> None:
    # no_new_privs, capabilities and Landlock are a thread's own: another one would keep its
    # rights, and share its memory with this one.
    try:
        threads = len(os.listdir("/proc/self/task"))
    except OSError as problem:
        raise LayerFailure("seccomp", f"threads cannot be counted: {problem}") from problem
    if threads != 1:
        raise LayerFailure("seccomp", f"the worker has {threads} threads, the lockdown covers one")


def _verify_namespaces(report: dict[str, str], skip: frozenset[str]) -> None:
    """Believe the kernel, not the report: a spawn may have fallen back to a plain fork."""
    for kind in ("user", "pid", "net", "ipc"):
        layer = f"{kind}_namespace"
        if report[layer] == _ON:
            _attempt(report, layer, skip, partial(_expect_new_namespace, kind))


def _close_descriptors(keep_fds: tuple[int, ...]) -> None:
    """Keep the session's own descriptors and nothing else; 0 to 2 lead nowhere."""
    try:
        null = os.open("/dev/null", os.O_RDWR)
        for fd in {0, 1, 2}.difference(keep_fds):
            if fd != null:
                os.dup2(null, fd)
        linux.close_all_except({0, 1, 2, *keep_fds})
    except OSError as problem:
        raise LayerFailure("descriptors", str(problem)) from problem


def _set_rlimits(plan: Plan, _report: Mapping[str, str]) -> None:
    """Hard ceilings by the kernel, for what the engine's own limits fail to hold."""
    size_pages, _, _, _, _, data_pages, *_ = map(int, linux.read_file("/proc/self/statm").split())
    page = resource.getpagesize()
    # Half of the heap again for the allocator's fragmentation. On top of what is mapped now:
    # the imports' mappings are there already, are different everywhere, and must not count.
    room = plan.memory_bytes * 3 // 2 + _MEMORY_SLACK_BYTES
    _limit("RLIMIT_AS", size_pages * page + room)
    _limit("RLIMIT_DATA", data_pages * page + room)  # the same for private writable memory
    _limit("RLIMIT_STACK", plan.stack_bytes + _STACK_SLACK_BYTES)
    if plan.cpu_total_s is not None:
        _limit("RLIMIT_CPU", max(plan.cpu_total_s, 1))  # soft equals hard: SIGKILL, no SIGXCPU
    _limit("RLIMIT_FSIZE", 0)
    _limit("RLIMIT_NOFILE", plan.max_files)
    _limit("RLIMIT_CORE", 0)
    _limit("RLIMIT_MEMLOCK", 0)
    _limit("RLIMIT_MSGQUEUE", 0)
    _limit("RLIMIT_RTPRIO", 0)


def _bound_processes(plan: Plan, report: Mapping[str, str]) -> None:
    """Bound what a taken-over worker can fork. Only where the count is the session's own."""
    if report["user_namespace"] != _ON:
        raise OSError(errno.EPERM, "would count all of this user's processes: no user namespace")
    release = tuple(int(part) for part in os.uname().release.split("-")[0].split(".")[:2])
    if release < (5, 14):
        raise OSError(errno.ENOSYS, "counted per user, not per user namespace, before Linux 5.14")
    _limit("RLIMIT_NPROC", plan.max_processes, "process_bound")


def _forbid_new_privileges(_plan: Plan, _report: Mapping[str, str]) -> None:
    """No set-uid program gives anything; Landlock and seccomp insist on it."""
    linux.prctl(linux.PR_SET_NO_NEW_PRIVS, 1)


def _drop_capabilities(_plan: Plan, _report: Mapping[str, str]) -> None:
    """Those of the user namespace, too: they would open up kernel surface that is root's."""
    linux.drop_capabilities()


def _forbid_dumps(_plan: Plan, _report: Mapping[str, str]) -> None:
    """No core file, and no other worker of this uid may trace this one or read its memory."""
    linux.prctl(linux.PR_SET_DUMPABLE, 0)


def _restrict_with_landlock(_plan: Plan, _report: Mapping[str, str]) -> None:
    """After the last file was opened: from here on no file can be, even without seccomp."""
    landlock.restrict_self()


def _install_filter(_plan: Plan, _report: Mapping[str, str]) -> None:
    """Last: it denies the calls that all the other steps are made of."""
    seccomp.install(_filter())


def _filter() -> bytes:
    return seccomp.build_filter(linux.machine(), glibc=linux.is_glibc())


# Memory limits come first, as they are measured from /proc, which Landlock takes away;
# no_new_privs comes before the two that need it; capabilities go before them, so that nothing
# is left that could undo a step; seccomp is last.
_STEPS: Final[tuple[tuple[str, Callable[[Plan, Mapping[str, str]], None]], ...]] = (
    ("rlimits", _set_rlimits),
    ("process_bound", _bound_processes),
    ("no_new_privs", _forbid_new_privileges),
    ("capabilities", _drop_capabilities),
    ("non_dumpable", _forbid_dumps),
    ("landlock", _restrict_with_landlock),
    ("seccomp", _install_filter),
)


def _attempt(
    report: dict[str, str], layer: str, skip: frozenset[str], step: Callable[[], None]
) -> None:
    """Record how a step went: "on" if all of it passed, else "off" with the reason."""
    if layer in skip:
        report[layer] = "off: skipped"
        return
    try:
        step()
    except OSError as problem:
        report[layer] = f"off: {problem.strerror or problem}"
    else:
        report[layer] = _ON


def _limit(name: str, value: int, layer: str = "rlimits") -> None:
    try:
        resource.setrlimit(getattr(resource, name), (value, value))
    except (OSError, ValueError) as problem:
        _soft, hard = resource.getrlimit(getattr(resource, name))
        reason = f"{name} cannot be set to {value} (hard limit {hard}): {problem}"
        raise LayerFailure(layer, reason) from problem


def _note_foreign_namespaces(*kinds: str) -> None:
    for kind in kinds:
        try:
            _foreign_namespaces[kind] = linux.namespace_id(kind)
        except OSError:  # no /proc: nothing can be verified, so these layers will be off
            _foreign_namespaces.pop(kind, None)


def _expect_new_namespace(kind: str) -> None:
    if linux.namespace_id(kind) == _foreign_namespaces.get(kind):
        raise OSError(errno.EPERM, f"still in the {kind} namespace it started in")
