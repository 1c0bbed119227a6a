"""The command line, as a user runs it: real processes, and a real terminal where it matters."""

from __future__ import annotations

import contextlib
import csv
import io
import json
import os
import select
import subprocess
import sys
import time
import tomllib
from collections.abc import Iterator
from importlib import resources
from pathlib import Path
from typing import Any, Final

import psutil
import pytest
import typer

from qjs_pool import Limits, Pool
from qjs_pool.cli.doctor import doctor
from qjs_pool.cli.lines import is_open
from qjs_pool.cli.options import parse_seconds, parse_size
from qjs_pool.wire.layers import LAYERS

ROOT: Final = Path(__file__).resolve().parents[2]
_WAIT_S: Final = 60.0


def _qjs(*arguments: str, given: str | bytes = b"") -> subprocess.CompletedProcess[str]:
    done = subprocess.run(
        [sys.executable, "-P", "-m", "qjs_pool.cli", *arguments],
        input=given.encode() if isinstance(given, str) else given,
        capture_output=True,
        timeout=_WAIT_S,
        check=False,
    )
    return subprocess.CompletedProcess(
        done.args, done.returncode, done.stdout.decode(), done.stderr.decode()
    )


# --- run ----------------------------------------------------------------------------------------


def test_run_prints_the_output_then_the_result(tmp_path: Path) -> None:
    program = tmp_path / "total.ts"
    program.write_text("const n: number = 40; console.log('adding');\nn + 2", encoding="utf-8")
    done = _qjs("run", str(program))
    assert (done.returncode, done.stdout, done.stderr) == (0, "adding\n42\n", "")


def test_version_is_that_of_the_installed_package() -> None:
    version = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["version"]
    assert _qjs("--version").stdout.split() == ["qjs-pool", version]


def test_run_reads_standard_input_and_prints_no_undefined() -> None:
    done = _qjs("run", "-", given="console.log('grüße'); var x = 1")
    assert (done.returncode, done.stdout) == (0, "grüße\n")


def test_run_of_a_failing_program_points_at_its_line_and_exits_with_1() -> None:
    done = _qjs("run", "-", given="console.log('before')\nfunction f() {\n  null.x\n}\nf()")
    assert done.returncode == 1
    assert done.stdout == "before\n"
    error, source, marker, *stack = done.stderr.splitlines()
    assert error.startswith("TypeError: ")
    assert source == "  3 |   null.x"
    assert marker.strip("| ") == "^"
    assert [frame.strip().split(" ")[1] for frame in stack] == ["f", "<eval>"]


def test_run_points_at_the_end_of_a_program_that_ends_too_early() -> None:
    done = _qjs("run", "-", given="let a = 1\nfoo(\n\n")
    assert done.returncode == 1
    assert done.stderr.splitlines()[1:3] == ["  2 | foo(", "    |     ^"]


@pytest.mark.parametrize(
    ("arguments", "named"),
    [
        (["no-such-file.js"], "no-such-file.js"),
        (["--memory", "64XB", "-"], "64XB"),
        (["--memory", "10", "-"], "memory=10"),
        (["--cpu", "0", "-"], "'0'"),
        (["--wall", "-3", "-"], "'-3'"),
        (["--cpu", "soon", "-"], "'soon'"),
        (["--isolation", "loose", "-"], "'loose'"),
        (["--no-such-option", "-"], "--no-such-option"),
        ([], "file"),
    ],
)
def test_misuse_of_run_exits_with_2_and_names_what_was_wrong(
    arguments: list[str], named: str
) -> None:
    done = _qjs("run", *arguments)
    assert done.returncode == 2
    assert done.stdout == ""
    assert named in done.stderr


def test_run_of_a_file_that_is_no_text_is_misuse() -> None:
    done = _qjs("run", "-", given=b"1 + \xff")
    assert done.returncode == 2
    assert "UTF-8" in done.stderr


def _json(code: str, *options: str) -> tuple[int, dict[str, Any]]:
    done = _qjs("run", "--json", *options, "-", given=code)
    assert done.stdout.count("\n") == 1
    fields: dict[str, Any] = json.loads(done.stdout)
    return done.returncode, fields


def test_json_has_everything_that_the_result_has() -> None:
    status, fields = _json("console.log('a'); ({ list: [1, 'é'], none: null })")
    usage = fields.pop("usage")
    assert status == 0
    assert fields == {
        "ok": True,
        "text": '{list: [1, "é"], none: null}',
        "stdout": "a",
        "value": {"list": [1, "é"], "none": None},
        "error": None,
        "notes": [],
        "state": "kept",
    }
    assert set(usage) == {"cpu_s", "wall_s", "peak_rss", "host_calls"}
    assert usage["peak_rss"] > 1 << 20


