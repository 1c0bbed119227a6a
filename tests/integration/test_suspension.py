"""An eval that is suspended while a person is asked, and its replay elsewhere."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from qjs_pool import Limits, Pool, Session
from qjs_pool.drive import drive
from qjs_pool.holding import Suspend, Suspension
from qjs_pool.journal import Journal, ReplayDiverged, digest_of
from qjs_pool.result import EvalResult
from qjs_pool.tools import Tool


class Desk:
    """Tools of a session, one of which asks a person, and what they were called with."""

    def __init__(self) -> None:
        self.effects: list[Any] = []

    @property
    def tools(self) -> dict[str, Any]:
        return {"ask": Tool(call=self.ask, holds=True), "note": self.note}

    def ask(self, args: Any) -> Any:
        raise Suspend(args["what"])

    def note(self, args: Any) -> Any:
        self.effects.append(args)
        return len(self.effects)


def run(session: Session, code: str, journal: Journal | None = None) -> Any:
    core = session._core
    return drive(core, lambda: core.eval_or_suspend(code, 5.0, journal=journal))


def resume(session: Session, suspension: Suspension, *answers: Any) -> Any:
    """The waiting calls get the answers, in order."""
    core = session._core
    again: dict[int, Callable[[Any], Any]] = {
        call.number: lambda _, answer=answer: answer
        for call, answer in zip(suspension.waiting, answers, strict=True)
    }
    return drive(core, lambda: core.resume(again))


@pytest.fixture(scope="module")
def pool() -> Iterator[Pool]:
    with Pool(limits=Limits(wall=20.0)) as pool:
        yield pool


@pytest.fixture
def desk() -> Desk:
    return Desk()


@pytest.fixture
def session(pool: Pool, desk: Desk) -> Iterator[Session]:
    with pool.session(tools=desk.tools) as session:
        yield session


def test_calls_made_together_wait_together_and_the_program_goes_on_from_them(
    session: Session, desk: Desk
) -> None:
    suspended = run(
        session,
        """
        globalThis.runs = (globalThis.runs ?? 0) + 1;
        const noted = await tools.note({n: 1});
        const secret = (() => { let hidden = 40; return () => ++hidden })();
        secret();
        const both = await Promise.all([tools.ask({what: "a"}), tools.ask({what: "b"})]);
        [runs, noted, both, secret()]
        """,
    )
    assert [call.payload for call in suspended.waiting] == ["a", "b"]
    assert [call.args for call in suspended.waiting] == ['{"what":"a"}', '{"what":"b"}']
    assert resume(session, suspended, "A", "B").text == '[1, 1, ["A", "B"], 42]'
    assert desk.effects == [{"n": 1}]


@pytest.mark.parametrize(
    "rival", ["tools.note({})", "new Promise((done) => setTimeout(done, 0, 'timer'))"]
)
def test_nothing_that_ends_sooner_lets_a_program_go_on_without_its_answer(
    session: Session, rival: str
) -> None:
    code = f"""
        globalThis.seen = [];
        const asked = tools.ask({{what: "x"}}).finally(() => seen.push("asked"));
        const first = await Promise.race([asked, {rival}]);
        await tools.note({{after: true}});
        1
    """
    suspended = run(session, code)
    assert isinstance(suspended, Suspension)
    # The guest has run nothing since: a race that was won would have made another call.
    assert "after" not in str(suspended.journal)
    assert resume(session, suspended, "yes").text == "1"
    assert session.eval("seen").value == ["asked"]


def test_a_person_may_take_longer_than_the_wall(desk: Desk, pool: Pool) -> None:
    with pool.session(tools=desk.tools, limits=Limits(wall=0.4)) as session:
        suspended = run(
            session,
            "const asked = tools.ask({what: 'x'}); const timer = new Promise((done) => "
            "setTimeout(done, 150, 'timer')); [await asked, await timer]",
        )
        time.sleep(0.5)  # what is tested: that long, nobody answers
        assert resume(session, suspended, "late").text == '["late", "timer"]'
        assert session.eval("1 + 1").value == 2


def test_an_eval_that_settles_first_is_suspended_until_its_calls_are_decided(
    session: Session, desk: Desk
) -> None:
    suspended = run(session, "tools.ask({what: 'x'}).then((r) => { globalThis.got = r }); 7")
    assert suspended.settled
    assert resume(session, suspended, "yes").text == "7"
    session.eval("0")  # the answer came after its eval: the next one delivers it
    assert session.eval("await 0; got").value == "yes"


def test_a_call_may_ask_again(session: Session) -> None:
    run(session, "await tools.ask({what: 'x'})")
    core = session._core

    def again(_: Any) -> Any:
        raise Suspend("and then?")

    second = drive(core, lambda: core.resume({1: again}))
    assert [call.payload for call in second.waiting] == ["and then?"]
    assert resume(session, second, "done").text == "done"


def test_any_other_operation_gives_a_suspended_eval_up(session: Session, desk: Desk) -> None:
    session.eval("var n = 1")
    suspended = run(session, "n = 2; await tools.ask({what: 'x'}); n = 3")
    assert isinstance(suspended, Suspension)
    result = session.eval("n")
    assert result.value == 1
    assert any("was given up" in note and "as it was before" in note for note in result.notes)
    assert not session._core.suspended


def test_a_call_of_a_given_up_eval_that_had_its_value_is_rejected_at_the_next_eval(
    session: Session,
) -> None:
    suspended = run(session, "globalThis.n = 2; globalThis.asked = tools.ask({what: 'x'}); 7")
    assert suspended.settled
    result = session.eval("await asked.catch((error) => [n, error.name, error.message])")
    n, name, message = result.value  # and not after the wall
    assert (n, name) == (2, "Cancelled")
    assert "given up" in message
    assert any("given up" in note and "has its changes" in note for note in result.notes)


def test_a_worker_that_dies_while_it_is_held_is_no_longer_suspended(session: Session) -> None:
    session.eval("var n = 1")
    run(session, "n = 2; await tools.ask({what: 'x'})")
    assert session._core.suspended
    talk = session._core._talk
    assert talk is not None
    assert talk.link.worker is not None
    talk.link.worker.kill()
    deadline = time.monotonic() + 10
    while session._core.suspended:
        assert time.monotonic() < deadline
        session._core.poller.poll(1)
    assert session.eval("n").value == 1


def test_closing_a_session_ends_its_suspended_eval(pool: Pool, desk: Desk) -> None:
    with pool.session(tools=desk.tools) as session:
        assert isinstance(run(session, "await tools.ask({what: 'x'})"), Suspension)
    assert session.closed


# --- replay ---------------------------------------------------------------------------------------

PROGRAM = """
    const noted = [];
    for (const n of [1, 2]) noted.push(await tools.note({n, luck: Math.random()}));
    const [answer, beside] = await Promise.all([
      tools.ask({what: noted.join()}), tools.note({beside: true}),
    ]);
    await tools.note({answer});
    [noted, answer, beside, Math.random() < 1]
