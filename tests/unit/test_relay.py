"""The relay of tool calls: places, times, what is held, and what a lying worker may cost."""

from __future__ import annotations

import asyncio
import json
import select
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any, Final

import pytest

from qjs_pool import Limits
from qjs_pool.calls import RelayOptions, ToolEvent
from qjs_pool.relay import Relay
from qjs_pool.runners import BackgroundLoop, DaemonThreads, Runner
from qjs_pool.tools import Tool, Toolbox, ToolLike
from qjs_pool.wire import ProtocolError
from qjs_pool.wire import messages as wire

_PATIENCE_S: Final = 20.0


class _Host:
    """A relay with real threads and a real poller, driven as a session drives it."""

    def __init__(self) -> None:
        self.threads, self.background = DaemonThreads(), BackgroundLoop()
        self.poller = select.epoll()
        self.relays: list[Relay] = []
        self.gates: list[threading.Event] = []

    def relay(
        self, tools: dict[str, ToolLike], limits: Limits | None = None, **options: Any
    ) -> Relay:
        runner = Runner(self.threads, self.background.get)
        toolbox = Toolbox.of(tools)
        relay = Relay(toolbox, limits or Limits(), runner, RelayOptions(**options), self.poller)
        self.relays.append(relay)
        relay.begin()
        return relay

    def gate(self) -> threading.Event:
        gate = threading.Event()
        self.gates.append(gate)
        return gate

    def close(self) -> None:
        for gate in self.gates:
            gate.set()
        for relay in self.relays:
            relay.close()
            relay.release()
        self.poller.close()
        self.threads.close()
        self.background.close()


@pytest.fixture
def host() -> Iterator[_Host]:
    host = _Host()
    yield host
    host.close()


def _call(relay: Relay, call_id: int, name: str = "tool", args: str = "{}") -> None:
    relay.call(wire.ToolCall(1, call_id, name, args))


def _answers(host: _Host, relay: Relay, count: int) -> dict[int, wire.ToolAnswer]:
    """The next answers, waited for at the bell as a driver does."""
    answers: list[wire.ToolAnswer] = []
    deadline = time.monotonic() + _PATIENCE_S
    while len(answers) < count:
        assert time.monotonic() < deadline, f"only {len(answers)} of {count} answers came"
        host.poller.poll(1.0)
        answers += relay.take_answers()
    assert len(answers) == count
    return {answer.call_id: answer for answer in answers}


def _until(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + _PATIENCE_S
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.001)


def test_a_call_is_answered_with_its_value(host: _Host) -> None:
    relay = host.relay({"tool": lambda args: [args, 1]})
    _call(relay, 7, args='{"a":1}')
    (answer,) = _answers(host, relay, 1).values()
    assert answer == wire.ToolAnswer(7, True, '[{"a":1},1]')
    trace, remarks = relay.end()
    assert remarks == ()
    assert [(call.name, call.bytes_in, call.bytes_out, call.outcome) for call in trace] == [
        ("tool", 7, 11, "ok")
    ]


def test_a_quick_call_does_not_wait_for_a_slow_one(host: _Host) -> None:
    gate = host.gate()
    relay = host.relay({"slow": lambda _: gate.wait(_PATIENCE_S), "quick": lambda _: 1})
    _call(relay, 1, "slow")
    _call(relay, 2, "quick")
    assert set(_answers(host, relay, 1)) == {2}
    gate.set()
    assert set(_answers(host, relay, 1)) == {1}


def test_no_more_calls_run_at_once_than_allowed_and_all_are_answered(host: _Host) -> None:
    lock, running, most = threading.Lock(), [0], [0]

    def tool(_: Any) -> int:
        with lock:
            running[0] += 1
            most[0] = max(most[0], running[0])
        time.sleep(0.002)  # long enough to overlap; nothing is synchronised by it
        with lock:
            running[0] -= 1
        return 1

    relay = host.relay({"tool": tool}, Limits(host_concurrency=3))
    for call_id in range(1, 101):
        _call(relay, call_id)
    answers = _answers(host, relay, 100)
    assert all(answer.ok for answer in answers.values())
    assert 1 < most[0] <= 3


