"""Interrupts raised within an eval: the run's, not the guest's; and the eval goes on from them."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

import pytest

pytest.importorskip("langchain")
pytest.importorskip("langgraph")

from langchain.agents import create_agent
from langchain.agents.middleware import HumanInTheLoopMiddleware
from langchain_core.messages import AIMessage
from langchain_core.tools import BaseTool, tool
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.types import Command, interrupt

HOWS: Final = ["invoke", "ainvoke"]
ELSEWHERE: Final = Path(__file__).with_name("resume_elsewhere.py")


class Office:
    """An agent's tools, one of which asks a person, and what they did."""

    def __init__(self) -> None:
        self.effects: list[Any] = []

    @property
    def tools(self) -> list[BaseTool]:
        @tool
        def ask(what: str) -> str:
            """Ask a person."""
            return f"{what}: {interrupt({'what': what})}"

        @tool
        def ask_twice(what: str) -> str:
            """Ask a person, and once more."""
            first = interrupt(f"{what}?")
            return f"{first}, {interrupt(f'{what}, after {first}?')}"

        @tool
        def effect(n: Any) -> int:
            """Do something that must not be done twice."""
            self.effects.append(n)
            return len(self.effects)

        return [ask, ask_twice, effect]


class Run:
    """One conversation with an agent."""

    def __init__(self, agent: Any, how: str = "invoke", thread_id: str = "a") -> None:
        self.agent = agent
        self.how = how
        self.config = {"configurable": {"thread_id": thread_id}}

    def __call__(self, message: Any) -> Any:
        if self.how == "invoke":
            return self.agent.invoke(message, self.config)
        return asyncio.run(self.agent.ainvoke(message, self.config))

    def resume(self, answer: Any) -> Any:
        return self(Command(resume=answer))


def asked(state: Any) -> Any:
    """The value of the run's one interrupt."""
    (one,) = state["__interrupt__"]
    return one.value


def kill_worker(middleware: Any, anchor_too: bool) -> None:
    """Kill the worker of the one eval that waits, and what could bring it back."""
    (thread,) = middleware._evaluator.registry._threads.values()
    (held,) = thread.held.values()
    core = held.core
    for pid in [core.anchor_pid] * anchor_too or [core.worker_pid]:
        os.kill(pid, signal.SIGKILL)
    # Until the session can see it; in a moment when it cannot, the eval would just crash.
    deadline = time.monotonic() + 10
    while core.suspended:
        assert time.monotonic() < deadline
        time.sleep(0.01)


@pytest.fixture
def office() -> Office:
    return Office()


@pytest.fixture
def run(scripted: Any, office: Office) -> Callable[..., Run]:
    """A conversation whose model runs those programs, one after the other, in one turn."""

    def run(*programs: Any, how: str = "invoke", kind: str = "agent", **options: Any) -> Run:
        saver = options.pop("saver", None) or InMemorySaver()
        script = options.pop("script", None) or scripted.turn(*programs)
        more = options.pop("more", ())
        middleware = options.pop("middleware", None) or scripted.middleware(ptc=["*"], **options)
        agent = scripted.agent(
            script, middleware, *more, tools=office.tools, kind=kind, checkpointer=saver
        )
        return Run(agent, how)

    return run


@pytest.mark.parametrize("kind", ["agent", "deep"])
@pytest.mark.parametrize("how", HOWS)
def test_calls_that_wait_together_are_one_interrupt_and_answered_by_id(
    scripted: Any, ask: Any, office: Office, run: Callable[..., Run], how: str, kind: str
) -> None:
    chat = run(
        """
        globalThis.runs = (globalThis.runs ?? 0) + 1;
        const closure = ((n) => () => ++n)(40);
        closure();
        await tools.effect({n: "before"});
        const answers = await Promise.all(["a", "b", "c"].map((what) => tools.ask({what})));
        await tools.effect({n: "after"});
        [runs, answers, closure()]
        """,
        how=how,
        kind=kind,
    )
    questions = asked(chat(ask()))["interrupts"]
    assert [(one["name"], one["value"]) for one in questions] == [
        ("ask", {"what": "a"}), ("ask", {"what": "b"}), ("ask", {"what": "c"}),
    ]  # fmt: skip
    assert office.effects == ["before"]
    ids = [one["id"] for one in questions]
    state = chat.resume({ids[2]: "C", ids[0]: "A", ids[1]: "B"})
    assert scripted.texts(state) == ['<result>[1, ["a: A", "b: B", "c: C"], 42]</result>']
    assert office.effects == ["before", "after"]


