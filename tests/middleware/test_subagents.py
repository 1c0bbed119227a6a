"""`task()` in Deep Agents: what programs get, how many run, which path it takes, who is told."""

from __future__ import annotations

import asyncio
import json
import threading
import uuid
from collections.abc import Iterator, Sequence
from typing import Any

import pytest

pytest.importorskip("deepagents")

from deepagents.middleware.subagents import SUBAGENT_RESPONSE_FORMAT_CONFIG_KEY
from langchain.agents.middleware import AgentMiddleware
from langchain_core.callbacks import BaseCallbackHandler
from langchain_core.messages import AIMessage, BaseMessage
from langchain_core.tools import tool
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.graph import END, START, MessagesState, StateGraph
from langgraph.types import Command, interrupt

from qjs_pool.middleware import CodeInterpreterMiddleware
from qjs_pool.middleware.subagents import FORMAT_KEY

from .subagent_stage import Stage, calling, echoing, texts
from .watching import Watching

HOWS = ["invoke", "ainvoke"]
START_ONE = "await task({description: 'd', subagentType: 'helper'})"
CAUGHT = "try { await %s } catch (e) { `${e.name}: ${e.message}` }"


@pytest.fixture(scope="module")
def watching() -> Watching:
    return Watching()


@pytest.fixture(scope="module")
def stage(watching: Watching) -> Iterator[Stage]:
    with CodeInterpreterMiddleware(ptc=["read_file", "write_file"]) as interpreter:
        yield Stage([interpreter, watching])


# --- what a program gets --------------------------------------------------------------------------


@pytest.mark.parametrize("how", HOWS)
def test_a_program_gets_a_subagents_answer_in_every_spelling(stage: Stage, how: str) -> None:
    programs = [
        START_ONE,
        "await task({description: 'e', subagent_type: 'helper', label: 'l'})",
        "await tools.task({description: 'f', subagent_type: 'helper'})",
        "await Promise.all([1, 2].map(n => task({description: `${n}`, subagentType: 'helper'})))",
    ]
    assert stage.run(*programs, how=how) == [
        "<result>did d</result>",
        "<result>did e</result>",
        "<result>did f</result>",
        '<result>["did 1", "did 2"]</result>',
    ]


@pytest.mark.parametrize("how", HOWS)
def test_with_a_schema_the_answer_is_a_value_of_its_shape(stage: Stage, how: str) -> None:
    offered: list[str] = []

    def reply(messages: list[BaseMessage], names: Sequence[str]) -> AIMessage:
        offered.append(names[-1])
        return calling(names[-1], rows=[{"n": 7}], title="t")

    schema = """{ type: "object", required: ["rows"], %s properties: { title: { type: "string" },
      rows: { type: "array", items: { type: "object", properties: { n: { type: "integer" } } } } }
    }"""
    plain, titled = (
        f"{{description: 'd', subagentType: 'helper', responseSchema: {schema % title}}}"
        for title in ("", "title: 'Row list',")
    )
    first, second = stage.run(
        f"const r = await task({plain}); [typeof r, r.rows[0].n + 1, r]",
        f"(await tools.task({titled})).title",
        reply=reply,
        how=how,
    )
    assert first == '<result>["object", 8, {rows: [{n: 7}], title: "t"}]</result>'
    assert second == "<result>t</result>"
    assert offered == ["subagent_answer", "Row_list"]


def test_an_answer_of_another_shape_rejects_and_says_what_came(stage: Stage) -> None:
    given = "{description: 'd', subagentType: 'helper', responseSchema: {type: 'object'}}"
    assert stage.run(CAUGHT % f"task({given})") == [
        "<result>ToolError: the answer of 'helper' is not of the shape that responseSchema asks "
        "for: did d</result>"
    ]


