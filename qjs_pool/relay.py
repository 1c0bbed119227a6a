"""The relay of one session's tool calls: which are open, what they answered, what is still owed.

The driver calls everything here but `_done`, which comes from wherever a tool ends; that only
appends to a queue and rings a bell (an eventfd in the session's poller).
"""

from __future__ import annotations

import asyncio
import contextlib
import contextvars
import functools
import logging
import os
import select
import threading
import time
from collections import deque
from collections.abc import Sequence
from typing import Any, Final, Literal

from .calls import OpenCall, RelayOptions, ToolEvent
from .errors import ValueConversionError, ValueTooLarge
from .holding import Holding, Suspend
from .limits import Limits
from .places import Places
from .result import Call
from .runners import Runner
from .suspended_calls import SuspendedCalls
from .tools import Toolbox, describe_error
from .wire import ProtocolError
from .wire import messages as wire
from .wire.values import decode_value, encode_value

_log: Final = logging.getLogger("qjs_pool.tools")
# Calls that a session may have open at once, where `host_calls` does not say.
_MAX_OPEN: Final = 20_000
# What a session may have in this process, in values of the largest size: inputs of calls that have
# not started, and answers that wait for the next eval. A guest decides how many there are.
_HELD_VALUES: Final = 2
# Calls of one eval whose trace is kept; where `host_calls` is None there may be any number.
_MAX_TRACED: Final = 10_000
# Which call of its eval it is, from 1, for the tool that runs; the guest's order.
call_number: Final[contextvars.ContextVar[int]] = contextvars.ContextVar("qjs_pool_call_number")
_ENVELOPE_BYTES: Final = 4096  # field names that the bridge may add to an input