def test_a_tool_with_a_concurrency_of_its_own_holds_up_no_other(host: _Host) -> None:
    gate = host.gate()
    slow = Tool(call=lambda _: gate.wait(_PATIENCE_S), concurrency=2)
    relay = host.relay({"slow": slow, "quick": lambda _: 1}, Limits(host_concurrency=1))
    for call_id in range(1, 6):
        _call(relay, call_id, "slow")
    for call_id in range(6, 9):
        _call(relay, call_id, "quick")
    assert set(_answers(host, relay, 3)) == {6, 7, 8}
    gate.set()
    assert set(_answers(host, relay, 5)) == {1, 2, 3, 4, 5}


def test_a_call_that_never_returns_is_answered_in_time_and_gives_its_place_back(
    host: _Host,
) -> None:
    gate, events = host.gate(), []

    def tool(args: dict[str, Any]) -> str:
        if args.get("hang"):
            gate.wait(_PATIENCE_S)
        return "late"

    relay = host.relay({"tool": tool}, Limits(host_concurrency=1), timeout=0.2,
                       on_tool_call=events.append)  # fmt: skip
    _call(relay, 1, args='{"hang":true}')
    _call(relay, 2, args="{}")
    deadline = relay.deadline()
    assert deadline is not None
    assert relay.expire() == []
    _until(lambda: time.monotonic() >= deadline)
    (expired,) = relay.expire()
    assert (expired.call_id, expired.ok) == (1, False)
    assert json.loads(expired.payload)[0] == "TimeoutError"
    assert "0.2 s" in expired.payload
    assert _answers(host, relay, 1)[2].payload == '"late"'
    assert relay.deadline() is None
    gate.set()
    relay.end()
    # What the first one still returns goes nowhere, and takes no place twice.
    _call(relay, 3)
    assert set(_answers(host, relay, 1)) == {3}
    assert [event.kind for event in events if event.call_id == 1] == ["start", "error"]


def test_a_time_limit_of_a_tool_goes_before_that_of_the_pool(host: _Host) -> None:
    gate = host.gate()
    tools: dict[str, ToolLike] = {
        "short": Tool(call=lambda _: gate.wait(_PATIENCE_S), timeout=0.01),
        "long": lambda _: gate.wait(_PATIENCE_S),
    }
    relay = host.relay(tools, timeout=50.0)
    _call(relay, 1, "long")
    _call(relay, 2, "short")
    _until(lambda: bool(relay.deadline()) and time.monotonic() >= (relay.deadline() or 0))
    assert [answer.call_id for answer in relay.expire()] == [2]


def test_an_async_call_that_is_cancelled_before_it_began_leaves_nothing_behind(
    host: _Host,
) -> None:
    began = []

    async def tool(args: Any) -> None:
        began.append(args)
        await asyncio.sleep(_PATIENCE_S)

    relay = host.relay({"tool": tool}, Limits(host_concurrency=2))
    for turn in range(5):  # more than there are places
        _call(relay, 10 * turn + 1)
        _call(relay, 10 * turn + 2)
        trace, remarks = relay.end(cancel=True)
        assert [call.outcome for call in trace] == ["cancelled", "cancelled"]
        assert "2 tool calls cancelled (tool)" in remarks[0]
        relay.begin()
    assert relay.open_calls == 0


@pytest.mark.parametrize(
    "message",
    [wire.ToolCall(1, 1, "tool", "{}"), wire.ToolCall(1, 2, "other", "{}"),
     wire.ToolCall(1, 2, "web_search", "{}"), wire.ToolCall(1, 2, "", "{}"),
     wire.ToolCall(1, 2, "tool", "x" * 9000)],
    ids=["id that is open", "unknown name", "host's name", "no name", "over the cap"],
)  # fmt: skip
def test_a_call_that_no_worker_of_ours_makes_is_a_violation(
    host: _Host, message: wire.ToolCall
) -> None:
    gate = host.gate()
    tools = {"tool": lambda _: gate.wait(_PATIENCE_S), "web_search": lambda _: 1}
    relay = host.relay(tools, Limits(value_bytes=1000))
    _call(relay, 1)
    with pytest.raises(ProtocolError):
        relay.call(message)


def test_calls_over_the_budget_are_a_violation(host: _Host) -> None:
    relay = host.relay({"tool": lambda _: 1}, Limits(host_calls=2))
    _call(relay, 1)
    _call(relay, 2)
    with pytest.raises(ProtocolError, match="host_calls=2"):
        _call(relay, 3)
    _answers(host, relay, 2)
    relay.end()
    relay.begin()
    _call(relay, 4)  # a budget of each eval