@pytest.mark.parametrize("code", ["new Date(0)", "NaN", "new Uint8Array(2)", "a = {}; a.a = a"])
def test_json_leaves_out_a_value_that_it_has_no_word_for(code: str) -> None:
    status, fields = _json(code)
    assert (status, fields["ok"]) == (0, True)
    assert "value" not in fields
    assert fields["text"]


def test_json_of_a_failing_program_has_the_error_and_exits_with_1() -> None:
    status, fields = _json("throw new RangeError('too far')")
    assert status == 1
    assert (fields["ok"], fields["error"]["name"]) == (False, "RangeError")
    assert fields["error"]["message"] == "too far"
    assert "eval:1:" in fields["error"]["stack"]
    assert "value" not in fields


@pytest.mark.parametrize(
    ("options", "code", "error"),
    [
        (["--memory", "16MiB"], "const l = []; for (;;) l.push('x'.repeat(1e5))", "OutOfMemory"),
        (["--cpu", "0.2"], "for (;;) {}", "Timeout"),
        (["--wall", "0.2"], "await new Promise((r) => setTimeout(r, 60000))", "Timeout"),
    ],
)
def test_limits_of_run_hold(options: list[str], code: str, error: str) -> None:
    status, fields = _json(code, *options)
    assert (status, fields["error"]["name"]) == (1, error)


def test_run_shows_long_output_in_full() -> None:
    done = _qjs("run", "-", given="console.log('x'.repeat(50000)); 'y'.repeat(50000)")
    assert done.stdout == "x" * 50_000 + "\n" + "y" * 50_000 + "\n"


def test_escape_sequences_of_a_program_reach_a_pipe_but_no_terminal() -> None:
    code = "console.log('\\u001b[2J'); '\\u009b31m\\u202e'"
    assert _qjs("run", "-", given=code).stdout == "\x1b[2J\n\x9b31m\u202e\n"
    with _terminal("run", "-") as terminal:
        terminal.type(f"{code}\n\x04")
        shown = terminal.rest()
    assert "\\u001b[2J" in shown
    assert "\\u009b31m\\u202e" in shown


@pytest.mark.parametrize(
    ("text", "size_bytes"),
    [
        ("1048576", 1 << 20),
        ("64MiB", 64 << 20),
        ("64 mib", 64 << 20),
        ("1.5GiB", 3 << 29),
        ("2KB", 2000),
        ("3mb", 3_000_000),
        ("1GB", 10**9),
        ("8KiB", 8192),
    ],
)
def test_size_is_read(text: str, size_bytes: int) -> None:
    assert parse_size(text) == size_bytes


@pytest.mark.parametrize("text", ["", "MiB", "-1", "1TBB", "1e6", "64 Mi B", "0x10"])
def test_what_is_no_size_is_refused(text: str) -> None:
    with pytest.raises(typer.BadParameter, match="size"):
        parse_size(text)


def test_seconds_may_be_none() -> None:
    assert Limits(cpu=parse_seconds("none")).cpu is None
    assert parse_seconds("2.5") == 2.5


# --- repl ---------------------------------------------------------------------------------------


def test_repl_keeps_its_state_and_goes_on_after_an_error() -> None:
    done = _qjs("repl", given="const n = 1\nnull.x\nconst n = 2\nn\n")
    assert done.returncode == 0
    assert done.stdout == "undefined\nundefined\n2\n"
    assert done.stderr.startswith("TypeError: ")


def test_repl_takes_programs_of_several_lines() -> None:
    lines = (
        "function twice(x: number) {",
        "  return `${",
        "    x * 2}`",
        "}",
        "const four =",
        "  twice(2)",
        "interface Row {",
        "  id: string",
        "}",
        "four",
    )
    done = _qjs("repl", given="\n".join(lines) + "\n")
    assert (done.stdout, done.stderr) == ("undefined\nundefined\nundefined\n4\n", "")


def test_repl_sends_what_is_unfinished_at_an_empty_line_and_at_the_end() -> None:
    done = _qjs("repl", given="1 +\n\n'next'\n[1,")
    assert done.stdout == "next\n"
    assert done.stderr.count("SyntaxError") == 2


