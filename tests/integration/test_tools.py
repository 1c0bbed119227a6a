"""Tools end to end: what a guest calls, what it gets, and what it is told when it fails."""

from __future__ import annotations

import asyncio
import contextvars
import dataclasses
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any, Final

import pytest

from qjs_pool import AsyncPool, EvalResult, Limits, Pool, Tool, UsageError
from qjs_pool.calls import ToolEvent

_LIMITS: Final = Limits(cpu=5.0, wall=20.0)
_PATIENCE_S: Final = 20.0
Run = Callable[..., EvalResult]


@pytest.fixture(scope="module")
def tool_pool() -> Iterator[Pool]:
    with Pool(limits=_LIMITS, min_idle=1) as pool:
        yield pool


@pytest.fixture
def run(tool_pool: Pool) -> Run:
    """`run(code, name=callable, …)`: one eval in a session of its own with these tools."""

    def evaluate(code: str, **tools: Any) -> EvalResult:
        with tool_pool.session(tools=tools) as session:
            return session.eval(code)

    return evaluate


@pytest.fixture
def gate() -> Iterator[threading.Event]:
    """What slow tools wait for; opened at the end whatever happened."""
    gate = threading.Event()
    yield gate
    gate.set()


def _error(result: EvalResult) -> tuple[str, str]:
    assert result.error is not None, result.text
    return result.error.name, result.error.message


# --- names --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "name", ["webSearch", "web_search", "web-search", "WebSearch", "websearch", "web.search"]
)
def test_a_tool_is_found_by_its_name_and_near_misses(run: Run, name: str) -> None:
    code = f"await tools[{name!r}]({{q: 'x'}})"
    assert run(code, web_search=lambda args: args).value == {"q": "x"}


def test_an_unknown_name_is_answered_with_the_nearest_and_the_list(run: Run) -> None:
    tools = {"web_search": lambda _: 1, "read_file": lambda _: 1}
    name, message = _error(run("await tools.webSerch({query: 'x'})", **tools))
    assert name == "TypeError"
    assert "did you mean webSearch?" in message
    assert "available: webSearch, readFile" in message
    caught = "try { await tools.nothingLikeIt({}) } catch (e) { e.message }"
    assert "no tool nothingLikeIt" in run(caught, **tools).value


def test_a_session_without_tools_says_so(run: Run) -> None:
    assert "has no tools" in _error(run("await tools.search({})"))[1]


def test_the_guest_can_list_its_tools(run: Run) -> None:
    result = run("[Object.keys(tools), 'webSearch' in tools, typeof tools.webSearch]",
                 web_search=Tool(call=len, description="Searches the web."))  # fmt: skip
    assert result.value == [["webSearch"], True, "function"]
    described = run(
        "tools.$describe('web_search')", web_search=Tool(call=len, description="Finds.")
    )
    assert described.value == "Finds."


def test_names_that_collide_or_give_no_identifier_are_refused(tool_pool: Pool) -> None:
    for tools in ({"a_b": len, "aB": len}, {"1st": len}, {"a": 1}):
        with pytest.raises(UsageError):
            tool_pool.session(tools=tools)
    assert tool_pool.stats()["sessions"] == 0


# --- inputs -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("given", "got"),
    [
        ("{a: 1, b: 'x'}", {"a": 1, "b": "x"}), ("{a: undefined, b: null}", {"b": None}),
        ("", {}), ("undefined", {}), ("null", {}), ("{}", {}), ("5", {"input": 5}),
        ("'text'", {"input": "text"}), ("[1, 2]", {"input": [1, 2]}), ("true", {"input": True}),
        ("new Map([['a', new Set([1])]])", {"a": [1]}), ("{at: new Date(0)}.at", None),
        ("{n: 2n ** 70n, b: new Uint8Array([1])}", {"n": 2**70, "b": b"\x01"}),
        ("{$: 1}", {"$": 1}), ("{__proto__: null, a: 1}", {"a": 1}), ("{a: 1}, 2, 3", {"a": 1}),
        ("{s: '\\ud800'}", {"s": "\ufffd"}), ("{a: {b: [undefined]}}", {"a": {"b": [None]}}),
    ],
)  # fmt: skip
def test_an_input_arrives_as_sensible_python(run: Run, given: str, got: Any) -> None:
    seen: list[Any] = []
    result = run(f"await tools.take({given}); 1", take=seen.append)
    assert result.value == 1, result.error
    if got is not None:
        assert seen == [got]


