"""Which isolation layers there are, and which of them a pool insists on."""

from __future__ import annotations

from typing import Final

# Never missing on Linux, whatever the mode.
ALWAYS: Final = frozenset({"rlimits", "no_new_privs", "capabilities", "uid", "non_dumpable"})
# Walls that not every machine has: used where present, and reported.
WHERE_PRESENT: Final = frozenset(
    {
        "landlock",
        "user_namespace",
        "pid_namespace",
        "net_namespace",
        "ipc_namespace",
        "process_bound",
        "oom_score",
    }
)
LAYERS: Final = ALWAYS | {"seccomp"} | WHERE_PRESENT


def required_layers(mode: str) -> frozenset[str]:
    """`strict`: all; `auto`: all but those not every machine has; `best-effort`: the minimum."""
    return {"strict": LAYERS, "auto": LAYERS - WHERE_PRESENT, "best-effort": ALWAYS}[mode]