@pytest.mark.parametrize(
    "program",
    [
        "try { await tools.ask({what: 'x'}) } finally { went() }",
        "await Promise.allSettled([tools.ask({what: 'x'}).then(went, went)])",
        "await Promise.race([tools.ask({what: 'x'}), tools.effect({n: 'fast'})]); went()",
        "await Promise.race([tools.ask({what: 'x'}), sleep(60)]); went()",
        "await Promise.any([tools.ask({what: 'x'}), tools.effect({n: 'fast'})]); went()",
    ],
)
def test_whatever_is_around_the_call_nothing_runs_before_the_answer(
    scripted: Any, ask: Any, office: Office, run: Callable[..., Run], program: str
) -> None:
    chat = run(
        "let gone = 0; function went() { gone++; tools.effect({n: 'went on'}) }"
        f"const sleep = (ms) => new Promise((done) => setTimeout(done, ms)); {program}; gone"
    )
    state = chat(ask())
    assert asked(state) == {"what": "x"}
    assert "went on" not in office.effects
    before = list(office.effects)
    state = chat.resume("yes")
    assert scripted.texts(state)[0].startswith("<result>1</result>")
    assert office.effects == [*before, "went on"]


@pytest.mark.parametrize("how", HOWS)
def test_a_tool_may_ask_again_and_programs_may_ask_later(
    scripted: Any, ask: Any, run: Callable[..., Run], how: str
) -> None:
    chat = run(
        "const one = await tools.askTwice({what: 'x'}); [one, await tools.ask({what: 'y'})]",
        how=how,
    )
    assert asked(chat(ask())) == "x?"
    assert asked(chat.resume("first")) == "x, after first?"
    assert asked(chat.resume("second")) == {"what": "y"}
    state = chat.resume("third")
    assert scripted.texts(state) == ['<result>["first, second", "y: third"]</result>']


def test_answers_reach_the_tools_that_asked_though_one_asks_again(
    scripted: Any, ask: Any, run: Callable[..., Run]
) -> None:
    chat = run("await Promise.all([tools.askTwice({what: 'x'}), tools.ask({what: 'y'})])")
    one, other = asked(chat(ask()))["interrupts"]
    assert asked(chat.resume({one["id"]: "1", other["id"]: "2"})) == "x, after 1?"
    assert scripted.texts(chat.resume("3")) == ['<result>["1, 3", "y: 2"]</result>']


def test_an_answer_that_answers_nothing_leaves_the_eval_waiting(
    scripted: Any, ask: Any, office: Office, run: Callable[..., Run]
) -> None:
    chat = run(
        "tools.effect({n: 1}); await Promise.all([tools.ask({what: 'x'}), tools.ask({what: 'y'})])"
    )
    one, other = asked(chat(ask()))["interrupts"]
    with pytest.raises(ValueError, match=f"each id to its answer: {one['id']}, {other['id']}"):
        chat.resume({one["id"]: "1"})
    state = chat.resume({one["id"]: "1", other["id"]: "2"})
    assert scripted.texts(state) == ['<result>["x: 1", "y: 2"]</result>']
    assert office.effects == [1]


@pytest.mark.parametrize("how", HOWS)
@pytest.mark.parametrize("mode", ["thread", "turn", "call"])
def test_the_program_is_gone_on_with_elsewhere_without_a_call_made_twice(
    scripted: Any, ask: Any, office: Office, run: Callable[..., Run], how: str, mode: str
) -> None:
    program = """
        const luck = Math.random();
        for (let n = 0; n < 3; n++) await tools.effect({n: [n, luck]});
        const answers = await Promise.all([
          tools.ask({what: "x"}), tools.askTwice({what: "y"}), tools.effect({n: "beside"})]);
        await tools.effect({n: "after"});
        answers
    """
    saver, script = InMemorySaver(), scripted.turn(program)
    first = run(script=script, saver=saver, how=how, mode=mode)
    one, other = asked(first(ask()))["interrupts"]
    before = list(office.effects)
    assert len(before) == 4
    # Another middleware knows nothing of the first one's workers, as another process does not.
    second = run(script=script[1:], saver=saver, how=how, mode=mode)
    assert asked(second.resume({one["id"]: "1", other["id"]: "2"})) == "y, after 2?"
    third = run(script=script[1:], saver=saver, how=how, mode=mode)
    state = third.resume("3")
    assert scripted.texts(state) == ['<result>["x: 1", "2, 3", 4]</result>']
    assert office.effects == [*before, "after"]