def test_what_is_wrong_rejects_before_any_subagent_starts(stage: Stage, watching: Watching) -> None:
    watching.seen.clear()
    deep = "let s = {type: 'object'}; for (let n = 0; n < 40; n++) s = {properties: {a: s}};"
    answers = stage.run(
        CAUGHT % "task({description: 'd', subagentType: 'nope'})",
        CAUGHT % "tools.task({subagent_type: 'helper'})",
        CAUGHT % "task('d')",
        deep + CAUGHT % "task({description: 'd', subagentType: 'helper', responseSchema: s})",
        CAUGHT % "task({description: 'd', subagentType: 'helper', responseSchema: 5})",
    )
    assert [answer.partition(": ")[2] for answer in answers] == [
        "no subagent 'nope'. available: general-purpose, helper</result>",
        "task() requires description: task({ description, subagentType, label?, responseSchema? })"
        "; subagentType is one of: general-purpose, helper</result>",
        "task() takes one object: task({ description, subagentType, label?, responseSchema? })"
        "</result>",
        "responseSchema of task() is over 32 levels deep</result>",
        "responseSchema of task() must be an object, a JSON Schema</result>",
    ]
    assert [name for name, _ in watching.seen] == ["eval"] * 5


@pytest.mark.parametrize("how", HOWS)
def test_a_subagent_that_fails_rejects_with_what_went_wrong(stage: Stage, how: str) -> None:
    def reply(messages: list[BaseMessage], _: Sequence[str]) -> AIMessage:
        raise ConnectionError("no model there")

    caught, uncaught = stage.run(CAUGHT % START_ONE.removeprefix("await "), START_ONE,
                                 reply=reply, how=how)  # fmt: skip
    assert caught == "<result>ConnectionError: no model there</result>"
    assert uncaught.startswith(
        '<error type="ToolError">task failed: ConnectionError: no model there\n'
    )


def test_a_compiled_subagent_takes_no_schema_and_says_so() -> None:
    graph = StateGraph(MessagesState)
    graph.add_node("work", lambda state: {"messages": [AIMessage("made")]})
    graph.add_edge(START, "work")
    compiled = {"name": "made", "description": "Is as it is.", "runnable": graph.compile()}
    with CodeInterpreterMiddleware() as interpreter:
        stage = Stage([interpreter], subagents=[compiled])
        plain, asked = stage.run(
            "await task({description: 'd', subagentType: 'made'})",
            CAUGHT % "task({description: 'd', subagentType: 'made', responseSchema: {}})",
        )
    assert plain == "<result>made</result>"
    assert 'cannot be used with compiled subagent "made"' in asked


def test_a_task_tool_of_another_make_serves_as_well(scripted: Any, ask: Any) -> None:
    @tool
    def task(description: str, subagent_type: str) -> str:
        """Start a worker: "swift" or "slow"."""
        return json.dumps({"by": subagent_type, "did": description})

    asked: list[Any] = []
    agent = scripted.agent(
        scripted.turn(
            "await task({description: 'd', subagentType: 'swift'})",
            "(await task({description: 'd', subagentType: 'slow', responseSchema: {}})).by",
        ),
        scripted.middleware(), tools=[task], asked=asked,
    )  # fmt: skip
    assert scripted.texts(agent.invoke(ask())) == [
        """<result>{"by": "swift", "did": "d"}</result>""",
        "<result>slow</result>",
    ]
    assert "The values of `subagentType` are those of the `task` tool." in asked[0][0].content


def test_programs_may_use_the_name_for_their_own(stage: Stage) -> None:
    assert stage.run(
        "const task = { title: 'mine' }; task.title",
        START_ONE,
        "function task(n) { return n * 2 }\ntask(4)",
        "for (const task of ['a']) console.log(task); typeof task",
        "var start = task; await start({description: 'd', subagentType: 'helper'})",
        "Object.keys(globalThis).includes('task')",
    ) == [
        "<result>mine</result>",
        "<result>did d</result>",
        "<result>8</result>",
        "<stdout>\na\n</stdout>\n<result>function</result>",
        "<result>did d</result>",
        "<result>false</result>",
    ]


# --- the agent's own path -------------------------------------------------------------------------


@pytest.mark.parametrize("how", HOWS)
def test_middlewares_behind_ours_see_the_call_as_the_tool_gets_it(
    stage: Stage, watching: Watching, how: str
) -> None:
    watching.seen.clear()
    stage.run("await task({description: 'd', subagentType: 'helper', label: 'l'})", how=how)
    assert watching.seen[1:] == [("task", {"description": "d", "subagent_type": "helper"})]


