"""Functions and classes that provably close over globals only are handed over by identity.

A snapshot may restore such a function from its source. What counts is where the source stands: at
global scope, with nothing local around it that it names. So its expression is wrapped,
`f = (x) => x` into `f=$qjs_own(ticket,0,{f:(x) => x}.f)`, which keeps the name that the assignment
gives it; declared functions are handed over by name when the program starts. The ticket is a
number that only this program knows. Lines, values and names stay as they are; in loops nothing is
wrapped. The other side is the prelude's `91-snapshot-proof.js`.
"""

from __future__ import annotations

import json
import re
from bisect import bisect_left
from dataclasses import dataclass, field

from tree_sitter import Node, TreeCursor

from .edits import Edited, Edits
from .names import field as field_of
from .names import pattern_names, text_of
from .outline import CLASS_DECLARATIONS, FUNCTION_DECLARATIONS, Outline
from .pure import has_effects, is_fixed_key
from .queries import JAVASCRIPT, SyntaxQuery

REGISTER = "$qjs_own"
HERITAGE = "$h"

# What every function, class and method has in it, with comments and a type at most in between.
_SIGNS = re.compile(rb"=>|\bfunction\b|\bclass\b|\)\s*[:{/]")
_WORDS = re.compile(rb"[\w$\x80-\xff]+")
_SECRETIVE = re.compile(rb"#|@|\bstatic\s*[{/]")
_SECRETS = "[(private_property_identifier) (class_static_block) (decorator)] @secret"
_JAVASCRIPT_SECRETS = SyntaxQuery(_SECRETS, JAVASCRIPT)
_TYPESCRIPT_SECRETS = SyntaxQuery(_SECRETS)

_FUNCTIONS = (
    frozenset(
        (
            "function_expression",
            "generator_function",
            "arrow_function",
            "method_definition",
            "class",
        )
    )
    | FUNCTION_DECLARATIONS
    | CLASS_DECLARATIONS
)
# Where a function would be made again and again, or where more than globals is in scope.
_CLOSED = frozenset(
    (
        "for_statement",
        "for_in_statement",
        "while_statement",
        "do_statement",
        "with_statement",
        "internal_module",
        "module",
        "enum_declaration",
        "class_body",
        "decorator",
    )
)
_SCOPES = frozenset(("statement_block", "switch_body", "catch_clause"))
_TRANSPARENT = frozenset(
    ("parenthesized_expression", "as_expression", "satisfies_expression", "non_null_expression")
)
_LITERAL_KEYS = frozenset(("property_identifier", "string", "number"))
_MAX_DEPTH = 300


@dataclass(slots=True)
class Site:
    """A place whose function is handed over: "f" function, "m" method or accessors, "c" class."""

    kind: str
    strict: bool = False
    class_node: Node | None = None  # where the source to restore from is not the class's own


@dataclass(slots=True)
class Sites:
    """The sites of one program, in the order of their numbers."""

    ticket: int
    found: list[Site] = field(default_factory=list)

    def number(self, site: Site) -> int:
        self.found.append(site)
        return len(self.found) - 1

    def call(self, site: Site) -> str:
        """The start of a call that hands something over."""
        return f"{REGISTER}({self.ticket},{self.number(site)},"

    def to_json(self, edited: Edited) -> str:
        """What the prelude needs to know of each, once the source has its final form."""
        listed: list[str] = []
        for site in self.found:
            entry = f'["{site.kind}",{int(site.strict)}'
            if site.class_node is not None:
                heritage = _heritage(site.class_node)
                entry += f",{int(heritage is not None)}"
                text = _source_of(site.class_node, heritage, edited)
                if text is not None:
                    entry += f",{json.dumps(text)}"
            listed.append(entry + "]")
        return f"[{','.join(listed)}]"


def open_declarations(edits: Edits, outline: Outline, sites: Sites) -> None:
    """Hand over the declared functions as the program starts. First of all edits at its start."""
    if not outline.functions or edits.source.lstrip().startswith(b"-->"):
        return
    calls = [f"{sites.call(Site('f'))}{name})" for name in outline.functions]
    edits.open(0, f"void({','.join(calls)});")


