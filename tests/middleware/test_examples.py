"""The examples that need no key, run as a reader would run them."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Final

import pytest

EXAMPLES: Final = Path(__file__).resolve().parents[2] / "examples"


@pytest.mark.parametrize(
    ("example", "needs", "said"),
    [
        ("agent_loop.py", "langchain_core", "<result>175</result>"),
        ("langchain_agent.py", "langchain", "nut and washer"),
        ("approval.py", "langchain", "sent: bob@example.com: The build is green, Bob."),
        ("deep_agent_skills.py", "deepagents", "{q1: 3, median: 5, q3: 7}"),
        ("subagents.py", "deepagents", '{files: ["/src/parse.py", "/src/store.py"], total: 3}'),
    ],
)
def test_example_gives_its_answer_without_a_key(example: str, needs: str, said: str) -> None:
    pytest.importorskip(needs)
    done = subprocess.run(
        [sys.executable, "-P", str(EXAMPLES / example)],
        capture_output=True,
        text=True,
        timeout=100,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert said in done.stdout
