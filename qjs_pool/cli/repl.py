"""`qjs-pool repl`: one session, line by line."""

from __future__ import annotations

import contextlib
import os
import re
import signal
import sys
from collections.abc import Iterator
from pathlib import Path
from types import FrameType
from typing import Final

from ..errors import QjsPoolError
from ..limits import Limits
from ..pool import Pool
from ..pool_core import Isolation
from ..result import EvalResult
from ..session import Session
from .lines import ends_too_early, is_open
from .output import console, print_failure, write_guest_text
from .run import EXIT_MACHINE

_COMMAND: Final = re.compile(r"\.[a-z]+")
_HISTORY_LINES: Final = 1000
_HELP: Final = """\
.help   this text
.reset  start again with nothing of the old state
.exit   leave (as does Ctrl-D)
Ctrl-C stops a program that runs, and clears a line that is being typed.
What is open or unfinished goes on in the next line; an empty line there sends it as it is.
JavaScript and TypeScript, with await at the top level; every name can be declared again."""


def repl(limits: Limits, isolation: Isolation) -> int:
    """Read, evaluate, print, until the end of input; the exit status."""
    try:
        with (
            Pool(limits=limits, isolation=isolation) as pool,
            pool.session() as session,
            _history(sys.stdin.isatty()),
        ):
            _Repl(session, interactive=sys.stdin.isatty()).loop()
    except QjsPoolError as error:
        console(stderr=True).print(f"qjs-pool: {error}", style="red")
        return EXIT_MACHINE
    return 0


class _Repl:
    def __init__(self, session: Session, *, interactive: bool) -> None:
        self._session = session
        self._interactive = interactive
        self._out = console()
        self._err = console(stderr=True)
        self._lines: list[str] = []

    def loop(self) -> None:
        if self._interactive:
            self._out.print("qjs-pool: .help for help, Ctrl-D to leave")
        interrupted = False
        while True:
            try:
                if interrupted:  # in here, as another Ctrl-C may come meanwhile
                    self._lines.clear()
                    self._out.print()
                    interrupted = False
                if not self._step():
                    return
            except KeyboardInterrupt:
                interrupted = True

    def _step(self) -> bool:
        """Take one line; whether there is more to come."""
        try:
            line = self._read()
        except EOFError:
            if self._lines:
                self._run("\n".join(self._lines), last=True)
            if self._interactive:
                self._out.print()
            return False
        if not self._lines and _COMMAND.fullmatch(line.strip()):
            return self._command(line.strip())
        self._take(line)
        return True

    def _read(self) -> str:
        if self._interactive:
            return input("... " if self._lines else "> ")
        line = sys.stdin.readline()
        if not line:
            raise EOFError
        return line.rstrip("\n")

    def _command(self, name: str) -> bool:
        """Run a dot command; whether there is more to come."""
        if name == ".exit":
            return False
        if name == ".help":
            self._out.print(_HELP)
        elif name == ".reset":
            self._session.reset()
            self._out.print("the session starts empty")
        else:
            self._err.print(f"no command {name}: .help lists them", style="red")
        return True

    def _take(self, line: str) -> None:
        self._lines.append(line)
        code = "\n".join(self._lines)
        if not code.strip():
            self._lines.clear()
        elif not is_open(code):
            # The empty line is the way out when we wait for what the user does not want to give.
            self._run(code, last=not line.strip())

    def _run(self, code: str, *, last: bool) -> None:
        result = self._eval(code)
        if not last and ends_too_early(result.error, code):
            return
        self._lines.clear()
        write_guest_text(self._out.file, result.stdout)
        if result.ok:
            write_guest_text(self._out.file, result.text)
        print_failure(self._err, result, code)

    def _eval(self, code: str) -> EvalResult:
        with _ctrl_c(self._session):
            return self._session.eval(code)


@contextlib.contextmanager
def _ctrl_c(session: Session) -> Iterator[None]:
    """Ctrl-C stops the guest, not us."""

    def stop(number: int, frame: FrameType | None) -> None:
        session.interrupt()

    before = signal.signal(signal.SIGINT, stop)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)


@contextlib.contextmanager
def _history(interactive: bool) -> Iterator[None]:
    """Line editing, with what was typed in earlier runs."""
    if not interactive:
        yield
        return
    import readline  # what input() then uses

    state = Path(os.environ.get("XDG_STATE_HOME") or Path.home() / ".local" / "state")
    file = state / "qjs-pool" / "history"
    # A home that cannot be written to is no reason not to start.
    with contextlib.suppress(OSError):
        file.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        readline.read_history_file(file)
    readline.set_history_length(_HISTORY_LINES)
    try:
        yield
    finally:
        with contextlib.suppress(OSError):
            readline.write_history_file(file)
            file.chmod(0o600)  # programs may hold what is nobody else's business
