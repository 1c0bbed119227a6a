"""Which conversation is which, and when its session goes."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import pytest

pytest.importorskip("langchain")
pytest.importorskip("langgraph")

from langchain_core.messages import AIMessage
from langgraph.checkpoint.memory import InMemorySaver

from qjs_pool import Limits, Pool
from qjs_pool.middleware.order import CallOrder, position_of
from qjs_pool.middleware.threads import STATE_KEY, thread_key

Ask = Callable[..., dict[str, Any]]


def config(**configurable: Any) -> dict[str, Any]:
    return {"configurable": configurable}


def test_nodes_of_one_graph_are_in_one_conversation_and_subgraphs_in_their_own() -> None:
    root = thread_key(config(thread_id="t", checkpoint_ns="model:1"), {})
    assert root == thread_key(config(thread_id="t", checkpoint_ns="tools:2"), {})
    sub = thread_key(config(thread_id="t", checkpoint_ns="tools:2|model:3"), {})
    second = thread_key(config(thread_id="t", checkpoint_ns="tools:2|1|model:3"), {})
    stateful = thread_key(config(thread_id="t", checkpoint_ns="helper|model:3"), {})
    assert len({root, sub, second, stateful}) == 4
    assert (root.lasting, sub.lasting, stateful.lasting) == (True, False, True)


def test_a_program_that_calls_an_interpreter_gets_the_session_that_the_model_does(
    scripted: Any, ask: Ask
) -> None:
    other = scripted.middleware(tool_name="js", pool=None)
    program = "await tools.js({code: 'globalThis.n = 7'}); await tools.js({code: 'n += 1'})"
    script = scripted.turn(program, scripted.evals("n", tool_name="js"))
    agent = scripted.agent(
        script, scripted.middleware(ptc=["js"]), other, checkpointer=InMemorySaver()
    )
    state = agent.invoke(ask(), config(thread_id="t"))
    (by_model,) = scripted.answers(state, "js")
    assert by_model.content == "<result>8</result>"
    assert other._evaluator.sandbox.pool.stats()["sessions_opened"] == 1


@pytest.mark.parametrize("kind", ["agent", "loop"])
@pytest.mark.parametrize("how", ["invoke", "ainvoke"])
def test_interpreters_that_call_each_other_are_told_instead_of_waiting_for_themselves(
    scripted: Any, ask: Ask, kind: str, how: str
) -> None:
    program = """await tools.js({code: "await tools.eval({code: '1'})"})"""
    both = scripted.middleware(ptc=["js"]), scripted.middleware(ptc=["eval"], tool_name="js")
    agent = scripted.agent(scripted.turn(program, "2"), *both, kind=kind)
    state = agent.invoke(ask()) if how == "invoke" else asyncio.run(agent.ainvoke(ask()))
    first, second = scripted.texts(state)
    assert "runs in this session, and waits. Nothing ran." in first
    assert second == "<result>2</result>"


def test_thread_ids_may_be_of_any_kind_and_never_meet_private_ones() -> None:
    assert thread_key(config(thread_id=7), {}).thread_id == "7"
    private = thread_key({}, {STATE_KEY: "x"})
    assert private != thread_key(config(thread_id="x"), {})
    assert private != thread_key({}, {STATE_KEY: "y"})


def test_the_place_of_an_eval_in_its_message() -> None:
    calls = [
        {"name": name, "args": {}, "id": f"c{n}"} for n, name in enumerate(("eval", "x", "eval"))
    ]
    state = {"messages": [AIMessage("", tool_calls=calls)]}
    assert position_of(state, "c2", "eval") == ("c0", 1)
    assert position_of(state, "c0", "eval") == ("c0", 0)
    assert position_of(state, "other", "eval") is None
    assert position_of(None, "c0", "eval") is None


def test_an_eval_waits_for_its_predecessor_only_until_that_has_arrived() -> None:
    order = CallOrder()
    assert order.predecessor("m", 0) is None
    before = order.predecessor("m", 1)
    assert before is not None
    assert not before.done()
    order.arrived("m", 0)
    assert before.done()
    assert order.predecessor("m", 1) is None


def test_an_eval_whose_predecessor_never_comes_runs_all_the_same(scripted: Any, ask: Ask) -> None:
    from langchain.agents.middleware import AgentMiddleware
    from langchain_core.messages import ToolMessage

    class Refusing(AgentMiddleware[Any, Any, Any]):
        def wrap_tool_call(self, request: Any, handler: Any) -> Any:
            if request.tool_call["args"]["code"] == "1":
                return ToolMessage("refused", tool_call_id=request.tool_call["id"], name="eval")
            return handler(request)

    agent = scripted.agent(
        [scripted.evals("1", "2"), AIMessage("done")], Refusing(), scripted.middleware()
    )
    assert scripted.texts(agent.invoke(ask())) == ["refused", "<result>2</result>"]


def test_without_a_checkpointer_the_next_result_says_that_an_idle_sessions_state_is_lost(
    scripted: Any, ask: Ask
) -> None:
    middleware = scripted.middleware(park=0, pool=None)
    agent = scripted.agent(
        [*scripted.turn("var x = 1"), *scripted.turn("typeof x", "2")], middleware
    )
    agent.invoke(ask(), config(thread_id="a"))
    assert middleware._evaluator.sandbox.pool.stats()["sessions"] == 0
    first, second = scripted.texts(agent.invoke(ask(), config(thread_id="a")))[-2:]
    assert first.startswith("<result>undefined</result>\n<note>the REPL's state is lost")
    assert second == "<result>2</result>"


def test_without_a_checkpointer_a_threads_state_stays_in_the_process(
    scripted: Any, ask: Ask
) -> None:
    agent = scripted.agent(
        [*scripted.turn("var x = 1"), *scripted.turn("x + 1")], scripted.middleware()
    )
    agent.invoke(ask(), config(thread_id="a"))
    assert scripted.texts(agent.invoke(ask(), config(thread_id="a"))) == ["<result>2</result>"]


def test_when_all_slots_are_taken_the_least_recently_used_conversation_gives_its_up(
    scripted: Any, ask: Ask
) -> None:
    with Pool(max_sessions=2, limits=Limits(), checkout_timeout=5.0) as pool:
        middleware = scripted.middleware(pool=pool)
        script = [line for n in range(4) for line in scripted.turn(f"var n = {n}; n")]
        agent = scripted.agent(script, middleware, checkpointer=InMemorySaver())
        for n in range(4):
            state = agent.invoke(ask(), config(thread_id=f"t{n}"))
            assert scripted.texts(state) == [f"<result>{n}</result>"]
        assert pool.stats()["sessions"] == 2


def test_a_pool_without_a_free_slot_is_a_result_for_the_model(scripted: Any, ask: Ask) -> None:
    with Pool(max_sessions=1, checkout_timeout=0.1) as pool, pool.session():
        agent = scripted.agent(scripted.turn("1"), scripted.middleware(pool=pool))
        (text,) = scripted.texts(agent.invoke(ask()))
    assert text.startswith('<error type="PoolExhausted">')


@pytest.mark.parametrize("options", [{}, {"pool": None}], ids=["shared pool", "own pool"])
def test_a_closed_middleware_says_so(scripted: Any, ask: Ask, options: dict[str, Any]) -> None:
    from qjs_pool import SessionClosed

    middleware = scripted.middleware(**options)
    agent = scripted.agent(scripted.turn("1"), middleware)
    middleware.close()
    middleware.close()
    with pytest.raises(SessionClosed, match="the middleware is closed"):
        agent.invoke(ask())


def test_a_forgotten_middleware_leaves_no_process(ask: Ask, scripted: Any) -> None:
    import gc

    import psutil

    from qjs_pool.middleware import CodeInterpreterMiddleware

    before = {child.pid for child in psutil.Process().children()}
    middleware: Any = CodeInterpreterMiddleware()
    assert middleware.tools[0].invoke({"code": "1 + 1"}) == "<result>2</result>"
    started = [c for c in psutil.Process().children() if c.pid not in before]
    assert started
    del middleware
    gc.collect()
    _, alive = psutil.wait_procs(started, timeout=10)
    assert not alive
