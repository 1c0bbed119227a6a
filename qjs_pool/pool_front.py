"""What a caller sets on a pool, sync or asyncio."""

from __future__ import annotations

from typing import Any

from .limits import Limits
from .pool_core import Durability, Isolation, PoolCore, PoolOptions
from .supervisor import BaseImage
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
        _skip_layers: tuple[str, ...] = (),
    ) -> None:
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
        )
        self._core = PoolCore(options, BaseImage(preload=preload, skip_layers=_skip_layers))

    def stats(self) -> dict[str, Any]:
        """Figures of the pool.

        `sessions`, `idle`, `waiting`, `max_sessions`: how many there are now; `sessions_opened`,
        `sessions_closed`, `recoveries`, `zygote_starts`: how often it happened; `rss_bytes`:
        resident bytes of the workers, shared pages counted for each.
        """
        return self._core.stats()
