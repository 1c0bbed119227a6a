"""Modules in a worker: what is installed, what a specifier means, and what the engine has of it.

An import in the engine comes here as a request (`IMPORT`), with the module that asks. The module
and all that it imports are compiled, checked by the engine and only then handed over together, so
the engine knows either a whole graph or nothing of it. Linking and running is the prelude's part.

Everything here is plain data, so a fork of the session has it too.
"""

import difflib
import re
from bisect import bisect_right
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Final, NamedTuple

import msgspec

from .engine import Engine
from .stacks import MODULE_LINE_BASE
from .transpile import NoRoom, Program
from .transpile.modules import Module, ModuleSyntaxError, compile_module

IMPORT: Final = "@import"  # the prelude's name for the request; no tool's name can be like it
PROGRAM: Final = "eval"  # who imports, when it is no module; also its name in stack traces

_EXTENSIONS: Final = (".ts", ".js", ".mts", ".mjs", ".json")
# TypeScript imports a file by the name that it will have once it is compiled.
_COMPILED_FROM: Final = {".js": ".ts", ".mjs": ".mts"}
_TYPESCRIPT: Final = (".ts", ".mts")
_MAX_LISTED: Final = 20
_MAX_SHOWN: Final = 200
_SLACK_CHARS: Final = 4096  # for the file's name, which may take detours
_POSITION: Final = re.compile(r"<input>:(\d+)(?::(\d+))?")

_encode: Final = msgspec.json.Encoder().encode
_decode_error: Final = msgspec.json.Decoder(tuple[str, str, str]).decode


class ModuleFailure(Exception):
    """An import that fails before anything of it runs. `name` is the class of the guest's error."""

    def __init__(self, name: str, message: str) -> None:
        super().__init__(message)
        self.name = name


class _File(NamedTuple):
    scope: str
    source: str


class _Compiled(NamedTuple):
    source: str
    module: Module | None  # None for JSON


class _Loaded(NamedTuple):
    """Lines of the engine's input that are a module's, from `first_line` on."""

    first_line: int
    id: str
    program: Program | None
    head_bytes: int  # of what comes before the source, on its first line


