"""Operators' orders on memory stores: the leader that carries one out dies at every step, and the order is carried out
once all the same.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from decimal import Decimal
from pathlib import Path

import pytest

from tests.kit.applications import orders_topology
from tests.kit.orders import Totals, recount, write_orders
from txtopo.core.events import End
from txtopo.core.state import Rules
from txtopo.core.values import OrderKind, TransactionAttempt
from txtopo.errors import BatchDataError
from txtopo.ports import Executor
from txtopo.testing.inprocess import InProcessExecutor
from txtopo.testing.simulated import KillAt, Killed, SimulatedDriver, SimulatedStores
from txtopo.topology.components import Topology

FILES = 3
POISON = 2
"""Its file is refused by a bolt until the bolt is mended."""


@dataclass
class Story:
    """One topology over one folder, and the stores that survive its drivers."""

    folder: Path
    stores: SimulatedStores = field(default_factory=SimulatedStores)
    seed: int = 1

    def __post_init__(self) -> None:
        write_orders(self.folder, FILES, rows=4)

    def drive(self, *, bad: bool = False, cut: bool = True, rules: Rules | None = None) -> End:
        """One driver's life; with `bad` code that fails on the poison batch."""
        self.seed += 1

        def executor(topology: Topology, code_hash: bytes) -> Executor:
            return InProcessExecutor(topology, code_hash, faults=_refuse if bad else None)

        driver = SimulatedDriver(
            topology=orders_topology(self.folder),
            stores=self.stores,
            seed=self.seed,
            cut=cut,
            make_executor=executor,
            rules=rules or Rules(workers=2, attempts_max=1),
        )
        return driver.run()

    def ask(self, kind: OrderKind, *txids: int) -> int:
        """An operator's order."""
        return self.stores.postgres.ask("orders", kind, txids, "because")

    @property
    def ledger(self) -> dict[int, str]:
        """State by txid."""
        rows = self.stores.postgres.topologies["orders"].ledger
        return {txid: row.state for txid, row in sorted(rows.items()) if txid > 0}

    @property
    def redone(self) -> dict[int, int]:
        """Applied redo by what it redoes."""
        rows = self.stores.postgres.topologies["orders"].ledger
        applied = [(row.redo_of, txid) for txid, row in rows.items() if row.redo_of and row.state == "applied"]
        assert len(applied) == len(dict(applied)), f"something was redone twice: {applied}"
        return {redo_of: txid for redo_of, txid in applied if redo_of is not None}

    @property
    def totals(self) -> Totals:
        rows = self.stores.postgres.tables["public.order_totals"]
        return {
            (None if k[0] is None else str(k[0]), str(k[1])): (int(v[0]), Decimal(v[1]), Decimal(v[2]))
            for k, v in rows.items()
        }

    def logged(self, command: str) -> int:
        """Rows of the action log."""
        return sum(row.action.command == command for row in self.stores.postgres.actions)

    def answer(self, order_id: int) -> tuple[str, str | None]:
        row = self.stores.postgres.orders[order_id][1]
        return row.state, row.answer


def _refuse(attempt: TransactionAttempt) -> None:
    if attempt.txid == POISON:
        raise BatchDataError("bolt.py:7: ValueError: poison", component="bolt")


def halted(folder: Path) -> Story:
    """The topology has halted at the poison batch."""
    story = Story(folder)
    assert story.drive(bad=True).kind == "halted"
    assert story.ledger == {1: "applied"}
    return story


def quarantined(folder: Path) -> Story:
    """The poison batch is quarantined, everything else committed."""
    story = Story(folder)
    rules = Rules(workers=2, attempts_max=1, on_poison="quarantine_batch")
    assert story.drive(bad=True, rules=rules).kind == "finished"
    assert story.ledger == {1: "applied", 2: "quarantined", 3: "applied"}
    assert story.logged("on_poison") == 1
    return story


def finished(folder: Path) -> Story:
    """Everything is committed, then the files of batches 1 and 3 are corrected."""
    story = Story(folder)
    assert story.drive().kind == "finished"
    for number in (1, 3):
        path = folder / f"order_{number:04}.csv"
        lines = path.read_text().splitlines(keepends=True)
        path.write_text("".join(lines[:-1]) + "9,shop 9,a9,5,1.25\n9,shop 9,a9,5,1.25\n")
    return story


def replanned(folder: Path) -> Story:
    """Halted at the poison batch, with plans behind it that were never mirrored."""
    return halted(folder)


def check_retry(story: Story, order_id: int) -> None:
    assert story.ledger == {1: "applied", 2: "applied", 3: "applied"}
    assert story.totals == recount(story.folder)
    assert story.answer(order_id)[0] == "done"
    assert story.logged("retry") == 1


