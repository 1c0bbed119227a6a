"""What a session is: state that lives from eval to eval, its copies, its options, its misuse."""

from __future__ import annotations

import os
import re
import signal
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from qjs_pool import (
    GuestError,
    Limits,
    Pool,
    QueueFull,
    Session,
    SessionClosed,
    SpawnError,
    UsageError,
)
from qjs_pool.link import MAX_MEMBERS
from qjs_pool.worker.serve import MAX_PROCESSES

_DRAWS = "[Math.random(), Math.random(), Math.random()]"


# --- a REPL ---------------------------------------------------------------------------------------


def test_declarations_of_every_kind_live_on_and_may_be_made_again(session: Session) -> None:
    session.eval("let a = 1; const b = 2; var c = 3; function f() { return a + b + c }; class K {}")
    assert session.eval("f()").value == 6
    session.eval("let a = 10; const b = 20; var c = 30; class K { v() { return f() } }")
    assert session.eval("new K().v()").value == 60
    assert session.eval("({ total } = { total: 7 }); total").value == 7


def test_a_declaration_that_threw_may_be_made_again(session: Session) -> None:
    failed = session.eval("const c = (() => { throw new Error('boom') })()")
    assert failed.error == GuestError("Error", "boom", failed.error.stack if failed.error else "")
    assert session.eval("const c = 5; c").value == 5


def test_effects_before_an_error_stay(session: Session) -> None:
    result = session.eval("let kept = 1; kept = 2; throw new TypeError('late')")
    assert result.error is not None
    assert (result.error.name, result.error.message) == ("TypeError", "late")
    assert result.state == "kept"
    assert session.eval("kept").value == 2


def test_sessions_of_one_pool_share_nothing(pool: Pool) -> None:
    with pool.session() as one, pool.session() as other:
        one.eval("var mine = 1; Array.prototype.extra = 1; Object.prototype.x = 1")
        assert other.eval("[typeof mine, typeof [].extra, typeof ({}).x]").value == [
            "undefined",
            "undefined",
            "undefined",
        ]


def test_closures_generators_and_pending_promises_live_from_eval_to_eval(session: Session) -> None:
    session.eval(
        """
        const counter = (() => { let n = 0; return () => ++n })();
        function* letters() { yield 'a'; yield 'b' }
        const walk = letters(); walk.next();
        let release; const gate = new Promise(resolve => { release = resolve });
        """
    )
    assert session.eval("[counter(), walk.next().value]").value == [1, "b"]
    assert session.eval("setTimeout(() => release(9), 1); await gate").value == 9


@pytest.mark.parametrize("prefix", ["", "await 0;"])
@pytest.mark.parametrize(
    ("source", "value"),
    [
        ("{a: 1, b: 2}", {"a": 1, "b": 2}),
        ('{"a": [1, {}], "b": null}\n', {"a": [1, {}], "b": None}),
        ("let x = 1; {a: x, ...{b: 2}};", {"a": 1, "b": 2}),
        ("{a: 1, b: 2}.b", 2),
        ("{a: 1 as number, b: 2}", {"a": 1, "b": 2}),
        ("{ f() { return 3 } }.f()", 3),
        ("1; {}", 1),
        ("{ let y = 5; y }", 5),
        ("{ 1; 2 }", 2),
        ("let a = 4; {a}", 4),
        ("{ loop: for (;;) { 6; break loop } }", 6),
    ],
)
def test_an_object_literal_in_the_place_of_a_statement_is_the_object(
    session: Session, source: str, value: object, prefix: str
) -> None:
    assert session.eval(prefix + source).value == value


def test_a_timeout_says_what_was_waited_for(session: Session) -> None:
    with session._pool.session(limits=Limits(wall=0.3)) as short:
        error = short.eval("await new Promise((resolve) => setTimeout(resolve, 1e5))").error
        assert error is not None
        assert re.search(r"tools 0\.0 s, timers 0\.\d s, wall 0\.\d s of 0\.3 s", error.message)


# --- set, reset -----------------------------------------------------------------------------------


