"""Snapshots of sessions: taken, carried to another pool, restored, secured."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import pytest
from typer.testing import CliRunner

from qjs_pool import (
    AsyncPool,
    Limits,
    Pool,
    Session,
    SessionClosed,
    SnapshotRejected,
    UsageError,
    inspect_snapshot,
)
from qjs_pool.cli.app import app
from qjs_pool.snapshots import unpack

_CASES: Final = Path(__file__).resolve().parents[1] / "cases" / "snapshot.jsonl"
_KEY: Final = b"secret key of the application..."


@pytest.fixture(scope="module")
def pool() -> Iterator[Pool]:
    with Pool(limits=Limits(cpu=5.0, wall=30.0), min_idle=2) as pool:
        yield pool


def _cases() -> list[Any]:
    lines = _CASES.read_text(encoding="utf-8").splitlines()
    return [pytest.param(case, id=case["id"]) for case in map(json.loads, lines)]


@pytest.mark.parametrize("case", _cases())
def test_snapshot_case_gives_the_text_or_error_it_says(pool: Pool, case: dict[str, Any]) -> None:
    with pool.session() as session:
        for code in case["before"]:
            assert session.eval(code).error is None
        blob = session.snapshot()
    with pool.session(snapshot=blob) as session:
        result = [session.eval(code) for code in case["after"]][-1]
        blob = session.snapshot()
    if "again" in case:
        with pool.session(snapshot=blob) as session:
            result = session.eval(case["again"])
    if "error" in case:
        assert result.error is not None
        assert result.error.name == case["error"]
        assert case["message"] in result.error.message
    else:
        assert result.error is None
        assert result.text == case["text"]


def test_snapshot_is_restored_in_another_pool_and_process() -> None:
    with Pool() as first, first.session() as session:
        session.eval("const list = [1]; function f() { return list.length }").unwrap()
        blob = session.snapshot()
    with Pool() as second, second.session(snapshot=blob) as session:
        assert session.eval("list.push(2); f()").text == "2"


def test_taking_a_snapshot_changes_nothing(pool: Pool, session: Session) -> None:
    session.eval("const o = { n: 1 }; const c = (() => { let n = 0; return () => ++n })(); c()")
    first, second = session.snapshot(), session.snapshot()
    assert first == second
    assert session.eval("[c(), o.n, Object.keys(globalThis)]").text == '[2, 1, ["o", "c"]]'


def test_small_state_is_small_and_an_empty_one_too(pool: Pool, session: Session) -> None:
    assert len(session.snapshot()) < 100
    session.eval("const rows = [{ id: 1, tags: ['a'] }], m = new Map([['k', rows[0]]]); let n = 1")
    session.eval(
        "function f() { return rows } class K { constructor() { this.n = n } } const k = new K()"
    )
    assert len(session.snapshot()) < 1000


def test_size_follows_live_data(pool: Pool, session: Session) -> None:
    session.eval(
        "let big = []; for (let i = 0; i < 50000; i++) big.push({ i, s: 'k' + i }); 1"
    ).unwrap()
    large = len(session.snapshot())
    session.eval("big = null").unwrap()
    assert len(session.snapshot()) < 200 < 50_000 < large


def test_unchanged_groups_keep_their_chunks(pool: Pool, session: Session) -> None:
    session.eval("const a = [1, 2, 3], b = { c: { d: [4] } }, e = b.c; function f() {}").unwrap()
    before = unpack(session.snapshot())
    session.eval("1").unwrap()
    assert unpack(session.snapshot()) == before
    session.eval("a.push(4)").unwrap()
    after = unpack(session.snapshot())
    assert len(set(after.chunks) - set(before.chunks)) == 1
    assert len(set(before.chunks) - set(after.chunks)) == 1
    session.eval("e.d.push(5); const late = 1").unwrap()
    last = unpack(session.snapshot())
    assert len(set(last.chunks) - set(after.chunks)) == 2


def test_inspection_lists_what_a_session_had(pool: Pool, session: Session) -> None:
    session.eval(
        "const n = 1, rows = [{}], first = rows[0]; function f() {} class K {} const k = new K();"
        " const c = (() => { let n; return () => n })(), m = new Map()"
    ).unwrap()
    found = {item.name: item for item in inspect_snapshot(session.snapshot()).globals}
    assert {name: item.kind for name, item in found.items()} == {
        "n": "number",
        "rows": "array",
        "first": "object",
        "f": "function",
        "K": "class",
        "k": "K",
        "c": "not restorable (function)",
        "m": "Map",
    }
    assert found["rows"].group == found["first"].group != found["m"].group
    assert all(item.size > 0 for item in found.values())


def test_restored_state_is_secured_before_the_session_is_there(pool: Pool) -> None:
    with pool.session() as session:
        session.eval("const keep = { n: 42 }").unwrap()
        blob = session.snapshot()
    with pool.session(snapshot=blob) as session:
        os.kill(session.pid, signal.SIGKILL)
        assert session.eval("keep.n").text == "42"
        crashed = session.eval(
            "keep.n = 1; for (;;) globalThis.x = new ArrayBuffer(1 << 26), keep[keep.n++] = x"
        )
        assert crashed.state == "rolled_back"
        assert session.eval("keep").text == "{n: 42}"


def test_killed_right_after_a_restore_many_times_it_is_never_half_a_state(pool: Pool) -> None:
    with pool.session() as session:
        session.eval("const a = 1, b = { a }").unwrap()
        blob = session.snapshot()
    for _ in range(5):
        with pool.session(snapshot=blob) as session:
            assert session._core.worker_pid is not None
            os.kill(session._core.worker_pid, signal.SIGKILL)
            result = session.eval("[a, b.a]")
            assert (result.text, result.notes) == ("[1, 1]", ())


def test_snapshot_of_a_session_whose_worker_died_is_that_of_the_last_commit(pool: Pool) -> None:
    with pool.session() as session:
        session.eval("const n = 7").unwrap()
        os.kill(session.pid, signal.SIGKILL)
        blob = session.snapshot()
    with pool.session(snapshot=blob) as session:
        assert session.eval("n").text == "7"


def test_snapshot_taken_while_an_eval_runs_waits_for_its_turn(pool: Pool, start: Any) -> None:
    entered, gate = threading.Event(), threading.Event()

    def hold(_: Any) -> None:
        entered.set()
        gate.wait(20)

    with pool.session(tools={"hold": hold}) as session:
        running = start(lambda: session.eval("let n = 0; await tools.hold(); n = 1"))
        assert entered.wait(20)
        taking = start(session.snapshot)
        gate.set()
        blob = taking.result(20)
        running.result(20).unwrap()
    with pool.session(snapshot=blob) as session:
        assert session.eval("n").text == "1"


def test_durability_none_restores_as_well() -> None:
    with Pool(durability="none") as pool:
        with pool.session() as session:
            session.eval("const n = 7").unwrap()
            blob = session.snapshot()
        with pool.session(snapshot=blob) as session:
            assert session.eval("n").text == "7"
            assert session.eval("n").text == "7"


def test_state_over_the_limit_is_refused_and_the_session_goes_on() -> None:
    with Pool(limits=Limits(snapshot_bytes=10_000)) as pool, pool.session() as session:
        session.eval("const s = 'x'.repeat(9000)").unwrap()
        assert session.snapshot()
        session.eval("const t = 'x'.repeat(2000)").unwrap()
        with pytest.raises(SnapshotRejected, match=r"10000 bytes \(Limits\.snapshot_bytes"):
            session.snapshot()
        assert session.eval("t.length").text == "2000"


def test_many_references_to_one_long_text_are_refused_before_they_are_written_out() -> None:
    with Pool(limits=Limits(cpu=10.0)) as pool, pool.session() as session:
        session.eval("const s = 'x'.repeat(1 << 20), all = Array(5000).fill(s); 1").unwrap()
        with pytest.raises(SnapshotRejected, match=r"Limits\.snapshot_bytes"):
            session.snapshot()
        assert session.eval("all.length").text == "5000"


def test_snapshot_over_the_limit_of_the_pool_that_restores_is_refused(pool: Pool) -> None:
    with pool.session() as session:
        session.eval("const s = 'x'.repeat(50000)").unwrap()
        blob = session.snapshot()
    small = Limits(snapshot_bytes=10_000)
    with Pool(limits=small) as other:
        with pytest.raises(SnapshotRejected, match="unpacks to more than 10000 bytes"):
            other.session(snapshot=blob)
        with other.session() as session:
            assert session.eval("1").text == "1"


def test_state_of_fifty_megabytes_comes_back() -> None:
    limits = Limits(memory=256 << 20, cpu=30.0, snapshot_bytes=128 << 20)
    with Pool(limits=limits) as pool:
        with pool.session() as session:
            session.eval(
                "const bytes = new Uint8Array(20 << 20).fill(7);"
                " const text = 'abcdefghij'.repeat(2 << 20), rows = [];"
                " for (let i = 0; i < 50000; i++) rows.push({ i, s: 'row ' + i }); 1"
            ).unwrap()
            blob = session.snapshot()
        with pool.session(snapshot=blob) as session:
            question = "[bytes.length, bytes[9], text.length, rows.length, rows[49999].s]"
            assert session.eval(question).text == '[20971520, 7, 20971520, 50000, "row 49999"]'


def test_pool_with_a_key_signs_and_takes_only_what_was_signed() -> None:
    with Pool(snapshot_signing_key=_KEY) as pool:
        with pool.session() as session:
            session.eval("const n = 1").unwrap()
            blob = session.snapshot(context="thread 1")
        with pool.session(snapshot=blob, snapshot_context="thread 1") as session:
            assert session.eval("n").text == "1"
        for context in ("thread 2", ""):
            with pytest.raises(SnapshotRejected, match="signature does not fit"):
                pool.session(snapshot=blob, snapshot_context=context)
    with Pool() as unsigned, unsigned.session() as session:
        plain = session.snapshot()
    with Pool(snapshot_signing_key=[b"another key of at least 16 bytes", _KEY]) as pool:
        with pool.session(snapshot=blob, snapshot_context="thread 1") as session:
            assert session.eval("n").text == "1"
        with pytest.raises(SnapshotRejected, match="not signed"):
            pool.session(snapshot=plain)
        assert pool.stats()["sessions"] == 0


def test_modules_come_back_by_their_import() -> None:
    csv = {
        "index.ts": "export function parse(t: string) { return t.split(',') }\n"
        "export class Row { constructor(public n: number) {} twice() { return this.n * 2 } }"
    }
    with Pool(modules={"@/skills/csv": csv}) as pool:
        with pool.session() as session:
            session.eval(
                "import { parse, Row } from '@/skills/csv'; import * as all from '@/skills/csv';"
                " class Sub extends Row { thrice() { return this.n * 3 } }"
                " const row = new Row(4), sub = new Sub(5), kept = { parse }"
            ).unwrap()
            blob = session.snapshot()
        with pool.session(snapshot=blob) as session:
            question = (
                "[parse('a,b').length, row.twice(), row instanceof Row, sub.thrice(), sub.twice(),"
                " kept.parse === all.parse, all.Row === Row]"
            )
            assert session.eval(question).text == "[2, 8, true, 15, 10, true, true]"
    with Pool() as bare, bare.session(snapshot=blob) as session:
        error = session.eval("sub.thrice()").error
        assert error is not None
        assert "'Row of @/skills/csv/index.ts' was not restored" in error.message
        assert session.eval("1").text == "1"


def test_random_numbers_of_two_restored_sessions_differ(pool: Pool) -> None:
    with pool.session() as session:
        session.eval("Math.random()").unwrap()
        blob = session.snapshot()
    draws = set()
    for _ in range(2):
        with pool.session(snapshot=blob) as session:
            draws.add(session.eval("Math.random()").text)
    assert len(draws) == 2


def test_timers_and_calls_in_flight_are_dropped_and_the_rest_is_kept(pool: Pool) -> None:
    with pool.session(tools={"slow": lambda _: time.sleep(0.2)}) as session:
        session.eval(
            "globalThis.p = tools.slow({}); globalThis.t = setTimeout(() => {}, 1e6); const n = 1"
        ).unwrap()
        blob = session.snapshot()
    with pool.session(snapshot=blob) as session:
        error = session.eval("await p").error
        assert error is not None
        assert "Value for 'p' was not restored" in error.message
        assert session.eval("n").text == "1"


def test_fork_and_reset_of_a_restored_session(pool: Pool) -> None:
    with pool.session() as session:
        session.eval("let n = 1").unwrap()
        blob = session.snapshot()
    with pool.session(snapshot=blob) as session:
        with session.fork() as copy:
            copy.eval("n = 2").unwrap()
            assert (copy.eval("n").text, session.eval("n").text) == ("2", "1")
        session.reset()
        assert session.eval("typeof n").text == "undefined"


def test_misuse_is_named(pool: Pool, session: Session) -> None:
    with pytest.raises(UsageError, match="snapshot must be bytes, not str"):
        pool.session(snapshot="text")  # type: ignore[arg-type]
    with pytest.raises(UsageError, match="snapshot_signing_key"):
        Pool(snapshot_signing_key="text")  # type: ignore[arg-type]
    session.close()
    with pytest.raises(SessionClosed):
        session.snapshot()


def test_asyncio_takes_and_restores_without_holding_up_its_loop() -> None:
    async def run() -> tuple[str, float]:
        limits = Limits(memory=256 << 20, cpu=30.0)
        async with AsyncPool(limits=limits, snapshot_signing_key=_KEY) as pool:
            longest = 0.0
            stop = False

            async def tick() -> None:
                nonlocal longest
                while not stop:
                    before = time.monotonic()
                    await asyncio.sleep(0.005)
                    longest = max(longest, time.monotonic() - before - 0.005)

            async with pool.session() as session:
                await session.eval(
                    "const rows = [];"
                    " for (let i = 0; i < 50000; i++) rows.push({ i, s: 'row ' + i });"
                    " const bytes = new Uint8Array(10 << 20); 1"
                )
                ticking = asyncio.create_task(tick())
                blob = await session.snapshot(context="t")
                async with pool.session(snapshot=blob, snapshot_context="t") as other:
                    stop = True
                    await ticking
                    text = (await other.eval("rows.length + bytes.length")).text
            with pytest.raises(SnapshotRejected):
                await pool.session(snapshot=blob, snapshot_context="u")
            return text, longest

    text, longest = asyncio.run(run())
    assert text == str(50000 + (10 << 20))
    assert longest < 0.5  # generous: a machine that runs other things as well


def test_cancelled_snapshot_leaves_the_session_as_it_was() -> None:
    async def run() -> str:
        limits = Limits(memory=128 << 20, cpu=20.0)
        async with AsyncPool(limits=limits) as pool, pool.session() as session:
            await session.eval(
                "const rows = []; for (let i = 0; i < 100000; i++) rows.push({ i }); 1"
            )
            task = asyncio.create_task(session.snapshot())
            await asyncio.sleep(0.01)
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
            return (await session.eval("rows.length")).text

    assert asyncio.run(run()) == "100000"


def test_command_line_lists_a_snapshot_and_refuses_what_is_none(
    session: Session, tmp_path: Path
) -> None:
    session.eval("const rows = [1], f = () => 1; globalThis['\\x1b[31mred'] = 1").unwrap()
    file = tmp_path / "state.bin"
    file.write_bytes(session.snapshot())
    shown = CliRunner().invoke(app, ["snapshot", str(file)])
    assert shown.exit_code == 0
    assert "rows" in shown.output
    assert "function" in shown.output
    assert "\x1b" not in shown.output
    listed = CliRunner().invoke(app, ["snapshot", str(file), "--json"])
    names = [item["name"] for item in json.loads(listed.output)["globals"]]
    assert names == ["rows", "f", "\x1b[31mred"]
    file.write_bytes(b"something else")
    assert CliRunner().invoke(app, ["snapshot", str(file)]).exit_code == 1
