"""A program as one turn of a REPL: what it declares persists, its completion value is the result.

Two ways. As a script, where the engine itself gives the completion value and declarations become
`var`. Or as a function, where the program awaits, returns or is strict at its top level.
"""

from __future__ import annotations

from typing import Final

from tree_sitter import Node

from .completion import Completion
from .edits import Edited, Edits, blanked
from .imports import default_expression, rewrite_export, rewrite_import
from .names import declarators, field, own_semicolon, text_of
from .outline import CLASS_DECLARATIONS, FUNCTION_DECLARATIONS, Outline, Statement

# Accessors that can't be replaced (`prelude/10-bridge.js`), in every session.
RESERVED: Final = frozenset({"console", "tools"})
_BRACE: Final = ord("{")


def as_script(edits: Edits, outline: Outline) -> None:
    """Edit the program in place: top-level `let`, `const` and `class` become `var`."""
    for statement in outline.statements:
        node, kind = statement.node, statement.node.type
        if statement.export is not None:
            if not rewrite_export(edits, statement):
                continue
            if default_expression(statement):
                edits.open(node.start_byte, "(")
                edits.close(node.end_byte, ")" if own_semicolon(statement.export) else ");")
                continue
        if kind == "lexical_declaration":
            _to_var(edits, node)
        elif kind in CLASS_DECLARATIONS or kind == "class":
            edits.open(node.start_byte, f"var {text_of(field(node, 'name'))}=")
            edits.close(node.end_byte, ";")
        elif kind == "import_statement":
            rewrite_import(edits, node, typescript=outline.typescript)
        elif kind == "expression_statement" and edits.source[node.start_byte] == _BRACE:
            _to_literal(edits, node)


def _to_literal(edits: Edits, node: Node) -> None:
    """`{a: 1, b: 2}` is a block to the engine, and an object to every console and the grammar."""
    first: Node | None = node
    while first is not None and first.type != "object":
        first = first.child(0)
    if first is not None:
        edits.open(first.start_byte, "(")
        edits.close(first.end_byte, ")")


def _to_var(edits: Edits, node: Node) -> None:
    keyword = field(node, "kind")
    edits.replace(keyword.start_byte, keyword.end_byte, "var".ljust(len(keyword.type)))
    if not own_semicolon(node):
        edits.close(node.end_byte, ";")
    for declarator in declarators(node):
        if declarator.child_by_field_name("value") is None:
            # `var x` alone would keep what an earlier program left in x.
            edits.close(declarator.end_byte, "=void 0")


class AsFunction:
    """Wrap the program into `(async () => {...})()`; its value is `[value]`, or a Promise of it."""

    def __init__(self, edits: Edits, outline: Outline) -> None:
        self._edits = edits
        self._outline = outline
        self._value = unused_name(edits.source, "$c")
        self._completion = Completion(edits, self._value, unused_name(edits.source, "$f"))
        self.functions: list[Node] = []

    def rewrite(self) -> None:
        outline, edits = self._outline, self._edits
        names = [name for name in outline.order if name not in outline.functions]
        arrow = f"({'async' if outline.waits else ''}({self._value})=>{{"
        edits.open(0, (f"var {','.join(names)};" if names else "") + arrow)
        for index, statement in enumerate(outline.statements):
            if index < outline.directives:
                self._directive(statement.node)
            else:
                self._statement(statement)
        edits.open(len(edits.source), f"\nreturn [{self._value}]}})()")

    def _directive(self, node: Node) -> None:
        end = "" if own_semicolon(node) else ";"
        text = text_of(node).rstrip("; \t\r\n")
        self._edits.close(node.end_byte, f"{end}{self._value}={text};")

    def _statement(self, statement: Statement) -> None:
        node, kind = statement.node, statement.node.type
        if statement.export is not None:
            if not rewrite_export(self._edits, statement):
                return
            if default_expression(statement):
                self._completion.keep(node, own_semicolon(statement.export))
                return
        if kind in FUNCTION_DECLARATIONS:
            self._function(node)
        elif kind == "lexical_declaration":
            self._completion.assign(node)
        elif kind in CLASS_DECLARATIONS or kind == "class":
            self._edits.open(node.start_byte, f"{text_of(field(node, 'name'))}=")
            self._edits.close(node.end_byte, ";")
        elif kind == "import_statement":
            rewrite_import(self._edits, node, typescript=self._outline.typescript)
        else:
            self._completion.statement(node)

    def _function(self, node: Node) -> None:
        self.functions.append(node)
        if self._outline.strict and _simple_parameters(field(node, "parameters")):
            self._edits.open(field(node, "body").start_byte + 1, '"use strict";')


def split(text: bytes, functions: list[tuple[int, int]]) -> list[bytes]:
    """The scripts: the functions without the rest if there are any, the rest without them."""
    if not functions:
        return [text]
    hoisted, rest = bytearray(blanked(text)), bytearray(text)
    for start, end in functions:
        hoisted[start:end] = text[start:end]
        rest[start:end] = blanked(text[start:end])
    return [bytes(hoisted), bytes(rest)]


def apart(edited: Edited, functions: list[Node], shadowed: frozenset[str]) -> list[bytes]:
    """As `split`, for a program that declares functions of reserved names.

    A reserved name may be assigned to, and no declaration may replace it. So such a function has a
    script of its own, where `function task(` reads `task=function(`, as long as before; the script
    of the other functions has run by then, and the rest has not.
    """
    text = edited.text
    spans = [edited.span(node.start_byte, node.end_byte) for node in functions]
    plain: list[tuple[int, int]] = []
    scripts: list[bytes] = []
    for node, (start, end) in zip(functions, spans, strict=True):
        name = node.child_by_field_name("name")
        if name is None or text_of(name) not in shadowed:
            plain.append((start, end))
            continue
        _, name_end = edited.span(name.start_byte, name.end_byte)
        called = text_of(name).encode()
        head = text[start : name_end - len(called)]
        if head[-1:] == b" ":
            head = head[:-1]
        before, after = blanked(text[:start]), blanked(text[end:])
        scripts.append(before + called + b"=" + head + text[name_end:end] + after)
    return [*split(text, plain)[:-1], *scripts, split(text, spans)[-1]]


def unused_name(source: bytes, stem: str) -> str:
    name, number = stem, 0
    while name.encode() in source:
        number += 1
        name = f"{stem}{number}"
    return name


def redeclared(edits: Edits, name: Node) -> None:
    """Make it a program that fails at `name` with the engine's own error, and runs nothing.

    The engine misses the clash of a `let` with a later function; and as a whole the program may
    have to run in a function, where functions are no longer beside the `let`.
    """
    edits.blank(0, name.start_byte)
    edits.open(name.start_byte, f"let {text_of(name)};let ")
    edits.blank(name.end_byte, len(edits.source), ";")


def _simple_parameters(parameters: Node) -> bool:
    """Whether a "use strict" directive is allowed in this function."""
    for child in parameters.named_children:
        kind = child.type
        if kind in ("required_parameter", "optional_parameter"):
            kind = field(child, "pattern").type
            if child.child_by_field_name("value") is not None:
                return False
        if kind not in ("identifier", "comment", "this"):
            return False
    return True
