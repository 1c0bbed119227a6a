"""Several commands as one that does the same to a graph's state.

Langgraph takes a list of them, and a middleware around the tool may not: that of Deep Agents for
files takes one message or one command, and fails the run for a list. In a graph there is always
one: what its reducers merge has been written by then, so that no key is left with two values that
both count. Only where a loop without a graph has a reducer that no single value satisfies, they
stay several: it takes lists.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

from .seam import BaseChannel, Command

_MESSAGES: Final = "messages"

Channels = Mapping[str, "BaseChannel[Any, Any, Any]"]


def merged(
    commands: Sequence[Command[Any]], channels: Channels, *, in_loop: bool = False
) -> Command[Any] | None:
    """One command for all of them, in their order; None if there is no such.

    Args:
        commands: at least one.
        channels: those of the graph that they are for; empty where it is not known.
        in_loop: there is no graph, but our own loop: it goes to one place, the last that is asked.
    """
    if len(commands) == 1:
        return commands[0]
    parents = [command for command in commands if command.graph is not None]
    if parents:
        # It ends the node, whose other updates and answers nobody gets. Of several the graph
        # takes the first, or where they only send, the targets of all.
        sends = [_targets(one.goto) for one in parents if _only_sends(one.goto)]
        if len(sends) < len(parents):
            return parents[0]
        return dataclasses.replace(parents[0], goto=[send for some in sends for send in some])
    gotos = [target for command in commands for target in _targets(command.goto)]
    values: dict[str, list[Any]] = {}
    for command in commands:
        pairs = pairs_of(command)
        if pairs is None:
            return None
        for key, value in pairs:
            values.setdefault(key, []).append(value)
    update: dict[str, Any] = {}
    for key, several in values.items():
        found, value = _one_value(key, several, channels)
        if not found:
            return None
        update[key] = value
    if not gotos:
        return Command(update=update)
    return Command(update=update, goto=gotos[-1] if in_loop or len(gotos) == 1 else gotos)


def _targets(goto: Any) -> list[Any]:
    return list(goto) if isinstance(goto, (list, tuple)) else [goto] if goto else []


def as_list(messages: Any) -> list[Any]:
    """Messages as a list, where one alone may be given."""
    return messages if isinstance(messages, list) else [messages]


def _only_sends(goto: Any) -> bool:
    return isinstance(goto, list) and not any(isinstance(target, str) for target in goto)


def pairs_of(command: Command[Any]) -> list[tuple[str, Any]] | None:
    """Keys and values of an update of any kind that a graph takes; None for another."""
    update = command.update
    if update is None:
        return []
    if isinstance(update, Mapping):
        return list(update.items())
    if isinstance(update, (list, tuple)):
        plain = all(isinstance(pair, tuple) and len(pair) == 2 for pair in update)
        return list(update) if plain else None
    fields = getattr(type(update), "model_fields", None) or getattr(
        type(update), "__dataclass_fields__", None
    )
    return None if fields is None else [(name, getattr(update, name)) for name in fields]


def _one_value(key: str, several: Sequence[Any], channels: Channels) -> tuple[bool, Any]:
    """Whether there is one value that the channel takes for all of them, and which."""
    if len(several) == 1:
        return True, several[0]
    if key == _MESSAGES:
        return True, [message for messages in several for message in as_list(messages)]
    channel = channels.get(key)
    if channel is None:
        # A graph leaves out what it has no channel for.
        return bool(channels), several[-1]
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