def test_state_of_earlier_evals_is_there_when_a_program_is_replayed(
    scripted: Any, ask: Any, run: Callable[..., Run]
) -> None:
    programs = (
        "var n = 1; function add(m) { n += m; return n }",
        "add(1); await tools.ask({what: 'x'}); add(1)",
    )
    saver, script = InMemorySaver(), scripted.turn(*programs)
    run(script=script, saver=saver)(ask())
    state = run(script=script[2:], saver=saver).resume("yes")
    assert scripted.texts(state)[-1] == "<result>3</result>"


@pytest.mark.parametrize("how", HOWS)
@pytest.mark.parametrize("anchor_too", [False, True])
def test_an_eval_whose_worker_was_killed_while_it_waited_is_replayed_on_the_state_it_had(
    scripted: Any, ask: Any, run: Callable[..., Run], how: str, anchor_too: bool
) -> None:
    programs = "var n = 1", "n += 1; await tools.ask({what: 'x'}); n += 1"
    middleware = scripted.middleware(ptc=["*"])
    chat = run(*programs, "n", middleware=middleware, how=how)
    chat(ask())
    kill_worker(middleware, anchor_too)
    texts = scripted.texts(chat.resume("yes"))
    assert texts[1:] == ["<result>3</result>"] * 2  # and no note of an eval that was given up


@pytest.mark.parametrize("how", HOWS)
def test_no_call_is_made_for_a_killed_eval_whose_state_no_checkpoint_has(
    scripted: Any, ask: Any, office: Office, run: Callable[..., Run], how: str
) -> None:
    # In this mode none has it.
    middleware = scripted.middleware(ptc=["*"], mode="turn")
    programs = "var n = 1", "await tools.ask({what: 'x'}); await tools.effect({n: typeof n})"
    chat = run(*programs, middleware=middleware, how=how)
    chat(ask())
    kill_worker(middleware, anchor_too=True)
    text = scripted.texts(chat.resume("yes"))[-1]
    assert text.startswith('<error type="JournalRejected">')
    assert office.effects == []


