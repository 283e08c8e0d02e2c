"""Results that are too large for the driver, on real Spark and Postgres: tasks store them, the commit merges them
(R10).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from decimal import Decimal
from pathlib import Path
from typing import Any

import psycopg2
import pytest
from pyspark.sql import DataFrame, SparkSession

from tests.contracts.executor_contract import CODE_HASH
from tests.contracts.ledger_driver import Driver, claim_for
from tests.kit.fix_spark import executors_on
from tests.kit.list_spout import ListSpout, row
from txtopo.committers.aggregate_committer import AggregateCommitter
from txtopo.committers.append_committer import AppendCommitter
from txtopo.committers.count_committer import CountCommitter
from txtopo.committers.postgres.ledger import PostgresLedger
from txtopo.committers.protocol.commit import commit_batch
from txtopo.core.values import Committed, Failed, Outcome, Processed, TransactionAttempt
from txtopo.ports import Assignment, Staging, StagingPlace
from txtopo.spark.executor import SparkExecutor
from txtopo.topology.builder import TopologyBuilder
from txtopo.topology.components import Topology

pytestmark = pytest.mark.spark
KEYS = 60
PARTS = [[row(f"n{at}", at + part) for at in range(KEYS)] for part in range(3)]
"""Three rows for each key."""


def topology(bolt: Callable[[DataFrame], DataFrame] | None) -> Topology:
    """A committer with many keys, and one with few that reads the same stream."""
    builder = TopologyBuilder("flights")
    builder.set_spout("source", ListSpout())
    if bolt is not None:
        builder.set_bolt("bolt", bolt, inputs="source", fields="name string, amount int, price decimal(38,2)")
    source = "bolt" if bolt is not None else "source"
    many = AggregateCommitter("many", ["name"], count="n", sums=["amount"], mins={"price": "low"})
    builder.set_committer_bolt("many", many).fields_grouping(source, ["name"])
    builder.set_committer_bolt("few", CountCommitter("few", ["price"], count="n")).fields_grouping(source, ["price"])
    return builder.build()


class World:
    """A leader on a real database, and executors that store what is too large."""

    def __init__(self, dsn: str, make: Callable[[Topology], SparkExecutor]) -> None:
        self.dsn, self._make = dsn, make
        self.connection = psycopg2.connect(dsn)
        self.connection.autocommit = True
        self.ledger = PostgresLedger(dsn, "flights")

    def query(self, sql: str) -> list[Any]:
        with self.connection.cursor() as cursor:
            cursor.execute(sql)
            return list(cursor.fetchall()) if cursor.description else []

    def staging(self, driver: Driver, place: StagingPlace) -> Staging:
        staging = self.ledger.staging(driver.lead, place, driver.claimed.staging_tables)
        staging.begin()
        return staging

    def lead(self, of: Topology) -> Driver:
        driver = Driver(self.ledger, self.ledger.claim_fence(claim_for(code_hash=CODE_HASH)), of.committers)
        self.ledger.prepare_targets(driver.lead, driver.committers)
        return driver

    def executor(self, of: Topology, staging: Staging) -> SparkExecutor:
        executor = self._make(of)
        executor.stage_with(staging)
        return executor

    def tables(self) -> list[str]:
        names = "select relname from pg_class where relnamespace = to_regnamespace('txtopo_staging') and relkind = 'r'"
        return [name for (name,) in self.query(names)]


@pytest.fixture
def world(database: str, spark_session: SparkSession) -> Iterator[World]:
    """A database of its own."""
    with executors_on(spark_session) as make:
        found = World(database, make)
        yield found
        found.ledger.close()
        found.connection.close()


def assigned(txid: int, parts: Sequence[Any]) -> Assignment:
    return Assignment(attempt=TransactionAttempt(txid, 0), metadata={"source": {"parts": parts}})


def only(outcomes: Sequence[Outcome]) -> Processed:
    [outcome] = outcomes
    assert isinstance(outcome, Processed), outcome
    return outcome


EXPECTED = [(f"n{at}", 3, Decimal(3 * at + 3)) for at in range(KEYS)]


@pytest.mark.parametrize("partitions", [None, 1, 3, 17])
def test_tasks_store_what_is_too_large_and_the_commit_merges_it(world: World, partitions: int | None) -> None:
    """Without bolts and with them, in one partition and in many: the driver gets numbers, the table gets the rows. A
    committer with few keys beside it stays as it was, and so does the next small batch.
    """
    of = topology(None if partitions is None else lambda frame: frame.repartition(partitions))
    driver = world.lead(of)
    staging = world.staging(driver, StagingPlace(dsn=world.dsn, rows_max=20, connections=2))
    executor = world.executor(of, staging)

    first = only(executor.process([assigned(1, PARTS)]))

    many, few = first.results
    assert many.staged is not None and many.rows.num_rows == 0 and many.bytes == 0
    assert 1 <= len(many.staged.parts) <= 2, "as many tasks as connections"
    assert (many.arrived, many.row_count, few.staged) == (3 * KEYS, KEYS, None)
    for plan, processed in [
        (driver.ready(1), first),
        (driver.ready(2), only(executor.process([assigned(2, PARTS)]))),
        (driver.ready(3), only(executor.process([assigned(3, [[row("n0", 5)]])]))),
        (driver.ready(4), only(executor.process([assigned(4, [[row("n0", 5)]])]))),
    ]:
        entered = replace(processed, code_hash=driver.lead.code_hash)
        assert isinstance(commit_batch(world.ledger, driver.lead, plan, entered, of), Committed)
        staging.settled(plan.txid)
    assert processed.results[0].staged is None, "a small batch goes through the driver again"
    found = {name: (n, amount) for name, n, amount in world.query("select name, n, amount from many")}
    expected = {name: (2 * n, 2 * amount) for name, n, amount in EXPECTED}
    assert found == {**expected, "n0": (8, expected["n0"][1] + 10)}
    assert world.tables() == []


def of_tuples() -> Topology:
    """A committer that stores rows, one with many keys and one with few: a topology of tuples."""
    builder = TopologyBuilder("flights")
    builder.set_spout("source", ListSpout())
    builder.set_committer_bolt("rows", AppendCommitter("rows"), parallelism_hint=3).shuffle_grouping("source")
    many = CountCommitter("many", ["name"], count="n", sums=["amount"])
    builder.set_committer_bolt("many", many, parallelism_hint=2).fields_grouping("source", ["name"])
    few = CountCommitter("few", ["price"], count="n")
    builder.set_committer_bolt("few", few, parallelism_hint=2).shuffle_grouping("source")
    return builder.build()


@pytest.mark.parametrize("parts", [PARTS, PARTS[:1]], ids=["levels", "one task"])
def test_tasks_of_tuples_store_what_is_too_large(world: World, parts: Sequence[Any]) -> None:
    """Rows as they are, with numbers in their order, and counts; another committer's results, and a small batch, go
    through the driver.
    """
    of = of_tuples()
    driver = world.lead(of)
    staging = world.staging(driver, StagingPlace(dsn=world.dsn, rows_max=20, connections=2))
    executor = world.executor(of, staging)

    for txid in (1, 2):
        processed = only(executor.process([assigned(txid, parts)]))
        rows, many, few = processed.results
        assert rows.staged is not None and many.staged is not None and few.staged is None
        assert rows.rows.num_rows == many.rows.num_rows == 0 and rows.row_count == len(parts) * KEYS
        assert len({part.part for part in rows.staged.parts}) <= 2, "as many tasks as connections"
        entered = replace(processed, code_hash=driver.lead.code_hash)
        assert isinstance(commit_batch(world.ledger, driver.lead, driver.ready(txid), entered, of), Committed)
        staging.settled(txid)
    for txid in (3, 4):
        small = only(executor.process([assigned(txid, [[row("n0", 5)]])]))
        entered = replace(small, code_hash=driver.lead.code_hash)
        assert isinstance(commit_batch(world.ledger, driver.lead, driver.ready(txid), entered, of), Committed)
        staging.settled(txid)

    assert small.results[0].staged is None, "a small batch goes through the driver again"
    stored = world.query("select txid, n, name, amount from rows where txid < 3 order by txid, n")
    expected = sorted((one[0], one[1]) for part in parts for one in part)
    assert stored == [(txid, n, *one) for txid in (1, 2) for n, one in enumerate(expected, 1)]
    counted = {name: (n, int(amount)) for name, n, amount in world.query("select name, n, amount from many")}
    each = {name: [one for part in parts for one in part if one[0] == name] for name in counted}
    assert len(counted) == KEYS
    assert counted.pop("n0") == (2 * len(each["n0"]) + 2, 2 * sum(one[1] for one in each["n0"]) + 10)
    assert counted == {name: (2 * len(each[name]), 2 * sum(one[1] for one in each[name])) for name in counted}
    assert world.tables() == []


def test_a_place_that_tasks_cannot_reach_fails_no_batch(world: World) -> None:
    """Infrastructure if nobody answers; a halt with the remedy if the role has no right. Nothing is left."""
    of = topology(None)
    driver = world.lead(of)
    world.query("do $$ begin create role nobody_at_all; exception when duplicate_object then null; end $$")
    role = f"{world.dsn}{'&' if '?' in world.dsn else '?'}options=-crole%3Dnobody_at_all"
    said = {}
    for dsn in ("host=127.0.0.1 port=1 dbname=none", role):
        executor = world.executor(of, world.staging(driver, StagingPlace(dsn=dsn, rows_max=20)))
        [outcome] = executor.process([assigned(1, PARTS)])
        assert isinstance(outcome, Failed)
        said[outcome.failure.kind] = outcome.failure

    assert list(said) == ["infrastructure", "halt"]
    assert "a task cannot store its result rows in Postgres" in said["infrastructure"].message
    assert "permission denied" in said["halt"].message and "grant" in str(said["halt"].next_command)
    assert world.tables() == []


def test_no_password_reaches_spark(
    world: World, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, spark_session: SparkSession
) -> None:
    """Tasks find it in the password file of their host: it is in no setting, plan or property of Spark."""
    canary = "kanarienvogel"
    (tmp_path / "passwords").write_text(f"*:*:*:*:{canary}\n")
    (tmp_path / "passwords").chmod(0o600)
    monkeypatch.setenv("PGPASSFILE", str(tmp_path / "passwords"))
    of = topology(None)
    driver = world.lead(of)
    executor = world.executor(of, world.staging(driver, StagingPlace(dsn=world.dsn, rows_max=20)))

    assert only(executor.process([assigned(1, PARTS)])).results[0].staged is not None

    context = spark_session.sparkContext
    shown = [str(context.getConf().getAll()), *map(str, context.environment.items())]
    assert not any(canary in text for text in shown)