@pytest.mark.parametrize("how", HOWS)
def test_files_that_a_subagent_writes_are_there_for_the_program_and_after(
    stage: Stage, how: str
) -> None:
    def reply(messages: list[BaseMessage], _: Sequence[str]) -> AIMessage:
        if messages[-1].type == "human":
            name = messages[-1].content
            return calling("write_file", file_path=f"/{name}.txt", content=f"hello {name}")
        return AIMessage("written")

    program = """
    await Promise.all(['a', 'b'].map(description => task({description, subagentType: 'helper'})));
    (await tools.readFile({file_path: '/a.txt'})).includes('hello a')
    """
    after = "(await tools.readFile({file_path: '/b.txt'})).includes('hello b')"
    assert stage.run(program, after, reply=reply, how=how) == ["<result>true</result>"] * 2


@pytest.mark.parametrize("how", HOWS)
def test_files_that_the_program_writes_are_there_for_its_subagents(stage: Stage, how: str) -> None:
    def reply(messages: list[BaseMessage], _: Sequence[str]) -> AIMessage:
        if messages[-1].type == "human":
            return calling("read_file", file_path=str(messages[-1].content))
        return AIMessage(str(messages[-1].content))

    program = """
    await tools.writeFile({file_path: '/part.txt', content: 'from the program'});
    (await task({description: '/part.txt', subagentType: 'helper'})).includes('from the program')
    """
    assert stage.run(program, reply=reply, how=how) == ["<result>true</result>"]


@pytest.mark.parametrize("how", HOWS)
def test_tracers_see_the_task_and_the_subagents_model_below_the_evals_run(
    stage: Stage, how: str
) -> None:
    parents: dict[uuid.UUID, uuid.UUID | None] = {}
    tools: dict[str, uuid.UUID] = {}
    models: list[uuid.UUID] = []

    class Tracing(BaseCallbackHandler):
        run_inline = True

        def on_chain_start(self, serialized: Any, inputs: Any, *, run_id: Any,
                           parent_run_id: Any = None, **more: Any) -> None:  # fmt: skip
            parents[run_id] = parent_run_id

        def on_tool_start(self, serialized: Any, input_str: str, *, run_id: Any,
                          parent_run_id: Any = None, **more: Any) -> None:  # fmt: skip
            parents[run_id] = parent_run_id
            tools[serialized["name"]] = run_id

        def on_chat_model_start(self, serialized: Any, messages: Any, *, run_id: Any,
                                parent_run_id: Any = None, **more: Any) -> None:  # fmt: skip
            parents[run_id] = parent_run_id
            if any(message.content == "d" for message in messages[0]):
                models.append(run_id)

    stage.run(START_ONE, how=how, config={"callbacks": [Tracing()]})
    assert parents[tools["task"]] == tools["eval"]
    (run,) = models
    line = []
    while (above := parents[run]) is not None:
        line.append(above)
        run = above
    assert tools["task"] in line
    assert tools["eval"] in line


# --- how many -------------------------------------------------------------------------------------


@pytest.mark.parametrize("how", HOWS)
def test_two_hundred_are_all_answered_with_no_more_at_once_than_allowed(how: str) -> None:
    cap, lock = 8, threading.Lock()
    running = [0]
    peaks: list[int] = []
    full, afull = threading.Event(), asyncio.Event()

    def enter() -> None:
        with lock:
            running[0] += 1
            peaks.append(running[0])
            if running[0] >= cap:
                full.set()
                if how == "ainvoke":
                    afull.set()

    def answer(state: MessagesState) -> dict[str, Any]:
        with lock:
            running[0] -= 1
        return {"messages": [AIMessage(f"did {state['messages'][-1].content}")]}

    def work(state: MessagesState) -> dict[str, Any]:
        enter()
        assert full.wait(30)  # the first ones wait until as many run as ever may
        return answer(state)

    async def awork(state: MessagesState) -> dict[str, Any]:
        enter()
        await afull.wait()
        return answer(state)

    graph = StateGraph(MessagesState)
    graph.add_node("work", work if how == "invoke" else awork)
    graph.add_edge(START, "work")
    graph.add_edge("work", END)
    many = {"name": "many", "description": "One of many.", "runnable": graph.compile()}
    program = """
    const answers = await Promise.all(Array.from({length: 200}, (_, n) =>
      task({description: `${n}`, subagentType: "many"})));
    [answers.length, answers.every((answer, n) => answer === `did ${n}`)]
    """
    with CodeInterpreterMiddleware(max_subagent_concurrency=cap) as interpreter:
        stage = Stage([interpreter], subagents=[many])
        assert stage.run(program, how=how) == ["<result>[200, true]</result>"]
    assert len(peaks) == 200
    assert max(peaks) == cap