def test_a_lone_string_goes_to_the_only_required_field(run: Run) -> None:
    one = Tool(call=lambda args: args, required=("query",))
    two = Tool(call=lambda args: args, required=("query", "page"))
    result = run("[await tools.one('cats'), await tools.two('cats'), await tools.one({query: 1})]",
                 one=one, two=two)  # fmt: skip
    assert result.value == [{"query": "cats"}, {"input": "cats"}, {"query": 1}]


@pytest.mark.parametrize(
    ("given", "name"),
    [("(() => { const a = {}; a.a = a; return a })()", "ValueConversionError"),
     ("{s: 'x'.repeat(17e6)}", "ValueTooLarge"),
     ("{get a() { throw new TypeError('mine') }}", "ValueConversionError")],
)  # fmt: skip
def test_an_input_that_cannot_cross_rejects_and_calls_nothing(
    run: Run, given: str, name: str
) -> None:
    seen: list[Any] = []
    result = run(f"try {{ await tools.take({given}) }} catch (e) {{ e.name }}", take=seen.append)
    assert result.value == name
    assert seen == []


# --- results ------------------------------------------------------------------------------------


@dataclasses.dataclass
class _Row:
    id: int
    tags: tuple[str, ...]


@pytest.mark.parametrize(
    ("given", "check"),
    [
        (None, "v === null"), ("text", "v === 'text'"), (1.5, "v === 1.5"),
        (2**60, "v === 2n ** 60n"),
        ([1, (2,)], "v[1][0] === 2"), ({"a": {1: 2}}, "v.a['1'] === 2"), (b"ab", "v[1] === 98"),
        (_Row(1, ("x",)), "v.id === 1 && v.tags[0] === 'x'"),
        ("x" * 10_000_000, "v.length === 1e7"),
        ({"__proto__": {"bad": 1}}, "({}).bad === undefined && Object.keys(v)[0] === '__proto__'"),
        ({"then": 1}, "v.then === 1"), ([{"i": i} for i in range(5000)], "v[4999].i === 4999"),
    ],
    ids=lambda value: repr(value)[:30],
)  # fmt: skip
def test_a_result_is_native_to_the_guest(run: Run, given: Any, check: str) -> None:
    result = run(f"const v = await tools.give(); {check}", give=lambda _: given)
    assert result.value is True, result.error


def _cycle() -> list[Any]:
    cycle: list[Any] = []
    cycle.append(cycle)
    return cycle


@pytest.mark.parametrize(
    ("given", "name", "part"),
    [(object(), "ValueConversionError", "object"), (_cycle(), "ValueConversionError", "cycle"),
     ("x" * (17 << 20), "ValueTooLarge", "Limits.value_bytes"),
     (lambda: 1, "ValueConversionError", "")],
    ids=["unknown type", "cycle", "too large", "function"],
)  # fmt: skip
def test_a_result_that_cannot_cross_rejects_with_the_tools_name(
    run: Run, given: Any, name: str, part: str
) -> None:
    result = run("await tools.give()", give=lambda _: given)
    assert _error(result)[0] == name
    assert "give" in _error(result)[1]
    assert part in _error(result)[1]
    assert result.calls[0].outcome == "error"


# --- errors -------------------------------------------------------------------------------------


class RateLimited(Exception):
    pass


def _limited(_: Any) -> None:
    raise RateLimited("retry in 5 s, key=abc")


@pytest.mark.parametrize(
    ("policy", "seen"),
    [("message", ["RateLimited", "retry in 5 s, key=abc"]),
     ("type", ["RateLimited", "the tool failed"]),
     ("none", ["ToolError", "the tool failed"])],
)  # fmt: skip
def test_a_tools_exception_rejects_with_what_the_policy_shows(
    run: Run, policy: Any, seen: list[str]
) -> None:
    code = "try { await tools.f() } catch (e) { [e.name, e.message, e instanceof Error, e.stack] }"
    value = run(code, f=Tool(call=_limited, errors=policy)).value
    assert value[:3] == [*seen, True]
    assert "Traceback" not in value[3]
    assert ".py" not in value[3]


def test_the_policy_of_the_pool_holds_where_a_tool_has_none() -> None:
    tools = {"f": _limited, "g": Tool(call=_limited, errors="message")}
    with Pool(limits=_LIMITS, tool_errors="none") as pool, pool.session(tools=tools) as s:
        result = s.eval(
            "(await Promise.allSettled([tools.f(), tools.g()])).map(r => r.reason.name)"
        )
    assert result.value == ["ToolError", "RateLimited"]


