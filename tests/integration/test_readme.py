"""Every program and command of README, docs and examples, run as a reader would run it.

How the pages are written:
- a `text` block right after a `python` block is what that prints;
- in a `console` block, `$ ` lines are commands and the lines below each are its output, both
  streams together, `[exit status N]` at its end if N is not 0. `...` stands for any text. Commands
  of make are only looked up: running the tests from the tests has no end;
- a `js` or `ts` block is a program, cut after each `// => text` into the evals of one session.
  With `<!-- file: NAME -->` above it, it is a file that the page's commands find.
"""

from __future__ import annotations

import dataclasses
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Final

import pytest

from qjs_pool import Pool
from qjs_pool.wire.channel import HOST_SENDS, WORKER_SENDS

ROOT: Final = Path(__file__).resolve().parents[2]
PAGES: Final = sorted([ROOT / "README.md", *(ROOT / "docs").glob("*.md")])
_BLOCK: Final = re.compile(
    r"^(?:<!-- file: (?P<file>\S+) -->\n)?```(?P<language>\w*)\n(?P<body>.*?)^```$",
    re.MULTILINE | re.DOTALL,
)
_COMMAND: Final = re.compile(r"^\$ (.+)\n((?:(?!\$ ).*\n)*)", re.MULTILINE)
_LINK: Final = re.compile(r"\]\(([^)#]+)(?:#[^)]*)?\)")
_WAIT_S: Final = 60


@dataclasses.dataclass(frozen=True)
class Block:
    """A fenced block of a page. `output` is the `text` block that follows it."""

    page: Path
    line: int
    language: str
    body: str
    file: str | None
    output: str | None = None

    def __str__(self) -> str:
        return f"{self.page.relative_to(ROOT)}:{self.line}"


def _blocks(page: Path) -> list[Block]:
    text = page.read_text(encoding="utf-8")
    blocks: list[Block] = []
    end = 0
    for match in _BLOCK.finditer(text):
        block = Block(
            page,
            text.count("\n", 0, match.start()) + 1,
            match["language"],
            match["body"],
            match["file"],
        )
        directly_below = not text[end : match.start()].strip()
        end = match.end()
        if blocks and block.language == "text" and directly_below:
            blocks[-1] = dataclasses.replace(blocks[-1], output=block.body)
        else:
            blocks.append(block)
    return blocks


ALL: Final = [block for page in PAGES for block in _blocks(page)]


def _of(*languages: str) -> list[Block]:
    return [block for block in ALL if block.language in languages]


def _run(command: list[str] | str, folder: Path, *, shell: bool = False) -> str:
    """What a command prints, both streams in the order a terminal would show them."""
    bin_folder = str(Path(sys.executable).parent)
    done = subprocess.run(
        command,
        shell=shell,
        cwd=folder,
        env={**os.environ, "PATH": f"{bin_folder}{os.pathsep}{os.environ['PATH']}"},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=_WAIT_S,
        check=False,
    )
    status = f"[exit status {done.returncode}]\n" if done.returncode else ""
    return done.stdout + status


def _matches(printed: str, written: str) -> bool:
    pattern = ".*?".join(re.escape(part) for part in written.split("..."))
    return re.fullmatch(pattern, printed, re.DOTALL) is not None


def test_the_pages_have_blocks_of_every_kind() -> None:
    assert {block.language for block in ALL} >= {"python", "console", "js", "ts"}


@pytest.mark.parametrize("block", _of("python"), ids=str)
def test_python_block_prints_what_stands_below_it(block: Block, tmp_path: Path) -> None:
    printed = _run([sys.executable, "-P", "-W", "error", "-c", block.body], tmp_path)
    assert block.output is not None, f"{block} says not what it prints"
    assert printed == block.output


@pytest.mark.parametrize("block", _of("console"), ids=str)
def test_command_prints_what_stands_below_it(block: Block, tmp_path: Path) -> None:
    for other in ALL:
        if other.page == block.page and other.file is not None:
            (tmp_path / other.file).write_text(other.body, encoding="utf-8")
    commands = _COMMAND.findall(block.body)
    assert "".join(f"$ {command}\n{output}" for command, output in commands) == block.body
    for command, output in commands:
        if command.startswith("make "):
            # --dry-run says whether there is a rule for it, without running the rule.
            assert "[exit status" not in _run([*command.split(), "--dry-run"], ROOT)
        else:
            printed = _run(command, tmp_path, shell=True)
            assert _matches(printed, output), f"{command} printed:\n{printed}"


@pytest.mark.parametrize(
    "block", [block for block in _of("js", "ts") if block.file is None], ids=str
)
def test_program_gives_what_its_comments_say(block: Block, pool: Pool) -> None:
    parts = re.findall(r"(.*?)^// => ([^\n]*)\n", block.body, re.MULTILINE | re.DOTALL)
    assert parts
    with pool.session() as session:
        for code, text in parts:
            result = session.eval(code)
            assert result.error is None
            assert result.text == text


@pytest.mark.parametrize("block", ALL, ids=str)
def test_block_is_of_a_kind_that_is_checked(block: Block) -> None:
    # A fence without a language is a drawing.
    assert block.language in ("", "python", "console", "js", "ts")


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_links_lead_somewhere(page: Path) -> None:
    for target in _LINK.findall(page.read_text(encoding="utf-8")):
        if not target.startswith("https://"):
            assert (page.parent / target).exists(), target


def test_example_of_plain_pool_shows_each_topic_and_survives_its_bomb(tmp_path: Path) -> None:
    printed = _run([sys.executable, "-P", str(ROOT / "examples" / "plain_pool.py")], tmp_path)
    # Distinct words of each topic, counted by hand: the bomb had cleared them.
    sections = re.split(r"^(?=\S)", printed, flags=re.MULTILINE)[1:]
    assert [section.splitlines()[-1].strip() for section in sections] == ["4", "3", "3"]
    assert printed.count("OutOfMemory") == 3


def test_every_example_is_run_by_a_test() -> None:
    tests = (ROOT / "tests").rglob("test_*.py")
    texts = "".join(path.read_text(encoding="utf-8") for path in tests)
    for example in (ROOT / "examples").glob("*.py"):
        assert f'"{example.name}"' in texts


def test_protocol_page_has_the_transition_table_of_the_code() -> None:
    def cell(moves: dict[type, object]) -> str:
        named = (f"{kind.__name__} → {getattr(to, 'value', to)}" for kind, to in moves.items())
        return ", ".join(named)

    rows = [
        f"| {state.value} | {cell(dict(HOST_SENDS[state]))} "
        f"| {cell(dict(WORKER_SENDS[state]))} |".replace("|  |", "| |")
        for state in HOST_SENDS
    ]
    table = "\n".join(["| state | host sends | worker sends |", "|---|---|---|", *rows]) + "\n"
    assert table in (ROOT / "docs" / "protocol.md").read_text(encoding="utf-8")
