"""A conversation whose worker dies goes on from its snapshot, and what no snapshot has is told."""

from __future__ import annotations

import asyncio
import os
import select
import signal
from collections.abc import Callable
from typing import Any, Final

import pytest

pytest.importorskip("langchain")
pytest.importorskip("langgraph")

from langchain_core.language_models.chat_models import BaseChatModel
from langchain_core.messages import AIMessage, HumanMessage, ToolMessage
from langchain_core.outputs import ChatGeneration, ChatResult
from langchain_core.tools import tool
from langgraph.checkpoint.memory import InMemorySaver

Ask = Callable[..., dict[str, Any]]
THREAD: Final[dict[str, Any]] = {"configurable": {"thread_id": "t"}}
BEGIN: Final = "let n = 1; function add() { return ++n }"
COUNTER: Final = "var next = (() => { let n = 0; return () => ++n })(); next()"
EARLIER_LOST: Final = "what the last evals changed is lost: its worker died"


def result(value: str, note: str = "") -> str:
    return f"<result>{value}</result>" + (f"\n<note>{note}</note>" if note else "")


def end_family(core: Any) -> None:
    """Kill a session's anchor, and so all of its processes; when it is gone, they are."""
    gone = os.pidfd_open(core.anchor_pid)
    try:
        os.kill(core.anchor_pid, signal.SIGKILL)
        assert select.select([gone], [], [], 20.0)[0]
    finally:
        os.close(gone)


class Talk:
    """An agent whose processes are killed at chosen moments; each turn runs its programs."""

    def __init__(self, scripted: Any, ask: Ask, *turns: Any, saver: Any, **options: Any) -> None:
        @tool
        def end() -> str:
            """Kill the processes of the conversation that calls it."""
            end_family(self.core)
            return "ended"

        self.scripted, self.ask = scripted, ask
        self.middleware = scripted.middleware(ptc=["end"], **options)
        self.continuity = self.middleware._evaluator.continuity
        self.sandbox = self.middleware._evaluator.sandbox
        script = [line for turn in turns for line in scripted.turn(*turn)]
        self.agent = scripted.agent(script, self.middleware, tools=[end], checkpointer=saver)
        self._heard = 0

    @property
    def core(self) -> Any:
        (thread,) = self.middleware._evaluator.registry._threads.values()
        return thread.live.core

    def __call__(self) -> list[str]:
        texts = self.scripted.texts(self.agent.invoke(self.ask(), THREAD))
        new, self._heard = texts[self._heard :], len(texts)
        return list(new)

    def ends_before(
        self, patch: pytest.MonkeyPatch, owner: Any, name: str, *, call: int = 1
    ) -> None:
        """Have the processes end as that method is called for that time from now on."""
        method = getattr(owner, name)
        calls: list[Any] = []

        def ending(*args: Any, **named: Any) -> Any:
            calls.append(args)
            if len(calls) == call:
                end_family(self.core)
            return method(*args, **named)

        patch.setattr(owner, name, ending)


@pytest.fixture
def talking(scripted: Any, ask: Ask) -> Callable[..., Talk]:
    def begin(*turns: Any, saver: Any = None, **options: Any) -> Talk:
        return Talk(scripted, ask, *turns, saver=saver or InMemorySaver(), **options)

    return begin


@pytest.mark.parametrize("owner", ["continuity.obtain", "sandbox.run"])
@pytest.mark.parametrize("park", [300.0, 0.0])
def test_a_worker_that_dies_in_a_turn_costs_nothing_that_was_saved(
    talking: Callable[..., Talk], monkeypatch: pytest.MonkeyPatch, owner: str, park: float
) -> None:
    talk = talking([BEGIN, "add()", "add()"], ["add()"], park=park)
    part, name = owner.split(".")
    talk.ends_before(monkeypatch, getattr(talk, part), name, call=3)
    assert talk() == [result("undefined"), result("2"), result("3")]
    assert talk() == [result("4")]


def test_a_worker_that_dies_as_a_turn_takes_it_over_costs_nothing_that_was_saved(
    talking: Callable[..., Talk], monkeypatch: pytest.MonkeyPatch
) -> None:
    talk = talking([BEGIN], ["add()"], ["add()"])
    talk()
    talk.ends_before(monkeypatch, talk.sandbox, "run")
    assert talk() == [result("2")]
    assert talk() == [result("3")]


def test_a_worker_that_dies_before_its_answer_was_saved_says_so_with_that_answer(
    talking: Callable[..., Talk], monkeypatch: pytest.MonkeyPatch
) -> None:
    talk = talking([BEGIN, "add()"], ["add()"])
    talk.ends_before(monkeypatch, talk.continuity, "after_eval", call=2)
    lost = "what this eval changed is lost: its worker died"
    assert talk() == [result("undefined"), result("2", lost)]
    assert talk() == [result("2")]


def test_an_eval_whose_processes_all_die_is_rolled_back_to_the_snapshot(
    talking: Callable[..., Talk],
) -> None:
    talk = talking([BEGIN, "add(); await tools.end({})", "add()"], ["add()"])
    begun, crashed, after = talk()
    assert begun == result("undefined")
    assert 'type="WorkerCrashed"' in crashed
    assert "the session goes on as its last snapshot has it" in crashed
    assert after == result("2")
    assert talk() == [result("3")]
    answers = talk.scripted.answers(talk.agent.get_state(THREAD).values)
    assert answers[1].artifact["state"] == "rolled_back"