def test_an_uncaught_tool_error_is_an_error_result_with_the_line_of_the_call(run: Run) -> None:
    result = run("const a = 1;\nconst b = await tools.f();\nb", f=_limited)
    assert _error(result) == ("RateLimited", "retry in 5 s, key=abc")
    assert result.error is not None
    assert "eval:2" in result.error.stack
    assert result.state == "kept"


def test_a_batch_tells_which_of_its_calls_failed_and_why(run: Run) -> None:
    def price(args: dict[str, Any]) -> int:
        if args["row"] == 17:
            raise LookupError("no row 17")
        return int(args["row"])

    result = run("(await Promise.allSettled([16, 17].map(row => tools.price({row}))))"
                 ".map(r => r.reason?.message ?? r.value)", price=price)  # fmt: skip
    assert result.value == [16, "no row 17"]


@pytest.mark.parametrize("kind", [TypeError, RangeError := type("RangeError", (Exception,), {})])
def test_an_error_with_a_javascript_name_is_one(run: Run, kind: type[Exception]) -> None:
    def fail(_: Any) -> None:
        raise kind("why")

    code = f"try {{ await tools.f() }} catch (e) {{ e instanceof {kind.__name__} && e.message }}"
    assert run(code, f=fail).value == "why"


@pytest.mark.parametrize("kind", [StopIteration, GeneratorExit, asyncio.CancelledError])
def test_an_odd_exception_of_a_tool_is_no_exception_of_the_host(
    run: Run, kind: type[BaseException]
) -> None:
    def fail(_: Any) -> None:
        raise kind

    code = "try { await tools.f(); 'no' } catch (e) { 'caught' }"
    assert run(code, f=fail).value == "caught"


class Stop(BaseException):
    """Control flow of the host's own."""


def test_control_flow_of_the_host_is_raised_from_the_eval_which_never_happened() -> None:
    def stop(_: Any) -> None:
        raise Stop

    with Pool() as pool, pool.session(tools={"stop": stop}) as session:
        session.eval("var n = 1")
        with pytest.raises(Stop):
            session.eval("n = 2; try { await tools.stop() } catch (e) { n = 3 }")
        assert session.eval("n").value == 1


def test_a_wrong_signature_rejects(run: Run) -> None:
    async def two(a: Any, b: Any) -> None: ...

    for tool in (lambda: 1, two):
        assert _error(run("await tools.f({})", f=tool))[0] == "TypeError"


# --- concurrency, budgets, time -----------------------------------------------------------------


def test_calls_at_once_are_capped_and_500_all_answer(tool_pool: Pool) -> None:
    lock, running, most = threading.Lock(), [0], [0]

    def fetch(args: dict[str, Any]) -> int:
        with lock:
            running[0] += 1
            most[0] = max(most[0], running[0])
        time.sleep(0.001)  # long enough to overlap; nothing is synchronised by it
        with lock:
            running[0] -= 1
        return int(args["i"])

    limits = dataclasses.replace(_LIMITS, host_calls=None, host_concurrency=8)
    with Pool(limits=limits) as pool, pool.session(tools={"fetch": fetch}) as session:
        result = session.eval(
            "const all = await Promise.all(Array.from({length: 500}, (_, i) => tools.fetch({i})));"
            "all.every((v, i) => v === i)"
        )
    assert result.value is True, result.error
    assert 1 < most[0] <= 8
    assert result.usage.host_calls == len(result.calls) == 500
    assert {call.outcome for call in result.calls} == {"ok"}


@pytest.mark.parametrize("budget", [0, 1, 5])
def test_calls_over_the_budget_reject_and_can_be_caught(tool_pool: Pool, budget: int) -> None:
    made: list[Any] = []
    with tool_pool.session(limits=Limits(host_calls=budget), tools={"f": made.append}) as session:
        result = session.eval(
            "let n = 0; try { for (;;) { await tools.f({}); n++ } }"
            "catch (e) { [n, e.name, e.message] }"
        )
        count, name, message = result.value
        assert (count, name) == (budget, "PTCCallBudgetExceeded")
        assert str(budget) in message
        assert len(made) == budget
        assert _error(session.eval("await Promise.all(Array(9).fill().map(() => tools.f()))"))[
            0
        ] == ("PTCCallBudgetExceeded")
        # Each eval has a budget of its own.
        assert session.eval("await tools.f().then(() => 1, () => 0)").value == min(budget, 1)


