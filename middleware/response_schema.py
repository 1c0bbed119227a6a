"""The JSON Schema that a program asks a subagent's answer to have: its limits, and its title."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from typing import Any, Final

MAX_BYTES: Final = 64 << 10  # as JSON; it is sent to a model with every call
MAX_DEPTH: Final = 32  # schemas within schemas, the outermost included
MAX_PROPERTIES: Final = 1000  # in all

# Models are given it as a tool of that name.
_TITLE: Final = "subagent_answer"
_NO_TOOL_NAME: Final = re.compile(r"[^A-Za-z0-9_-]+")
_MAX_TITLE: Final = 64

# Where a schema has schemas within: in itself, in a list, or by names.
_ONE: Final = (
    "items", "additionalProperties", "additionalItems", "contains", "propertyNames", "not", "if",
    "then", "else", "unevaluatedItems", "unevaluatedProperties",
)  # fmt: skip
_LISTS: Final = ("allOf", "anyOf", "oneOf", "prefixItems", "items")
_NAMED: Final = (
    "properties", "patternProperties", "$defs", "definitions", "dependentSchemas",
)  # fmt: skip


class SchemaRefused(ValueError):
    """The schema is none, or over a limit; the message names it."""


def checked_schema(schema: Any) -> dict[str, Any]:
    """The schema, with a title.

    Raises:
        SchemaRefused: not an object, no JSON, a root of another type than "object", or over 64 KB,
            32 levels or 1,000 properties.
    """
    if not isinstance(schema, Mapping):
        raise SchemaRefused("must be an object, a JSON Schema")
    try:
        text = json.dumps(schema, allow_nan=False, ensure_ascii=False)
    except (TypeError, ValueError, RecursionError):
        raise SchemaRefused("must be plain JSON") from None
    size = len(text.encode("utf-8", "replace"))
    if size > MAX_BYTES:
        raise SchemaRefused(f"has {size} bytes as JSON, and {MAX_BYTES} is the limit")
    # An answer is the input of a tool call, which is an object.
    if schema.get("type", "object") != "object":
        raise SchemaRefused('must have type "object" at its root; wrap a list into a property')
    _measure(schema)
    return {**schema, "title": _title(schema.get("title"))}


def _measure(root: Mapping[str, Any]) -> None:
    properties = 0
    level: list[Mapping[str, Any]] = [root]
    depth = 0
    while level:
        depth += 1
        if depth > MAX_DEPTH:
            raise SchemaRefused(f"is over {MAX_DEPTH} levels deep")
        for schema in level:
            named = schema.get("properties")
            properties += len(named) if isinstance(named, Mapping) else 0
        if properties > MAX_PROPERTIES:
            raise SchemaRefused(f"has over {MAX_PROPERTIES} properties")
        level = [inner for schema in level for inner in _inner(schema)]


def _inner(schema: Mapping[str, Any]) -> Iterator[Mapping[str, Any]]:
    found: list[Any] = [schema.get(key) for key in _ONE]
    for key in _LISTS:
        listed = schema.get(key)
        found += listed if isinstance(listed, list) else ()
    for key in _NAMED:
        named = schema.get(key)
        found += named.values() if isinstance(named, Mapping) else ()
    return (one for one in found if isinstance(one, Mapping))


def _title(given: Any) -> str:
    name = _NO_TOOL_NAME.sub("_", given).strip("_") if isinstance(given, str) else ""
    return name[:_MAX_TITLE] or _TITLE
