"""State updates of the tools an eval called: seen by its later calls, returned with its result."""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import threading
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Final, NamedTuple

from langchain_core.messages import ToolMessage
from langchain_core.runnables import RunnableConfig

from .carried import carried_in
from .merging import as_list, merged, pairs_of
from .seam import BaseChannel, Command, InvalidUpdateError

_MESSAGES: Final = "messages"
_READ: Final = "__pregel_read"
_SEND: Final = "__pregel_send"


class StateUpdates:
    """What the calls of one eval do to the graph's state.

    Where the graph merges values (files, lists, counters), a call's are written at once, in the
    order in which calls end: a later call, and whoever else reads the state, finds them there. The
    rest waits for the end of the eval, as commands in the order of the calls.
    """

    def __init__(self, state: Any, config: RunnableConfig) -> None:
        self._state = state
        self._channels, self._pending, self._send = _graph_of(config)
        self._in_loop = carried_in(config) is not None
        self._own: list[tuple[str, Any]] = []  # writes, where none can be sent
        self._last: dict[str, Any] = {}  # values of keys that keep one
        self._added: list[tuple[int, str, Command[Any]]] = []  # as calls returned them
        self._commands: list[tuple[int, Command[Any]]] = []  # what of them is still to be returned
        self._call_ids: set[str] = set()
        self._over = False
        self._lock = threading.Lock()

    def add(self, index: int, call_id: str, command: Command[Any]) -> None:
        """Take a command that a call returned."""
        with self._lock:
            if self._over:
                return  # the graph has taken what the eval wrote
            self._added.append((index, call_id, command))
            self._call_ids.add(call_id)
            pairs = pairs_of(command)
            if pairs and command.graph is None:
                command = dataclasses.replace(command, update=self._write(pairs))
            self._commands.append((index, command))

    @property
    def commands(self) -> list[tuple[int, str, Command[Any]]]:
        """What was added: the number of the call, its id, its command."""
        with self._lock:
            return list(self._added)

    def _write(self, pairs: Sequence[tuple[str, Any]]) -> dict[str, Any]:
        """Write what can be written now; what is left of the update."""
        rest: dict[str, Any] = {}
        for key, value in pairs:
            # A message of a call within the eval is no part of the conversation.
            if key == _MESSAGES and key in rest:
                rest[key] = [*as_list(rest[key]), *as_list(value)]
            elif key == _MESSAGES or key not in self._channels:
                rest[key] = value
            elif self._keeps_one(key, value):
                rest[key] = self._last[key] = value
            elif self._send is None:
                self._own.append((key, value))
                rest[key] = value
            else:
                self._send([(key, value)])
        return rest

    @property
    def state(self) -> Any:
        """The state for the next call, by the graph's own reducers; not the graph's own."""
        state = self._state
        if not isinstance(state, Mapping):
            return state
        written: dict[str, list[Any]] = {}
        for key, value in [*self._pending, *self._own]:  # by tools of their own accord, too
            if key in self._channels and key != _MESSAGES:
                written.setdefault(key, []).append(value)
        with self._lock:
            last = dict(self._last)
        if not written and not last:
            return state
        fresh = dict(state)
        for key, values in written.items():
            channel = self._channels[key].copy()
            # What the graph refuses, it says so itself when it takes it.
            with contextlib.suppress(Exception):
                channel.update(values)
                fresh[key] = channel.get()
        return {**fresh, **last}

    def returned(self, message: ToolMessage, own: Mapping[str, Any] | None = None) -> Any:
        """What the eval tool returns: its message, with the commands if there are any.

        As one command where that can be, else as a list.

        `own`: the eval's own update, which goes with the message, where the graph knows its keys.
        """
        alone: Any = message
        answer: Command[Any] = Command(update={_MESSAGES: [message]})
        if own and all(key in self._channels for key in own):
            alone = answer = Command(update={**own, _MESSAGES: [message]})
        with self._lock:
            self._over = True
            commands = [command for _, command in sorted(self._commands, key=lambda one: one[0])]
        taken: set[str] = set()  # keys that keep one value, which a later command has set
        kept: list[Command[Any]] = []
        for command in reversed(commands):
            if isinstance(command.update, dict):
                update = {
                    key: self._foreign(value) if key == _MESSAGES else value
                    for key, value in command.update.items()
                    if key not in taken
                }
                taken |= {key for key in update if self._keeps_one(key, update[key])}
                if not update.get(_MESSAGES, True):
                    del update[_MESSAGES]
                command = dataclasses.replace(command, update=update or None)
            if command.update is not None or command.goto or command.graph is not None:
                kept.append(command)
        if not kept:
            return alone
        kept.reverse()
        one = merged([*kept, answer], self._channels, in_loop=self._in_loop)
        return one if one is not None else [*kept, alone]

    def _foreign(self, messages: Any) -> Any:
        """Without the answers to calls within the eval: the model has not made those."""
        if not isinstance(messages, list):
            return messages
        return [
            message
            for message in messages
            if not (isinstance(message, ToolMessage) and message.tool_call_id in self._call_ids)
        ]

    def _keeps_one(self, key: str, value: Any) -> bool:
        """Whether two updates of that key in one step are an error rather than both applied."""
        channel = self._channels.get(key)
        if key == _MESSAGES or channel is None:
            return False
        try:
            channel.copy().update([value, value])
        except InvalidUpdateError:
            return True
        except Exception:
            return False
        return False


class _Graph(NamedTuple):
    """What a task of langgraph's has in its configuration, where the graph runs one."""

    channels: Mapping[str, BaseChannel[Any, Any, Any]]
    writes: Iterable[tuple[str, Any]]  # of this task so far
    # None: what calls write waits for the end of the eval, as all the rest.
    send: Callable[[list[tuple[str, Any]]], Any] | None


def _graph_of(config: RunnableConfig) -> _Graph:
    """The graph's channels; langgraph's own tool node finds them so, too."""
    carried = carried_in(config)
    if carried is not None:
        return _Graph(carried.slots, (), None)
    configurable = config.get("configurable", {})
    read, send = configurable.get(_READ), configurable.get(_SEND)
    if isinstance(read, functools.partial) and len(read.args) > 3 and callable(send):
        channels, writes = read.args[1], getattr(read.args[3], "writes", None)
        if isinstance(channels, Mapping) and isinstance(writes, Iterable):
            return _Graph(channels, writes, send)
    return _Graph({}, (), None)
