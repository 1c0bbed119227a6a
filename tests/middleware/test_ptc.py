"""Tool calls made by programs: what crosses, what fails and how, and the path they take."""

from __future__ import annotations

import asyncio
import dataclasses
import datetime
import operator
import threading
import uuid
from collections.abc import Callable
from typing import Annotated, Any

import pytest

pytest.importorskip("langchain")
pytest.importorskip("langgraph")

from langchain.agents import AgentState
from langchain.agents.middleware import AgentMiddleware
from langchain.tools import InjectedState, InjectedStore, ToolRuntime
from langchain_core.callbacks import BaseCallbackHandler
from langchain_core.messages import AIMessage, ToolMessage
from langchain_core.tools import (
    BaseTool,
    InjectedToolCallId,
    StructuredTool,
    ToolException,
    tool,
)
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.store.memory import InMemoryStore
from langgraph.types import Command, interrupt
from pydantic import BaseModel

from .watching import Watching

Run = Callable[..., list[str]]
HOWS = ["invoke", "ainvoke"]


def turn(agent: Any, how: str, message: Any, config: Any = None) -> Any:
    if how == "invoke":
        return agent.invoke(message, config)
    return asyncio.run(agent.ainvoke(message, config))


@tool
def echo(v: Any = None) -> Any:
    """Give back what is given."""
    return v


# --- errors ---------------------------------------------------------------------------------------


@tool
def price(row: int) -> int:
    """A price."""
    raise ValueError(f"row {row} has no column 'price'")


@pytest.mark.parametrize("how", HOWS)
def test_an_uncaught_tool_failure_is_a_result_for_the_model_and_not_the_end_of_the_run(
    scripted: Any, ask: Any, how: str
) -> None:
    agent = scripted.agent(
        scripted.turn("var n = 1; await tools.price({row: 17})", "n"),
        scripted.middleware(ptc=["price"]),
        tools=[price],
    )
    failed, after = scripted.texts(turn(agent, how, ask()))
    assert failed.startswith(
        """<error type="ToolError">price failed: ValueError: row 17 has no column 'price'\n"""
    )
    assert failed.endswith("</error>")
    assert after == "<result>1</result>"


@tool
async def leaves(code: int) -> int:
    """Leave."""
    raise SystemExit(code)


@tool
def leaves_a_thread(code: int) -> int:
    """Leave."""
    raise SystemExit(code)


@pytest.mark.parametrize("left", [leaves, leaves_a_thread], ids=["loop", "thread"])
def test_a_tool_that_would_leave_the_host_has_failed(scripted: Any, ask: Any, left: Any) -> None:
    agent = scripted.agent(
        scripted.turn(
            f"await tools.{'leaves' if left is leaves else 'leavesAThread'}({{code: 3}})"
        ),
        scripted.middleware(ptc=[left.name]),
        tools=[left],
    )
    (failed,) = scripted.texts(turn(agent, "ainvoke", ask()))
    assert failed.startswith(
        f'<error type="ToolError">{left.name} failed: RuntimeError: the tool raised SystemExit: 3'
    )


def test_a_caught_tool_failure_says_what_went_wrong(run: Run) -> None:
    program = """
    (await Promise.allSettled([tools.price({row: 17}), tools.echo({v: 1})]))
      .map(r => r.reason ? `${r.reason.name}: ${r.reason.message}` : r.value)
    """
    assert run(program, tools=[price, echo]) == [
        """<result>["ValueError: row 17 has no column 'price'", 1]</result>"""
    ]


def test_an_error_thrown_by_the_program_itself_is_no_tool_error(run: Run) -> None:
    program = "try { await tools.price({row: 17}) } catch { throw new RangeError('mine') }"
    (text,) = run(program, tools=[price])
    assert text.startswith('<error type="RangeError">mine')


def test_invalid_input_rejects_with_the_tool_and_the_field_whatever_its_size(run: Run) -> None:
    @tool
    def order(sku: str, count: int) -> str:
        """Order something."""
        return sku

    program = "try { await tools.order({sku: 'x'.repeat(50000)}) } catch (e) { e.message }"
    assert run(program, tools=[order]) == [
        "<result>invalid input for order: count: Field required</result>"
    ]