def test_set_makes_a_host_value_a_global_and_survives_a_rollback(session: Session) -> None:
    session.set("rows", [{"id": 1, "tags": ["a", None]}, {"id": 2**60}])
    assert session.eval("rows[0].tags.length + ' ' + typeof rows[1].id").value == "2 bigint"
    session.eval("rows.length = 0; for (;;);", timeout=0.2)
    session.interrupt()  # without an eval to stop: nothing
    assert session.eval("typeof rows").value == "object"


@pytest.mark.parametrize("name", ["", "a b", "1a", "a-b", "a\n", 5, None, "__proto__", "console"])
def test_set_refuses_what_is_no_name(session: Session, name: Any) -> None:
    with pytest.raises(UsageError, match=re.escape(repr(name))):
        session.set(name, 1)
    assert session.eval("1").value == 1


def test_reset_leaves_nothing_of_the_old_state_and_keeps_the_options() -> None:
    with Pool(clock="frozen") as pool, pool.session(tools={"one": lambda _: 1}) as session:
        session.eval("var a = 1; Object.freeze(Array.prototype); globalThis.tools = null")
        before = session.pid
        session.reset()
        assert session.pid != before
        result = session.eval("[typeof a, Object.isFrozen(Array.prototype), await tools.one()]")
        assert (result.value, result.notes) == (["undefined", False, 1], ())


# --- copies ---------------------------------------------------------------------------------------


def test_fork_copies_what_no_snapshot_could_hold_and_then_they_part(pool: Pool) -> None:
    with pool.session() as session:
        session.eval(
            """
            const outer = () => { let a = 1; return () => { let b = 10; return () => a++ + b++ } };
            const deep = outer();
            const inner = deep(); inner();
            function* count() { let n = 0; for (;;) yield n++ }
            const walk = count(); walk.next();
            const map = new WeakMap(); const key = {}; map.set(key, 'v');
            """
        )
        with session.fork() as copy:
            look = "[inner(), walk.next().value, map.get(key)]"
            assert copy.eval(look).value == [13, 1, "v"]
            assert copy.eval("inner()").value == 15
            assert session.eval(look).value == [13, 1, "v"]
            copy.eval("var only = 1")
            assert session.eval("typeof only").value == "undefined"
            assert copy.pid != session.pid


def test_copy_and_copy_of_a_copy_work_when_the_original_is_closed(pool: Pool) -> None:
    original = pool.session()
    original.eval("const next = (() => { let n = 0; return () => ++n })()")
    copy = original.fork()
    copy.eval("next()")
    grandchild = copy.fork()
    original.close()
    assert [copy.eval("next()").value for _ in range(5)] == [2, 3, 4, 5, 6]
    copy.close()
    assert [grandchild.eval("next()").value for _ in range(5)] == [2, 3, 4, 5, 6]
    grandchild.close()


def test_copy_rolls_back_by_itself_whoever_else_dies(pool: Pool) -> None:
    with pool.session(limits=Limits(cpu=1.0)) as session:
        session.eval("let n = 1")
        with session.fork() as copy:
            copy.eval("n = 2")
            grown = copy.eval("const hold = []; for (;;) hold.push(new Array(1e4).fill(1))")
            assert grown.error is not None
            assert grown.error.name == "OutOfMemory"
            assert copy.eval("n").value == 2
            assert session.eval("n").value == 1
            session.eval("for (;;);")
            assert copy.eval("n").value == 2


def test_copy_takes_the_tools_along(pool: Pool) -> None:
    with pool.session(tools={"twice": lambda args: args["n"] * 2}) as session:
        with session.fork() as copy:
            assert copy.eval("await tools.twice({n: 4})").value == 8
        assert session.eval("await tools.twice({n: 5})").value == 10


def test_copies_of_a_closed_session_are_refused(pool: Pool) -> None:
    session = pool.session()
    session.close()
    before = pool.stats()["sessions"]
    with pytest.raises(SessionClosed):
        session.fork()
    assert pool.stats()["sessions"] == before


