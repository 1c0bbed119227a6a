"""Which language is it: parse as JavaScript, and only if that has errors as TypeScript.

What belongs here: parsers, the choice between trees, mending what the grammars misread.
"""

from __future__ import annotations

import re
from bisect import bisect_right
from dataclasses import dataclass

from tree_sitter import Node, Tree

from .parser import PLAIN_BYTES, WatchedParser
from .queries import JAVASCRIPT, TYPESCRIPT, SyntaxQuery
from .text import SEPARATORS, masked, unescaped

_javascript = WatchedParser(JAVASCRIPT)
_typescript = WatchedParser(TYPESCRIPT)


_TEXTS = SyntaxQuery("[(string) (template_string) (regex) (comment)] @text", JAVASCRIPT)
# TypeScript ends a statement where the grammar reads on: a cast is never called or indexed, and
# an indexed access type never begins on a new line.
_READ_ON = SyntaxQuery(
    """
    (call_expression function: [(as_expression) (satisfies_expression)] @cast)
    (member_expression object: [(as_expression) (satisfies_expression)] @cast)
    (subscript_expression object: [(as_expression) (satisfies_expression)] @cast)
    (lookup_type . (_) @cast "[" @bracket)
    """,
)
# A line break that the language takes for the end of a statement and the grammar may not.
_BREAK = re.compile(rb"\n(?=[ \t]*[(\[`/+\-<*])")
# To JavaScript, `new Set<string>([])` compares a Set with `string`, and the outcome with a list. It
# is the one reading that is given up: as a call, `f<T>(x)` stays the comparison it is.
_NEW_GENERIC = re.compile(rb"\bnew\s+[\w$.]+<[\w$.\[\]|&, \"']+>\(")
_NESTED = 32
_MAX_MENDS = 8
# What no JavaScript program can be read as.
_ONLY_TYPESCRIPT = SyntaxQuery(
    """
    [(interface_declaration) (type_alias_declaration)
     (variable_declarator type: (_))
     (function_declaration parameters: (formal_parameters (required_parameter type: (_))))] @sign
    """,
)
# Above this, a TypeScript program is not first parsed as JavaScript: to recover from the errors in
# it costs ten times what the parse costs.
_LARGE_BYTES = PLAIN_BYTES


@dataclass(frozen=True, slots=True)
class Parsed:
    tree: Tree
    source: bytes  # what the tree's offsets mean; as long as what was sent
    typescript: bool
    semicolons: tuple[int, ...] = ()  # line breaks that stand for a semicolon in this tree


@dataclass(frozen=True, slots=True)
class Failed:
    """A program with errors in both languages: the tree that gets further, and how far."""

    tree: Tree
    source: bytes
    typescript: bool
    error: int


def parse(source: bytes) -> Parsed | Failed:
    """The tree without errors in the first language that has one, if there is one.

    Raises:
        NoRoom: there is no memory for a tree; for two, where it has errors.
    """
    if b"\xe2\x80" in source and SEPARATORS.search(source):
        source = _break_lines(source)
    text = masked(source)
    parsed = _surely_typescript(source, text) if len(source) > _LARGE_BYTES else None
    if parsed is not None:
        return parsed
    tree = _javascript.parse(text)
    if not tree.root_node.has_error:
        if b"new " in text and _NEW_GENERIC.search(text):
            return _parse_typescript(source, text) or Parsed(tree, source, False)
        return Parsed(tree, source, False)
    parsed = _parse_typescript(source, text)
    if parsed is None and (b"\\u" in text or b"\\x" in text):
        text = unescaped(text)
        other = _javascript.parse(text)
        if not other.root_node.has_error:
            return Parsed(other, source, False)
        parsed = _parse_typescript(source, text)
    return parsed or _failed(source, tree)


def _failed(source: bytes, tree: Tree) -> Failed:
    error = _first_error(tree.root_node)
    if len(source) <= _LARGE_BYTES:
        other = _typescript.parse(masked(source))
        further = _first_error(other.root_node)
        if further > error:
            return Failed(other, source, True, further)
    return Failed(tree, source, False, error)


def _break_lines(source: bytes) -> bytes:
    """Put an LF for each U+2028 and U+2029 that breaks a line: those outside strings and the like.

    The engine counts these as lines (and does not count those in strings), the grammars do not.
    """
    out = bytearray(source)
    root = _javascript.parse(masked(source)).root_node
    spans = sorted((node.start_byte, node.end_byte) for node in _TEXTS.nodes(root))
    starts = [start for start, _ in spans]
    for match in SEPARATORS.finditer(source):
        # A string within a template ends before it, so the last one that began may not be enough.
        at = bisect_right(starts, match.start())
        if not any(match.start() < end for _, end in spans[max(at - _NESTED, 0) : at]):
            out[match.start() : match.end()] = b"  \n"
    return bytes(out)


def _surely_typescript(source: bytes, text: bytes) -> Parsed | None:
    """The program if it parses as TypeScript, and could be nothing else."""
    tree = _typescript.parse(text)
    if tree.root_node.has_error or not _is_typescript(tree.root_node):
        return None
    return _parse_typescript(source, text, tree)


def _parse_typescript(source: bytes, text: bytes, tree: Tree | None = None) -> Parsed | None:
    """Parse as TypeScript, putting semicolons where the grammar misses the end of a statement."""
    breaks: list[int] = []
    tree = tree or _typescript.parse(text)
    for _ in range(_MAX_MENDS):
        root = tree.root_node
        if root.has_error:
            if len(text) > _LARGE_BYTES:
                return None
            mended = _mend(text, root)
            if mended is None:
                return None
            places = [mended]
        else:
            places = _misread(text, root)
            if not places:
                return Parsed(tree, source, True, tuple(breaks))
        breaks += places
        patched = bytearray(text)
        for place in places:
            patched[place] = 0x3B
        text = bytes(patched)
        tree = _typescript.parse(text)
    return None if tree.root_node.has_error else Parsed(tree, source, True, tuple(breaks))


def _is_typescript(root: Node) -> bool:
    return _ONLY_TYPESCRIPT.occurs_in(root)


def _misread(text: bytes, root: Node) -> list[int]:
    places = []
    for captures in _READ_ON.matches(root):
        end = captures["cast"][0].end_byte
        place = text.find(b"\n", end)
        if place >= 0 and not text[end:place].strip():
            brackets = captures.get("bracket")
            if brackets is None or place < brackets[0].start_byte:
                places.append(place)
    return sorted(set(places))


def _mend(text: bytes, root: Node) -> int | None:
    """The line break which, taken for a semicolon, leads past the first error."""
    first = _first_error(root)
    near = [m.start() for m in _BREAK.finditer(text, max(first - 2000, 0), first + 2000)]
    near.sort(key=lambda place: abs(place - first))
    for place in near[:4]:
        tree = _typescript.parse(text[:place] + b";" + text[place + 1 :])
        if not tree.root_node.has_error or _first_error(tree.root_node) > place + (first - place):
            return place
    return None


def _first_error(root: Node) -> int:
    """Where the first error in the tree begins; the end of the tree if there is none."""
    cursor = root.walk()
    while True:
        node = cursor.node
        if node is None or node.is_error or node.is_missing:
            return root.end_byte if node is None else node.start_byte
        if not node.has_error or not cursor.goto_first_child():
            return node.start_byte
        child = cursor.node
        while child is not None and not (child.has_error or child.is_missing):
            if not cursor.goto_next_sibling():
                return child.start_byte
            child = cursor.node
