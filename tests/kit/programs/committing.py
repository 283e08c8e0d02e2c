"""A committer of a program: the highest price of each article, and its test without a database."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from decimal import Decimal
from pathlib import Path
from typing import Any

from txtopo import CommitterBolt, FileSpout, NewIds, Topology, TopologyBuilder, TransactionAttempt
from txtopo.bolts import (
    BatchCommitter,
    BatchOutputCollector,
    CommitCollector,
    CommitTransaction,
    Stream,
    TopologyContext,
    Tuple,
)
from txtopo.testing import MemoryTransaction, TopologyHarness

HIGHEST = """
insert into highest values (%s, %s) on conflict (article) do update set price = excluded.price
where excluded.price > highest.price returning price
"""


class Highest(BatchCommitter):
    """Keeps the highest price in a table, and emits those that are new."""

    result = ["article string", "price decimal(10,2)"]
    outputs = [Stream("article string, price decimal(10,2)")]

    def prepare(
        self,
        config: Mapping[str, Any],
        context: TopologyContext,
        collector: BatchOutputCollector,
        attempt: TransactionAttempt,
    ) -> None:
        self.collector = collector
        self.prices: dict[str, Decimal] = {}

    def execute(self, tup: Tuple) -> None:
        self.prices[tup["article"]] = max(tup["price"], self.prices.get(tup["article"], Decimal(0)))

    def finish_batch(self) -> None:
        for article, price in self.prices.items():
            self.collector.emit((article, price))

    def commit(self, transaction: CommitTransaction, rows: Sequence[Tuple], collector: CommitCollector) -> int:
        written = 0
        for row in rows:
            for (price,) in transaction.execute(HIGHEST, (row["article"], row["price"])):
                collector.emit((row["article"], price))
                written += 1
        return written


class Alarms(BatchCommitter):
    """A row for each new price."""

    def commit(self, transaction: CommitTransaction, rows: Sequence[Tuple], collector: CommitCollector) -> None:
        for row in rows:
            bound = {"txid": transaction.attempt.txid, **row.as_dict()}
            transaction.execute("insert into alarms values (%(txid)s, %(article)s, %(price)s)", bound)


def topology_of(folder: Path, first: CommitterBolt) -> Topology:
    """Orders, their highest prices, and alarms."""
    fields = "id bigint, article string, price decimal(10,2)"
    builder = TopologyBuilder("prices")
    builder.set_spout("orders", FileSpout(folder, fields))
    builder.set_committer_bolt("new", NewIds("order_id", "id", fields)).fields_grouping("orders", ["id"])
    builder.set_committer_bolt("first", first, parallelism_hint=2).fields_grouping("new", ["article"])
    builder.set_committer_bolt("alarms", Alarms()).global_grouping("first")
    return builder.build()


class Kept:
    """Takes what the collector is given."""

    def __init__(self) -> None:
        self.values: list[Sequence[Any]] = []

    def emit(self, values: Sequence[Any], stream: str = "default") -> None:
        self.values.append(values)


def test_an_alarm_has_the_txid(folder: Path) -> None:
    """The statements of the driver half, as they would go to Postgres."""
    transaction = MemoryTransaction("alarms", TransactionAttempt(7, 0))
    kept: CommitCollector = Kept()
    Alarms().commit(transaction, [], kept)
    assert transaction.statements == []

    (folder / "orders.csv").write_text("id,article,price\n1,tea,3.50\n")
    with TopologyHarness(topology_of(folder, Highest())) as harness:
        harness.stores.postgres.answers = lambda statement, values: [(1,)] if "returning" in statement.lower() else []
        harness.run()
        executed = harness.stores.postgres.executed
        assert {one.committer for one in executed} >= {"new"}
