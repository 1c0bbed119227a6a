"""Every budget of the design, measured; beside langchain-quickjs and pydantic-monty in one run.

    python -m benchmarks [--quick] [--only PART]

Prints a table of medians: what, ours, the budget, the peers where they can do it at all, and the
ratio ours/peer. Peers that are not installed are left out. Nothing here is asserted: a figure
over its budget is marked, for a person to act on.
"""

import argparse
import sys

from rich.console import Console
from rich.table import Table

from .budgets import MEASUREMENTS
from .peers import PEERS
from .timing import Figure, shown


def main() -> None:
    parser = argparse.ArgumentParser(prog="benchmarks", description=__doc__)
    parser.add_argument("--quick", action="store_true", help="a tenth of the runs")
    parser.add_argument("--only", default="", help="measure what has this in its name")
    args = parser.parse_args()
    scale = 0.1 if args.quick else 1.0

    peers = {name: peer for name, peer in PEERS.items() if peer.available()}
    table = Table(title="qjs-pool: medians (90th percentile)")
    for column in ("what", "qjs-pool", "budget", *peers, *(f"ours / {name}" for name in peers)):
        table.add_column(column, justify="left" if column == "what" else "right")
    for measurement in MEASUREMENTS:
        if args.only not in measurement.name:
            continue
        ours = measurement.measure(scale)
        theirs: dict[str, Figure | None] = {
            name: peer.measure(measurement.peer_key, scale) for name, peer in peers.items()
        }
        over = ours.median > measurement.budget
        table.add_row(
            measurement.name,
            f"{'[red]' if over else ''}{ours}{' OVER' if over else ''}",
            shown(measurement.budget, ours.unit),
            *("—" if figure is None else str(figure) for figure in theirs.values()),
            *(
                "—" if figure is None else f"{ours.median / figure.median:.2f}"
                for figure in theirs.values()
            ),
        )
        print(f"{measurement.name}: {ours}", file=sys.stderr, flush=True)
    Console(width=max(140, Console().width)).print(table)


if __name__ == "__main__":
    main()
