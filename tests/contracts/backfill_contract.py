"""What every ledger must do with a batch that counts an earlier one into a committer that lacks it (R32), as tests to
inherit with the rest of `LedgerContract`.
"""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tests.contracts.ledger_driver import (
    ROWS,
    Driver,
    LedgerWorld,
    Row,
    claim_for,
    committer,
    die_at,
    lead_on,
)
from tests.contracts.redo_contract import OTHER, committed, summed, total
from txtopo.core import crash_points
from txtopo.core.crash_points import CrashPoint
from txtopo.core.plan import read_plan
from txtopo.core.values import CommitOutcome, Committed
from txtopo.errors import Halted

ADDED = committer("added", "added_count")


def added_to(world: LedgerWorld, *batches: list[Row], first: bool = False) -> Driver:
    """A driver whose topology has two committers, the added one `first` or last; the batches were committed with the
    other one alone.
    """
    before = lead_on(world)
    committed(before, *batches)
    driver = lead_on(world, *((ADDED, committer()) if first else (committer(), ADDED)))
    driver.digests = dict(before.digests)
    return driver


def backfill(
    driver: Driver, txid: int, batch: int, rows: list[Row] = ROWS, *, order_id: int | None = None, name: str = "added"
) -> CommitOutcome:
    """Plan, mirror, begin and commit a backfill of a batch."""
    plan = driver.ready(
        txid, path=f"/in/{batch}.csv", kind="backfill", backfills=batch, committer=name, order_id=order_id
    )
    return driver.commit(plan, rows)