def test_a_tool_that_answers_with_an_error_message_rejects(run: Run) -> None:
    @tool
    def strict(n: int) -> int:
        """Refuses."""
        raise ToolException(f"{n} is too low")

    strict.handle_tool_error = True
    assert run("try { await tools.strict({n: 1}) } catch (e) { e.message }", tools=[strict]) == [
        "<result>1 is too low</result>"
    ]


@pytest.mark.parametrize("how", HOWS)
def test_tool_errors_end_the_run_when_asked_to(scripted: Any, ask: Any, how: str) -> None:
    agent = scripted.agent(
        scripted.turn("try { await tools.price({row: 1}) } catch { 'went on' }"),
        scripted.middleware(ptc=["price"], propagate_tool_errors=True),
        tools=[price],
    )
    with pytest.raises(ValueError, match="row 1 has no column"):
        turn(agent, how, ask())


def test_an_unknown_tool_names_those_there_are(run: Run) -> None:
    (text,) = run("await tools.ecko({v: 1})", tools=[echo, price])
    assert "did you mean echo?" in text
    assert "echo, price" in text


# --- values ---------------------------------------------------------------------------------------


class Depot(BaseModel):
    code: str
    open: datetime.date


@dataclasses.dataclass
class Line:
    sku: str
    depot: Depot


VALUES: dict[str, tuple[Any, str]] = {
    "text": ("a<b", "a&lt;b"),
    "number": (1.5, "1.5"),
    "bool": (True, "true"),
    "none": (None, "null"),
    "list": ([1, "x", None], '[1, "x", null]'),
    "list of text": (["x", "y"], '["x", "y"]'),
    "dict": ({"a": {"b": [1]}}, "{a: {b: [1]}}"),
    "tuple": ((1, 2), "[1, 2]"),
    "model": (Depot(code="k", open=datetime.date(2024, 1, 2)), '{code: "k", open: "2024-01-02"}'),
    "dataclass": (
        [Line("s", Depot(code="k", open=datetime.date(2024, 1, 2)))],
        '[{sku: "s", depot: {code: "k", open: "2024-01-02"}}]',
    ),
    "uuid": (uuid.UUID(int=1), "00000000-0000-0000-0000-000000000001"),
    "bytes": (b"\x01\x02", "Uint8Array(2) [1, 2]"),
    "message": (ToolMessage("said", tool_call_id="t"), "said"),
    "unknown": ({"it": complex(1, 2)}, '{it: "(1+2j)"}'),
    "json text stays text": ('{"a": 1}', '{"a": 1}'),
}


@pytest.mark.parametrize("how", HOWS)
def test_results_cross_as_what_they_are(scripted: Any, ask: Any, how: str) -> None:
    @tool
    def give(name: str) -> Any:
        """A value."""
        return VALUES[name][0]

    programs = [f"await tools.give({{name: {name!r}}})" for name in VALUES]
    agent = scripted.agent(
        scripted.turn(*programs), scripted.middleware(ptc=["give"]), tools=[give]
    )
    texts = scripted.texts(turn(agent, how, ask()))
    assert dict(zip(VALUES, texts, strict=True)) == {
        name: f"<result>{shown}</result>" for name, (_, shown) in VALUES.items()
    }


def test_only_the_content_of_a_tool_with_an_artifact_crosses(run: Run) -> None:
    @tool(response_format="content_and_artifact")
    def both() -> tuple[dict[str, int], str]:
        """Both."""
        return {"n": 1}, "for the host only"

    assert run("await tools.both()", tools=[both]) == ["<result>{n: 1}</result>"]


