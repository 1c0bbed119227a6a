"""The REPL's state on our own loop: its caller carries it, or keeps no more than a thread id."""

from __future__ import annotations

import asyncio
from typing import Annotated, Any

import pytest
from langchain_core.messages import AIMessage
from langchain_core.tools import tool

from qjs_pool.middleware.agent import InjectedState

KEYS = ("_qjs_pool_thread", "_qjs_pool_snapshot")
# What a snapshot holds, and what only the worker has: a closure over a local.
BOTH = "var n = 1; var next = (() => { let k = 10; return () => ++k })(); n"


def turn(agent: Any, state: Any = None, thread_id: str | None = None, how: str = "invoke") -> Any:
    """The state after one more question."""
    messages = [*(state or {}).get("messages", []), ("user", "go")]
    given = {**(state or {}), "messages": messages}
    config = None if thread_id is None else {"configurable": {"thread_id": thread_id}}
    if how == "ainvoke":
        return asyncio.run(agent.ainvoke(given, config))
    return agent.invoke(given, config)


def last(scripted: Any, state: Any) -> str:
    return str(scripted.texts(state)[-1])


@pytest.mark.parametrize("how", ["invoke", "ainvoke"])
@pytest.mark.parametrize("thread_id", [None, "t"])
def test_a_state_that_is_passed_on_carries_the_repl_closures_and_all(
    scripted: Any, thread_id: str | None, how: str
) -> None:
    script = [*scripted.turn(BOTH), *scripted.turn("n += 1; [n, next()]")]
    agent = scripted.agent(script, scripted.middleware(), kind="loop")
    state = turn(agent, thread_id=thread_id, how=how)
    assert [key in state for key in KEYS] == [thread_id is None, True]
    assert last(scripted, turn(agent, state, thread_id, how)) == "<result>[2, 11]</result>"


@pytest.mark.parametrize("thread_id", [None, "t"])
def test_it_carries_to_another_process_what_a_snapshot_holds(
    scripted: Any, thread_id: str | None
) -> None:
    first = scripted.middleware(snapshot_signing_key="k")
    state = turn(scripted.agent(scripted.turn(BOTH), first, kind="loop"), thread_id=thread_id)
    first.close()
    second = scripted.middleware(snapshot_signing_key="k")
    script = scripted.turn("n + 1", "next()")
    state = turn(scripted.agent(script, second, kind="loop"), state, thread_id)
    assert scripted.texts(state)[-2] == "<result>2</result>"
    assert "'next' was not restored because it is not serializable" in last(scripted, state)


def test_a_tampered_state_is_refused_and_the_repl_starts_empty(scripted: Any) -> None:
    script = scripted.turn("var n = 1")
    state = turn(scripted.agent(script, scripted.middleware(snapshot_signing_key="k"), kind="loop"))
    other = scripted.middleware(snapshot_signing_key="another")
    agent = scripted.agent(scripted.turn("typeof n"), other, kind="loop")
    with pytest.warns(RuntimeWarning, match="The REPL starts empty"):
        state = turn(agent, state)
    assert "<result>undefined</result>" in last(scripted, state)
    assert "starts empty" in last(scripted, state)


def test_each_state_is_gone_on_from_as_it_was(scripted: Any) -> None:
    script = [
        *scripted.turn("var n = 1; n"), *scripted.turn("n += 10; n"), *scripted.turn("n += 100; n"),
    ]  # fmt: skip
    agent = scripted.agent(script, scripted.middleware(), kind="loop")
    first = turn(agent, thread_id="t")
    second = turn(agent, first, "t")
    assert last(scripted, second) == "<result>11</result>"
    assert last(scripted, turn(agent, first, "t")) == "<result>101</result>"


def test_a_caller_that_keeps_the_thread_id_only_goes_on_while_the_worker_is_parked(
    scripted: Any,
) -> None:
    script = [*scripted.turn(BOTH), *scripted.turn("[n, next()]"), *scripted.turn("[n, next()]")]
    agent = scripted.agent(script, scripted.middleware(), kind="loop")
    turn(agent, thread_id="t")
    assert last(scripted, turn(agent, thread_id="t")) == "<result>[1, 11]</result>"
    # An executor is made anew for each request here and there; the middleware is what remembers.
    assert last(scripted, turn(agent, thread_id="t")) == "<result>[1, 12]</result>"


