"""What a program gives to `task()`, checked before any subagent starts."""

from __future__ import annotations

import dataclasses
import difflib
from collections.abc import Collection, Mapping
from typing import Any, Final

from .dispatch import ToolError
from .response_schema import SchemaRefused, checked_schema

_SHAPE: Final = "task({ description, subagentType, label?, responseSchema? })"
# As told to the program, by the spelling that all of `subagentType`, `subagent_type`, ... share.
_FIELDS: Final = {
    "description": "description",
    "subagenttype": "subagentType",
    "label": "label",
    "responseschema": "responseSchema",
}
_REQUIRED: Final = ("description", "subagentType")
_MAX_SHOWN: Final = 60


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class TaskInput:
    """Work for a subagent.

    `label`: a few words for whoever watches. `response_schema`: what the answer has to be.
    """

    description: str
    subagent_type: str
    label: str | None = None
    response_schema: dict[str, Any] | None = None


def checked_task(args: Any, known: Collection[str]) -> TaskInput:
    """The input of one call.

    Args:
        args: as it came from the guest.
        known: the names of the subagents; empty if they are not known.

    Raises:
        ToolError: it is not as it has to be; the message says what is required, for the guest.
    """
    fields = _by_field(args)
    missing = [name for name in _REQUIRED if _is_blank(fields.get(name))]
    if missing:
        kinds = f"; subagentType is one of: {', '.join(known)}" if known else ""
        raise ToolError(f"task() requires {' and '.join(missing)}: {_SHAPE}{kinds}")
    for name in ("description", "subagentType", "label"):
        if not isinstance(fields.get(name, ""), str):
            raise ToolError(f"{name} of task() must be a string: {_SHAPE}")
    subagent_type = fields["subagentType"]
    if known and subagent_type not in known:
        raise ToolError(_unknown(subagent_type, known))
    schema = fields.get("responseSchema")
    try:
        return TaskInput(
            description=fields["description"],
            subagent_type=subagent_type,
            label=fields.get("label"),
            response_schema=None if schema is None else checked_schema(schema),
        )
    except SchemaRefused as error:
        raise ToolError(f"responseSchema of task() {error}") from None


def _by_field(args: Any) -> dict[str, Any]:
    """What was given, by the names of the fields; null is as good as nothing."""
    if not isinstance(args, Mapping) or set(args) == {
        "input"
    }:  # the bridge wraps what is no object
        raise ToolError(f"task() takes one object: {_SHAPE}")
    fields: dict[str, Any] = {}
    for key, value in args.items():
        name = _FIELDS.get(str(key).replace("_", "").replace("-", "").lower())
        if name is None:
            # Whatever it says would be lost: often the instructions themselves.
            raise ToolError(f"task() has no field {str(key)[:_MAX_SHOWN]!r}: {_SHAPE}")
        if value is not None:
            fields.setdefault(name, value)
    return fields


def _is_blank(value: Any) -> bool:
    return value is None or (isinstance(value, str) and not value.strip())


def _unknown(name: str, known: Collection[str]) -> str:
    near = difflib.get_close_matches(name[:_MAX_SHOWN], known, 1)
    hint = f", did you mean {near[0]!r}?" if near else "."
    return f"no subagent {name[:_MAX_SHOWN]!r}{hint} available: {', '.join(known)}"
