"""The input of all cases: the flights of 2013 as one CSV file per day, the same rows over and over as a backlog, and
how often each key is in them. Counted with separate code: a figure of a wrong result is worth nothing.
"""

from __future__ import annotations

import csv
import json
import os
import shutil
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from txtopo.demo.flights import find_flights, write_days

Counts = dict[tuple[str, str], tuple[int, int]]
"""Carrier and origin -> number of flights, and the sum of their miles."""
COLUMNS = (
    "year int, month int, day int, dep_time string, sched_dep_time int, dep_delay string, arr_time string, "
    "sched_arr_time int, arr_delay string, carrier string, flight int, tailnum string, origin string, dest string, "
    "air_time string, distance int, hour int, minute int, time_hour string"
)
"""All columns of a file, as Spark reads them."""


@dataclass(frozen=True, slots=True)
class Folder:
    """Some files of the input, in the order of their names."""

    path: Path
    files: int
    rows: int
    counts: Counts

    @classmethod
    def counted(cls, path: Path) -> Folder:
        """Count the files of a folder."""
        files = sorted(path.glob("*.csv"))
        tables = [count_file(file) for file in files]
        return cls(path, len(files), sum(flights for table in tables for flights, _ in table.values()), total(tables))

    def first(self, files: int) -> Folder:
        """Return the first files only, as links in a folder of their own; the same folder if it has no more."""
        if files >= self.files:
            return self
        part = self.path.with_name(f"{self.path.name}_first_{files}")
        if not part.exists():
            part.mkdir()
            for file in sorted(self.path.glob("*.csv"))[:files]:
                os.link(file, part / file.name)
        return Folder.counted(part)


def count_file(path: Path) -> Counts:
    """Count one file."""
    found: Counts = {}
    with path.open(encoding="utf-8", newline="") as lines:
        rows = csv.reader(lines)
        header = next(rows)
        carrier, origin, distance = (header.index(name) for name in ("carrier", "origin", "distance"))
        for row in rows:
            key = row[carrier], row[origin]
            flights, miles = found.get(key, (0, 0))
            found[key] = (flights + 1, miles + int(row[distance]))
    return found


def total(tables: Sequence[Counts]) -> Counts:
    """Add tables.

    >>> total([{("AA", "JFK"): (1, 10)}, {("AA", "JFK"): (2, 5)}])
    {('AA', 'JFK'): (3, 15)}
    """
    sums: Counts = {}
    for table in tables:
        for key, (flights, miles) in table.items():
            before = sums.get(key, (0, 0))
            sums[key] = (before[0] + flights, before[1] + miles)
    return sums


def difference(found: Mapping[tuple[str, str], tuple[int, int]], expected: Counts) -> str | None:
    """Return in words what is wrong with counts; None if they are right.

    >>> difference({("AA", "JFK"): (2, 10)}, {("AA", "JFK"): (1, 10)})
    "1 of 1 keys are wrong, first ('AA', 'JFK'): (2, 10) instead of (1, 10)"
    """
    wrong = sorted(key for key in found.keys() | expected.keys() if found.get(key) != expected.get(key))
    if not wrong:
        return None
    first = wrong[0]
    return (
        f"{len(wrong)} of {len(expected)} keys are wrong, first {first}: {found.get(first)} instead of "
        f"{expected.get(first)}"
    )


def write_inputs(folder: Path, days: int, copies: int) -> None:
    """Write the daily files, and `copies` files that have all their rows; keep in a manifest what is in them."""
    daily, backlog = folder / "days", folder / "backlog"
    write_days(find_flights(), daily, days)
    backlog.mkdir()
    first = backlog / "part_000.csv"
    with first.open("wb") as out:
        for number, file in enumerate(sorted(daily.glob("*.csv"))):
            header, _, rows = file.read_bytes().partition(b"\n")
            out.write(rows if number else header + b"\n" + rows)
    for number in range(1, copies):
        shutil.copyfile(first, backlog / f"part_{number:03}.csv")
    once = Folder.counted(daily)
    counts = [[*key, *amounts] for key, amounts in sorted(once.counts.items())]
    manifest = {"files": once.files, "rows": once.rows, "copies": copies, "counts": counts}
    (folder / "manifest.json").write_text(json.dumps(manifest), encoding="utf-8")


def read_inputs(folder: Path) -> dict[str, Folder]:
    """Return the folders `days` and `backlog` as the manifest has them, without counting again."""
    manifest = json.loads((folder / "manifest.json").read_text(encoding="utf-8"))
    once = {(carrier, origin): (flights, miles) for carrier, origin, flights, miles in manifest["counts"]}
    copies = manifest["copies"]
    often = {key: (flights * copies, miles * copies) for key, (flights, miles) in once.items()}
    return {
        "days": Folder(folder / "days", manifest["files"], manifest["rows"], once),
        "backlog": Folder(folder / "backlog", copies, manifest["rows"] * copies, often),
    }