def test_a_caller_that_keeps_the_thread_id_only_is_told_when_the_worker_is_gone(
    scripted: Any,
) -> None:
    script = [*scripted.turn("var n = 1"), *scripted.turn("typeof n", "1")]
    agent = scripted.agent(script, scripted.middleware(park=0.0), kind="loop")
    turn(agent, thread_id="t")
    told, later = scripted.texts(turn(agent, thread_id="t"))
    assert told.startswith("<result>undefined</result>")
    assert "it starts empty: no session stays after its turn (park or max_parked is 0)" in told
    assert later == "<result>1</result>"


@pytest.mark.parametrize(
    ("options", "reason"),
    [
        ({"max_parked": 0}, "no session stays after its turn (park or max_parked is 0)"),
        ({"max_parked": 1}, "too many others were parked (max_parked)"),
        ({"park": 0.0}, "no session stays after its turn (park or max_parked is 0)"),
    ],
)
def test_the_reason_why_a_worker_is_gone_is_the_true_one(
    scripted: Any, options: dict[str, Any], reason: str
) -> None:
    script = [*scripted.turn("var n = 1"), *scripted.turn("1"), *scripted.turn("typeof n")]
    agent = scripted.agent(script, scripted.middleware(**options), kind="loop")
    turn(agent, thread_id="t")
    turn(agent, thread_id="another")
    assert last(scripted, turn(agent, thread_id="t")) == (
        "<result>undefined</result>\n"
        f"<note>the REPL's state is lost, it starts empty: {reason}</note>"
    )


@pytest.mark.parametrize("park", [0.0, 300.0])
@pytest.mark.parametrize(
    "malformed", ["garbage", [1], {"eval": 7}, {"eval": {}}, {"eval": {"seq": "1", "head": "x"}}]
)
def test_a_state_that_is_malformed_is_told_as_the_reason_of_the_loss(
    scripted: Any, malformed: Any, park: float
) -> None:
    script = [*scripted.turn("var n = 1"), *scripted.turn("typeof n", "1")]
    agent = scripted.agent(script, scripted.middleware(park=park), kind="loop")
    state = turn(agent)
    with pytest.warns(RuntimeWarning, match="malformed. The REPL starts empty"):
        state = turn(agent, {**state, KEYS[1]: malformed})
    *_, told, later = scripted.texts(state)
    assert "it starts empty: what the agent's state has of it is malformed" in told
    assert later == "<result>1</result>"


def test_a_state_without_its_snapshot_is_one_with_the_thread_id_only(scripted: Any) -> None:
    script = [*scripted.turn("var n = 1"), *scripted.turn("typeof n")]
    agent = scripted.agent(script, scripted.middleware(), kind="loop")
    state = turn(agent)
    assert last(scripted, turn(agent, {**state, KEYS[1]: None})) == "<result>number</result>"


def test_a_state_that_is_passed_on_needs_no_parked_worker(scripted: Any) -> None:
    script = [*scripted.turn("var n = 1"), *scripted.turn("n + 1")]
    agent = scripted.agent(script, scripted.middleware(park=0.0), kind="loop")
    state = turn(agent, turn(agent, thread_id="t"), "t")
    assert last(scripted, state) == "<result>2</result>"


def test_conversations_do_not_share_a_repl(scripted: Any) -> None:
    script = [*scripted.turn("var n = 1"), *(scripted.turn("typeof n") * 2)]
    agent = scripted.agent(script, scripted.middleware(), kind="loop")
    turn(agent, thread_id="a")
    assert last(scripted, turn(agent, thread_id="b")) == "<result>undefined</result>"
    assert last(scripted, turn(agent)) == "<result>undefined</result>"


@pytest.mark.parametrize(("mode", "within"), [("turn", "number"), ("call", "undefined")])
def test_the_other_modes_keep_nothing_between_turns(scripted: Any, mode: str, within: str) -> None:
    script = [*scripted.turn("var n = 1", "typeof n"), *scripted.turn("typeof n")]
    agent = scripted.agent(script, scripted.middleware(mode=mode), kind="loop")
    state = turn(agent, thread_id="t")
    assert last(scripted, state) == f"<result>{within}</result>"
    assert "_qjs_pool_snapshot" not in state
    assert last(scripted, turn(agent, state, "t")) == "<result>undefined</result>"


