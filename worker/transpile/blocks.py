"""Enums and namespaces: the two pieces of TypeScript that become code.

Both become a function that fills an object, on the lines they were written on:
`enum E { A }` is `var E=((E)=>{E[E["A"]=0]="A";return E})({})`. The first declaration of a name in
a list of statements starts with an empty object, so that in a REPL the last program's definition
wins; a further one adds to it.
"""

from __future__ import annotations

from tree_sitter import Node

from .edits import Edits
from .names import declared_names, field, only_child, own_semicolon, text_of
from .outline import CLASS_DECLARATIONS, FUNCTION_DECLARATIONS, NAMESPACES, TYPE_ONLY, Outline
from .queries import SyntaxQuery

_IDENTIFIERS = SyntaxQuery("(identifier) @name")

_WRAPPERS = frozenset(("expression_statement", "export_statement"))


class Blocks:
    """Rewrites the enums and namespaces of one program, in document order."""

    def __init__(self, edits: Edits, outline: Outline) -> None:
        self._edits = edits
        self._outline = outline
        self._top = {id_of(block) for block in map(_block, _nodes(outline)) if block is not None}
        self._seen: set[tuple[int, str]] = set()  # (where the list of statements begins, name)
        self._members: dict[tuple[int, str], set[str]] = {}
        self._exported: dict[int, str] = {}  # blocks that a namespace exports: its name

    def rewrite(self, node: Node) -> None:
        if node.type in NAMESPACES:
            self._namespace(node)
        else:
            self._enum(node)

    def _opening(self, node: Node, name: str) -> tuple[str, str, tuple[int, str]]:
        """How the block is bound, the object it starts with, and a key for what it merges with."""
        if id_of(node) in self._top:
            key = (-1, name)
            again = key in self._seen or name in self._outline.functions
            again = again or name in self._outline.lexical
            prefix = f"{name}=" if self._outline.in_function else f"var {name}="
        else:
            parent = node.parent
            while parent is not None and parent.type in _WRAPPERS:
                parent = parent.parent
            key = (-2 if parent is None else parent.start_byte, name)
            again = key in self._seen or _declares(parent, name)
            prefix = f"{name}=" if again else f"let {name}="
        owner = self._exported.get(id_of(node))
        start = f"{name}||{{}}" if again else "{}"
        if owner is not None:
            prefix, start = f"{prefix}{owner}.{name}=", f"{owner}.{name}||{start}"
        self._seen.add(key)
        return f"{prefix}(({name})=>{{", start, key

    def _enum(self, node: Node) -> None:
        edits, name = self._edits, text_of(field(node, "name"))
        opening, start, key = self._opening(node, name)
        members = self._members.setdefault(key, set())
        body = field(node, "body")
        edits.replace(node.start_byte, body.start_byte + 1, opening)
        following = "0"
        for child in body.children[1:-1]:
            if child.type == ",":
                edits.blank(child.start_byte, child.end_byte)
            elif child.type == "enum_assignment":
                following = self._assignment(child, name, members)
            elif child.is_named and child.type != "comment":
                text, member = _member_key(child)
                edits.replace(
                    child.start_byte, child.end_byte, f"{name}[{name}[{text}]={following}]={text};"
                )
                members.add(member)
                following = f"{name}[{text}]+1"
        edits.replace(body.end_byte - 1, body.end_byte, f"return {name}}})({start});")

    def _assignment(self, node: Node, enum: str, members: set[str]) -> str:
        edits, value = self._edits, field(node, "value")
        text, member = _member_key(field(node, "name"))
        place = f"{enum}[{text}]"
        for name in _IDENTIFIERS.nodes(value):
            if text_of(name) in members:
                edits.open(name.start_byte, f"{enum}.")
        members.add(member)
        if value.type in ("string", "template_string"):
            edits.replace(node.start_byte, value.start_byte, f"{place}=")
            edits.close(value.end_byte, ";")
        elif value.type == "number":
            edits.replace(node.start_byte, value.start_byte, f"{enum}[{place}=")
            edits.close(value.end_byte, f"]={text};")
        else:  # only its value tells whether it is a string, which has no way back to its name
            edits.replace(node.start_byte, value.start_byte, f"typeof({place}=")
            edits.close(value.end_byte, f')=="string"||({enum}[{place}]={text});')
        return f"{place}+1"

    def _namespace(self, node: Node) -> None:
        edits, body = self._edits, node.child_by_field_name("body")
        if body is None or not _has_code(body):
            edits.blank(node.start_byte, node.end_byte, ";")
            return
        first, *rest = "".join(text_of(field(node, "name")).split()).split(".")
        opening, start, _ = self._opening(node, first)
        closing = f"return {first}}})({start});"
        owner = first
        for inner in rest:
            opening += f"(({inner})=>{{"
            closing = f"}})({owner}.{inner}||({owner}.{inner}={{}}));{closing}"
            owner = inner
        edits.replace(node.start_byte, body.start_byte + 1, opening)
        for statement in body.named_children:
            if statement.type == "export_statement":
                self._export(statement, body, owner)
        edits.replace(body.end_byte - 1, body.end_byte, f";{closing}")

    def _export(self, statement: Node, body: Node, owner: str) -> None:
        edits, node = self._edits, statement.child_by_field_name("declaration")
        if node is None:
            return
        edits.blank(statement.start_byte, node.start_byte, ";")
        kind = node.type
        if kind in FUNCTION_DECLARATIONS:
            name = text_of(field(node, "name"))
            edits.open(body.start_byte + 1, f"{owner}.{name}={name};")  # functions are hoisted
        elif kind in CLASS_DECLARATIONS:
            name = text_of(field(node, "name"))
            edits.close(node.end_byte, f";{owner}.{name}={name};")
        elif kind in ("lexical_declaration", "variable_declaration"):
            first = node.child(0)
            constant = first is not None and first.type == "const"
            end = "" if own_semicolon(node) else ";"
            texts = [text_of(name) for name in declared_names(node)]
            export = _constant if constant else _variable
            edits.close(node.end_byte, end + "".join(export(owner, text) for text in texts))
        elif (block := _block(node)) is not None:
            self._exported[id_of(block)] = owner


