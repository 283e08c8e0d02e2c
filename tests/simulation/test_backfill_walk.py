"""A committer that was added later is filled, on memory stores: whoever dies, each batch is counted into it once, and
into nothing else.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path

import pytest

from tests.kit.applications import orders_topology
from tests.kit.orders import recount, write_orders
from txtopo.committers.aggregate_committer import AggregateCommitter
from txtopo.committers.count_committer import CountCommitter
from txtopo.committers.replace_committer import ReplaceCommitter
from txtopo.core.events import End
from txtopo.core.state import Rules, State
from txtopo.core.values import OrderKind, TransactionAttempt
from txtopo.errors import BatchDataError, Halted
from txtopo.ports import Executor
from txtopo.testing.inprocess import InProcessExecutor
from txtopo.testing.simulated import KillAt, Killed, SimulatedDriver, SimulatedStores
from txtopo.topology.committer_bolt import CommitterBolt
from txtopo.topology.components import Topology

FILES = 4
BY_SHOP = CountCommitter("shop_totals", ["shop"], count="rows", sums=["pieces"])


def with_committer(folder: Path, bolt: CommitterBolt = BY_SHOP, name: str = "by_shop") -> Topology:
    """The topology with one more committer, which reads what the first reads."""
    topology = orders_topology(folder)
    added = replace(topology.committers[0], name=name, bolt=bolt)
    return replace(topology, committers=(*topology.committers, added))


@dataclass
class Story:
    """One topology over one folder: its files are counted, then a committer is added."""

    folder: Path
    stores: SimulatedStores = field(default_factory=SimulatedStores)
    seed: int = 1
    watch: Callable[[State], None] | None = None
    said: list[str] = field(default_factory=list)
    files: int = FILES
    first: Topology | None = None

    def __post_init__(self) -> None:
        write_orders(self.folder, self.files, rows=4)
        assert self.drive(self.first or orders_topology(self.folder)).kind == "finished"

    def drive(
        self,
        topology: Topology | None = None,
        *,
        cut: bool = True,
        bad: int | None = None,
        rules: Rules | None = None,
    ) -> End:
        """One driver's life; with `bad` code that fails on this batch."""
        self.seed += 1

        def refuse(attempt: TransactionAttempt) -> None:
            if attempt.txid == bad:
                raise BatchDataError("bolt.py:7: ValueError: poison", component="bolt")

        def executor(topology: Topology, code_hash: bytes) -> Executor:
            return InProcessExecutor(topology, code_hash, faults=refuse)

        driver = SimulatedDriver(
            topology=topology or with_committer(self.folder),
            stores=self.stores,
            seed=self.seed,
            cut=cut,
            make_executor=executor,
            rules=rules or Rules(workers=2, attempts_max=1),
        )
        if self.watch is not None:
            driver.watch = self.watch
        try:
            return driver.run()
        finally:
            self.said += driver.said

    def ask(self, committer: str = "by_shop") -> int:
        return self.stores.postgres.ask("orders", "backfill", (), "because", committer)

    def redo(self, kind: OrderKind, *txids: int) -> int:
        return self.stores.postgres.ask("orders", kind, txids, "because")

    def answer(self, order_id: int) -> tuple[str, str | None]:
        row = self.stores.postgres.orders[order_id][1]
        return row.state, row.answer

    @property
    def filled(self) -> dict[int, int]:
        """Applied backfill by the batch that it counts."""
        rows = self.stores.postgres.topologies["orders"].ledger
        found = [
            (row.backfills, txid) for txid, row in sorted(rows.items()) if row.backfills and row.state == "applied"
        ]
        assert len(found) == len(dict(found)), f"a batch was counted twice: {found}"
        return {batch: txid for batch, txid in found if batch is not None}

    @property
    def totals(self) -> dict[str | None, int]:
        return {key[0]: int(row[0]) for key, row in self.stores.postgres.tables["public.order_totals"].items()}


