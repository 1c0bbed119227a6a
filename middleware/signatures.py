"""TypeScript signatures of tools, from their JSON schemas.

Nested models are inlined and `$ref`s resolved, down to a depth and a size; past that a type is
`unknown`, with its name as a comment. Pure functions of a tool; who caches them is elsewhere.
"""

from __future__ import annotations

import inspect
import json
import re
import types
import typing
from collections.abc import Iterable, Mapping
from typing import Annotated, Any, Final, Union, get_args, get_origin

from langchain_core.messages import ToolMessage
from langchain_core.tools import BaseTool
from pydantic import TypeAdapter

from qjs_pool.tools import guest_name

_MAX_DEPTH: Final = 6
_MAX_TYPE_CHARS: Final = 6000
_MAX_COMMENT_CHARS: Final = 300
_MAX_LINE: Final = 88
_IDENTIFIER: Final = re.compile(r"[A-Za-z_$][\w$]*\Z", re.ASCII)
_SCALARS: Final = {
    "string": "string",
    "integer": "number",
    "number": "number",
    "boolean": "boolean",
    "null": "null",
}
_CALLBACK_TYPES: Final = ("Awaitable", "Coroutine")


def signature_of(tool: BaseTool, *, max_doc_chars: int = 600) -> str:
    """The declaration of one tool: its description as a comment, input and return types."""
    schema = input_schema(tool)
    name = guest_name(tool.name)
    properties = schema.get("properties") or {}
    renderer = _Renderer(schema)
    if not properties and not schema.get("additionalProperties"):
        parameters = ""
    else:
        optional = "" if schema.get("required") else "?"
        parameters = f"input{optional}: {renderer.type_of(schema, 0)}"
    returns = _return_type(tool)
    lines = [_comment(tool.description, max_doc_chars)] if tool.description else []
    return "\n".join([*lines, f"tools.{name}({parameters}): Promise<{returns}>"])


def input_schema(tool: BaseTool) -> dict[str, Any]:
    """The JSON schema of what a caller may give; injected arguments are not in it."""
    try:
        schema = tool.tool_call_schema
        if isinstance(schema, dict):
            return schema
        return typing.cast("dict[str, Any]", _model_schema(schema))
    except Exception:  # a schema of types that have none, e.g. a callable
        return {"type": "object", "additionalProperties": True}


def required_fields(tool: BaseTool) -> tuple[str, ...]:
    """The names of the required input fields."""
    return tuple(str(name) for name in input_schema(tool).get("required") or ())


def _model_schema(model: Any) -> Any:
    make = getattr(model, "model_json_schema", None) or model.schema  # Pydantic 2, or 1
    return make()


def _return_type(tool: BaseTool) -> str:
    annotation = _return_annotation(tool)
    if annotation in (Any, inspect.Parameter.empty):
        return "unknown"
    if annotation is None or annotation is type(None):
        return "null"
    try:
        adapter = TypeAdapter(annotation)
        try:
            schema = adapter.json_schema(mode="serialization")
        except Exception:
            schema = adapter.json_schema()
    except Exception:
        return "unknown"
    return _Renderer(schema, output=True).type_of(schema, 0)


def _return_annotation(tool: BaseTool) -> Any:
    """What a call gives the guest, by the function's annotation."""
    function = getattr(tool, "func", None) or getattr(tool, "coroutine", None)
    if function is None:
        own = type(tool)
        function = own._run if own._arun is BaseTool._arun else own._arun
    try:
        annotation = typing.get_type_hints(function, include_extras=True).get("return", Any)
    except Exception:
        return Any
    while getattr(get_origin(annotation), "__name__", "") in _CALLBACK_TYPES:
        annotation = get_args(annotation)[-1]
    if tool.response_format == "content_and_artifact":
        parts = get_args(annotation)
        annotation = parts[0] if get_origin(annotation) is tuple and parts else Any
    return _unwrapped(annotation)


def _unwrapped(annotation: Any) -> Any:
    """The annotation without the envelopes that are opened on the way to the guest."""
    if isinstance(annotation, type) and annotation.__name__ == "Command":
        return Any
    if isinstance(annotation, type) and issubclass(annotation, ToolMessage):
        return str
    if get_origin(annotation) is Annotated:
        return _unwrapped(get_args(annotation)[0])
    if get_origin(annotation) in (Union, types.UnionType):
        members = [
            _unwrapped(member)
            for member in get_args(annotation)
            if getattr(get_origin(member) or member, "__name__", "") != "Command"
        ]
        if not members or Any in members:
            return Any
        return Union[tuple(dict.fromkeys(members))]  # noqa: UP007  members are known at run time only
    if getattr(get_origin(annotation), "__name__", "") == "Command":
        return Any
    return annotation


