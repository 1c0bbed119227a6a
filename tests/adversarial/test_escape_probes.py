"""What a taken-over worker can still do: nothing. Real attacks, each with a control.

The attacks are in `probes.py`. A probe counts only where its control, the same attack from the
same process tree without the lockdown, gets through (or gets past the point of refusal).
Every layer is also shown to hold alone, and every step to be missed when it is left out.
"""

from __future__ import annotations

import errno
import functools
import importlib.util
import json
import os
import subprocess
import sys
from pathlib import Path
from types import ModuleType
from typing import Any, Final

import pytest

if sys.platform != "linux":
    pytest.skip("the lockdown is Linux only", allow_module_level=True)

from qjs_pool.wire import layers as layer_names
from qjs_pool.worker import landlock, linux, lockdown

pytestmark = pytest.mark.sandbox

_SCRIPT: Final = Path(__file__).with_name("probes.py")


def _load_probes() -> ModuleType:
    # By path: the same file is a script for fresh interpreters, whatever the import mode.
    spec = importlib.util.spec_from_file_location("_escape_probes", _SCRIPT)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


probes: Final = _load_probes()

IS_ROOT: Final = os.geteuid() == 0
# Run as root, the suite also becomes a user of no account. Run by a user, it is that user only.
ROLES: Final = {"root": 0, "ordinary": probes.ORDINARY_UID} if IS_ROOT else {"ordinary": 0}
role = pytest.mark.parametrize("role", sorted(ROLES))

# What the control answers where it does not succeed: it got past any check of rights.
CONTROL: Final[dict[str, set[int]]] = {
    name: set(errors)
    for names, errors in (
        ("mkdirat unlinkat symlinkat linkat mknodat fchmodat truncate setxattr", [errno.ENOENT]),
        ("mount umount2 open_tree shmget semget mq_open pivot_root swapon", [errno.ENOENT]),
        ("accept4 clone3 setns shmat bpf reboot rseq", [errno.EINVAL]),
        ("io_uring_setup perf_event_open add_key", [errno.EFAULT]),
        ("sendfile splice", [errno.EBADF]),
        ("ioctl_tty", [errno.ENOTTY]),
        ("madvise_merge", [0, errno.EINVAL]),
        # What a kernel may be built without.
        ("iopl modify_ldt", [0, errno.ENOSYS]),
        ("init_module", [errno.ENOEXEC, errno.ENOSYS]),
        ("finit_module", [errno.EBADF, errno.ENOSYS]),
        ("kexec_load", [errno.EINVAL, errno.ENOSYS]),
    )
    for name in names.split()
}
# Root's own: an ordinary user is refused before the lockdown, so there is no control for him.
ROOT_ONLY: Final = {
    "bpf", "init_module", "finit_module", "kexec_load", "reboot", "chroot", "pivot_root",
    "syslog", "swapon", "fanotify_init",
}  # fmt: skip
# The victim is of another uid than root, and this takes CAP_SYS_RESOURCE, which root may lack.
ORDINARY_ONLY: Final = {"prlimit64_outside"}
# Calls so new that C libraries try them first and fall back on ENOSYS only.
LOOKS_ABSENT: Final = {
    "openat2", "open_tree", "clone3", "pidfd_send_signal", "pidfd_getfd", "io_uring_setup", "rseq",
}  # fmt: skip


def run(role: str, names: tuple[str, ...], *, confined: bool = True, **spec: Any) -> dict[str, Any]:
    """What one driver process reports about these probes. Layers that are missing skip the test,
    or fail it where QJS_POOL_SANDBOX_REQUIRED says that this machine has them all."""
    out = _run(role, names, confined, json.dumps(spec, sort_keys=True))
    leftovers = [name for name, result in out["results"].items() if not result["gone"]]
    assert not leftovers, "processes outlived their anchor"
    assert not [name for name, result in out["results"].items() if "hangs" in result]
    return out


