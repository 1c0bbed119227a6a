"""One suite of middlewares and tools on two agent loops: ours, and `langchain.agents.create_agent`.

It imports neither langchain nor langgraph itself: `test_import.py` runs it without them, too.
"""

from __future__ import annotations

import asyncio
import contextlib
import operator
import threading
from collections.abc import Iterator, Sequence
from typing import Annotated, Any, NotRequired

import pytest
from langchain_core.messages import AIMessage, RemoveMessage, SystemMessage, ToolMessage
from langchain_core.tools import InjectedToolArg, InjectedToolCallId, tool

from qjs_pool.middleware.agent import (
    AgentMiddleware,
    AgentState,
    Command,
    ExtendedModelResponse,
    InjectedState,
    ModelResponse,
    ToolRuntime,
    hook_config,
)


def _call(name: str, call_id: str, **args: Any) -> dict[str, Any]:
    return {"name": name, "args": args, "id": call_id}


def calls(*made: dict[str, Any]) -> AIMessage:
    return AIMessage("", tool_calls=list(made))


class Loop:
    """Builds agents of one kind, and runs their turns in one of two ways."""

    def __init__(self, scripted: Any, kind: str, how: str) -> None:
        self.how = how
        self._scripted = scripted
        self._kind = kind

    def run(
        self,
        script: Sequence[Any],
        *middleware: Any,
        state: dict[str, Any] | None = None,
        **more: Any,
    ) -> Any:
        """The state at the end of a turn."""
        agent = self._scripted.agent(script, *middleware, kind=self._kind, **more)
        given = state or {"messages": [("user", "go")]}
        return asyncio.run(agent.ainvoke(given)) if self.how == "ainvoke" else agent.invoke(given)

    def streamed(self, script: Sequence[Any], *middleware: Any, **more: Any) -> list[Any]:
        """The updates of a turn."""
        agent = self._scripted.agent(script, *middleware, kind=self._kind, **more)
        given = {"messages": [("user", "go")]}

        async def all_of_it() -> list[Any]:
            return [chunk async for chunk in agent.astream(given, stream_mode="updates")]

        if self.how == "ainvoke":
            return asyncio.run(all_of_it())
        return list(agent.stream(given, stream_mode="updates"))


@pytest.fixture(params=["loop-invoke", "loop-ainvoke", "langchain-invoke", "langchain-ainvoke"])
def loop(scripted: Any, request: pytest.FixtureRequest) -> Loop:
    kind, _, how = request.param.partition("-")
    if kind == "langchain":
        pytest.importorskip("langchain")
    return Loop(scripted, "loop" if kind == "loop" else "agent", how)


def contents(state: Any) -> list[str]:
    return [str(message.content) for message in state["messages"]]


@tool
def double(n: int) -> int:
    """Twice a number."""
    return 2 * n


# --- hooks ---------------------------------------------------------------------------------------


class Logging(AgentMiddleware[Any, Any, Any]):
    def __init__(self, name: str, log: list[str]) -> None:
        self._name = name
        self._log = log

    @property
    def name(self) -> str:
        return self._name

    def _note(self, what: str) -> None:
        self._log.append(f"{self._name} {what}")

    def before_agent(self, state: Any, runtime: Any) -> None:
        self._note("before agent")

    def before_model(self, state: Any, runtime: Any) -> None:
        self._note("before model")

    def after_model(self, state: Any, runtime: Any) -> None:
        self._note("after model")

    def after_agent(self, state: Any, runtime: Any) -> None:
        self._note("after agent")

    async def abefore_agent(self, state: Any, runtime: Any) -> None:
        self.before_agent(state, runtime)

    async def abefore_model(self, state: Any, runtime: Any) -> None:
        self.before_model(state, runtime)

    async def aafter_model(self, state: Any, runtime: Any) -> None:
        self.after_model(state, runtime)

    async def aafter_agent(self, state: Any, runtime: Any) -> None:
        self.after_agent(state, runtime)

    @contextlib.contextmanager
    def _around(self, what: str) -> Iterator[None]:
        self._note(f"{what} in")
        yield
        self._note(f"{what} out")

    def wrap_model_call(self, request: Any, handler: Any) -> Any:
        with self._around("model"):
            return handler(request)

    async def awrap_model_call(self, request: Any, handler: Any) -> Any:
        with self._around("model"):
            return await handler(request)

    def wrap_tool_call(self, request: Any, handler: Any) -> Any:
        with self._around("tool"):
            return handler(request)

    async def awrap_tool_call(self, request: Any, handler: Any) -> Any:
        with self._around("tool"):
            return await handler(request)


