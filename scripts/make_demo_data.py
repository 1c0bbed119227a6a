"""Makes the data file of `qjs-pool demo`: orders of a small web shop, the same ones every time.

    python scripts/make_demo_data.py qjs_pool/cli/data/orders.csv

Like data from the field it is not clean: some rows are there twice, lack a price, have a negative
quantity or were shipped before they were ordered.
"""

from __future__ import annotations

import csv
import datetime
import io
import random
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Final, TypeVar

_T = TypeVar("_T")

SEED: Final = 2026
ROWS: Final = 5000
COLUMNS: Final = (
    "order_id",
    "ordered_on",
    "shipped_on",
    "customer",
    "country",
    "category",
    "product",
    "quantity",
    "unit_price",
    "discount_pct",
    "status",
    "note",
)
_COUNTRIES: Final = ("DE", "FR", "GB", "IT", "ES", "NL", "PL", "SE", "AT", "IE", "PT", "CZ")
_PRODUCTS: Final = {
    "kitchen": (("Chef's knife", 49.9), ("Cast-iron pan", 64.0), ("Kettle, 1.7 l", 38.5)),
    "garden": (("Hose, 20 m", 27.9), ("Pruning shears", 18.75), ('Pot, 12" clay', 9.2)),
    "office": (("Desk lamp", 35.0), ("Paper A4, 500 sheets", 6.4), ("Chair", 189.0)),
    "sports": (("Yoga mat", 22.0), ("Dumbbells, pair", 41.3), ("Bottle", 12.8)),
}
_NOTES: Final = (
    "leave at the door",
    'gift, card says "Happy birthday, Jo"',
    "call before delivery, gate code 4711",
    "Grüße von Zoë",
)
_FIRST_DAY: Final = datetime.date(2025, 1, 1)


class _Dice:
    """Draws by `random()` alone: the other methods differ between Python releases."""

    def __init__(self, seed: int) -> None:
        self._random = random.Random(seed).random

    def below(self, count: int) -> int:
        return int(self._random() * count)

    def pick(self, items: Sequence[_T]) -> _T:
        return items[self.below(len(items))]

    def chance(self, share: float) -> bool:
        return self._random() < share


def rows() -> list[list[str]]:
    """The rows, without the header."""
    dice = _Dice(SEED)
    made: list[list[str]] = []
    for number in range(ROWS):
        if made and dice.chance(0.003):
            made.append(list(made[-1]))  # sent twice
            continue
        made.append(_order(dice, number))
    return made


def _order(dice: _Dice, number: int) -> list[str]:
    category = dice.pick(tuple(_PRODUCTS))
    product, price = dice.pick(_PRODUCTS[category])
    ordered = _FIRST_DAY + datetime.timedelta(days=dice.below(365))
    shipped = ordered + datetime.timedelta(days=1 + dice.below(6))
    status = "cancelled" if dice.chance(0.06) else "returned" if dice.chance(0.04) else "delivered"
    quantity = 1 + dice.below(3) * dice.below(4)
    if dice.chance(0.002):
        quantity = -quantity
    if dice.chance(0.003):
        shipped = ordered - datetime.timedelta(days=2)
    # The square favours the countries at the front.
    country = _COUNTRIES[dice.below(len(_COUNTRIES)) * dice.below(len(_COUNTRIES)) // 12]
    return [
        f"A{100_000 + number}",
        ordered.isoformat(),
        "" if status == "cancelled" else shipped.isoformat(),
        f"C{1 + dice.below(900):04d}",
        country,
        category,
        product,
        str(quantity),
        "" if dice.chance(0.002) else f"{price * (0.9 + 0.05 * dice.below(5)):.2f}",
        str(dice.pick((0, 0, 0, 5, 10, 20))),
        status,
        dice.pick(_NOTES) if dice.chance(0.08) else "",
    ]


def text() -> str:
    """The whole file."""
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    writer.writerow(COLUMNS)
    writer.writerows(rows())
    return out.getvalue()


def main() -> None:
    """Write the file named on the command line."""
    if len(sys.argv) != 2:
        sys.exit(f"usage: {sys.argv[0]} FILE")
    Path(sys.argv[1]).write_text(text(), encoding="utf-8")


if __name__ == "__main__":
    main()
