"""The commands and their options. What they do is in the module of the same name."""

from __future__ import annotations

import importlib.metadata
import logging
from typing import Annotated, Literal

import typer

from .options import limits_for, parse_seconds, parse_size

app = typer.Typer(
    help="Runs JavaScript and TypeScript in sandboxed QuickJS worker processes.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)

Isolation = Literal["auto", "strict", "best-effort"]

Memory = Annotated[
    int, typer.Option("--memory", parser=parse_size, metavar="SIZE", help="JavaScript heap.")
]
Cpu = Annotated[
    float,
    typer.Option("--cpu", parser=parse_seconds, metavar="SECONDS", help="CPU per eval, or none."),
]
Wall = Annotated[
    float,
    typer.Option("--wall", parser=parse_seconds, metavar="SECONDS", help="Time per eval, or none."),
]
Layers = Annotated[
    Isolation, typer.Option("--isolation", help="Which isolation layers must be there.")
]


def _print_version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"qjs-pool {importlib.metadata.version('qjs-pool')}")
        raise typer.Exit


@app.callback()
def _setup(
    verbose: Annotated[bool, typer.Option("--verbose", help="Show the library's log.")] = False,
    _version: Annotated[
        bool,
        typer.Option(
            "--version", callback=_print_version, is_eager=True, help="Print the version and exit."
        ),
    ] = False,
) -> None:
    logging.basicConfig(format="%(name)s: %(message)s")
    logging.getLogger("qjs_pool").setLevel(logging.DEBUG if verbose else logging.WARNING)


@app.command()
def run(
    file: Annotated[str, typer.Argument(help="A .js or .ts file, or - for standard input.")],
    json_output: Annotated[bool, typer.Option("--json", help="Print one JSON object.")] = False,
    memory: Memory = "64MiB",  # type: ignore[assignment]  # parsed like what is typed
    cpu: Cpu = "5",  # type: ignore[assignment]
    wall: Wall = "300",  # type: ignore[assignment]
    isolation: Layers = "auto",
) -> None:
    """Run a program: its output, then its result.

    Exit status: 0; 1 for an error of the program; 2 for misuse; 3 if this machine cannot run it.
    """
    from .run import run as run_program

    limits = limits_for(memory, cpu, wall)
    raise typer.Exit(run_program(file, limits, isolation, json_output=json_output))


@app.command()
def repl(
    memory: Memory = "64MiB",  # type: ignore[assignment]
    cpu: Cpu = "5",  # type: ignore[assignment]
    wall: Wall = "300",  # type: ignore[assignment]
    isolation: Layers = "auto",
) -> None:
    """Talk to one session, line by line."""
    from .repl import repl as run_repl

    raise typer.Exit(run_repl(limits_for(memory, cpu, wall), isolation))


@app.command()
def snapshot(
    file: Annotated[str, typer.Argument(help="A snapshot's file, or - for standard input.")],
    json_output: Annotated[bool, typer.Option("--json", help="Print one JSON object.")] = False,
) -> None:
    """Show what is in a snapshot, without running anything of it.

    Exit status: 0; 1 if it is damaged or none at all; 2 for misuse.
    """
    from .snapshot import snapshot as show

    raise typer.Exit(show(file, json_output=json_output))


@app.command()
def doctor() -> None:
    """Show each isolation layer of this machine: on, or why not."""
    from .doctor import doctor as examine

    raise typer.Exit(examine())


@app.command()
def demo() -> None:
    """A guided run: programs over a data file, then what hostile ones do to it."""
    from .demo import demo as run_demo

    raise typer.Exit(run_demo())


@app.command()
def stress(
    sessions: Annotated[int, typer.Option(min=1, max=100_000, help="How many to open.")] = 100,
) -> None:
    """Open many sessions at once, let each answer, print times and memory."""
    from .figures import stress as run_stress

    raise typer.Exit(run_stress(sessions))


@app.command()
def top(
    once: Annotated[bool, typer.Option("--once", help="Print once and leave.")] = False,
) -> None:
    """Show the worker processes on this machine, of every pool, until Ctrl-C."""
    from .figures import top as run_top

    raise typer.Exit(run_top(once=once))
