"""What a program declares at its top level, and whether it has to run inside a function.

What belongs here: reading the tree. What does not: any change to the source.
"""

from __future__ import annotations

import re
from bisect import bisect_left
from dataclasses import dataclass, field

from tree_sitter import Node, TreeCursor

from .names import declared_names, only_child, pattern_names, text_of
from .names import field as field_of

_KEYWORD = re.compile(rb"\b(?:await|return|var)\b")
_A, _R = b"ar"
_FUNCTIONS = frozenset(
    (
        "function_declaration",
        "generator_function_declaration",
        "function_expression",
        "generator_function",
        "arrow_function",
        "method_definition",
        "class_static_block",
        "field_definition",
        "public_field_definition",
        "internal_module",
        "module",
    )
)
_INNER_FIELDS = frozenset(("body", "parameters", "parameter", "value"))
FUNCTION_DECLARATIONS = frozenset(("function_declaration", "generator_function_declaration"))
CLASS_DECLARATIONS = frozenset(("class_declaration", "abstract_class_declaration"))
NAMESPACES = frozenset(("internal_module", "module"))
TYPE_ONLY = frozenset(
    (
        "interface_declaration",
        "type_alias_declaration",
        "ambient_declaration",
        "function_signature",
    )
)


@dataclass(slots=True)
class Statement:
    """One top-level statement, out of its `export`."""

    node: Node
    export: Node | None = None
    default: bool = False  # `export default` of something


@dataclass(slots=True)
class Outline:
    statements: list[Statement] = field(default_factory=list)
    lexical: dict[str, Node] = field(default_factory=dict)
    variables: dict[str, Node] = field(default_factory=dict)  # var-scoped, nested ones included
    functions: dict[str, Node] = field(default_factory=dict)
    order: dict[str, None] = field(default_factory=dict)
    directives: int = 0
    strict: bool = False
    typescript: bool = False
    returns: bool = False
    waits: bool = False  # has to run inside an async function
    clash: Node | None = None  # the second declaration of a name that allows only one

    @property
    def in_function(self) -> bool:
        return self.waits or self.returns or self.strict


def outline(root: Node, source: bytes, *, module: bool = False) -> Outline:
    """Read a program, or a module: there an import alone is no reason to wait."""
    out = Outline()
    hits = [match.start() for match in _KEYWORD.finditer(source)]
    prologue = True
    for node in root.named_children:
        kind = node.type
        if kind == "comment" or kind == "html_comment" or kind == "hash_bang_line":
            continue
        if prologue:
            prologue = _directive(out, node, kind)
        statement = Statement(node)
        if kind == "export_statement":
            _export(out, statement, module)
            kind = statement.node.type
        elif kind == "import_statement":
            out.waits = out.waits or (not module and runs_import(node))
        out.statements.append(statement)
        _declare(out, statement.node, kind, statement.default)
        if hits and kind not in FUNCTION_DECLARATIONS and kind not in TYPE_ONLY:
            _search(out, statement.node, source, hits)
    _check(out)
    return out


def _directive(out: Outline, node: Node, kind: str) -> bool:
    if kind != "expression_statement" or only_child(node).type != "string":
        return False
    out.directives += 1
    out.strict = out.strict or text_of(only_child(node))[1:-1] == "use strict"
    return True


def _export(out: Outline, statement: Statement, module: bool) -> None:
    node = statement.export = statement.node
    inner = node.child_by_field_name("declaration") or node.child_by_field_name("value")
    if inner is not None:
        statement.node = inner
        statement.default = any(child.type == "default" for child in node.children)
    elif node.child_by_field_name("source") is not None and not is_type_only(node):
        out.waits = out.waits or not module


def is_type_only(node: Node) -> bool:
    """`import type`, `export type {...}`, `export as namespace`."""
    second = node.child(1)
    return second is not None and second.type in ("type", "as")