def test_what_an_earlier_eval_of_the_same_message_changed_is_told_when_it_is_lost(
    talking: Callable[..., Talk], scripted: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    # The graph's state has nothing of the first when the second finds its worker dead.
    both = scripted.evals("add()", "add()")
    talk = talking([BEGIN, both], ["add()"])
    talk.ends_before(monkeypatch, talk.sandbox, "run", call=3)
    assert talk() == [result("undefined"), result("2"), result("2", EARLIER_LOST)]
    assert talk() == [result("3")]


def test_that_is_told_as_well_where_a_copy_for_branches_has_the_older_state(
    talking: Callable[..., Talk], scripted: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    talk = talking([BEGIN], [scripted.evals("add()", "add()")], ["add()"])
    talk()
    # The turn leaves a copy at its checkpoint, of the same family, which dies with it.
    talk.ends_before(monkeypatch, talk.sandbox, "run", call=2)
    assert talk() == [result("2"), result("2", EARLIER_LOST)]
    assert talk() == [result("3")]


def test_a_turn_whose_state_could_not_be_saved_leaves_the_older_snapshot(
    talking: Callable[..., Talk], monkeypatch: pytest.MonkeyPatch
) -> None:
    # Too large to be written with each answer: the end of the turn does it.
    much = "var much = Array.from({ length: 6000 }, () => crypto.randomUUID()); 0"
    talk = talking([f"{BEGIN}; {much}"], ["add()"], ["add()"], ["add()"])
    talk()
    assert talk() == [result("2")]
    with monkeypatch.context() as patch:
        talk.ends_before(patch, talk.continuity, "after_turn")
        with pytest.warns(RuntimeWarning, match="goes on from the last snapshot"):
            assert talk() == [result("3")]
    assert talk() == [result("3", EARLIER_LOST)]


def test_without_a_checkpointer_a_lost_repl_is_told_and_the_turn_goes_on(
    scripted: Any, ask: Ask, monkeypatch: pytest.MonkeyPatch
) -> None:
    middleware = scripted.middleware()
    sandbox = middleware._evaluator.sandbox
    agent = scripted.agent(scripted.turn(BEGIN, "typeof n", "1 + 1"), middleware)
    run, cores = sandbox.run, []

    def ending(core: Any, program: Any) -> Any:
        cores.append(core)
        if len(cores) == 2:
            end_family(core)
        return run(core, program)

    monkeypatch.setattr(sandbox, "run", ending)
    _, lost, after = scripted.texts(agent.invoke(ask()))
    assert lost.startswith(f"{result('undefined')}\n<note>the session's state is lost")
    assert after == result("2")


# --- cancelled turns ------------------------------------------------------------------------------


class Obeying(BaseChatModel):
    """A model that runs what a person has written, once."""

    @property
    def _llm_type(self) -> str:
        return "obeying"

    def bind_tools(self, tools: Any, **more: Any) -> Any:
        return self

    def _generate(
        self, messages: Any, stop: Any = None, run_manager: Any = None, **more: Any
    ) -> ChatResult:
        line = AIMessage("done")
        if isinstance(messages[-1], HumanMessage):
            call = {
                "name": "eval",
                "args": {"code": messages[-1].content},
                "id": str(len(messages)),
            }
            line = AIMessage("", tool_calls=[call])
        return ChatResult(generations=[ChatGeneration(message=line)])


def test_turns_that_are_cancelled_at_any_moment_cost_no_state(scripted: Any) -> None:
    from langchain.agents import create_agent

    agent = create_agent(
        Obeying(), [], middleware=[scripted.middleware()], checkpointer=InMemorySaver()
    )

    async def turn(program: str) -> None:
        await agent.ainvoke({"messages": [HumanMessage(program)]}, THREAD)

    async def main() -> list[str]:
        await turn("let n = 0; n")
        for step in range(40):
            running = asyncio.ensure_future(turn("++n"))
            await asyncio.wait([running], timeout=0.001 * (step % 20))
            running.cancel()
            await asyncio.wait([running])
        await turn("++n")
        messages = (await agent.aget_state(THREAD)).values["messages"]
        return [one.text for one in messages if isinstance(one, ToolMessage)]

    answers = asyncio.run(main())
    # Of a cancelled turn either the answer is there, and so is what it changed, or neither is.
    assert answers == [result(str(number)) for number in range(len(answers))]


def test_turns_cancelled_while_their_worker_is_taken_over_cost_no_closure(
    scripted: Any, ask: Ask, monkeypatch: pytest.MonkeyPatch
) -> None:
    middleware = scripted.middleware()
    evals = [scripted.evals("next()")] * 2
    script = [*scripted.turn(COUNTER), *evals, *scripted.turn("next()")]
    agent = scripted.agent(script, middleware, checkpointer=InMemorySaver())
    sandbox = middleware._evaluator.sandbox
    run = sandbox.run_async

    turns: list[asyncio.Task[Any]] = []

    async def cancelling(core: Any, program: Any) -> Any:
        task = asyncio.ensure_future(run(core, program))
        while not core._unparking:  # until it has asked for a keeper, and waits
            assert not task.done()
            await asyncio.sleep(0)
        turns[-1].cancel()
        return await task

    async def main() -> str:
        await agent.ainvoke(ask(), THREAD)
        with monkeypatch.context() as patch:
            patch.setattr(sandbox, "run_async", cancelling)
            patch.setattr(sandbox, "copy_async", no_copy)
            for _ in range(2):
                turns.append(asyncio.ensure_future(agent.ainvoke(ask(), THREAD)))
                with pytest.raises(asyncio.CancelledError):
                    await turns[-1]
        return str(scripted.texts(await agent.ainvoke(ask(), THREAD))[-1])

    assert asyncio.run(main()) == result("2")


async def no_copy(core: Any) -> None:
    """In place of a copy of the session, which would give it its keeper first."""
