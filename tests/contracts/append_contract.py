"""What every ledger must do with a committer of rows, as tests to inherit: after any history its table has the rows of
the batches in effect, each once, under its own batch.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest

from tests.contracts.committer_contract import TableWorld
from tests.contracts.ledger_driver import Driver, committer, die_at, lead_on
from txtopo import AppendCommitter
from txtopo.core import crash_points
from txtopo.core.crash_points import CrashPoint
from txtopo.core.fields import parse_fields
from txtopo.core.values import Aborted, AlreadyCommitted, Committed, CommitterResult, RunEnded
from txtopo.errors import Halted
from txtopo.spouts.arrow_types import arrow_schema
from txtopo.topology.components import CommitterComponent, Subscription

VISITS = parse_fields(
    "who string, page string not null, at timestamp, local timestamp_ntz, day date, paid boolean, n8 tinyint, "
    "n64 bigint, price decimal(10,2), ratio double, small float, raw binary"
)
Row = tuple[Any, ...]
SAID = "public.visits"


def visits(table: str = "visits", name: str = "visits") -> CommitterComponent:
    """A committer of rows of every type."""
    bolt = AppendCommitter(table)
    bolt.check_fields(VISITS)
    return CommitterComponent(name=name, bolt=bolt, input=Subscription(source="spout"), fields=VISITS)


def any_row(chance: random.Random) -> Row:
    """Hostile values, and few of them, so that rows are often the same."""
    choices: Sequence[Sequence[Any]] = [
        ["", None, "a", "NULL", "\\N", "\\.", ' "q", \n\r\t', "é\U0001f600"],
        ["", "/", ","],
        [datetime(1, 1, 1, tzinfo=UTC), datetime(9999, 12, 31, 23, 59, 59, 999999, tzinfo=UTC), None],
        [datetime(2026, 3, 29, 2, 30), datetime(1969, 12, 31, 23, 59, 59, 999999), None],
        [date(1, 1, 1), date(9999, 12, 31), None],
        [True, False, None],
        [-128, 127, None],
        [-(2**63), 2**63 - 1, None],
        [Decimal("-99999999.99"), Decimal("0.00"), None],
        [0.1, float("inf"), -0.0, 1e-300, None],
        [-3.0, float("-inf"), 0.5, None],
        [b"", b"\0\xff\\x", None],
    ]
    return tuple(chance.choice(values) for values in choices)


def appended(rows: Sequence[Row], name: str = "visits", **wrong: Any) -> CommitterResult:
    """What executors hand over; `wrong` overrides a number."""
    schema = arrow_schema(VISITS)
    columns = [pa.array([row[at] for row in rows], kind.type) for at, kind in enumerate(schema)]
    numbers = {"arrived": len(rows), "row_count": len(rows), **wrong}
    table = pa.Table.from_arrays(columns, schema=schema)
    return CommitterResult(committer=name, rows=table, bytes=1, **numbers)


def spelled(values: Sequence[Any]) -> str:
    """A row as text, the same from a store in memory and from a server."""
    plain = [bytes(value) if isinstance(value, memoryview) else value for value in values]
    return repr([value.isoformat() if isinstance(value, date) else value for value in plain])


def stored(world: TableWorld) -> dict[int, list[str]]:
    """The rows by batch, each as text, in the order of their numbers, which must be 1, 2, …"""
    found: dict[int, dict[int, str]] = {}
    for row in world.table(SAID):
        txid, _, number, *values = row.values()
        of_batch = found.setdefault(txid, {})
        assert number not in of_batch
        of_batch[number] = spelled(values)
    for numbers in found.values():
        assert sorted(numbers) == list(range(1, len(numbers) + 1))
    return {txid: [rows[number] for number in sorted(rows)] for txid, rows in found.items()}


@dataclass
class Appends:
    """Random steps of one topology, and the batches in effect."""

    driver: Driver
    chance: random.Random
    txid: int = 0
    live: dict[int, list[Row]] = field(default_factory=dict)
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
        if self.chance.random() < 0.15:
            assert isinstance(self.driver.quarantine(plan), Committed)
            if redone is None:
                self.quarantined.append(self.txid)
            return
        rows = [any_row(self.chance) for _ in range(self.chance.choice([0, 1, 2, 5]))]
        outcome = self.driver.commit(plan, results=(appended(rows),))
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
        rows = {txid: [any_row(self.chance) for _ in range(self.chance.choice([0, 1, 3]))] for txid in txids}
        plans = self.driver.ready_run(txids[0], len(txids))
        ended = self.driver.commit_run(plans, {txid: {"results": (appended(given),)} for txid, given in rows.items()})
        assert isinstance(ended, RunEnded), ended
        for (txid, given), outcome in zip(rows.items(), ended.outcomes, strict=True):
            assert isinstance(outcome, Committed), outcome
            [one] = outcome.counts
            assert (one.counted, one.written, one.ignored, one.reversed) == (len(given), len(given), 0, 0)
            self.live[txid] = given
        self.txid = txids[-1]

    def expected(self) -> dict[int, list[str]]:
        """What the table has, the rows of a batch in any order."""
        return {txid: sorted(map(spelled, rows)) for txid, rows in self.live.items() if rows}


class AppendContract:
    """`APPEND_SEEDS` is how many histories a ledger is given."""

    APPEND_SEEDS = 4

    def test_every_history_leaves_the_rows_of_the_batches_in_effect(self, world: TableWorld) -> None:
        """Apply, redo, redo of a redo, quarantine, redrive, in random order; every type, and values that are hard to
        spell.
        """
        history = Appends(lead_on(world, visits()), random.Random("histories"))
        for seed in range(self.APPEND_SEEDS):
            history.chance = random.Random(seed)
            for _ in range(12):
                history.step()
                found = {txid: sorted(rows) for txid, rows in stored(world).items()}
                assert found == history.expected(), f"seed {seed}, batch {history.txid}"

    def test_rows_have_the_same_numbers_in_whatever_order_tasks_sent_them(self, world: TableWorld) -> None:
        """So a batch that is processed again has the same digest; another row, or one more, has another."""
        driver = lead_on(world, visits())
        rows = [any_row(random.Random(seed)) for seed in range(8)]
        digests = []
        orders = (rows, rows[::-1], [*rows, rows[0]], rows[1:])
        for txid, given in enumerate(orders, 1):
            outcome = driver.commit(driver.ready(txid), results=(appended(given),))
            assert isinstance(outcome, Committed)
            digests.append(outcome.counts[0].digest)
        together = {txid: {"results": (appended(given),)} for txid, given in enumerate(orders, 5)}
        ended = driver.commit_run(driver.ready_run(5, 4), together)

        assert isinstance(ended, RunEnded)
        assert [one.counts[0].digest for one in ended.outcomes if isinstance(one, Committed)] == digests
        found = stored(world)
        assert found[1] == found[2] == found[5] == found[6]
        assert digests[0] == digests[1]
        assert len({*digests}) == 3

    def test_rows_are_there_with_their_batch_or_not_at_all(
        self, world: TableWorld, listen: Callable[[crash_points.Listener], None]
    ) -> None:
        """Whenever the driver dies, and however often the commit is tried; the columns in front name the attempt."""
        driver = lead_on(world, visits(), committer())
        plan, row = driver.ready(1), any_row(random.Random(1))
        results = (appended([row]), driver.processed(1).results[1])
        die_at(listen, CrashPoint.BEFORE_COMMIT)
        with pytest.raises(KeyboardInterrupt):
            driver.commit(plan, results=results)
        crash_points.listen(None)
        assert world.table(SAID) == []

        driver.begin(1, 1)
        assert isinstance(driver.commit(plan, results=results, attempt=1), Committed)
        assert driver.commit(plan, results=results, attempt=1) == AlreadyCommitted(txid=1)

        [only] = world.table(SAID)
        assert list(only)[:3] == ["txid", "attempt", "n"]
        assert (only["txid"], only["attempt"], only["n"]) == (1, 1, 1)

    def test_rows_that_are_missing_fail_the_batch(self, world: TableWorld) -> None:
        """I6: as many tuples arrived as there are rows; nothing of such a batch stays."""
        driver = lead_on(world, visits())
        rows = [any_row(random.Random(seed)) for seed in range(2)]

        outcome = driver.commit(driver.ready(1), results=(appended(rows, arrived=3),))

        assert isinstance(outcome, Aborted)
        assert "3 tuples arrived, the rows applied count 2" in outcome.failure.message
        assert world.table(SAID) == []

    def test_text_that_postgres_cannot_hold_fails_the_batch(self, world: TableWorld) -> None:
        """P14: with a message, and as a fault of the data."""
        driver = lead_on(world, visits())
        row = ("a\0b", *any_row(random.Random(0))[1:])

        outcome = driver.commit(driver.ready(1), results=(appended([row]),))

        assert isinstance(outcome, Aborted)
        assert outcome.failure.kind == "data"
        assert "its rows do not fit the table" in outcome.failure.message
        assert world.table(SAID) == []

    def test_a_batch_whose_rows_were_deleted_by_hand_is_not_redone(self, world: TableWorld) -> None:
        """What a redo takes away is what the ledger recorded, or it stops."""
        driver = lead_on(world, visits())
        rows = [any_row(random.Random(seed)) for seed in range(2)]
        assert isinstance(driver.commit(driver.ready(1), results=(appended(rows),)), Committed)
        world.forget(SAID, 1, 2)

        outcome = driver.commit(driver.redo(2, 1), results=(appended(rows),))

        assert isinstance(outcome, Aborted)
        assert "batch 1 recorded 2 contributions, but 1 exist" in outcome.failure.message

    def test_a_table_belongs_to_one_committer(self, world: TableWorld) -> None:
        """Two would mix their rows under one batch."""
        lead_on(world, visits())
        with pytest.raises(Halted, match=r"table public\.visits belongs to committer visits of topology flights"):
            lead_on(world, visits(name="others"))
        with pytest.raises(Halted, match=r"writes to public\.visits and cannot change to public\.elsewhere"):
            lead_on(world, visits("elsewhere"))