# --- when it is there -----------------------------------------------------------------------------


def test_turned_off_there_is_neither_the_global_nor_a_word_about_it() -> None:
    probe = "[typeof task, 'task' in globalThis, Object.keys(tools)]"
    with CodeInterpreterMiddleware(subagents=False, ptc=["*", "!*_*"]) as interpreter:
        stage = Stage([interpreter])
        (text,) = stage.run(probe)
        assert "task" not in text
        assert text.startswith('<result>["undefined", false, [')
        assert "Subagents inside the REPL" not in str(stage.told[0].content)
        assert "tools.task" not in str(stage.told[0].content)


def test_turned_off_who_names_the_tool_has_it_among_the_tools() -> None:
    with CodeInterpreterMiddleware(subagents=False, ptc=["task"]) as interpreter:
        stage = Stage([interpreter])
        assert stage.run(
            "[typeof task, Object.keys(tools)]",
            "await tools.task({description: 'd', subagentType: 'helper'})",
            CAUGHT % "tools.task({description: 'd', subagent_type: 'nope'})",
        ) == [
            '<result>["undefined", ["task"]]</result>',
            "<result>did d</result>",
            "<result>ToolError: no subagent 'nope'. available: general-purpose, helper</result>",
        ]
        assert "tools.task(input: {" in str(stage.told[0].content)


def test_excluded_it_is_not_there() -> None:
    with CodeInterpreterMiddleware(ptc=["*", "!task"]) as interpreter:
        stage = Stage([interpreter])
        (text,) = stage.run("[typeof task, typeof tools.$describe]")
        assert text == '<result>["undefined", "function"]</result>'


def test_an_agent_without_subagents_has_no_such_global(scripted: Any, ask: Any) -> None:
    @tool
    def task(name: str) -> str:
        """Something else."""
        return f"not {name}"

    asked: list[Any] = []
    with pytest.warns(DeprecationWarning, match="'task' in ptc"):
        middleware = scripted.middleware(ptc=["task"])
    agent = scripted.agent(
        scripted.turn("[typeof task, await tools.task({name: 'one'})]"),
        middleware, tools=[task], asked=asked,
    )  # fmt: skip
    assert scripted.texts(agent.invoke(ask())) == ['<result>["undefined", "not one"]</result>']
    assert "Subagents inside the REPL" not in str(asked[0][0].content)


def test_the_model_is_told_the_call_the_pattern_and_the_subagents(stage: Stage) -> None:
    stage.run()
    prompt = str(stage.told[0].content)
    section = prompt[prompt.index("### Subagents inside the REPL") :]
    assert '  subagentType: "general-purpose" | "helper";' in section
    assert "await Promise.all(parts.map((part) => task({" in section
    assert "Up to 32 run at once" in section
    assert "\n  - helper: Helps with one thing." in section
    assert "tools.task" not in prompt


def test_configurations_that_list_it_among_the_tools_are_accepted_with_a_warning() -> None:
    with pytest.warns(DeprecationWarning, match="'task' in ptc is deprecated") as warned:
        interpreter = CodeInterpreterMiddleware(ptc=["task", "start_async_task", "read_file"])
    assert [one.filename for one in warned] == [__file__]
    with interpreter:
        stage = Stage([interpreter])
        assert stage.run("[typeof task, Object.keys(tools)]", START_ONE) == [
            '<result>["function", ["readFile"]]</result>',
            "<result>did d</result>",
        ]


