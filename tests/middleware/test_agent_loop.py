"""Our own agent loop, where it says more than LangChain's `create_agent`, or something else."""

from __future__ import annotations

import asyncio
import threading
from typing import Annotated, Any, NotRequired

import pytest
from langchain_core.messages import AIMessage, HumanMessage, ToolMessage
from langchain_core.tools import tool

from qjs_pool.middleware.agent import (
    AgentMiddleware,
    AgentState,
    Command,
    ToolRuntime,
    create_agent,
    hook_config,
)

HOWS = ["invoke", "ainvoke"]


def call(name: str, call_id: str = "1", **args: Any) -> dict[str, Any]:
    return {"name": name, "args": args, "id": call_id}


def calls(*made: dict[str, Any]) -> AIMessage:
    return AIMessage("", tool_calls=list(made))


def run(agent: Any, how: str = "invoke", state: Any = None, **more: Any) -> Any:
    given = {"messages": [("user", "go")]} if state is None else state
    if how == "ainvoke":
        return asyncio.run(agent.ainvoke(given, **more))
    return agent.invoke(given, **more)


def answers(state: Any) -> list[ToolMessage]:
    return [message for message in state["messages"] if isinstance(message, ToolMessage)]


@tool
def double(n: int) -> int:
    """Twice a number."""
    return 2 * n


@tool
def broken(n: int) -> int:
    """Always fails."""
    raise ValueError(f"row {n} has no price")


class Hook(AgentMiddleware[Any, Any, Any]):
    """Has one of the hooks, as a test wants it."""

    @staticmethod
    def that(hook: str, does: Any, can_jump_to: list[Any] | None = None) -> Any:
        def method(self: Any, *args: Any) -> Any:
            return does(*args)

        async def amethod(self: Any, *args: Any) -> Any:
            return does(*args)

        chosen: Any = amethod if hook.startswith("a") and hook[1:] in _HOOKS else method
        if can_jump_to is not None:
            chosen = hook_config(can_jump_to=can_jump_to)(chosen)
        return type("Hook", (Hook,), {hook: chosen})()


_HOOKS = ("before_agent", "before_model", "after_model", "after_agent",
          "wrap_model_call", "wrap_tool_call")  # fmt: skip


def raising(error: Exception) -> Any:
    def does(*_: Any) -> Any:
        raise error

    return does


# --- jumps and errors of hooks -------------------------------------------------------------------


@pytest.mark.parametrize("how", HOWS)
@pytest.mark.parametrize(
    ("hook", "target", "declared", "said"),
    [
        ("before_agent", "end", None, r"Hook.before_agent jumps to 'end' without @hook_config"),
        ("before_model", "tools", ["end"], r"Hook.before_model jumps to 'tools' without"),
        ("after_model", "model", None, r"Hook.after_model jumps to 'model' without"),
        ("after_model", "nowhere", ["end"], r"'nowhere'; it can only be to 'end', 'model' or"),
        ("after_agent", "model", ["model"], r"Hook.after_agent jumps to 'model', but the turn is"),
    ],
)
def test_a_jump_that_is_not_declared_or_leads_nowhere_names_hook_and_target(
    scripted: Any, how: str, hook: str, target: str, declared: Any, said: str
) -> None:
    hooked = Hook.that(hook, lambda *_: {"jump_to": target}, declared)
    agent = scripted.agent([AIMessage("done")], hooked, kind="loop")
    with pytest.raises(ValueError, match=said):
        run(agent, how)


@pytest.mark.parametrize("hook", _HOOKS)
def test_an_error_of_a_hook_keeps_its_type_and_names_middleware_and_hook(
    scripted: Any, hook: str
) -> None:
    hooked = Hook.that(hook, raising(KeyError("mine")))
    script = [calls(call("double", n=1)), AIMessage("done")]
    agent = scripted.agent(script, hooked, tools=[double], kind="loop")
    with pytest.raises(KeyError, match="mine") as raised:
        run(agent)
    assert raised.value.__notes__ == [f"raised by the hook {hook} of the middleware Hook"]


def test_what_a_hook_returns_is_checked(scripted: Any) -> None:
    agent = scripted.agent([], Hook.that("before_agent", lambda *_: ["x"]), kind="loop")
    with pytest.raises(TypeError, match="it returned list, not a dict"):
        run(agent)


