"""Several commands as one that does the same to a graph's state.

Langgraph takes a list of them, and a middleware around the tool may not: that of Deep Agents for
files takes one message or one command. What can't be said as one stays several.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

from .seam import BaseChannel, Command

_MESSAGES: Final = "messages"

Channels = Mapping[str, "BaseChannel[Any, Any, Any]"]


def merged(commands: Sequence[Command[Any]], channels: Channels) -> Command[Any] | None:
    """One command for all of them, in their order; None if there is no such."""
    if len(commands) == 1:
        return commands[0]
    if any(command.graph is not None or command.resume is not None for command in commands):
        return None
    gotos = [command.goto for command in commands if command.goto]
    if len(gotos) > 1:
        return None
    values: dict[str, list[Any]] = {}
    for command in commands:
        if command.update is None:
            continue
        if not isinstance(command.update, dict):
            return None
        for key, value in command.update.items():
            values.setdefault(key, []).append(value)
    update: dict[str, Any] = {}
    for key, several in values.items():
        found, value = _one_value(key, several, channels)
        if not found:
            return None
        update[key] = value
    return Command(update=update, goto=gotos[0] if gotos else ())


def _one_value(key: str, several: Sequence[Any], channels: Channels) -> tuple[bool, Any]:
    """Whether there is one value that the channel takes for all of them, and which."""
    if len(several) == 1:
        return True, several[0]
    if key == _MESSAGES:
        lists = (value if isinstance(value, list) else [value] for value in several)
        return True, [message for messages in lists for message in messages]
    channel = channels.get(key)
    if channel is None:
        return False, None
    try:
        wanted = _after(channel, several)
        for value in _candidates(channel, several):
            # Reducers do as they please: only what gives the same is the same.
            if bool(_after(channel, [value]) == wanted):
                return True, value
    except Exception:  # the graph refuses the values, and says so itself when it gets them
        return False, None
    return False, None


def _after(channel: BaseChannel[Any, Any, Any], values: Sequence[Any]) -> Any:
    copy = channel.copy()
    copy.update(values)
    return copy.get()


def _candidates(channel: BaseChannel[Any, Any, Any], several: Sequence[Any]) -> Iterator[Any]:
    # Dicts first as they are: a value may mean that its key is to go, which a reducer drops.
    if all(isinstance(value, dict) for value in several):
        yield {key: item for value in several for key, item in value.items()}
    if all(isinstance(value, list) for value in several):
        yield [item for value in several for item in value]
    operator = getattr(channel, "operator", None)
    if operator is not None:
        folded = several[0]
        for value in several[1:]:
            folded = operator(folded, value)
        yield folded
