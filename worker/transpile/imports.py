"""Imports and exports of a program: an import waits for a dynamic one, an export is dropped.

The engine has no module loader, so this is the one place that says how a module is asked for.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from tree_sitter import Node

from .edits import Edits
from .names import field, text_of
from .outline import Statement, imported, is_type_only

# How a program asks for a module: a global of the prelude's that is not enumerable and can't be
# changed. The engine has no loader and rejects a plain `import()`.
IMPORT_CALL = "$qjs_import"
# Not `import x`, `import "m"`, `import {`, `import *`; a comment may stand before the parenthesis.
_NOT_A_STATEMENT = re.compile(rb"""\bimport\b(?!\s*["'{*\w$])""")


def import_tokens(root: Node, source: bytes) -> Iterator[Node]:
    """The `import` of every `import(...)` and `import.meta`; for the latter, all of it."""
    if b"import" not in source:
        return
    for match in _NOT_A_STATEMENT.finditer(source):
        node = root.descendant_for_byte_range(match.start(), match.end())
        while node is not None and node.type == "import":  # the token, then the expression
            node = node.parent
        if node is None or node.start_byte != match.start():
            continue
        if node.type == "meta_property":
            yield node
        elif node.type == "call_expression":
            yield field(node, "function")


def rewrite_dynamic_imports(edits: Edits, root: Node) -> None:
    """Turn `import(...)` into a call of the prelude's; `import.meta` is the engine's to refuse."""
    for node in import_tokens(root, edits.source):
        if node.type == "import":
            edits.replace(node.start_byte, node.end_byte, IMPORT_CALL)


def rewrite_import(edits: Edits, node: Node, *, typescript: bool = False) -> None:
    """Turn `import ... from "m"` into an assignment of what an awaited dynamic import gives.

    The call also says which names have to be there. In TypeScript any of them may be a type.
    """
    if is_type_only(node):
        edits.blank(node.start_byte, node.end_byte, ";")
        return
    source = node.child_by_field_name("source")
    if source is None:  # `import x = require()`: the engine says that it does not know it
        return
    named = [(name, text_of(local)) for name, local in imported(node)]
    wanted = [] if typescript else [_quoted(name) for name, _ in named if name != "*"]
    call = (
        f"await {IMPORT_CALL}({','.join([text_of(source), *(['0'] if wanted else []), *wanted])})"
    )
    space = next((local for name, local in named if name == "*"), None)
    pattern = ",".join(f"{name}:{local}" for name, local in named if name != "*")
    if space is not None:
        text = f"{space}={call};" + (f"({{{pattern}}}={space});" if pattern else "")
    elif pattern:
        text = f"({{{pattern}}}={call});"
    else:
        text = f"{call};"
    edits.replace(node.start_byte, node.end_byte, text)


def _quoted(name: str) -> str:
    return name if name[0] in "\"'" else f'"{name}"'


def rewrite_export(edits: Edits, statement: Statement) -> bool:
    """Take the `export` off; True if a declaration or an expression is left of it.

    The semicolon keeps what is left from joining the statement before.
    """
    export = statement.export
    if export is None:
        return True
    if statement.node is not export:
        edits.blank(export.start_byte, statement.node.start_byte, ";")
        return True
    source = export.child_by_field_name("source")
    if any(child.type == "=" for child in export.children):
        return False  # `export = x`: left for the engine to refuse
    if source is None or is_type_only(export):
        edits.blank(export.start_byte, export.end_byte, ";")
    else:
        call = f";await {IMPORT_CALL}({text_of(source)});"
        edits.replace(export.start_byte, export.end_byte, call)
    return False


def default_expression(statement: Statement) -> bool:
    """`export default` of an expression, or of a function or class without a name."""
    if not statement.default:
        return False
    if statement.export is not None and statement.export.child_by_field_name("value") is not None:
        return True
    return statement.node.child_by_field_name("name") is None


def alias_target(node: Node) -> tuple[str, str]:
    """The two names of `import a = N.b`."""
    names = [child for child in node.named_children if child.type != "comment"]
    return text_of(names[0]), text_of(names[1])