"""


def test_another_session_goes_on_from_the_journal_and_makes_no_call_twice(
    pool: Pool, session: Session, desk: Desk
) -> None:
    suspended = run(session, PROGRAM)
    assert len(desk.effects) == 3
    other = Desk()
    with pool.session(tools=other.tools) as elsewhere:
        replayed = run(elsewhere, PROGRAM, suspended.journal)
        assert [(call.number, call.args) for call in replayed.waiting] == [
            (call.number, call.args) for call in suspended.waiting
        ]
        assert other.effects == []
        assert replayed.journal == suspended.journal
        assert resume(elsewhere, replayed, "yes").text == '[[1, 2], "yes", 3, true]'
    assert other.effects == [{"answer": "yes"}]


@pytest.mark.parametrize(
    ("then", "now", "message"),
    [
        ("'a'", "'b'", r'calls note\({"n":"b"}\), which its journal has not; next is note'),
        ("'a'", "undefined", "calls note"),
        ("1", "await tools.ask({what: 'x'})", "stopped without the call note"),
    ],
)
def test_a_program_that_diverges_from_its_journal_is_stopped(
    pool: Pool, session: Session, desk: Desk, then: str, now: str, message: str
) -> None:
    code = "await tools.note({n: VALUE}); await tools.ask({what: 'x'})"
    suspended = run(session, code.replace("VALUE", then))
    other = Desk()
    with pool.session(tools=other.tools) as elsewhere:
        journal = suspended.journal
        assert journal is not None
        changed = code.replace("VALUE", now)
        with pytest.raises(ReplayDiverged, match="another program"):
            run(elsewhere, changed, journal)
        lying = Journal(
            digest_of(changed), journal.seed, journal.entries, journal.told, journal.kept
        )
        with pytest.raises(ReplayDiverged, match=message):
            run(elsewhere, changed, lying)
        assert other.effects == []
        assert elsewhere.eval("1 + 1").value == 2


def test_a_program_that_ends_before_its_journal_does_is_stopped(
    pool: Pool, session: Session, desk: Desk
) -> None:
    suspended = run(session, "await tools.note({}); await tools.ask({what: 'x'})")
    journal = suspended.journal
    short = Journal(
        digest_of("await tools.note({})"), journal.seed, journal.entries, journal.told, journal.kept
    )
    with (
        pool.session(tools=Desk().tools) as elsewhere,
        pytest.raises(ReplayDiverged, match="stopped without the call ask"),
    ):
        run(elsewhere, "await tools.note({})", short)


def test_a_tool_that_asks_when_its_eval_has_returned_is_refused_and_the_host_told(
    pool: Pool, caplog: pytest.LogCaptureFixture
) -> None:
    gate = threading.Event()

    def late(args: Any) -> Any:
        gate.wait(10)
        raise Suspend("too late")

    with pool.session(tools={"late": late}) as session:
        result = run(session, "tools.late({}).catch((e) => { globalThis.error = e.name }); 1")
        assert isinstance(result, EvalResult)
        gate.set()
        deadline = time.monotonic() + 10
        while session.eval("globalThis.error ?? ''").value != "SuspendedTooLate":
            assert time.monotonic() < deadline
    assert "late was to ask a person" in caplog.text
    assert "nobody was asked" in caplog.text
