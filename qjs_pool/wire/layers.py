"""The isolation layers by name, and which of them a pool insists on.

Both sides need the names: the worker reports each layer, the host says which it requires.
"""

from typing import Final

LAYERS: Final = (
    "rlimits",
    "no_new_privs",
    "capabilities",
    "uid",
    "non_dumpable",
    "seccomp",
    "landlock",
    "user_namespace",
    "pid_namespace",
    "net_namespace",
    "ipc_namespace",
    "process_bound",
    "oom_score",
)
# Never missing on Linux, whatever the mode.
_ALWAYS: Final = frozenset(LAYERS[:5])


def required_layers(mode: str) -> frozenset[str]:
    """The layers without which a worker must not serve.

    "strict": all; "auto": those that every supported kernel has, seccomp among them;
    "best-effort": the minimum.
    """
    return {
        "strict": frozenset(LAYERS),
        "auto": _ALWAYS | {"seccomp"},
        "best-effort": _ALWAYS,
    }[mode]