def check_skip(story: Story, order_id: int) -> None:
    assert story.ledger == {1: "applied", 2: "quarantined", 3: "applied"}
    assert story.answer(order_id) == ("done", "batch 2 is quarantined")
    assert story.logged("skip") == 1
    (story.folder / "order_0002.csv").unlink()
    assert story.totals == recount(story.folder)


def check_redrive(story: Story, order_id: int) -> None:
    assert list(story.redone) == [POISON]
    assert story.totals == recount(story.folder)
    assert story.answer(order_id)[0] == "done"
    assert story.logged("redrive") == 1


def check_recompute(story: Story, order_id: int) -> None:
    assert sorted(story.redone) == [1, 3]
    assert story.totals == recount(story.folder)
    assert story.answer(order_id)[0] == "done"
    assert story.logged("recompute") == 2


def check_replan(story: Story, order_id: int) -> None:
    assert story.ledger == {1: "applied", 2: "applied", 3: "applied"}
    assert story.totals == recount(story.folder)
    assert story.answer(order_id) == ("done", "plans of batches 2, 3 dropped: their inputs are planned again")
    assert story.logged("replan") == 1
    attempts = story.stores.postgres.topologies["orders"].attempts
    assert min(attempt for txid, attempt in attempts if txid == POISON) == 0
    assert max(attempt for txid, attempt in attempts if txid == POISON) > 0


CASES: list[tuple[str, Callable[[Path], Story], OrderKind, tuple[int, ...], Callable[[Story, int], None], bool]] = [
    ("retry", halted, "retry", (2,), check_retry, False),
    ("skip", halted, "skip", (2,), check_skip, False),
    ("redrive", quarantined, "redrive", (2,), check_redrive, False),
    ("recompute", finished, "recompute", (1, 3), check_recompute, False),
    ("replan", replanned, "replan", (), check_replan, True),
]


@pytest.mark.parametrize(
    ("before", "kind", "txids", "check", "cut"), [case[1:] for case in CASES], ids=[case[0] for case in CASES]
)
def test_an_order_is_carried_out_once_wherever_its_leader_dies(
    tmp_path: Path,
    before: Callable[[Path], Story],
    kind: OrderKind,
    txids: tuple[int, ...],
    check: Callable[[Story, int], None],
    cut: bool,
) -> None:
    """An order that a leader had begun when it died is carried out once: two leaders in a row die at every step, a
    third one ends it.
    """
    for nth in range(1, 200):
        story = before(tmp_path / f"{nth}")
        order_id = story.ask(kind, *txids)
        end: End | None = None
        with KillAt(nth) as kill:
            try:
                end = story.drive(cut=cut)
            except Killed:
                pass
        if end is None:
            with KillAt(1 + nth % 7):
                try:
                    story.drive(cut=cut)
                except Killed:
                    pass
        assert story.drive(cut=cut).kind == ("finished" if cut else "stopped")
        check(story, order_id)
        if end is not None:
            assert kill.killed_at is None
            return
    raise AssertionError("the story never came to its end")


def test_an_order_of_the_same_kind_twice_commits_once(tmp_path: Path) -> None:
    """`redrive` twice commits once, and the second order says as what."""
    story = quarantined(tmp_path / "orders")
    story.ask("redrive", POISON)
    story.drive(cut=False)

    again = story.ask("redrive", POISON)
    story.drive(cut=False)

    assert story.redone == {POISON: 4}
    assert story.answer(again) == ("done", "batch 2 was redone already, as batch 4")


def test_a_recompute_of_a_recompute_takes_back_only_the_last_one(tmp_path: Path) -> None:
    """A recompute of a batch already redone redoes the last applied redo in its chain."""
    story = finished(tmp_path / "orders")
    story.ask("recompute", 1)
    story.drive(cut=False)
    path = story.folder / "order_0001.csv"
    path.write_text(path.read_text() + "9,shop 9,a9,5,1.25\n")

    story.ask("recompute", 1, 3)
    story.drive(cut=False)

    assert story.redone == {1: 4, 4: 5, 3: 6}
    assert story.totals == recount(story.folder)


def test_a_redo_of_a_batch_never_moves_the_source(tmp_path: Path) -> None:
    """New input goes on behind the redo exactly where it was."""
    story = quarantined(tmp_path / "orders")
    story.ask("redrive", POISON)
    write_orders(story.folder, 2, rows=4, first=FILES + 1)

    story.drive()

    assert len(story.ledger) == FILES + 3
    assert story.totals == recount(story.folder)