class Modules:
    """The modules of one session."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._stage_all = engine.entry("stageModules")
        self._stage_json = engine.entry("stageJson")
        self._commit = engine.entry("commitModules")
        self._scopes: Mapping[str, Mapping[str, str]] = {}
        self._longest = _SLACK_CHARS  # specifiers longer than this find nothing
        self._files: dict[str, _File] = {}
        self._compiled: dict[str, _Compiled] = {}
        self._loaded: dict[str, str] = {}  # id -> scope
        self._places: list[_Loaded] = []
        self._next_line = MODULE_LINE_BASE + 1

    def install(self, scopes: Mapping[str, Mapping[str, str]]) -> None:
        """What can be imported from now on. Modules that are loaded stay as they are."""
        if scopes == self._scopes:
            return
        self._scopes = scopes
        # A name has one module, though one scope may lie in another: then the inner one's.
        self._longest = _SLACK_CHARS + max(map(len, scopes), default=0)
        self._files = {
            f"{scope}/{name}": _File(scope, source)
            for scope in sorted(scopes, key=len)
            for name, source in scopes[scope].items()
        }

    def load(self, specifier: str, importer: str, check: Callable[[], object]) -> str:
        """Make the engine know a module and all it imports; returns the module's id.

        Args:
            specifier: as the guest wrote it.
            importer: id of the module that asks, or "" for a program.
            check: called between modules; raises when the eval's time is up.

        Raises:
            ModuleFailure: it is not installed, imports what is not, or has a syntax error.
        """
        root = self._resolve(specifier, importer)
        fresh: dict[str, list[str]] = {}  # id -> ids of what it imports
        stack = [root]
        while stack:
            module_id = stack.pop()
            if module_id in fresh or module_id in self._loaded:
                continue
            check()
            module = self._compile(module_id).module
            requests = () if module is None else module.requests
            fresh[module_id] = [self._resolve(request, module_id) for request in requests]
            stack += reversed(fresh[module_id])
        if fresh:
            self._hand_over(fresh, check)
        return root

    def place(self, line: int, column: int) -> tuple[str, int, int] | None:
        """Module, line and column of a position that the engine reports; None for no module.

        Without a name if it is in what the compiler put before the module.
        """
        at = bisect_right(self._places, line, key=lambda place: place.first_line) - 1
        if at < 0:
            return None
        place = self._places[at]
        if line == place.first_line and 1 < column <= place.head_bytes:
            return "", 0, 0
        return self._located(place, line, column)

    @staticmethod
    def _located(place: _Loaded, line: int, column: int) -> tuple[str, int, int]:
        line = line - place.first_line + 1
        if place.program is not None:
            line, column = place.program.locate(line, column)
        return place.id, line, column

    # --- finding --------------------------------------------------------------------------------

    def _resolve(self, specifier: str, importer: str) -> str:
        if specifier.startswith(("./", "../")) or specifier in (".", ".."):
            if not importer:
                raise self._missing(
                    specifier, importer, "a program has no folder, so name the module from '@/' on"
                )
            scope = self._loaded.get(importer) or self._files[importer].scope
            folder = importer.removeprefix(f"{scope}/").split("/")[:-1]
            return self._find(specifier, importer, scope, [*folder, *specifier.split("/")])
        # Who asks for a name of a million folders shall not have them all looked through.
        prefixes = _prefixes(specifier) if len(specifier) <= self._longest else ()
        scopes = [scope for scope in prefixes if scope in self._scopes]
        if not scopes:
            raise self._missing(specifier, importer, self._suggest(specifier, self._scopes))
        failure: ModuleFailure | None = None
        for scope in scopes:
            try:
                return self._find(
                    specifier, importer, scope, specifier.removeprefix(scope).split("/")
                )
            except ModuleFailure as error:
                failure = failure or error
        assert failure is not None
        raise failure

    def _find(self, specifier: str, importer: str, scope: str, path: list[str]) -> str:
        normal = _normalized(path)
        if normal is None:
            raise self._missing(specifier, importer, f"it leads out of {scope}")
        files = self._scopes.get(scope, {})
        found = next((name for name in _candidates(normal) if name in files), None)
        if found is None:
            hint = self._suggest(normal or "index", files)
            raise self._missing(specifier, importer, f"no such file in {scope}, {hint}")
        return f"{scope}/{found}"

    def _missing(self, specifier: str, importer: str, hint: str) -> ModuleFailure:
        shown = repr(specifier[:_MAX_SHOWN]) + ("…" if len(specifier) > _MAX_SHOWN else "")
        return ModuleFailure(
            "Error", f"cannot find module {shown} imported from {importer or PROGRAM}: {hint}"
        )

    @staticmethod
    def _suggest(wanted: str, names: Iterable[str]) -> str:
        known = sorted(names)
        if not known:
            return "nothing is installed"
        near = difflib.get_close_matches(wanted[:_MAX_SHOWN], known, 1, 0.7)
        more = f" and {len(known) - _MAX_LISTED} more" if len(known) > _MAX_LISTED else ""
        listed = f"installed: {', '.join(known[:_MAX_LISTED])}{more}"
        return f"did you mean {near[0]!r}? {listed}" if near else listed

    # --- compiling ------------------------------------------------------------------------------

    def _compile(self, module_id: str) -> _Compiled:
        source = self._files[module_id].source
        known = self._compiled.get(module_id)
        if known is not None and known.source == source:
            return known
        module: Module | None = None
        if not module_id.endswith(".json"):
            try:
                module = compile_module(source, typescript=module_id.endswith(_TYPESCRIPT))
            except (NoRoom, MemoryError):
                raise ModuleFailure(
                    "Error",
                    f"the module {module_id!r} of {len(source)} characters, to be read, needs more "
                    "memory than the memory limit leaves",
                ) from None
            except ModuleSyntaxError as error:
                place = (module_id, error.line, error.column)
                raise _syntax_failure(str(error), place, source) from None
        compiled = self._compiled[module_id] = _Compiled(source, module)
        return compiled

    def _hand_over(self, fresh: dict[str, list[str]], check: Callable[[], object]) -> None:
        places: list[_Loaded] = []
        line = self._next_line
        for module_id in fresh:
            module = self._compiled[module_id].module
            if module is None:
                places.append(_Loaded(line, module_id, None, 0))
            else:
                places.append(_Loaded(line, module_id, module.program, module.head_bytes))
                line += 1 + module.text.count("\n")
        try:
            if not self._stage_together(places, fresh):
                for place in places:
                    check()
                    self._stage_one(place, fresh[place.id])
        except BaseException:
            self._engine.set_cpu(None)
            self._commit(False)
            raise
        # Ours, and short: an interrupt in the middle would leave half of a graph.
        self._engine.set_cpu(None)
        self._commit(True)
        self._next_line = line
        self._places += [place for place in places if place.program is not None]
        for module_id in fresh:
            self._loaded[module_id] = self._files[module_id].scope
            del self._compiled[module_id]

    def _stage_together(self, places: list[_Loaded], fresh: dict[str, list[str]]) -> bool:
        """Stage all in one go, if none has an error: the line breaks in front cost the most."""
        texts = [f"{_line_breaks(places[0].first_line - 1)}["]
        about = []
        for place in places:
            module = self._compiled[place.id].module
            if module is None or module.refused is not None:
                return False
            about.append(_about(place.id, module, fresh[place.id]))
            texts.append(f"{module.text},")
        texts.append("]")
        return not self._stage_all(_encode(about).decode(), "\n".join(texts))

    def _stage_one(self, place: _Loaded, dependencies: list[str]) -> None:
        source, module = self._compiled[place.id]
        about = _encode([_about(place.id, module, dependencies)]).decode()
        if module is None:
            answer = self._stage_json(about, source)
        else:
            text = f"{_line_breaks(place.first_line - 1)}[\n{module.text}]"
            answer = self._stage_all(about, text)
        if not answer:
            return
        _, message, stack = _decode_error(answer)
        where = (place.id, 0, 0)
        if module is not None and (position := _POSITION.search(stack)) is not None:
            line = int(position[1])
            if module.refused is not None and line >= place.first_line + module.text.count("\n"):
                # Only the end of it, which no engine takes: this one accepts what comes before.
                message, where = "unexpected syntax", (place.id, *module.refused)
            else:
                where = self._located(place, line, int(position[2] or 1))
        raise _syntax_failure(message, where, source)


def _line_breaks(before_line: int) -> str:
    """A position in a module's text is told by its line, as a position in the prelude is."""
    return "\n" * (before_line - 1)


