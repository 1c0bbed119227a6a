"""Modules that the host installs for its guests: scopes of source files."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Final

from .errors import UsageError
from .wire.values import well_formed

_SCOPE: Final = re.compile(r"@/[\w.-]+(/[\w.-]+)*\Z")
_FILE: Final = re.compile(r"[\w.-]+(/[\w.-]+)*\.(ts|js|mjs|mts|json)\Z")
MAX_SOURCE_BYTES: Final = 16 << 20


def checked_modules(
    modules: Mapping[str, Mapping[str, str]] | None,
) -> dict[str, dict[str, str]]:
    """Scopes with their files, e.g. `{"@/skills/stats": {"index.ts": "..."}}`.

    Raises:
        UsageError: a scope, a file name or a source is not one; the message names it.
    """
    checked: dict[str, dict[str, str]] = {}
    if modules is not None and not isinstance(modules, Mapping):
        raise UsageError(f"modules must map scopes to files, not be a {type(modules).__name__}")
    total = 0
    for scope, files in (modules or {}).items():
        if not isinstance(scope, str) or not _SCOPE.match(scope) or ".." in scope.split("/"):
            raise UsageError(f"module scope {scope!r} is not of the form '@/skills/name'")
        if not isinstance(files, Mapping):
            raise UsageError(f"module scope {scope!r} must map file names to sources")
        for name, source in files.items():
            if not isinstance(name, str) or not _FILE.match(name) or ".." in name.split("/"):
                raise UsageError(f"module file {name!r} of {scope!r} is no .ts, .js or .json name")
            if not isinstance(source, str):
                raise UsageError(f"module file {name!r} of {scope!r} must be text")
        checked[scope] = {name: well_formed(source) for name, source in files.items()}
        total += sum(len(source.encode()) for source in checked[scope].values())
    if total > MAX_SOURCE_BYTES:
        raise UsageError(f"modules of {total} bytes are over the cap of {MAX_SOURCE_BYTES}")
    return checked
