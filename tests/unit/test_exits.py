"""How a process ended, in words, whatever its wait status."""

from __future__ import annotations

import os
import signal
import subprocess
import sys

import pytest

from qjs_pool.exits import describe_death, describe_exit
from qjs_pool.wire import messages as wire


def _status_of(code: str) -> int:
    """The wait status of a real process."""
    process = subprocess.Popen([sys.executable, "-c", code])
    _, status = os.waitpid(process.pid, 0)
    process.returncode = 0  # reaped above
    return status


@pytest.mark.parametrize(
    ("code", "words"),
    [
        ("raise SystemExit(0)", "exited with status 0"),
        ("raise SystemExit(3)", "exited with status 3"),
        ("raise SystemExit(76)", "exited with status 76 (out of memory)"),
        ("import os; os.kill(os.getpid(), 9)", "killed by SIGKILL (9)"),
        ("import os; os.kill(os.getpid(), 11)", "killed by SIGSEGV (11)"),
        ("import os; os.kill(os.getpid(), 31)", "killed by SIGSYS (31)"),
        ("import os; os.kill(os.getpid(), 40)", "killed by signal 40"),
    ],
)
def test_a_real_end_is_said_in_words(code: str, words: str) -> None:
    assert describe_exit(_status_of(code)) == words


def test_a_core_dump_is_said_as_the_signal_that_made_it() -> None:
    assert describe_exit(signal.SIGSEGV | 0x80) == "killed by SIGSEGV (11)"


@pytest.mark.parametrize(
    "status", [wire.EXIT_REFUSED, wire.EXIT_ROLLBACK, wire.EXIT_PROTOCOL, wire.EXIT_INTERNAL]
)
def test_each_status_of_ours_has_a_meaning(status: int) -> None:
    assert describe_exit(status << 8).startswith(f"exited with status {status} (")


@pytest.mark.parametrize(
    "status", [-1, 0x7F, 0x137F, 0xFFFF, 1 << 31, 1 << 40, -(1 << 63), 1 << 99]
)
def test_an_impossible_status_is_said_to_be_one(status: int) -> None:
    assert str(status) in describe_exit(status)


def test_any_16_bit_status_gives_words() -> None:
    assert all(describe_exit(status) for status in range(1 << 16))


def test_a_death_says_what_memory_was_held() -> None:
    assert describe_death(9, 64 << 20) == "killed by SIGKILL (9) after 64 MiB"
    assert describe_death(9, 0) == "killed by SIGKILL (9)"
    assert describe_death(9, (1 << 64) - 1).startswith("killed by SIGKILL (9) after ")
    assert "keeper" in describe_death(None, 0)
