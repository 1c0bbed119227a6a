"""Which of a tool's arguments the loop supplies: the runtime, the state, one key of the state."""

from __future__ import annotations

import typing
from collections.abc import Mapping
from typing import Any, NamedTuple

from langchain_core.messages import ToolCall
from langchain_core.tools import BaseTool
from langchain_core.tools.base import get_all_basemodel_annotations

from ..capture import injected_names
from ..seam import InjectedState, InjectedStore, ToolRuntime

_RUNTIME = "runtime"


class Injection(NamedTuple):
    """`hidden`: what no model may supply; the others say what goes where."""

    hidden: frozenset[str]
    runtime: str | None
    state: Mapping[str, str | None]  # argument: key of the state, None for all of it
    optional: frozenset[str]  # of these: the ones with a default
    store: str | None


def injection_of(tool: BaseTool) -> Injection:
    """What a tool is to be supplied with."""
    schema: Any = tool.get_input_schema()
    function = getattr(tool, "func", None) or getattr(tool, "coroutine", None) or type(tool)._run
    try:
        hints = typing.get_type_hints(function, include_extras=True)
    except Exception:  # names that only a type checker sees; the schema is what counts
        hints = {}
    hints.pop("return", None)
    hints |= get_all_basemodel_annotations(schema)
    runtime, store = None, None
    state: dict[str, str | None] = {}
    for name, hint in hints.items():
        notes = [hint, *_parts(hint)]
        if name == _RUNTIME or any(_is(note, ToolRuntime) for note in notes):
            runtime = name
        for note in notes:
            if _is(note, InjectedState):
                state[name] = getattr(note, "field", None)
            elif _is(note, InjectedStore):
                store = name
    fields = schema.model_fields
    optional = frozenset(n for n in state if n in fields and not fields[n].is_required())
    hidden = injected_names(tool) | state.keys() | {n for n in (runtime, store) if n is not None}
    return Injection(frozenset(hidden), runtime, state, optional, store)


def _parts(hint: Any) -> list[Any]:
    """The annotations within an annotation."""
    parts = list(getattr(hint, "__metadata__", ()))
    for part in typing.get_args(hint):
        parts += [part, *_parts(part)]
    return parts


def _is(note: Any, kind: type) -> bool:
    note = typing.get_origin(note) or note
    return isinstance(note, kind) or (isinstance(note, type) and issubclass(note, kind))


def injected(call: ToolCall, runtime: Any, injection: Injection) -> ToolCall:
    """The call with what the loop supplies, and without what the model has forged of it.

    Raises:
        KeyError: the state lacks a key; ValueError: the tool needs a store.
    """
    args = {name: arg for name, arg in call["args"].items() if name not in injection.hidden}
    if injection.runtime is not None:
        args[injection.runtime] = runtime
    for name, key in injection.state.items():
        if key is None:
            args[name] = runtime.state
        elif key in runtime.state or name not in injection.optional:
            args[name] = runtime.state[key]
    if injection.store is not None:
        if runtime.store is None:
            raise ValueError(f"the tool {call['name']} needs a store, and this agent has none")
        args[injection.store] = runtime.store
    return ToolCall(name=call["name"], args=args, id=call["id"], type="tool_call")