def by_shop(story: Story) -> dict[str | None, int]:
    """What the added committer has counted."""
    return {key[0]: int(row[0]) for key, row in story.stores.postgres.tables["public.shop_totals"].items()}


def expected(folder: Path) -> dict[str | None, int]:
    """Orders by shop, recounted from the files."""
    found: Counter[str | None] = Counter()
    for (shop, _), (rows, _, _) in recount(folder).items():
        found[shop] += rows
    return dict(found)


def check_first(story: Story) -> None:
    """The first committer has counted each order once, as if nothing had been filled."""
    found: Counter[str | None] = Counter()
    for (shop, _), row in story.stores.postgres.tables["public.order_totals"].items():
        found[shop] += int(row[0])
    assert dict(found) == expected(story.folder)


def test_each_batch_is_counted_once_wherever_the_leader_dies(tmp_path: Path) -> None:
    """R32: two leaders in a row die at every step, a third one ends the order; new input comes meanwhile."""
    for nth in range(1, 400):
        story = Story(tmp_path / f"{nth}", files=2)
        write_orders(story.folder, 1, rows=2, first=3)
        order_id = story.ask()
        end: End | None = None
        with KillAt(nth) as kill:
            try:
                end = story.drive()
            except Killed:
                pass
        if end is None:
            with KillAt(1 + nth % 11):
                try:
                    story.drive()
                except Killed:
                    pass
        assert story.drive().kind == "finished"
        assert sorted(story.filled) == [1, 2]
        assert by_shop(story) == expected(story.folder)
        check_first(story)
        assert story.answer(order_id)[0] == "done"
        assert sum(row.action.command == "backfill" for row in story.stores.postgres.actions) == 2
        if end is not None:
            assert kill.killed_at is None
            assert story.answer(order_id) == ("done", "2 batches counted into by_shop")
            return
    raise AssertionError("the story never came to its end")


def test_a_backfill_twice_counts_once(tmp_path: Path) -> None:
    story = Story(tmp_path / "orders")
    orders = [story.ask(), story.ask()]

    story.drive()

    assert len(story.filled) == FILES
    assert by_shop(story) == expected(story.folder)
    assert [story.answer(one)[0] for one in orders] == ["done", "done"]
    again = story.ask()
    story.drive(cut=False)
    assert story.answer(again) == ("done", "by_shop has counted every batch")


def test_an_order_is_answered_when_the_backfills_of_another_one_are_committed(tmp_path: Path) -> None:
    """What is planned already is not found again, and may still fail."""
    story = Story(tmp_path / "orders")
    orders = [story.ask(), story.ask()]
    early: list[int] = []

    def act(state: State) -> None:
        planned = [batch.plan.txid for batch in state.batches.values() if batch.plan.backfills is not None]
        early.extend(txid for txid in planned if story.answer(orders[1])[0] != "open")

    story.watch = act
    story.drive()

    assert early == []
    assert [story.answer(one)[0] for one in orders] == ["done", "done"]


def test_a_batch_that_is_redone_meanwhile_is_counted_once(tmp_path: Path) -> None:
    """Before its backfill, with it, or afterwards: a redo counts into all committers and removes what the backfill
    brought.
    """
    story = Story(tmp_path / "orders")
    story.drive()  # the committer is there
    path = story.folder / "order_0001.csv"
    path.write_text(path.read_text() + "9,shop 9,a9,5,1.25\n")
    first = story.redo("recompute", 1)
    order_id = story.ask()

    story.drive(cut=False)

    assert story.answer(first)[0] == story.answer(order_id)[0] == "done"
    assert 1 not in story.filled  # its redo has counted it
    assert by_shop(story) == expected(story.folder)
    other = story.folder / "order_0002.csv"
    other.write_text(other.read_text() + "9,shop 9,a9,5,1.25\n")
    story.redo("recompute", 2, 1)
    story.drive(cut=False)
    assert by_shop(story) == expected(story.folder)
    check_first(story)
    story.redo("recompute", 2)
    story.drive(cut=False)
    assert by_shop(story) == expected(story.folder)
    check_first(story)