# --- subagents with a REPL of their own -----------------------------------------------------------


@tool
def echo(v: int) -> int:
    """Give back what is given."""
    return v


@pytest.mark.parametrize(("how", "shared"), [("invoke", True), ("ainvoke", False)])
def test_subagents_have_a_repl_and_tools_in_it_of_their_own(how: str, shared: bool) -> None:
    def reply(messages: list[BaseMessage], _: Sequence[str]) -> AIMessage:
        if messages[-1].type == "human":
            number = messages[-1].content
            return calling(
                "eval",
                code=f"globalThis.own = (globalThis.own ?? 0) + await tools.echo({{v: {number}}})",
            )
        if sum(message.type == "tool" for message in messages) == 1:
            return calling("eval", code="own * 10")
        return AIMessage(str(messages[-1].content))

    program = """
    globalThis.own = "the agent's";
    const answers = await Promise.all([1, 2, 3].map(n =>
      task({description: `${n}`, subagentType: "helper"})));
    [own, answers]
    """
    with (
        CodeInterpreterMiddleware(ptc=["echo"]) as outer,
        CodeInterpreterMiddleware(ptc=["echo"]) as inner,
    ):
        helper = {"middleware": [outer if shared else inner], "tools": [echo]}
        stage = Stage([outer], helper=helper)
        assert stage.run(program, reply=reply, how=how) == [
            """<result>["the agent's", ["&lt;result&gt;10&lt;/result&gt;", """
            '"&lt;result&gt;20&lt;/result&gt;", "&lt;result&gt;30&lt;/result&gt;"]]</result>'
        ]


def test_a_fork_inherits_the_repl_and_may_not_start_others() -> None:
    def reply(messages: list[BaseMessage], _: Sequence[str]) -> AIMessage:
        if messages[-1].type == "human":
            return calling("eval", code=CAUGHT % START_ONE.removeprefix("await "))
        return AIMessage(str(messages[-1].content))

    with CodeInterpreterMiddleware() as interpreter:
        with pytest.warns(Warning, match="forked subagents"):
            stage = Stage([interpreter], helper={"mode": "fork"})
        (text,) = stage.run(START_ONE, reply=reply)
    assert "ToolError: You are a subagent and cannot delegate" in text


# --- interrupts -----------------------------------------------------------------------------------


@tool
def approve(what: str) -> str:
    """Ask a human."""
    return str(interrupt({"what": what}))


@pytest.mark.parametrize("how", HOWS)
def test_a_subagent_that_asks_a_human_interrupts_the_graph_and_goes_on_later(how: str) -> None:
    def reply(messages: list[BaseMessage], _: Sequence[str]) -> AIMessage:
        if messages[-1].type == "human":
            return calling("approve", what="delete")
        return AIMessage(f"human said {messages[-1].content}")

    def turn(given: Any) -> tuple[Any, list[Any]]:
        config = {"configurable": {"thread_id": "a"}}
        modes = ["custom", "values"]

        async def streamed() -> list[Any]:
            return [chunk async for chunk in agent.astream(given, config, stream_mode=modes)]

        if how == "invoke":
            chunks = list(agent.stream(given, config, stream_mode=modes))
        else:
            chunks = asyncio.run(streamed())
        states = [chunk for mode, chunk in chunks if mode == "values"]
        return states[-1], [chunk for mode, chunk in chunks if mode == "custom"]

    with CodeInterpreterMiddleware() as interpreter:
        stage = Stage([interpreter], helper={"tools": [approve]}, checkpointer=InMemorySaver())
        agent = stage.agent
        state, before = turn(stage.begin(f"try {{ {START_ONE} }} catch {{ 1 }}", reply=reply))
        assert [one.value for one in state["__interrupt__"]] == [{"what": "delete"}]
        state, after = turn(Command(resume="YES"))
    assert texts(state) == ["<result>human said YES</result>"]
    # It began, and began again: for whoever watches that is one subagent.
    assert [event["phase"] for event in before] == ["start"]
    assert [event["phase"] for event in after] == ["start", "complete"]
    assert {event["id"] for event in (*before, *after)} == {before[0]["id"]}