def test_hooks_before_run_in_order_those_after_in_reverse_and_wrappers_as_layers(
    loop: Loop,
) -> None:
    log: list[str] = []
    script = [calls(_call("double", "1", n=2)), AIMessage("done")]
    state = loop.run(script, Logging("a", log), Logging("b", log), tools=[double])
    model = ["a before model", "b before model", "a model in", "b model in", "b model out",
             "a model out", "b after model", "a after model"]  # fmt: skip
    tools = ["a tool in", "b tool in", "b tool out", "a tool out"]
    before, after = ["a before agent", "b before agent"], ["b after agent", "a after agent"]
    assert log == [*before, *model, *tools, *model, *after]
    assert contents(state) == ["go", "", "4", "done"]


def test_a_stream_gives_each_nodes_update_under_its_name(loop: Loop) -> None:
    script = [calls(_call("double", "1", n=2)), AIMessage("done")]
    chunks = loop.streamed(script, Logging("log", []), tools=[double])
    assert [next(iter(chunk)) for chunk in chunks] == [
        "log.before_agent", "log.before_model", "model", "log.after_model", "tools",
        "log.before_model", "model", "log.after_model", "log.after_agent",
    ]  # fmt: skip
    assert chunks[0] == {"log.before_agent": None}
    assert chunks[4]["tools"]["messages"][0].content == "4"
    assert chunks[6]["model"]["messages"][0].content == "done"


class CountingState(AgentState[Any]):
    model_calls: NotRequired[Annotated[int, operator.add]]
    last: NotRequired[str]


class Counting(AgentMiddleware[Any, Any, Any]):
    state_schema = CountingState

    def after_model(self, state: Any, runtime: Any) -> dict[str, Any]:
        return {"model_calls": 1, "last": f"after {state.get('model_calls', 0)}"}


def test_a_reducer_in_a_state_schema_merges_and_other_keys_are_overwritten(loop: Loop) -> None:
    script = [calls(_call("double", "1", n=2)), AIMessage("done")]
    state = loop.run(script, Counting(), tools=[double])
    assert (state["model_calls"], state["last"]) == (2, "after 1")


class Trimming(AgentMiddleware[Any, Any, Any]):
    """Removes what was said before the last message, and replaces that."""

    def before_model(self, state: Any, runtime: Any) -> dict[str, Any]:
        *old, last = state["messages"]
        return {
            "messages": [
                *(RemoveMessage(id=message.id) for message in old),
                last.model_copy(update={"content": "short"}),
            ]
        }


def test_messages_are_removed_and_replaced_by_their_ids(loop: Loop) -> None:
    asked: list[Any] = []
    given = {"messages": [("user", "one"), ("ai", "two"), ("user", "three")]}
    state = loop.run([AIMessage("done")], Trimming(), state=given, asked=asked)
    assert contents(state) == ["short", "done"]
    assert [message.content for message in asked[0]] == ["short"]


# --- jumps ---------------------------------------------------------------------------------------


class Jumping(AgentMiddleware[Any, Any, Any]):
    """Jumps at one hook, once."""

    def __init__(self, hook: str, target: str, update: dict[str, Any] | None = None) -> None:
        self._hook, self._answer = hook, {"jump_to": target, **(update or {})}
        self._done = False

    def _maybe(self, hook: str) -> dict[str, Any] | None:
        if hook != self._hook or self._done:
            return None
        self._done = True
        return dict(self._answer)

    @hook_config(can_jump_to=["end", "model", "tools"])
    def before_agent(self, state: Any, runtime: Any) -> Any:
        return self._maybe("before_agent")

    @hook_config(can_jump_to=["end", "tools"])
    def before_model(self, state: Any, runtime: Any) -> Any:
        return self._maybe("before_model")

    @hook_config(can_jump_to=["end", "model", "tools"])
    def after_model(self, state: Any, runtime: Any) -> Any:
        return self._maybe("after_model")