def test_a_backfill_behind_an_open_redo_counts_nothing(tmp_path: Path) -> None:
    """Both are planned when the redo commits: the ledger decides under its lock."""
    story = Story(tmp_path / "orders")
    story.drive()
    orders: list[int] = []

    def act(state: State) -> None:
        if not orders:
            orders.extend([story.ask(), story.redo("recompute", 4)])

    story.watch = act
    story.drive()

    assert by_shop(story) == expected(story.folder)
    check_first(story)
    assert [story.answer(one)[0] for one in orders] == ["done", "done"]


def test_a_backfill_is_neither_redone_nor_recomputed(tmp_path: Path) -> None:
    """It would count its input into the other committers again."""
    story = Story(tmp_path / "orders")
    story.ask()
    story.drive()
    txid = story.filled[1]
    order_id = story.redo("recompute", txid)

    story.drive(cut=False)

    assert story.answer(order_id) == ("refused", f"batch {txid} is a backfill of batch 1: recompute that one")
    check_first(story)


def test_a_batch_whose_input_has_changed_or_is_missing_is_named_and_the_others_are_counted(tmp_path: Path) -> None:
    """Both committers would have counted different batches; a recompute counts it into all."""
    story = Story(tmp_path / "orders")
    story.drive()
    path = story.folder / "order_0002.csv"
    before = expected(story.folder)
    path.write_text(path.read_text().replace("a1", "a7"))
    (story.folder / "order_0003.csv").rename(tmp_path / "away.csv")
    order_id = story.ask()

    story.drive(cut=False)

    state, words = story.answer(order_id)
    assert state == "refused" and words is not None
    assert words.startswith("2 batches counted into by_shop; batch 2 is not counted: ")
    assert "order_0002.csv has changed since the batch was committed" in words
    assert "batch 3 is not counted: " in words and "order_0003.csv" in words
    assert sorted(story.filled) == [1, 4]
    (tmp_path / "away.csv").rename(story.folder / "order_0003.csv")
    path.write_text(path.read_text().replace("a7", "a1"))
    again = story.ask()
    story.drive(cut=False)
    assert story.answer(again) == ("done", "2 batches counted into by_shop")
    assert by_shop(story) == before


def test_a_batch_that_fails_in_its_backfill_is_tried_again_by_another_order_only(tmp_path: Path) -> None:
    """It is quarantined by the policy; this order ends and names it, also under another leader."""
    story = Story(tmp_path / "orders")
    story.drive()
    order_id = story.ask()
    rules = Rules(workers=2, attempts_max=1, on_poison="quarantine_batch")

    story.drive(cut=False, bad=FILES + 2, rules=rules)

    state, words = story.answer(order_id)
    assert state == "refused" and words is not None
    assert f"batch 2 is not counted: its backfill, batch {FILES + 2}, is quarantined: " in words
    assert sorted(story.filled) == [1, 3, 4]
    again = story.ask()
    story.drive(cut=False)
    assert story.answer(again) == ("done", "1 batch counted into by_shop")
    assert by_shop(story) == expected(story.folder)


def test_what_cannot_be_filled_is_refused_with_the_reason(tmp_path: Path) -> None:
    story = Story(tmp_path / "orders")
    bolt = AggregateCommitter("shop_totals", ["shop"], contributions=False)
    orders = [story.ask("nobody"), story.ask("by_shop")]

    story.drive(with_committer(story.folder, bolt))

    assert story.answer(orders[0]) == (
        "refused",
        "0 batches counted into nobody; the topology has no committer nobody; it has totals, by_shop",
    )
    assert "cannot be filled: contributions=False keeps nothing" in str(story.answer(orders[1])[1])
    assert not story.filled