def test_family_is_bounded_and_every_member_of_a_full_one_can_crash_and_come_back(
    pool: Pool,
) -> None:
    """The bound is fixed before a guest runs: nothing in the sandbox may raise a limit later."""
    session = pool.session()
    session.eval("const next = (() => { let n = 0; return () => ++n })(); next()")
    members = [session, *(session.fork() for _ in range(4))]
    try:
        sessions = pool.stats()["sessions"]
        with pytest.raises(SpawnError, match="at most 5 at a time"):
            members[-1].fork()
        assert pool.stats()["sessions"] == sessions
        for round_ in range(2, 6):
            with ThreadPoolExecutor(len(members)) as threads:
                # All at once, which is when the most processes are about.
                values = list(threads.map(lambda one: one.eval("next()").value, members))
                assert values == [round_] * len(members)
                for one in members:
                    os.kill(one.pid, signal.SIGKILL)
        members.pop().close()
        members.append(session.fork())  # a place that was given back can be taken again
        assert members[-1].eval("next()").value == 6
    finally:
        for one in members:
            one.close()


def test_bound_of_processes_leaves_room_for_a_full_family() -> None:
    assert MAX_PROCESSES >= 8 + 5 * (MAX_MEMBERS - 1)


# --- preload --------------------------------------------------------------------------------------


def test_preload_is_there_in_every_session_frozen_and_out_of_sight() -> None:
    preload = """
        const sum = values => values.reduce((a, b) => a + b, 0);
        const settings = { deep: { on: true } };
        class Money { constructor(n) { this.n = n } twice() { return new Money(this.n * 2) } }
    """
    with Pool(preload=preload) as pool, pool.session() as session:
        assert session.eval("[sum([1, 2]), new Money(2).twice().n]").value == [3, 4]
        assert session.eval("Object.keys(globalThis)").value == []
        frozen = session.eval("'use strict'; settings.deep = 1")
        assert frozen.error is not None
        assert frozen.error.name == "TypeError"
        session.eval("settings.deep.on = false; Money.prototype.twice = () => 0; sum.x = 1")
        assert session.eval("[sum([4]), settings.deep.on, new Money(2).twice().n]").value == [
            4,
            True,
            4,
        ]
        with session.fork() as copy:
            assert copy.eval("sum([1, 1])").value == 2
        session.reset()
        assert session.eval("sum([2, 2])").value == 4


@pytest.mark.parametrize(
    ("preload", "says"),
    [
        ("throw new RangeError('no')", "RangeError: no"),
        ("const = 1", "SyntaxError"),
        ("await new Promise(() => {})", "wait"),
    ],
)
def test_preload_that_fails_is_a_start_error_that_says_why(preload: str, says: str) -> None:
    with Pool(preload=preload) as pool:
        with pytest.raises(SpawnError, match=says):
            pool.start()
        with pytest.raises(SpawnError, match=says):
            pool.session()
        assert pool.stats()["sessions"] == 0


# --- random numbers -------------------------------------------------------------------------------


def _first_draws(seed: int | str | None) -> list[list[float]]:
    with Pool(seed=seed) as pool:
        draws = []
        for _ in range(3):
            with pool.session() as session:
                draws.append(session.eval(_DRAWS).value)
        return draws


def test_same_seed_gives_the_same_numbers_session_by_session() -> None:
    one, other = _first_draws(7), _first_draws(7)
    assert one == other
    assert len({number for draws in one for number in draws}) == 9


def test_other_seed_or_none_gives_other_numbers() -> None:
    seen = [*_first_draws(7), *_first_draws("7 "), *_first_draws(None), *_first_draws(None)]
    assert len({number for draws in seen for number in draws}) == 36