def test_inputs_arrive_as_python_values(run: Run) -> None:
    seen: list[Any] = []

    @tool
    def take(v: Any = "default", w: Any = "default") -> None:
        """Note the input."""
        seen.append((v, w))

    run(
        "await tools.take({v: undefined, w: [1, null, 2.5]})",
        "await tools.take({v: new Map([['k', 1n]]), w: new Set([1])})",
        "await tools.take({v: new Date(0), w: new Uint8Array([7])})",
        tools=[take],
    )
    assert seen == [
        ("default", [1, None, 2.5]),
        ({"k": 1}, [1]),
        (datetime.datetime(1970, 1, 1, tzinfo=datetime.UTC), b"\x07"),
    ]


def test_a_lone_string_goes_to_the_only_required_field_and_other_spellings_work(run: Run) -> None:
    @tool
    def web_search(query: str, limit: int = 3) -> str:
        """Search."""
        return f"{query} {limit}"

    assert run(
        "await tools.webSearch('cats')", "await tools.web_search({query: 'dogs'})",
        tools=[web_search],
    ) == ['<result>cats 3</result>', '<result>dogs 3</result>']  # fmt: skip


def test_a_cycle_and_a_result_that_is_too_large_reject_and_the_repl_goes_on(run: Run) -> None:
    cycle: list[Any] = []
    cycle.append(cycle)

    @tool
    def bad(kind: str) -> Any:
        """A value that cannot cross."""
        return cycle if kind == "cycle" else "x" * (17 << 20)

    looped, large, after = run(
        "await tools.bad({kind: 'cycle'})", "await tools.bad({kind: 'large'})", "1 + 1", tools=[bad]
    )
    assert looped.startswith('<error type="ToolError">bad failed: ')
    assert large.startswith('<error type="ToolError">bad failed: ')
    assert after == "<result>2</result>"


def test_ten_megabytes_of_result_cross(run: Run) -> None:
    @tool
    def large() -> str:
        """10 MB."""
        return "x" * 10_000_000

    assert run("(await tools.large()).length", tools=[large]) == ["<result>10000000</result>"]


# --- many calls, slow calls, budgets --------------------------------------------------------------


@pytest.mark.parametrize("how", HOWS)
def test_256_calls_in_one_promise_all(scripted: Any, ask: Any, how: str) -> None:
    @tool
    async def square(n: int) -> int:
        """The square."""
        await asyncio.sleep(0)
        return n * n

    program = """
    const all = await Promise.all(Array.from({length: 256}, (_, n) => tools.square({n})));
    all.every((v, n) => v === n * n) && all.length
    """
    agent = scripted.agent(
        scripted.turn(program), scripted.middleware(ptc=["square"]), tools=[square]
    )
    state = turn(agent, how, ask())
    assert scripted.texts(state) == ["<result>256</result>"]
    (answer,) = scripted.answers(state)
    assert len(answer.artifact["calls"]) == 256
    assert {call["outcome"] for call in answer.artifact["calls"]} == {"ok"}
    assert answer.artifact["usage"]["host_calls"] == 256


def test_the_budget_of_calls_is_per_eval_and_told(run: Run) -> None:
    first, second = run(
        "for (;;) await tools.echo({v: 1})", "await tools.echo({v: 2})",
        tools=[echo], max_ptc_calls=3,
    )  # fmt: skip
    assert first.startswith('<error type="PTCCallBudgetExceeded">')
    assert second == "<result>2</result>"


def test_without_a_budget_there_is_none(run: Run) -> None:
    program = "let n = 0; while (n < 300) n = await tools.echo({v: n + 1}); n"
    assert run(program, tools=[echo], max_ptc_calls=None) == ["<result>300</result>"]


@pytest.mark.parametrize("how", HOWS)
def test_a_slow_sync_tool_holds_up_no_other_call(scripted: Any, ask: Any, how: str) -> None:
    release = threading.Event()

    @tool
    def slow() -> str:
        """Returns when the quick ones have."""
        return "slow" if release.wait(30) else "stuck"

    @tool
    def quick(n: int) -> int:
        """Returns at once; the last one lets the slow ones go."""
        if n == 20:
            release.set()
        return n

    program = """
    const slow = Array.from({length: 10}, () => tools.slow());
    for (let n = 1; n <= 20; n++) await tools.quick({n});
    [...new Set(await Promise.all(slow))]
    """
    agent = scripted.agent(
        scripted.turn(program), scripted.middleware(ptc=["*ow", "quick"]), tools=[slow, quick]
    )
    assert scripted.texts(turn(agent, how, ask())) == ['<result>["slow"]</result>']


