"""The sync session: one conversation's JavaScript state, in a worker process of its own."""

from __future__ import annotations

from collections.abc import Callable
from types import TracebackType
from typing import TYPE_CHECKING, Any

from .checks import checked_code, checked_global, checked_timeout
from .core import Core
from .drive import drive
from .limits import Limits
from .result import EvalResult
from .steps import Steps, T

if TYPE_CHECKING:
    from .pool import Pool


class Session:
    """One conversation's state. Made by `Pool.session()`; close it, or use it with `with`.

    Thread-safe: operations run one at a time, in the order they were called.
    """

    def __init__(self, pool: Pool, core: Core) -> None:
        self._pool = pool
        self._core = core

    def eval(self, code: str, *, timeout: float | None = None) -> EvalResult:
        """Run one program; whatever the guest does comes back as data.

        Args:
            code: JavaScript or TypeScript source, at most 16 MiB.
            timeout: CPU seconds for this eval, at most `Limits.cpu`; None uses that.

        Returns:
            The result. After a JavaScript error, `Deadlock` or (mostly) `Timeout` the session
            keeps its state; after `OutOfMemory` or `WorkerCrashed` it is as it was before this
            eval (durability "eval"): `EvalResult.state` says which.

        Raises:
            UsageError: `code` is no str or too large, `timeout` is out of range. Nothing ran.
            QueueFull: 64 evals wait on this session already. Nothing ran.
            SessionClosed: the session or its pool was closed.
            SpawnError, IsolationUnavailable: no worker could be had.
        """
        source = checked_code(code)
        cpu_s = checked_timeout(timeout, self._core.options.limits)
        return self._drive(lambda: self._core.eval(source, cpu_s))

    def set(self, name: str, value: Any) -> None:
        """Make a host value a global of the session.

        Integers beyond ±(2**53 - 1) become BigInt, bytes Uint8Array, datetimes ISO strings,
        mappings objects with their keys as text.

        Raises:
            UsageError: `name` is no identifier.
            ValueConversionError, ValueTooLarge: `value` cannot cross. Nothing changed.
        """
        checked = checked_global(name, value, self._core.options.limits)
        self._drive(lambda: self._core.set_global(*checked))

    def fork(self) -> Session:
        """An independent copy of the session, closures included, in about 2 ms.

        It takes a slot of the pool and shares the process bound of its family; the family's
        processes are killed together when its last member is closed.
        """
        self._pool._core.take_slot()
        try:
            options = self._pool._core.copy_options(self._core)
            core = self._drive(lambda: self._core.fork(options))
        except BaseException:
            self._pool._core.slots.leave()
            raise
        self._pool._core.adopt(core)
        return Session(self._pool, core)

    def snapshot(self, *, context: str = "") -> bytes:
        """The session's state as bytes, for `pool.session(snapshot=...)` in any pool.

        Functions and classes come back if they provably close over globals only; what can't be
        written (closures, promises, generators, proxies) comes back as a tombstone that says so
        when it is touched. No code of the guest's runs.

        Args:
            context: what the snapshot belongs to, such as a thread's id; with a
                `snapshot_signing_key` it can be restored for that context only.

        Raises:
            SnapshotRejected: the state is over `Limits.snapshot_bytes`, or takes too long to write.
        """
        pieces = self._drive(self._core.snapshot)
        return self._pool._core.sealed_snapshot(pieces, context)

    def reset(self) -> None:
        """Go on in a fresh worker, with nothing of the old state."""
        self._drive(self._core.reset)

    def interrupt(self) -> None:
        """Stop the eval that runs now, from any thread; the session goes on as before it.

        That eval returns with the error `Interrupted`. Without one, nothing happens.
        """
        self._core.interrupt()

    @property
    def pid(self) -> int:
        """The pid of the worker that serves evals now; it changes with each checkpoint."""
        self._drive(self._core.stand)
        pid = self._core.worker_pid
        assert pid is not None
        return pid

    @property
    def limits(self) -> Limits:
        """The limits in force."""
        return self._core.options.limits

    @property
    def closed(self) -> bool:
        """Whether the session was closed."""
        return self._core.closed

    def close(self) -> None:
        """Kill the worker. Idempotent; never waits for the guest."""
        self._core.close()
        self._pool._core.release(self._core)

    def __enter__(self) -> Session:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def _drive(self, make: Callable[[], Steps[T]]) -> T:
        return drive(self._core, make)