def test_without_a_budget_there_is_no_end(tool_pool: Pool) -> None:
    limits = Limits(host_calls=None, wall=30.0)
    with Pool(limits=limits) as pool, pool.session(tools={"f": lambda _: 1}) as session:
        result = session.eval("let n = 0; for (let i = 0; i < 1000; i++) n += await tools.f(); n")
    assert result.value == 1000


def test_an_eval_returns_when_its_value_settles_and_stragglers_answer_later(
    tool_pool: Pool, gate: threading.Event
) -> None:
    tools = {"slow": lambda _: gate.wait(_PATIENCE_S) and "late", "quick": lambda _: "quick"}
    with tool_pool.session(tools=tools) as session:
        result = session.eval(
            "globalThis.slow = tools.slow(); await Promise.race([slow, tools.quick()])"
        )
        assert result.value == "quick"
        assert any("1 tool call still running (slow)" in note for note in result.notes)
        assert [call.outcome for call in result.calls] == ["unknown", "ok"]
        gate.set()
        assert session.eval("await slow").value == "late"
        assert session.eval("1").notes == ()


def test_a_straggler_still_answers_after_the_next_eval_was_rolled_back(
    tool_pool: Pool, gate: threading.Event
) -> None:
    with tool_pool.session(tools={"slow": lambda _: gate.wait(_PATIENCE_S) and "late"}) as session:
        session.eval("globalThis.slow = tools.slow(); 1")
        gate.set()
        # The answer is delivered to this eval, which then never happened.
        undone = session.eval("await slow; const a = []; for (;;) a.push(new ArrayBuffer(1e6))")
        assert undone.state == "rolled_back"
        assert session.eval("await slow").value == "late"


def test_answers_of_a_state_that_was_reset_go_nowhere(
    tool_pool: Pool, gate: threading.Event
) -> None:
    first: list[bool] = []

    def slow(args: dict[str, Any]) -> str:
        if not first:
            first.append(True)
            gate.wait(_PATIENCE_S)
        return str(args["n"])

    with tool_pool.session(tools={"slow": slow}) as session:
        session.eval("tools.slow({n: 'old'}); 1")
        session.reset()
        gate.set()
        assert session.eval("await tools.slow({n: 'new'})").value == "new"


def test_a_call_that_takes_too_long_rejects_and_the_eval_goes_on(gate: threading.Event) -> None:
    async def forever(_: Any) -> None:
        await asyncio.sleep(_PATIENCE_S)

    with Pool(limits=_LIMITS, host_timeout=0.05) as pool:
        tools = {"hang": lambda _: gate.wait(_PATIENCE_S), "forever": forever,
                 "patient": Tool(call=lambda _: time.sleep(0.1) or "done", timeout=10)}  # fmt: skip
        with pool.session(tools=tools) as session:
            result = session.eval(
                "const r = await Promise.allSettled(["
                "tools.hang(), tools.forever(), tools.patient()]);"
                "r.map(r => r.reason?.name ?? r.value)"
            )
            assert result.value == ["TimeoutError", "TimeoutError", "done"]
            # Hung calls do not use up the places of later ones.
            code = "let n = 0; for (let i = 0; i < 40; i++) await tools.hang().catch(() => n++); n"
            with pool.session(limits=Limits(host_concurrency=2), tools=tools) as narrow:
                assert narrow.eval(code).value == 40


def test_waiting_for_tools_costs_no_cpu_and_the_wall_ends_it(gate: threading.Event) -> None:
    with Pool(limits=Limits(cpu=0.2, wall=20.0)) as pool:
        with pool.session(tools={"nap": lambda _: time.sleep(0.6)}) as session:
            assert session.eval("await tools.nap(); 1").value == 1
        hang = {"hang": lambda _: gate.wait(_PATIENCE_S)}
        with pool.session(limits=Limits(wall=0.3), tools=hang) as session:
            session.eval("globalThis.n = 1")
            result = session.eval("n = 2; await tools.hang()")
            assert _error(result)[0] == "Timeout"
            assert "tools" in _error(result)[1]
            assert any("cancelled" in note for note in result.notes)
            assert [call.outcome for call in result.calls] == ["cancelled"]
            assert session.eval("n").value == 2
            assert result.state == "kept"


def test_a_tool_that_never_returns_does_not_keep_the_interpreter_from_ending() -> None:
    program = (
        "import threading\n"
        "from qjs_pool import Limits, Pool\n"
        "pool = Pool(limits=Limits(wall=0.3))\n"
        "session = pool.session(tools={'hang': lambda _: threading.Event().wait()})\n"
        "print(session.eval('await tools.hang()').error.name)\n"
    )
    command = [sys.executable, "-c"]
    for ending in ("pool.close()\n", ""):
        run = subprocess.run(
            [*command, program + ending], capture_output=True, text=True, timeout=30, check=True
        )
        assert run.stdout == "Timeout\n"