def test_repl_commands_reset_help_and_leave() -> None:
    done = _qjs(
        "repl", given="kept = 1\n.reset\ntypeof kept\n.help\n.nonsense\n.exit\n'unreached'\n"
    )
    assert done.returncode == 0
    assert done.stdout.splitlines()[:3] == ["1", "the session starts empty", "undefined"]
    assert ".reset" in done.stdout
    assert "unreached" not in done.stdout
    assert ".nonsense" in done.stderr


@pytest.mark.parametrize(
    ("code", "expected"),
    [
        ("a", False),
        ("f(", True),
        ("f({ a: [1, 2] })", False),
        ("f(')')", False),
        ("f(')'", True),
        ("`a", True),
        ("`a ${b", True),
        ("`a ${`b ${c}`} d`", False),
        ("`a ${ {x: 1}.x } `", False),
        ("`\\``", False),
        ("/* a", True),
        ("/* { */ 1", False),
        ("// {", False),
        ("x = /[/(]/", False),
        ("a / b / (c", True),
        ("return /\\(/.test(s)", False),
        (")", False),
        ("[}", False),
        ("'unterminated {", True),
        ("```js\n1", True),
        ("```js\n1\n```", False),
    ],
)
def test_open_input_is_told_from_whole_input(code: str, expected: bool) -> None:
    assert is_open(code) is expected


def test_terminal_repl_prompts_interrupts_and_remembers(tmp_path: Path) -> None:
    with _terminal("repl", state=tmp_path) as repl:
        repl.wait_for("> ")
        repl.type("let kept = 40\n")
        repl.wait_for("undefined")
        repl.wait_for("> ")
        repl.type("[1,\n")
        repl.wait_for("... ")
        repl.interrupt_until("> ")  # clears what was begun
        repl.type("kept = 0; for (;;) {}\n")
        repl.wait_for_busy_worker()
        repl.type("\x03")
        repl.wait_for("Interrupted")
        repl.wait_for("> ")
        repl.type("kept + 2\n")
        repl.wait_for("42")
        repl.wait_for("> ")
        repl.type("\x04")
        assert repl.exit_status() == 0
    history = tmp_path / "qjs-pool" / "history"
    assert "kept + 2" in history.read_text(encoding="utf-8")
    assert history.stat().st_mode & 0o777 == 0o600


# --- doctor, demo, stress, top ------------------------------------------------------------------


@pytest.mark.sandbox
def test_doctor_finds_every_layer_and_says_which_modes_start() -> None:
    done = _qjs("doctor")
    assert done.returncode == 0
    assert set(LAYERS) <= set(done.stdout.split())
    assert "isolation='auto'" in done.stdout
    assert "quickjs" in done.stdout


