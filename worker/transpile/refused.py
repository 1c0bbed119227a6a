"""A program with a syntax error: make the engine stumble over that error, and over none before it.

Given as it was sent, TypeScript would be refused at its first annotation and a top-level `await` as
an unknown word, and a model would mend what is right. So what is legal here but not to the engine
is taken out up to the error; where there is nothing of the kind the source stays as it is.
"""

from __future__ import annotations

import re

from tree_sitter import Node

from .edits import Edits
from .outline import Outline, Statement, is_type_only
from .parse import Failed
from .typescript import erase

_NEEDS_FUNCTION = re.compile(rb"\b(?:await|return)\b")


def refuse(edits: Edits, failed: Failed) -> None:
    """Push the edits; the result is for the engine to refuse, and is not expected to run."""
    root, error = failed.tree.root_node, failed.error
    if _NEEDS_FUNCTION.search(edits.source, 0, error):
        edits.open(0, "(async()=>{")
        edits.open(len(edits.source), "\n})()")
    outline = Outline()
    for node in root.named_children:
        if node.end_byte > error:
            break
        outline.statements.append(Statement(_unwrapped(edits, node)))
    if failed.typescript:
        erase(edits, root, outline, until=error)


def _unwrapped(edits: Edits, node: Node) -> Node:
    """Take off what only a module may have; the declaration that is exported stays."""
    if node.type == "import_statement":
        edits.blank(node.start_byte, node.end_byte)
    elif node.type == "export_statement":
        inner = node.child_by_field_name("declaration") or node.child_by_field_name("value")
        if inner is not None and not is_type_only(node):
            edits.blank(node.start_byte, inner.start_byte, ";")
            return inner
        edits.blank(node.start_byte, node.end_byte, ";")
    return node
