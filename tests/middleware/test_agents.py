"""The middleware in agents of both kinds, along every way to run them."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from typing import Any

import pytest

pytest.importorskip("langchain")
pytest.importorskip("langgraph")

from langchain_core.messages import AIMessage
from langchain_core.tools import tool
from langgraph.checkpoint.memory import InMemorySaver

KINDS = ["agent", "deep"]


def in_thread(thread_id: str) -> dict[str, Any]:
    return {"configurable": {"thread_id": thread_id}}


def run_turn(agent: Any, how: str, message: dict[str, Any], config: dict[str, Any]) -> Any:
    """The final state of a turn, run in one of four ways."""

    async def streamed() -> Any:
        return [state async for state in agent.astream(message, config, stream_mode="values")][-1]

    if how == "invoke":
        return agent.invoke(message, config)
    if how == "stream":
        return list(agent.stream(message, config, stream_mode="values"))[-1]
    if how == "ainvoke":
        return asyncio.run(agent.ainvoke(message, config))
    return asyncio.run(streamed())


@tool
def double(n: int) -> int:
    """Twice a number."""
    return 2 * n


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("how", ["invoke", "ainvoke", "stream", "astream"])
def test_state_and_tools_work_across_evals_and_turns_however_the_agent_is_run(
    scripted: Any, ask: Any, kind: str, how: str
) -> None:
    script = [
        *scripted.turn("const n: number = 20; n", "console.log('<n>'); await tools.double({n})"),
        *scripted.turn("n + 2"),
    ]
    agent = scripted.agent(
        script, scripted.middleware(ptc=["double"]), tools=[double], kind=kind,
        checkpointer=InMemorySaver(),
    )  # fmt: skip
    run_turn(agent, how, ask(), in_thread("a"))
    state = run_turn(agent, how, ask(), in_thread("a"))
    assert scripted.texts(state) == [
        "<result>20</result>",
        "<stdout>\n&lt;n&gt;\n</stdout>\n<result>40</result>",
        "<result>22</result>",
    ]
    assert state["messages"][-1].content == "done"


def test_two_threads_never_share_state(scripted: Any, ask: Any) -> None:
    script = [*scripted.turn("var secret = 1"), *scripted.turn("typeof secret")]
    agent = scripted.agent(script, scripted.middleware(), checkpointer=InMemorySaver())
    agent.invoke(ask(), in_thread("a"))
    assert scripted.texts(agent.invoke(ask(), in_thread("b"))) == ["<result>undefined</result>"]


def test_graphs_that_share_a_middleware_do_not_share_a_conversation_of_the_same_id(
    scripted: Any, ask: Any
) -> None:
    middleware = scripted.middleware()
    one = scripted.agent(scripted.turn("var mine = 1"), middleware, checkpointer=InMemorySaver())
    other = scripted.agent(scripted.turn("typeof mine"), middleware, checkpointer=InMemorySaver())
    one.invoke(ask(), in_thread("same"))
    assert scripted.texts(other.invoke(ask(), in_thread("same"))) == ["<result>undefined</result>"]


def test_without_a_thread_id_a_run_has_a_conversation_of_its_own(scripted: Any, ask: Any) -> None:
    script = [*scripted.turn("var x = 1", "x + 1"), *scripted.turn("typeof x")]
    middleware = scripted.middleware()
    agent = scripted.agent(script, middleware)
    assert scripted.texts(agent.invoke(ask()))[1] == "<result>2</result>"
    assert scripted.texts(agent.invoke(ask())) == ["<result>undefined</result>"]
    # ... which nobody can come back to: its worker is gone.
    assert middleware._evaluator.sandbox.pool.stats()["sessions"] == 0


def test_mode_turn_forgets_at_the_end_of_the_turn(scripted: Any, ask: Any) -> None:
    script = [*scripted.turn("var x = 1", "x + 1"), *scripted.turn("typeof x")]
    agent = scripted.agent(script, scripted.middleware(mode="turn"), checkpointer=InMemorySaver())
    assert scripted.texts(agent.invoke(ask(), in_thread("a")))[1] == "<result>2</result>"
    state = agent.invoke(ask(), in_thread("a"))
    assert scripted.texts(state)[-1] == "<result>undefined</result>"


def test_mode_turn_starts_empty_after_a_turn_that_failed(scripted: Any, ask: Any) -> None:
    middleware = scripted.middleware(mode="turn")
    saver = InMemorySaver()
    failing = scripted.agent([scripted.evals("var x = 1")], middleware, checkpointer=saver)
    with pytest.raises(LookupError):  # the script, and with it the run, ends within the turn
        failing.invoke(ask(), in_thread("a"))
    agent = scripted.agent(scripted.turn("typeof x"), middleware, checkpointer=saver)
    state = agent.invoke(ask(), in_thread("a"))
    assert scripted.texts(state)[-1] == "<result>undefined</result>"


def test_mode_call_forgets_after_each_eval(run: Callable[..., list[str]]) -> None:
    assert run("var x = 1; x", "typeof x", mode="call") == [
        "<result>1</result>",
        "<result>undefined</result>",
    ]


@pytest.mark.parametrize("how", ["invoke", "ainvoke"])
def test_parallel_evals_of_one_message_run_in_call_order_on_one_repl(
    scripted: Any, ask: Any, how: str
) -> None:
    programs = ["var log = ['0']; await tools.double({n: 1}); log.join('')"]
    programs += [f"log.push('{n}'); log.join('')" for n in range(1, 8)]
    agent = scripted.agent(
        [scripted.evals(*programs), AIMessage("done")],
        scripted.middleware(ptc=["double"]),
        tools=[double],
    )
    state = run_turn(agent, how, ask(), {})
    assert scripted.texts(state) == [f"<result>{'01234567'[: n + 1]}</result>" for n in range(8)]


@pytest.mark.parametrize("how", ["invoke", "ainvoke"])
def test_parallel_evals_run_in_parallel_in_mode_call(scripted: Any, ask: Any, how: str) -> None:
    meeting = threading.Barrier(2, timeout=30)

    @tool
    def meet() -> str:
        """Return when two are here."""
        meeting.wait()
        return "met"

    agent = scripted.agent(
        [scripted.evals("await tools.meet()", "await tools.meet()"), AIMessage("done")],
        scripted.middleware(mode="call", ptc=["meet"]),
        tools=[meet],
    )
    assert scripted.texts(run_turn(agent, how, ask(), {})) == ["<result>met</result>"] * 2


def test_one_middleware_serves_several_event_loops_one_after_another_and_at_once(
    scripted: Any, ask: Any
) -> None:
    middleware = scripted.middleware(ptc=["double"])
    saver = InMemorySaver()

    def turn(program: str, thread_id: str) -> str:
        agent = scripted.agent(
            scripted.turn(program), middleware, tools=[double], checkpointer=saver
        )
        state = asyncio.run(agent.ainvoke(ask(), in_thread(thread_id)))
        return str(scripted.texts(state)[-1])

    assert turn("var n = await tools.double({n: 1}); n", "a") == "<result>2</result>"
    assert turn("n = await tools.double({n})", "a") == "<result>4</result>"
    answers: dict[int, str] = {}
    threads = [
        threading.Thread(
            target=lambda i=i: answers.update({i: turn(f"await tools.double({{n: {i}}})", f"t{i}")})
        )
        for i in range(4)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert answers == {i: f"<result>{2 * i}</result>" for i in range(4)}


def test_sync_invoke_works_inside_a_running_loop_even_for_async_tools(
    scripted: Any, ask: Any
) -> None:
    @tool
    async def later(n: int) -> int:
        """A number, later."""
        await asyncio.sleep(0)
        return n

    agent = scripted.agent(
        scripted.turn("await tools.later({n: 3})"),
        scripted.middleware(ptc=["later"]),
        tools=[later],
    )

    async def notebook() -> Any:
        return agent.invoke(ask())

    assert scripted.texts(asyncio.run(notebook())) == ["<result>3</result>"]


def test_a_hostile_program_in_one_thread_leaves_another_threads_agent_alone(
    scripted: Any, ask: Any
) -> None:
    middleware = scripted.middleware(timeout=1.0)
    saver = InMemorySaver()
    hostile = scripted.agent(
        scripted.turn("for (;;) {}", "let l = []; for (;;) l.push(new ArrayBuffer(1 << 20))", "1"),
        middleware, checkpointer=saver,
    )  # fmt: skip
    good = scripted.agent(
        scripted.turn("var n = 1; n", "n += 1; n", "n += 1; n"), middleware, checkpointer=saver
    )

    async def both() -> Any:
        return await asyncio.gather(
            hostile.ainvoke(ask(), in_thread("bad")), good.ainvoke(ask(), in_thread("good"))
        )

    bad_state, good_state = asyncio.run(both())
    endless, bomb, after = scripted.texts(bad_state)
    assert endless.startswith('<error type="Timeout">')
    assert bomb.startswith('<error type="OutOfMemory">')
    assert after == "<result>1</result>"
    assert scripted.texts(good_state) == [f"<result>{n}</result>" for n in (1, 2, 3)]


def test_cancelling_the_agent_stops_the_guest_and_the_thread_goes_on(
    scripted: Any, ask: Any
) -> None:
    started = asyncio.Event()

    @tool
    async def forever() -> str:
        """Never returns."""
        started.set()
        await asyncio.Event().wait()
        return "never"

    script = [scripted.evals("var x = 1; await tools.forever()"), *scripted.turn("typeof x")]
    agent = scripted.agent(
        script, scripted.middleware(ptc=["forever"]), tools=[forever],
        checkpointer=InMemorySaver(),
    )  # fmt: skip

    async def cancelled() -> Any:
        running = asyncio.create_task(agent.ainvoke(ask(), in_thread("a")))
        await started.wait()
        running.cancel()
        with pytest.raises(asyncio.CancelledError):
            await running
        return await agent.ainvoke(ask(), in_thread("a"))

    # The eval never happened.
    assert scripted.texts(asyncio.run(cancelled()))[-1] == "<result>undefined</result>"


def test_a_turn_without_evals_starts_no_process(scripted: Any, ask: Any) -> None:
    middleware = scripted.middleware(ptc=["double"])
    agent = scripted.agent([AIMessage("hello")], middleware, tools=[double])
    agent.invoke(ask())
    assert middleware._evaluator.sandbox._own is None


def test_a_shared_pool_outlives_the_middleware(scripted: Any, ask: Any) -> None:
    from qjs_pool import Limits, Pool

    with Pool(limits=Limits(cpu=2.0), worker_functions={"twice": lambda a: a["n"] * 2}) as pool:
        middleware = scripted.middleware(pool=pool, timeout=1.0)
        asked: list[Any] = []
        agent = scripted.agent(scripted.turn("await tools.twice({n: 4})"), middleware, asked=asked)
        assert scripted.texts(agent.invoke(ask())) == ["<result>8</result>"]
        assert "tools.twice(input)" in asked[0][0].content
        middleware.close()
        with pool.session() as session:
            assert session.eval("1 + 1").value == 2


def test_a_subagents_repl_is_its_own(scripted: Any, ask: Any) -> None:
    pytest.importorskip("deepagents")
    middleware = scripted.middleware(ptc=["double"])
    sub_script = scripted.turn("var x = 'sub'; typeof secret")
    task = AIMessage(
        "",
        tool_calls=[
            {
                "name": "task",
                "args": {"description": "d", "subagent_type": "helper"},
                "id": "task1",
            }
        ],
    )
    heard: list[Any] = []
    agent = scripted.agent(
        [scripted.evals("var secret = 1; secret"), task, *scripted.turn("[secret, typeof x]")],
        middleware,
        tools=[double],
        kind="deep",
        checkpointer=InMemorySaver(),
        subagents=[
            {
                "name": "helper",
                "description": "helps",
                "system_prompt": "help",
                "model": scripted.model(sub_script, heard),
                "middleware": [middleware],
            }
        ],
    )
    state = agent.invoke(ask(), in_thread("a"))
    assert scripted.texts(state)[-1] == '<result>[1, "undefined"]</result>'
    assert [m.content for m in heard[-1] if m.type == "tool"] == ["<result>undefined</result>"]


def test_a_program_may_call_the_task_tool_of_a_deep_agent(scripted: Any, ask: Any) -> None:
    pytest.importorskip("deepagents")
    with pytest.warns(DeprecationWarning, match="'task' in ptc"):
        middleware = scripted.middleware(ptc=["task"])
    agent = scripted.agent(
        scripted.turn("await tools.task({description: 'd', subagent_type: 'helper'})"),
        middleware,
        kind="deep",
        subagents=[
            {
                "name": "helper",
                "description": "helps",
                "system_prompt": "help",
                "model": scripted.model([AIMessage("helped")]),
            }
        ],
    )
    state = agent.invoke(ask())
    assert scripted.texts(state) == ["<result>helped</result>"]
    assert [message.type for message in state["messages"]] == ["human", "ai", "tool", "ai"]
