"""The names that declarations bind, read off the tree."""

from __future__ import annotations

from tree_sitter import Node

_LEAVES = frozenset(("identifier", "shorthand_property_identifier_pattern", "undefined"))


def text_of(node: Node) -> str:
    text = node.text
    return "" if text is None else text.decode("utf-8", "replace")


def field(node: Node, name: str) -> Node:
    """A field that the grammar always fills."""
    child = node.child_by_field_name(name)
    if child is None:
        raise ValueError(f"{node.type} without {name}")
    return child


def pattern_names(pattern: Node) -> list[Node]:
    """The identifiers bound by a binding pattern, in order."""
    if pattern.type == "identifier":
        return [pattern]
    found: list[Node] = []
    stack = [pattern]
    while stack:
        node = stack.pop()
        kind = node.type
        if kind in _LEAVES:
            found.append(node)
        elif kind == "pair_pattern":
            stack.append(field(node, "value"))
        elif kind in ("assignment_pattern", "object_assignment_pattern"):
            stack.append(field(node, "left"))
        else:
            stack.extend(reversed(node.named_children))
    return found


def declarators(declaration: Node) -> list[Node]:
    return [node for node in declaration.named_children if node.type == "variable_declarator"]


def declared_names(declaration: Node) -> list[Node]:
    """The identifiers of a `var`, `let` or `const` declaration, in order."""
    return [
        name
        for declarator in declarators(declaration)
        for name in pattern_names(field(declarator, "name"))
    ]


def own_semicolon(statement: Node) -> bool:
    last = statement.child(statement.child_count - 1)
    return last is not None and last.type == ";"


def only_child(statement: Node) -> Node:
    """The expression or statement inside, past comments."""
    first = statement.named_child(0)
    if first is not None and first.type != "comment":
        return first
    return next(node for node in statement.named_children if node.type != "comment")