@pytest.mark.parametrize("hook", ["before_agent", "before_model"])
def test_a_jump_to_the_end_skips_the_model_but_not_the_hooks_after_the_agent(
    loop: Loop, hook: str
) -> None:
    log: list[str] = []
    jumping = Jumping(hook, "end", {"messages": [AIMessage("no")]})
    state = loop.run([], jumping, Logging("log", log), tools=[double])
    assert contents(state) == ["go", "no"]
    assert log[-1] == "log after agent"
    assert "log model in" not in log
    assert state.get("jump_to") is None


def test_a_jump_to_the_end_after_the_model_leaves_its_tools_alone(loop: Loop) -> None:
    log: list[str] = []
    script = [calls(_call("double", "1", n=2))]
    loop.run(script, Jumping("after_model", "end"), Logging("log", log), tools=[double])
    assert "log tool in" not in log
    assert log[-1] == "log after agent"


def test_a_jump_to_the_model_asks_it_again_from_its_first_hook_on(loop: Loop) -> None:
    log: list[str] = []
    again = Jumping("after_model", "model", {"messages": [("user", "really?")]})
    state = loop.run([AIMessage("a"), AIMessage("b")], Logging("log", log), again, tools=[double])
    assert contents(state) == ["go", "a", "really?", "b"]
    assert log.count("log before model") == 2
    # The hooks behind the jump did not run.
    assert log.count("log after model") == 1


@pytest.mark.parametrize("hook", ["before_agent", "before_model"])
def test_a_jump_to_the_tools_makes_the_calls_that_the_state_holds(loop: Loop, hook: str) -> None:
    asked: list[Any] = []
    given = {"messages": [("user", "go"), calls(_call("double", "1", n=4))]}
    jumping = Jumping(hook, "tools")
    state = loop.run([AIMessage("done")], jumping, state=given, tools=[double], asked=asked)
    assert contents(state) == ["go", "", "8", "done"]
    assert len(asked) == 1


class Answering(AgentMiddleware[Any, Any, Any]):
    """Answers a call in the tool's place."""

    def after_model(self, state: Any, runtime: Any) -> Any:
        made = state["messages"][-1].tool_calls
        return {"messages": [ToolMessage("mine", tool_call_id=one["id"]) for one in made]}


def test_calls_that_a_hook_has_answered_are_not_made_and_the_model_goes_on(loop: Loop) -> None:
    script = [calls(_call("double", "1", n=2)), AIMessage("done")]
    assert contents(loop.run(script, Answering(), tools=[double])) == ["go", "", "mine", "done"]


# --- around the model ----------------------------------------------------------------------------


class FromSync(AgentMiddleware[Any, Any, Any]):
    """Its async wrapper drives the steps that its sync wrapper drives."""

    def steps(self, request: Any) -> Any:
        raise NotImplementedError

    def wrap_model_call(self, request: Any, handler: Any) -> Any:
        steps = self.steps(request)
        asked = next(steps)
        while True:
            try:
                answer = handler(asked)
            except LookupError as error:
                step, given = steps.throw, error
            else:
                step, given = steps.send, answer
            try:
                asked = step(given)
            except StopIteration as end:
                return end.value

    async def awrap_model_call(self, request: Any, handler: Any) -> Any:
        steps = self.steps(request)
        asked = next(steps)
        while True:
            try:
                answer = await handler(asked)
            except LookupError as error:
                step, given = steps.throw, error
            else:
                step, given = steps.send, answer
            try:
                asked = step(given)
            except StopIteration as end:
                return end.value


class Retrying(FromSync):
    def __init__(self, fallback: Any) -> None:
        self._fallback = fallback

    def steps(self, request: Any) -> Any:
        try:
            return (yield request)
        except LookupError:
            return (yield request.override(model=self._fallback))


def test_a_failed_model_call_is_made_again_with_another_model(loop: Loop, scripted: Any) -> None:
    fallback = scripted.model([AIMessage("from the other one")])
    assert contents(loop.run([], Retrying(fallback))) == ["go", "from the other one"]


class Rewriting(FromSync):
    def __init__(self, seen: list[Any]) -> None:
        self._seen = seen

    def steps(self, request: Any) -> Any:
        before = (request.system_message.content, len(request.tools), len(request.messages))
        changed = request.override(
            system_message=SystemMessage("new prompt"), tools=[], messages=request.messages[-1:]
        )
        response = yield changed
        after = (request.system_message.content, len(request.tools), len(request.messages))
        self._seen += [before, after]
        return response


