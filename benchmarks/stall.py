"""How long an event loop stands still while 50 MB of state are saved, restored and dropped in it.

A task notes when it last ran, every millisecond; a figure is the largest gap of a run. A busy
machine adds to it: the median of some runs says more than the worst of them.
"""

import asyncio
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from typing import Any

from qjs_pool import AsyncPool, Limits

from .timing import Figure, figure

_BYTES = 50_000_000
_MEMORY = 512 << 20
# Random bits, which no compression makes less of.
_MAKE = f"""var data = new Float64Array({_BYTES // 8});
for (let i = 0; i < data.length; i++) data[i] = Math.random(); data.length"""


class _Ticker:
    """Runs every millisecond; `largest_s` is the largest gap so far."""

    def __init__(self) -> None:
        self.largest_s = 0.0

    async def run(self) -> None:
        while True:
            started = time.perf_counter()
            await asyncio.sleep(0.001)
            self.largest_s = max(self.largest_s, time.perf_counter() - started)


@asynccontextmanager
async def _ticking() -> AsyncIterator[_Ticker]:
    ticker = _Ticker()
    task = asyncio.create_task(ticker.run())
    try:
        yield ticker
    finally:
        task.cancel()


def session_stall(scale: float) -> Figure:
    """`AsyncSession.snapshot()` and `pool.session(snapshot=...)`."""

    async def gaps() -> list[float]:
        found = []
        limits = Limits(memory=_MEMORY, cpu=60.0)
        async with AsyncPool(limits=limits) as pool, pool.session() as session:
            (await session.eval(_MAKE)).unwrap()
            for _ in range(max(3, int(10 * scale))):
                async with _ticking() as ticker:
                    blob = await session.snapshot()
                    async with pool.session(snapshot=blob):
                        pass
                found.append(ticker.largest_s)
        return found

    return figure(asyncio.run(gaps()))


def agent_stall(scale: float) -> Figure:
    """Turns of an agent with a MemorySaver: one makes the state, others restore and drop it."""
    from langchain.agents import create_agent
    from langchain_core.messages import AIMessage
    from langgraph.checkpoint.memory import InMemorySaver

    from qjs_pool.middleware import CodeInterpreterMiddleware

    from .checkpoint_size import Scripted

    def lines(*programs: str) -> Iterator[AIMessage]:
        for number, code in enumerate(programs):
            call = {"name": "eval", "args": {"code": code}, "id": f"c{number}{code[:9]}"}
            yield AIMessage("", tool_calls=[call])
            yield AIMessage("done")

    async def turns(saver: Any, *programs: str) -> None:
        middleware: Any = CodeInterpreterMiddleware(
            memory_limit=_MEMORY, max_snapshot_bytes=_MEMORY, timeout=60.0
        )
        agent: Any = create_agent(
            Scripted(lines=lines(*programs)), [], middleware=[middleware], checkpointer=saver
        )
        for _ in programs:
            config = {"configurable": {"thread_id": "t"}}
            await agent.ainvoke({"messages": [("user", "go")]}, config)
        await asyncio.to_thread(middleware.close)

    async def gap() -> float:
        saver = InMemorySaver()
        async with _ticking() as ticker:
            await turns(saver, _MAKE)
            await turns(saver, "data.length", "data = null", "data")
        return ticker.largest_s

    async def gaps() -> list[float]:
        await turns(InMemorySaver(), "1")  # imports
        return [await gap() for _ in range(max(3, int(6 * scale)))]

    return figure(asyncio.run(gaps()))
