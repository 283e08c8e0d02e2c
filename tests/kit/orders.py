"""A small input that is counted in many tests, and a recount that shares no code with the product."""

from __future__ import annotations

import csv
from decimal import Decimal
from pathlib import Path
from typing import Any

FIELDS = "shop string, article string, pieces int, price decimal(12,2)"
Totals = dict[tuple[str | None, str | None], tuple[int, Decimal, Decimal]]
"""(shop, article) -> (rows, pieces, price)."""


def write_orders(folder: Path, files: int, rows: int = 20, first: int = 1) -> list[Path]:
    """Deterministic files order_0001.csv, …; some keys and values are empty, which means NULL."""
    folder.mkdir(parents=True, exist_ok=True)
    paths = []
    for number in range(first, first + files):
        path = folder / f"order_{number:04}.csv"
        with path.open("w", newline="", encoding="utf-8") as out:
            writer = csv.writer(out, lineterminator="\n")
            writer.writerow(["id", "shop", "article", "pieces", "price"])
            for row in range(rows):
                seed = number * 31 + row * 7
                shop = "" if seed % 11 == 0 else f"shop {seed % 5}"
                pieces = "" if seed % 13 == 0 else str(seed % 9)
                writer.writerow([number * 1000 + row, shop, f"a{seed % 3}", pieces, f"{seed % 100}.{seed % 100:02}"])
        paths.append(path)
    return paths


def recount(folder: Path, files: int | None = None) -> Totals:
    """Counts and exact sums of every file in the folder, or of the first so many, by plain `csv`."""
    totals: Totals = {}
    for path in sorted(folder.glob("*.csv"))[:files]:
        with path.open(newline="", encoding="utf-8") as lines:
            for row in csv.DictReader(lines):
                key = (row["shop"] or None, row["article"] or None)
                rows, pieces, price = totals.get(key, (0, Decimal(0), Decimal(0)))
                totals[key] = (rows + 1, pieces + Decimal(row["pieces"] or 0), price + Decimal(row["price"] or 0))
    return totals


Stored = dict[str, list[str]]
"""Table -> its rows, as sorted texts."""


def restored(folder: Path, files: int | None = None) -> Stored:
    """What the tables of rows have after every file in the folder, or the first so many, each a batch: all rows; the
    row of each article with the most pieces; the rows of the last file that has a price.
    """
    every: list[str] = []
    last: dict[str, tuple[Any, str]] = {}
    prices: dict[Decimal, tuple[int, list[str]]] = {}
    for txid, path in enumerate(sorted(folder.glob("*.csv"))[:files], 1):
        with path.open(newline="", encoding="utf-8") as lines:
            for found in csv.DictReader(lines):
                pieces, price = int(found["pieces"]) if found["pieces"] else None, Decimal(found["price"])
                row = (found["shop"] or None, found["article"], pieces, price)
                every.append(repr((txid, *row)))
                rank = ((pieces is not None, pieces), txid, [(value is None, value) for value in row])
                if row[1] not in last or last[row[1]][0] < rank:
                    last[row[1]] = rank, repr(row)
                at, rows = prices.get(price, (0, []))
                prices[price] = (txid, [*(rows if at == txid else []), repr((txid, *row))])
    return {
        "order_rows": sorted(every),
        "order_last": sorted(text for _, text in last.values()),
        "order_prices": sorted(text for _, rows in prices.values() for text in rows),
    }
