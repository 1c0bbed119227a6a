"""Large states beside a small memory limit: what a snapshot is taken of can be restored."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Iterator
from typing import Final

import pytest

from qjs_pool import AsyncPool, Limits, Pool, Session, SnapshotRejected, SpawnError
from qjs_pool.core import Core
from qjs_pool.steps import Steps

_LIMITS: Final = Limits(memory=4 << 20, cpu=20.0)
# By the size of the limit: what fills it to that part, and is put down or refused accordingly.
_SHAPES: Final = {
    "bytes": "new Uint8Array(size)",
    "texts": "Array.from({ length: size / 1000 }, (_, i) => 'x'.repeat(990) + i)",
    "records": "Array.from({ length: size / 150 }, (_, id) => ({ id, name: 'name' + id }))",
    "entries of a Map": "new Map(Array.from({ length: size / 250 }, (_, a) => [a, { a }]))",
    "a chain": "Array.from({ length: size / 120 }).reduce((next) => ({ next }), null)",
    # What takes more when it is restored than it took before, or while it is read.
    "closures": "Array.from({ length: size / 300 }, (_, i) => () => i)",
    "functions": "Array.from({ length: size / 1000 }, (_, i) => new Function('return ' + i))",
    "accessors": "Array.from({ length: size / 500 }, () => ({ get a() { return 1 } }))",
    "nothings": "Array.from({ length: size / 20 }, () => undefined)",
}


@pytest.fixture(scope="module")
def pool() -> Iterator[Pool]:
    with Pool(limits=_LIMITS, min_idle=2) as pool:
        yield pool


@pytest.mark.parametrize("shape", _SHAPES)
def test_a_state_of_any_size_is_refused_when_it_is_written_or_comes_back(
    pool: Pool, shape: str
) -> None:
    restored = 0
    for sixteenths in (1, 3, 6, 9, 13):
        size = (_LIMITS.memory * sixteenths) // 16
        with pool.session() as session:
            made = session.eval(f"const n = 5, size = {size}, kept = {_SHAPES[shape]}; 0")
            if made.error is not None:
                assert made.error.name == "OutOfMemory"
                continue
            blob, refusal = _taken(session)
            assert session.eval("n").value == 5
        if blob is None:
            # Of what is plain data its size alone may be too much, before any memory is.
            assert "memory limit of 4 MiB; keep less" in refusal or "snapshot_bytes" in refusal
            continue
        with pool.session(snapshot=blob) as heir:
            assert heir.eval("n").value == 5
            assert heir.eval("kept !== undefined").value is True
            restored += 1
    assert restored


def _taken(session: Session) -> tuple[bytes | None, str]:
    try:
        return session.snapshot(), ""
    except SnapshotRejected as error:
        return None, str(error)


def test_most_of_a_memory_limit_may_be_data_that_is_kept(pool: Pool) -> None:
    with pool.session() as session:
        session.eval("const kept = new Uint8Array(2 << 20).fill(7)").unwrap()
        blob = session.snapshot()
    with pool.session(snapshot=blob) as heir:
        assert heir.eval("kept.length * kept[kept.length - 1]").value == 7 * (2 << 20)


def test_a_state_that_could_not_be_restored_is_refused_in_an_event_loop_as_well() -> None:
    async def main() -> None:
        async with AsyncPool(limits=_LIMITS) as pool, pool.session() as session:
            await session.eval(f"const n = 5, size = {3 << 20}, kept = {_SHAPES['closures']}")
            with pytest.raises(SnapshotRejected, match=r"could not be restored.* 4 MiB; keep less"):
                await session.snapshot()
            assert (await session.eval("n")).value == 5

    asyncio.run(main())


def test_giving_up_a_snapshot_while_it_is_tried_out_leaves_nothing_behind(pool: Pool) -> None:
    with pool.session() as session:
        core = session._core
        session.eval(f"const n = 5, size = {1 << 20}, kept = {_SHAPES['texts']}").unwrap()
        whole = session.snapshot()
        waits = _waits(core.snapshot(), core)
        for given_up in range(1, waits):
            steps = core.snapshot()
            with contextlib.closing(steps):
                next(steps)
                for _ in range(given_up - 1):
                    steps.send(core.poller.poll(20.0))
        assert session.eval("n").value == 5
        assert session.snapshot() == whole
    assert pool.stats()["sessions"] == 0


def _waits(steps: Steps[list[bytes]], core: Core) -> int:
    """How often an operation waits."""
    count = 0
    try:
        next(steps)
        while True:
            count += 1
            steps.send(core.poller.poll(20.0))
    except StopIteration:
        return count


def test_a_snapshot_is_taken_where_no_worker_is_to_be_had_to_try_it_out(pool: Pool) -> None:
    with pool.session() as session:
        session.eval(f"const n = 5, size = {1 << 20}, kept = {_SHAPES['texts']}").unwrap()
        core = session._core
        obtain = core._obtain

        def none(idle: bool) -> None:
            raise SpawnError("no descriptors left")

        core._obtain = none  # type: ignore[assignment]
        blob = session.snapshot()
        core._obtain = obtain
    with pool.session(snapshot=blob) as heir:
        assert heir.eval("n").value == 5