@pytest.mark.parametrize("args", ["", "nonsense", '{"$":["other"]}', "[" * 900, '"\x00'])
def test_an_input_that_is_no_value_fails_that_call_and_nothing_else(host: _Host, args: str) -> None:
    relay = host.relay({"tool": lambda _: 1})
    _call(relay, 1, args=args)
    _call(relay, 2)
    answers = _answers(host, relay, 2)
    assert json.loads(answers[1].payload)[0] == "ValueConversionError"
    assert answers[2].ok


def test_inputs_that_wait_are_bounded_all_together(host: _Host) -> None:
    gate = host.gate()
    relay = host.relay({"tool": lambda _: gate.wait(_PATIENCE_S)},
                       Limits(value_bytes=1000, host_concurrency=1))  # fmt: skip
    big = json.dumps({"a": "x" * 900})
    for call_id in range(1, 9):
        _call(relay, call_id, args=big)
    # One runs, two wait; the others would have to be held.
    refused = _answers(host, relay, 5)
    assert set(refused) == {4, 5, 6, 7, 8}
    assert {json.loads(answer.payload)[0] for answer in refused.values()} == {"ValueTooLarge"}
    gate.set()
    assert set(_answers(host, relay, 3)) == {1, 2, 3}
    _call(relay, 9, args=big)
    assert _answers(host, relay, 1)[9].ok


def test_a_crowd_of_calls_has_a_bound(host: _Host) -> None:
    gate = host.gate()
    relay = host.relay(
        {"tool": lambda _: gate.wait(_PATIENCE_S)}, Limits(host_calls=None, host_concurrency=1)
    )
    for call_id in range(20_000):
        _call(relay, call_id)
    _call(relay, 20_000)
    (refused,) = _answers(host, relay, 1).values()
    assert (refused.call_id, refused.ok) == (20_000, False)
    assert "20000" in refused.payload


def test_the_trace_holds_no_inputs_and_has_an_end(host: _Host) -> None:
    relay = host.relay({"tool": lambda _: None}, Limits(host_calls=None))
    count = 10_050
    for call_id in range(1, count + 1):
        _call(relay, call_id)
        if call_id % 50 == 0:
            _answers(host, relay, 50)
    trace, remarks = relay.end()
    assert len(trace) == 10_000
    assert relay.made == count
    assert remarks == ("50 more tool calls are not in the trace",)
    assert not any(call.args for call in relay._calls)


def test_answers_that_came_too_late_are_owed_to_the_next_eval(host: _Host) -> None:
    gate = host.gate()
    relay = host.relay({"tool": lambda _: gate.wait(_PATIENCE_S)})
    _call(relay, 1)
    _, remarks = relay.end()
    assert remarks == ("1 tool call still running (tool); answers come with the next eval",)
    gate.set()
    _until(lambda: bool(host.poller.poll(0)))
    assert relay.begin() == [wire.ToolAnswer(1, True, "true")]
    assert relay.end() == ((), ())
    assert relay.begin() == []


def test_owed_answers_are_bounded_all_together(host: _Host) -> None:
    relay = host.relay({"tool": lambda _: "x" * 900}, Limits(value_bytes=1000))
    relay.owe([wire.ToolAnswer(call_id, True, json.dumps("x" * 900)) for call_id in range(1, 6)])
    owed = relay.begin()
    assert [answer.call_id for answer in owed] == [1, 2, 3, 4, 5]
    assert [answer.ok for answer in owed] == [True, True, False, False, False]
    assert "too large to keep" in owed[4].payload


def test_answers_given_in_an_eval_that_never_happened_are_owed_again(host: _Host) -> None:
    gate = host.gate()
    tools: dict[str, ToolLike] = {"tool": lambda _: 1, "slow": lambda _: gate.wait(_PATIENCE_S)}
    relay = host.relay(tools)
    relay.owe([wire.ToolAnswer(90, True, "1")])
    _call(relay, 1, "slow")
    relay.end()
    assert [answer.call_id for answer in relay.begin()] == [90]
    gate.set()
    _answers(host, relay, 1)  # of the earlier eval's call, delivered in this one
    _call(relay, 2)
    _answers(host, relay, 1)  # of its own call: it goes with the eval
    relay.end(cancel=True, undone=True)
    assert [answer.call_id for answer in relay.begin()] == [90, 1]
    relay.end()
    assert relay.begin() == []


