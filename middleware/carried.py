"""How an agent loop without checkpoints tells us of the run: its caller carries the state.

The loop puts a `Carried` into the configuration of what it runs; a graph puts its own keys there.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final, NamedTuple

CARRIED_KEY: Final = "__qjs_pool_carried"
# What only a graph puts there. Our loop removes it: it is of a run around the loop's.
_OF_A_GRAPH: Final = "__pregel_read"


class Carried(NamedTuple):
    """A run of the loop.

    `namespace` is "" for a run of its own, else it names the run within another run; `slots` are
    the state's keys, each with `copy()`, `update(values)` and `get()`, as a graph's channels have.
    """

    thread_id: str | None
    namespace: str
    slots: Mapping[str, Any]


def carried_in(config: Mapping[str, Any]) -> Carried | None:
    """The run of the loop that is the innermost one; None in a graph, even one within the loop."""
    configurable = config.get("configurable") or {}
    carried = configurable.get(CARRIED_KEY)
    if _OF_A_GRAPH in configurable or not isinstance(carried, Carried):
        return None
    return carried