class _Renderer:
    """One schema with its definitions."""

    def __init__(self, root: Mapping[str, Any], *, output: bool = False) -> None:
        self._root = root
        self._output = output
        self._chars_left = _MAX_TYPE_CHARS
        self._open: list[str] = []  # references we are inside of

    def type_of(self, schema: Any, depth: int) -> str:
        text = self._type_of(schema, depth)
        self._chars_left -= len(text) // (depth + 1)
        return text

    def _type_of(self, schema: Any, depth: int) -> str:
        if schema is False:
            return "never"
        if not isinstance(schema, Mapping):
            return "unknown"
        if "$ref" in schema:
            return self._reference(str(schema["$ref"]), depth)
        if depth > _MAX_DEPTH or self._chars_left <= 0:
            title = schema.get("title")
            return f"unknown /* {inline(str(title), 60)} */" if title else "unknown"
        if "const" in schema:
            return _literal(schema["const"])
        if "enum" in schema:
            return _union(_literal(value) for value in schema["enum"])
        for key in ("anyOf", "oneOf"):
            if schema.get(key):
                return _union(self.type_of(member, depth) for member in schema[key])
        if schema.get("allOf"):
            members = [self.type_of(member, depth) for member in schema["allOf"]]
            return " & ".join(_grouped(member) for member in members)
        kind = schema.get("type")
        if isinstance(kind, list):
            return _union(self.type_of({**schema, "type": one}, depth) for one in kind)
        if kind == "array":
            return self._array(schema, depth)
        if kind == "object" or "properties" in schema:
            return self._object(schema, depth)
        if kind == "string" and schema.get("format") == "binary":
            return "Uint8Array" if self._output else "string"
        return _SCALARS.get(str(kind), "unknown")

    def _reference(self, reference: str, depth: int) -> str:
        name = reference.rsplit("/", 1)[-1]
        target: Any = self._root
        for part in reference.removeprefix("#/").split("/"):
            target = target.get(part) if isinstance(target, Mapping) else None
        if target is None or reference in self._open or not reference.startswith("#/"):
            return f"unknown /* {inline(name, 60)} */"
        self._open.append(reference)
        try:
            return self.type_of(target, depth)
        finally:
            self._open.pop()

    def _array(self, schema: Mapping[str, Any], depth: int) -> str:
        if schema.get("prefixItems"):
            members = (self.type_of(item, depth + 1) for item in schema["prefixItems"])
            return f"[{', '.join(members)}]"
        return f"{_grouped(self.type_of(schema.get('items', True), depth + 1))}[]"

    def _object(self, schema: Mapping[str, Any], depth: int) -> str:
        properties = schema.get("properties") or {}
        if not properties:
            rest = schema.get("additionalProperties", True)
            value = "unknown" if rest is True else self.type_of(rest, depth + 1)
            return "{}" if rest is False else f"Record<string, {value}>"
        required = schema.get("required") or ()
        fields = []
        for name, field in properties.items():
            key = name if _IDENTIFIER.match(name) else json.dumps(name)
            # What has a default may be left out by a caller, and is there in what is returned.
            given = self._output and isinstance(field, Mapping) and "default" in field
            mark = "" if given or name in required else "?"
            fields.append(
                (self._field_comment(field), f"{key}{mark}: {self.type_of(field, depth + 1)};")
            )
        if not any(comment for comment, _ in fields):
            line = " ".join(text for _, text in fields)
            if "\n" not in line and len(line) <= _MAX_LINE:
                return f"{{ {line.removesuffix(';')} }}"
        lines = []
        for comment, text in fields:
            lines += [comment] if comment else []
            lines += text.split("\n")
        return "\n".join(["{", *(f"  {line}" for line in lines), "}"])

    def _field_comment(self, field: Any) -> str:
        if not isinstance(field, Mapping):
            return ""
        parts = [str(field["description"])] if field.get("description") else []
        default = field.get("default")
        if default is not None and len(_literal(default)) <= 40:
            parts.append(f"Default: {_literal(default)}")
        return _comment(". ".join(part.rstrip(". ") for part in parts)) if parts else ""


def _literal(value: Any) -> str:
    try:
        return json.dumps(value, ensure_ascii=False)
    except (TypeError, ValueError):
        return "unknown"


def _union(members: Iterable[str]) -> str:
    distinct = dict.fromkeys(members)
    if "unknown" in distinct:
        return "unknown"
    return " | ".join(distinct) or "never"


def _grouped(text: str) -> str:
    """In parentheses where an operator inside would bind differently."""
    depth = 0
    for char in text:
        depth += (char in "{[(<") - (char in "}])>")
        if depth == 0 and char in "|&":
            return f"({text})"
    return text


def inline(text: str, max_chars: int) -> str:
    """Text that can neither end a comment nor the code block around it."""
    flat = " ".join(text.split()).replace("*/", "*\\/").replace("```", "'''")
    return flat if len(flat) <= max_chars else f"{flat[:max_chars].rstrip()}…"


def _comment(text: str, max_chars: int = _MAX_COMMENT_CHARS) -> str:
    return f"/** {inline(text, max_chars)} */"


def summary_of(tool: BaseTool, max_chars: int = 100) -> str:
    """The first sentence of a tool's description."""
    flat = inline(tool.description, 2000)
    return inline(re.split(r"(?<=[.!?]) ", flat, maxsplit=1)[0], max_chars)