@functools.cache
def _run(role: str, names: tuple[str, ...], confined: bool, extra: str) -> dict[str, Any]:
    spec = {"skip": (), "required": ()} | json.loads(extra)
    spec |= {"uid": ROLES[role], "confined": confined, "probes": names}
    done = subprocess.run(
        [sys.executable, "-I", str(_SCRIPT), json.dumps(spec)],
        env={}, capture_output=True, text=True, timeout=120, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert not done.stderr
    report: dict[str, Any] = json.loads(done.stdout)
    return report


def need(layers: dict[str, str], *names: str) -> None:
    """Skip where this machine lacks a layer; fail there if it is required to have all."""
    missing = [f"{name} is {layers[name]}" for name in names if layers[name] != "on"]
    if missing and os.environ.get("QJS_POOL_SANDBOX_REQUIRED") == "1":
        pytest.fail(f"required here: {missing}")
    if missing:
        pytest.skip(f"not on this machine: {missing}")


# Some architectures never had some of them.
ABSENT: Final = {
    "x86_64": set[str](),
    "aarch64": {"open", "stat", "raw_fork", "iopl", "modify_ldt", "arch_prctl"},
}[linux.machine()]
ALL: Final = tuple(name for name in probes.CALLS if name not in ABSENT)


@pytest.mark.parametrize(
    ("name", "role"),
    [
        (name, role)
        for name in ALL
        for role in sorted(ROLES)
        if name not in (ROOT_ONLY if role == "ordinary" else ORDINARY_ONLY)
    ],
)
def test_worker_cannot(name: str, role: str) -> None:
    control = run(role, ALL, confined=False)["results"][name]
    report = run(role, ALL)
    need(report["layers"], "seccomp")
    refusal = errno.ENOSYS if name in LOOKS_ABSENT else errno.EPERM
    allowed = CONTROL.get(name, {0})
    if control["errno"] not in allowed:
        need({"control": f"off: {errno.errorcode[control['errno']]}"}, "control")
    assert refusal not in allowed
    assert report["results"][name]["errno"] == refusal


# Which layers stop it, each alone. With all of them out of the way it must succeed.
WALLS: Final[dict[str, tuple[str, ...]]] = {
    "openat": ("seccomp", "landlock"),
    "create_file": ("seccomp", "landlock"),
    "open_inherited_directory": ("seccomp", "landlock"),
    "execve": ("seccomp", "landlock"),
    "execveat": ("seccomp", "landlock"),
    "bind_tcp": ("seccomp", "landlock"),
    "connect_tcp": ("seccomp", "landlock", "net_namespace"),
    "connect_abstract": ("seccomp", "landlock", "net_namespace"),
    "send_abstract": ("seccomp", "landlock", "net_namespace"),
    "kill_outside": ("seccomp", "landlock", "pid_namespace"),
    "tkill": ("seccomp", "landlock", "pid_namespace"),
    "tgkill": ("seccomp", "landlock", "pid_namespace"),
    "pidfd_send_signal": ("seccomp", "landlock", "pid_namespace"),
    # A pid namespace hides the victim, too, but cannot be had without the user namespace.
    "ptrace_seize": ("seccomp", "landlock", "user_namespace"),
    "process_vm_readv": ("seccomp", "landlock", "user_namespace"),
    "process_vm_writev": ("seccomp", "landlock", "user_namespace"),
    "pidfd_getfd": ("seccomp", "landlock", "user_namespace"),
    "open_victim_environ": ("seccomp", "landlock", "user_namespace"),
    "unshare_user": ("seccomp", "user_namespace"),
    "clone_user_namespace": ("seccomp", "user_namespace"),
    "msgget": ("seccomp", "ipc_namespace"),
    "chroot": ("seccomp", "capabilities"),
    "mlock": ("seccomp", "rlimits"),
    "mmap_exec": ("seccomp",),
    "socket_inet": ("seccomp",),
    "setsid": ("seccomp",),
}


@role
@pytest.mark.parametrize(
    ("name", "wall"), [(name, wall) for name, walls in WALLS.items() for wall in walls]
)
def test_each_layer_stops_it_alone(name: str, wall: str, role: str) -> None:
    others = sorted(set(WALLS[name]) - {wall})
    names = tuple(probe for probe, walls in WALLS.items() if set(walls) == set(WALLS[name]))
    report = run(role, names, skip=others)
    need(report["layers"], wall)
    assert report["results"][name]["errno"] != 0
    assert [layer for layer in others if report["layers"][layer] == "on"] == []


@role
@pytest.mark.parametrize("name", sorted(WALLS))
def test_without_the_layers_that_stop_it_it_succeeds(name: str, role: str) -> None:
    names = tuple(probe for probe, walls in WALLS.items() if set(walls) == set(WALLS[name]))
    report = run(role, names, skip=sorted(WALLS[name]))
    if name == "chroot":
        need(report["layers"], "user_namespace")  # which is what gives the capability
    assert report["results"][name]["errno"] == 0


@role
def test_worker_can_do_all_that_serving_needs(role: str) -> None:
    assert run(role, ("serve",), confined=False)["results"]["serve"]["value"] == "through"
    report = run(role, ("serve",))
    assert report["results"]["serve"].get("value") == "through", report["results"]["serve"]


@role
def test_all_layers_are_on_where_the_kernel_has_them(role: str) -> None:
    layers = run(role, ALL)["layers"]
    assert set(layers) == set(layer_names.LAYERS)
    need(layers, *layer_names.LAYERS)


@role
def test_worker_keeps_no_descriptor_but_its_own(role: str) -> None:
    name = ("stray_descriptors",)
    assert run(role, name, confined=False)["results"][name[0]]["value"] != []
    assert run(role, name)["results"][name[0]]["value"] == []


# Limits that work on calls which the filter allows.
@role
@pytest.mark.parametrize(
    ("name", "free", "limited"),
    [("write_file", 0, errno.EFBIG), ("map_4_gib", 0, errno.ENOMEM)],
)
def test_rlimits_hold(name: str, free: int, limited: int, role: str) -> None:
    assert run(role, (name,))["results"][name]["value"] == limited
    assert run(role, (name,), skip=["rlimits"])["results"][name]["value"] == free


@role
def test_descriptors_and_processor_time_are_bounded(role: str) -> None:
    names = ("duplicate", "burn_cpu")
    held = run(role, names)["results"]
    free = run(role, names, skip=["rlimits"])["results"]
    assert held["duplicate"]["value"] < 64 <= free["duplicate"]["value"]
    assert held["burn_cpu"].get("signal") == 9
    assert free["burn_cpu"].get("value") == 0


@role
def test_fork_bomb_is_bounded_and_gone_with_its_anchor(role: str) -> None:
    report = run(role, ("bomb",))
    need(report["layers"], "process_bound")
    # The anchor and the worker count as well.
    assert report["results"]["bomb"]["value"] == probes.MAX_PROCESSES - 2
    free = run(role, ("bomb",), skip=["process_bound"])  # run() asserts that all are gone
    assert free["results"]["bomb"]["value"] == probes.BOMB


@role
def test_fork_bomb_is_gone_with_its_group_where_there_is_no_pid_namespace(role: str) -> None:
    report = run(role, ("bomb",), skip=["pid_namespace", "process_bound"])
    assert report["results"]["bomb"]["value"] == probes.BOMB


@role
def test_abort_still_ends_the_process(role: str) -> None:
    assert run(role, ("abort",), confined=False)["results"]["abort"]["signal"] == 6
    report = run(role, ("abort",))
    need(report["layers"], "seccomp")
    assert report["results"]["abort"].get("signal") in {4, 5, 7, 11}  # a fault, not SIGABRT


if linux.machine() == "x86_64":

    @role
    @pytest.mark.parametrize("name", ["call_i386", "call_x32"])
    def test_another_entry_to_the_kernel_kills_the_process(name: str, role: str) -> None:
        control = run(role, (name,), confined=False)["results"][name]
        # A kernel may be built without: then it is a fault in any process, which is no way in.
        expected = control.get("signal", 31)  # SIGSYS
        report = run(role, (name,))
        need(report["layers"], "seccomp")
        assert report["results"][name].get("signal") == expected


def own_state(role: str, *skip: str) -> dict[str, Any]:
    """The kernel's word for a worker's state, with the two layers that hide it left out."""
    report = run(role, ("own_state",), skip=sorted({"seccomp", "landlock", *skip}))
    state: dict[str, Any] = report["results"]["own_state"]["value"]
    return state


@role
def test_no_new_privs_is_set(role: str) -> None:
    assert own_state(role)["no_new_privs"] == 1
    assert own_state(role, "no_new_privs")["no_new_privs"] == 0


@role
def test_capabilities_are_gone(role: str) -> None:
    need(run(role, ALL)["layers"], "user_namespace")  # a user has none to lose without one
    bare, clad = own_state(role), own_state(role, "capabilities")
    assert bare["capabilities"] == [0, 0, 0]
    assert bare["bounding"] == []
    assert clad["capabilities"][0] != 0
    assert clad["bounding"] != []


@role
def test_worker_is_not_dumpable(role: str) -> None:
    assert own_state(role)["dumpable"] == 0
    assert own_state(role, "non_dumpable")["dumpable"] == 1


@role
def test_worker_is_the_first_to_go_when_memory_is_short(role: str) -> None:
    assert own_state(role)["oom_score_adj"] == 1000
    own = int(linux.read_file("/proc/self/oom_score_adj"))
    assert own_state(role, "oom_score")["oom_score_adj"] == own


if IS_ROOT:

    def test_root_becomes_nobody() -> None:
        namespaces = ("user_namespace", "pid_namespace")  # in one without a map all ids look alike
        left = own_state("root", *namespaces)
        assert left["ids"] == [lockdown.NOBODY] * 6
        assert left["groups"] == []
        assert own_state("root", "uid", *namespaces)["ids"] == [0] * 6


@role
def test_limits_are_as_planned(role: str) -> None:
    limits = own_state(role)["limits"]
    for name, value in {
        "CPU": 1, "FSIZE": 0, "NOFILE": 64, "CORE": 0, "MEMLOCK": 0, "MSGQUEUE": 0, "RTPRIO": 0,
    }.items():  # fmt: skip
        assert limits[name] == [value, value], name
    for name in ("AS", "DATA"):
        # The engine's 64 MiB must fit, with as much again; a bomb must not.
        soft, hard = limits[name]
        assert 128 << 20 < soft == hard < 1 << 30, name
    assert 1 << 20 < limits["STACK"][1] < 8 << 20


@role
def test_anchor_leads_the_group_of_its_session(role: str) -> None:
    layers = run(role, ALL)["layers"]
    assert own_state(role)["group"]
    assert (own_state(role)["parent"] == 1) == (layers["pid_namespace"] == "on")


@role
@pytest.mark.parametrize("skip", [[], ["pid_namespace"], ["pid_namespace", "user_namespace"]])
def test_anchor_inherits_every_orphan_of_its_session(skip: list[str], role: str) -> None:
    assert run(role, ("orphan",), confined=False)["results"]["orphan"]["value"] is False
    assert run(role, ("orphan",), skip=skip)["results"]["orphan"]["value"] is True


@role
def test_nothing_is_created_for_others_to_read(role: str) -> None:
    assert own_state(role)["umask"] == 0o077


@role
@pytest.mark.parametrize("layer", layer_names.LAYERS)
def test_worker_refuses_to_serve_without_a_required_layer(layer: str, role: str) -> None:
    report = run(role, ("serve",), skip=[layer], required=[layer])
    assert report["results"]["serve"].get("refused") == [layer, "skipped"]


@role
@pytest.mark.parametrize(
    ("limit", "value", "layer"),
    [("RLIMIT_NOFILE", 40, "rlimits"), ("RLIMIT_STACK", 1 << 20, "rlimits"),
     # Counts all of a user's processes until the zygote is in its user namespace: a value that
     # no machine's other processes reach.
     ("RLIMIT_NPROC", 20_000, "process_bound")],
)  # fmt: skip
def test_a_limit_that_cannot_be_set_is_named(limit: str, value: int, layer: str, role: str) -> None:
    report = run(role, ("serve",), hard_limits={limit: value}, max_processes=30_000)
    if layer == "process_bound":
        need(run(role, ALL)["layers"], layer)
    refused = report["results"]["serve"]["refused"]
    assert refused[0] == layer
    assert limit in refused[1]
    assert str(value) in refused[1]


@role
def test_worker_with_a_second_thread_refuses_to_serve(role: str) -> None:
    report = run(role, ("serve",), thread=True)
    assert report["results"]["serve"]["refused"] == [
        "seccomp",
        "the worker has 2 threads, the lockdown covers one",
    ]


@role
def test_a_container_without_landlock_is_reported_and_served_unless_strict(role: str) -> None:
    denied = {"landlock_create_ruleset": errno.ENOSYS}
    auto = sorted(layer_names.required_layers("auto"))
    report = run(role, ("serve",), denied_calls=denied, required=auto)
    assert report["results"]["serve"].get("value") == "through"
    assert report["layers"]["landlock"] == (
        "off: landlock_create_ruleset: Function not implemented"
    )
    strict = run(role, ("serve",), denied_calls=denied, required=["landlock"])
    assert strict["results"]["serve"]["refused"][0] == "landlock"


@role
def test_a_container_without_namespaces_is_reported_and_served(role: str) -> None:
    auto = sorted(layer_names.required_layers("auto"))
    report = run(role, ("serve",), denied_calls={"unshare": errno.EPERM}, required=auto)
    assert report["results"]["serve"].get("value") == "through"
    for layer in ("user_namespace", "net_namespace", "ipc_namespace", "process_bound"):
        assert report["layers"][layer].startswith("off: ")


@role
def test_a_container_without_seccomp_serves_with_best_effort_only(role: str) -> None:
    denied = {"seccomp": errno.EINVAL}
    auto, best = (sorted(layer_names.required_layers(mode)) for mode in ("auto", "best-effort"))
    refused = run(role, ("serve",), denied_calls=denied, required=auto)["results"]["serve"]
    assert refused["refused"][0] == "seccomp"
    report = run(role, ("serve",), denied_calls=denied, required=best)
    assert report["layers"]["seccomp"].startswith("off: ")


# As in a container: without SETPCAP (8), SYS_ADMIN (21), SYS_RESOURCE (24).
if IS_ROOT:

    @pytest.mark.parametrize("lost", [[8], [21], [8, 21, 24]])
    def test_root_with_fewer_capabilities_is_confined_all_the_same(lost: list[int]) -> None:
        report = run("root", ("serve", "bomb"), without_capabilities=lost)
        assert report["results"]["serve"].get("value") == "through"
        need(report["layers"], *layer_names.LAYERS)


def test_strict_requires_all_and_every_mode_what_is_never_missing() -> None:
    strict, auto, best = map(layer_names.required_layers, ("strict", "auto", "best-effort"))
    assert strict == set(layer_names.LAYERS)
    assert best == {"rlimits", "no_new_privs", "capabilities", "uid", "non_dumpable"}
    assert auto == best | {"seccomp"}


@pytest.mark.parametrize(
    ("abi", "rights", "words"),
    [(1, 0x1FFF, 1), (2, 0x3FFF, 1), (3, 0x7FFF, 1), (4, 0x7FFF, 2), (5, 0xFFFF, 2),
     (6, 0xFFFF, 3), (7, 0xFFFF, 3), (99, 0xFFFF, 3)],
)  # fmt: skip
def test_landlock_asks_for_all_that_an_abi_knows_and_for_no_more(
    abi: int, rights: int, words: int
) -> None:
    expected = [rights, 3, 3][:words]
    assert landlock.ruleset(abi) == b"".join(word.to_bytes(8, "little") for word in expected)


@role
def test_confining_is_fast(role: str) -> None:
    results = run(role, ALL)["results"]
    # The best of many, as other processes may hold up some. About 1.5 ms; 2 are the budget.
    assert min(result["confine_s"] for result in results.values()) < 0.005
