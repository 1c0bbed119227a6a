"""The relay of one session's tool calls: which are open, what they answered, what is still owed.

The driver calls everything here but `_done`, which comes from wherever a tool ends; that only
appends to a queue and rings a bell (an eventfd in the session's poller).
"""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import functools
import logging
import os
import select
import threading
import time
from collections import deque
from collections.abc import Callable
from typing import Any, Final, Literal

from .errors import UsageError, ValueConversionError
from .limits import Limits
from .result import Call
from .runners import Cancel, Runner
from .tools import Tool, Toolbox, ToolErrors
from .wire import ProtocolError
from .wire import messages as wire
from .wire.values import decode_value, encode_value

_log: Final = logging.getLogger("qjs_pool.tools")
# Calls that a guest may have open at once; past it the worker is not one of ours.
_MAX_OPEN: Final = 100_000


@dataclasses.dataclass(frozen=True, slots=True)
class ToolEvent:
    """What `on_tool_call` is told: a call's start, its end, or its error."""

    kind: Literal["start", "end", "error"]
    name: str
    call_id: int
    ms: float
    bytes: int


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class RelayOptions:
    """How a pool's sessions relay tool calls.

    `propagate`: exceptions that are no business of the guest's. They end the eval at once (its
    worker is killed, the session goes on as before) and are raised from it.
    """

    errors: ToolErrors = "message"
    timeout: float | None = None
    on_tool_call: Callable[[ToolEvent], None] | None = None
    propagate: Callable[[BaseException], bool] = lambda error: not isinstance(error, Exception)


@dataclasses.dataclass(slots=True)
class _Open:
    message: wire.ToolCall
    tool: Tool
    started: float
    ends: float | None  # when it has to have answered
    cancel: Cancel | None = None  # None while it waits for a place
    outcome: Literal["ok", "error", "cancelled", "unknown"] = "unknown"
    bytes_out: int = 0
    ended: float = 0.0