def test_doctor_fails_and_names_the_layer_where_a_default_pool_cannot_start(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert doctor(skip_layers=("seccomp",)) == 1
    shown = capsys.readouterr().out
    lines = {line.split()[0]: line for line in shown.splitlines() if line.strip()}
    assert "off" in lines["seccomp"]
    assert "lacks seccomp" in lines["isolation='auto'"]
    assert "starts" in lines["isolation='best-effort'"]


def test_demo_passes_and_its_figures_are_those_of_the_data() -> None:
    done = _qjs("demo")
    assert done.returncode == 0, done.stdout
    text = resources.files("qjs_pool.cli").joinpath("data", "orders.csv").read_text("utf-8")
    rows = list(csv.DictReader(io.StringIO(text)))
    sound = _sound(rows)
    sold = [row for row in sound if row["status"] == "delivered"]
    total = sum(
        int(row["quantity"]) * float(row["unit_price"]) * (1 - int(row["discount_pct"]) / 100)
        for row in sold
    )
    assert f"{len(rows)} orders, 12 columns" in done.stdout
    assert f"{len(sound)} of {len(rows)} rows are sound" in done.stdout
    assert f"total: {total:.0f}" in done.stdout
    for outcome in ("OutOfMemory: ", "Timeout: ", "WorkerCrashed: killed by SIGKILL", "passed"):
        assert outcome in done.stdout
    assert "\x1b" not in done.stdout


def _sound(rows: list[dict[str, str]]) -> list[dict[str, str]]:
    seen: set[str] = set()
    sound = []
    for row in rows:
        again = row["order_id"] in seen
        seen.add(row["order_id"])
        late = row["shipped_on"] == "" or row["shipped_on"] >= row["ordered_on"]
        if row["unit_price"] and int(row["quantity"]) > 0 and late and not again:
            sound.append(row)
    return sound


def test_demo_data_is_what_the_script_makes(tmp_path: Path) -> None:
    made = tmp_path / "orders.csv"
    script = ROOT / "scripts" / "make_demo_data.py"
    subprocess.run([sys.executable, str(script), str(made)], check=True)
    shipped = resources.files("qjs_pool.cli").joinpath("data", "orders.csv")
    assert made.read_bytes() == shipped.read_bytes()


def test_stress_lets_each_session_answer() -> None:
    done = _qjs("stress", "--sessions", "5")
    assert done.returncode == 0
    figures = {line[:25].strip(): line[25:].strip() for line in done.stdout.splitlines()}
    assert figures["sessions open at once"] == "5"
    assert figures["wrong answers"] == "0"


def test_top_lists_the_workers_of_other_pools(pool: Pool) -> None:
    with pool.session() as session:
        session.eval("1").unwrap()
        pid = session.pid
        done = _qjs("top", "--once")
    roles = {line.split()[0]: line.split()[2] for line in done.stdout.splitlines()}
    assert roles[str(pid)] == "worker"
    assert {"zygote", "anchor"} <= set(roles.values())


# --- a terminal ---------------------------------------------------------------------------------


class _Terminal:
    """The command on a pseudo-terminal, so that it prompts and Ctrl-C reaches it."""

    def __init__(self, process: subprocess.Popen[bytes], fd: int) -> None:
        self._process = process
        self._fd = fd
        self._seen = ""

    def type(self, text: str) -> None:
        os.write(self._fd, text.encode())

    def wait_for(self, text: str) -> None:
        """Read until `text` has come, and drop everything up to its end."""
        deadline = time.monotonic() + _WAIT_S
        while text not in self._seen:
            assert self._read(deadline), f"no {text!r} in {self._seen!r}"
        self._seen = self._seen.partition(text)[2]

    def interrupt_until(self, text: str) -> None:
        """Ctrl-C until `text` comes.

        More than once: a signal between the prompt and the read is kept by Python until the
        next key, as any program that reads with readline has it.
        """
        deadline = time.monotonic() + _WAIT_S
        while text not in self._seen:
            assert time.monotonic() < deadline, f"no {text!r} in {self._seen!r}"
            self.type("\x03")
            quiet = time.monotonic() + 1.0  # its echo comes at once, and is no answer yet
            while text not in self._seen and self._read(quiet):
                pass
        self._seen = self._seen.partition(text)[2]

    def rest(self) -> str:
        deadline = time.monotonic() + _WAIT_S
        while self._read(deadline):
            pass
        return self._seen

    def wait_for_busy_worker(self) -> None:
        """Until a process below the command has burnt some CPU: the program runs."""
        command = psutil.Process(self._process.pid)
        deadline = time.monotonic() + _WAIT_S
        while time.monotonic() < deadline:
            for process in command.children(recursive=True):
                with contextlib.suppress(psutil.Error):
                    if process.cpu_times().user > 0.5:
                        return
            time.sleep(0.02)
        pytest.fail("no worker became busy")

    def exit_status(self) -> int:
        self.rest()  # a process whose terminal is full cannot leave
        return self._process.wait(_WAIT_S)

    def _read(self, deadline: float) -> bool:
        left = max(0.0, deadline - time.monotonic())
        if not select.select([self._fd], [], [], left)[0]:
            return False
        try:
            chunk = os.read(self._fd, 4096)
        except OSError:  # the other end was closed
            return False
        self._seen += chunk.decode(errors="replace")
        return bool(chunk)


@contextlib.contextmanager
def _terminal(*arguments: str, state: Path | None = None) -> Iterator[_Terminal]:
    # A session leader that opens a terminal gets it as its controlling one: Ctrl-C then means it.
    start = (
        "import os, signal; os.close(os.open(os.ttyname(0), os.O_RDWR)); "
        # What a job in the background hands down is not what a terminal has.
        "signal.signal(signal.SIGINT, signal.default_int_handler); "
        "from qjs_pool.cli import main; main()"
    )
    environment = {**os.environ, "TERM": "dumb"}
    if state is not None:
        environment["XDG_STATE_HOME"] = str(state)
    ours, theirs = os.openpty()
    try:
        process = subprocess.Popen(
            [sys.executable, "-P", "-c", start, *arguments],
            stdin=theirs,
            stdout=theirs,
            stderr=theirs,
            start_new_session=True,
            env=environment,
        )
        os.close(theirs)
        try:
            yield _Terminal(process, ours)
        finally:
            process.kill()
            process.wait()
    finally:
        os.close(ours)
