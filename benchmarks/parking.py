"""What parked conversations cost: real agents, one turn each, then only their workers are left."""

import contextlib
from typing import Any

from qjs_pool import Pool

from . import memory
from .timing import Figure

_STATE = "const log = [1, 2, 3]; const add = (() => { let n = 0; return () => ++n })(); add()"


def _counter(count: int) -> Any:
    from langchain_core.messages import AIMessage

    for number in range(count):
        args = {"code": _STATE}
        yield AIMessage("", tool_calls=[{"name": "eval", "args": args, "id": f"c{number}"}])
        yield AIMessage("done")


def parked_memory(scale: float) -> Figure:
    """Bytes that 500 parked conversations take, by MemAvailable."""
    from langchain.agents import create_agent
    from langgraph.checkpoint.memory import InMemorySaver

    from qjs_pool.middleware import CodeInterpreterMiddleware

    from .checkpoint_size import Scripted

    count = max(20, int(500 * scale))
    with contextlib.ExitStack() as stack:
        pool = stack.enter_context(Pool(max_sessions=count + 2))
        middleware: Any = CodeInterpreterMiddleware(pool=pool, park=3600.0, max_parked=count + 1)
        stack.callback(middleware.close)
        agent: Any = create_agent(
            Scripted(lines=_counter(count + 1)),
            [],
            middleware=[middleware],
            checkpointer=InMemorySaver(),
        )

        def turn(number: int) -> None:
            config = {"configurable": {"thread_id": f"t{number}"}}
            agent.invoke({"messages": [("user", "go")]}, config)

        turn(0)  # imports and first starts
        before = memory.available()
        for number in range(1, count + 1):
            turn(number)
        used = (before - memory.available()) / count * 500
        assert pool.stats()["parked"]["sessions"] == count + 1
    return Figure(used, used, "bytes")