def test_answers_of_an_eval_that_is_begun_again_are_not_lost(host: _Host) -> None:
    relay = host.relay({"tool": lambda _: 1})
    relay.end()
    relay.owe([wire.ToolAnswer(90, True, "1")])
    assert [answer.call_id for answer in relay.begin()] == [90]
    assert [answer.call_id for answer in relay.begin()] == [90]
    relay.end()
    assert relay.begin() == []


def test_a_lost_state_takes_its_calls_with_it(host: _Host) -> None:
    gate = host.gate()
    relay = host.relay({"tool": lambda _: gate.wait(_PATIENCE_S)}, Limits(host_concurrency=1))
    relay.owe([wire.ToolAnswer(90, True, "1")])
    _call(relay, 1)
    _call(relay, 2)
    relay.end()
    relay.forget()
    assert relay.begin() == []
    gate.set()
    _call(relay, 1)  # the next worker counts from 1 again
    assert set(_answers(host, relay, 1)) == {1}


def test_closing_from_another_thread_while_calls_end_raises_nothing(host: _Host) -> None:
    relay = host.relay({"tool": lambda _: 1}, Limits(host_calls=None))
    closer = threading.Thread(target=lambda: [relay.close() for _ in range(2000)])
    closer.start()
    call_id = 0
    while closer.is_alive():
        call_id += 1
        _call(relay, call_id)
        relay.take_answers()
        if call_id % 20 == 0:
            relay.end(cancel=True)
            relay.begin()
    closer.join()


class _Interrupt(Exception):
    pass


def test_an_exception_to_propagate_is_for_the_eval_to_raise_and_the_guest_never_sees_it(
    host: _Host,
) -> None:
    def tool(_: Any) -> None:
        ran.append(True)
        raise _Interrupt

    ran: list[bool] = []
    relay = host.relay({"tool": tool}, propagate=lambda error: isinstance(error, _Interrupt))
    _call(relay, 1)
    deadline = time.monotonic() + _PATIENCE_S
    while relay.failure is None:
        assert time.monotonic() < deadline
        host.poller.poll(1.0)
        assert relay.take_answers() == []  # with an answer the guest would run on
    assert isinstance(relay.failure, _Interrupt)
    _call(relay, 2)  # already on its way when the eval was to end: it is not started
    assert ran == [True]
    relay.end(cancel=True)
    relay.begin()
    assert relay.failure is None


def test_a_tool_that_leaks_a_cancellation_has_failed_and_nothing_else(host: _Host) -> None:
    async def tool(_: Any) -> None:
        raise asyncio.CancelledError

    relay = host.relay({"tool": tool})
    _call(relay, 1)
    answer = _answers(host, relay, 1)[1]
    assert not answer.ok
    assert json.loads(answer.payload)[0] == "Cancelled"
    assert relay.failure is None


def test_a_listener_that_raises_is_no_failure_of_the_call(
    host: _Host, caplog: pytest.LogCaptureFixture
) -> None:
    def listener(event: ToolEvent) -> None:
        raise RuntimeError(event.kind)

    relay = host.relay({"tool": lambda _: 1}, on_tool_call=listener)
    _call(relay, 1)
    assert _answers(host, relay, 1)[1].ok
    assert caplog.text.count("on_tool_call raised") == 2


def test_threads_are_reused_and_end_with_the_pool(host: _Host) -> None:
    seen: set[int] = set()
    relay = host.relay({"tool": lambda _: seen.add(threading.get_ident())})
    for call_id in range(1, 21):
        _call(relay, call_id)
        _answers(host, relay, 1)
    assert len(seen) <= 2  # one, and one more if the first was not back in time
    tools = [thread for thread in threading.enumerate() if thread.ident in seen]
    host.threads.close()
    for thread in tools:
        thread.join(_PATIENCE_S)
        assert not thread.is_alive()


def test_a_thread_that_was_busy_when_the_pool_closed_ends_after_its_job() -> None:
    threads, gate = DaemonThreads(), threading.Event()
    running: list[threading.Thread] = []

    def job() -> None:
        running.append(threading.current_thread())
        gate.wait(_PATIENCE_S)

    threads.submit(job)
    _until(lambda: bool(running))
    threads.close()
    gate.set()
    running[0].join(_PATIENCE_S)
    assert not running[0].is_alive()