def _about(module_id: str, module: Module | None, dependencies: list[str]) -> dict[str, Any]:
    if module is None:
        return {
            "id": module_id,
            "json": True,
            "deps": [],
            "imports": [],
            "exports": ["default"],
            "reexports": [],
            "stars": [],
            "waits": False,
            "lenient": False,
            "namesDefault": False,
        }
    return {
        "id": module_id,
        "json": False,
        "deps": dependencies,
        "imports": module.imports,
        "exports": module.exports,
        "reexports": module.reexports,
        "stars": module.stars,
        "waits": module.waits,
        "lenient": module.lenient,
        "namesDefault": module.names_default,
    }


def _prefixes(specifier: str) -> Iterable[str]:
    """The specifier and the paths above it, the longest first."""
    end = len(specifier)
    while end > 0:
        yield specifier[:end]
        end = specifier.rfind("/", 0, end)


def _normalized(path: list[str]) -> str | None:
    """The path without `.` and `..`, None if it leads above its root."""
    parts: list[str] = []
    for part in path:
        if part == "..":
            if not parts:
                return None
            parts.pop()
        elif part not in ("", "."):
            parts.append(part)
    return "/".join(parts)


def _candidates(path: str) -> Iterable[str]:
    """The files that a path may mean, the best first."""
    if path:
        yield path
        for compiled, written in _COMPILED_FROM.items():
            if path.endswith(compiled):
                yield path.removesuffix(compiled) + written
        for extension in _EXTENSIONS:
            yield path + extension
    folder = f"{path}/" if path else ""
    for extension in _EXTENSIONS:
        yield f"{folder}index{extension}"


def _syntax_failure(message: str, place: tuple[str, int, int], source: str) -> ModuleFailure:
    module_id, line, column = place
    lines = re.split(r"\r\n|\r|\n", source)
    if not 0 < line <= len(lines):
        return ModuleFailure("SyntaxError", f"{message} ({module_id})")
    text = lines[line - 1].strip()[:_MAX_SHOWN]
    return ModuleFailure("SyntaxError", f"{message} ({module_id}:{line}:{column})\n    {text}")
