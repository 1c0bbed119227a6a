"""Worker functions: the host's Python inside the sandbox, under its limits."""

from __future__ import annotations

import os
import socket
import sys
from collections.abc import Iterator
from typing import Any

import cloudpickle
import pytest

from qjs_pool import Limits, Pool, Session, SpawnError, UsageError


def _add(args: dict[str, Any]) -> Any:
    return args["a"] + args["b"]


def _fail(args: Any) -> None:
    raise LookupError(f"no {args['key']}")


def _burn(args: Any) -> int:
    total = 0
    while True:
        total += 1


def _eat(args: Any) -> int:
    rows = []
    while True:
        rows.append(bytes(1 << 20))


def _leave(args: Any) -> None:
    raise SystemExit(5)


def _die(args: Any) -> None:
    os._exit(5)


def _give_up(args: Any) -> None:
    raise KeyboardInterrupt


class _Mumbled(Exception):
    def __str__(self) -> str:
        raise ValueError


def _mumble(args: Any) -> None:
    raise _Mumbled


def _where(args: Any) -> list[Any]:
    return [os.getpid(), dict(os.environ)]


def _reach_out(args: Any) -> str:
    outcomes = []
    for attempt in (
        lambda: os.open("/etc/passwd", os.O_RDONLY),
        socket.socket,
        lambda: os.listdir("/"),
    ):
        try:
            attempt()
            outcomes.append("reached")
        except OSError as error:
            outcomes.append(type(error).__name__)
    return ",".join(outcomes)


_SEEN: list[Any] = []


def _remember(args: Any) -> int:
    _SEEN.append(args)
    return len(_SEEN)


@pytest.fixture(scope="module")
def function_pool() -> Iterator[Pool]:
    functions = {
        "add": _add, "fail": _fail, "burn": _burn, "eat": _eat, "leave": _leave, "die": _die,
        "where": _where, "reach_out": _reach_out, "remember": _remember, "same": lambda args: args,
        "nothing_like_it": lambda _: object(), "big": lambda _: "x" * (17 << 20),
        "huge": lambda _: 1 << (2 << 20), "give_up": _give_up, "mumble": _mumble,
    }  # fmt: skip
    # By value, as those of a script are: this module need not be importable in the worker.
    cloudpickle.register_pickle_by_value(sys.modules[__name__])
    with Pool(limits=Limits(cpu=0.5, wall=10.0), worker_functions=functions) as pool:
        yield pool


@pytest.fixture
def worker(function_pool: Pool) -> Iterator[Session]:
    with function_pool.session(tools={"host": lambda _: os.getpid()}) as session:
        yield session


def test_a_function_runs_in_the_worker_without_a_round_trip(worker: Session) -> None:
    pid, environment = worker.eval("await tools.where()").value
    assert pid != os.getpid()
    assert environment.keys() <= {"TZ", "LC_CTYPE"}
    result = worker.eval("[await tools.add({a: 1, b: 2}), await tools.add({a: 'x', b: 'y'})]")
    assert result.value == [3, "xy"]
    assert result.calls == ()
    assert result.usage.host_calls == 0


def test_functions_and_tools_stand_side_by_side(worker: Session) -> None:
    assert (
        worker.eval("Object.keys(tools).includes('reachOut') && await tools.host()").value
        == os.getpid()
    )


@pytest.mark.parametrize(
    ("code", "value"),
    [("{a: [1, {b: null}]}", {"a": [1, {"b": None}]}), ("5", {"input": 5}), ("", {}),
     ("{n: 2n ** 70n}", {"n": 2**70}),
     ("{b: new Uint8Array([1])}", {"b": b"\x01"}),
     ("{$: ['num', 'nan']}", {"$": ["num", "nan"]}), ("{f: -0}", {"f": -0.0})],
)  # fmt: skip
def test_values_cross_as_they_do_for_tools(worker: Session, code: str, value: Any) -> None:
    assert repr(worker.eval(f"await tools.same({code})").value) == repr(value)


def test_an_exception_rejects_with_its_name_and_message(worker: Session) -> None:
    result = worker.eval("try { await tools.fail({key: 'k'}) } catch (e) { [e.name, e.message] }")
    assert result.value == ["LookupError", "no k"]
    error = worker.eval("await tools.fail({key: 'k'})").error
    assert error is not None
    assert error.name == "LookupError"


def test_a_result_that_cannot_cross_rejects(worker: Session) -> None:
    code = (
        "(await Promise.allSettled([tools.nothingLikeIt(), tools.big()])).map(r => r.reason.name)"
    )
    assert worker.eval(code).value == ["ValueConversionError", "ValueTooLarge"]


@pytest.mark.parametrize(
    ("call", "name", "message"),
    [("leave()", "SystemExit", "5"), ("giveUp()", "KeyboardInterrupt", ""),
     ("mumble()", "_Mumbled", "it does not say what went wrong"),
     ("huge()", "ValueTooLarge", "2097153 bits")],
)  # fmt: skip
def test_no_error_of_a_function_ends_the_worker(
    worker: Session, call: str, name: str, message: str
) -> None:
    result = worker.eval(f"try {{ await tools.{call} }} catch (e) {{ [e.name, e.message] }}")
    assert result.value[0] == name
    assert message in result.value[1]
    assert result.state == "kept"
    assert worker._core.recoveries == 0


@pytest.mark.parametrize(
    ("function", "errors"),
    [("burn", {"Timeout"}), ("eat", {"OutOfMemory", "MemoryError"}), ("die", {"WorkerCrashed"})],
)  # fmt: skip
def test_a_function_that_goes_wrong_ends_its_eval_and_nothing_else(
    worker: Session, function: str, errors: set[str]
) -> None:
    worker.eval("globalThis.n = 41")
    result = worker.eval(f"n = 0; await tools.{function}({{}})")
    assert result.error is not None
    assert result.error.name in errors
    if result.state == "rolled_back":
        assert worker.eval("n + 1").value == 42
    assert worker.eval("await tools.add({a: 40, b: 2})").value == 42


def test_a_function_can_reach_nothing(worker: Session) -> None:
    outcomes = worker.eval("await tools.reachOut({})").value.split(",")
    assert outcomes == ["PermissionError"] * 3


def test_what_a_function_changes_is_its_sessions_own(function_pool: Pool) -> None:
    with function_pool.session() as one, function_pool.session() as other:
        assert one.eval("await tools.remember(1); await tools.remember(2)").value == 2
        assert other.eval("await tools.remember(1)").value == 1
    assert _SEEN == []


def test_calls_of_functions_count_against_the_budget(function_pool: Pool) -> None:
    with function_pool.session(limits=Limits(host_calls=2)) as session:
        result = session.eval("for (let i = 0; i < 3; i++) await tools.same(i)")
    assert result.error is not None
    assert result.error.name == "PTCCallBudgetExceeded"


class _LoadsNot:
    def __reduce__(self) -> Any:
        return (_refuse_to_load, ())


def _refuse_to_load() -> None:
    raise ImportError("no module named pandas")


def test_a_function_that_does_not_load_is_a_clear_error_at_start() -> None:
    bomb = _LoadsNot()
    problem = r"'f' does not load.*no module named pandas"
    pool = Pool(worker_functions={"f": lambda args: bomb})
    with pool, pytest.raises(SpawnError, match=problem):
        pool.start()


def test_a_tool_may_not_have_the_name_of_a_function(function_pool: Pool) -> None:
    with pytest.raises(UsageError, match="'reach_out' and 'reachOut'"):
        function_pool.session(tools={"reachOut": len})
    with pytest.raises(UsageError, match="add"):
        function_pool.session(tools={"add": len})