# --- events ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("how", HOWS)
def test_start_and_end_of_each_subagent_are_told_on_the_custom_stream(
    stage: Stage, how: str
) -> None:
    def reply(messages: list[BaseMessage], _: Sequence[str]) -> AIMessage:
        if messages[-1].content == "bad":
            raise ConnectionError("no model there")
        return echoing(messages, _)

    program = """
    await task({description: "good " + "x".repeat(300), subagentType: "helper"});
    await task({description: "bad", subagentType: "helper", label: "the\\n bad one"}).catch(() => 1)
    """
    events = stage.stream(program, reply=reply, how=how)
    shapes = [{key for key in event if key not in ("id", "eval_id")} for event in events]
    start = {"type", "phase", "tool_call_id", "subagent_type", "label", "description"}
    end = {"type", "phase", "tool_call_id", "duration_ms"}
    assert shapes == [start, end, start, end | {"error"}]
    assert [event["phase"] for event in events] == ["start", "complete", "start", "error"]
    assert {event["type"] for event in events} == {"subagent"}
    good, done, bad, failed = events
    assert good["label"] == "good " + "x" * 55
    assert good["description"] == "good " + "x" * 195
    assert (bad["label"], bad["subagent_type"]) == ("the bad one", "helper")
    assert failed["error"] == "no model there"
    assert good["id"] == done["id"] != bad["id"] == failed["id"]
    assert len({event["eval_id"] for event in events}) == 1
    assert all(isinstance(event["duration_ms"], int) for event in (done, failed))


def test_one_that_is_cancelled_is_told_to_have_ended() -> None:
    async def forever(state: MessagesState) -> None:
        await asyncio.Event().wait()

    graph = StateGraph(MessagesState)
    graph.add_node("work", forever)
    graph.add_edge(START, "work")
    endless = {"name": "endless", "description": "Never ends.", "runnable": graph.compile()}
    with CodeInterpreterMiddleware(wall_timeout=0.2) as interpreter:
        stage = Stage([interpreter], subagents=[endless])
        events = stage.stream("await task({description: 'd', subagentType: 'endless'})",
                              how="ainvoke")  # fmt: skip
    assert [(event["phase"], event.get("error")) for event in events] == [
        ("start", None), ("error", "cancelled"),
    ]  # fmt: skip


def test_equal_tasks_have_ids_of_their_own_that_are_the_same_when_the_eval_runs_again(
    stage: Stage,
) -> None:
    def ids(*descriptions: str) -> dict[str, list[str]]:
        each = ", ".join(
            f"{{description: '{one}', subagentType: 'helper'}}" for one in descriptions
        )
        given = stage.begin(f"for (const one of [{each}]) await task(one)")
        stage._lines[0].tool_calls[0]["id"] = "same"
        found: dict[str, list[str]] = {}
        for event in stage.agent.stream(given, stream_mode="custom"):
            if event["phase"] == "start":
                found.setdefault(event["description"], []).append(event["id"])
        return found

    first = ids("a", "b", "a")
    assert len({*first["a"], *first["b"]}) == 3
    assert ids("a", "b", "a") == first


def test_a_listener_that_fails_is_no_trouble_for_the_program() -> None:
    class Deaf(AgentMiddleware[Any, Any, Any]):
        """Gives the eval a stream that nothing can be written to."""

        def wrap_tool_call(self, request: Any, handler: Any) -> Any:
            def writer(_: Any) -> None:
                broken.append(1)
                raise BrokenPipeError("nobody listens")

            request.runtime.stream_writer = writer
            return handler(request)

    broken: list[int] = []
    with CodeInterpreterMiddleware() as interpreter:
        stage = Stage([Deaf(), interpreter])
        assert stage.run(START_ONE) == ["<result>did d</result>"]
    assert broken


def test_the_shape_of_an_answer_is_where_deep_agents_looks_for_it() -> None:
    assert FORMAT_KEY == SUBAGENT_RESPONSE_FORMAT_CONFIG_KEY