def test_no_number_is_drawn_twice_over_checkpoints_rollbacks_copies_and_resets() -> None:
    drawn: list[float] = []
    with Pool(seed=1, limits=Limits(memory=4 << 20)) as pool, pool.session() as session:

        def draw(one: Session) -> None:
            drawn.extend(one.eval(_DRAWS).value)

        draw(session)
        draw(session)
        lost = session.eval(f"console.log({_DRAWS}.join()); await 0; throw 1")
        drawn.extend(map(float, lost.stdout.split(",")))
        draw(session)
        # Rolled back: what the lost program saw must not come again either.
        lost = session.eval(f"console.log({_DRAWS}.join()); const l = []; for (;;) l.push([l])")
        assert lost.state == "rolled_back"
        drawn.extend(map(float, lost.stdout.split(",")))
        draw(session)
        with session.fork() as copy, session.fork() as second:
            for one in (session, copy, second, session, copy, second):
                draw(one)
        session.reset()
        draw(session)
    assert len(set(drawn)) == len(drawn)


def test_crypto_random_does_not_repeat_in_copies(pool: Pool) -> None:
    with pool.session() as session, session.fork() as copy:
        ids = [one.eval("crypto.randomUUID()").value for one in (session, copy, session, copy)]
        assert len(set(ids)) == 4


# --- clocks ---------------------------------------------------------------------------------------


def test_clock_is_off_unless_the_host_says_otherwise(session: Session) -> None:
    assert session.eval("[Date.now(), new Date().getTime(), typeof performance]").value == [
        0,
        0,
        "undefined",
    ]


def test_frozen_clock_stands_at_the_start_of_each_eval() -> None:
    with Pool(clock="frozen") as pool, pool.session() as session:
        before = time.time() * 1000
        spent = session.eval(
            "const a = Date.now(); await new Promise(r => setTimeout(r, 30)); [a, Date.now()]"
        )
        after = time.time() * 1000
        first, second = spent.value
        assert first == second
        assert before - 1 <= first <= after
        assert session.eval("Date.now()").value >= first + 30


def test_real_clock_goes_on_in_an_eval() -> None:
    with Pool(clock="real") as pool, pool.session() as session:
        before = time.time() * 1000
        first, second = session.eval(
            "const a = Date.now(); await new Promise(r => setTimeout(r, 30)); [a, Date.now()]"
        ).value
        assert before - 1 <= first < second <= time.time() * 1000 + 1
        assert second - first >= 25


# --- limits of a session --------------------------------------------------------------------------


def test_session_narrows_the_limits_of_its_pool(pool: Pool) -> None:
    with pool.session(limits=Limits(memory=8 << 20, cpu=0.3, result_chars=10)) as session:
        assert session.limits.memory == 8 << 20
        assert session.limits.wall == 10.0  # as the pool has it
        grown = session.eval("new ArrayBuffer(9 << 20).byteLength")
        assert grown.error is not None
        assert (grown.error.name, "8 MiB" in grown.error.message) == ("OutOfMemory", True)
        late = session.eval("for (;;);")
        assert late.error is not None
        assert "of 0.3 s" in late.error.message
        assert session.eval("'x'.repeat(100)").text.startswith("xxxxxxxxxx…")
        with session.fork() as copy:
            assert copy.limits == session.limits
    with pool.session() as wide:
        assert wide.eval("new ArrayBuffer(9 << 20).byteLength").value == 9 << 20


@pytest.mark.parametrize(
    "wider", [Limits(memory=65 << 20), Limits(cpu=3.0), Limits(wall=11.0), Limits(host_calls=300)]
)
def test_session_cannot_widen_the_limits_of_its_pool(pool: Pool, wider: Limits) -> None:
    before = pool.stats()
    with pytest.raises(UsageError, match="wider than the pool's"):
        pool.session(limits=wider)
    assert pool.stats()["sessions"] == before["sessions"]


# --- misuse ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("code", [None, 5, b"1", ["1"]])
def test_code_that_is_no_text_is_refused_with_its_type(session: Session, code: Any) -> None:
    with pytest.raises(UsageError, match=type(code).__name__):
        session.eval(code)
    assert session.eval("1").value == 1