def test_parallel_evals_of_one_message_run_in_order_on_one_repl(scripted: Any) -> None:
    programs = ["var log = ['0']; log.join('')", *(f"log.push('{n}'); log.join('')" for n in "123")]
    script = [scripted.evals(*programs), AIMessage("done"), *scripted.turn("log.length")]
    agent = scripted.agent(script, scripted.middleware(), kind="loop")
    state = turn(agent)
    assert scripted.texts(state) == [f"<result>{'0123'[: n + 1]}</result>" for n in range(4)]
    assert last(scripted, turn(agent, state)) == "<result>4</result>"


# --- agents within agents ------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("outer", "inner"), [("loop", "loop"), ("loop", "agent"), ("agent", "loop")]
)
def test_an_agent_that_a_tool_runs_has_a_repl_of_its_own(
    scripted: Any, outer: str, inner: str
) -> None:
    if "agent" in (outer, inner):
        pytest.importorskip("langchain")
    middleware = scripted.middleware(ptc=["helper"])
    sub_script = [*scripted.turn("var mine = typeof secret; mine")] * 2

    # A run within a run, on the same thread: it inherits the configuration.
    sub = scripted.agent(sub_script, middleware, kind=inner)

    @tool
    def helper() -> str:
        """Let another agent do it."""
        return last(scripted, sub.invoke({"messages": [("user", "help")]}))

    script = scripted.turn("var secret = 1; await tools.helper()", "[secret, typeof mine]")
    agent = scripted.agent(script, middleware, tools=[helper], kind=outer)
    state = turn(agent, thread_id="t")
    assert scripted.texts(state) == [
        "<result>&lt;result&gt;undefined&lt;/result&gt;</result>",
        '<result>[1, "undefined"]</result>',
    ]


def test_a_run_within_a_run_leaves_no_worker_behind(scripted: Any) -> None:
    middleware = scripted.middleware()
    sub = scripted.agent(scripted.turn("var x = 1"), middleware, kind="loop")

    @tool
    def helper() -> str:
        """Let another agent do it."""
        return last(scripted, sub.invoke({"messages": [("user", "help")]}))

    call = AIMessage("", tool_calls=[{"name": "helper", "args": {}, "id": "h"}])
    agent = scripted.agent([call, AIMessage("done")], middleware, tools=[helper], kind="loop")
    turn(agent, thread_id="t")
    # Nobody can come back to it: its state was in a dict that is gone.
    assert middleware._evaluator.sandbox.pool.stats()["sessions"] == 0


@pytest.mark.parametrize("thread_id", [None, "t"])
def test_a_run_within_a_run_takes_and_gives_no_private_state(
    scripted: Any, thread_id: str | None
) -> None:
    middleware = scripted.middleware()
    sub = scripted.agent(scripted.turn("typeof n"), middleware, kind="loop")
    returned: list[Any] = []

    @tool
    def helper(state: Annotated[Any, InjectedState]) -> str:
        """Let another agent do it, with all that we know."""
        messages = [("user", "help")]
        returned.append(sub.invoke({**state, "messages": messages, "shared": 1}))
        return last(scripted, returned[0])

    call = AIMessage("", tool_calls=[{"name": "helper", "args": {}, "id": "h"}])
    script = [*scripted.turn("var n = 1"), call, AIMessage("done"), *scripted.turn("n")]
    agent = scripted.agent(script, middleware, tools=[helper], kind="loop")
    state = turn(agent, thread_id=thread_id)
    state = turn(agent, turn(agent, state, thread_id), thread_id)
    assert returned[0].keys() == {"messages", "shared"}
    assert scripted.texts(returned[0]) == ["<result>undefined</result>"]
    assert last(scripted, state) == "<result>1</result>"


def test_sync_invoke_works_inside_a_running_loop_even_for_async_tools(scripted: Any) -> None:
    @tool
    async def later(n: int) -> int:
        """A number, later."""
        await asyncio.sleep(0)
        return n

    script = scripted.turn("await tools.later({n: 3})")
    agent = scripted.agent(script, scripted.middleware(ptc=["later"]), tools=[later], kind="loop")

    async def notebook() -> Any:
        return turn(agent)

    assert last(scripted, asyncio.run(notebook())) == "<result>3</result>"
