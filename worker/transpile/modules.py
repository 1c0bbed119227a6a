"""From a module's source to one function that the prelude's loader runs: `compile_module`.

    (function (scope, export, import, meta, gate) { with (scope) { return function* () {
      "use strict"; export([() => a, () => b]); yield; ...the source without imports and exports...
    } } })

The function is strict, and a generator so that its function declarations and its exports are there
before its statements run, which is what makes cycles work; with top-level await it is async, and
waits for the gate if it is given one. An import is a getter on `scope`, so it is live, and
assigning to it fails. Nothing moves: a line of the function is a line of the source.

What belongs here: names, imports, exports. What does not: finding modules (`worker/modules.py`),
linking and running them (the prelude).
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field

from tree_sitter import Node

from .blocks import exists_at_run_time
from .edits import Edits
from .imports import import_tokens
from .module_names import (
    begins_statement,
    bound_names,
    is_called,
    name_of,
    specifier_of,
    specifiers_of,
)
from .names import own_semicolon, text_of
from .outline import (
    FUNCTION_DECLARATIONS,
    TYPE_ONLY,
    Outline,
    Statement,
    imported,
    is_type_only,
    outline,
    runs_import,
)
from .parse import Failed, parse
from .program import Program
from .refused import refuse
from .repl import redeclared, unused_name
from .text import to_bytes
from .typescript import erase

ALL = "*"  # as the name of an export: the module's namespace

_ANONYMOUS = frozenset(("function_expression", "generator_function"))
_NO_VALUE = frozenset(
    ("type_query", "nested_type_identifier", "nested_identifier", "import_specifier",
     "import_clause", "namespace_import", "export_specifier")
)  # fmt: skip
_EXPORT = re.compile(rb"^[ \t]*(export[ \t]+(default\b)?)(?=[^*{]|$)", re.M)


@dataclass(frozen=True, slots=True)
class Module:
    """A compiled module. Requests are numbered: imports, re-exports and stars refer to them."""

    text: str
    requests: tuple[str, ...]  # specifiers, each once, in order
    imports: tuple[tuple[str, int, str], ...]  # local name, request, name of the export
    exports: tuple[str, ...]  # in the order of the getters
    reexports: tuple[tuple[str, int, str], ...]  # name, request, name of its export
    stars: tuple[int, ...]  # requests of `export *`
    waits: bool
    lenient: bool  # a re-exported name that is not there may have been a type
    names_default: bool  # `export default function () {}`: named by the loader
    program: Program  # leads a position in `text` to one in the source
    head_bytes: int = 0  # of what `text` has before the source
    refused: tuple[int, int] | None = None  # where the first syntax error is: not to be run


class ModuleSyntaxError(Exception):
    """What the grammar lets pass and a module may not have; with its place in the source."""

    def __init__(self, message: str, line: int, column: int) -> None:
        super().__init__(message)
        self.line = line
        self.column = column


def compile_module(source: str, *, typescript: bool) -> Module:
    """Compile one module.

    Args:
        source: JavaScript or TypeScript; well-formed.
        typescript: the file's name says so, though it may parse as JavaScript.

    Returns:
        The module. A source with syntax errors becomes a function that the engine refuses.

    Raises:
        ModuleSyntaxError: an export that is none.
    """
    parsed = parse(to_bytes(source))
    edits = Edits(parsed.source)
    if isinstance(parsed, Failed):
        edits.open(0, "(async function(){")
        refuse(edits, parsed)
        _unexport(edits, parsed)
        return _refused(edits, parsed.error)
    root = parsed.tree.root_node
    about = outline(root, parsed.source, module=True)
    if about.clash is not None:
        edits.open(0, "(function(){")
        redeclared(edits, about.clash)
        return _refused(edits, about.clash.start_byte)
    compiler = _Compiler(edits, about, typescript or parsed.typescript)
    for place in parsed.semicolons:
        edits.close(place, ";")
    compiler.rewrite(root)
    if parsed.typescript:
        # A module's blocks are declared where they stand, as a script's are.
        about.waits = about.returns = about.strict = False
        erase(edits, root, about)
    return compiler.module()


def _refused(edits: Edits, error: int) -> Module:
    # The engine shall not run it, even if it can make sense of it: `]` is wrong in any case.
    edits.open(len(edits.source), "\n});]")
    program = _program(edits)
    place = program.place(error)
    return Module(program.scripts[0], (), (), (), (), (), False, False, False, program, 0, place)


def _unexport(edits: Edits, failed: Failed) -> None:
    """Take off the `export` of the statement that has the error: it is none to the engine."""
    done = 0
    for node in failed.tree.root_node.named_children:
        if node.end_byte > failed.error:
            break
        done = node.end_byte
    for match in _EXPORT.finditer(edits.source, done, failed.error + 1):
        edits.blank(match.start(1), match.end(1), ";" if match[2] is None else ";void ")


def _program(edits: Edits) -> Program:
    edited = edits.apply()
    return Program((edited.text.decode(),), False, "javascript", (), edits.source, edited)


@dataclass(slots=True)
class _Exports:
    local: dict[str, str] = field(default_factory=dict)  # exported name -> expression
    indirect: dict[str, tuple[int, str]] = field(default_factory=dict)


class _Compiler:
    """Rewrites one module that has no syntax errors."""

    def __init__(self, edits: Edits, about: Outline, lenient: bool) -> None:
        source = edits.source
        self._edits = edits
        self._outline = about
        self._lenient = lenient
        self._waits = about.waits
        self._default = unused_name(source, "$d")
        self._import = unused_name(source, "$i")
        self._meta = unused_name(source, "$m")
        self._requests: dict[str, int] = {}
        self._imports: dict[str, tuple[int, str]] = {}
        self._exports = _Exports()
        self._stars: list[int] = []
        self._names_default = False

    def rewrite(self, root: Node) -> None:
        imports = self._read_imports()
        used = self._rewrite_uses(root, [local for local, _, _ in imports])
        for statement in self._outline.statements:
            if self._waits and statement.node.type in FUNCTION_DECLARATIONS:
                # The classic engine reads an `await` right behind it as a name.
                self._edits.close(statement.node.end_byte, ";")
            if statement.node.type == "import_statement":
                self._erase_import(statement.node, used)
            elif statement.export is not None and self._is_reexport(statement.export):
                self._reexport(statement.export)
        for statement in self._outline.statements:
            if statement.export is not None and not self._is_reexport(statement.export):
                self._export(statement, statement.export, imports)
        self._imports = {
            local: (self._requests[specifier], name)
            for local, specifier, name in imports
            if local in used or not self._lenient
        }
        for node in import_tokens(root, self._edits.source):
            name = self._import if node.type == "import" else self._meta
            self._edits.replace(node.start_byte, node.end_byte, name)

    def module(self) -> Module:
        source, edits, exports = self._edits.source, self._edits, self._exports
        scope, export = unused_name(source, "$s"), unused_name(source, "$e")
        gate = unused_name(source, "$g")
        getters = ",".join(f"()=>{local}" for local in exports.local.values())
        kind, start = ("function*", "yield") if not self._waits else (
            "async function", f"if({gate})await {gate}"
        )  # fmt: skip
        # What is closed last at a place stands first there: nothing else may come before it.
        head = (
            f"(function({scope},{export},{self._import},{self._meta},{gate}){{with({scope})"
            f'{{return {kind}(){{"use strict";{export}([{getters}]);{start};'
        )
        edits.close(0, head)
        edits.open(len(source), "\n}}})")
        program = _program(edits)
        return Module(
            text=program.scripts[0],
            requests=tuple(self._requests),
            imports=tuple((local, *target) for local, target in self._imports.items()),
            exports=tuple(exports.local),
            reexports=tuple((name, *target) for name, target in exports.indirect.items()),
            stars=tuple(dict.fromkeys(self._stars)),
            waits=self._waits,
            lenient=self._lenient,
            names_default=self._names_default,
            program=program,
            head_bytes=len(head.encode()),
        )

    # --- imports --------------------------------------------------------------------------------

    def _read_imports(self) -> list[tuple[str, str, str]]:
        """Local name, specifier, and name of the export, of every import."""
        return [
            (text_of(local), specifier_of(statement.node), name_of(name))
            for statement in self._outline.statements
            if statement.node.type == "import_statement" and runs_import(statement.node)
            for name, local in imported(statement.node)
        ]

    def _erase_import(self, node: Node, used: set[str]) -> None:
        if not runs_import(node) and not is_type_only(node):
            return  # `import x = require()`: the engine says that it does not know it
        self._edits.blank(node.start_byte, node.end_byte, ";")
        if is_type_only(node):
            return
        locals_ = [text_of(local) for _, local in imported(node)]
        has_clause = any(child.type == "import_clause" for child in node.named_children)
        # TypeScript drops an import of which nothing is used as a value.
        if self._lenient and has_clause and used.isdisjoint(locals_):
            return
        self._request(specifier_of(node))

    def _request(self, specifier: str) -> int:
        return self._requests.setdefault(specifier, len(self._requests))

    def _rewrite_uses(self, root: Node, names: list[str]) -> set[str]:
        """Which imports are used as values; calls of them are made calls without an object.

        In `with (scope) f()`, `f` would get the scope as its `this`.
        """
        used: set[str] = set()
        if not names:
            return used
        one_of = b"|".join(re.escape(name.encode()) for name in names)
        source = self._edits.source
        for match in re.finditer(rb"(?<![\w$\x80-\xff])(?:%b)(?![\w$\x80-\xff])" % one_of, source):
            node = root.descendant_for_byte_range(match.start(), match.end())
            if node is None or node.parent is None:
                continue
            if node.type == "shorthand_property_identifier":
                used.add(text_of(node))
            elif node.type == "identifier" and node.parent.type not in _NO_VALUE:
                used.add(text_of(node))
                if is_called(node):
                    # `(0, f)()` would do in the language; this engine takes it for `f()`.
                    lead = ";" if begins_statement(node) else ""
                    self._edits.open(node.start_byte, f"{lead}(1&&")
                    self._edits.close(node.end_byte, ")")
        return used

    # --- exports --------------------------------------------------------------------------------

    @staticmethod
    def _is_reexport(export: Node) -> bool:
        return export.child_by_field_name("source") is not None

    def _reexport(self, export: Node) -> None:
        self._edits.blank(export.start_byte, export.end_byte, ";")
        if is_type_only(export):
            return
        request = self._request(specifier_of(export))
        for child in export.children:
            if child.type == "*":
                self._stars.append(request)
            elif child.type == "namespace_export":
                self._indirect(child, name_of(text_of(child.named_children[-1])), request, ALL)
            elif child.type == "export_clause":
                for node, name, exported in specifiers_of(child):
                    self._indirect(node, exported, request, name)

    def _export(
        self, statement: Statement, export: Node, imports: list[tuple[str, str, str]]
    ) -> None:
        edits, node = self._edits, statement.node
        if node is export:
            clause = next((c for c in export.named_children if c.type == "export_clause"), None)
            if clause is None and not is_type_only(export):
                return  # `export = x`: the engine says that it does not know it
            edits.blank(export.start_byte, export.end_byte, ";")
            if clause is not None and not is_type_only(export):
                self._export_names(clause, {local: rest for local, *rest in imports})
        elif node.type in TYPE_ONLY or not exists_at_run_time(node):
            edits.blank(export.start_byte, export.end_byte, ";")
        elif statement.default:
            self._export_default(statement, export)
        else:
            edits.blank(export.start_byte, node.start_byte, ";")
            for name in bound_names(node):
                self._local(export, name, name)

    def _export_default(self, statement: Statement, export: Node) -> None:
        edits, node = self._edits, statement.node
        name = node.child_by_field_name("name")
        if export.child_by_field_name("value") is None and name is not None:
            edits.blank(export.start_byte, node.start_byte, ";")
            self._local(export, "default", text_of(name))
        elif node.type in _ANONYMOUS and name is None:
            # A declaration: it is there before the module runs.
            keyword = next(c for c in node.children if c.type == "function")
            star = next((c for c in node.children if c.type == "*"), keyword)
            edits.blank(export.start_byte, node.start_byte, ";")
            edits.close(star.end_byte, f" {self._default}")
            self._names_default = True
            self._local(export, "default", self._default)
        else:
            # The property gives an anonymous function or class its name.
            edits.replace(export.start_byte, node.start_byte, f"const {self._default}={{default:")
            edits.close(node.end_byte, "}.default" + ("" if own_semicolon(export) else ";"))
            self._local(export, "default", self._default)

    def _export_names(self, clause: Node, imports: dict[str, list[str]]) -> None:
        declared = self._outline.order.keys() | self._outline.functions.keys()
        for node, name, exported in specifiers_of(clause):
            if name in imports:
                specifier, original = imports[name]
                self._indirect(node, exported, self._request(specifier), original)
            elif name in declared:
                self._local(node, exported, name)
            elif not self._lenient:  # in TypeScript it may be a type
                raise _syntax_error(
                    self._edits.source, node, f"export of {name!r}, which is not declared"
                )

    def _local(self, node: Node, exported: str, local: str) -> None:
        exports = self._exports.local
        # An overload, or a namespace that adds to a function: in TypeScript, the same once more.
        if not self._lenient or exports.get(exported) != local:
            self._claim(node, exported)
            exports[exported] = local

    def _indirect(self, node: Node, exported: str, request: int, name: str) -> None:
        self._claim(node, exported)
        self._exports.indirect[exported] = (request, name)

    def _claim(self, node: Node, exported: str) -> None:
        if exported in self._exports.local or exported in self._exports.indirect:
            raise _syntax_error(self._edits.source, node, f"duplicate export of {exported!r}")


def _syntax_error(source: bytes, node: Node, message: str) -> ModuleSyntaxError:
    return ModuleSyntaxError(message, *Program((), _source=source).place(node.start_byte))
