"""The example that the README shows and the one with flights, run by their commands on real services and real Spark.

On a cluster as a process of its own, as somebody at a terminal would; on this machine in this process, in the Spark
session of the other tests.
"""

from __future__ import annotations

import csv
import gzip
import re
import shutil
import sys
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from subprocess import CompletedProcess
from typing import TYPE_CHECKING, Any

import pytest
import sqlalchemy as sa

from tests.acceptance.commands import ROOT, checkout_environment, run_txtopo
from tests.kit.asked import Said, runner
from tests.kit.fast_jvm import with_archive
from tests.kit.files import settle_soon
from txtopo.committers.postgres.connect import make_engine
from txtopo.demo.flights import find_flights, write_days
from txtopo.demo.logs.lines import write_hours

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

Totals = dict[tuple[str, str], tuple[int, int]]
COMMAND = ("run", "examples/flights.py:topology", "--once")
DAYS = 4
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

    @property
    def settings(self) -> dict[str, str]:
        """As in the README: the stores in the environment."""
        return {
            "TXTOPO_DSN": self.dsn,
            "TXTOPO_ZK": self.zookeeper,
            "TXTOPO_ZOOKEEPER_SESSION_S": "4",
            "TXTOPO_HOME": str(self.folder / "home"),
        }

    def run_apart(self, *flags: str) -> CompletedProcess[str]:
        """The README's command as a process with a Spark of its own."""
        return run_txtopo(*COMMAND, *flags, cwd=self.folder, environment=checkout_environment(**self.settings))

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