@pytest.mark.parametrize("how", HOWS)
def test_a_tool_that_hangs_ends_at_the_wall_and_the_repl_goes_on(
    scripted: Any, ask: Any, how: str
) -> None:
    release = threading.Event()

    @tool
    def hang() -> None:
        """Hangs."""
        release.wait(60)

    agent = scripted.agent(
        scripted.turn("var n = 1; await tools.hang()", "typeof n"),
        scripted.middleware(ptc=["hang"], wall_timeout=0.5),
        tools=[hang],
    )
    try:
        state = turn(agent, how, ask())
    finally:
        release.set()
    text, after = scripted.texts(state)
    assert text.startswith('<error type="Timeout">')
    assert "1 tool call cancelled (hang)" in text.splitlines()[-1]
    assert after == "<result>number</result>"
    assert scripted.answers(state)[0].artifact["calls"][0]["outcome"] == "cancelled"


@pytest.mark.parametrize("how", HOWS)
def test_the_end_of_the_turn_waits_for_no_call_of_an_eval_that_was_stopped(
    scripted: Any, ask: Any, how: str
) -> None:
    release, returned = threading.Event(), threading.Event()

    @tool
    def hang() -> None:
        """Hangs."""
        release.wait(20)
        returned.set()

    agent = scripted.agent(
        scripted.turn(
            "tools.hang(); await new Promise((d) => setTimeout(d, 1)); for (;;);", "'next'"
        ),
        scripted.middleware(ptc=["hang"], timeout=0.1, wall_timeout=None),
        tools=[hang],
    )
    try:
        text, after = scripted.texts(turn(agent, how, ask()))
        assert not returned.is_set()
    finally:
        release.set()
    assert text.startswith('<error type="Timeout">')
    assert after == "<result>next</result>"


def test_a_cancelled_async_call_cleans_up_before_the_turn_ends(scripted: Any, ask: Any) -> None:
    steps: list[str] = []

    @tool
    async def hang() -> None:
        """Hangs."""
        try:
            await asyncio.Event().wait()
        finally:
            await asyncio.sleep(0.05)
            steps.append("cleaned up")

    agent = scripted.agent(
        scripted.turn("tools.hang(); await new Promise((d) => setTimeout(d, 1)); for (;;);"),
        scripted.middleware(ptc=["hang"], timeout=0.1, wall_timeout=None),
        tools=[hang],
    )

    async def run() -> None:
        (text,) = scripted.texts(await agent.ainvoke(ask()))
        steps.append("turn ended")
        assert text.startswith('<error type="Timeout">')

    asyncio.run(run())
    assert steps == ["cleaned up", "turn ended"]


def test_one_call_can_be_bounded_by_the_pool(scripted: Any, ask: Any) -> None:
    from qjs_pool import Pool

    @tool
    async def hang() -> None:
        """Hangs."""
        await asyncio.Event().wait()

    with Pool(host_timeout=0.2) as pool:
        agent = scripted.agent(
            scripted.turn("await tools.hang()"),
            scripted.middleware(ptc=["hang"], pool=pool),
            tools=[hang],
        )
        (text,) = scripted.texts(asyncio.run(agent.ainvoke(ask())))
    assert text.startswith('<error type="ToolError">hang failed: TimeoutError: no answer within')