class Relay(SuspendedCalls):
    """Tool calls of one session, eval by eval."""

    def __init__(
        self,
        toolbox: Toolbox,
        limits: Limits,
        runner: Runner,
        options: RelayOptions,
        poller: select.epoll,
    ) -> None:
        self.toolbox = toolbox
        self.failure: BaseException | None = None  # to be raised from the eval
        self._limits = limits
        self.loop: asyncio.AbstractEventLoop | None = None  # that drives the eval, if one does
        self._runner = runner
        self._options = options
        self._poller = poller
        self._bell: int | None = None
        self._bell_lock = threading.Lock()
        self._done_calls: deque[tuple[OpenCall, Any, BaseException | None]] = deque()
        self.made = 0  # calls of this eval
        self._calls: list[OpenCall] = []  # the first of them, in order: the trace
        self._open: dict[int, OpenCall] = {}  # unanswered ones, of earlier evals too
        self._timed: dict[int, OpenCall] = {}  # those of them that have a time to answer
        self._places: Places[OpenCall] = Places(limits.host_concurrency)
        self._waiting_bytes = 0  # inputs of calls that wait for a place
        self._turn = 0  # evals so far
        self._begun = False  # one is on its way
        self._owed: list[wire.ToolAnswer] = []  # for the next eval to deliver
        self._late: list[wire.ToolAnswer] = []  # delivered in this eval, for calls of earlier ones
        self._late_room = 0
        self._holding: Holding | None = None  # where this eval may be suspended
        self._matched: dict[int, OpenCall] = {}  # replayed calls, by number, before their answers

    # --- what the driver tells ------------------------------------------------------------------

    def begin(self, holding: Holding | None = None) -> list[wire.ToolAnswer]:
        """An eval starts: what earlier evals' calls have answered since.

        `holding`: it may be suspended.
        """
        if self._begun:  # the last one has not reached a worker, and nor have its answers
            self._owed = self._late + self._owed
        self.owe(self.take_answers())
        self._begun = True
        self._turn += 1
        self._holding = holding
        self._calls, self.made, self.failure = [], 0, None
        owed, self._owed = self._owed, []
        self._late, self._late_room = [], _HELD_VALUES * self._limits.value_bytes
        for answer in owed:
            self._remember(answer)
        return owed

    def call(self, message: wire.ToolCall) -> None:
        """The guest called a tool.

        Raises:
            ProtocolError: what no worker of ours would send.
        """
        limits = self._limits
        if message.call_id in self._open:
            raise ProtocolError(f"tool call {message.call_id} is open already")
        if limits.host_calls is not None and self.made >= limits.host_calls:
            raise ProtocolError(f"more than host_calls={limits.host_calls} tool calls in one eval")
        tool = self.toolbox.find(message.name)
        if tool is None:
            raise ProtocolError(f"a call of {message.name[:80]!r}, which the session has not")
        size = len(message.args)
        if size > limits.value_bytes + _ENVELOPE_BYTES:
            raise ProtocolError(
                f"a tool's input of {size} is over value_bytes={limits.value_bytes}"
            )
        self._hang_bell()
        now = time.monotonic()
        self.made += 1
        call = OpenCall(self._turn, message.call_id, message.name, self.made, "", size, tool, now)
        if len(self._calls) < _MAX_TRACED:
            self._calls.append(call)
        crowd, held = len(self._open), self._waiting_bytes + size
        self._open[call.call_id] = call
        if self._holding is not None:
            self._holding.frozen |= tool.holds  # the worker has stopped where it called it
            if self._recorded(call, message.args, self._holding):
                return
        if crowd >= _MAX_OPEN or held > _HELD_VALUES * limits.value_bytes:
            refusal = (
                f"{crowd} tool calls wait, with inputs of {held} bytes, and there is room for "
                f"{_MAX_OPEN} and {_HELD_VALUES * limits.value_bytes}; await some first"
            )
            self._done(call, None, ValueTooLarge(refusal))
            return
        call.args = message.args
        self._waiting_bytes += size
        self._places.wait(call)
        self._start_waiting()

    def take_answers(self) -> list[wire.ToolAnswer]:
        """The answers of the calls that have ended, for sending."""
        if self._bell is not None:
            with contextlib.suppress(BlockingIOError):
                os.eventfd_read(self._bell)
        answers = []
        while self._done_calls:
            call, value, error = self._done_calls.popleft()
            self._places.leave(call)
            if self._open.get(call.call_id) is not call:
                continue  # timed out, or its eval never happened
            # A tool whose own tasks were cancelled has failed, and nothing else has: when the eval
            # is cancelled, its driver knows.
            if isinstance(error, asyncio.CancelledError):
                pass
            elif isinstance(error, Suspend) and self._holding is not None:
                if (problem := self._suspend(call, error.payload, self._holding)) is None:
                    continue
                error = problem
            elif isinstance(error, Suspend) and not (self._begun and call.turn == self._turn):
                error = self._too_late(call)
            elif error is not None and self._options.propagate(error):
                # No answer: the guest would run on with it until the kill arrives.
                self.failure = self.failure or error
                continue
            answers += self._told(call, self._answer(call, value, error))
        self._start_waiting()
        return answers

    def owe(self, answers: Sequence[wire.ToolAnswer]) -> None:
        """Keep answers that came too late for their eval until the next one starts."""
        room = _HELD_VALUES * self._limits.value_bytes - sum(len(a.payload) for a in self._owed)
        for answer in answers:
            if len(answer.payload) > room:
                lost = ["ValueTooLarge", "the answer came after its eval and is too large to keep"]
                payload = encode_value(lost, max_bytes=1 << 20, max_nodes=16)
                answer = wire.ToolAnswer(answer.call_id, False, payload)
            room -= len(answer.payload)
            self._owed.append(answer)

    def expire(self) -> list[wire.ToolAnswer]:
        """Answers for the calls whose time is up; what they still return is dropped."""
        now = time.monotonic()
        answers = []
        for call in [call for call in self._timed.values() if call.ends and now >= call.ends]:
            self._abandon(call)
            allowed = (call.ends or now) - call.started
            error = TimeoutError(f"no answer within {allowed:g} s (host_timeout)")
            answers += self._told(call, self._answer(call, None, error))
            self._start_waiting()
        return answers

    def deadline(self) -> float | None:
        """When the next open call has to have answered."""
        return min((call.ends for call in self._timed.values() if call.ends), default=None)

    def end(
        self, *, cancel: bool = False, undone: bool = False, why: str = ""
    ) -> tuple[tuple[Call, ...], tuple[str, ...]]:
        """An eval ended: the trace of its calls, and what the result should remark.

        Args:
            cancel: it never happened, or its state is lost: its calls are cancelled.
            undone: the session is as it was before, so answers of earlier calls are owed again.
            why: the guest keeps the promises of the cancelled calls: what they are rejected with.
        """
        self._begun = False
        if self._holding is not None:
            self.owe(self._holding.left(undone=undone))
        self._holding = None
        self._matched.clear()
        now = time.monotonic()
        still = [call for call in self._open.values() if call.turn == self._turn]
        for call in still if cancel else ():
            self._abandon(call)
            self._open.pop(call.call_id, None)
            call.outcome = "cancelled"
            if why:  # or whoever awaits it later does so until the wall
                payload = encode_value(["Cancelled", why], max_bytes=1 << 20, max_nodes=16)
                self.owe([wire.ToolAnswer(call.call_id, False, payload)])
        if undone:
            self._owed = self._late + self._owed
        self._late = []
        remarks: list[str] = []
        if still:
            names = ", ".join(dict.fromkeys(call.name for call in still))[:500]
            count = f"{len(still)} tool call{'s'[: len(still) != 1]}"
            remarks.append(
                f"{count} cancelled ({names}); side effects may have happened"
                if cancel
                else f"{count} still running ({names}); answers come with the next eval"
            )
        if self.made > len(self._calls):
            remarks.append(f"{self.made - len(self._calls)} more tool calls are not in the trace")
        trace = tuple(
            Call(
                call.name,
                ((call.ended or now) - call.started) * 1000.0,
                call.bytes_in,
                call.bytes_out,
                call.outcome,
            )
            for call in self._calls
        )
        return trace, tuple(remarks)

    def forget(self) -> None:
        """The state is lost, and with it whoever waited: the next worker counts from 1 again."""
        for call in list(self._open.values()):
            self._abandon(call)
        self.close()
        self._owed.clear()
        self._late.clear()

    def close(self) -> None:
        """Cancel what is open; from any thread."""
        for call in list(self._open.values()):
            if call.cancel is not None:
                call.cancel()
        self._open.clear()
        self._timed.clear()
        self._places.clear()
        self._waiting_bytes = 0

    # --- the calls ------------------------------------------------------------------------------

    def _start_waiting(self) -> None:
        # Once the eval is to end, nothing that it still asks for is started.
        while self.failure is None and (call := self._places.take()) is not None:
            args = call.args
            if self._holding is None:
                call.args = ""
            self._waiting_bytes -= call.bytes_in
            call.started = time.monotonic()
            timeout = call.tool.timeout or self._options.timeout
            if timeout is not None:
                call.ends = call.started + timeout
                self._timed[call.call_id] = call
            self._tell("start", call, call.bytes_in)
            call.cancel = lambda: None
            try:
                value = decode_value(args.encode(), self._limits.value_nodes)
                done = functools.partial(self._done, call)
                run = call.again or call.tool.call
                token = call_number.set(call.number)
                try:
                    call.cancel = self._runner.start(run, value, done, self.loop)
                finally:
                    call_number.reset(token)
            except Exception as error:
                self._done(call, None, error)

    def _done(self, call: OpenCall, value: Any, error: BaseException | None) -> None:
        self._done_calls.append((call, value, error))
        # Under a lock: a number that was closed meanwhile may be somebody else's by now.
        with self._bell_lock:
            if self._bell is not None:
                os.eventfd_write(self._bell, 1)

    def _hang_bell(self) -> None:
        if self._bell is None:
            self._bell = os.eventfd(0, os.EFD_CLOEXEC | os.EFD_NONBLOCK)
            self._poller.register(self._bell, select.EPOLLIN)

    def _abandon(self, call: OpenCall) -> None:
        """Nobody waits for it any more."""
        # Its place is free although a thread may go on: one that never ends would keep it for good.
        self._timed.pop(call.call_id, None)
        self._places.leave(call)
        if call.cancel is not None:
            call.cancel()
            return
        if self._places.withdraw(call):
            self._waiting_bytes -= call.bytes_in

    def _answer(self, call: OpenCall, value: Any, error: BaseException | None) -> wire.ToolAnswer:
        limits = self._limits
        payload = ""
        if error is None:
            try:
                payload = encode_value(
                    value, max_bytes=limits.value_bytes, max_nodes=limits.value_nodes
                )
            except Exception as problem:
                kind = ValueTooLarge if isinstance(problem, ValueTooLarge) else ValueConversionError
                error = kind(f"the result of {call.name}: {problem}")
        if error is not None:
            described = describe_error(error, call.tool.errors or self._options.errors)
            payload = encode_value(list(described), max_bytes=1 << 20, max_nodes=16)
        return self._settled(call, error is None, payload)

    def _settled(self, call: OpenCall, ok: bool, payload: str) -> wire.ToolAnswer:
        call.outcome = "ok" if ok else "error"
        call.bytes_out = len(payload)
        call.args = ""
        call.ended = time.monotonic()
        self._open.pop(call.call_id, None)  # `close` in another thread may have been first
        self._timed.pop(call.call_id, None)
        self._tell("end" if ok else "error", call, len(payload))
        answer = wire.ToolAnswer(call.call_id, ok, payload)
        if call.turn != self._turn:
            self._remember(answer)
        return answer

    def _remember(self, answer: wire.ToolAnswer) -> None:
        self._late_room -= len(answer.payload)
        if self._late_room >= 0:
            self._late.append(answer)

    def release(self) -> None:
        """Close the bell; when no driver is about any more."""
        with self._bell_lock:
            bell, self._bell = self._bell, None
        if bell is not None:
            os.close(bell)

    def copy(self, poller: select.epoll) -> Relay:
        """A relay for a copy of the session: the same tools, no calls."""
        return Relay(self.toolbox, self._limits, self._runner, self._options, poller)

    @property
    def open_calls(self) -> int:
        """Calls without an answer yet, of earlier evals too."""
        return len(self._open)

    def _tell(self, kind: Literal["start", "end", "error"], call: OpenCall, size: int) -> None:
        ms = (time.monotonic() - call.started) * 1000.0
        name, number = call.name, call.call_id
        _log.debug("%s %s #%d %.1f ms %d bytes", kind, name, number, ms, size)
        if self._options.on_tool_call is not None:
            try:
                self._options.on_tool_call(ToolEvent(kind, name, number, ms, size))
            except Exception:
                _log.exception("on_tool_call raised")
