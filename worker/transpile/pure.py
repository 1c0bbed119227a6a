"""Expressions that may be evaluated again, or left out, without anyone noticing."""

from __future__ import annotations

from tree_sitter import Node

from .names import field, text_of

_EFFECTS = frozenset(
    (
        "assignment_expression",
        "augmented_assignment_expression",
        "update_expression",
        "await_expression",
        "yield_expression",
        "tagged_template_expression",
    )
)
_FUNCTIONS = frozenset(
    ("arrow_function", "function_expression", "generator_function", "method_definition", "class")
)
# Making one of these leaves no trace.
_MAKERS = frozenset(
    (
        "Array",
        "BigInt64Array",
        "Date",
        "Error",
        "Float32Array",
        "Float64Array",
        "Int16Array",
        "Int32Array",
        "Int8Array",
        "Map",
        "Object",
        "RangeError",
        "RegExp",
        "Set",
        "TypeError",
        "Uint16Array",
        "Uint32Array",
        "Uint8Array",
        "WeakMap",
        "WeakSet",
    )
)
_CALLS = frozenset(
    ("Array.of", "BigInt", "Number", "Object.freeze", "String", "Symbol", "Symbol.for")
)
_WELL_KNOWN = frozenset(
    (
        "asyncIterator",
        "hasInstance",
        "isConcatSpreadable",
        "iterator",
        "match",
        "matchAll",
        "replace",
        "search",
        "species",
        "split",
        "toPrimitive",
        "toStringTag",
        "unscopables",
    )
)
_MAX_NODES = 5000


def has_effects(expression: Node) -> bool:
    """Whether evaluating it may do more than give a value. Functions in it are not run by that."""
    stack = [expression]
    for _ in range(_MAX_NODES):
        if not stack:
            return False
        node = stack.pop()
        kind = node.type
        if kind in _FUNCTIONS:
            continue
        if kind in _EFFECTS:
            return True
        if kind == "call_expression" and text_of(field(node, "function")) not in _CALLS:
            return True
        if kind == "new_expression" and text_of(field(node, "constructor")) not in _MAKERS:
            return True
        if kind == "unary_expression" and text_of(node).startswith("delete"):
            return True
        stack += node.named_children
    return True


def is_fixed_key(key: Node) -> bool:
    """Whether a computed key is a well-known symbol: `[Symbol.iterator]`."""
    inner = key.named_child(0)
    if inner is None or inner.type != "member_expression":
        return False
    owner, _, name = text_of(inner).partition(".")
    return owner == "Symbol" and name in _WELL_KNOWN
