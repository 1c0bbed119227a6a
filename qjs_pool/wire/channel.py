"""The order in which messages may pass on the data stream, as a table.

The host keeps one `Channel` per worker. Whatever the table does not list is a violation, however
well-formed it is; the table is also where the protocol page's diagram comes from.
"""

import enum
from collections.abc import Mapping
from typing import Final

from . import messages as wire
from .frames import ProtocolError


class State(enum.Enum):
    """Whose turn it is."""

    IDLE = "idle"  # the host may send a request
    RUNNING = "running"  # an eval runs; its end is EvalDone
    HOLDING = "holding"  # ... and was asked to stop where it waits; its end may come first
    HELD = "held"  # ... and does nothing until it is resumed
    WAITING = "waiting"  # another request is being carried out; its end is Done
    DUMPING = "dumping"  # a snapshot comes in pieces; its end is Done


# A worker of ours logs a traceback before it leaves, and nothing else. More is a flood.
MAX_LOGS: Final = 32

_Table = Mapping[State, Mapping[type, State]]

# fmt: off
HOST_SENDS: Final[_Table] = {
    State.IDLE:    {wire.Eval: State.RUNNING, wire.Open: State.WAITING,
                    wire.SetGlobal: State.WAITING, wire.Fork: State.WAITING,
                    wire.Restore: State.WAITING, wire.Park: State.IDLE,
                    wire.Unpark: State.WAITING, wire.Snapshot: State.DUMPING},
    State.RUNNING: {wire.ToolAnswer: State.RUNNING, wire.Hold: State.HOLDING},
    State.HOLDING: {},
    State.HELD:    {wire.Resume: State.RUNNING},
    State.WAITING: {},
    State.DUMPING: {},
}
WORKER_SENDS: Final[_Table] = {
    State.IDLE:    {wire.Log: State.IDLE},
    State.RUNNING: {wire.ToolCall: State.RUNNING, wire.EvalDone: State.IDLE,
                    wire.Log: State.RUNNING},
    State.HOLDING: {wire.ToolCall: State.HOLDING, wire.EvalDone: State.IDLE,
                    wire.Held: State.HELD, wire.Log: State.HOLDING},
    State.HELD:    {wire.Log: State.HELD},
    State.WAITING: {wire.Done: State.IDLE, wire.Log: State.WAITING},
    State.DUMPING: {wire.SnapshotPart: State.DUMPING, wire.Done: State.IDLE,
                    wire.Log: State.DUMPING},
}
# fmt: on


class Channel:
    """Checks each message against the table, and that an answer answers what was asked."""

    __slots__ = ("_asked", "_logs", "state")

    def __init__(self) -> None:
        self.state = State.IDLE
        self._asked = 0
        self._logs = 0  # since the host's last request

    def sends(self, message: wire.ToWorker) -> None:
        """The host is about to send `message`."""
        self.state = self._next(HOST_SENDS, message)
        if isinstance(message, (wire.ToolAnswer, wire.Hold, wire.Resume, wire.Park)):
            return
        self._asked = message.eval_id if isinstance(message, wire.Eval) else message.request_id
        self._logs = 0

    @property
    def asked(self) -> int:
        """The id of the request that was sent last."""
        return self._asked

    def receives(self, message: wire.FromWorker) -> None:
        """The worker sent `message`.

        Raises:
            ProtocolError: it may not come now, or answers something else.
        """
        state = self._next(WORKER_SENDS, message)
        if isinstance(message, wire.Log):
            self._logs += 1
            if self._logs > MAX_LOGS:
                raise ProtocolError(f"more than {MAX_LOGS} log lines for one request")
        if isinstance(message, (wire.EvalDone, wire.ToolCall, wire.Held)):
            answered = message.eval_id
        elif isinstance(message, (wire.Done, wire.SnapshotPart)):
            answered = message.request_id
        else:
            answered = self._asked
        if answered != self._asked:
            raise ProtocolError(
                f"{type(message).__name__} for {answered}, but {self._asked} was asked"
            )
        self.state = state

    def _next(self, table: _Table, message: object) -> State:
        try:
            return table[self.state][type(message)]
        except KeyError:
            raise ProtocolError(
                f"{type(message).__name__} may not come while {self.state.value}"
            ) from None