@pytest.mark.parametrize("how", HOWS)
def test_a_models_error_is_not_blamed_on_the_wrapper_it_passes_through(
    scripted: Any, how: str
) -> None:
    class Passing(AgentMiddleware[Any, Any, Any]):
        def wrap_model_call(self, request: Any, handler: Any) -> Any:
            return handler(request)

        async def awrap_model_call(self, request: Any, handler: Any) -> Any:
            return await handler(request)

    agent = scripted.agent([], Passing(), kind="loop")
    with pytest.raises(LookupError, match="the script is over") as raised:
        run(agent, how)
    assert not hasattr(raised.value, "__notes__")


@pytest.mark.parametrize(
    ("hook", "how", "instead"),
    [
        ("abefore_model", "invoke", "ainvoke"),
        ("awrap_model_call", "invoke", "ainvoke"),
        ("wrap_model_call", "ainvoke", "invoke"),
    ],
)
def test_a_hook_of_the_other_kind_only_is_an_error_that_says_what_to_use(
    scripted: Any, hook: str, how: str, instead: str
) -> None:
    agent = scripted.agent([], Hook.that(hook, lambda *_: None), kind="loop")
    with pytest.raises(NotImplementedError, match=instead):
        run(agent, how)


# --- failing tools -------------------------------------------------------------------------------


@pytest.mark.parametrize("how", HOWS)
def test_a_failing_tool_answers_with_its_error_and_the_others_with_their_results(
    scripted: Any, how: str
) -> None:
    script = [calls(call("broken", "1", n=17), call("double", "2", n=4)), AIMessage("done")]
    state = run(scripted.agent(script, tools=[broken, double], kind="loop"), how)
    failed, fine = answers(state)
    assert (failed.content, failed.status) == ("ValueError: row 17 has no price", "error")
    assert (fine.content, fine.status) == ("8", "success")
    assert state["messages"][-1].content == "done"


@tool
def commanding(form: str, runtime: ToolRuntime) -> Any:
    """Returns a command of some form."""
    answer = {"messages": [ToolMessage("ok", tool_call_id=runtime.tool_call_id)]}
    return {
        "to the end": Command(update=answer, goto="end"),
        "as a graph has it": Command(update=answer, goto="__end__"),
        "to the model": Command(update=answer, goto="model"),
        "elsewhere": Command(update=answer, goto="somewhere"),
        "unanswered": Command(update={"key": 1}),
        "to a parent": Command(update=answer, graph=Command.PARENT),
    }[form]


@pytest.mark.parametrize(
    ("form", "models", "said"),
    [
        ("to the end", 1, "ok"),
        ("as a graph has it", 1, "ok"),
        ("to the model", 2, "ok"),
        ("elsewhere", 2, "ValueError: a Command can go to 'end', 'model' or 'tools', not to"),
        ("unanswered", 2, "ValueError: a Command must bring one ToolMessage"),
        ("to a parent", 2, "ValueError: a Command of graph= or resume= is for a graph"),
    ],
)
def test_a_tools_command_says_where_to_go_on_or_what_is_wrong_with_it(
    scripted: Any, form: str, models: int, said: str
) -> None:
    asked: list[Any] = []
    script = [calls(call("commanding", form=form)), AIMessage("done")]
    state = run(scripted.agent(script, tools=[commanding], kind="loop", asked=asked))
    assert answers(state)[0].content.startswith(said)
    assert len(asked) == models
    assert "key" not in state


# --- the end of a turn ---------------------------------------------------------------------------


@pytest.mark.parametrize("how", HOWS)
def test_a_turn_that_would_go_on_for_ever_ends_with_a_message_that_says_so(
    scripted: Any, how: str
) -> None:
    asked: list[Any] = []
    ended: list[int] = []
    endless = [calls(call("double", str(n), n=n)) for n in range(9)]
    agent = scripted.agent(
        endless, Hook.that("after_agent", lambda state, _: ended.append(len(state["messages"]))),
        tools=[double], kind="loop", asked=asked, max_iterations=3,
    )  # fmt: skip
    state = run(agent, how)
    last = state["messages"][-1]
    assert isinstance(last, AIMessage)
    assert last.response_metadata == {"stop_reason": "max_iterations"}
    assert last.content == "Stopped after 3 model calls without a final answer."
    assert len(asked) == 3
    # Every call of the history is answered, so that it can be gone on from.
    assert [message.content for message in answers(state)] == ["0", "2", "4"]
    assert ended == [len(state["messages"])]


