"""`ptc_interrupt_on`: calls that a person approves, edits, rejects or answers."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any, Final

import pytest

pytest.importorskip("langchain")
pytest.importorskip("langgraph")

from langchain_core.tools import tool
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.types import Command, interrupt

CONFIG: Final = {"configurable": {"thread_id": "a"}}
APPROVE: Final = {"type": "approve"}


class Mail:
    """What was sent."""

    def __init__(self) -> None:
        self.sent: list[Any] = []
        self.found: list[str] = []

    @property
    def tools(self) -> list[Any]:
        @tool
        def send_mail(to: str, text: str = "") -> str:
            """Send a mail."""
            self.sent.append((to, text))
            return f"sent to {to}"

        @tool
        def find(name: str) -> str:
            """Find an address."""
            self.found.append(name)
            return f"{name}@example.com"

        @tool
        def delete(path: str) -> str:
            """Delete a file, if a person confirms."""
            answer = interrupt(f"really {path}?")
            self.sent.append((path, answer))
            return str(answer)

        return [send_mail, find, delete]


@pytest.fixture
def mail() -> Mail:
    return Mail()


Say = Callable[[Any], Any]


@pytest.fixture
def chat(scripted: Any, mail: Mail) -> Callable[..., Say]:
    """A conversation with an agent that runs one program whose mails need approval."""

    def chat(
        program: str, on: Any = True, *, how: str = "invoke", kind: str = "agent", **more: Any
    ) -> Say:
        gates = {"send_mail": on} if not isinstance(on, dict) or "send_mail" not in on else on
        middleware = scripted.middleware(ptc=["*"], ptc_interrupt_on=gates, **more)
        agent = scripted.agent(
            scripted.turn(program), middleware, tools=mail.tools, kind=kind,
            checkpointer=InMemorySaver(),
        )  # fmt: skip

        def say(message: Any) -> Any:
            if how == "invoke":
                return agent.invoke(message, CONFIG)
            return asyncio.run(agent.ainvoke(message, CONFIG))

        return say

    return chat


def asked(state: Any) -> Any:
    (one,) = state["__interrupt__"]
    return one.value


def decide(*decisions: Any) -> Command[Any]:
    return Command(resume={"decisions": list(decisions)})


@pytest.mark.parametrize("kind", ["agent", "deep"])
@pytest.mark.parametrize("how", ["invoke", "ainvoke"])
def test_all_calls_that_wait_are_one_request_in_langchains_shape(
    scripted: Any, ask: Any, mail: Mail, chat: Callable[..., Say], how: str, kind: str
) -> None:
    say = chat(
        """
        const to = await Promise.all(["ann", "bob"].map((name) => tools.find({name})));
        await Promise.all(to.map((to, n) => tools.sendMail({to, text: `hello ${n}`})))
        """,
        how=how,
        kind=kind,
    )
    value = asked(say(ask()))
    ids = [request.pop("id") for request in value["action_requests"]]
    told = [request.pop("description") for request in value["action_requests"]]
    assert value == {
        "action_requests": [
            {"name": "send_mail", "args": {"to": "ann@example.com", "text": "hello 0"}},
            {"name": "send_mail", "args": {"to": "bob@example.com", "text": "hello 1"}},
        ],
        "review_configs": [
            {
                "action_name": "send_mail",
                "allowed_decisions": ["approve", "edit", "reject", "respond"],
            }
        ],
    }
    assert len(set(ids)) == 2
    assert all("send_mail" in one and "example.com" in one for one in told)
    assert mail.sent == []
    state = say(decide(APPROVE, APPROVE))
    assert scripted.texts(state) == [
        '<result>["sent to ann@example.com", "sent to bob@example.com"]</result>'
    ]
    assert sorted(mail.sent) == [("ann@example.com", "hello 0"), ("bob@example.com", "hello 1")]


@pytest.mark.parametrize(
    ("decision", "text", "sent"),
    [
        (APPROVE, "sent to ann", [("ann", "hi")]),
        (
            {"type": "edit", "edited_action": {"name": "send_mail", "args": {"to": "bob"}}},
            "sent to bob", [("bob", "")],
        ),
        (
            {"type": "reject", "message": "not her"},
            "ToolError rejected by the reviewer: not her", [],
        ),
        ({"type": "respond", "message": "she knows"}, "she knows", []),
    ],
)  # fmt: skip
@pytest.mark.parametrize("how", ["invoke", "ainvoke"])
def test_a_decision_makes_of_the_call_what_it_says(
    scripted: Any, ask: Any, mail: Mail, chat: Callable[..., Say], how: str,
    decision: Any, text: str, sent: list[Any],
) -> None:  # fmt: skip
    program = """
        try { await tools.sendMail({to: "ann", text: "hi"}) }
        catch (error) { `${error.name} ${error.message}` }
    """
    say = chat(program, how=how)
    say(ask())
    assert scripted.texts(say(decide(decision))) == [f"<result>{text}</result>"]
    assert mail.sent == sent


def test_what_runs_is_what_was_approved_whatever_the_program_does_to_it(
    scripted: Any, ask: Any, mail: Mail, chat: Callable[..., Say]
) -> None:
    say = chat(
        """
        let reads = 0;
        const input = { get to() { return ["ann", "mallory"][reads++] }, text: "hi" };
        const sending = tools.sendMail(input);
        input.text = "changed";
        await sending
        """
    )
    (request,) = asked(say(ask()))["action_requests"]
    assert request["args"] == {"to": "ann", "text": "hi"}
    say(decide(APPROVE))
    assert mail.sent == [("ann", "hi")]


@pytest.mark.parametrize(
    "rival",
    ["sleep(0)", "tools.find({name: 'fast'})", "sleep(0).then(() => tools.find({name: 'then'}))"],
)
def test_a_program_neither_goes_on_before_the_decision_nor_returns(
    scripted: Any, ask: Any, mail: Mail, chat: Callable[..., Say], rival: str
) -> None:
    say = chat(
        f"""
        const sleep = (ms) => new Promise((done) => setTimeout(done, ms));
        await Promise.race([tools.sendMail({{to: "ann"}}), {rival}]);
        await tools.find({{name: "afterwards"}});
        """
    )
    assert asked(say(ask()))["action_requests"][0]["args"] == {"to": "ann"}
    assert mail.sent == []
    assert not {"then", "afterwards"} & set(mail.found)
    say(decide(APPROVE))
    assert mail.sent == [("ann", "")]
    assert "afterwards" in mail.found


def test_calls_that_nobody_awaits_are_decided_before_the_answer(
    scripted: Any, ask: Any, mail: Mail, chat: Callable[..., Say]
) -> None:
    say = chat("for (const to of ['a', 'b', 'c']) tools.sendMail({to}); 'all sent'")
    assert len(asked(say(ask()))["action_requests"]) == 3
    state = say(decide(APPROVE, {"type": "reject"}, APPROVE))
    assert "<result>all sent</result>" in scripted.texts(state)[0]
    assert sorted(mail.sent) == [("a", ""), ("c", "")]


def test_decisions_may_be_given_by_id(
    scripted: Any, ask: Any, mail: Mail, chat: Callable[..., Say]
) -> None:
    say = chat("await Promise.all([tools.sendMail({to: 'a'}), tools.sendMail({to: 'b'})])")
    one, other = (request["id"] for request in asked(say(ask()))["action_requests"])
    say(Command(resume={other: {"type": "respond", "message": "no"}, one: APPROVE}))
    assert mail.sent == [("a", "")]


@pytest.mark.parametrize(
    ("resume", "message"),
    [
        ({"decisions": [APPROVE]}, "1 decisions for 2 calls"),
        ({"decisions": [APPROVE, {"type": "edit"}]}, "must be one of"),
        ({"decisions": [APPROVE, {}]}, "must be one of"),
        ("yes", "resume with"),
    ],
)
def test_a_decision_that_is_none_is_refused_and_can_be_made_anew(
    scripted: Any, ask: Any, mail: Mail, chat: Callable[..., Say], resume: Any, message: str
) -> None:
    say = chat(
        "await Promise.all([tools.sendMail({to: 'a'}), tools.sendMail({to: 'b'})])",
        {"allowed_decisions": ["approve", "reject"]},
    )
    say(ask())
    with pytest.raises(ValueError, match=message):
        say(Command(resume=resume))
    assert mail.sent == []
    say(decide(APPROVE, APPROVE))
    assert sorted(mail.sent) == [("a", ""), ("b", "")]


def test_an_approval_is_of_no_call_but_the_one_that_was_shown(
    scripted: Any, ask: Any, mail: Mail
) -> None:
    saver = InMemorySaver()
    script = scripted.turn("await tools.sendMail({to: `a${Date.now()}`})")
    for part in (script, script[1:]):
        middleware = scripted.middleware(
            ptc=["*"], ptc_interrupt_on={"send_mail": True}, clock="real"
        )
        agent = scripted.agent(part, middleware, tools=mail.tools, checkpointer=saver)
        if part is script:
            agent.invoke(ask(), CONFIG)
            for writes in saver.writes.values():  # whoever prunes them, or tampers with them
                for key in [one for one in writes if writes[one][1] == "_qjs_pool_journal"]:
                    del writes[key]
    (text,) = scripted.texts(agent.invoke(decide(APPROVE), CONFIG))
    assert "before its question was asked" in text
    assert mail.sent == []


def test_an_edit_is_of_the_arguments_not_of_the_tool(
    scripted: Any, ask: Any, mail: Mail, chat: Callable[..., Say]
) -> None:
    say = chat("await tools.sendMail({to: 'a'})")
    say(ask())
    with pytest.raises(ValueError, match="cannot make send_mail a call of 'delete'"):
        say(decide({"type": "edit", "edited_action": {"name": "delete", "args": {}}}))
    assert mail.sent == []


def test_calls_of_which_a_predicate_says_so_need_no_approval(
    scripted: Any, ask: Any, mail: Mail, chat: Callable[..., Say]
) -> None:
    def outside(request: Any) -> bool:
        return not request.tool_call["args"]["to"].endswith("@example.com")

    def describe(call: Any, state: Any, runtime: Any) -> str:
        return f"{call['name']} to {call['args']['to']}, asked by {state['messages'][0].content}"

    say = chat(
        "for (const to of ['a@example.com', 'b@else.where']) await tools.sendMail({to})",
        {"when": outside, "description": describe},
    )
    (request,) = asked(say(ask("someone")))["action_requests"]
    assert request["description"] == "send_mail to b@else.where, asked by someone"
    assert mail.sent == [("a@example.com", "")]


def test_a_predicate_that_fails_lets_no_call_through(
    scripted: Any, ask: Any, mail: Mail, chat: Callable[..., Say]
) -> None:
    def broken(request: Any) -> bool:
        raise LookupError("no rules")

    say = chat("try { await tools.sendMail({to: 'a'}) } catch { 'went on' }", {"when": broken})
    with pytest.raises(LookupError, match="no rules"):
        say(ask())
    assert mail.sent == []


def test_a_tool_that_asks_itself_does_so_after_its_approval(
    scripted: Any, ask: Any, mail: Mail, chat: Callable[..., Say]
) -> None:
    say = chat(
        "await Promise.all([tools.delete({path: '/a'}), tools.sendMail({to: 'b'})])",
        {"delete": True, "send_mail": False},
    )
    (request,) = asked(say(ask()))["action_requests"]
    assert request["args"] == {"path": "/a"}
    assert mail.sent == [("b", "")]
    edited = {"type": "edit", "edited_action": {"name": "delete", "args": {"path": "/b"}}}
    assert asked(say(decide(edited))) == "really /b?"
    assert scripted.texts(say(Command(resume="yes"))) == ['<result>["yes", "sent to b"]</result>']


def test_without_a_checkpointer_a_call_that_needs_approval_is_not_made(
    scripted: Any, ask: Any, mail: Mail
) -> None:
    middleware = scripted.middleware(ptc=["*"], ptc_interrupt_on={"send_mail": True})
    agent = scripted.agent(
        scripted.turn("await tools.sendMail({to: 'a'})"), middleware, tools=mail.tools
    )
    with pytest.raises(ValueError, match="needs a checkpointer"):
        agent.invoke(ask())
    assert mail.sent == []


@pytest.mark.parametrize(
    ("value", "kind", "message"),
    [
        (["send_mail"], TypeError, "must map tool names"),
        ({"send_mail": 1}, TypeError, r"ptc_interrupt_on\['send_mail'\]"),
        ({"": True}, TypeError, "no tool's name"),
        ({"send_mail": {"allowed_decisions": []}}, ValueError, "allowed_decisions="),
        ({"send_mail": {"allowed_decisions": ["allow"]}}, ValueError, "choose of"),
        ({"send_mail": {"allowed": ["approve"]}}, ValueError, "unknown keys: allowed"),
        ({"hidden": True}, ValueError, "names 'hidden', which ptc does not expose"),
        ({"send_mail": {"when": True}}, TypeError, "when must be"),
        ({"send_mail": {"description": 1}}, TypeError, "description must be"),
    ],
)
def test_a_bad_option_says_what_is_wrong(
    scripted: Any, value: Any, kind: type[Exception], message: str
) -> None:
    with pytest.raises(kind, match=message):
        scripted.middleware(ptc=["*", "!hidden"], ptc_interrupt_on=value)


def test_a_gate_for_a_tool_that_there_is_none_of_is_warned_of(
    scripted: Any, ask: Any, chat: Callable[..., Say], caplog: pytest.LogCaptureFixture
) -> None:
    say = chat("1", {"send_mail": True, "sendmail": True})
    say(ask())
    said = [record.getMessage() for record in caplog.records]
    assert "ptc_interrupt_on names 'sendmail', which is no tool here" in said
    assert not any("'send_mail'" in text for text in said)
