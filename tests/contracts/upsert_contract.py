"""What every ledger must do with a committer that keeps the last row of each key, as tests to inherit: after any
history its table is what plain Python makes of the rows of the batches in effect.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import date
from typing import Any

import pyarrow as pa
import pytest

from tests.contracts.committer_contract import TableWorld
from tests.contracts.ledger_driver import Driver, lead_on
from txtopo import AppendCommitter, ReplaceCommitter, UpsertCommitter
from txtopo.core.fields import parse_fields
from txtopo.core.values import Aborted, Committed, CommitterResult, RunEnded, RunFailed
from txtopo.errors import Halted
from txtopo.spouts.arrow_types import arrow_schema
from txtopo.topology.components import CommitterComponent, Subscription

ORDERS = parse_fields("shop string, id bigint, changed date, step int, state string, gone boolean")
Row = tuple[Any, ...]
SAID, LOG = "public.orders", "public.orders_log"


def orders(**more: Any) -> CommitterComponent:
    """A committer of the last row of each order."""
    arguments = {"version": ["changed", "step"], "deleted": "gone", **more}
    bolt = UpsertCommitter("orders", ["shop", "id"], **arguments)
    bolt.check_fields(ORDERS)
    return CommitterComponent(name="orders", bolt=bolt, input=Subscription(source="spout"), fields=ORDERS)


def any_order(chance: random.Random) -> Row:
    """Few keys and few versions, so that batches share both; NULL in every field but the keys."""
    return (
        chance.choice(["a", "B", ""]),
        chance.choice([1, 2]),
        chance.choice([date(2026, 1, 1), date(2026, 1, 2), None]),
        chance.choice([1, 2, None]),
        chance.choice(["new", "paid", "", None]),
        chance.choice([False, False, True, None]),
    )


def ordered(rows: Sequence[Row]) -> CommitterResult:
    """What executors hand over."""
    schema = arrow_schema(ORDERS)
    columns = [pa.array([row[at] for row in rows], kind.type) for at, kind in enumerate(schema)]
    table = pa.Table.from_arrays(columns, schema=schema)
    return CommitterResult(committer="orders", arrived=len(rows), rows=table, row_count=len(rows), bytes=1)


def last_rows(live: Sequence[tuple[int, Sequence[Row]]]) -> set[Row]:
    """What the table has after these batches, each with its origin: read in order, a later row wins unless it is
    older.
    """
    kept: dict[Row, tuple[Any, Row]] = {}
    for origin, rows in live:
        for row in rows:
            version = [(value is not None, value) for value in row[2:4]]
            rank = (version, origin, [(value is None, value) for value in row])  # NULL last in the order of a batch
            if row[:2] not in kept or kept[row[:2]][0] < rank:
                kept[row[:2]] = rank, row
    return {row for _, row in kept.values() if not row[5]}


def table_of(world: TableWorld) -> set[Row]:
    """The rows of the table."""
    return {tuple(row[name] for name in ORDERS.names) for row in world.table(SAID)}


@dataclass
class Upserts:
    """Random steps of one topology, and the batches in effect."""

    driver: Driver
    chance: random.Random
    txid: int = 0
    live: dict[int, list[Row]] = field(default_factory=dict)
    origins: dict[int, int] = field(default_factory=dict)
    quarantined: list[int] = field(default_factory=list)

    def step(self) -> None:
        """One batch: new, or a redo of one that is in effect, or a redrive; applied or quarantined. Or a commit run."""
        if self.chance.random() < 0.2:
            self.run()
            return
        self.txid += 1
        candidates = [*self.live, *self.quarantined]
        redone = self.chance.choice(candidates) if candidates and self.chance.random() < 0.5 else None
        plan = self.driver.ready(self.txid) if redone is None else self.driver.redo(self.txid, redone)
        self.origins[self.txid] = self.txid if redone is None else self.origins[redone]
        if self.chance.random() < 0.15:
            assert isinstance(self.driver.quarantine(plan), Committed)
            if redone is None:
                self.quarantined.append(self.txid)
            return
        rows = [any_order(self.chance) for _ in range(self.chance.choice([0, 1, 2, 5]))]
        outcome = self.driver.commit(plan, results=(ordered(rows),))
        assert isinstance(outcome, Committed), outcome
        [count] = outcome.counts
        gone = 0 if redone is None else len(self.live.pop(redone, []))
        assert (count.counted, count.written, count.ignored, count.reversed) == (len(rows), len(rows), 0, gone)
        if redone in self.quarantined:
            self.quarantined.remove(redone)
        self.live[self.txid] = rows

    def run(self) -> None:
        """Two or three new batches in one database transaction; an empty one may be among them."""
        txids = range(self.txid + 1, self.txid + 1 + self.chance.choice([2, 3]))
        rows = {txid: [any_order(self.chance) for _ in range(self.chance.choice([0, 1, 3]))] for txid in txids}
        plans = self.driver.ready_run(txids[0], len(txids))
        ended = self.driver.commit_run(plans, {txid: {"results": (ordered(given),)} for txid, given in rows.items()})
        assert isinstance(ended, RunEnded), ended
        for (txid, given), outcome in zip(rows.items(), ended.outcomes, strict=True):
            assert isinstance(outcome, Committed), outcome
            [one] = outcome.counts
            assert (one.counted, one.written, one.ignored, one.reversed) == (len(given), len(given), 0, 0)
            self.live[txid] = given
            self.origins[txid] = txid
        self.txid = txids[-1]

    def expected(self) -> set[Row]:
        """What the table has."""
        return last_rows([(self.origins[txid], rows) for txid, rows in self.live.items()])


def days(**more: Any) -> CommitterComponent:
    """A committer of the last rows of each shop."""
    bolt = ReplaceCommitter("orders", partition="shop", **more)
    bolt.check_fields(ORDERS)
    return CommitterComponent(name="orders", bolt=bolt, input=Subscription(source="spout"), fields=ORDERS)


def of_last_batches(live: Sequence[tuple[int, Sequence[Row]]]) -> list[str]:
    """The rows that a table has which each of these batches, by origin, replaces shop by shop."""
    shops: dict[Any, list[Row]] = {}
    for _, rows in sorted(live, key=lambda one: one[0]):
        shops.update({shop: [row for row in rows if row[0] == shop] for shop in {row[0] for row in rows}})
    return sorted(repr(row) for rows in shops.values() for row in rows)


class UpsertContract:
    """`UPSERT_SEEDS` is how many histories a ledger is given."""

    UPSERT_SEEDS = 6

    def test_every_history_leaves_the_last_row_of_each_key(self, world: TableWorld) -> None:
        """Apply, redo, redo of a redo, quarantine, redrive, in random order; versions that come late, ties, deletes."""
        history = Upserts(lead_on(world, orders()), random.Random("histories"))
        for seed in range(self.UPSERT_SEEDS):
            history.chance = random.Random(seed)
            for _ in range(12):
                history.step()
                assert table_of(world) == history.expected(), f"seed {seed}, batch {history.txid}"

    def test_every_history_leaves_the_rows_of_the_last_batch_of_each_partition(self, world: TableWorld) -> None:
        """The same with whole partitions: equal rows are rows, and a redo without a partition brings the rows of the
        batch before back.
        """
        history = Upserts(lead_on(world, days()), random.Random("histories"))
        for seed in range(self.UPSERT_SEEDS):
            history.chance = random.Random(seed)
            for _ in range(12):
                history.step()
                found = sorted(repr(tuple(row[name] for name in ORDERS.names)) for row in world.table(SAID))
                live = [(history.origins[txid], rows) for txid, rows in history.live.items()]
                assert found == of_last_batches(live), f"seed {seed}, batch {history.txid}"

    def test_fields_may_be_called_like_anything_that_a_column_may(self, world: TableWorld) -> None:
        """Names are quoted, and none is taken for a placeholder."""
        fields = parse_fields('`{0} %s` bigint, place bigint, side bigint, number bigint, `a"b` bigint')
        table = pa.table([pa.array([1])] * 5, names=list(fields.names))
        for name, bolt in (
            ("orders", UpsertCommitter("orders", ["{0} %s", "place"], version="number")),
            ("parts", ReplaceCommitter("parts", partition="{0} %s")),
        ):
            bolt.check_fields(fields)
            component = CommitterComponent(name=name, bolt=bolt, input=Subscription(source="spout"), fields=fields)
            driver = lead_on(world, component)
            result = CommitterResult(committer=name, arrived=1, rows=table, row_count=1, bytes=1)
            plan = driver.ready(driver.claimed.last_txid + 1)
            assert isinstance(driver.commit(plan, results=(result,)), Committed)
            assert len(world.table(f"public.{name}")) == 1

    def test_a_redo_has_the_place_of_its_batch(self, world: TableWorld) -> None:
        """Without a version the later batch wins; a redo of the first one does not override the second."""
        driver = lead_on(world, orders(version=(), deleted=None))
        first, second, again = (("a", 1, None, None, state, None) for state in ("first", "second", "again"))
        for txid, row in ((1, first), (2, second)):
            assert isinstance(driver.commit(driver.ready(txid), results=(ordered([row]),)), Committed)
        assert isinstance(driver.commit(driver.redo(3, 1), results=(ordered([again]),)), Committed)
        assert table_of(world) == {second}
        assert isinstance(driver.commit(driver.redo(4, 2), results=(ordered([]),)), Committed)
        assert table_of(world) == {again}

    def test_a_row_that_comes_late_brings_no_deleted_key_back(self, world: TableWorld) -> None:
        """The log keeps the row that deleted it; a higher version does."""
        driver = lead_on(world, orders())
        rows = [("a", 1, None, step, "x", gone) for step, gone in ((5, True), (4, False), (6, None))]
        seen = []
        for txid, row in enumerate(rows, 1):
            assert isinstance(driver.commit(driver.ready(txid), results=(ordered([row]),)), Committed)
            seen.append(table_of(world))
        assert seen == [set(), set(), {rows[2]}]

    @pytest.mark.parametrize(
        ("rows", "why"),
        [
            ([("a", 1, None, None, "x", None), ("a", 1, None, None, "y", None)], "has 2 rows of key shop 'a', id 1"),
            ([("a", None, None, None, "x", None)], "key id is NULL in a row"),
            ([("a" * 2_657, 1, None, None, "x", None)], "key shop has 2,657 bytes"),
        ],
    )
    def test_a_batch_that_does_not_say_which_row_is_the_last_fails(
        self, world: TableWorld, rows: Sequence[Row], why: str
    ) -> None:
        """With words, as a fault of the data; nothing of it stays."""
        driver = lead_on(world, orders(version=()))
        outcome = driver.commit(driver.ready(1), results=(ordered(rows),))
        assert isinstance(outcome, Aborted)
        assert outcome.failure.kind == "data"
        assert why in outcome.failure.message
        assert table_of(world) == set() == {*world.table(LOG)}

    def test_a_run_with_a_row_that_cannot_be_stored_fails_and_leaves_nothing(self, world: TableWorld) -> None:
        """R25: the batches are committed one by one afterwards, and the one at fault fails by itself."""
        driver = lead_on(world, orders(version=()))
        row, bad = ("a", 1, None, None, "x", None), ("a", None, None, None, "x", None)
        results = {1: (ordered([row]),), 2: (ordered([bad]),)}
        plans = driver.ready_run(1, 2)

        ended = driver.commit_run(plans, {txid: {"results": one} for txid, one in results.items()})

        assert isinstance(ended, RunFailed)
        assert "key id is NULL in a row" in ended.message
        assert table_of(world) == set() == {*world.table(LOG)}
        assert isinstance(driver.commit(plans[0], results=results[1]), Committed)
        assert isinstance(driver.commit(plans[1], results=results[2]), Aborted)

    def test_a_table_that_is_not_plain_allows_no_runs(self, world: TableWorld) -> None:
        """R20: the table and its log; read again under the locks."""
        driver = lead_on(world, orders())
        assert driver.ledger.single_commits(driver.committers) is None
        results = {txid: {"results": (ordered([("a", txid, None, None, "x", None)]),)} for txid in (1, 2)}
        world.add_check("orders_log", "n >= 0")
        plans = driver.ready_run(1, 2)

        ended = driver.commit_run(plans, results)

        assert isinstance(ended, RunFailed)
        assert ended.off is not None
        assert "orders_log" in ended.off
        assert "orders_log" in (driver.ledger.single_commits(driver.committers) or "")
        assert table_of(world) == set()

    def test_rows_of_the_log_that_were_deleted_by_hand_stop_a_redo(self, world: TableWorld) -> None:
        """What a redo takes away is what the ledger recorded."""
        driver = lead_on(world, orders())
        row = ("a", 1, None, 1, "x", None)
        assert isinstance(driver.commit(driver.ready(1), results=(ordered([row]),)), Committed)
        world.forget(LOG, 1, 1)
        outcome = driver.commit(driver.redo(2, 1), results=(ordered([row]),))
        assert isinstance(outcome, Aborted)
        assert "batch 1 recorded 1 contributions, but 0 exist" in outcome.failure.message

    def test_a_table_of_last_rows_belongs_to_one_committer(self, world: TableWorld) -> None:
        """As any target."""
        lead_on(world, orders())
        other = CommitterComponent(name="others", bolt=orders().bolt, input=Subscription(source="spout"), fields=ORDERS)
        with pytest.raises(Halted, match=r"table public\.orders belongs to committer orders of topology flights"):
            lead_on(world, other)

    def test_a_log_belongs_to_one_committer(self, world: TableWorld) -> None:
        """Another topology may have named its table so, with all columns of a log."""
        fields = parse_fields(f"origin bigint, {ORDERS.ddl}")
        bolt = AppendCommitter("orders_log")
        rows = CommitterComponent(name="rows", bolt=bolt, input=Subscription(source="spout"), fields=fields)
        lead_on(world, rows, topology="archive")
        with pytest.raises(Halted, match=r"table public\.orders_log belongs to committer rows of topology archive"):
            lead_on(world, orders())
