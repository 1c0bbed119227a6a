"""`qjs-pool run`: one program, one session, one exit status."""

from __future__ import annotations

import sys
from pathlib import Path

import typer

from ..errors import QjsPoolError, UsageError
from ..limits import Limits
from ..pool import Pool
from ..pool_core import Isolation
from .output import as_json, console, print_failure, write_guest_text

EXIT_GUEST_ERROR = 1
EXIT_MISUSE = 2
EXIT_MACHINE = 3


def read_program(file: str) -> str:
    """The program's text; `-` is standard input."""
    try:
        raw = sys.stdin.buffer.read() if file == "-" else Path(file).read_bytes()
        return raw.decode("utf-8-sig")
    except OSError as error:
        raise typer.BadParameter(f"cannot read {file}: {error.strerror}") from None
    except UnicodeDecodeError as error:
        raise typer.BadParameter(f"{file} is not UTF-8 at byte {error.start}") from None


def run(file: str, limits: Limits, isolation: Isolation, *, json_output: bool) -> int:
    """Run it and print what came of it; the exit status."""
    code = read_program(file)
    err = console(stderr=True)
    try:
        with Pool(limits=limits, isolation=isolation) as pool, pool.session() as session:
            result = session.eval(code)
    except UsageError as error:
        raise typer.BadParameter(str(error)) from None
    except QjsPoolError as error:
        err.print(f"qjs-pool: {error}", style="red")
        return EXIT_MACHINE
    out = console().file
    if json_output:
        out.write(as_json(result) + "\n")
    else:
        write_guest_text(out, result.stdout)
        if result.ok and result.text != "undefined":
            write_guest_text(out, result.text)
        print_failure(err, result, code)
    return 0 if result.ok else EXIT_GUEST_ERROR