def test_hooks_that_jump_in_a_circle_use_up_the_iterations(scripted: Any) -> None:
    circle = Hook.that("before_model", lambda *_: {"jump_to": "model"}, ["model"])
    state = run(scripted.agent([], circle, kind="loop", max_iterations=5))
    assert state["messages"][-1].response_metadata == {"stop_reason": "max_iterations"}


@pytest.mark.parametrize(
    ("arguments", "error", "said"),
    [
        ({"model": "openai:gpt"}, TypeError, "model must be a chat model"),
        ({"max_iterations": 0}, ValueError, "max_iterations=0"),
        ({"max_iterations": 2.5}, TypeError, "max_iterations must be an int"),
        ({"middleware": [object()]}, TypeError, "AgentMiddleware"),
        ({"middleware": [Hook(), Hook()]}, ValueError, "two middlewares have the name 'Hook'"),
        (
            {"tools": [double, tool("double", description="d")(lambda n: n)]},
            ValueError,
            "two tools have the name",
        ),
    ],
)
def test_bad_arguments_are_named(
    scripted: Any, arguments: dict[str, Any], error: type[Exception], said: str
) -> None:
    with pytest.raises(error, match=said):
        create_agent(**{"model": scripted.model([]), "tools": [], **arguments})


# --- state ---------------------------------------------------------------------------------------


def _longer(old: list[str], new: list[str]) -> list[str]:
    if not isinstance(new, list):
        raise TypeError("not a list")
    return [*old, *new]


class LogState(AgentState[Any]):
    log: NotRequired[Annotated[list[str], _longer]]


def test_what_the_caller_gave_and_what_hooks_are_shown_is_nobody_elses(scripted: Any) -> None:
    def spoil(state: Any, _: Any) -> None:
        state["messages"].clear()
        state["key"] = "spoilt"

    given = {"messages": [HumanMessage("go", id="m1")], "key": "mine"}
    state = run(scripted.agent([AIMessage("done")], Hook.that("before_model", spoil), kind="loop"),
                state=given)  # fmt: skip
    assert [message.content for message in state["messages"]] == ["go", "done"]
    assert state["key"] == "mine"
    assert given == {"messages": [HumanMessage("go", id="m1")], "key": "mine"}


def test_a_reducer_goes_on_from_what_the_caller_gives_and_its_error_names_the_key(
    scripted: Any,
) -> None:
    class Logs(AgentMiddleware[Any, Any, Any]):
        state_schema = LogState

        def __init__(self, entry: Any) -> None:
            self._entry = entry

        def before_agent(self, state: Any, runtime: Any) -> Any:
            return {"log": self._entry}

    agent = scripted.agent([AIMessage("a"), AIMessage("b")], Logs(["x"]), kind="loop")
    state = run(agent, state={**run(agent), "messages": [("user", "again")]})
    assert state["log"] == ["x", "x"]
    with pytest.raises(TypeError, match="not a list") as raised:
        run(scripted.agent([], Logs("text"), kind="loop"))
    assert "'log'" in raised.value.__notes__[0]


def test_a_stream_of_values_gives_the_state_as_it_came_and_after_each_step(scripted: Any) -> None:
    script = [calls(call("double", n=1)), AIMessage("done")]
    agent = scripted.agent(script, tools=[double], kind="loop")
    states = list(agent.stream({"messages": "go"}, stream_mode="values"))
    assert [len(state["messages"]) for state in states] == [1, 2, 3, 4]
    with pytest.raises(ValueError, match="stream_mode='debug'"):
        next(agent.stream({"messages": "go"}, stream_mode="debug"))


def test_the_callers_context_and_config_reach_hooks_and_tools(scripted: Any) -> None:
    seen: list[Any] = []

    @tool
    def look(runtime: ToolRuntime[Any, Any]) -> str:
        """Look around."""
        names = sorted(one.name for one in runtime.tools)
        seen.append((runtime.context, runtime.config["configurable"]["user"], names))
        return "seen"

    hooked = Hook.that("before_agent", lambda _, runtime: seen.append(runtime.context))
    agent = scripted.agent(
        [calls(call("look")), AIMessage("done")], hooked, tools=[look], kind="loop"
    )
    run(agent, context="mine", config={"configurable": {"user": "u1"}, "tags": ["t"]})
    assert seen == ["mine", ("mine", "u1", ["look"])]