class BackfillContract:
    """New txids at the end of the order that count into one committer alone."""

    def test_a_backfill_counts_into_its_committer_alone(self, world: LedgerWorld) -> None:
        """The others keep what they have. The order is in the action log, with the change."""
        driver = added_to(world, ROWS, OTHER)
        order_id = world.ask("backfill", (), "a new table", committer="added")

        outcome = backfill(driver, 3, 1, order_id=order_id)

        assert isinstance(outcome, Committed)
        assert [(one.committer, one.counted, one.reversed) for one in outcome.counts] == [("added", 6, 0)]
        assert world.rows("added_count") == total(ROWS) == summed(world, "added_count")
        assert world.rows("flights_count") == total(ROWS, OTHER) == summed(world)
        assert world.ledger_row(3) == ("applied", None, None, 0)
        assert world.actions()[-1] == (
            "operator",
            "backfill",
            "a new table",
            order_id,
            3,
            {"batch": 1, "state": "applied", "committer": "added"},
            {"batch": 3, "state": "applied", "counted": {"added": 6}},
        )

    def test_the_next_batch_counts_into_all(self, world: LedgerWorld) -> None:
        driver = added_to(world, ROWS)
        backfill(driver, 2, 1)

        assert isinstance(driver.commit(driver.ready(3), OTHER), Committed)

        assert world.rows("added_count") == world.rows("flights_count") == total(ROWS, OTHER)

    @pytest.mark.parametrize("batch", [1, 2], ids=["by a backfill", "by itself"])
    def test_a_batch_is_counted_once(self, world: LedgerWorld, batch: int) -> None:
        """What was planned before a takeover may be there already: it is quarantined, with the batch that has it."""
        driver = added_to(world, ROWS)
        driver.commit(driver.ready(2), OTHER)
        backfill(driver, 3, 1)
        before = world.rows("added_count")

        assert backfill(driver, 4, batch) == Committed(txid=4)

        assert world.ledger_row(4) == ("quarantined", f"already counted by batch {3 if batch == 1 else 2}", None, None)
        assert world.rows("added_count") == before == total(ROWS, OTHER)

    def test_a_batch_that_was_redone_is_not_counted(self, world: LedgerWorld) -> None:
        """Its redo has counted into all."""
        driver = added_to(world, ROWS)
        driver.commit(driver.redo(2, 1), OTHER)

        assert backfill(driver, 3, 1) == Committed(txid=3)

        assert world.ledger_row(3) == ("quarantined", "already redone as batch 2", None, None)
        assert world.rows("added_count") == world.rows("flights_count") == total(OTHER)

    @pytest.mark.parametrize("first", [False, True], ids=["added last", "added first"])
    def test_a_redo_removes_what_the_backfill_brought(self, world: LedgerWorld, first: bool) -> None:
        """And the redo of that redo what it brought itself: of each committer, what it holds. The first committer in
        the order sends the ledger row with its own statement.
        """
        driver = added_to(world, ROWS, OTHER, first=first)
        backfill(driver, 3, 1)

        outcome = driver.commit(driver.redo(4, 1), ROWS[:1])

        assert isinstance(outcome, Committed)
        assert world.reversed(4) == {"by_route": 3, "added": 3}
        assert world.rows("added_count") == total(ROWS[:1]) == summed(world, "added_count")
        assert world.rows("flights_count") == total(ROWS[:1], OTHER) == summed(world)
        backfill(driver, 5, 2, OTHER)
        assert isinstance(driver.commit(driver.redo(6, 4), OTHER), Committed)
        assert world.rows("added_count") == world.rows("flights_count") == total(OTHER, OTHER)

    def test_a_redo_of_a_batch_that_a_committer_lacks_removes_nothing_from_it(self, world: LedgerWorld) -> None:
        driver = added_to(world, ROWS)

        assert isinstance(driver.commit(driver.redo(2, 1), OTHER), Committed)

        assert world.reversed(2) == {"by_route": 3, "added": 0}
        assert world.rows("added_count") == world.rows("flights_count") == total(OTHER)

    def test_what_a_committer_lacks_is_found_in_order(self, world: LedgerWorld) -> None:
        """Applied, in effect, not counted, not planned; the plan with it, and the tries that were quarantined."""
        driver = added_to(world, ROWS, ROWS, ROWS)
        driver.quarantine(driver.ready(4))
        order_id = world.ask("backfill", (), "why", committer="added")
        driver.commit(driver.redo(5, 2), OTHER)
        skipped = driver.ready(6, path="/in/3.csv", kind="backfill", backfills=3, committer="added", order_id=order_id)
        driver.quarantine(skipped, "skipped")

        found = [driver.ledger.lacking("added", above, ()) for above in (0, 1, 3)]

        assert [one and one.txid for one in found] == [1, 3, None]
        first, third, _ = found
        assert first is not None and first.plan is not None and third is not None
        assert read_plan(first.plan, "here").txid == 1
        assert (first.tried, third.tried) == ((), ((6, order_id, "skipped"),))
        planned = driver.ledger.lacking("added", 0, (1,))
        assert planned is not None and planned.txid == 3
        assert driver.ledger.lacking("by_route", 0, ()) is None
        assert isinstance(backfill(driver, 7, 3), Committed)
        assert driver.ledger.lacking("added", 1, ()) is None

    def test_the_source_continues_after_the_last_new_input(self, world: LedgerWorld) -> None:
        """A backfill read what was read before."""
        driver = added_to(world, ROWS, OTHER)
        backfill(driver, 3, 1)

        claimed = world.open().claim_fence(claim_for(incarnation=driver.lead.incarnation))

        assert claimed.last_txid == 3
        assert claimed.last_metadata == {"spout": {"path": "/in/2.csv"}}

    @pytest.mark.parametrize("batch", [3, 7], ids=["quarantined", "not committed"])
    def test_a_batch_that_is_not_applied_cannot_be_counted(self, world: LedgerWorld, batch: int) -> None:
        driver = added_to(world, ROWS, OTHER)
        driver.quarantine(driver.ready(3))
        plan = driver.plan(4, path="/in/1.csv", kind="backfill", backfills=batch, committer="added")
        driver.mirror(plan)
        driver.begin(4)

        with pytest.raises(Halted, match=f"counts batch {batch} into committer added, but the ledger has no such"):
            driver.commit(plan)

    def test_a_backfill_of_a_backfill_is_none(self, world: LedgerWorld) -> None:
        driver = added_to(world, ROWS)
        backfill(driver, 2, 1)
        plan = driver.ready(3, path="/in/1.csv", kind="backfill", backfills=2, committer="by_route")

        with pytest.raises(Halted, match="the ledger has no such applied batch"):
            driver.commit(plan)

    @pytest.mark.parametrize("point", [CrashPoint.LEDGER_APPENDED, CrashPoint.APPLIED, CrashPoint.BEFORE_COMMIT])
    def test_a_death_in_its_commit_leaves_nothing(
        self, world: LedgerWorld, listen: Callable[[crash_points.Listener], None], point: CrashPoint
    ) -> None:
        driver = added_to(world, ROWS)
        die_at(listen, point)
        with pytest.raises(KeyboardInterrupt):
            backfill(driver, 2, 1)
        crash_points.listen(None)
        assert world.ledger_row(2) is None and world.rows("added_count") == {}

        plan = driver.plan(2, path="/in/1.csv", kind="backfill", backfills=1, committer="added")

        assert isinstance(driver.commit(plan), Committed)
        assert world.rows("added_count") == total(ROWS)