@pytest.mark.parametrize("pending", [2, 8])
def test_new_input_never_waits_for_a_long_backfill(tmp_path: Path, pending: int) -> None:
    """It is asked for after each backfill: those before it are few, and there are no two in a row until it ends."""
    story = Story(tmp_path / "orders", files=8)
    story.drive()
    story.ask()
    write_orders(story.folder, 9, rows=2, first=9)

    story.drive(rules=Rules(workers=1, attempts_max=1, spout_pending_max=pending))

    rows = story.stores.postgres.topologies["orders"].ledger
    kinds = "".join("b" if row.backfills is not None else "i" for txid, row in sorted(rows.items()) if txid > 8)
    assert kinds.count("b") == 8
    assert kinds.index("i") <= 5 and "bb" not in kinds.strip("b"), kinds
    assert by_shop(story) == expected(story.folder)


def test_the_source_continues_where_it_was_after_a_backfill(tmp_path: Path) -> None:
    """The last batch in the ledger is a backfill when the next leader plans new input."""
    story = Story(tmp_path / "orders")
    story.ask()
    story.drive()
    write_orders(story.folder, 2, rows=4, first=FILES + 1)

    story.drive()

    assert by_shop(story) == expected(story.folder)
    check_first(story)


def test_a_planned_backfill_whose_committer_was_removed_halts(tmp_path: Path) -> None:
    """Nothing else could be done with its plan; with the committer back it is committed."""
    story = Story(tmp_path / "orders")
    story.drive()
    order_id = story.ask()
    assert story.drive(cut=False, bad=FILES + 2).kind == "halted"

    with pytest.raises(
        Halted, match="is planned to count batch 2 into committer by_shop, which the topology no longer"
    ):
        story.drive(orders_topology(story.folder))

    story.drive(cut=False)
    assert story.answer(order_id)[0] == "done"
    assert by_shop(story) == expected(story.folder)


def test_a_filled_row_has_the_place_of_its_batch(tmp_path: Path) -> None:
    """The rows of the last batch of each article, by a committer that was there from the start and by one that was
    added: a backfill of an older batch replaces nothing.
    """
    folder = tmp_path / "orders"
    early = with_committer(folder, ReplaceCommitter("early", partition="article"), "early")
    late = with_committer(folder, ReplaceCommitter("late", partition="article"), "late")
    both = replace(early, committers=(*early.committers, late.committers[-1]))
    story = Story(folder, first=early)
    write_orders(folder, 2, rows=4, first=FILES + 1)
    assert story.drive(both).kind == "finished"
    story.ask("late")

    story.drive(both)

    tables = story.stores.postgres.tables
    fields = [sorted(repr(row) for row in tables[f"public.{name}"].values()) for name in ("early", "late")]
    assert sorted(story.filled) == [1, 2, 3, 4]
    assert fields[0] == fields[1] != []


def test_distinct_values_are_filled_with_their_committer(tmp_path: Path) -> None:
    """The table of values is a part of the committer: one ledger row fills both."""
    story = Story(tmp_path / "orders")
    given = orders_topology(story.folder)
    bolt = AggregateCommitter("shop_totals", ["shop"], count="rows", distinct={"article": "articles"})
    added = [
        replace(given.committers[0], name=f"by_shop{name}", bolt=one)
        for name, one in {**bolt.parts(), "": bolt}.items()
    ]
    topology = replace(given, committers=(*given.committers, *added))
    order_id = story.ask()

    story.drive(topology)

    assert story.answer(order_id) == ("done", "4 batches counted into by_shop")
    values = story.stores.postgres.tables["public.shop_totals_articles"]
    assert set(values) == {(shop, article) for shop, article in recount(story.folder)}
    refused = story.ask("by_shop_articles")
    story.drive(topology, cut=False)
    assert "is a part of by_shop: backfill by_shop" in str(story.answer(refused)[1])
