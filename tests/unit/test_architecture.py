"""Who may know whom, what is public, and what the security page may claim."""

from __future__ import annotations

import ast
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import pytest

import qjs_pool

ROOT: Final = Path(__file__).resolve().parents[2]
HOST: Final = sorted(path for path in (ROOT / "qjs_pool").rglob("*.py"))
WORKER: Final = sorted((ROOT / "worker").rglob("*.py"))
MIDDLEWARE: Final = sorted((ROOT / "middleware").rglob("*.py"))
_THIRD_PARTY_IN_WORKER: Final = {
    "_quickjs",
    "cloudpickle",
    "msgspec",
    "tree_sitter",
    "tree_sitter_javascript",
    "tree_sitter_typescript",
    "zstandard",
}
_MAX_LINES: Final = 500
# Names that the contract with outside users has; there may be more.
_CONTRACT: Final = {
    "AsyncPool",
    "EvalError",
    "EvalResult",
    "GuestError",
    "IsolationUnavailable",
    "Limits",
    "Pool",
    "PoolExhausted",
    "QjsPoolError",
    "SnapshotRejected",
    "UsageError",
}


def _tree(path: Path) -> ast.Module:
    return ast.parse(path.read_text(encoding="utf-8"), str(path))


def _imports(path: Path) -> Iterator[str]:
    """Absolute names of modules that a file imports, at any depth."""
    for node in ast.walk(_tree(path)):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.level == 0:
            assert node.module is not None
            yield node.module


def _loaded_by(statement: str) -> set[str]:
    probe = f"import sys; {statement}; print(*sys.modules)"
    done = subprocess.run(
        [sys.executable, "-P", "-I", "-c", probe], capture_output=True, text=True, check=True
    )
    return set(done.stdout.split())


def _id(path: Path) -> str:
    return str(path.relative_to(ROOT))


def test_zygote_loads_no_host_side_code() -> None:
    loaded = _loaded_by("import qjs_pool.worker.zygote")
    ours = {name for name in loaded if name.startswith("qjs_pool.")}
    assert "qjs_pool.worker.engine" in ours
    # The error classes are the codec's vocabulary: names and nothing else.
    ours.discard("qjs_pool.errors")
    assert all(name.startswith(("qjs_pool.worker", "qjs_pool.wire")) for name in ours), ours
    assert not loaded & {"asyncio", "subprocess", "psutil", "rich", "typer", "langchain_core"}


def test_the_probe_for_host_side_code_would_see_it() -> None:
    loaded = _loaded_by("import qjs_pool; qjs_pool.Pool")
    assert {"qjs_pool.supervisor", "subprocess"} <= loaded


@pytest.mark.parametrize("path", WORKER, ids=_id)
def test_worker_module_imports_the_standard_library_its_few_packages_and_the_wire(
    path: Path,
) -> None:
    for name in _imports(path):
        top = name.partition(".")[0]
        allowed = (
            top in sys.stdlib_module_names
            or top in _THIRD_PARTY_IN_WORKER
            or name == "qjs_pool.wire"
            or name.startswith(("qjs_pool.wire.", "qjs_pool.worker."))
        )
        assert allowed, name


@pytest.mark.parametrize("path", HOST, ids=_id)
def test_host_module_knows_neither_the_sandbox_side_nor_the_agent_side(path: Path) -> None:
    for name in _imports(path):
        assert not name.startswith(("qjs_pool.worker", "qjs_pool.middleware")), name
        assert name.partition(".")[0] not in {"_quickjs", "quickjs", "tree_sitter"}, name
        assert not name.startswith(("langchain", "langgraph", "deepagents")), name


@pytest.mark.parametrize("path", [*HOST, *MIDDLEWARE], ids=_id)
def test_host_module_can_unpickle_and_evaluate_nothing(path: Path) -> None:
    # What came from a worker is data for the typed decoders, whoever wrote it.
    forbidden_calls = {"eval", "exec", "compile", "__import__"}
    forbidden_modules = {"marshal", "pickle", "shelve", "dill"}
    for node in ast.walk(_tree(path)):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name):
            assert node.func.id not in forbidden_calls, node.lineno
        if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name):
            assert (node.value.id, node.attr) != ("cloudpickle", "loads"), node.lineno
    assert not forbidden_modules & set(_imports(path))


@pytest.mark.parametrize("path", [*HOST, *WORKER, *MIDDLEWARE], ids=_id)
def test_module_says_what_it_is_for_and_stays_small(path: Path) -> None:
    source = path.read_text(encoding="utf-8")
    if source:
        assert ast.get_docstring(_tree(path))
    assert len(source.splitlines()) <= _MAX_LINES


def test_public_names_are_those_in_dunder_all_and_each_resolves() -> None:
    assert qjs_pool.__all__ == sorted(qjs_pool.__all__)
    assert dir(qjs_pool) == qjs_pool.__all__
    for name in qjs_pool.__all__:
        assert getattr(qjs_pool, name).__module__.startswith("qjs_pool."), name
    assert set(qjs_pool.__all__) >= _CONTRACT


def test_type_checkers_see_the_names_that_resolve_when_the_package_runs() -> None:
    tree = _tree(ROOT / "qjs_pool" / "__init__.py")
    block = next(
        node
        for node in tree.body
        if isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING"
    )
    seen = {
        alias.name
        for node in block.body
        if isinstance(node, ast.ImportFrom)
        for alias in node.names
    }
    assert seen == set(qjs_pool.__all__)


def test_unknown_name_is_an_attribute_error_that_names_it() -> None:
    with pytest.raises(AttributeError, match="Poool"):
        _ = qjs_pool.Poool


def test_every_proof_that_the_security_page_names_exists() -> None:
    page = ROOT / "SECURITY.md"
    if not page.exists():
        pytest.skip("no SECURITY.md yet")
    proofs = "\n".join(path.read_text(encoding="utf-8") for path in ROOT.glob("tests/**/*.py"))
    defined = set(re.findall(r"^\s*(?:async )?def (test_\w+)", proofs, re.MULTILINE))
    claims = re.findall(r"^\| *(G\d+) *\|.*\|([^|]*)\| *$", page.read_text("utf-8"), re.MULTILINE)
    assert claims
    for claim, cell in claims:
        named = set(re.findall(r"`(?:[\w/.]*::)?(test_\w+)`", cell))
        assert named, f"{claim} names no proof"
        assert named <= defined, f"{claim}: {named - defined}"
