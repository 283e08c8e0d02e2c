"""The statements of docs/operating.md, run as they stand: roles with no more rights than they need, a table rebuilt, an
order withdrawn.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from pathlib import Path

import psycopg2
import pytest
from psycopg2 import sql

from tests.kit.asked import Said, runner
from tests.kit.audited import behind_the_back, run_batches, select
from tests.kit.fix_postgres import execute_as_superuser
from txtopo import CountCommitter, FileSpout, Topology, TopologyBuilder

PAGE = (Path(__file__).resolve().parents[2] / "docs" / "operating.md").read_text(encoding="utf-8")
BLOCKS = re.findall(r"```sql\n(.*?)```", PAGE, re.DOTALL)
ROLES = ("txtopo_reader", "txtopo_operator", "txtopo_runner")
READING = [
    "status",
    "batches flights",
    "show flights 1",
    "events flights",
    "audit flights",
    "trace --table flights_by_carrier --key carrier=AA --key origin=JFK",
    "retry flights --dry-run",
    "replan flights --dry-run",
    "replay flights 1",
]


def block(words: str) -> str:
    """The one block of SQL with these words."""
    (found,) = [text for text in BLOCKS if words in text]
    return str(found)


def topology(folder: Path) -> Topology:
    """Flights by carrier, as in the example."""
    builder = TopologyBuilder("flights")
    builder.set_spout(
        "departures", FileSpout(str(folder), "carrier string, origin string, distance int", settled_s=0.01)
    )
    builder.set_committer_bolt(
        "by_carrier",
        CountCommitter("flights_by_carrier", ["carrier", "origin"], count="flights", sums={"distance": "distance"}),
    ).shuffle_grouping("departures")
    return builder.build()


def write_flights(folder: Path, name: str) -> None:
    """Three flights, one without an origin."""
    (folder / name).write_text("carrier,origin,distance\nAA,JFK,100\nAA,,200\nUA,EWR,\n")


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """One file of flights."""
    made = tmp_path / "in"
    made.mkdir()
    write_flights(made, "1.csv")
    return made


@pytest.fixture
def run(
    database: str, folder: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> Callable[..., Said]:
    """The command line on a database in which one batch of flights is committed."""
    monkeypatch.setenv("TXTOPO_DSN", database)
    assert run_batches(database, topology(folder)) == 1
    return runner(capsys)


@pytest.fixture
def roles(database: str, run: Callable[..., Said]) -> Iterator[Callable[[str], str]]:
    """Makes the roles of the page; gives the URL of each."""
    execute_as_superuser(database, sql.SQL(block("create role")))
    scheme, _, rest = database.partition("://")
    try:
        yield lambda role: f"{scheme}://{role}@{rest.rpartition('@')[2]}"
    finally:
        for role in ROLES:
            execute_as_superuser(
                database,
                sql.SQL("reassign owned by {0} to current_user; drop owned by {0}; drop role {0}").format(
                    sql.Identifier(role)
                ),
            )


def test_a_reader_reads_everything_and_changes_nothing(roles: Callable[[str], str], run: Callable[..., Said]) -> None:
    """Promise: reading commands work with a SELECT-only role; an order is refused for want of the right."""
    dsn = roles("txtopo_reader")

    said = {line: run(*line.split(), "--dsn", dsn) for line in READING}
    refused = run("replan", "flights", "--reason", "x", "--no-run", "--dsn", dsn)

    assert {line: one.code for line, one in said.items()} == dict.fromkeys(READING, 0), said
    assert refused.code == 3
    assert "permission denied for table request" in refused.err


def test_an_operator_gives_orders_and_cannot_touch_the_ledger(
    roles: Callable[[str], str], run: Callable[..., Said], database: str
) -> None:
    """Promise: giving orders needs the right to write them and nothing else. One that is open is withdrawn by the
    page's statement.
    """
    dsn = roles("txtopo_operator")
    given = run("replan", "flights", "--reason", "x", "--no-run", "--dsn", dsn)
    (order,) = select(database, "select request_id, state from txtopo.request")[0][:1]

    execute_as_superuser(dsn, sql.SQL(re.sub(r"request_id = \d+", f"request_id = {order}", block("withdrawn by"))))

    assert given.code == 0, given.err
    assert select(database, "select state from txtopo.request") == [("refused",)]
    for statement in (
        "update txtopo.ledger set read = 9",
        "delete from txtopo.request",
        "select * from flights_by_carrier",
    ):
        with pytest.raises(psycopg2.errors.InsufficientPrivilege):
            execute_as_superuser(dsn, sql.SQL(statement))


def test_a_runner_makes_its_tables_and_commits(
    roles: Callable[[str], str], run: Callable[..., Said], database: str, tmp_path: Path
) -> None:
    """Promise: the runner creates the tables of a new topology and commits into them; it cannot remove what is in the
    ledger.
    """
    dsn = roles("txtopo_runner")
    other = tmp_path / "other"
    other.mkdir()
    write_flights(other, "1.csv")
    builder = TopologyBuilder("trains")
    builder.set_spout("departures", FileSpout(str(other), "carrier string, distance int", settled_s=0.01))
    builder.set_committer_bolt(
        "counts", CountCommitter("trains_by_carrier", ["carrier"], count="trains")
    ).shuffle_grouping("departures")

    assert run_batches(dsn, builder.build()) == 1

    assert run("audit", "trains").code == 0
    with pytest.raises(psycopg2.errors.InsufficientPrivilege):
        execute_as_superuser(dsn, sql.SQL("delete from txtopo.ledger"))


def test_a_runner_with_the_grants_of_the_page_writes_to_tables_of_others(
    roles: Callable[[str], str], run: Callable[..., Said], database: str, folder: Path
) -> None:
    """Promise: tables that exist already are granted to the runner, with these rights and no more."""
    dsn = roles("txtopo_runner")
    (target, contributions) = re.findall(r"with `((?:select|insert|update|delete|, )+)`", PAGE)
    execute_as_superuser(
        database,
        sql.SQL(f"grant {target} on flights_by_carrier to txtopo_runner"),
        sql.SQL(f"grant {contributions} on flights_by_carrier_contribution to txtopo_runner"),
    )
    write_flights(folder, "2.csv")

    assert run_batches(dsn, topology(folder)) == 2

    assert run("audit", "flights").code == 0


def test_a_table_that_was_changed_by_hand_is_rebuilt(run: Callable[..., Said], database: str) -> None:
    """Promise: the table is the sum of its contributions; after the page's statements the audit says MATCH."""
    behind_the_back(
        database,
        "update flights_by_carrier set flights = flights + 1 where origin = 'JFK'",
        "delete from flights_by_carrier where origin is null",
        "insert into flights_by_carrier values ('ZZ', 'ZZZ', 5, 5)",
    )
    before = run("audit", "flights")

    execute_as_superuser(database, sql.SQL(block("lock table")))

    assert (before.code, "[target.keys]" in before.out) == (1, True)
    after = run("audit", "flights")
    assert after.code == 0, after.out
