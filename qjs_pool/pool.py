"""The sync pool."""

from __future__ import annotations

from collections.abc import Mapping
from types import TracebackType

from .drive import drive
from .limits import Limits
from .pool_front import PoolFront
from .session import Session
from .tools import ToolLike


class Pool(PoolFront):
    __doc__ = (
        "Sandboxed workers for any number of sessions. Use it with `with`, or `close()` it.\n\n"
        + (PoolFront.__doc__ or "")
    )

    def start(self) -> Pool:
        """Start the zygote and a first worker, for readiness checks; else the first session does.

        Raises:
            IsolationUnavailable: a layer that `isolation` requires is missing.
            SpawnError: no worker could be started.
        """
        self._core.check_open()
        core = self._core.new_core(None)
        try:
            drive(core, core.stand)
            self._core.report_isolation(core.layers)
            self._core.keep_idle(core)
        finally:
            core.close()
        self._core.refill()
        return self

    @property
    def isolation(self) -> dict[str, str]:
        """Each isolation layer: "on", or why not. Starts the pool if need be."""
        if not self._core.layers:
            self.start()
        return dict(self._core.layers)

    def session(
        self,
        *,
        limits: Limits | None = None,
        tools: Mapping[str, ToolLike] | None = None,
        modules: Mapping[str, Mapping[str, str]] | None = None,
        snapshot: bytes | None = None,
        snapshot_context: str = "",
    ) -> Session:
        """Open a session.

        Args:
            tools: `{name: callable}`, sync or async, each with one argument, the input; the
                guest calls `await tools.<name>(input)`. A `Tool` says more about one.
            modules: sources the guest may import, in addition to the pool's.
            limits: narrower than the pool's; default values mean "as the pool".
            snapshot: state to begin with, from `Session.snapshot()`.
            snapshot_context: what that snapshot was signed for.

        Raises:
            PoolExhausted: `max_sessions` stayed in use for `checkout_timeout` seconds.
            SpawnError, IsolationUnavailable: no worker could be had.
            SnapshotRejected: the snapshot is damaged, foreign, or does not fit. Nothing changed.
            UsageError: a limit is wider than the pool's; a tool's or module's name is no good.
        """
        self._core.check_open()
        self._core.take_slot()
        try:
            core = self._core.new_core(limits, tools, modules)
        except BaseException:
            self._core.slots.leave()
            raise
        self._core.adopt(core)
        try:
            if snapshot is None:
                drive(core, core.open)
            else:
                limits_in_force = core.options.limits
                body = self._core.opened_snapshot(snapshot, snapshot_context, limits_in_force)
                drive(core, lambda: core.restore([body]))
        except BaseException:
            core.close()
            self._core.release(core)
            raise
        self._core.report_isolation(core.layers)
        return Session(self, core)

    def close(self) -> None:
        """End all sessions and workers. Idempotent; never waits for a guest."""
        self._core.close()

    def __enter__(self) -> Pool:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()