@pytest.mark.parametrize("how", HOWS)
def test_max_concurrency_bounds_the_calls_that_run_at_once(scripted: Any, how: str) -> None:
    lock = threading.Lock()
    most: list[int] = []
    running: list[int] = []

    @tool
    def counting(n: int) -> int:
        """A number."""
        with lock:
            running.append(n)
            most.append(len(running))
        threading.Event().wait(0.001)  # lets the others in, were they allowed
        with lock:
            running.remove(n)
        return n

    script = [calls(*(call("counting", str(n), n=n) for n in range(6))), AIMessage("done")]
    agent = scripted.agent(script, tools=[counting], kind="loop")
    state = run(agent, how, config={"max_concurrency": 1})
    assert [message.content for message in answers(state)] == [str(n) for n in range(6)]
    assert max(most) == 1


def test_cancelling_a_turn_cancels_its_tool_calls(scripted: Any) -> None:
    ended: list[str] = []

    async def cancelled() -> None:
        started = asyncio.Event()

        @tool
        async def forever() -> str:
            """Never returns."""
            started.set()
            try:
                await asyncio.Event().wait()
            finally:
                ended.append("cancelled")
            return "never"

        made = calls(call("forever", "1"), call("forever", "2"))
        agent = scripted.agent([made], tools=[forever], kind="loop")
        running = asyncio.create_task(agent.ainvoke({"messages": "go"}))
        await started.wait()
        running.cancel()
        with pytest.raises(asyncio.CancelledError):
            await running

    asyncio.run(cancelled())
    assert ended == ["cancelled", "cancelled"]


# --- what handlers see ---------------------------------------------------------------------------


@pytest.mark.parametrize("how", HOWS)
def test_callback_handlers_see_each_run_under_its_parent(scripted: Any, how: str) -> None:
    from langchain_core.callbacks import BaseCallbackHandler

    names: dict[Any, str] = {}
    tree: list[tuple[str, str | None]] = []
    ended: list[Any] = []

    class Recording(BaseCallbackHandler):
        def _started(self, name: str, run_id: Any, parent_run_id: Any) -> None:
            names[run_id] = name
            tree.append((name, names.get(parent_run_id)))

        def on_chain_start(self, s: Any, i: Any, *, run_id: Any, parent_run_id: Any = None,
                           **more: Any) -> None:  # fmt: skip
            self._started(more["name"], run_id, parent_run_id)

        def on_chain_end(self, outputs: Any, *, run_id: Any, **more: Any) -> None:
            ended.append((names[run_id], outputs["messages"][-1].content))

        def on_chat_model_start(self, s: Any, m: Any, *, run_id: Any, parent_run_id: Any = None,
                                **more: Any) -> None:  # fmt: skip
            self._started("model", run_id, parent_run_id)

        def on_tool_start(self, s: Any, i: Any, *, run_id: Any, parent_run_id: Any = None,
                          **more: Any) -> None:  # fmt: skip
            self._started(s["name"], run_id, parent_run_id)

    agent = scripted.agent(
        scripted.turn("await tools.double({n: 1})"), scripted.middleware(ptc=["double"]),
        tools=[double], kind="loop", name="helper",
    )  # fmt: skip
    run(agent, how, config={"callbacks": [Recording()]})
    # The tool that the program calls is a child of the program's run.
    assert tree == [
        ("helper", None), ("model", "helper"), ("eval", "helper"), ("double", "eval"),
        ("model", "helper"),
    ]  # fmt: skip
    assert ended == [("helper", "done")]


# --- LangChain's own middlewares -----------------------------------------------------------------


