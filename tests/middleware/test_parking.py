"""Workers that stay between turns: who may go on with one, and which of them go first."""

from __future__ import annotations

import os
import select
import signal
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import psutil
import pytest

pytest.importorskip("langchain")
pytest.importorskip("langgraph")

from langchain_core.tools import tool
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.types import Command, interrupt

from qjs_pool import Pool
from qjs_pool.middleware.memory import MemoryGauge

Ask = Callable[..., dict[str, Any]]
COUNTER = "var next = (() => { let n = 0; return () => ++n })(); next()"


def thread(thread_id: str = "t") -> dict[str, Any]:
    return {"configurable": {"thread_id": thread_id}}


def figures(middleware: Any) -> dict[str, int]:
    parked: dict[str, int] = middleware._evaluator.sandbox.pool.stats()["parked"]
    return parked


class Conversation:
    """One agent and its middleware; each turn runs one program."""

    def __init__(self, scripted: Any, ask: Ask, *programs: str, **options: Any) -> None:
        self.scripted, self.ask = scripted, ask
        tools = options.pop("tools", ())
        options.setdefault("pool", None)  # whose figures are of this conversation alone
        self.middleware = scripted.middleware(**options)
        script = [line for program in programs for line in scripted.turn(program)]
        self.agent = scripted.agent(
            script, self.middleware, tools=tools, checkpointer=InMemorySaver()
        )

    def __call__(self, config: Any = None) -> str:
        state = self.agent.invoke(self.ask(), config or thread())
        return str(self.scripted.texts(state)[-1])

    @property
    def checkpoint(self) -> Any:
        return self.agent.get_state(thread()).config

    @property
    def registry(self) -> Any:
        return self.middleware._evaluator.registry

    @property
    def here(self) -> Any:
        (only,) = self.registry._threads.values()
        return only


def test_three_branches_from_one_checkpoint_all_have_its_closures(scripted: Any, ask: Ask) -> None:
    turn = Conversation(scripted, ask, COUNTER, "next()", "next() * 10", "next() + next()")
    assert turn() == "<result>1</result>"
    start = turn.checkpoint
    assert turn(start) == "<result>2</result>"
    assert turn(start) == "<result>20</result>"
    assert turn(start) == "<result>5</result>"
    assert figures(turn.middleware)["taken_over"] == 2
    assert figures(turn.middleware)["restored"] == 0


async def _branches(turn: Conversation) -> list[str]:
    states = [await turn.agent.ainvoke(turn.ask(), thread())]
    start = (await turn.agent.aget_state(thread())).config
    states += [await turn.agent.ainvoke(turn.ask(), start) for _ in range(2)]
    return [turn.scripted.texts(state)[-1] for state in states]


def test_branches_have_the_closures_in_an_event_loop_as_well(scripted: Any, ask: Ask) -> None:
    import asyncio

    turn = Conversation(scripted, ask, COUNTER, "next()", "next() * 10")
    texts = asyncio.run(_branches(turn))
    assert texts == [f"<result>{n}</result>" for n in (1, 2, 20)]


def test_a_long_conversation_keeps_one_copy_however_many_turns_it_has(
    scripted: Any, ask: Ask
) -> None:
    turn = Conversation(scripted, ask, COUNTER, *["next()"] * 8)
    assert [turn() for _ in range(9)] == [f"<result>{n}</result>" for n in range(1, 10)]
    assert figures(turn.middleware) == {
        "sessions": 2, "held": 0, "taken_over": 0, "copied": 8, "restored": 0, "expired": 0,
        "evicted": 0, "died": 0,
    }  # fmt: skip


def test_copies_for_branches_go_before_any_conversation(scripted: Any, ask: Ask) -> None:
    turn = Conversation(scripted, ask, COUNTER, "next()", COUNTER, "next()", "next()", max_parked=2)
    turn()
    turn()
    turn(thread("other"))
    assert figures(turn.middleware)["evicted"] == 1
    # Neither conversation has lost its closure.
    assert turn(thread("other")) == "<result>2</result>"
    assert turn() == "<result>3</result>"


def test_a_pool_that_is_half_full_is_not_filled_with_copies(scripted: Any, ask: Ask) -> None:
    with Pool(max_sessions=2) as pool:
        turn = Conversation(scripted, ask, COUNTER, "next()", pool=pool)
        turn()
        assert turn() == "<result>2</result>"
        assert pool.stats()["parked"]["copied"] == 0
        assert pool.stats()["sessions"] == 1