class Relay:
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
        self._runner = runner
        self._options = options
        self._poller = poller
        self._bell: int | None = None
        self._bell_lock = threading.Lock()
        self._done_calls: deque[tuple[_Open, Any, BaseException | None]] = deque()
        self._calls: list[_Open] = []  # of this eval, in order: the trace
        self._open: dict[int, _Open] = {}  # unanswered ones, of earlier evals too
        self._waiting: deque[_Open] = deque()
        self._running = 0
        self._owed: list[wire.ToolAnswer] = []  # for the next eval to deliver

    def begin(self) -> list[wire.ToolAnswer]:
        """An eval starts: what earlier evals' calls have answered since."""
        self._calls = []
        self.failure = None
        self._owed += self.take_answers()
        owed, self._owed = self._owed, []
        return owed

    def call(self, message: wire.ToolCall) -> None:
        """The guest called a tool.

        Raises:
            ProtocolError: what no worker of ours would send.
        """
        limit = self._limits.host_calls
        if message.call_id in self._open or len(self._open) >= _MAX_OPEN:
            raise ProtocolError(f"tool call {message.call_id} is open already, or too many are")
        if limit is not None and len(self._calls) >= limit:
            raise ProtocolError(f"more than host_calls={limit} tool calls in one eval")
        tool = self.toolbox.find(message.name)
        if tool is None:
            raise ProtocolError(f"a call of {message.name[:80]!r}, which the session has not")
        self._hang_bell()
        call = _Open(message, tool, time.monotonic(), None)
        self._calls.append(call)
        self._open[message.call_id] = call
        self._waiting.append(call)
        self._start_waiting()

    def _start_waiting(self) -> None:
        while self._waiting and self._running < self._limits.host_concurrency:
            call = self._waiting.popleft()
            self._running += 1
            call.started = time.monotonic()
            timeout = call.tool.timeout or self._options.timeout
            call.ends = None if timeout is None else call.started + timeout
            self._tell("start", call, len(call.message.args))
            call.cancel = lambda: None
            try:
                args = decode_value(call.message.args.encode(), self._limits.value_nodes)
                call.cancel = self._runner.start(
                    call.tool.call, args, functools.partial(self._done, call)
                )
            except Exception as error:
                self._done(call, None, error)

    def _done(self, call: _Open, value: Any, error: BaseException | None) -> None:
        self._done_calls.append((call, value, error))
        # Under a lock: a number that was closed meanwhile may be somebody else's by now.
        with self._bell_lock:
            if self._bell is not None:
                os.eventfd_write(self._bell, 1)

    def _hang_bell(self) -> None:
        if self._bell is None:
            self._bell = os.eventfd(0, os.EFD_CLOEXEC | os.EFD_NONBLOCK)
            self._poller.register(self._bell, select.EPOLLIN)

    def take_answers(self) -> list[wire.ToolAnswer]:
        """The answers of the calls that have ended, for sending."""
        if self._bell is not None:
            with contextlib.suppress(BlockingIOError):
                os.eventfd_read(self._bell)
        answers = []
        while self._done_calls:
            call, value, error = self._done_calls.popleft()
            self._running -= 1
            if self._open.get(call.message.call_id) is not call:
                continue  # timed out, or its eval never happened
            if error is not None and self._options.propagate(error):
                if not isinstance(error, asyncio.CancelledError) or call.outcome != "cancelled":
                    self.failure = self.failure or error
            answers.append(self._answer(call, value, error))
        self._start_waiting()
        return answers

    def expire(self) -> list[wire.ToolAnswer]:
        """Answers for the calls whose time is up; what they still return is dropped."""
        now = time.monotonic()
        answers = []
        for call in [call for call in self._open.values() if call.ends and now >= call.ends]:
            if call.cancel is not None:
                call.cancel()
            allowed = (call.ends or now) - call.started
            answers.append(
                self._answer(
                    call, None, TimeoutError(f"no answer within {allowed:g} s (host_timeout)")
                )
            )
        return answers

    def deadline(self) -> float | None:
        """When the next open call has to have answered."""
        return min((call.ends for call in self._open.values() if call.ends), default=None)

    def _answer(self, call: _Open, value: Any, error: BaseException | None) -> wire.ToolAnswer:
        limits = self._limits
        payload = ""
        if error is None:
            try:
                payload = encode_value(
                    value, max_bytes=limits.value_bytes, max_nodes=limits.value_nodes
                )
            except Exception as problem:
                error = ValueConversionError(f"the result of {call.message.name}: {problem}")
        if error is not None:
            described = describe_error(error, call.tool.errors or self._options.errors)
            payload = encode_value(list(described), max_bytes=1 << 20, max_nodes=16)
        call.outcome = "ok" if error is None else "error"
        call.bytes_out = len(payload)
        call.ended = time.monotonic()
        del self._open[call.message.call_id]
        self._tell("end" if error is None else "error", call, len(payload))
        return wire.ToolAnswer(call.message.call_id, error is None, payload)

    def end(self, *, cancel: bool = False) -> tuple[tuple[Call, ...], tuple[str, ...]]:
        """An eval ended: the trace of its calls, and what the result should remark.

        Args:
            cancel: it never happened, or its state is lost: its calls are cancelled.
        """
        now = time.monotonic()
        still = [call for call in self._calls if call.message.call_id in self._open]
        for call in still if cancel else ():
            del self._open[call.message.call_id]
            call.outcome = "cancelled"
            if call.cancel is None:
                self._waiting.remove(call)
            else:
                call.cancel()
        remarks: tuple[str, ...] = ()
        if still:
            names = ", ".join(dict.fromkeys(call.message.name for call in still))
            count = f"{len(still)} tool call{'s'[: len(still) != 1]}"
            remarks = (
                (f"{count} cancelled ({names}); side effects may have happened",)
                if cancel
                else (f"{count} still running ({names}); answers come with the next eval",)
            )
        trace = tuple(
            Call(
                call.message.name,
                ((call.ended or now) - call.started) * 1000.0,
                len(call.message.args),
                call.bytes_out,
                call.outcome,
            )
            for call in self._calls
        )
        return trace, remarks

    def close(self) -> None:
        """Cancel what is open."""
        for call in self._open.values():
            if call.cancel is not None:
                call.cancel()
        self._open.clear()
        self._waiting.clear()

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

    def _tell(self, kind: Literal["start", "end", "error"], call: _Open, size: int) -> None:
        ms = (time.monotonic() - call.started) * 1000.0
        name, number = call.message.name, call.message.call_id
        _log.debug("%s %s #%d %.1f ms %d bytes", kind, name, number, ms, size)
        if self._options.on_tool_call is not None:
            try:
                self._options.on_tool_call(ToolEvent(kind, name, number, ms, size))
            except Exception:
                _log.exception("on_tool_call raised")


def describe_error(error: BaseException, policy: ToolErrors) -> tuple[str, str]:
    """What the guest learns of a tool's exception: name and message, never a traceback."""
    if isinstance(error, asyncio.CancelledError):
        return "Cancelled", "the call was cancelled"
    if policy == "none":
        return "ToolError", "the tool failed"
    name = type(error).__name__
    if policy == "type" and not isinstance(error, UsageError):
        return name, "the tool failed"
    return name, str(error)[:4000]
