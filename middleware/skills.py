"""Skills as modules: which a program names, and their sources from the agent's backend."""

from __future__ import annotations

import logging
import posixpath
import re
from collections.abc import Callable, Generator, Iterable, Mapping
from typing import Any, Final

from qjs_pool.errors import UsageError
from qjs_pool.modules import MAX_SOURCE_BYTES, checked_modules

from .threads import Thread

_log: Final = logging.getLogger("qjs_pool.middleware")

_NAMED: Final = re.compile(r"@/skills/([A-Za-z0-9][\w.-]*)")
_FILE: Final = re.compile(r"[\w.-]+(/[\w.-]+)*\.(ts|js|mjs|mts|json)\Z")
_REQUIRED: Final = "required-ptc-tools"
_MAX_FILES: Final = 200
_MAX_DEPTH: Final = 5

# What a step of the loading asks of the backend: a method's name and its argument.
Request = tuple[str, Any]


class Skills:
    """The skills of one middleware; each thread keeps the sources it has fetched."""

    def __init__(self, backend: Any, allows: Callable[[str], bool]) -> None:
        self._backend = backend
        self._allows = allows  # whether programs may call a tool of that name
        self._warned: set[str] = set()

    @property
    def enabled(self) -> bool:
        return self._backend is not None

    def names(self, state: Any) -> list[str]:
        """The skills that this conversation may import."""
        if not self.enabled:
            return []
        return sorted(name for name, skill in _metadata(state).items() if not self._lacks(skill))

    def check(self, state: Any) -> None:
        """Raise ValueError for a skill that needs tools which `ptc` does not expose."""
        if not self.enabled:
            return
        for name, skill in _metadata(state).items():
            if lacking := self._lacks(skill):
                raise ValueError(
                    f"skill {name!r} requires the tools {', '.join(lacking)} inside the REPL "
                    f"({_REQUIRED}); add them to ptc=[...] or remove the skill"
                )

    def _lacks(self, skill: Mapping[str, Any]) -> list[str]:
        metadata = skill.get("metadata") or {}
        required = metadata.get(_REQUIRED) if isinstance(metadata, Mapping) else None
        # Deep Agents turns every value into text, a list into that of a list.
        names = re.findall(
            r"[\w.\-:/]+", required if isinstance(required, str) else str(required or "")
        )
        return [name for name in names if not self._allows(name)]

    # --- sources --------------------------------------------------------------------------------

    def load(self, thread: Thread, code: str, runtime: Any) -> None:
        """Fetch what the program names and the thread has not."""
        if not self.enabled:
            return
        backend = self._made(runtime)
        steps = self._load(thread, code, _state(runtime))
        answer = None
        while (request := _next(steps, answer)) is not None:
            method, argument = request
            answer = _tried(lambda m=method, a=argument: getattr(backend, m)(a))  # type: ignore[misc]

    async def aload(self, thread: Thread, code: str, runtime: Any) -> None:
        """As `load`, awaiting the backend."""
        if not self.enabled:
            return
        backend = self._made(runtime)
        steps = self._load(thread, code, _state(runtime))
        answer = None
        while (request := _next(steps, answer)) is not None:
            method, argument = request
            try:
                answer = await getattr(backend, f"a{method}")(argument)
            except Exception as error:
                answer = error

    def _made(self, runtime: Any) -> Any:
        return self._backend if hasattr(self._backend, "ls") else self._backend(runtime)

    def _load(self, thread: Thread, code: str, state: Any) -> Generator[Request, Any, None]:
        metadata = _metadata(state)
        wanted = list(dict.fromkeys(_NAMED.findall(code)))
        for name in wanted:  # grows: skills may import skills
            scope = f"@/skills/{name}"
            if scope not in thread.modules and scope not in thread.missing_modules:
                sources = None
                skill = metadata.get(name)
                if skill is not None and not self._refused(name, skill):
                    sources = yield from self._fetch(name, skill)
                if sources is None:
                    # An import of it fails, with its name. Looked for again in the next turn.
                    thread.missing_modules.add(scope)
                    continue
                thread.modules = {**thread.modules, scope: sources}
            for source in thread.modules.get(scope, {}).values():
                wanted += [other for other in _NAMED.findall(source) if other not in wanted]

    def _refused(self, name: str, skill: Mapping[str, Any]) -> bool:
        lacking = self._lacks(skill)
        if lacking:
            self._warn(
                f"skill {name!r} is not importable: it requires the tools {', '.join(lacking)}, "
                f"which ptc does not expose"
            )
        return bool(lacking)

    def _fetch(
        self, name: str, skill: Mapping[str, Any]
    ) -> Generator[Request, Any, dict[str, str] | None]:
        root = posixpath.dirname(str(skill.get("path", ""))).rstrip("/")
        paths: list[str] = []
        folders = [(root, 0)]
        for folder, depth in folders:
            answer = yield ("ls", folder or "/")
            for entry in _entries(answer):
                path = str(entry.get("path", ""))
                if not path.startswith("/") and not path.startswith(root):
                    path = f"{root}/{path}"
                if entry.get("is_dir") or path.endswith("/"):
                    if depth < _MAX_DEPTH:
                        folders.append((path.rstrip("/"), depth + 1))
                elif _FILE.match(path.removeprefix(f"{root}/")):
                    paths.append(path)
        if not paths:
            self._warn(f"skill {name!r} has no .ts or .js files under {root}")
            return None
        if len(paths) > _MAX_FILES:
            self._warn(f"skill {name!r} has more than {_MAX_FILES} source files")
            return None
        answer = yield ("download_files", sorted(paths))
        sources = self._decoded(name, root, answer)
        try:
            checked_modules({f"@/skills/{name}": sources})
        except UsageError as error:
            self._warn(f"skill {name!r} is not importable: {error}")
            return None
        return sources

    def _decoded(self, name: str, root: str, answer: Any) -> dict[str, str]:
        sources = {}
        if isinstance(answer, Exception):
            self._warn(f"the files of skill {name!r} could not be read: {answer}")
            answer = ()
        for response in answer:
            path = str(response.path)
            if response.error or response.content is None:
                self._warn(f"{path} of skill {name!r} could not be read: {response.error}")
            elif len(response.content) > MAX_SOURCE_BYTES:
                self._warn(f"{path} of skill {name!r} is too large")
            else:
                try:
                    sources[path.removeprefix(f"{root}/")] = response.content.decode("utf-8-sig")
                except UnicodeDecodeError:
                    self._warn(f"{path} of skill {name!r} is not UTF-8")
        return sources

    def _warn(self, message: str) -> None:
        if message not in self._warned:
            self._warned.add(message)
            _log.warning("%s", message)


def _state(runtime: Any) -> Any:
    return getattr(runtime, "state", None)


def _metadata(state: Any) -> dict[str, Mapping[str, Any]]:
    listed: Any = state.get("skills_metadata") if isinstance(state, Mapping) else None
    if not isinstance(listed, Iterable):
        return {}
    return {str(skill["name"]): skill for skill in listed if isinstance(skill, Mapping)}


def _entries(answer: Any) -> list[Mapping[str, Any]]:
    if isinstance(answer, Exception):
        return []
    return list(getattr(answer, "entries", answer) or ())


def _next(steps: Generator[Request, Any, None], answer: Any) -> Request | None:
    try:
        return steps.send(answer)
    except StopIteration:
        return None


def _tried(ask: Callable[[], Any]) -> Any:
    try:
        return ask()
    except Exception as error:
        return error
