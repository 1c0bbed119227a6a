"""The completion value and the declarations of a program that runs inside a function.

A function has no completion value and its declarations are its own, so: the value of each
expression statement is kept in a variable (`1; if (x) { 2 }` has the value that ECMAScript's
UpdateEmpty gives it), and what the top level declares becomes assignments to globals.

Every statement changed here ends with a semicolon of its own, so that no change can join two
statements which a line break kept apart. Functions in blocks stay local to the program: hoisting
them out of it (Annex B) is left to the engine, which hoists to the wrapping function.
"""

from __future__ import annotations

from tree_sitter import Node

from .edits import Edits
from .names import declarators, field, only_child, own_semicolon, text_of
from .outline import NAMESPACES

# Statements that have the value undefined when they leave none. A block leaves the one before.
RESETTING = frozenset(
    (
        "if_statement",
        "for_statement",
        "for_in_statement",
        "while_statement",
        "do_statement",
        "switch_statement",
        "try_statement",
        "with_statement",
    )
)
_LOOPS = frozenset(("for_statement", "for_in_statement", "while_statement", "do_statement"))
# `x = (() => 1)` names the function x, in parentheses too; a comma keeps it anonymous.
_NAMEABLE = frozenset(
    (
        "arrow_function",
        "function_expression",
        "generator_function",
        "class",
        "function_declaration",
        "generator_function_declaration",
        "class_declaration",
        "parenthesized_expression",
    )
)


class Completion:
    """Rewrites statements of one program; `value` and `saved` are names that it does not use."""

    def __init__(self, edits: Edits, value: str, saved: str) -> None:
        self._edits = edits
        self._value = value
        self._saved = saved
        self._reset = f"{value}=void 0;"

    def keep(self, expression: Node, terminated: bool) -> None:
        """Make an expression statement's value the completion value."""
        guard = "0," if expression.type in _NAMEABLE else ""
        self._edits.open(expression.start_byte, f"{self._value}=({guard}")
        self._edits.close(expression.end_byte, ")" if terminated else ");")

    def statement(self, node: Node) -> None:
        """Rewrite a statement and those in it, down to where functions and classes begin."""
        if node.type in RESETTING or _resets(node):
            self._edits.open(node.start_byte, self._reset)
        stack = [node]
        while stack:
            children = self._one(stack.pop())
            children.reverse()
            stack += children

    def _one(self, node: Node) -> list[Node]:
        kind = node.type
        if kind == "expression_statement":
            expression = only_child(node)
            if expression.type not in NAMESPACES:  # the TypeScript grammar files them here
                self.keep(expression, own_semicolon(node))
        elif kind == "variable_declaration":
            self.assign(node)
        elif kind == "statement_block":
            return self._list(node.named_children)
        elif kind in ("return_statement", "throw_statement"):
            self._leave(node)
        elif kind == "if_statement":
            return self._if(node)
        elif kind in _LOOPS:
            return self._loop(node)
        elif kind == "labeled_statement" or kind == "with_statement":
            return [field(node, "body")]
        elif kind == "switch_statement":
            return self._switch(node)
        elif kind == "try_statement":
            return self._try(node)
        return []

    def _list(self, nodes: list[Node]) -> list[Node]:
        """Statements one after another: what came before must not show through a later one."""
        for node in nodes:
            if node.type in RESETTING or _resets(node):
                self._edits.open(node.start_byte, self._reset)
        return nodes

    def _if(self, node: Node) -> list[Node]:
        children = [field(node, "consequence")]
        alternative = node.child_by_field_name("alternative")
        if alternative is not None:
            children.append(only_child(alternative))
        return children

    def _loop(self, node: Node) -> list[Node]:
        children = []
        initializer = node.child_by_field_name("initializer")
        if initializer is not None and initializer.type == "variable_declaration":
            self.assign(initializer, head=True)
        kind = node.child_by_field_name("kind")
        if kind is not None and kind.type == "var":
            self._loop_variable(node, kind)
        body = field(node, "body")
        children.append(body)
        if body.type in RESETTING or _resets(body):
            # The round before may have left a value; braces, since only one statement fits here.
            self._edits.open(body.start_byte, "{" + self._reset)
            self._edits.close(body.end_byte, "}")
        return children

    def _loop_variable(self, node: Node, kind: Node) -> None:
        self._edits.blank(kind.start_byte, kind.end_byte)
        left = field(node, "left")
        if left.text in (b"async", b"let"):  # `for (async of` is not to be had
            self._edits.open(left.start_byte, "(")
            self._edits.close(left.end_byte, ")")
        value = node.child_by_field_name("value")
        if value is not None:  # `for (var k = 1 in o)`, which only `var` allows
            self._edits.blank(left.end_byte, value.end_byte)
            first = f"{text_of(left)}={' '.join(text_of(value).split())}"
            right = field(node, "right")
            self._edits.open(right.start_byte, f"({first},")
            self._edits.close(right.end_byte, ")")

    def _switch(self, node: Node) -> list[Node]:
        statements: list[Node] = []
        for case in field(node, "body").named_children:
            statements += case.children_by_field_name("body")
        return self._list([child for child in statements if child.is_named])

    def _try(self, node: Node) -> list[Node]:
        blocks = [field(node, "body")]
        handler = node.child_by_field_name("handler")
        if handler is not None:
            caught = field(handler, "body")
            self._edits.open(caught.start_byte + 1, self._reset)
            blocks.append(caught)
        finalizer = node.child_by_field_name("finalizer")
        body = None if finalizer is None else field(finalizer, "body")
        if body is not None and body.named_child_count:
            # Its value counts only if it does not end normally.
            self._edits.open(
                body.start_byte + 1, f"const {self._saved}={self._value};{self._reset}"
            )
            self._edits.close(body.end_byte - 1, f";{self._value}={self._saved};")
            blocks.append(body)
        return blocks

    def _leave(self, node: Node) -> None:
        end = "" if own_semicolon(node) else ";"
        values = [child for child in node.named_children if child.type != "comment"]
        if node.type == "throw_statement":
            self._edits.close(values[0].end_byte, end)
        elif values:
            self._edits.open(values[0].start_byte, "[(")
            self._edits.close(values[0].end_byte, ")]" + end)
        else:
            self._edits.close(node.start_byte + len("return"), "[void 0]" + end)

    def assign(self, node: Node, head: bool = False) -> None:
        """Turn a declaration into assignments; a `let` without a value assigns undefined."""
        edits = self._edits
        keyword = node.child(0)
        if keyword is None:
            return
        if not head and not own_semicolon(node):
            edits.close(node.end_byte, ";")
        edits.blank(keyword.start_byte, keyword.end_byte)
        for declarator in declarators(node):
            name = field(declarator, "name")
            if declarator.child_by_field_name("value") is None:
                if keyword.type == "var":
                    edits.replace(name.start_byte, name.end_byte, "0")
                else:
                    edits.close(name.end_byte, "=void 0")
            elif name.type != "identifier":
                edits.open(declarator.start_byte, "(")
                edits.close(declarator.end_byte, ")")


def _resets(node: Node) -> bool:
    """Whether a labelled statement is one of those that reset the value, below its labels."""
    while node.type == "labeled_statement":
        node = field(node, "body")
    return node.type in RESETTING
