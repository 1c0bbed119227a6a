"""Reading a module's tree: what an export binds, what a specifier says, what a call calls."""

from __future__ import annotations

import re

from tree_sitter import Node

from .names import declared_names, field, text_of
from .outline import CLASS_DECLARATIONS, FUNCTION_DECLARATIONS, NAMESPACES

_LISTS = frozenset(("program", "statement_block", "switch_case", "switch_default"))
_WRAPPERS = frozenset(
    (
        "parenthesized_expression",
        "non_null_expression",
        "as_expression",
        "satisfies_expression",
        "type_assertion",
    )
)
_ESCAPE = re.compile(
    r"\\(?:u\{([0-9a-fA-F]+)\}|u([0-9a-fA-F]{4})|x([0-9a-fA-F]{2})|(\r\n|.))", re.S
)
_LETTERS = {"n": "\n", "t": "\t", "r": "\r", "b": "\b", "f": "\f", "v": "\v", "0": "\0"}
_IGNORED = frozenset(("\n", "\r\n", "\u2028", "\u2029"))


def is_called(node: Node) -> bool:
    """Whether this identifier is what a call calls, in parentheses or behind a cast too."""
    parent = node.parent
    while parent is not None and parent.type in _WRAPPERS:
        node, parent = parent, parent.parent
    if parent is None or parent.type != "call_expression":
        return False
    return parent.child_by_field_name("function") == node


def begins_statement(node: Node) -> bool:
    """Whether a parenthesis put before it could be read as a call of the statement before."""
    start, parent = node.start_byte, node.parent
    while parent is not None and parent.start_byte == start:
        if parent.type == "expression_statement":
            return parent.parent is not None and parent.parent.type in _LISTS
        parent = parent.parent
    return False


def bound_names(node: Node) -> list[str]:
    """The names that an exported declaration binds."""
    kind = node.type
    if kind in ("lexical_declaration", "variable_declaration"):
        return [text_of(name) for name in declared_names(node)]
    if kind == "expression_statement" and node.named_children:  # how the grammar files namespaces
        return bound_names(node.named_children[0])
    if kind in FUNCTION_DECLARATIONS or kind in CLASS_DECLARATIONS or kind == "enum_declaration":
        return [text_of(field(node, "name"))]
    if kind in NAMESPACES:
        return [text_of(field(node, "name")).partition(".")[0].strip()]
    if kind == "import_alias":
        return [text_of(next(c for c in node.named_children if c.type == "identifier"))]
    return []


def specifiers_of(clause: Node) -> list[tuple[Node, str, str]]:
    """Node, name and exported name of what an export clause lists, without types."""
    found = []
    for specifier in clause.named_children:
        words = [text_of(child) for child in specifier.children if child.type != "comment"]
        first = specifier.child(0)
        if specifier.type != "export_specifier" or (first is not None and first.type == "type"):
            continue
        found.append((specifier, name_of(words[0]), name_of(words[-1])))
    return found


def specifier_of(node: Node) -> str:
    return name_of(text_of(field(node, "source")))


def name_of(text: str) -> str:
    """A name or the value of a string literal."""
    if text[:1] not in ("'", '"'):
        return text
    text = text[1:-1]
    return _ESCAPE.sub(_unescaped, text) if "\\" in text else text


def _unescaped(match: re.Match[str]) -> str:
    code = match[1] or match[2] or match[3]
    if code is not None:
        number = int(code, 16)
        return "\ufffd" if 0xD800 <= number < 0xE000 or number > 0x10FFFF else chr(number)
    return "" if match[4] in _IGNORED else _LETTERS.get(match[4], match[4])
