"""The example that the README shows, run by its command on real services and real Spark."""

from __future__ import annotations

import csv
import shutil
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from subprocess import CompletedProcess
from typing import Any

import pytest
import sqlalchemy as sa

from tests.acceptance.commands import ROOT, checkout_environment, run_txtopo
from txtopo.committers.postgres.connect import make_engine
from txtopo.demo.flights import find_flights, write_days

Totals = dict[tuple[str, str], tuple[int, int]]
BAD_LINE = 4
"""The first line of the bad file that does not parse; the header is line 1."""

pytestmark = [pytest.mark.spark, pytest.mark.slow]


@dataclass(frozen=True)
class Place:
    """A user's folder with the example and some days of flights, and stores of its own."""

    folder: Path
    dsn: str
    zookeeper: str

    @property
    def files(self) -> Path:
        """Where the example looks for input."""
        return self.folder / "flights"

    def run(self, *flags: str) -> CompletedProcess[str]:
        """As in the README, with the stores in the environment."""
        environment = checkout_environment(
            TXTOPO_DSN=self.dsn,
            TXTOPO_ZK=self.zookeeper,
            TXTOPO_ZOOKEEPER_SESSION_S="4",
            TXTOPO_HOME=str(self.folder / "home"),
        )
        return run_txtopo(
            "run", "examples/flights.py:topology", "--once", *flags, cwd=self.folder, environment=environment
        )

    def query(self, statement: str) -> list[tuple[Any, ...]]:
        """Rows of a statement of the test's own."""
        engine = make_engine(self.dsn, "test", pooled=False)
        with engine.connect() as connection:
            return [tuple(row) for row in connection.execute(sa.text(statement))]

    def totals(self) -> Totals:
        """The example's table."""
        rows = self.query("select carrier, origin, flights, distance from flights_by_carrier")
        return {(carrier, origin): (flights, int(distance)) for carrier, origin, flights, distance in rows}

    def ledger(self) -> list[tuple[Any, ...]]:
        """Txids as they were committed, with the rows that each read."""
        return self.query("select txid, read from txtopo.ledger where state = 'applied' order by committed_at, txid")

    def everything(self) -> list[list[tuple[Any, ...]]]:
        """Rows of all tables of results and records, with the database transaction that wrote each."""
        tables = (
            "flights_by_carrier",
            "flights_by_carrier_contribution",
            "txtopo.ledger",
            "txtopo.plan",
            "txtopo.source_file",
        )
        return [sorted(self.query(f"select xmin::text, t::text from {table} t")) for table in tables]


@pytest.fixture
def place(tmp_path: Path, database: str, zookeeper_root: str) -> Iterator[Place]:
    (tmp_path / "examples").mkdir()
    shutil.copy(ROOT / "examples" / "flights.py", tmp_path / "examples")
    yield Place(tmp_path, database, zookeeper_root)
    assert list((tmp_path / "examples").glob("*.py")) == [tmp_path / "examples" / "flights.py"]
    assert {path.name for path in tmp_path.iterdir()} == {"examples", "flights", "home"}


def recount(files: list[Path]) -> Totals:
    """Flights and miles by carrier and airport."""
    totals: Totals = {}
    for path in files:
        with path.open(newline="", encoding="utf-8") as lines:
            for row in csv.DictReader(lines):
                flights, miles = totals.get((row["carrier"], row["origin"]), (0, 0))
                totals[row["carrier"], row["origin"]] = (flights + 1, miles + int(row["distance"]))
    return totals


def test_the_example_counts_every_flight_once_and_only_once(place: Place) -> None:
    """Promise: `txtopo run examples/flights.py:topology --once` ends at the end of the input; what was consumed is
    remembered for ever.
    """
    rows = write_days(find_flights(), place.files, 6)

    first = place.run()

    assert first.returncode == 0, first.stderr
    assert place.totals() == recount(sorted(place.files.iterdir()))
    assert [txid for txid, _ in place.ledger()] == [1, 2, 3, 4, 5, 6]
    assert sum(read for _, read in place.ledger()) == rows
    assert [line for line in first.stderr.splitlines() if not line.startswith("flights: ")] == []
    assert first.stdout == ""
    before = place.everything()

    again = place.run()

    assert again.returncode == 0, again.stderr
    assert place.everything() == before


def test_lines_that_do_not_parse_halt_and_their_mended_file_is_refused(place: Place) -> None:
    """Promise: more rejected rows than allowed fail the batch with file, line and the next command; a planned file that
    changed is not read.
    """
    write_days(find_flights(), place.files, 3)
    good, bad, _ = sorted(place.files.iterdir())
    lines = bad.read_text(encoding="utf-8").splitlines(keepends=True)
    distance = lines[0].split(",").index("distance")
    broken = [line.split(",") for line in lines[BAD_LINE - 1 :]]
    spoiled = [",".join([*fields[:distance], "far", *fields[distance + 1 :]]) for fields in broken]
    bad.write_text("".join([*lines[: BAD_LINE - 1], *spoiled]), encoding="utf-8")

    halted = place.run()

    assert halted.returncode == 1, halted.stderr
    assert f"{bad}:{BAD_LINE}" in halted.stderr
    assert "distance" in halted.stderr
    assert "far" in halted.stderr
    assert "  next: txtopo show flights 2" in halted.stderr
    assert "Traceback" not in halted.stderr
    assert place.totals() == recount([good])

    bad.write_text("".join(lines), encoding="utf-8")
    refused = place.run()

    assert refused.returncode == 1, refused.stderr
    assert str(bad) in refused.stderr
    assert "changed" in refused.stderr
    assert place.totals() == recount([good])


def test_the_same_example_counts_right_on_a_cluster(place: Place) -> None:
    """Promise: the same topology, unchanged, on `--master local-cluster[2,1,1024]`."""
    write_days(find_flights(), place.files, 4)

    done = place.run("--master", "local-cluster[2,1,1024]")

    assert done.returncode == 0, done.stderr
    assert place.totals() == recount(sorted(place.files.iterdir()))
    assert [txid for txid, _ in place.ledger()] == [1, 2, 3, 4]
