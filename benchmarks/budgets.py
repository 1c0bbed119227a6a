"""Our side: one function per budget line of the design."""

import asyncio
import dataclasses
import os
import signal
import time
from collections.abc import Callable

from qjs_pool import AsyncPool, Limits, Pool

from . import memory
from .parking import parked_memory
from .stall import agent_stall, session_stall
from .timing import Figure, figure, timed

# A megabyte of either, as a heap has it.
SMALL_ROWS = """var rows = Array.from({length: 9000},
  (_, i) => ({id: i, name: "row " + i, ok: i % 2 == 0, tags: ["a", "b"]}));"""
TEXTS = "var texts = Array.from({length: 10000}, (_, i) => 'x'.repeat(90) + i);"
ROWS = "Array.from({length: 10000}, (_, i) => ({i, s: 'v' + i}))"


@dataclasses.dataclass(frozen=True)
class Measurement:
    """One line: `budget` in the figure's unit, `peer_key` as the peers know it."""

    name: str
    budget: float
    measure: Callable[[float], Figure]
    peer_key: str = ""


def warm_none(scale: float) -> Figure:
    with Pool(durability="none") as pool, pool.session() as session:
        return timed(lambda: session.eval("1+1"), int(5000 * scale), warmup=50)


def warm_eval(scale: float) -> Figure:
    with Pool() as pool, pool.session() as session:
        return timed(lambda: session.eval("1+1"), int(1000 * scale), warmup=20)


def spaced_overhead(scale: float) -> Figure:
    with Pool(durability="none") as pool, pool.session() as session:
        base = timed(lambda: session.eval("1+1"), int(500 * scale), gap_s=0.003)
    with Pool() as pool, pool.session() as session:
        durable = timed(lambda: session.eval("1+1"), int(500 * scale), gap_s=0.003)
    return Figure(max(durable.median - base.median, 0.0), max(durable.p90 - base.p90, 0.0))


def warm_async(scale: float) -> Figure:
    times: list[float] = []

    async def run() -> None:
        async with AsyncPool(durability="none") as pool, pool.session() as session:
            for _ in range(50):
                await session.eval("1+1")
            for _ in range(max(5, int(3000 * scale))):
                started = time.perf_counter()
                await session.eval("1+1")
                times.append(time.perf_counter() - started)

    asyncio.run(run())
    return figure(times)


def _first_result(scale: float, min_idle: int) -> Figure:
    times = []
    with Pool(min_idle=min_idle).start() as pool:
        for _ in range(max(5, int(60 * scale))):
            time.sleep(0.05)  # the idle worker is made off the path
            started = time.perf_counter()
            session = pool.session()
            session.eval("1+1")
            times.append(time.perf_counter() - started)
            session.close()
    return figure(times)


def pool_start(scale: float) -> Figure:
    times = []
    for _ in range(max(5, int(10 * scale))):
        started = time.perf_counter()
        with Pool().start():
            times.append(time.perf_counter() - started)
    return figure(times)


def idle_session_memory(scale: float) -> Figure:
    count = max(20, int(100 * scale))
    with Pool(max_sessions=count + 1) as pool:
        pool.session().eval("1+1")
        before = memory.available()
        sessions = [pool.session() for _ in range(count)]
        for session in sessions:
            session.eval("1+1")
            _ = session.pid  # its keeper stands
        used = (before - memory.available()) / count
    return Figure(used, used, "bytes")


def tool_call(scale: float) -> Figure:
    program = "for (let i = 0; i < 100; i++) await tools.noop({})"
    with Pool(durability="none") as pool, pool.session(tools={"noop": lambda _: None}) as session:
        return timed(lambda: session.eval(program), int(50 * scale), per_run=100)


def to_host(scale: float) -> Figure:
    limits = Limits(cpu=30.0)
    with Pool(limits=limits, durability="none") as pool, pool.session() as session:
        return timed(lambda: session.eval(ROWS).value, int(30 * scale))


def from_host(scale: float) -> Figure:
    rows = [{"i": i, "s": f"v{i}"} for i in range(10_000)]
    with Pool(durability="none") as pool, pool.session() as session:
        return timed(lambda: session.set("rows", rows), int(30 * scale))


def recovery(scale: float) -> Figure:
    times = []
    with Pool() as pool, pool.session() as session:
        session.eval("var n = 1")
        for _ in range(max(5, int(100 * scale))):
            pid = session.pid
            started = time.perf_counter()
            os.kill(pid, signal.SIGKILL)
            result = session.eval("n")
            times.append(time.perf_counter() - started)
            assert result.text == "1", result
    return figure(times)


def fork(scale: float) -> Figure:
    times = []
    with Pool() as pool, pool.session() as session:
        session.eval("var n = 1")
        for _ in range(max(5, int(50 * scale))):
            _ = session.pid
            started = time.perf_counter()
            copy = session.fork()
            copy.eval("n")
            times.append(time.perf_counter() - started)
            copy.close()
    return figure(times)


def snapshot_and_restore(scale: float, program: str) -> Figure:
    times = []
    with Pool(min_idle=1) as pool, pool.session() as session:
        session.eval(program).unwrap()
        for _ in range(max(5, int(40 * scale))):
            time.sleep(0.05)  # the idle worker is made off the path
            started = time.perf_counter()
            restored = pool.session(snapshot=session.snapshot())
            times.append(time.perf_counter() - started)
            restored.close()
    return figure(times)


MEASUREMENTS = [
    Measurement("warm 1+1, sync, durability none", 60e-6, warm_none, "warm"),
    Measurement("warm 1+1, sync, durability eval, back to back", 1e-3, warm_eval, "warm"),
    Measurement("durability eval over none, spaced by 3 ms", 100e-6, spaced_overhead),
    Measurement("warm 1+1, asyncio", 120e-6, warm_async, "warm_async"),
    Measurement(
        "new session to first result, pre-forked",
        0.5e-3,
        lambda scale: _first_result(scale, 1),
        "session",
    ),
    Measurement(
        "new session to first result, forked",
        6e-3,
        lambda scale: _first_result(scale, 0),
        "session",
    ),
    Measurement("pool start", 0.120, pool_start, "start"),
    Measurement("memory of an idle session", 2 << 20, idle_session_memory),
    Measurement("memory of 500 parked conversations", 1.5 * (1 << 30), parked_memory),
    Measurement("one tool call from JS, sync no-op", 100e-6, tool_call),
    Measurement("10,000 small objects to the host", 0.050, to_host, "to_host"),
    Measurement("10,000 small objects from the host", 0.050, from_host),
    Measurement(
        "snapshot + restore of 1 KB",
        0.001,
        lambda scale: snapshot_and_restore(scale, "var text = 'x'.repeat(1000)"),
    ),
    Measurement(
        "snapshot + restore of 1 MB, 10,000 texts",
        0.040,
        lambda scale: snapshot_and_restore(scale, TEXTS),
    ),
    Measurement(
        "snapshot + restore of 1 MB, 9,000 small objects with lists",
        0.040,
        lambda scale: snapshot_and_restore(scale, SMALL_ROWS),
    ),
    Measurement("stall of an event loop: 50 MB, snapshot + restore", 0.020, session_stall),
    Measurement("stall of an event loop: 50 MB in an agent's state", 0.020, agent_stall),
    Measurement("recovery after kill -9", 0.010, recovery),
    Measurement("fork of a session, to its first result", 0.006, fork),
]