@pytest.mark.parametrize("how", HOWS)
def test_the_first_to_settle_wins_and_the_others_are_waited_for_at_the_end_of_the_turn(
    scripted: Any, ask: Any, how: str
) -> None:
    release, ended = threading.Event(), threading.Event()

    @tool
    def late() -> str:
        """Ends when the turn does."""
        assert release.wait(30)
        ended.set()
        return "late"

    @tool
    def early() -> str:
        """Ends at once."""
        return "early"

    class Releasing(AgentMiddleware[Any, Any, Any]):
        def before_model(self, state: Any, runtime: Any) -> None:
            if len(state["messages"]) > 1:
                release.set()

    agent = scripted.agent(
        scripted.turn("await Promise.race([tools.late(), tools.early()])"),
        scripted.middleware(ptc=["late", "early"]),
        Releasing(),
        tools=[late, early],
    )
    (text,) = scripted.texts(turn(agent, how, ask()))
    assert text.startswith("<result>early</result>\n<note>1 tool call still running (late)")
    assert ended.is_set()


# --- the agent's own path -------------------------------------------------------------------------


@pytest.mark.parametrize("how", HOWS)
@pytest.mark.parametrize("kind", ["agent", "deep"])
def test_middlewares_behind_ours_see_every_call(
    scripted: Any, ask: Any, how: str, kind: str
) -> None:
    watching = Watching()
    agent = scripted.agent(
        scripted.turn("for (const v of [1, 2]) await tools.echo({v})"),
        scripted.middleware(ptc=["echo"]),
        watching,
        tools=[echo],
        kind=kind,
    )
    turn(agent, how, ask())
    assert [(name, args.get("v")) for name, args in watching.seen] == [
        ("eval", None),
        ("echo", 1),
        ("echo", 2),
    ]


def test_a_middleware_that_retries_or_edits_has_its_way(scripted: Any, ask: Any) -> None:
    attempts: list[int] = []

    @tool
    def flaky() -> dict[str, str]:
        """Works the second time."""
        attempts.append(1)
        if len(attempts) == 1:
            raise ConnectionError("try again")
        return {"secret": "s3cret"}

    class Retrying(AgentMiddleware[Any, Any, Any]):
        def wrap_tool_call(self, request: Any, handler: Any) -> Any:
            try:
                return handler(request)
            except ConnectionError:
                return handler(request)

    class Redacting(AgentMiddleware[Any, Any, Any]):
        def wrap_tool_call(self, request: Any, handler: Any) -> Any:
            answer = handler(request)
            if request.tool_call["name"] == "flaky":
                answer.content = answer.content.replace("s3cret", "***")
            return answer

    agent = scripted.agent(
        scripted.turn("await tools.flaky()"),
        scripted.middleware(ptc=["flaky"]),
        Redacting(),
        Retrying(),
        tools=[flaky],
    )
    (text,) = scripted.texts(agent.invoke(ask()))
    assert "***" in text
    assert "s3cret" not in text
    assert len(attempts) == 2


@pytest.mark.parametrize("how", HOWS)
def test_injected_arguments_are_injected_and_cannot_be_given_by_the_guest(
    scripted: Any, ask: Any, how: str
) -> None:
    seen: list[Any] = []

    @tool
    def injected(
        x: int,
        runtime: ToolRuntime,
        state: Annotated[dict[str, Any], InjectedState],
        store: Annotated[Any, InjectedStore()],
        call_id: Annotated[str, InjectedToolCallId],
    ) -> int:
        """Needs the agent."""
        store.put(("n",), "x", {"x": x})
        seen.append((runtime.tool_call_id, call_id, state["messages"][0].content, runtime.state))
        return x

    asked: list[Any] = []
    store = InMemoryStore()
    agent = scripted.agent(
        scripted.turn(
            "await tools.injected({x: 1, state: {}, store: null, call_id: 'forged', runtime: 1})"
        ),
        scripted.middleware(ptc=["injected"]),
        tools=[injected],
        store=store,
        asked=asked,
    )
    state = turn(agent, how, ask("hello"))
    assert scripted.texts(state) == ["<result>1</result>"]
    ((runtime_id, call_id, first, runtime_state),) = seen
    (answer,) = scripted.answers(state)
    assert runtime_id == call_id == f"{answer.tool_call_id}_ptc_1"
    assert first == "hello"
    assert runtime_state["messages"][0].content == "hello"
    item = store.get(("n",), "x")
    assert item is not None
    assert item.value == {"x": 1}
    assert "tools.injected(input: { x: number }): Promise<number>" in asked[0][0].content


