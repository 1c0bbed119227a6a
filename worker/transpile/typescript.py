"""Erase TypeScript from a program: types go, lines and columns stay.

What belongs here: finding what is only a type, and the few places where erasing it would change how
JavaScript reads the rest. What does not: enums and namespaces (`blocks.py`), which become code.
Decorators are left alone, so the engine refuses them.
"""

from __future__ import annotations

import re
from collections.abc import Callable

from tree_sitter import Node

from .blocks import Blocks
from .edits import Edits
from .imports import alias_target
from .names import field, only_child, pattern_names, text_of
from .outline import Outline
from .queries import SyntaxQuery

_SYNTAX = SyntaxQuery(
    """
    [(type_annotation) (type_predicate_annotation) (asserts_annotation) (implements_clause)
     (type_parameters)] @type
    (call_expression type_arguments: (_) @type)
    (new_expression type_arguments: (_) @type)
    (extends_clause type_arguments: (_) @type)
    (instantiation_expression (type_arguments) @type)
    [(interface_declaration) (type_alias_declaration) (ambient_declaration) (function_signature)
     (method_signature) (abstract_method_signature) (index_signature)] @statement
    (public_field_definition ["declare" "abstract"]) @statement
    [(as_expression) (satisfies_expression)] @as
    (type_assertion) @cast
    (non_null_expression "!" @token .)
    (optional_parameter "?" @token)
    (method_definition "?" @token)
    (public_field_definition ["?" "!"] @token)
    (variable_declarator "!" @token)
    (abstract_class_declaration "abstract" @token)
    (method_definition [(accessibility_modifier) (override_modifier)] @token) @member
    (public_field_definition
      [(accessibility_modifier) (override_modifier) "readonly"] @token) @member
    (formal_parameters
      (_ [(accessibility_modifier) (override_modifier) "readonly"] @token) @property)
    (required_parameter pattern: (this)) @this
    (arrow_function) @arrow
    [(enum_declaration) (internal_module) (module)] @block
    (import_alias) @alias
    """,
)
_COMMA = re.compile(rb"\s*,")


def erase(edits: Edits, root: Node, outline: Outline, until: int | None = None) -> None:
    """Push the edits that turn a TypeScript program into JavaScript, or that much of it."""
    blocks = Blocks(edits, outline)
    constructors: dict[int, tuple[Node, list[str]]] = {}
    for captures in _SYNTAX.matches(root):
        name = next(reversed(captures)) if len(captures) == 1 else ""
        node = captures[name][0] if name else captures["token"][0]
        if until is not None and (node.end_byte > until or node.has_error):
            continue
        if name in ("type", "token"):
            edits.blank(node.start_byte, node.end_byte)
        elif name == "block":
            blocks.rewrite(node)
        elif name == "alias":
            _alias(edits, node, outline.in_function)
        elif name:
            _HANDLERS[name](edits, node)
        elif "member" in captures:
            # `;`: without the modifier, `[x] = 1` or `*m() {}` would continue the member before.
            first = node.start_byte == captures["member"][0].start_byte
            edits.blank(node.start_byte, node.end_byte, ";" if first else "")
        else:
            edits.blank(node.start_byte, node.end_byte)
            _note_property(constructors, captures["property"][0])
    for constructor, names in constructors.values():
        _assign_properties(edits, constructor, names)


def _statement(edits: Edits, node: Node) -> None:
    edits.blank(node.start_byte, node.end_byte, ";")


def _as(edits: Edits, node: Node) -> None:
    word = node.type.partition("_")[0]
    token = next(child for child in node.children[1:] if child.type == word)
    edits.blank(token.start_byte, node.end_byte)


def _cast(edits: Edits, node: Node) -> None:
    """`<T>x` becomes `(x)`: what begins a statement or a returned line must not vanish."""
    types = node.named_children[0]
    edits.blank(types.start_byte, types.end_byte, "(")
    edits.close(node.end_byte, ")")


def _this(edits: Edits, node: Node) -> None:
    comma = _COMMA.match(edits.source, node.end_byte)
    edits.blank(node.start_byte, comma.end() if comma else node.end_byte)


def _arrow(edits: Edits, node: Node) -> None:
    """No line may break before `=>`, or between `async` or `return` and the parameters."""
    result = node.child_by_field_name("return_type")
    if result is not None:
        arrow = next(child for child in node.children if child.type == "=>")
        if b"\n" in edits.source[result.start_byte : arrow.start_byte]:
            # The larger span comes first and makes the plain erasure of the type void.
            edits.blank(result.start_byte, arrow.end_byte, "=>")
    types = node.child_by_field_name("type_parameters")
    if types is not None:
        parameters = field(node, "parameters").start_byte
        if b"\n" in edits.source[types.start_byte : parameters]:
            edits.blank(types.start_byte, parameters + 1, "(")


def _alias(edits: Edits, node: Node, in_function: bool) -> None:
    """`import a = N.b` is a declaration of a constant; one at the top level is a global."""
    name, target = alias_target(node)
    parent = node.parent
    if parent is not None and parent.type == "export_statement":
        parent = parent.parent
    top = parent is None or parent.type == "program"
    keyword = "const " if not top else "" if in_function else "var "
    edits.replace(node.start_byte, node.end_byte, f"{keyword}{name}={target};")


_HANDLERS: dict[str, Callable[[Edits, Node], None]] = {
    "statement": _statement,
    "as": _as,
    "cast": _cast,
    "this": _this,
    "arrow": _arrow,
}


def _note_property(constructors: dict[int, tuple[Node, list[str]]], parameter: Node) -> None:
    parameters = parameter.parent
    method = None if parameters is None else parameters.parent
    if method is None or method.type != "method_definition":
        return
    _, names = constructors.setdefault(method.start_byte, (method, []))
    for name in pattern_names(field(parameter, "pattern")):
        if text_of(name) not in names:
            names.append(text_of(name))


def _assign_properties(edits: Edits, constructor: Node, names: list[str]) -> None:
    """Parameter properties are set first thing in the constructor, or right after `super()`."""
    assignments = ",".join(f"this.{name}={name}" for name in names)
    body = field(constructor, "body")
    for statement in body.named_children:
        if statement.type != "expression_statement":
            continue
        call = only_child(statement)
        if call.type == "call_expression" and field(call, "function").type == "super":
            edits.close(call.end_byte, f",{assignments}")
            return
    edits.open(body.start_byte + 1, f"{assignments};")
