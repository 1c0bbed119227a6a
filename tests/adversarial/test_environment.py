"""What a worker inherits from the host: nothing."""

import os
import subprocess
import sys

import pytest

from qjs_pool import Pool

# Python's own: the locale it coerces itself to. And ours: the guest's time zone.
ALLOWED = {"LC_CTYPE", "TZ"}


def test_worker_environment_is_empty(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("QJS_POOL_TEST_API_KEY", "secret")
    # The control: a process that inherits has it.
    child = [sys.executable, "-c", "import os; print(os.environ['QJS_POOL_TEST_API_KEY'])"]
    assert subprocess.check_output(child, text=True).strip() == "secret"

    def read_environment(_: object) -> dict[str, str]:
        return dict(os.environ)

    with Pool(worker_functions={"env": read_environment}) as pool, pool.session() as session:
        inside = session.eval("await tools.env({})").unwrap()
    assert set(inside) <= ALLOWED
    assert inside["TZ"] == "UTC0"