class Counting(BaseTool):
    """A tool with state and a class of its own."""

    name: str = "count"
    description: str = "Counts its calls."
    calls: int = 0

    def _run(self) -> int:
        self.calls += 1
        return self.calls


@pytest.mark.parametrize("how", HOWS)
def test_a_tool_given_to_ptc_itself_need_not_be_the_agents_and_keeps_its_state(
    scripted: Any, ask: Any, how: str
) -> None:
    counting = Counting()
    agent = scripted.agent(
        scripted.turn("await tools.count(); await tools.count()"),
        scripted.middleware(ptc=[counting]),
    )
    assert scripted.texts(turn(agent, how, ask())) == ["<result>2</result>"]
    assert counting.calls == 2


@pytest.mark.parametrize("how", HOWS)
def test_tools_of_only_one_kind_work_in_agents_of_both(scripted: Any, ask: Any, how: str) -> None:
    async def only_async(n: int) -> int:
        """Async."""
        await asyncio.sleep(0)
        return n

    def only_sync(n: int) -> int:
        """Sync."""
        return n

    class AsyncOnly(BaseTool):
        name: str = "own"
        description: str = "Own class."

        def _run(self, n: int) -> int:
            raise NotImplementedError

        async def _arun(self, n: int) -> int:
            return n

    tools = [
        StructuredTool.from_function(coroutine=only_async, name="a"),
        StructuredTool.from_function(func=only_sync, name="s"),
        AsyncOnly(),
    ]
    agent = scripted.agent(
        scripted.turn("[await tools.a({n: 1}), await tools.s({n: 2}), await tools.own({n: 3})]"),
        scripted.middleware(ptc=["*"]),
        tools=tools,
    )
    assert scripted.texts(turn(agent, how, ask())) == ["<result>[1, 2, 3]</result>"]


def test_async_tools_run_in_the_callers_loop_with_its_context_and_stream_writer(
    scripted: Any, ask: Any
) -> None:
    import contextvars

    user: contextvars.ContextVar[str] = contextvars.ContextVar("user")
    seen: list[Any] = []

    @tool
    async def whoami(runtime: ToolRuntime) -> str:
        """Who calls."""
        seen.append(asyncio.get_running_loop())
        runtime.stream_writer({"progress": 1})
        return user.get()

    agent = scripted.agent(
        scripted.turn("await tools.whoami()"),
        scripted.middleware(ptc=["whoami"]),
        tools=[whoami],
    )

    async def main() -> tuple[list[Any], Any]:
        user.set("ann")
        chunks = [chunk async for chunk in agent.astream(ask(), stream_mode=["custom", "values"])]
        return chunks, asyncio.get_running_loop()

    chunks, loop = asyncio.run(main())
    assert scripted.texts(chunks[-1][1]) == ["<result>ann</result>"]
    assert ("custom", {"progress": 1}) in chunks
    assert seen == [loop]


@pytest.mark.parametrize("how", HOWS)
def test_the_runs_of_calls_are_children_of_the_evals_run(scripted: Any, ask: Any, how: str) -> None:
    runs: dict[str, tuple[Any, Any]] = {}

    class Tracing(BaseCallbackHandler):
        run_inline = True

        def on_tool_start(
            self, serialized: Any, input_str: str, *, run_id: Any, parent_run_id: Any = None,
            **more: Any,
        ) -> None:  # fmt: skip
            runs[serialized["name"]] = (run_id, parent_run_id)

    agent = scripted.agent(
        scripted.turn("await tools.echo({v: 1})"), scripted.middleware(ptc=["echo"]), tools=[echo]
    )
    turn(agent, how, ask(), {"callbacks": [Tracing()]})
    assert runs["echo"][1] == runs["eval"][0]


# --- state updates --------------------------------------------------------------------------------