def _constant(owner: str, name: str) -> str:
    return f"{owner}.{name}={name};"


def _variable(owner: str, name: str) -> str:
    """An export that may change is seen from both sides."""
    accessors = f"get:()=>{name},set:($v)=>{{{name}=$v}},enumerable:true,configurable:true"
    return f'Object.defineProperty({owner},"{name}",{{{accessors}}});'


def id_of(node: Node) -> int:
    """Two nodes of these kinds never begin at one place."""
    return node.start_byte


def _nodes(outline: Outline) -> list[Node]:
    return [statement.node for statement in outline.statements]


def _block(node: Node) -> Node | None:
    """The enum or namespace that a statement is, if it is one."""
    if node.type == "expression_statement":
        node = node.named_child(0) or node
    return node if node.type in NAMESPACES or node.type == "enum_declaration" else None


def exists_at_run_time(node: Node) -> bool:
    """False for a namespace of types only, which is erased."""
    block = _block(node)
    if block is None or block.type not in NAMESPACES:
        return True
    body = block.child_by_field_name("body")
    return body is not None and _has_code(body)


def _member_key(node: Node) -> tuple[str, str]:
    """A member's name as an expression, and as the identifier that later members call it by."""
    if node.type == "computed_property_name":
        return text_of(only_child(node)), ""
    text = text_of(node)
    if node.type == "string":
        return text, text[1:-1]
    return f'"{text}"', text


def _declares(parent: Node | None, name: str) -> bool:
    """Whether a function or class of this list of statements has the name."""
    for child in () if parent is None else parent.named_children:
        node = child.child_by_field_name("declaration") or child
        declares = node.type in FUNCTION_DECLARATIONS or node.type in CLASS_DECLARATIONS
        if declares and text_of(field(node, "name")) == name:
            return True
    return False


def _has_code(body: Node) -> bool:
    """A namespace of types only does not exist at run time. No recursion: it may nest deeply."""
    bodies = [body]
    while bodies:
        for statement in bodies.pop().named_children:
            node = statement.child_by_field_name("declaration") or statement
            block = _block(node)
            if block is not None and block.type in NAMESPACES:
                inner = block.child_by_field_name("body")
                if inner is not None:
                    bodies.append(inner)
            elif node.type not in TYPE_ONLY and node.type != "comment":
                return True
    return False