def test_a_rewritten_request_is_a_copy(loop: Loop) -> None:
    seen: list[Any] = []
    asked: list[Any] = []
    given = {"messages": [("user", "a"), ("ai", "b"), ("user", "c")]}
    loop.run(
        [AIMessage("done")], Rewriting(seen), state=given, tools=[double], asked=asked,
        system_prompt="old prompt",
    )  # fmt: skip
    assert [message.content for message in asked[0]] == ["new prompt", "c"]
    assert seen == [("old prompt", 1, 3)] * 2


class ShortCircuit(AgentMiddleware[Any, Any, Any]):
    def __init__(self, answer: Any) -> None:
        self._answer = answer

    def wrap_model_call(self, request: Any, handler: Any) -> Any:
        return self._answer

    async def awrap_model_call(self, request: Any, handler: Any) -> Any:
        return self._answer


@pytest.mark.parametrize(
    "answer", [AIMessage("cached"), ModelResponse(result=[AIMessage("cached")])], ids=repr
)
def test_a_wrapper_may_answer_in_the_models_place(loop: Loop, answer: Any) -> None:
    asked: list[Any] = []
    assert contents(loop.run([], ShortCircuit(answer), asked=asked)) == ["go", "cached"]
    assert asked == []


class Adding(FromSync):
    """Adds an update to the response."""

    state_schema = CountingState

    def steps(self, request: Any) -> Any:
        response = yield request
        return ExtendedModelResponse(
            model_response=response, command=Command(update={"model_calls": 10, "last": "inner"})
        )


class Twice(FromSync):
    """Makes every model call twice, and keeps the second response."""

    state_schema = CountingState

    def steps(self, request: Any) -> Any:
        yield request
        response = yield request
        return ExtendedModelResponse(
            model_response=response, command=Command(update={"model_calls": 1})
        )


def test_updates_of_wrappers_are_merged_without_those_of_a_call_that_was_made_again(
    loop: Loop,
) -> None:
    state = loop.run([AIMessage("a"), AIMessage("b")], Twice(), Adding())
    assert (state["model_calls"], state["last"]) == (11, "inner")
    assert contents(state) == ["go", "b"]


# --- tools ---------------------------------------------------------------------------------------


class Caching(AgentMiddleware[Any, Any, Any]):
    def __init__(self) -> None:
        self._known: dict[int, str] = {}

    def wrap_tool_call(self, request: Any, handler: Any) -> Any:
        n = request.tool_call["args"]["n"]
        if n not in self._known:
            self._known[n] = handler(request).content
        return ToolMessage(self._known[n], tool_call_id=request.tool_call["id"])

    async def awrap_tool_call(self, request: Any, handler: Any) -> Any:
        n = request.tool_call["args"]["n"]
        if n not in self._known:
            self._known[n] = (await handler(request)).content
        return ToolMessage(self._known[n], tool_call_id=request.tool_call["id"])


def test_a_cache_around_tools_lets_each_input_through_once(loop: Loop) -> None:
    ran: list[int] = []

    @tool
    def slow(n: int) -> int:
        """A number."""
        ran.append(n)
        return n + 100

    script = [calls(_call("slow", str(i), n=n)) for i, n in enumerate((1, 2, 1))]
    state = loop.run([*script, AIMessage("done")], Caching(), tools=[slow])
    assert [m.content for m in state["messages"] if m.type == "tool"] == ["101", "102", "101"]
    assert ran == [1, 2]


class RetryingTools(AgentMiddleware[Any, Any, Any]):
    def wrap_tool_call(self, request: Any, handler: Any) -> Any:
        try:
            return handler(request)
        except ConnectionError:
            return handler(request)

    async def awrap_tool_call(self, request: Any, handler: Any) -> Any:
        try:
            return await handler(request)
        except ConnectionError:
            return await handler(request)


def test_a_wrapper_sees_the_tools_exception_and_may_call_it_again(loop: Loop) -> None:
    tries: list[int] = []

    @tool
    def flaky() -> str:
        """Fails the first time."""
        tries.append(1)
        if len(tries) == 1:
            raise ConnectionError("lost")
        return "fine"

    script = [calls(_call("flaky", "1")), AIMessage("done")]
    assert contents(loop.run(script, RetryingTools(), tools=[flaky]))[2] == "fine"