class Files(AgentState[Any]):
    files: Annotated[dict[str, str], operator.or_]
    last: str


@tool
def write_file(path: str, text: str, call_id: Annotated[str, InjectedToolCallId]) -> Command[Any]:
    """Write."""
    return Command(
        update={
            "files": {path: text},
            "last": path,
            "messages": [ToolMessage(f"wrote {path}", tool_call_id=call_id)],
        }
    )


@tool
def list_files(state: Annotated[dict[str, Any], InjectedState]) -> dict[str, str]:
    """The files, as the state has them."""
    files: dict[str, str] = state["files"]
    return files


@pytest.mark.parametrize("how", HOWS)
def test_state_updates_of_tools_are_seen_by_later_calls_and_merged_in_order(
    scripted: Any, ask: Any, how: str
) -> None:
    program = """
    const said = [await tools.writeFile({path: "/a", text: "1"}),
                  await tools.writeFile({path: "/b", text: "2"}),
                  await tools.writeFile({path: "/a", text: "3"})];
    [said, await tools.listFiles()]
    """
    agent = scripted.agent(
        scripted.turn(program),
        scripted.middleware(ptc=["*"]),
        tools=[write_file, list_files],
        state_schema=Files,
    )
    state = turn(agent, how, {**ask(), "files": {"/0": "0"}, "last": ""})
    assert scripted.texts(state) == [
        '<result>[["wrote /a", "wrote /b", "wrote /a"], {"/0": "0", "/a": "3", "/b": "2"}]</result>'
    ]
    assert state["files"] == {"/0": "0", "/a": "3", "/b": "2"}
    assert state["last"] == "/a"
    # The calls within the program are no part of the conversation.
    assert [message.type for message in state["messages"]] == ["human", "ai", "tool", "ai"]


@pytest.mark.parametrize("how", HOWS)
def test_files_of_a_deep_agent_written_by_a_program_are_there_afterwards(
    scripted: Any, ask: Any, how: str
) -> None:
    read = AIMessage(
        "", tool_calls=[{"name": "read_file", "args": {"file_path": "/a.txt"}, "id": "read1"}]
    )
    agent = scripted.agent(
        scripted.turn(
            """
            await tools.writeFile({file_path: "/a.txt", content: "hello"});
            (await tools.readFile({file_path: "/a.txt"})).includes("hello")
            """,
            read,
        ),
        scripted.middleware(ptc=["write_file", "read_file"]),
        kind="deep",
    )
    state = turn(agent, how, ask())
    assert scripted.texts(state) == ["<result>true</result>"]
    (message,) = scripted.answers(state, "read_file")
    assert "hello" in message.content


# --- interrupts -----------------------------------------------------------------------------------


@tool
def approve(what: str) -> str:
    """Ask a human."""
    return str(interrupt({"what": what}))


@pytest.mark.parametrize("how", HOWS)
def test_a_program_cannot_see_catch_or_outlive_an_interrupt(
    scripted: Any, ask: Any, how: str
) -> None:
    effects: list[int] = []

    @tool
    def effect(n: int) -> None:
        """Notes."""
        effects.append(n)

    program = """
    globalThis.n = (globalThis.n ?? 0) + 1;
    let answer;
    try { answer = await tools.approve({what: "delete"}) } catch (e) { await tools.effect({n: 1}) }
    await tools.effect({n: 2});
    [n, answer]
    """
    agent = scripted.agent(
        scripted.turn(program), scripted.middleware(ptc=["*"]), tools=[approve, effect],
        checkpointer=InMemorySaver(),
    )  # fmt: skip
    config = {"configurable": {"thread_id": "a"}}
    state = turn(agent, how, ask(), config)
    assert [one.value for one in state["__interrupt__"]] == [{"what": "delete"}]
    assert effects == []
    state = turn(agent, how, Command(resume="YES"), config)
    # The interrupted eval never happened, so that what it had changed is not changed twice.
    assert scripted.texts(state) == ['<result>[1, "YES"]</result>']
    assert effects == [2]
