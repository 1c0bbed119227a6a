"""The order of messages: whatever the table does not list is a violation."""

from __future__ import annotations

from typing import Any, Final, get_args

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from qjs_pool.wire import ProtocolError
from qjs_pool.wire import messages as wire
from qjs_pool.wire.channel import MAX_LOGS, Channel, State

_settings = settings(max_examples=60, deadline=None)  # a busy machine is no failure
_OPEN: Final = wire.Open(
    request_id=7, memory_bytes=1, stack_bytes=1, result_chars=1, console_chars=1, value_bytes=1,
    value_nodes=1, durable=True, clock="off", seed="", tools=[], modules={},
)  # fmt: skip
_HOST: Final[dict[type, Any]] = {
    wire.Open: _OPEN,
    wire.Eval: wire.Eval(7, "1", None, None, None, True),
    wire.SetGlobal: wire.SetGlobal(7, "x", "1"),
    wire.Fork: wire.Fork(7),
    wire.Snapshot: wire.Snapshot(7, 1, 1.0),
    wire.Restore: wire.Restore(7, b"", False, 1, 1.0),
    wire.ToolAnswer: wire.ToolAnswer(1, True, "1"),
    wire.Hold: wire.Hold(7),
    wire.Resume: wire.Resume(7, 0.0),
    wire.Park: wire.Park(),
    wire.Unpark: wire.Unpark(7),
}


def _worker(answering: int) -> dict[type, Any]:
    return {
        wire.EvalDone: wire.EvalDone(
            answering, "", "", "value", None, None, None, "kept", 0.0, 0, []
        ),
        wire.ToolCall: wire.ToolCall(answering, 1, "search", "{}"),
        wire.Done: wire.Done(answering, None),
        wire.SnapshotPart: wire.SnapshotPart(answering, b"piece"),
        wire.Held: wire.Held(answering),
        wire.Log: wire.Log(10, "text"),
    }


# Written out here a second time on purpose: the rules, not the table that implements them.
_MAY_SEND: Final = {
    (State.IDLE, wire.Open): State.WAITING,
    (State.IDLE, wire.SetGlobal): State.WAITING,
    (State.IDLE, wire.Fork): State.WAITING,
    (State.IDLE, wire.Restore): State.WAITING,
    (State.IDLE, wire.Park): State.IDLE,
    (State.IDLE, wire.Unpark): State.WAITING,
    (State.IDLE, wire.Snapshot): State.DUMPING,
    (State.IDLE, wire.Eval): State.RUNNING,
    (State.RUNNING, wire.ToolAnswer): State.RUNNING,
    (State.RUNNING, wire.Hold): State.HOLDING,
    (State.HELD, wire.Resume): State.RUNNING,
}
_MAY_RECEIVE: Final = {
    (State.RUNNING, wire.ToolCall): State.RUNNING,
    (State.RUNNING, wire.EvalDone): State.IDLE,
    (State.HOLDING, wire.ToolCall): State.HOLDING,
    (State.HOLDING, wire.EvalDone): State.IDLE,
    (State.HOLDING, wire.Held): State.HELD,
    (State.WAITING, wire.Done): State.IDLE,
    (State.DUMPING, wire.SnapshotPart): State.DUMPING,
    (State.DUMPING, wire.Done): State.IDLE,
    **{(state, wire.Log): state for state in State},
}


def _in(state: State) -> Channel:
    channel = Channel()
    if state in (State.RUNNING, State.HOLDING, State.HELD):
        channel.sends(_HOST[wire.Eval])
        if state is not State.RUNNING:
            channel.sends(_HOST[wire.Hold])
        if state is State.HELD:
            channel.receives(_worker(7)[wire.Held])
    elif state is State.WAITING:
        channel.sends(_HOST[wire.Fork])
    elif state is State.DUMPING or state is State.DUMPING:
        channel.sends(_HOST[wire.Snapshot])
    assert channel.state is state
    return channel


def test_every_message_of_the_data_stream_is_tried_here() -> None:
    assert set(_HOST) == set(get_args(wire.ToWorker))
    assert set(_worker(1)) == set(get_args(wire.FromWorker))


@pytest.mark.parametrize("state", State)
@pytest.mark.parametrize("kind", _HOST)
def test_the_host_sends_what_the_rules_list_and_nothing_else(state: State, kind: type) -> None:
    channel = _in(state)
    if (state, kind) in _MAY_SEND:
        channel.sends(_HOST[kind])
        assert channel.state is _MAY_SEND[state, kind]
    else:
        with pytest.raises(ProtocolError, match=kind.__name__):
            channel.sends(_HOST[kind])
        assert channel.state is state


@pytest.mark.parametrize("state", State)
@pytest.mark.parametrize("kind", _worker(7))
def test_the_worker_may_send_what_the_rules_list_and_nothing_else(state: State, kind: type) -> None:
    channel = _in(state)
    message = _worker(7)[kind]
    if (state, kind) in _MAY_RECEIVE:
        channel.receives(message)
        assert channel.state is _MAY_RECEIVE[state, kind]
    else:
        with pytest.raises(ProtocolError, match=kind.__name__):
            channel.receives(message)
        assert channel.state is state


@pytest.mark.parametrize("wrong", [0, 6, 8, -7, 1 << 63])
@pytest.mark.parametrize(
    ("state", "kind"),
    [
        (State.RUNNING, wire.EvalDone),
        (State.RUNNING, wire.ToolCall),
        (State.WAITING, wire.Done),
        (State.DUMPING, wire.Done),
        (State.DUMPING, wire.SnapshotPart),
    ],
)
def test_an_answer_to_something_else_is_a_violation(state: State, kind: type, wrong: int) -> None:
    channel = _in(state)
    with pytest.raises(ProtocolError, match=f"for {wrong}, but 7"):
        channel.receives(_worker(wrong)[kind])
    assert channel.state is state


def test_an_eval_that_is_done_twice_is_a_violation() -> None:
    channel = _in(State.RUNNING)
    channel.receives(_worker(7)[wire.EvalDone])
    with pytest.raises(ProtocolError):
        channel.receives(_worker(7)[wire.EvalDone])


def test_a_stream_of_logs_without_end_is_a_violation() -> None:
    channel = _in(State.RUNNING)
    for _ in range(MAX_LOGS):
        channel.receives(wire.Log(10, "text"))
    with pytest.raises(ProtocolError, match="log"):
        channel.receives(wire.Log(10, "text"))


def test_answers_do_not_renew_what_a_worker_may_log_and_the_next_request_does() -> None:
    channel = _in(State.RUNNING)
    for _ in range(MAX_LOGS):
        channel.receives(wire.Log(10, "text"))
    channel.sends(_HOST[wire.ToolAnswer])
    with pytest.raises(ProtocolError):
        channel.receives(wire.Log(10, "text"))
    channel.receives(_worker(7)[wire.EvalDone])
    channel.sends(_HOST[wire.Eval])
    channel.receives(wire.Log(10, "text"))


@_settings
@given(st.data())
def test_any_conversation_only_ever_raises_protocol_errors(data: st.DataObject) -> None:
    channel = Channel()
    for _ in range(data.draw(st.integers(0, 20))):
        if data.draw(st.booleans()):
            step, message = channel.sends, data.draw(st.sampled_from(list(_HOST.values())))
        else:
            answered = data.draw(st.sampled_from([7, 1, -1]))
            step, message = (
                channel.receives,
                data.draw(st.sampled_from(list(_worker(answered).values()))),
            )
        before = channel.state
        try:
            step(message)
        except ProtocolError:
            assert channel.state is before