def test_calls_of_one_message_run_at_once_and_their_answers_keep_its_order(loop: Loop) -> None:
    meeting = threading.Barrier(3, timeout=30)
    order: list[int] = []
    done = {n: threading.Event() for n in (1, 2, 3, 4)}
    done[4].set()

    @tool
    def meet(n: int) -> int:
        """Return when three are here, the later ones first."""
        meeting.wait()
        done[n + 1].wait(30)
        order.append(n)
        done[n].set()
        return n

    script = [calls(*(_call("meet", str(n), n=n) for n in (1, 2, 3))), AIMessage("done")]
    state = loop.run(script, tools=[meet])
    assert order == [3, 2, 1]
    assert contents(state)[2:5] == ["1", "2", "3"]


@tool
def remember(
    text: str,
    seen: Annotated[Any, InjectedState("last")],
    tool_call_id: Annotated[str, InjectedToolCallId],
) -> Any:
    """Note a text in the state."""
    answer = ToolMessage(f"was {seen}", tool_call_id=tool_call_id)
    return Command(update={"last": text, "model_calls": 5, "messages": [answer]})


@tool
def recall(runtime: ToolRuntime) -> str:
    """What is in the state."""
    state = runtime.state
    return f"{state['last']} {state['model_calls']} {runtime.tool_call_id}"


def test_tools_update_the_state_and_get_it_injected(loop: Loop) -> None:
    script = [
        calls(_call("remember", "1", text="a")),
        calls(_call("remember", "2", text="b")),
        calls(_call("recall", "3")),
        AIMessage("done"),
    ]
    given = {"messages": [("user", "go")], "last": "none"}
    state = loop.run(script, Adding(), state=given, tools=[remember, recall])
    texts = [message.content for message in state["messages"] if message.type == "tool"]
    # Three model calls by then, ten each, and twice five from the tool.
    assert texts == ["was inner", "was inner", "inner 40 3"]
    assert state["model_calls"] == 50


@tool
def guarded(text: str, token: Annotated[str, InjectedToolArg] = "none") -> str:
    """Has an argument that is its host's to give."""
    return f"{text} {token}"


def test_the_model_cannot_forge_what_is_injected(loop: Loop) -> None:
    made = calls(
        _call("remember", "1", text="a", seen="forged", tool_call_id="other"),
        _call("guarded", "2", text="b", token="forged"),
    )
    state = loop.run([made, AIMessage("done")], Counting(), tools=[remember, guarded])
    assert contents(state)[2:4] == ["was after 0", "b none"]


class Contributing(AgentMiddleware[Any, Any, Any]):
    tools = (double,)


def test_a_middleware_brings_tools_of_its_own(loop: Loop) -> None:
    script = [calls(_call("double", "1", n=21)), AIMessage("done")]
    assert contents(loop.run(script, Contributing()))[2] == "42"


def test_an_unknown_tool_and_bad_input_are_errors_for_the_model_to_read(loop: Loop) -> None:
    script = [calls(_call("triple", "1"), _call("double", "2", n="x")), AIMessage("done")]
    state = loop.run(script, tools=[double])
    unknown, bad = state["messages"][2:4]
    assert (unknown.status, bad.status) == ("error", "error")
    assert "triple" in unknown.content
    assert "double" in unknown.content
    assert "n: " in bad.content


def test_what_a_direct_tool_returns_is_the_answer(loop: Loop) -> None:
    @tool(return_direct=True)
    def final(text: str) -> str:
        """The last word."""
        return text

    state = loop.run([calls(_call("final", "1", text="that's it"))], tools=[final])
    assert contents(state) == ["go", "", "that's it"]


def test_a_program_in_the_repl_calls_tools_through_the_layers_and_its_state_lasts(
    loop: Loop, scripted: Any
) -> None:
    log: list[str] = []
    script = scripted.turn("var n = await tools.double({n: 4}); n", "n + 1")
    interpreter = scripted.middleware(ptc=["double"])
    state = loop.run(script, interpreter, Logging("log", log), tools=[double])
    assert scripted.texts(state) == ["<result>8</result>", "<result>9</result>"]
    assert log.count("log tool in") == 3