@pytest.mark.parametrize("how", HOWS)
def test_decorated_functions_of_langchain_run_unchanged(scripted: Any, how: str) -> None:
    middleware = pytest.importorskip("langchain.agents.middleware")
    log: list[str] = []

    @middleware.before_model(can_jump_to=["end"])
    def stop_at_three(state: Any, runtime: Any) -> Any:
        log.append("before")
        return {"jump_to": "end"} if len(state["messages"]) > 2 else None

    @middleware.dynamic_prompt
    def prompt(request: Any) -> str:
        return f"{len(request.messages)} so far"

    @middleware.wrap_tool_call
    def plus_one(request: Any, handler: Any) -> Any:
        args = {"n": request.tool_call["args"]["n"] + 1}
        return handler(request.override(tool_call={**request.tool_call, "args": args}))

    @middleware.wrap_tool_call
    async def aplus_one(request: Any, handler: Any) -> Any:
        args = {"n": request.tool_call["args"]["n"] + 1}
        return await handler(request.override(tool_call={**request.tool_call, "args": args}))

    asked: list[Any] = []
    agent = scripted.agent(
        [calls(call("double", n=4))], stop_at_three, prompt,
        aplus_one if how == "ainvoke" else plus_one,
        tools=[double], kind="loop", asked=asked,
    )  # fmt: skip
    state = run(agent, how)
    assert answers(state)[0].content == "10"
    assert asked[0][0].content == "1 so far"
    assert log == ["before", "before"]


def test_langchains_call_limit_counts_runs_apart_and_threads_through_the_state(
    scripted: Any,
) -> None:
    middleware = pytest.importorskip("langchain.agents.middleware")
    limit = middleware.ModelCallLimitMiddleware(run_limit=1, thread_limit=3)
    script = [calls(call("double", str(n), n=n)) for n in range(4)]
    agent = scripted.agent(script, limit, tools=[double], kind="loop")
    state = run(agent)
    assert len(answers(state)) == 1  # its one model call; the limit ended the run at the second
    state = run(agent, state={**state, "messages": [*state["messages"], ("user", "more")]})
    # The count of the run began anew, that of the thread went on.
    assert len(answers(state)) == 2
    assert state["thread_model_call_count"] == 2
    assert "run_model_call_count" not in state


@pytest.mark.parametrize("how", HOWS)
def test_langchains_todo_list_and_tool_retry_do_their_work(scripted: Any, how: str) -> None:
    middleware = pytest.importorskip("langchain.agents.middleware")
    tries: list[int] = []

    @tool
    def flaky() -> str:
        """Fails twice."""
        tries.append(1)
        if len(tries) < 3:
            raise ConnectionError("lost")
        return "fine"

    todos = [{"content": "count", "status": "pending"}]
    script = [calls(call("write_todos", "1", todos=todos)), calls(call("flaky", "2"))]
    agent = scripted.agent(
        [*script, AIMessage("done")],
        middleware.TodoListMiddleware(),
        middleware.ToolRetryMiddleware(max_retries=3, initial_delay=0.0, jitter=False),
        tools=[flaky], kind="loop",
    )  # fmt: skip
    state = run(agent, how)
    assert state["todos"] == todos
    assert answers(state)[1].content == "fine"


@pytest.mark.parametrize("how", HOWS)
def test_an_interrupt_fails_the_run_and_no_program_can_catch_it(scripted: Any, how: str) -> None:
    types = pytest.importorskip("langgraph.types")

    @tool
    def approve(what: str) -> str:
        """Ask a person."""
        return str(types.interrupt(what))

    program = "try { await tools.approve({what: 'x'}) } catch { 'went on' }"
    for script in (scripted.turn(program), [calls(call("approve", what="x")), AIMessage("done")]):
        middleware = scripted.middleware(ptc=["approve"])
        agent = scripted.agent(script, middleware, tools=[approve], kind="loop")
        with pytest.raises(RuntimeError, match=r"interrupt\(\) needs a graph with a checkpointer"):
            run(agent, how)


def test_a_hook_that_interrupts_fails_the_run(scripted: Any) -> None:
    middleware = pytest.importorskip("langchain.agents.middleware")
    approval = middleware.HumanInTheLoopMiddleware(interrupt_on={"double": True})
    agent = scripted.agent([calls(call("double", n=1))], approval, tools=[double], kind="loop")
    with pytest.raises(RuntimeError, match=r"interrupt\(\) needs a graph with a checkpointer"):
        run(agent)


def test_overwriting_replaces_a_value_past_its_reducer(scripted: Any) -> None:
    types = pytest.importorskip("langgraph.types")
    if not hasattr(types, "Overwrite"):
        pytest.skip("an older langgraph")
    over = Hook.that(
        "before_model", lambda *_: {"messages": types.Overwrite([HumanMessage("only this")])}
    )
    state = run(scripted.agent([AIMessage("done")], over, kind="loop"))
    assert [message.content for message in state["messages"]] == ["only this", "done"]
