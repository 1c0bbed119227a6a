"""A run whose event loop was closed in mid-eval leaves a conversation that goes on."""

from __future__ import annotations

import asyncio
import gc
import threading
from collections.abc import Callable
from concurrent.futures import Future
from typing import Any

import pytest

pytest.importorskip("langchain")
pytest.importorskip("langgraph")

from langchain_core.tools import tool
from langgraph.checkpoint.memory import InMemorySaver

# LangGraph's own coroutines complain when they are collected unfinished.
pytestmark = pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
_CONFIG = {"configurable": {"thread_id": "t"}}


def leave(run: Callable[[], Any], reached: asyncio.Event) -> asyncio.Task[Any]:
    """Close an event loop in the middle of a run, which stays referenced."""

    async def until_reached() -> asyncio.Task[Any]:
        task: asyncio.Task[Any] = asyncio.ensure_future(run())
        task._log_destroy_pending = False  # type: ignore[attr-defined]
        await reached.wait()
        for other in asyncio.all_tasks() - {task}:
            other._log_destroy_pending = False  # type: ignore[attr-defined]
        return task

    loop = asyncio.new_event_loop()
    task = loop.run_until_complete(until_reached())
    loop.close()
    return task


def in_time(run: Callable[[], Any]) -> Any:
    """What it gives; TimeoutError where it never ends."""
    done: Future[Any] = Future()
    threading.Thread(target=lambda: done.set_result(run()), daemon=True).start()
    return done.result(30)


@pytest.mark.parametrize("how", ["invoke", "ainvoke"])
def test_the_next_run_of_a_thread_goes_on_with_the_state_before_the_eval(
    scripted: Any, ask: Any, how: str
) -> None:
    reached = asyncio.Event()

    @tool
    async def hang() -> None:
        """Never returns."""
        reached.set()
        await asyncio.Event().wait()

    script = [
        *scripted.turn("var n = 1; var next = (() => { let k = 0; return () => ++k })()"),
        scripted.evals("n = 2; next(); await tools.hang()"),
        *scripted.turn("[n, next()]"),
    ]
    middleware = scripted.middleware(ptc=["hang"], wall_timeout=None)
    agent = scripted.agent(script, middleware, tools=[hang], checkpointer=InMemorySaver())
    agent.invoke(ask(), _CONFIG)
    task = leave(lambda: agent.ainvoke(ask(), _CONFIG), reached)
    # By a new input, as a user would after a run that never ended.
    run = agent.invoke if how == "invoke" else lambda *it: asyncio.run(agent.ainvoke(*it))
    state = in_time(lambda: run(ask(), _CONFIG))
    assert scripted.texts(state)[-1] == "<result>[1, 1]</result>"
    assert not task.done()
    del task
    gc.collect()


def test_the_session_of_a_lost_run_in_a_closed_loop_is_closed_by_anybodys_next_eval(
    scripted: Any, ask: Any
) -> None:
    reached = asyncio.Event()

    @tool
    async def hang() -> None:
        """Never returns."""
        reached.set()
        await asyncio.Event().wait()

    middleware = scripted.middleware(ptc=["hang"], wall_timeout=None)
    script = [scripted.evals("await tools.hang()"), *scripted.turn("1", "2")]
    agent = scripted.agent(script, middleware, tools=[hang])
    task = leave(lambda: agent.ainvoke(ask()), reached)
    pool = middleware._evaluator.sandbox.pool
    assert pool.stats()["sessions"] == 1
    state = in_time(lambda: agent.invoke(ask()))
    assert scripted.texts(state) == ["<result>1</result>", "<result>2</result>"]
    assert pool.stats()["sessions"] == 0
    assert not task.done()
    del task
    gc.collect()
