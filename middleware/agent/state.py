"""The rules of an agent's state: how a key's updates are merged, and which keys outlive a run.

A key is overwritten, unless a middleware's `state_schema` annotates it with a function of two
arguments (or one of langgraph's channels): then that merges it. `messages` append; a message with a
known id replaces the one that has it; langchain-core's `RemoveMessage` removes.
"""

from __future__ import annotations

import inspect
import typing
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Final, NotRequired, Required

import typing_extensions
from langchain_core.messages import BaseMessage, RemoveMessage, convert_to_messages

from ..seam import BaseChannel, Overwrite, PrivateStateAttr, within_run

MESSAGES: Final = "messages"
JUMP: Final = "jump_to"
# The id by which a RemoveMessage means every message, as langgraph spells it.
_ALL: Final = "__remove_all__"
_NOTHING: Final = object()

State = dict[str, Any]
Merge = Callable[[Any, Any], Any]


class StateRules:
    """The rules that the schemas of an agent's middlewares give. The first schema wins a key."""

    def __init__(self, schemas: Sequence[type]) -> None:
        self._merges: dict[str, Merge] = {}
        self._declared: set[str] = set()
        self._within_run: set[str] = {JUMP}
        self._private: set[str] = set()
        for schema in schemas:
            for key, hint in typing.get_type_hints(schema, include_extras=True).items():
                if key not in self._declared:
                    self._declare(key, hint)
        self._merges[MESSAGES] = merged_messages

    def _declare(self, key: str, hint: Any) -> None:
        self._declared.add(key)
        kind, notes = _taken_apart(hint)
        if any(note == PrivateStateAttr for note in notes):
            self._private.add(key)
        if any(map(within_run, notes)):
            self._within_run.add(key)
        elif (merge := _merge_of(kind, notes)) is not None:
            self._merges[key] = merge

    def opened(self, given: Mapping[str, Any], *, private: bool) -> State:
        """A run's first state: a copy of what the caller gave, without what was another run's.

        `private`: the caller carries what middlewares keep to themselves. Who runs the agent
        within another one does not: those keys are of that other one.
        """
        state = self._open(given, private)
        state[MESSAGES] = merged_messages([], state.get(MESSAGES, []))
        return state

    def applied(self, state: State, update: Mapping[str, Any]) -> State:
        """The state with an update, as a new dict."""
        changed = dict(state)
        for key, value in update.items():
            if key == JUMP:
                continue  # an instruction, not state
            try:
                changed[key] = self._merged(key, changed.get(key, _NOTHING), value)
            except Exception as error:
                error.add_note(f"while the update of the state's key {key!r} was merged")
                raise
        return changed

    def _merged(self, key: str, old: Any, new: Any) -> Any:
        if isinstance(new, Overwrite):
            return convert_to_messages(new.value) if key == MESSAGES else new.value
        merge = self._merges.get(key)
        return new if merge is None else merge(old, new)

    def returned(self, state: State, *, private: bool) -> State:
        """What the caller gets of the state; `private` as in `opened`."""
        return self._open(state, private)

    def _open(self, state: Mapping[str, Any], private: bool) -> State:
        hidden = self._within_run if private else self._within_run | self._private
        return {key: value for key, value in state.items() if key not in hidden}

    def slots(self, state: State) -> Mapping[str, Slot]:
        """The state's keys one by one, as `Carried` has them."""
        return _Slots(self, state)


class Slot:
    """One key of a state, to be tried out on a copy."""

    def __init__(self, rules: StateRules, key: str, value: Any) -> None:
        self._rules = rules
        self._key = key
        self._value = value

    def copy(self) -> Slot:
        return Slot(self._rules, self._key, self._value)

    def update(self, values: Sequence[Any]) -> None:
        for value in values:
            self._value = self._rules._merged(self._key, self._value, value)

    def get(self) -> Any:
        return self._value


class _Slots(Mapping[str, Slot]):
    """There is one for every key: unlike a graph's, this state takes keys that nobody declared."""

    def __init__(self, rules: StateRules, state: State) -> None:
        self._rules, self._state = rules, state

    def __getitem__(self, key: str) -> Slot:
        return Slot(self._rules, key, self._state.get(key, _NOTHING))

    def __contains__(self, key: object) -> bool:
        return isinstance(key, str)

    def __iter__(self) -> Iterator[str]:
        return iter(self._rules._declared | self._state.keys())

    def __len__(self) -> int:
        return len(self._rules._declared | self._state.keys())


def merged_messages(old: Any, new: Any) -> list[BaseMessage]:
    """The messages with further ones, which may be any form that langchain-core understands."""
    known = [] if old is _NOTHING else list(old)
    messages = [*known]
    places = {message.id: place for place, message in enumerate(known) if message.id}
    removed: set[int] = set()
    listed = new if isinstance(new, (list, tuple)) and not _is_pair(new) else [new]
    for message in convert_to_messages(listed):
        if isinstance(message, RemoveMessage):
            if message.id == _ALL:
                messages, places, removed = [], {}, set()
            elif message.id in places:
                removed.add(places[message.id])
            else:
                raise ValueError(f"there is no message with the id {message.id!r} to remove")
            continue
        if message.id is None:
            # So that a middleware can name it later, to replace or remove it.
            message = message.model_copy(update={"id": str(uuid.uuid4())})
        place = places.get(message.id)
        if place is None:
            places[message.id] = len(messages)
            messages.append(message)
        else:
            messages[place] = message
            removed.discard(place)
    return [message for place, message in enumerate(messages) if place not in removed]


def _is_pair(value: Any) -> bool:
    """Whether that is one message as `("user", "text")`."""
    return isinstance(value, tuple) and len(value) == 2 and all(isinstance(x, str) for x in value)


def _taken_apart(hint: Any) -> tuple[Any, tuple[Any, ...]]:
    """The bare type of an annotation, and its notes."""
    notes: tuple[Any, ...] = ()
    while True:
        origin = typing.get_origin(hint)
        if origin in (NotRequired, Required, typing_extensions.ReadOnly):
            hint = typing.get_args(hint)[0]
        elif origin is typing.Annotated:
            notes = (*hint.__metadata__, *notes)
            hint = hint.__origin__
        else:
            return hint, notes


def _merge_of(kind: Any, notes: Sequence[Any]) -> Merge | None:
    for note in notes:
        if isinstance(note, BaseChannel) or (
            isinstance(note, type) and issubclass(note, BaseChannel)
        ):
            return _by_channel(note if isinstance(note, BaseChannel) else note(kind))
    for note in notes:
        if inspect.isfunction(note) or inspect.isbuiltin(note):
            return _by_function(kind, note)
    return None


def _by_channel(channel: Any) -> Merge:
    def merge(old: Any, new: Any) -> Any:
        one = channel.copy() if old is _NOTHING else channel.from_checkpoint(old)
        one.update([new])
        return one.get()

    return merge


def _by_function(kind: Any, function: Callable[[Any, Any], Any]) -> Merge:
    empty = typing.get_origin(kind) or kind

    def merge(old: Any, new: Any) -> Any:
        if old is _NOTHING:
            try:
                old = empty()  # what its type has for nothing: 0, [], {}
            except TypeError:  # it has none: the first value is the value
                return new
        return function(old, new)

    return merge
