"""What all tests share: a pool, a session, and the rule that nothing may be left behind."""

from __future__ import annotations

import gc
import os
import time
from collections.abc import Generator, Iterator
from typing import Final

import psutil
import pytest
from hypothesis import HealthCheck, settings

from qjs_pool import Limits, Pool, Session

_GONE_WITHIN_S: Final = 10.0

# A busy machine is no failure.
settings.register_profile("gate", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("gate")


def pytest_collection_finish() -> None:
    """Keep what is loaded by now out of the collector's sight, as the zygote does.

    The engine's own collection runs Python's as well, which took 90 ms of each test's engine.
    """
    gc.collect()
    gc.freeze()


@pytest.fixture(scope="module")
def pool() -> Iterator[Pool]:
    """A pool with tight limits, shared by the tests of a module."""
    with Pool(limits=Limits(cpu=2.0, wall=10.0), min_idle=1) as pool:
        yield pool


@pytest.fixture
def session(pool: Pool) -> Iterator[Session]:
    """A session of its own for each test."""
    with pool.session() as session:
        yield session


@pytest.fixture(scope="session", autouse=True)
def _no_process_is_left_behind() -> Iterator[None]:
    yield
    deadline = time.monotonic() + _GONE_WITHIN_S
    while children := psutil.Process().children(recursive=True):
        if time.monotonic() > deadline:
            left = [(child.pid, child.status(), child.cmdline()[:4]) for child in children]
            pytest.fail(f"processes left after all tests: {left}")
        psutil.wait_procs(children, timeout=0.1)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item, call: pytest.CallInfo[None]
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Where isolation must be complete, a sandbox test that skips is a sandbox test that fails."""
    report = yield
    required = os.environ.get("QJS_POOL_SANDBOX_REQUIRED") == "1"
    if required and report.skipped and item.get_closest_marker("sandbox"):
        report.outcome = "failed"
        report.longrepr = f"skipped although QJS_POOL_SANDBOX_REQUIRED=1: {report.longrepr}"
    return report