@pytest.fixture(scope="module")
def days(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    """Files of some days, in their order."""
    folder = tmp_path_factory.mktemp("days")
    write_days(find_flights(), folder, DAYS)
    return sorted(folder.iterdir())


@pytest.fixture
def place(tmp_path: Path, database: str, zookeeper_root: str) -> Iterator[Place]:
    """Without input."""
    (tmp_path / "examples").mkdir()
    (tmp_path / "flights").mkdir()
    shutil.copy(ROOT / "examples" / "flights.py", tmp_path / "examples")
    yield Place(tmp_path, database, zookeeper_root)
    assert list((tmp_path / "examples").glob("*.py")) == [tmp_path / "examples" / "flights.py"]
    assert {path.name for path in tmp_path.iterdir()} - {"home"} == {"examples", "flights"}


@pytest.fixture
def run(
    place: Place, spark_session: SparkSession, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> Callable[[], Said]:
    """Runs the README's command in this process."""
    monkeypatch.chdir(place.folder)
    monkeypatch.delenv("FLIGHTS_FOLDER", raising=False)
    for name, value in place.settings.items():
        monkeypatch.setenv(name, value)
    settle_soon(monkeypatch)
    ask = runner(capsys)

    def once() -> Said:
        sys.modules.pop("flights", None)  # each command is a process for the reader, and loads the file anew
        return ask(*COMMAND)

    return once


def recount(files: list[Path]) -> Totals:
    """Flights and miles by carrier and airport."""
    totals: Totals = {}
    for path in files:
        with path.open(newline="", encoding="utf-8") as lines:
            for row in csv.DictReader(lines):
                flights, miles = totals.get((row["carrier"], row["origin"]), (0, 0))
                totals[row["carrier"], row["origin"]] = (flights + 1, miles + int(row["distance"]))
    return totals


def test_the_example_counts_every_flight_once_and_only_once(
    place: Place, days: list[Path], run: Callable[[], Said]
) -> None:
    """Promise: `txtopo run examples/flights.py:topology --once` ends at the end of the input; what was consumed is
    remembered for ever.
    """
    for day in days:
        shutil.copy(day, place.files)

    first = run()

    assert first.code == 0, first.err
    assert place.totals() == recount(days)
    assert [txid for txid, _ in place.ledger()] == [1, 2, 3, 4]
    assert sum(read for _, read in place.ledger()) == sum(flights for flights, _ in recount(days).values())
    assert [line for line in first.err.splitlines() if not line.startswith("flights: ")] == []
    assert first.out == ""
    before = place.everything()

    again = run()

    assert again.code == 0, again.err
    assert place.everything() == before


def test_lines_that_do_not_parse_halt_and_their_mended_file_is_refused(
    place: Place, days: list[Path], run: Callable[[], Said]
) -> None:
    """Promise: more rejected rows than allowed fail the batch with file, line and the next command; a planned file that
    changed is not read.
    """
    good, bad, _ = (Path(shutil.copy(day, place.files)) for day in days[:3])
    lines = bad.read_text(encoding="utf-8").splitlines(keepends=True)
    distance = lines[0].split(",").index("distance")
    broken = [line.split(",") for line in lines[BAD_LINE - 1 :]]
    spoiled = [",".join([*fields[:distance], "far", *fields[distance + 1 :]]) for fields in broken]
    bad.write_text("".join([*lines[: BAD_LINE - 1], *spoiled]), encoding="utf-8")

    halted = run()

    assert halted.code == 1, halted.err
    assert f"{bad}:{BAD_LINE}" in halted.err
    assert "distance" in halted.err
    assert "far" in halted.err
    assert "  next: txtopo show flights 2" in halted.err
    assert "Traceback" not in halted.err
    assert place.totals() == recount([good])

    bad.write_text("".join(lines), encoding="utf-8")
    refused = run()

    assert refused.code == 1, refused.err
    assert str(bad) in refused.err
    assert "changed" in refused.err
    assert place.totals() == recount([good])


def test_the_same_example_counts_right_on_a_cluster(place: Place, days: list[Path]) -> None:
    """Promise: the same topology, unchanged, on `--master local-cluster[2,1,1024]`; only txtopo's own lines on the
    terminal.
    """
    for day in days[:3]:
        shutil.copy(day, place.files)

    options = f"spark.executor.extraJavaOptions={with_archive()}"
    done = place.run_apart("--master", "local-cluster[2,1,1024]", "--conf", options)

    assert done.returncode == 0, done.stderr
    assert place.totals() == recount(days[:3])
    assert [txid for txid, _ in place.ledger()] == [1, 2, 3]
    assert [line for line in done.stderr.splitlines() if not line.startswith("flights: ")] == []
    told = ("starting Spark (local-cluster", "Spark is up after ", "leading with epoch 1; ")
    said = [line.removeprefix("flights: ") for line in done.stderr.splitlines()]
    assert [line for line in said if line.startswith(told)] == said[: len(told)], "what is going on, from the start"
    assert done.stdout == ""


def test_the_example_of_the_readme_counts_every_request_in_its_hour(
    place: Place, spark_session: SparkSession, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Promise: an access log by hour and status, exactly once; what is no request is kept, and the audit recounts."""
    monkeypatch.chdir(place.folder)
    monkeypatch.setenv("LOGS_FOLDER", str(place.files))
    for name, value in place.settings.items():
        monkeypatch.setenv(name, value)
    settle_soon(monkeypatch)
    write_hours(place.files, range(2, 5))
    by_hand: Counter[tuple[int, int]] = Counter()
    for number, path in enumerate(sorted(place.files.iterdir()), 2):
        statuses = (
            re.search(r'HTTP/1.1" ([0-9]+) ', line) for line in gzip.decompress(path.read_bytes()).decode().splitlines()
        )
        by_hand.update((number, int(status[1])) for status in statuses if status)
    ask = runner(capsys)

    done = ask("run", str(ROOT / "examples" / "access_log.py") + ":topology", "--once")

    assert done.code == 0, done.err
    rows = place.query(
        "select extract(hour from window_start at time zone 'UTC')::int, status, requests from requests_by_hour"
    )
    assert {(hour, status): requests for hour, status, requests in rows} == by_hand
    assert place.query("select count(*) from txtopo.rejected_row") == [(4,)]
    assert ask("audit", "web").code == 0
