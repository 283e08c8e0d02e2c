"""What every committer that keeps contributions must do, as tests to inherit: after any history its table is what a
rebuild from the batches in effect would be. The model is plain Python over tuples, and knows nothing of folds.
"""

from __future__ import annotations

import random
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Any, Protocol

import pyarrow as pa
import pytest

from tests.contracts.ledger_driver import Driver, LedgerWorld, lead_on
from txtopo import AggregateCommitter
from txtopo.core.fields import parse_fields
from txtopo.core.values import Committed, CommitterResult, RunEnded
from txtopo.spouts.arrow_types import arrow_schema
from txtopo.topology.components import CommitterComponent, Subscription

Tuple = dict[str, Any]
Rows = dict[tuple[Any, ...], tuple[Any, ...]]
FIELDS = parse_fields(
    "shop string, day date, pieces int, price decimal(10,2), name string, sold timestamp, paid boolean, big bigint"
)
KEYS = ("shop", "day")
TABLE = "sales"
MEASURES = ("pieces", "price", "name", "sold", "paid", "big")


class TableWorld(LedgerWorld, Protocol):
    """A store whose tables can be read with all columns."""

    def table(self, name: str) -> list[dict[str, Any]]:
        """The rows of a target, by column."""

    def forget(self, name: str, txid: int, number: int) -> None:
        """Delete a row of a table of rows, behind the ledger's back."""


def sales(*, averages: bool = False, **more: Any) -> CommitterComponent:
    """A committer with every aggregate."""
    bolt = AggregateCommitter(
        TABLE,
        KEYS,
        sums={"pieces": "pieces", "price": "taken"},
        averages={"price": "price_avg"} if averages else {},
        mins={name: f"{name}_min" for name in MEASURES},
        maxs={name: f"{name}_max" for name in MEASURES},
        **more,
    )
    bolt.check_fields(FIELDS)
    return CommitterComponent(name="sales", bolt=bolt, input=Subscription(source="spout"), fields=FIELDS)


def any_tuple(chance: random.Random) -> Tuple:
    """Few keys, so that batches share them; few values, so that several batches hold the same minimum; NULL in all."""
    values: dict[str, Sequence[Any]] = {
        "shop": ["a", "b", None],
        "day": [date(2026, 1, 1), date(2026, 1, 2), None],
        "pieces": [*range(-3, 4), None],
        "price": [Decimal("0.00"), Decimal("-1.50"), Decimal("99999999.99"), Decimal("1.05"), None],
        "name": ["", "Z", "a", "é", "\U0001f600", "\uffff", "a b", None],
        "sold": [datetime(2026, 1, 1, hour, tzinfo=UTC) for hour in range(5)] + [None],
        "paid": [True, False, None],
        "big": [2**63 - 1, -(2**63), 0, None],
    }
    return {name: chance.choice(choices) for name, choices in values.items()}


def rebuilt(tuples: Iterable[Tuple], *, averages: bool = False) -> Rows:
    """What a table holds that only ever saw these tuples."""
    groups: dict[tuple[Any, ...], list[Tuple]] = {}
    for one in tuples:
        groups.setdefault(tuple(one[key] for key in KEYS), []).append(one)
    return {key: tuple(_aggregated(group, averages)) for key, group in groups.items()}


def _aggregated(group: Sequence[Tuple], averages: bool) -> Iterable[Any]:
    def present(name: str) -> list[Any]:
        return [one[name] for one in group if one[name] is not None]

    yield len(group)
    yield sum(present("pieces"))
    yield sum(present("price"))
    if averages:
        yield sum(present("price"))
        yield len(present("price"))
    for choose in (min, max):
        for name in MEASURES:
            # The order of texts is that of their bytes.
            found = sorted(present(name), key=lambda value: value.encode() if isinstance(value, str) else value)
            yield None if not found else found[0 if choose is min else -1]


def result_of(component: CommitterComponent, tuples: Sequence[Tuple]) -> CommitterResult:
    """What executors would hand over of these tuples."""
    schema = arrow_schema(component.result_fields)
    averages = bool(component.bolt_as(AggregateCommitter).averages)
    rows = [(*key, *numbers) for key, numbers in rebuilt(tuples, averages=averages).items()]
    columns = list(zip(*rows, strict=True)) or [()] * len(schema)
    arrays = [
        pa.array([Decimal(v) if pa.types.is_decimal(kind.type) and v is not None else v for v in column], kind.type)
        for column, kind in zip(columns, schema, strict=True)
    ]
    table = pa.Table.from_arrays(arrays, schema=schema)
    return CommitterResult(committer="sales", arrived=len(tuples), rows=table, row_count=len(rows), bytes=1)


