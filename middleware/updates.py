"""State updates of the tools an eval called: seen by its later calls, returned with its result."""

from __future__ import annotations

import dataclasses
import functools
import threading
from collections.abc import Mapping
from typing import Any, Final

from langchain_core.messages import ToolMessage
from langchain_core.runnables import RunnableConfig

from .carried import carried_in
from .seam import BaseChannel, Command, InvalidUpdateError

_MESSAGES: Final = "messages"
_READ: Final = "__pregel_read"


class StateUpdates:
    """Commands in the order of their calls, and the state as they leave it."""

    def __init__(self, state: Any, config: RunnableConfig) -> None:
        self.state = state
        self._channels = _channels(config)
        self._changed: dict[str, BaseChannel[Any, Any, Any]] = {}
        self._commands: list[tuple[int, Command[Any]]] = []
        self._call_ids: set[str] = set()
        self._lock = threading.Lock()

    def add(self, index: int, call_id: str, command: Command[Any]) -> None:
        """Take a command that a call returned."""
        with self._lock:
            self._commands.append((index, command))
            self._call_ids.add(call_id)
            if isinstance(command.update, Mapping) and isinstance(self.state, Mapping):
                self._apply(command.update)

    def _apply(self, update: Mapping[str, Any]) -> None:
        """The state for later calls, by the graph's own reducers; not the graph's state itself."""
        state = dict(self.state)
        for key, value in update.items():
            if key == _MESSAGES or key not in self._channels:
                continue  # a message of a call within the eval is no part of the conversation
            channel = self._changed.get(key)
            try:
                if channel is None:
                    channel = self._changed[key] = self._channels[key].copy()
                channel.update([value])
                state[key] = channel.get()
            except Exception:  # the graph refuses it: it says so itself when it gets the update
                state[key] = value
        self.state = state

    def returned(self, message: ToolMessage, own: Mapping[str, Any] | None = None) -> Any:
        """What the eval tool returns: its message, behind the commands if there are any.

        `own`: the eval's own update, which goes with the message, where the graph knows its keys.
        """
        answer: Any = message
        if own and own.keys() <= self._channels.keys():
            answer = Command(update={**own, _MESSAGES: [message]})
        with self._lock:
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
        return [*reversed(kept), answer] if kept else answer

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


def _channels(config: RunnableConfig) -> Mapping[str, BaseChannel[Any, Any, Any]]:
    """The graph's channels, where it runs one; langgraph's own tool node finds them so, too."""
    carried = carried_in(config)
    if carried is not None:
        return carried.slots
    read = config.get("configurable", {}).get(_READ)
    if isinstance(read, functools.partial) and len(read.args) > 1:
        channels = read.args[1]
        if isinstance(channels, Mapping):
            return channels
    return {}
