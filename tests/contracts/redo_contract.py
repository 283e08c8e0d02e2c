"""What every ledger must do with a batch that redoes another one, as tests to inherit with the rest of
`LedgerContract`.
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
    result_of,
)
from txtopo.core import crash_points
from txtopo.core.crash_points import CrashPoint
from txtopo.core.values import Aborted, Committed, LedgerBatch
from txtopo.errors import Halted

OTHER: list[Row] = [("AA", "JFK", 5, -10), (None, None, 1, 7)]
"""Shares a key with ROWS and has one of its own, with NULLs."""


def total(*batches: list[Row]) -> dict[Row, Row]:
    """What a table rebuilt from these batches holds."""
    rows: dict[Row, Row] = {}
    for carrier, origin, count, distance in (row for batch in batches for row in batch):
        counted, summed = rows.get((carrier, origin), (0, 0))
        rows[carrier, origin] = (counted + count, summed + distance)
    return rows


def summed(world: LedgerWorld, table: str = "flights_count") -> dict[Row, Row]:
    """The table as its contributions have it."""
    rows = total([row[2:] for row in world.contributions(table)])
    return {key: numbers for key, numbers in rows.items() if numbers != (0, 0)}


def committed(driver: Driver, *batches: list[Row]) -> None:
    """Commit these batches as txids 1, 2, …"""
    for txid, rows in enumerate(batches, 1):
        assert isinstance(driver.commit(driver.ready(txid), rows), Committed)


class RedoContract:
    """Redrive and recompute: new txids at the end of the order, linked to what they redo."""

    def test_a_redo_takes_back_exactly_what_its_batch_brought(self, world: LedgerWorld) -> None:
        """The table equals a rebuild; NULL keys too; rows that count nothing any more are gone; the numbers speak of
        the apply alone.
        """
        driver = lead_on(world)
        committed(driver, ROWS, OTHER)

        outcome = driver.commit(driver.redo(3, 1), OTHER)

        assert isinstance(outcome, Committed)
        [count] = outcome.counts
        assert (count.arrived, count.counted, count.results, count.written, count.reversed) == (6, 6, 2, 2, 3)
        assert world.reversed(3) == {"by_route": 3}
        assert world.rows("flights_count") == total(OTHER, OTHER) == summed(world)
        taken = [row[1:] for row in world.contributions("flights_count") if row[0] == 3 and row[1] is not None]
        assert sorted(taken, key=repr) == sorted(((1, a, b, -c, -d) for a, b, c, d in ROWS), key=repr)
        assert world.ledger_row(3) == ("applied", None, 1, 0)

    def test_a_redo_with_the_same_result_changes_nothing(self, world: LedgerWorld) -> None:
        """The digest is that of the rows applied, as it was the first time."""
        driver = lead_on(world)
        first = driver.commit(driver.ready(1))

        again = driver.commit(driver.redo(2, 1))

        assert isinstance(first, Committed) and isinstance(again, Committed)
        assert first.counts[0].digest == again.counts[0].digest
        assert world.rows("flights_count") == total(ROWS) == summed(world)

    def test_a_redo_of_a_redo_takes_back_the_redo_alone(self, world: LedgerWorld) -> None:
        """Only the own rows of the batch that is redone: what it had taken back itself stays taken back."""
        driver = lead_on(world)
        committed(driver, ROWS, ROWS)
        driver.commit(driver.redo(3, 1), OTHER)

        outcome = driver.commit(driver.redo(4, 3), ROWS[:1])

        assert isinstance(outcome, Committed)
        assert outcome.counts[0].reversed == 2
        assert world.rows("flights_count") == total(ROWS, ROWS[:1]) == summed(world)

    def test_an_emptied_batch_leaves_no_row(self, world: LedgerWorld) -> None:
        """A source that has nothing left counts nothing, not zero."""
        driver = lead_on(world)
        committed(driver, ROWS)

        assert isinstance(driver.commit(driver.redo(2, 1), []), Committed)

        assert world.rows("flights_count") == {} == summed(world)

    def test_the_rows_of_a_baseline_stay(self, world: LedgerWorld) -> None:
        """Only what the batch brought goes."""
        adopting = committer(baseline=True)
        world.seed(adopting, {("AA", None): (5, 500), ("ZZ", None): (0, 3)})
        driver = lead_on(world, adopting)
        committed(driver, ROWS)

        driver.commit(driver.redo(2, 1), [])

        assert world.rows("flights_count") == {("AA", None): (5, 500), ("ZZ", None): (0, 3)}

    def test_a_redrive_brings_a_quarantined_batch_back(self, world: LedgerWorld) -> None:
        """Nothing is taken back, and the order's row is in the action log with the change."""
        driver = lead_on(world)
        driver.quarantine(driver.ready(1))
        order_id = world.ask("redrive", [1], "bolt fixed")

        outcome = driver.commit(driver.redo(2, 1, order_id))

        assert isinstance(outcome, Committed)
        assert outcome.counts[0].reversed == 0
        assert world.rows("flights_count") == total(ROWS) == summed(world)
        assert world.actions()[1:] == [
            (
                "operator",
                "redrive",
                "bolt fixed",
                order_id,
                2,
                {"batch": 1, "state": "quarantined"},
                {"batch": 2, "state": "applied", "counted": {"by_route": 6}},
            )
        ]

    def test_a_redrive_needs_no_contributions(self, world: LedgerWorld) -> None:
        """A quarantined batch brought nothing, so nothing has to be known of it."""
        driver = lead_on(world, committer(contributions=False))
        driver.quarantine(driver.ready(1))

        assert isinstance(driver.commit(driver.redo(2, 1)), Committed)
        assert world.rows("flights_count") == total(ROWS)

    def test_a_committer_without_contributions_cannot_take_back(self, world: LedgerWorld) -> None:
        """Refused naming the committer, and nothing of the batch stays."""
        driver = lead_on(world, committer(contributions=False))
        committed(driver, ROWS)

        outcome = driver.commit(driver.redo(2, 1), OTHER)

        assert isinstance(outcome, Aborted)
        assert (outcome.failure.kind, outcome.failure.component) == ("data", "by_route")
        assert "keeps no contributions" in outcome.failure.message
        assert world.rows("flights_count") == total(ROWS)

    def test_a_batch_that_is_redone_already_is_not_redone_again(self, world: LedgerWorld) -> None:
        """Twice commits once: a superfluous redo, planned before a takeover, is quarantined at once."""
        driver = lead_on(world)
        committed(driver, ROWS)
        order_id = world.ask("recompute", [1], "corrected")
        driver.commit(driver.redo(2, 1, order_id), OTHER)

        outcome = driver.commit(driver.redo(3, 1, order_id), ROWS)

        assert outcome == Committed(txid=3)
        assert world.ledger_row(3) == ("quarantined", "already redone as batch 2", 1, None)
        assert world.attempt_state(3, 0) == "cancelled"
        assert world.rows("flights_count") == total(OTHER) == summed(world)
        assert [(row[1], row[4], row[6]["state"]) for row in world.actions()] == [
            ("recompute", 2, "applied"),
            ("recompute", 3, "quarantined"),
        ]
        assert isinstance(driver.commit(driver.ready(4)), Committed)

    def test_a_redo_that_was_quarantined_leaves_the_place_free(self, world: LedgerWorld) -> None:
        """Only an applied redo counts."""
        driver = lead_on(world)
        committed(driver, ROWS)
        driver.quarantine(driver.redo(2, 1))

        outcome = driver.commit(driver.redo(3, 1), OTHER)

        assert isinstance(outcome, Committed)
        assert outcome.counts[0].reversed == 3
        assert world.rows("flights_count") == total(OTHER) == summed(world)

    def test_a_superfluous_redo_may_be_skipped_too(self, world: LedgerWorld) -> None:
        """A quarantined redo is nobody's rival for the place."""
        driver = lead_on(world)
        committed(driver, ROWS)
        driver.commit(driver.redo(2, 1))

        assert isinstance(driver.quarantine(driver.redo(3, 1)), Committed)

    @pytest.mark.parametrize("redo_of", [0, 1, 2, 7])
    def test_a_batch_that_is_not_in_the_ledger_cannot_be_redone(self, world: LedgerWorld, redo_of: int) -> None:
        """Neither one to come, nor itself."""
        driver = lead_on(world)

        with pytest.raises(Halted, match=f"the ledger has no batch {redo_of}"):
            driver.commit(driver.redo(1, redo_of))
        assert world.ledger_row(1) is None

    def test_topologies_beside_each_other_do_not_meet(self, world: LedgerWorld) -> None:
        """What another topology redid or quarantined under the same txids says nothing of this one."""
        other = lead_on(world, committer("elsewhere", "elsewhere"), topology="other")
        driver = lead_on(world)
        for one in (other, driver):
            committed(one, ROWS)

        redone = [one.commit(one.redo(2, 1), OTHER) for one in (other, driver)]
        quarantined = [one.quarantine(one.ready(3)) for one in (other, driver)]

        assert all(isinstance(outcome, Committed) for outcome in redone + quarantined)
        assert world.rows("flights_count") == world.rows("elsewhere") == total(OTHER)
        assert [batch.txid for batch in driver.ledger.redo_chain(1)] == [1, 2]

    @pytest.mark.parametrize("numbers", [None, (1, 50)], ids=["deleted", "lowered"])
    def test_a_target_that_lacks_the_rows_is_not_made_worse(self, world: LedgerWorld, numbers: Row | None) -> None:
        """What was changed by hand cannot be reversed; the committer is named, and what finds the damage."""
        driver = lead_on(world)
        committed(driver, ROWS)
        world.change_by_hand("flights_count", ("AA", "JFK"), numbers)
        before = world.rows("flights_count")

        outcome = driver.commit(driver.redo(2, 1), OTHER)

        assert isinstance(outcome, Aborted)
        assert (outcome.failure.kind, outcome.failure.component) == ("data", "by_route")
        assert "1 of the 3 rows that batch 1 contributed are missing" in outcome.failure.message
        assert "txtopo audit" in outcome.failure.message
        assert world.rows("flights_count") == before

    def test_all_committers_are_redone_or_none(self, world: LedgerWorld) -> None:
        """R13: what one committer took back comes back with the other's failure, and so does the order's action."""
        driver = lead_on(world, committer("one", "one"), committer("two", "two"))
        committed(driver, ROWS)
        before = (world.contributions("one"), world.contributions("two"))
        order_id = world.ask("recompute", [1])
        plan = driver.redo(2, 1, order_id)

        outcome = driver.commit(plan, results=(result_of(OTHER, "one"), result_of(OTHER, "two", arrived=1)))

        assert isinstance(outcome, Aborted)
        assert world.rows("one") == world.rows("two") == total(ROWS)
        assert (world.contributions("one"), world.contributions("two")) == before
        assert (world.ledger_row(2), world.actions()) == (None, [])
        assert isinstance(driver.commit(plan, OTHER), Committed)
        assert world.rows("one") == world.rows("two") == total(OTHER)
        assert [row[6]["counted"] for row in world.actions()] == [{"one": 6, "two": 6}]

    @pytest.mark.parametrize("point", [CrashPoint.LEDGER_APPENDED, CrashPoint.APPLIED, CrashPoint.BEFORE_COMMIT])
    def test_a_redo_that_dies_takes_nothing_back(
        self, world: LedgerWorld, listen: Callable[[crash_points.Listener], None], point: CrashPoint
    ) -> None:
        """One database transaction, the action log included."""
        driver = lead_on(world)
        committed(driver, ROWS)
        plan = driver.redo(2, 1, world.ask("recompute", [1]))
        die_at(listen, point)

        with pytest.raises(KeyboardInterrupt):
            driver.commit(plan, OTHER)

        crash_points.listen(None)
        assert world.rows("flights_count") == total(ROWS) == summed(world)
        assert world.actions() == []
        assert isinstance(driver.commit(plan, OTHER), Committed)
        assert world.rows("flights_count") == total(OTHER) == summed(world)

    def test_any_subset_redone_equals_a_rebuild(self, world: LedgerWorld) -> None:
        """Totals equal a rebuild from the corrected source, whichever batches were redone and however often."""
        driver = lead_on(world)
        batches: list[list[Row]] = [[(f"C{n % 3}", None, n, n * n), ("X", f"{n}", 1, -n)] for n in range(1, 7)]
        committed(driver, *batches)

        newest = {2: 2, 4: 4, 5: 5}
        for txid, number in enumerate([5, 2, 4, 2], 7):
            batches[number - 1] = [(f"C{txid % 2}", None, txid, 1), ("X", f"{number}", 2, 0)]
            driver.commit(driver.redo(txid, newest[number]), batches[number - 1])
            newest[number] = txid

        assert world.rows("flights_count") == total(*batches) == summed(world)

    def test_a_new_leader_goes_on_behind_the_last_batch_that_redoes_nothing(self, world: LedgerWorld) -> None:
        """R12: the next batch is cut behind new input; behind that of the redo it would be counted again."""
        driver = lead_on(world)
        for plan in (driver.ready(1), driver.ready(2), driver.redo(3, 1)):
            driver.commit(plan)

        claimed = world.open().claim_fence(claim_for())

        assert claimed.last_metadata == {"spout": {"path": "/in/2.csv"}}

    def test_the_chain_of_redos_of_a_batch(self, world: LedgerWorld) -> None:
        """A recompute of a batch already redone redoes the last applied redo in its chain."""
        driver = lead_on(world)
        plans = [driver.ready(1), driver.ready(2)]
        committed_plans = [driver.commit(plan) for plan in plans]
        redos = [driver.redo(3, 1)]
        driver.quarantine(redos[-1])
        for txid, redo_of in ((4, 1), (5, 2), (6, 4)):
            redos.append(driver.redo(txid, redo_of))
            driver.commit(redos[-1])

        chain = driver.ledger.redo_chain(1)

        assert all(isinstance(outcome, Committed) for outcome in committed_plans)
        assert list(chain) == [
            LedgerBatch(txid=1, state="applied", redo_of=None, plan=plans[0].bytes),
            LedgerBatch(txid=3, state="quarantined", redo_of=1, plan=redos[0].bytes),
            LedgerBatch(txid=4, state="applied", redo_of=1, plan=redos[1].bytes),
            LedgerBatch(txid=6, state="applied", redo_of=4, plan=redos[3].bytes),
        ]
        assert [one.txid for one in driver.ledger.redo_chain(4)] == [4, 6]
        assert list(driver.ledger.redo_chain(0)) == list(driver.ledger.redo_chain(99)) == []
        assert list(world.open("unknown").redo_chain(1)) == []
        assert [(one.txid, one.state) for one in driver.ledger.batches_after(-9)] == [
            (1, "applied"),
            (2, "applied"),
            (3, "quarantined"),
            (4, "applied"),
            (5, "applied"),
            (6, "applied"),
        ]
        assert list(driver.ledger.batches_after(4)) == [
            LedgerBatch(txid=5, state="applied", redo_of=2, plan=redos[2].bytes),
            LedgerBatch(txid=6, state="applied", redo_of=4, plan=redos[3].bytes),
        ]
        assert list(driver.ledger.batches_after(6)) == list(world.open("unknown").batches_after(0)) == []