def test_a_new_process_goes_on_from_the_checkpoint(
    scripted: Any, ask: Any, office: Office, run: Callable[..., Run], tmp_path: Path
) -> None:
    sqlite = pytest.importorskip("langgraph.checkpoint.sqlite")
    program = """
        const n = await tools.effect({n: 1});
        [n, await tools.ask({what: 'x'}), await tools.effect({n: 2})]
    """
    with sqlite.SqliteSaver.from_conn_string(str(tmp_path / "db")) as saver:
        state = run(program, saver=saver, snapshot_signing_key="secret")(ask())
        assert asked(state) == {"what": "x"}
        assert office.effects == [1]
    done = subprocess.run(
        [sys.executable, "-P", str(ELSEWHERE), str(tmp_path / "db"), "secret"],
        capture_output=True, text=True, timeout=60, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    said = json.loads(done.stdout)
    assert said == {"texts": ['<result>[1, "x: from elsewhere", 1]</result>'], "effects": [2]}


@pytest.mark.parametrize("key", ["other", None])
def test_a_journal_that_is_not_signed_as_it_should_be_is_refused(
    scripted: Any, ask: Any, office: Office, run: Callable[..., Run], key: str | None
) -> None:
    saver, script = (
        InMemorySaver(),
        scripted.turn("await tools.effect({n: 1}); await tools.ask({what: 'x'})"),
    )
    run(script=script, saver=saver, snapshot_signing_key=key)(ask())
    state = run(script=script[1:], saver=saver, snapshot_signing_key="mine").resume("yes")
    (text,) = scripted.texts(state)
    assert text.startswith('<error type="JournalRejected">')
    assert "No call that waited was made" in text
    assert office.effects == [1]


def test_a_journal_that_is_damaged_is_refused(
    scripted: Any, ask: Any, office: Office, run: Callable[..., Run]
) -> None:
    saver = InMemorySaver()
    script = scripted.turn("await tools.effect({n: 1}); await tools.ask({what: 'x'})")
    run(script=script, saver=saver)(ask())
    damaged = 0
    for writes in saver.writes.values():
        for key, (task_id, channel, (kind, data), path) in list(writes.items()):
            if channel == "_qjs_pool_journal":
                damage = data[:-1] + bytes([data[-1] ^ 1])
                writes[key] = (task_id, channel, (kind, damage), path)
                damaged += 1
    assert damaged == 1
    (text,) = scripted.texts(run(script=script[1:], saver=saver).resume("yes"))
    assert text.startswith('<error type="JournalRejected">')
    assert office.effects == [1]


def test_without_a_journal_an_eval_goes_on_where_it_waits_and_nowhere_else(
    scripted: Any, ask: Any, office: Office, run: Callable[..., Run]
) -> None:
    program = "await tools.effect({n: 1}); await tools.ask({what: 'x'})"
    for elsewhere in (False, True):
        saver, script = InMemorySaver(), scripted.turn(program)
        chat = run(script=script, saver=saver, max_snapshot_bytes=1)
        chat(ask())
        if elsewhere:
            chat = run(script=script[1:], saver=saver, max_snapshot_bytes=1)
        (text,) = scripted.texts(chat.resume("yes"))
        assert ("too large to be kept" in text) == elsewhere
        assert ("<result>x: yes</result>" in text) != elsewhere
    assert office.effects == [1, 1]


@pytest.mark.parametrize("hows", [("invoke", "ainvoke"), ("ainvoke", "invoke")])
def test_a_run_may_be_resumed_by_another_kind_of_caller(
    scripted: Any, ask: Any, office: Office, run: Callable[..., Run], hows: tuple[str, str]
) -> None:
    chat = run("await tools.ask({what: 'x'}); await tools.effect({n: 1})", how=hows[0])
    chat(ask())
    chat.how = hows[1]
    assert scripted.texts(chat.resume("yes")) == ["<result>1</result>"]


@pytest.mark.parametrize("durability", ["exit", "async", "sync"])
def test_the_journal_is_there_however_checkpoints_are_written(
    scripted: Any, ask: Any, office: Office, run: Callable[..., Run], durability: str
) -> None:
    saver = InMemorySaver()
    script = scripted.turn("await tools.effect({n: 1}); await tools.ask({what: 'x'})")
    first = run(script=script, saver=saver)
    first.agent.invoke(ask(), first.config, durability=durability)
    second = run(script=script[1:], saver=saver)
    state = second.agent.invoke(Command(resume="yes"), second.config, durability=durability)
    assert scripted.texts(state) == ["<result>x: yes</result>"]
    assert office.effects == [1]


def test_a_program_that_does_something_else_when_replayed_is_stopped(
    scripted: Any, ask: Any, office: Office, run: Callable[..., Run]
) -> None:
    program = """
        await tools.effect({n: Date.now()});
        await tools.ask({what: 'x'});
        await tools.effect({n: 2})
    """
    saver, script = InMemorySaver(), scripted.turn(program)
    run(script=script, saver=saver, clock="real")(ask())
    state = run(script=script[1:], saver=saver, clock="real").resume("yes")
    (text,) = scripted.texts(state)
    assert text.startswith('<error type="ReplayDiverged">')
    assert "calls effect(" in text
    assert len(office.effects) == 1


@pytest.mark.parametrize("mode", ["thread", "call"])
def test_a_tool_that_is_gone_when_the_run_is_resumed_is_said_and_leaves_no_worker_behind(
    scripted: Any, ask: Any, office: Office, mode: str
) -> None:
    saver, script = InMemorySaver(), scripted.turn("await tools.ask({what: 'x'})")
    first = scripted.middleware(ptc=["*"], mode=mode)
    Run(scripted.agent(script, first, tools=office.tools, checkpointer=saver))(ask())
    second = scripted.middleware(ptc=["*", "!ask"], mode=mode, pool=None)
    chat = Run(scripted.agent(script[1:], second, tools=office.tools, checkpointer=saver))
    (text,) = scripted.texts(chat.resume("yes"))
    assert text.startswith("<error type=")
    assert "x: yes" not in text
    assert second._evaluator.sandbox.pool.stats()["sessions"] == 0


def test_new_input_instead_of_an_answer_gives_the_eval_up(
    scripted: Any, ask: Any, office: Office, run: Callable[..., Run]
) -> None:
    script = [
        scripted.evals("var n = 1"), scripted.evals("n = 2; await tools.ask({what: 'x'})"),
        *scripted.turn("n"),
    ]  # fmt: skip
    chat = run(script=script)
    chat(ask())
    (*_, text) = scripted.texts(chat(ask("something else")))
    assert "<result>1</result>" in text
    assert "waited for a person was given up" in text
    assert "as it was before that eval" in text


def test_new_input_after_the_program_has_its_value_rejects_the_call_and_keeps_its_changes(
    scripted: Any, ask: Any, run: Callable[..., Run]
) -> None:
    first = "globalThis.n = 2; globalThis.asked = tools.ask({what: 'x'}); 7"
    second = "await asked.catch((error) => `${n} ${error.name}`)"
    script = [scripted.evals(first), *scripted.turn(second)]
    chat = run(script=script, wall_timeout=10, ptc_interrupt_on={"ask": True})
    assert "__interrupt__" in chat(ask())
    (*_, text) = scripted.texts(chat(ask("something else")))
    assert "<result>2 Cancelled</result>" in text
    assert "was given up" in text
    assert "has its changes" in text


@pytest.mark.parametrize("how", HOWS)
def test_an_eval_behind_one_that_waits_runs_after_it(
    scripted: Any, ask: Any, run: Callable[..., Run], how: str
) -> None:
    programs = scripted.evals(
        "var n = 1; await tools.ask({what: 'x'}); n = 2; n", "n + 40", "n + 41"
    )
    chat = run(script=[programs, AIMessage("done")], how=how)
    assert asked(chat(ask())) == {"what": "x"}
    state = chat.resume("yes")
    assert scripted.texts(state) == [f"<result>{n}</result>" for n in (2, 42, 43)]


@pytest.mark.parametrize("how", HOWS)
@pytest.mark.parametrize("mode", ["thread", "call"])
def test_evals_of_one_message_may_all_ask(
    scripted: Any, ask: Any, run: Callable[..., Run], how: str, mode: str
) -> None:
    programs = scripted.evals(*(f"await tools.ask({{what: '{n}'}})" for n in range(3)))
    chat = run(script=[programs, AIMessage("done")], how=how, mode=mode)
    state = chat(ask())
    answered = 0
    while questions := state.get("__interrupt__"):
        # One after the other in one REPL; each in a REPL of its own, all at once.
        assert len(questions) == (1 if mode == "thread" else 3 - answered)
        answers = {one.id: f"answer {one.value['what']}" for one in questions}
        state = chat.resume(answers if mode == "call" else answers.popitem()[1])
        answered += len(questions)
    assert answered == 3
    assert scripted.texts(state) == [f"<result>{n}: answer {n}</result>" for n in range(3)]


def test_a_worker_that_waits_is_not_swept_and_of_too_many_the_oldest_goes(
    scripted: Any, ask: Any, run: Callable[..., Run]
) -> None:
    script = [scripted.evals("const f = (n => () => n)(5); await tools.ask({what: 'x'}); f()")] * 2
    middleware = scripted.middleware(ptc=["*"], park=0.0, max_parked=1)
    chats = []
    for thread_id in "ab":
        chat = run(script=[script[0], AIMessage("done")], middleware=middleware)
        chat.config = {"configurable": {"thread_id": thread_id}}
        chat(ask())
        chats.append(chat)
    middleware._evaluator.registry.sweep()
    assert middleware._evaluator.sandbox.pool.stats()["sessions"] == 1
    for chat in chats:  # the one that was swept is replayed
        assert scripted.texts(chat.resume("yes")) == ["<result>5</result>"]


def test_without_a_checkpointer_nothing_waits_and_nothing_goes_on(
    scripted: Any, ask: Any, office: Office
) -> None:
    middleware = scripted.middleware(ptc=["*"])
    agent = scripted.agent(
        scripted.turn("await tools.ask({what: 'x'}); await tools.effect({n: 1})"),
        middleware,
        tools=office.tools,
    )
    assert asked(agent.invoke(ask())) == {"what": "x"}
    assert office.effects == []


def test_a_middleware_around_the_tool_may_ask(
    scripted: Any, ask: Any, office: Office, run: Callable[..., Run]
) -> None:
    gate = HumanInTheLoopMiddleware(interrupt_on={"effect": True}, interrupt_mode="per_call")
    chat = run("await Promise.all([tools.effect({n: 1}), tools.effect({n: 2})])", more=[gate])
    one, other = asked(chat(ask()))["interrupts"]
    assert [one["value"]["args"], other["value"]["args"]] == [{"n": 1}, {"n": 2}]
    chat.resume({one["id"]: {"type": "approve"}, other["id"]: {"type": "respond", "message": "no"}})
    assert office.effects == [1]


@pytest.mark.parametrize("elsewhere", [False, True])
@pytest.mark.parametrize("how", HOWS)
def test_sub_agents_that_are_interrupted_go_on_from_their_own_checkpoints(
    scripted: Any, ask: Any, office: Office, run: Callable[..., Run], how: str, elsewhere: bool
) -> None:
    def sub_agent(name: str) -> BaseTool:
        call = {"name": "effect", "args": {"n": name}, "id": f"{name}1"}
        question = {"name": "ask", "args": {"what": name}, "id": f"{name}2"}
        agent = create_agent(
            scripted.model(
                [AIMessage("", tool_calls=[call]), AIMessage("", tool_calls=[question]),
                 AIMessage(f"{name} is done")]
            ),
            office.tools,
        )  # fmt: skip

        @tool(name)
        def run_it(about: str) -> str:
            """Have a sub-agent do it."""
            return str(agent.invoke(ask(about))["messages"][-2].content)

        @tool(name)
        async def arun_it(about: str) -> str:
            """Have a sub-agent do it."""
            return str((await agent.ainvoke(ask(about)))["messages"][-2].content)

        return run_it if how == "invoke" else arun_it

    saver, subs = InMemorySaver(), [sub_agent("north"), sub_agent("south")]
    script = scripted.turn(
        "await Promise.all([tools.north({about: '1'}), tools.south({about: '2'})])"
    )

    def chat(script: Any) -> Run:
        middleware = scripted.middleware(ptc=subs)
        return Run(scripted.agent(script, middleware, tools=subs, checkpointer=saver), how)

    first = chat(script)
    questions = asked(first(ask()))["interrupts"]
    assert [one["value"] for one in questions] == [{"what": "north"}, {"what": "south"}]
    answers = {one["id"]: one["name"].upper() for one in questions}
    state = (chat(script[1:]) if elsewhere else first).resume(answers)
    assert scripted.texts(state) == ['<result>["north: NORTH", "south: SOUTH"]</result>']
    assert sorted(office.effects) == ["north", "south"]


@pytest.mark.parametrize("elsewhere", [False, True])
def test_a_program_of_a_sub_agent_that_is_interrupted_within_a_program(
    scripted: Any, ask: Any, office: Office, elsewhere: bool
) -> None:
    inner = scripted.turn(
        "await tools.effect({n: 'inner'}); const got = await tools.ask({what: 'inner'}); got"
    )
    outer = scripted.turn(
        """
        await tools.effect({n: "outer"});
        const call = {description: "go", subagent_type: "helper"};
        const done = await Promise.allSettled([tools.task(call), tools.ask({what: "outer"})]);
        await tools.effect({n: "after"});
        done.map((one) => one.value)
        """
    )
    saver = InMemorySaver()

    def chat(outer: Any, inner: Any) -> Run:
        helper = {
            "name": "helper", "description": "helps", "system_prompt": "help",
            "model": scripted.model(inner), "tools": office.tools,
            "middleware": [scripted.middleware(ptc=["ask", "effect"])],
        }  # fmt: skip
        own = scripted.middleware(ptc=["ask", "effect"])
        agent = scripted.agent(
            outer, own, tools=office.tools, kind="deep", subagents=[helper], checkpointer=saver
        )
        return Run(agent)

    first = chat(outer, inner)
    questions = {one["value"]["what"]: one["id"] for one in asked(first(ask()))["interrupts"]}
    assert sorted(office.effects) == ["inner", "outer"]
    answers = {questions["inner"]: "1", questions["outer"]: "2"}
    state = (chat(outer[1:], inner[1:]) if elsewhere else first).resume(answers)
    assert scripted.texts(state) == ['<result>["done", "outer: 2"]</result>']
    assert sorted(office.effects) == ["after", "inner", "outer"]
