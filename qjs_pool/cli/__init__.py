"""The command line: `qjs-pool run | repl | doctor | demo | stress | top`."""

from __future__ import annotations


def main() -> None:
    """Entry point of the `qjs-pool` command."""
    from .app import app  # late: `import qjs_pool.cli` alone needs neither typer nor rich

    app(prog_name="qjs-pool")