@dataclass
class History:
    """Random steps of one topology, and the batches in effect."""

    driver: Driver
    component: CommitterComponent
    chance: random.Random
    txid: int = 0
    live: dict[int, list[Tuple]] = field(default_factory=dict)
    """txid -> its tuples, of the applied batches that no other one has taken back."""
    quarantined: list[int] = field(default_factory=list)

    def tuples(self) -> list[Tuple]:
        return [any_tuple(self.chance) for _ in range(self.chance.choice([0, 1, 2, 3, 8]))]

    def results(self, tuples: list[Tuple]) -> dict[str, Any]:
        return {"results": (result_of(self.component, tuples),)}

    def step(self) -> None:
        """One batch: new, or a redo of one that is in effect, or a redrive; applied or quarantined."""
        self.txid += 1
        redone = None
        candidates = [*self.live, *self.quarantined]
        if candidates and self.chance.random() < 0.5:
            redone = self.chance.choice(candidates)
        plan = self.driver.ready(self.txid) if redone is None else self.driver.redo(self.txid, redone)
        if self.chance.random() < 0.15:
            assert isinstance(self.driver.quarantine(plan), Committed)
            if redone is None:
                self.quarantined.append(self.txid)
            return
        tuples = self.tuples()
        outcome = self.driver.commit(plan, **self.results(tuples))
        assert isinstance(outcome, Committed), outcome
        if redone is not None:
            self.live.pop(redone, None)
            if redone in self.quarantined:
                self.quarantined.remove(redone)
        self.live[self.txid] = tuples

    def run(self, length: int) -> None:
        """Several new batches in one database transaction."""
        plans = self.driver.ready_run(self.txid + 1, length)
        made = {plan.txid: self.tuples() for plan in plans}
        ended = self.driver.commit_run(plans, {txid: self.results(tuples) for txid, tuples in made.items()})
        assert isinstance(ended, RunEnded) and all(isinstance(one, Committed) for one in ended.outcomes), ended
        self.live.update(made)
        self.txid += length

    def expected(self) -> Rows:
        averages = bool(self.component.bolt_as(AggregateCommitter).averages)
        return rebuilt((one for tuples in self.live.values() for one in tuples), averages=averages)


def rows_of(world: TableWorld, component: CommitterComponent) -> Rows:
    """The table as the model has it."""
    bolt = component.bolt_as(AggregateCommitter)
    names = [bolt.count, *(one.column for one in bolt.aggregates)]
    return {
        tuple(row[key] for key in KEYS): tuple(row[name] for name in names) for row in world.table(f"public.{TABLE}")
    }


class CommitterContract:
    """`SEEDS` is how many histories a ledger is given."""

    SEEDS = 6
    STEPS = 12

    def test_every_history_leaves_what_a_rebuild_would(self, world: TableWorld) -> None:
        """Apply, redo, redo of a redo, quarantine, redrive, commit runs, in random order."""
        component = sales()
        driver = lead_on(world, component)
        history = History(driver, component, random.Random("histories"))
        for seed in range(self.SEEDS):
            history.chance = random.Random(seed)
            for _ in range(self.STEPS):
                if history.chance.random() < 0.2:
                    history.run(history.chance.choice([2, 3]))
                else:
                    history.step()
                assert rows_of(world, component) == history.expected(), f"seed {seed}, batch {history.txid}"

    def test_averages_are_those_of_the_batches_in_effect(self, world: TableWorld) -> None:
        """Sum and number of values are taken back like any sum; nothing was added to a quotient. So a commit run leaves
        what its batches one by one would have left (R20).
        """
        component = sales(averages=True)
        driver = lead_on(world, component)
        assert driver.ledger.single_commits(driver.committers) is None
        history = History(driver, component, random.Random(1))
        for at in range(self.STEPS):
            if at % 4 == 3:
                history.run(3)
            else:
                history.step()
            assert rows_of(world, component) == history.expected(), f"batch {history.txid}"

    def test_a_minimum_that_was_taken_back_gives_way_to_the_next_one(self, world: TableWorld) -> None:
        """Also where another batch held the same value, and where the batch held none."""
        component = sales()
        driver = lead_on(world, component)
        history = History(driver, component, random.Random(0))
        base = {**dict.fromkeys(FIELDS.names), "shop": "a", "day": date(2026, 1, 1)}
        for txid, pieces in enumerate((3, 1, 1, None), 1):
            tuples = [{**base, "pieces": pieces}]
            assert isinstance(driver.commit(driver.ready(txid), **history.results(tuples)), Committed)
        low = []
        for txid, redone in enumerate((2, 3, 1), 5):
            assert isinstance(driver.commit(driver.redo(txid, redone), **history.results([])), Committed)
            [row] = world.table(f"public.{TABLE}")
            low.append((row["count"], row["pieces_min"], row["pieces_max"]))

        assert low == [(3, 1, 3), (2, 3, 3), (1, None, None)]

    @pytest.mark.parametrize("name", ["paid", "name"])
    def test_the_model_orders_texts_by_bytes_and_ignores_null(self, name: str) -> None:
        """The model itself: one look at what it is compared with."""
        given = [None, True] if name == "paid" else ["é", "z"]
        [values] = rebuilt({**dict.fromkeys(FIELDS.names), name: value} for value in given).values()
        at = 3 + MEASURES.index(name)
        assert (values[at], values[at + len(MEASURES)]) == ((True, True) if name == "paid" else ("z", "é"))
