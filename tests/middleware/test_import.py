"""The package without its extra."""

from __future__ import annotations

import subprocess
import sys

_WITHOUT = """
import sys

class Missing:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in ("langchain", "langgraph"):
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)

sys.meta_path.insert(0, Missing())
import qjs_pool
import qjs_pool.middleware as middleware
print(dir(middleware))
try:
    middleware.CodeInterpreterMiddleware
except ImportError as error:
    print(error)
"""


def test_without_langchain_the_package_imports_and_using_it_names_the_extra() -> None:
    told = subprocess.run(
        [sys.executable, "-c", _WITHOUT], capture_output=True, text=True, check=True
    ).stdout.splitlines()
    assert told[0] == "['CodeInterpreterMiddleware']"
    assert "pip install 'qjs-pool[langchain]'" in told[1]


def test_importing_the_package_does_not_import_langchain() -> None:
    program = "import sys, qjs_pool, qjs_pool.middleware; print(*sys.modules)"
    loaded = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True
    ).stdout.split()
    assert not {"langchain", "langgraph", "langchain_core", "asyncio"} & set(loaded)