def register_expressions(edits: Edits, outline: Outline, sites: Sites) -> None:
    """Hand over functions of expressions, methods of literals, and classes. Last of all edits."""
    source = edits.source
    signs = [match.start() for match in _SIGNS.finditer(source)]
    if not signs or any(item.node.type == "using_declaration" for item in outline.statements):
        return  # what is used is local to the program, though it looks global
    literals: dict[int, Node] = {}  # object literals with accessors
    for statement in outline.statements:
        node = statement.node
        first, last = bisect_left(signs, node.start_byte), bisect_left(signs, node.end_byte)
        if first == last or node.type in FUNCTION_DECLARATIONS:
            if node.child_by_field_name("name") is None and statement.default and first != last:
                _wrap(edits, node, sites.call(Site("f", outline.strict)))
            continue
        cursor = node.walk()
        done = 0
        for place in signs[first:last]:
            if place < done:
                continue  # inside a function that was found
            found, is_global = _outermost(cursor, place, source)
            cursor.reset(node)
            if found is None:
                continue
            done = found.end_byte
            if is_global:
                _register(edits, found, outline, sites, literals)
    for literal in literals.values():
        if _only_plain_accessors(literal):
            edits.open(literal.start_byte, sites.call(Site("m", outline.strict)))
            edits.close(literal.end_byte, ")")


def _register(
    edits: Edits, node: Node, outline: Outline, sites: Sites, literals: dict[int, Node]
) -> None:
    kind = node.type
    if kind == "method_definition":
        _method(edits, node, outline, sites, literals)
    elif kind in CLASS_DECLARATIONS or kind == "class":
        _class(edits, node, outline, sites)
    elif kind not in FUNCTION_DECLARATIONS:
        _wrap(edits, node, sites.call(Site("f", outline.strict)))


def _outermost(cursor: TreeCursor, place: int, source: bytes) -> tuple[Node | None, bool]:
    """The outermost function around a place; whether nothing local that it names is in scope."""
    local: set[bytes] = set()
    is_global = True
    for _ in range(_MAX_DEPTH):
        node = cursor.node
        if node is None or node.start_byte > place:
            return None, False
        kind = node.type
        if kind in _FUNCTIONS:
            if local:
                words = set(_WORDS.findall(source, node.start_byte, node.end_byte))
                is_global = is_global and not (words & local) and b"eval" not in words
            return node, is_global
        if kind in _CLOSED:
            is_global = False
        elif kind in _SCOPES:
            local.update(_locals(node))
        if cursor.goto_first_child_for_byte(place) is None:
            return None, False
    return None, False


def _locals(scope: Node) -> list[bytes]:
    names: list[Node] = []
    if scope.type == "catch_clause":
        parameter = scope.child_by_field_name("parameter")
        names = [] if parameter is None else pattern_names(parameter)
    statements = scope.named_children
    if scope.type == "switch_body":
        statements = [child for case in statements for child in case.named_children]
    for statement in statements:
        kind = statement.type
        if kind == "lexical_declaration" or kind == "using_declaration":
            for declarator in statement.named_children:
                name = declarator.child_by_field_name("name")
                if name is not None:
                    names += pattern_names(name)
        elif (
            kind in CLASS_DECLARATIONS
            or kind in FUNCTION_DECLARATIONS
            or kind == "enum_declaration"
        ):
            names.append(field_of(statement, "name"))
    return [text_of(name).encode() for name in names]


def _wrap(edits: Edits, node: Node, call: str) -> None:
    parent = node.parent
    if parent is not None and parent.type == "new_expression":
        return  # `new function () {}()`: a call around it would be what is constructed
    name = _given_name(node)
    if name is None:
        edits.open(node.start_byte, call)
        edits.close(node.end_byte, ")")
    elif name:
        access = f".{name}" if name.isidentifier() else f"[{name}]"
        edits.open(node.start_byte, f"{call}{{{name}:")
        edits.close(node.end_byte, f"}}{access})")