def test_code_over_the_cap_is_refused_with_both_sizes(session: Session) -> None:
    cap = 16 << 20
    with pytest.raises(UsageError, match=rf"{cap + 3} bytes.*{cap}"):
        session.eval("1//" + "x" * cap)
    with pytest.raises(UsageError, match=f"{cap}"):
        session.eval("é" * (cap // 2 + 1))  # bytes count, not characters
    with Pool(limits=Limits(cpu=60.0)) as patient, patient.session() as other:
        assert other.eval("1//" + "x" * (cap - 100)).value == 1


@pytest.mark.parametrize("timeout", [0, -1, "1", float("nan"), 2.5])
def test_timeout_out_of_range_is_refused_with_its_value(session: Session, timeout: Any) -> None:
    with pytest.raises(UsageError, match=re.escape(repr(timeout))):
        session.eval("1", timeout=timeout)
    assert session.eval("1", timeout=2).value == 1


@pytest.mark.parametrize(
    "options",
    [
        {"isolation": "none"},
        {"durability": "sometimes"},
        {"clock": "on"},
        {"max_sessions": 0},
        {"max_sessions": True},
        {"min_idle": -1},
        {"min_idle": 5, "max_sessions": 4},
        {"checkout_timeout": 0},
        {"limits": {"cpu": 1}},
        {"preload": b"1"},
    ],
)
def test_option_out_of_range_is_refused_before_anything_starts(options: dict[str, Any]) -> None:
    name = next(iter(options))
    with pytest.raises(UsageError, match=name):
        Pool(**options)


def test_unknown_option_is_refused_by_name() -> None:
    with pytest.raises(TypeError, match="max_workers"):
        Pool(max_workers=4)  # type: ignore[call-arg]
    with pytest.raises(TypeError, match="memory_limit"):
        Limits(memory_limit=4)  # type: ignore[call-arg]


def test_closed_session_refuses_everything_and_closes_again(pool: Pool) -> None:
    session = pool.session()
    session.eval("1")
    session.close()
    session.close()
    assert session.closed
    session.interrupt()
    for use in (
        lambda: session.eval("1"),
        lambda: session.set("a", 1),
        lambda: session.pid,
        session.fork,
        session.reset,
    ):
        with pytest.raises(SessionClosed, match="closed"):
            use()


def test_sessions_and_pool_refuse_everything_once_the_pool_is_closed() -> None:
    pool = Pool()
    session = pool.session()
    pool.close()
    with pytest.raises(SessionClosed):
        session.eval("1")
    for use in (pool.session, pool.start):
        with pytest.raises(SessionClosed, match="pool is closed"):
            use()
    session.close()
    pool.close()


def test_more_waiting_evals_than_the_bound_are_refused_and_the_others_run_in_order(
    pool: Pool, start: Callable[..., Any], until: Callable[..., None]
) -> None:
    gate = threading.Event()
    with pool.session(tools={"gate": lambda _: gate.wait(20)}) as session:
        session.eval("const order = []")
        running = [start(lambda: session.eval("await tools.gate(); order.push('first')"))]
        turns = session._core.turns
        until(lambda: turns.holders == 1)
        for number in range(64):
            running.append(start(lambda number=number: session.eval(f"order.push({number})")))
            until(lambda number=number: turns.waiting == number + 1)
        with pytest.raises(QueueFull, match="64"):
            session.eval("order.push('too many')")
        gate.set()
        assert all(one.result(30).ok for one in running)
        assert session.eval("order").value == ["first", *range(64)]


def test_session_that_dies_while_it_is_copied_is_served_by_another_worker(
    pool: Pool, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pool.session() as session:
        session.eval("let n = 1").unwrap()
        core = session._core
        request = core._request

        def after_the_end_of_its_family(make: Any) -> Any:
            assert core.anchor_pid is not None
            os.kill(core.anchor_pid, signal.SIGKILL)
            return request(make)

        monkeypatch.setattr(core, "_request", after_the_end_of_its_family)
        with pytest.raises(SpawnError, match="was not copied: the session's state is lost"):
            session.fork()
        monkeypatch.undo()
        # The one that was asked in its place waits for no byte of this.
        assert session.eval("typeof n").value == "undefined"
        with session.fork() as copy:
            assert copy.eval("6 * 7").value == 42