# --- what the host sees -------------------------------------------------------------------------


def test_every_call_is_told_to_the_listener_and_traced(caplog: pytest.LogCaptureFixture) -> None:
    events: list[ToolEvent] = []
    caplog.set_level("DEBUG", "qjs_pool.tools")
    tools = {"ok": lambda _: "é", "bad": _limited}
    pool = Pool(limits=_LIMITS, on_tool_call=events.append)
    with pool, pool.session(tools=tools) as session:
        result = session.eval("await tools.ok({a: 1}); await tools.bad().catch(() => 0)")
    assert [(event.kind, event.name) for event in events] == [
        ("start", "ok"), ("end", "ok"), ("start", "bad"), ("error", "bad"),
    ]  # fmt: skip
    assert [event.bytes for event in events[:2]] == [len('{"a":1}'), len('"é"')]
    assert all(event.ms >= 0 for event in events)
    assert [(call.name, call.outcome) for call in result.calls] == [("ok", "ok"), ("bad", "error")]
    assert len([record for record in caplog.records if record.name == "qjs_pool.tools"]) == 4


_USER: Final = contextvars.ContextVar("_USER", default="nobody")


def test_tools_see_the_context_of_whoever_evals(run: Run) -> None:
    async def async_user(_: Any) -> str:
        return _USER.get()

    _USER.set("alice")
    result = run("[await tools.a(), await tools.b()]", a=lambda _: _USER.get(), b=async_user)
    assert result.value == ["alice", "alice"]


def test_a_sync_session_runs_async_tools_at_once(run: Run) -> None:
    both = threading.Barrier(2)

    async def meet(_: Any) -> str:
        await asyncio.to_thread(both.wait, _PATIENCE_S)
        return "met"

    result = run("await Promise.all([tools.meet(), tools.meet()])", meet=meet)
    assert result.value == ["met", "met"]
    assert run("await tools.f()", f=lambda args: meet_one(args)).value == "one"


async def meet_one(_: Any) -> str:
    await asyncio.sleep(0)
    return "one"


def test_an_async_session_runs_async_tools_in_the_callers_loop() -> None:
    async def main() -> None:
        loop, caller = asyncio.get_running_loop(), threading.get_ident()

        async def here(_: Any) -> bool:
            await asyncio.sleep(0)
            return asyncio.get_running_loop() is loop and _USER.get() == "bob"

        _USER.set("bob")

        def there(_: Any) -> bool:
            return threading.get_ident() != caller and _USER.get() == "bob"

        tools = {"here": here, "wrapped": lambda args: here(args), "there": there}
        async with AsyncPool(limits=_LIMITS) as pool, pool.session(tools=tools) as session:
            result = await session.eval(
                "[await tools.here(), await tools.there(), await tools.wrapped()]"
            )
            assert result.value == [True, True, True], result.error

    asyncio.run(main())


def test_a_cancelled_async_eval_cancels_its_calls_and_the_session_goes_on() -> None:
    async def main() -> None:
        started, cancelled = asyncio.Event(), asyncio.Event()

        async def hang(_: Any) -> None:
            started.set()
            try:
                await asyncio.sleep(_PATIENCE_S)
            except asyncio.CancelledError:
                cancelled.set()
                raise

        async with AsyncPool(limits=_LIMITS) as pool, pool.session(tools={"hang": hang}) as session:
            await session.eval("globalThis.n = 1")
            task = asyncio.create_task(session.eval("n = 2; await tools.hang()"))
            await started.wait()
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
            await asyncio.wait_for(cancelled.wait(), _PATIENCE_S)
            assert (await session.eval("n")).value == 1

    asyncio.run(main())


def test_closing_a_session_cancels_its_async_calls_from_any_thread() -> None:
    async def main() -> None:
        started, cancelled = asyncio.Event(), asyncio.Event()

        async def hang(_: Any) -> None:
            started.set()
            try:
                await asyncio.sleep(_PATIENCE_S)
            finally:
                cancelled.set()

        pool = AsyncPool(limits=_LIMITS)
        session = await pool.session(tools={"hang": hang})
        task = asyncio.create_task(session.eval("await tools.hang()"))
        await started.wait()
        await pool.close()  # in a thread of its own
        with pytest.raises(UsageError):
            await task
        await asyncio.wait_for(cancelled.wait(), _PATIENCE_S)

    asyncio.run(main())