def _given_name(node: Node) -> str | None:
    """The name that its place gives to an anonymous function; "" if that can't be kept."""
    if node.child_by_field_name("name") is not None:
        return None
    child, parent = node, node.parent
    while parent is not None and parent.type in _TRANSPARENT:
        child, parent = parent, parent.parent
    if parent is None:
        return None
    kind = parent.type
    if kind == "variable_declarator":
        key = parent.child_by_field_name("name")
    elif kind in ("assignment_expression", "augmented_assignment_expression") or kind in (
        "assignment_pattern",
        "object_assignment_pattern",
    ):
        key = parent.child_by_field_name("left")
    elif kind == "pair":
        key = parent.child_by_field_name("key")
        if key is not None and key.type not in _LITERAL_KEYS:
            return ""
        return None if key is None or key == child else _usable(text_of(key))
    else:
        return None
    if key is None or key == child:
        return None
    if key.type in ("identifier", "shorthand_property_identifier_pattern", "undefined"):
        return _usable(text_of(key))
    return None


def _usable(key: str) -> str:
    """A key that can stand in a literal: `__proto__: f` there is no property, and names nothing."""
    return "" if key.strip("'\"") == "__proto__" or "\\" in key else key


def _method(
    edits: Edits, node: Node, outline: Outline, sites: Sites, literals: dict[int, Node]
) -> None:
    literal, name = node.parent, field_of(node, "name")
    if literal is None or literal.type != "object":
        return
    if any(child.type in ("get", "set") for child in node.children if not child.is_named):
        literals[literal.start_byte] = literal
        return
    key = _usable(text_of(name)) if name.type in _LITERAL_KEYS else ""
    # `super` in a method looks at the object that it was written in.
    if not key or b"super" in (node.text or b""):
        return
    access = f".{key}" if key.isidentifier() else f"[{key}]"
    edits.open(node.start_byte, f"{key}:{sites.call(Site('m', outline.strict))}{{")
    edits.close(node.end_byte, f"}}{access})")


def _only_plain_accessors(literal: Node) -> bool:
    for child in literal.named_children:
        if child.type == "method_definition" and any(
            token.type in ("get", "set") for token in child.children if not token.is_named
        ):
            plain = field_of(child, "name").type in _LITERAL_KEYS
            if not plain or b"super" in (child.text or b""):
                return False
    return True


# --- classes -------------------------------------------------------------------------------------


def _class(edits: Edits, node: Node, outline: Outline, sites: Sites) -> None:
    parent = node.parent
    if node.type in CLASS_DECLARATIONS and (
        parent is None or parent.type not in ("program", "export_statement")
    ):
        return
    text = node.text or b""
    if HERITAGE.encode() in text or not _is_plain_class(node):
        return
    if _SECRETIVE.search(text):
        secrets = _TYPESCRIPT_SECRETS if outline.typescript else _JAVASCRIPT_SECRETS
        if secrets.occurs_in(node):
            return
    _wrap(edits, node, sites.call(Site("c", True, node)))


def _is_plain_class(node: Node) -> bool:
    """Whether defining the class again has no effect but the class, and gives the same one."""
    for member in field_of(node, "body").named_children:
        name = member.child_by_field_name("name") or member.child_by_field_name("property")
        if name is not None and name.type == "computed_property_name" and not is_fixed_key(name):
            return False
        value = member.child_by_field_name("value")
        if value is not None and _is_static(member) and has_effects(value):
            return False
    return True


def _is_static(member: Node) -> bool:
    return any(child.type == "static" for child in member.children if not child.is_named)


def _heritage(node: Node) -> Node | None:
    """The expression after `extends`."""
    for child in node.named_children:
        if child.type == "class_heritage":
            inner = child.named_child(0)
            if inner is None or inner.type == "implements_clause":
                return None
            return inner.child_by_field_name("value") if inner.type == "extends_clause" else inner
    return None


def _source_of(node: Node, heritage: Node | None, edited: Edited) -> str | None:
    """The class with `$h` for its heritage and without static fields, which come back by value.

    None where that is just its own source.
    """
    keyword = next(child for child in node.children if child.type == "class")
    start, end = edited.span(keyword.start_byte, node.end_byte)
    cuts: list[tuple[int, int, bytes]] = []
    if heritage is not None:
        cuts.append((*edited.span(heritage.start_byte, heritage.end_byte), HERITAGE.encode()))
    for member in field_of(node, "body").named_children:
        if member.type in ("field_definition", "public_field_definition") and _is_static(member):
            cuts.append((*edited.span(member.start_byte, member.end_byte), b""))
    if not cuts:
        return None
    out = bytearray()
    at = start
    for first, last, text in cuts:
        out += edited.text[at:first] + text
        at = last
    out += edited.text[at:end]
    return out.decode()
