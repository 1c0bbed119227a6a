"""What a caller sets on a pool, sync or asyncio."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any

from .calls import RelayOptions, ToolEvent
from .functions import pickled_functions
from .limits import Limits
from .modules import checked_modules
from .pool_core import Durability, Isolation, PoolCore, PoolOptions
from .snapshots import checked_keys
from .tools import ToolErrors
from .wire import messages as wire


class PoolFront:
    """Options and figures of a pool.

    Args:
        limits: of every session; may be narrowed per session.
        max_sessions: sessions open at once; more wait for one to be closed.
        min_idle: workers started ahead, so that a session starts in under a millisecond.
        isolation: "auto" needs all layers but Landlock and the namespaces, which it uses where
            present; "strict" needs all; "best-effort" runs with what the machine has, and warns.
        durability: "eval": after a crash a session is as it was before that eval; "none": it
            starts empty.
        clock: what guests see: "off" (always 0), "frozen" (at the eval's start), or "real".
        preload: JavaScript of the host's that runs once, in the image all sessions start from.
        seed: makes `Math.random` reproducible, session by session in the order of their opening.
        checkout_timeout: seconds that `session()` waits for a slot; None waits for good.
        worker_functions: Python callables that run inside the sandbox, as `tools.<name>(input)`;
            sent to the worker with cloudpickle and loaded there before its lockdown.
        modules: sources that every session may import, `{"@/skills/x": {"index.ts": "..."}}`.
        host_timeout: seconds for one tool call; None: only the eval's own limits.
        tool_errors: what the guest learns of a tool's exception: "message", "type" or "none".
        snapshot_signing_key: signs snapshots, so that a pool with the key restores only those that
            one with the key took. Of a list, the first signs and any verifies (key rotation).
        on_tool_call: called with a `ToolEvent` at the start and the end of each tool call.

    Raises:
        UsageError: an option is unknown or out of range.
    """

    def __init__(
        self,
        *,
        limits: Limits | None = None,
        max_sessions: int = 1024,
        min_idle: int = 0,
        isolation: Isolation = "auto",
        durability: Durability = "eval",
        clock: wire.Clock = "off",
        preload: str = "",
        seed: int | str | None = None,
        checkout_timeout: float | None = 30.0,
        worker_functions: Mapping[str, Callable[[Any], Any]] | None = None,
        modules: Mapping[str, Mapping[str, str]] | None = None,
        host_timeout: float | None = None,
        tool_errors: ToolErrors = "message",
        snapshot_signing_key: bytes | Iterable[bytes] | None = None,
        on_tool_call: Callable[[ToolEvent], None] | None = None,
        _skip_layers: tuple[str, ...] = (),
    ) -> None:
        functions = pickled_functions({} if worker_functions is None else worker_functions)
        options = PoolOptions(
            limits=Limits() if limits is None else limits,
            max_sessions=max_sessions,
            min_idle=min_idle,
            isolation=isolation,
            durability=durability,
            clock=clock,
            preload=preload,
            seed=seed,
            checkout_timeout=checkout_timeout,
            worker_functions=dict(worker_functions or {}),
            modules=checked_modules(modules),
            snapshot_keys=checked_keys(snapshot_signing_key),
            relay=RelayOptions(errors=tool_errors, timeout=host_timeout, on_tool_call=on_tool_call),
        )
        self._core = PoolCore(options, functions, _skip_layers)

    def stats(self) -> dict[str, Any]:
        """Figures of the pool.

        `sessions`, `idle`, `waiting`, `max_sessions`: how many there are now; `sessions_opened`,
        `sessions_closed`, `recoveries`, `zygote_starts`: how often it happened; `rss_bytes`:
        resident bytes of the workers, shared pages counted for each. Where a middleware uses the
        pool also `parked`: how many `sessions` wait for their conversation's next turn, how many of
        the others are `held` for a person, and how often one was `taken_over`, `copied` for another
        branch, `restored` from a snapshot instead, closed as `expired` or `evicted`, or `died`.
        """
        return self._core.stats()