def imported(node: Node) -> list[tuple[str, Node]]:
    """What an import statement binds: the export's name ("*" for all) and the local identifier."""
    found: list[tuple[str, Node]] = []
    for clause in node.named_children:
        if clause.type != "import_clause":
            continue
        for part in clause.named_children:
            if part.type == "identifier":
                found.append(("default", part))
            elif part.type == "namespace_import":
                found.append(("*", only_child(part)))
            elif part.type == "named_imports":
                for specifier in part.named_children:
                    first = specifier.child(0)
                    if specifier.type == "import_specifier" and first and first.type != "type":
                        name = field_of(specifier, "name")
                        local = specifier.child_by_field_name("alias") or name
                        found.append((text_of(name), local))
    return found


def runs_import(node: Node) -> bool:
    """Not `import type`, not `import x = require()`: those are no import for the engine."""
    return not is_type_only(node) and not any(
        child.type == "import_require_clause" for child in node.named_children
    )


def _declare(out: Outline, node: Node, kind: str, default: bool) -> None:
    if kind == "lexical_declaration":
        for name in declared_names(node):
            _add_lexical(out, name)
    elif kind in FUNCTION_DECLARATIONS:
        name_node = node.child_by_field_name("name")
        if name_node is not None:
            out.functions[text_of(name_node)] = name_node
            out.order[text_of(name_node)] = None
    elif kind in CLASS_DECLARATIONS or (kind == "class" and default):
        name_node = node.child_by_field_name("name")
        if name_node is not None:
            _add_lexical(out, name_node)
    elif kind == "import_statement" and runs_import(node):
        for _, name in imported(node):
            _add_lexical(out, name)
    elif kind == "using_declaration":
        # Its value is disposed of when the program ends, so it is local to the program.
        out.returns = True
    elif kind in ("enum_declaration", "expression_statement", "module", "internal_module"):
        block = node if kind != "expression_statement" else node.named_child(0)
        if block is None:
            return
        if block.type == "enum_declaration" or block.type in NAMESPACES:
            name = field_of(block, "name")
            out.order[text_of(name).partition(".")[0].strip()] = None
    elif kind == "import_alias":
        name = next(child for child in node.named_children if child.type == "identifier")
        out.order[text_of(name)] = None


def _add_lexical(out: Outline, name: Node) -> None:
    text = text_of(name)
    if text in out.lexical and out.clash is None:
        out.clash = name
    out.lexical[text] = name
    out.order[text] = None


def _check(out: Outline) -> None:
    if out.clash is None and out.lexical:
        for text, name in out.lexical.items():
            other = out.variables.get(text) or out.functions.get(text)
            if other is not None:
                out.clash = max(name, other, key=lambda node: node.start_byte)
                return


def _search(out: Outline, node: Node, source: bytes, hits: list[int]) -> None:
    """Follow each keyword in this statement down the tree, unless a function lies on the way.

    A descent per keyword, since a query over the whole tree costs as much as half the parse.
    """
    first, last = bisect_left(hits, node.start_byte), bisect_left(hits, node.end_byte)
    if first == last:
        return
    cursor = node.walk()
    done = 0
    for place in hits[first:last]:
        known = out.waits if source[place] == _A else out.returns if source[place] == _R else False
        if place >= done and not known:
            done = _descend(out, cursor, place)
            cursor.reset(node)


def _descend(out: Outline, cursor: TreeCursor, place: int) -> int:
    """Note what the keyword at `place` means; return the end of what need not be looked into."""
    parent = node = cursor.node
    in_function = node is not None and node.type in _FUNCTIONS
    while cursor.goto_first_child_for_byte(place) is not None:
        parent, node = node, cursor.node
        if node is None or node.start_byte > place:
            return place
        if in_function and cursor.field_name in _INNER_FIELDS:
            return node.end_byte
        in_function = node.type in _FUNCTIONS
    if node is None or parent is None or node.start_byte != place:
        return place
    if node.type == "await":
        out.waits = True
    elif node.type == "return":
        out.returns = True
    elif node.type == "var":
        if parent.type == "for_in_statement":
            names = pattern_names(field_of(parent, "left"))
        else:
            names = declared_names(parent)
        for name in names:
            out.variables.setdefault(text_of(name), name)
            out.order[text_of(name)] = None
    return place