def test_a_full_family_moves_on_without_a_copy(scripted: Any, ask: Ask) -> None:
    turn = Conversation(scripted, ask, COUNTER, "next()")
    turn()
    sandbox = turn.middleware._evaluator.sandbox
    copies = list(iter(lambda: sandbox.copy(turn.here.live.core), None))
    assert len(copies) == 4
    assert turn() == "<result>2</result>"
    assert figures(turn.middleware)["copied"] == 0
    for copy in copies:
        sandbox.release(copy)


def test_a_parked_conversation_is_one_worker_and_its_anchor(scripted: Any, ask: Ask) -> None:
    turn = Conversation(scripted, ask, COUNTER, "next()", "next()")
    for answer in ("1", "2", "3"):
        assert turn() == f"<result>{answer}</result>"
        live = turn.here.live
        family = psutil.Process(live.core.anchor_pid)
        copies = len(turn.here.parked)
        end = time.monotonic() + 20.0
        while len(family.children(recursive=True)) != 1 + copies:
            assert time.monotonic() < end, "a keeper stayed"
            time.sleep(0.005)
    assert figures(turn.middleware)["died"] == 0


def test_a_parked_worker_that_died_is_replaced_from_the_snapshot(scripted: Any, ask: Ask) -> None:
    turn = Conversation(scripted, ask, "var kept = [1, 2]; kept.length", "kept.push(3)")
    turn()
    anchor = turn.here.live.core.anchor_pid
    gone = os.pidfd_open(anchor)
    os.kill(anchor, signal.SIGKILL)
    assert select.select([gone], [], [], 10.0)[0]
    os.close(gone)
    assert turn() == "<result>3</result>"
    assert figures(turn.middleware)["died"] == 1
    assert figures(turn.middleware)["restored"] == 1


def test_when_memory_is_short_copies_go_first_and_then_those_unused_for_longest(
    scripted: Any, ask: Ask
) -> None:
    turn = Conversation(scripted, ask, *[COUNTER] * 5, "next()")
    for n in range(4):
        turn(thread(f"t{n}"))
    turn(thread("t3"))
    assert figures(turn.middleware)["sessions"] == 5
    turn.registry._is_short = lambda: True
    turn.registry.sweep()
    turn.registry._is_short = lambda: False
    left = [key.thread_id for key, one in turn.registry._threads.items() if one.live is not None]
    assert left == ["t1", "t2", "t3"]
    assert figures(turn.middleware) | {"sessions": 3, "evicted": 2} == figures(turn.middleware)
    assert turn(thread("t3")) == "<result>2</result>"


def test_memory_is_short_when_the_control_group_is_nearly_full(tmp_path: Path) -> None:
    mib = 1 << 20
    (tmp_path / "memory.max").write_text(f"{1000 * mib}\n")
    (tmp_path / "memory.current").write_text(f"{960 * mib}\n")
    (tmp_path / "memory.stat").write_text(f"anon {900 * mib}\ninactive_file {5 * mib}\n")
    assert MemoryGauge(tmp_path).is_short()
    (tmp_path / "memory.stat").write_text(f"anon {900 * mib}\ninactive_file {20 * mib}\n")
    roomy = MemoryGauge(tmp_path)
    assert roomy.is_short() is MemoryGauge(tmp_path / "none").is_short()


def test_a_session_that_is_held_outlasts_its_time_and_goes_when_it_is_let_go(
    scripted: Any, ask: Ask
) -> None:
    turn = Conversation(scripted, ask, COUNTER)
    turn()
    turn.registry.hold(turn.here)
    turn.here.live.used -= 1e6
    turn.registry.sweep()
    assert turn.here.live is not None
    assert figures(turn.middleware)["held"] == 1
    turn.registry.unhold(turn.here)  # from now on its time counts again
    assert turn.here.live is not None
    turn.here.live.used -= 1e6
    turn.registry.sweep()
    assert turn.here.live is None
    assert figures(turn.middleware)["expired"] == 1


def test_a_run_that_waits_for_a_person_keeps_its_session_for_the_answer(
    scripted: Any, ask: Ask
) -> None:
    @tool
    def approve(what: str) -> str:
        """Ask."""
        return str(interrupt(what))

    turn = Conversation(
        scripted, ask, f"{COUNTER}; await tools.approve({{ what: 'x' }}); next()", "next()",
        tools=[approve], ptc=["approve"],
    )  # fmt: skip
    turn.agent.invoke(ask(), thread())
    assert figures(turn.middleware)["held"] == 1
    turn.here.live.used -= 1e6
    turn.registry.sweep()
    assert turn.here.live is not None
    turn.agent.invoke(Command(resume="yes"), thread())
    assert figures(turn.middleware)["held"] == 0
