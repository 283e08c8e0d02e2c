"""What every ledger must do with rejected records and quarantined batches, as tests to inherit with the rest of
`LedgerContract`.
"""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tests.contracts.ledger_driver import (
    ROWS,
    LedgerWorld,
    claim_for,
    committer,
    die_at,
    lead_on,
    rejected_row,
    result_of,
)
from tests.contracts.user_committer_contract import Words, broken_number, own, words
from txtopo.committers.protocol.fault_proof import prove_commit
from txtopo.core import crash_points
from txtopo.core.crash_points import CrashPoint
from txtopo.core.limits import RECENT_TXIDS
from txtopo.core.values import Aborted, AlreadyCommitted, Committed, Failure, TransactionAttempt, Unknown
from txtopo.errors import Halted, InvariantBroken
from txtopo.ports import LedgerEntry, LedgerTotals


class RejectContract:
    """Records that do not parse."""

    def test_rejected_records_come_with_their_batch(
        self, world: LedgerWorld, listen: Callable[[crash_points.Listener], None]
    ) -> None:
        """A malformed line is counted and stored in the batch's own database transaction, and only there."""
        driver = lead_on(world)
        plan = driver.ready(1)
        rows = (rejected_row(3), rejected_row(7, reason="too few columns", raw=b"AA", raw_bytes=70_000))
        die_at(listen, CrashPoint.BEFORE_COMMIT)
        with pytest.raises(KeyboardInterrupt):
            driver.commit(plan, rejected=2, rejected_rows=rows)
        crash_points.listen(None)
        assert world.rejected(1) == []

        assert isinstance(driver.commit(plan, rejected=2, rejected_rows=rows), Committed)

        assert world.rejected(1) == [
            ("spout", "/in/1.csv", 3, "distance: no int", b"AA,JFK,x", 8, "line"),
            ("spout", "/in/1.csv", 7, "too few columns", b"AA", 70_000, "line"),
        ]
        assert world.ledger_row(1) == ("applied", None, None, 2)

    def test_hostile_records_are_kept_byte_for_byte(self, world: LedgerWorld) -> None:
        """P14: NUL and lone surrogates cost neither the record nor the batch."""
        driver = lead_on(world)
        raw = b'\x00\xff\\"{},\r\n\xed\xa0\x80'
        row = rejected_row(
            2, path="/in/\udcff %s'\"\\,{}\n.csv", reason="NUL \0 in carrier", raw=raw, raw_bytes=len(raw)
        )

        outcome = driver.commit(driver.ready(1), rejected=1, rejected_rows=(row,))

        assert isinstance(outcome, Committed)
        [(_, path, line, reason, kept, size, _)] = world.rejected(1)
        assert (line, kept, size) == (2, raw, len(raw))
        assert "carrier" in reason
        assert path.startswith("/in/")

    def test_a_record_is_kept_with_the_unit_in_which_its_source_counts(self, world: LedgerWorld) -> None:
        """Offsets and keys begin with 0, lines and rows with 1."""
        driver = lead_on(world)
        plan = driver.ready(1)
        rows = tuple(
            rejected_row(number, path=f"/in/{unit}", unit=unit)
            for number, unit in ((1, "line"), (1, "row"), (0, "offset"), (0, "key"))
        )
        for unit in ("line", "row"):
            refused = driver.commit(plan, rejected=1, rejected_rows=(rejected_row(0, unit=unit),))
            assert isinstance(refused, Aborted), unit

        assert isinstance(driver.commit(plan, rejected=4, rejected_rows=rows), Committed)

        found = [(row[1], row[2], row[6]) for row in world.rejected(1)]
        assert sorted(found) == sorted((row.path, row.line, row.unit) for row in rows)

    def test_a_count_without_its_records_is_refused(self, world: LedgerWorld) -> None:
        """I6: every record that is counted as rejected is there."""
        driver = lead_on(world)
        plan = driver.ready(1)

        for rejected, rows in ((1, ()), (0, (rejected_row(2),)), (2, (rejected_row(2),))):
            outcome = driver.commit(plan, rejected=rejected, rejected_rows=rows)
            assert isinstance(outcome, Aborted)
            assert (outcome.failure.kind, "rejected" in outcome.failure.message) == ("data", True)
        assert world.rows("flights_count") == {}

    def test_the_ledger_itself_counts_the_rejected_records(self, world: LedgerWorld) -> None:
        """I6: whoever finishes a batch with another number commits nothing."""
        driver = lead_on(world)
        plan = driver.ready(1)

        with pytest.raises(Halted, match="each of its rejected records"):
            with driver.ledger.session(driver.lead) as session:
                session.lock_fence()
                session.append_ledger(LedgerEntry(plan=plan, attempt=TransactionAttempt(1, 0)))
                session.apply(driver.committers[0], result_of([]))
                session.append_rejected([rejected_row(2)])
                session.finish(totals(rejected=2))
                session.commit()

    def test_a_record_that_is_rejected_twice_fails_the_batch(self, world: LedgerWorld) -> None:
        """A place in a file holds one record; more is the emitter's fault, and names it."""
        driver = lead_on(world)

        outcome = driver.commit(driver.ready(1), rejected=2, rejected_rows=(rejected_row(2), rejected_row(2)))

        assert isinstance(outcome, Aborted)
        assert (outcome.failure.kind, outcome.failure.component) == ("data", "spout")


class QuarantineContract:
    """Batches without effect, in their place in the order (R14)."""

    def test_a_quarantined_batch_takes_its_place_and_the_next_one_commits(self, world: LedgerWorld) -> None:
        """R14: a ledger row in sequence, with its reason, never an absence."""
        driver = lead_on(world)
        plan = driver.ready(1)
        failure = Failure(kind="data", message="no number")
        driver.ledger.end_attempt(driver.lead, TransactionAttempt(1, 0), "failed", failure)
        following = driver.ready(2)

        assert driver.quarantine(plan, "no number \0 in a.csv") == Committed(txid=1)

        fence = driver.ledger.read_fence()
        assert fence is not None and fence.last_txid == 1
        assert world.ledger_row(1) in [
            ("quarantined", f"no number {nul} in a.csv", None, None) for nul in ("\0", "\\0")
        ]
        assert world.attempt_state(1, 0) == "failed"
        assert world.rows("flights_count") == {}
        assert isinstance(driver.commit(following), Committed)
        assert len(world.rows("flights_count")) == 3

    def test_a_new_leader_learns_what_was_left_out_of_the_last_batches_and_why(self, world: LedgerWorld) -> None:
        """W7: what an operator skipped, and what read nothing, neither counts nor ends a row; more than are needed are
        not read.
        """
        driver = lead_on(world)
        for txid in range(1, 24):
            driver.commit(driver.ready(txid))
        driver.quarantine(driver.ready(24), cause="ValueError in b at a.py:7")
        driver.quarantine(driver.ready(25), order_id=world.ask("skip", (25,)))
        driver.commit(driver.ready(26), (), read=0)
        driver.quarantine(driver.ready(27), cause="23514 in c at positive")

        claimed = world.open().claim_fence(claim_for())

        assert len(claimed.recent) == RECENT_TXIDS
        assert claimed.recent[-3:] == [(23, None), (24, "ValueError in b at a.py:7"), (27, "23514 in c at positive")]

    def test_a_commit_of_what_is_good_is_tried_and_nothing_of_it_stays(self, world: LedgerWorld) -> None:
        """W4: over no rows, then over what the last batch brought. Both pass, so the batch that failed is at fault
        itself.
        """
        driver = lead_on(world)
        driver.commit(driver.ready(1))
        before = world.rows("flights_count"), world.contributions("flights_count")
        plan = driver.ready(2)
        bad = [("AA", "JFK", 2**63 - 1, 1), *ROWS[1:]]
        failed = driver.commit(plan, bad)

        proof = prove_commit(driver.ledger, driver.lead, plan, driver.processed(2, bad), driver.topology)

        assert isinstance(failed, Aborted) and failed.failure.kind == "data"
        assert proof is None
        assert (world.rows("flights_count"), world.contributions("flights_count")) == before
        assert isinstance(driver.commit(plan), Committed)

    def test_a_commit_that_fails_over_no_rows_or_over_the_last_batchs_is_no_batchs_fault(
        self, world: LedgerWorld
    ) -> None:
        """W4: a custom committer whose code fails whatever comes; a table that does not take what it took before."""
        driver = lead_on(world, committer(), own(Words(broken_number)))
        plan = driver.ready(1)
        results = (result_of(ROWS), words([("a", 1)]))
        over_nothing = prove_commit(
            driver.ledger, driver.lead, plan, driver.processed(1, results=results), driver.topology
        )
        driver.committers = [committer()]
        driver.commit(plan, [("AA", "JFK", 2**62, 1)])
        over_the_last = prove_commit(driver.ledger, driver.lead, driver.ready(2), driver.processed(2), driver.topology)

        assert over_nothing is not None and (over_nothing.kind, over_nothing.component) == ("data", "words")
        assert over_the_last is not None and (over_the_last.kind, over_the_last.component) == ("data", "by_route")

    def test_what_a_redo_cannot_take_back_is_its_own_failure(self, world: LedgerWorld) -> None:
        """W4: its batch alone took that; other batches commit."""
        driver = lead_on(world)
        driver.commit(driver.ready(1))
        world.change_by_hand("flights_count", ("AA", "JFK"), None)
        plan = driver.redo(2, 1)
        failed = driver.commit(plan)

        proof = prove_commit(driver.ledger, driver.lead, plan, driver.processed(2), driver.topology)

        assert isinstance(failed, Aborted) and failed.failure.kind == "data"
        assert proof is None

    def test_an_attempt_that_still_runs_is_cancelled_by_the_quarantine(self, world: LedgerWorld) -> None:
        """A batch that is final has no attempt under way."""
        driver = lead_on(world)

        driver.quarantine(driver.ready(1))

        assert world.attempt_state(1, 0) == "cancelled"

    def test_only_the_attempt_that_was_given_up_is_cancelled(self, world: LedgerWorld) -> None:
        """An attempt whose driver died stays on record as it was left."""
        driver = lead_on(world)
        plan = driver.ready(1)
        driver.begin(1, 1)

        driver.quarantine(plan, attempt=1)

        assert (world.attempt_state(1, 0), world.attempt_state(1, 1)) == ("begun", "cancelled")

    def test_a_batch_that_was_never_tried_may_be_quarantined(self, world: LedgerWorld) -> None:
        """R14: the plan is enough."""
        driver = lead_on(world)
        plan = driver.plan(1)
        driver.mirror(plan)

        assert isinstance(driver.quarantine(plan), Committed)
        assert world.attempt_state(1, 0) is None

    def test_a_quarantine_is_in_the_action_log(self, world: LedgerWorld) -> None:
        """Every change is a row: who, why, before and after; the operator's own words where there is an order."""
        driver = lead_on(world)
        driver.quarantine(driver.ready(1), "ends its process")
        order_id = world.ask("skip", [2], "the file is rubbish")

        driver.quarantine(driver.ready(2), "skipped: the file is rubbish", order_id=order_id)

        own, ordered = world.actions()
        assert own[:5] == ("leader", "on_poison", "ends its process", None, 1)
        assert ordered[:5] == ("operator", "skip", "the file is rubbish", order_id, 2)
        assert (ordered[5]["state"], ordered[6]["state"]) == ("failed", "quarantined")
        assert own[6] == {"batch": 1, "state": "quarantined", "reason": "ends its process"}

    def test_an_order_that_was_never_given_quarantines_nothing(self, world: LedgerWorld) -> None:
        """The action log names orders that exist."""
        driver = lead_on(world)

        other = lead_on(world, committer("elsewhere", "elsewhere"), topology="other")
        order_id = world.ask("skip", [1])

        with pytest.raises(InvariantBroken):
            driver.quarantine(driver.ready(1), order_id=99)
        with pytest.raises(InvariantBroken):
            other.quarantine(other.ready(1), order_id=order_id)

        assert (world.ledger_row(1), world.actions()) == (None, [])

    @pytest.mark.parametrize(
        "point", [CrashPoint.FENCE_LOCKED, CrashPoint.LEDGER_APPENDED, CrashPoint.BEFORE_COMMIT, CrashPoint.COMMITTED]
    )
    def test_a_quarantine_that_dies_is_whole_or_not_at_all(
        self, world: LedgerWorld, listen: Callable[[crash_points.Listener], None], point: CrashPoint
    ) -> None:
        """Ledger row, attempt and action log are one database transaction."""
        driver = lead_on(world)
        plan = driver.ready(1)
        die_at(listen, point)

        with pytest.raises(KeyboardInterrupt):
            driver.quarantine(plan)

        crash_points.listen(None)
        happened = point is CrashPoint.COMMITTED
        assert (world.ledger_row(1) is not None, len(world.actions())) == (happened, int(happened))
        assert world.attempt_state(1, 0) == ("cancelled" if happened else "begun")
        assert driver.quarantine(plan) == (AlreadyCommitted(txid=1) if happened else Committed(txid=1))
        assert len(world.actions()) == 1

    def test_an_unanswered_quarantine_is_resolved(
        self, world: LedgerWorld, listen: Callable[[crash_points.Listener], None]
    ) -> None:
        """R7: unknown is resolved under the fence lock."""
        driver = lead_on(world)
        plan = driver.ready(1)
        listen(lambda point, _: world.break_commit() if point is CrashPoint.BEFORE_COMMIT else None)

        outcome = driver.quarantine(plan)

        crash_points.listen(None)
        assert isinstance(outcome, Unknown)
        assert isinstance(driver.ledger.resolve(driver.lead, [(1, plan.digest)])[0], Aborted)
        assert isinstance(driver.quarantine(plan), Committed)
        assert driver.ledger.resolve(driver.lead, [(1, plan.digest)])[0] == Committed(txid=1)

    def test_a_committed_batch_is_not_quarantined(self, world: LedgerWorld) -> None:
        """R5: what the ledger has stays as it is; another batch under the same txid halts."""
        driver = lead_on(world)
        plan = driver.ready(1)
        driver.commit(plan)

        assert driver.quarantine(plan) == AlreadyCommitted(txid=1)
        assert world.ledger_row(1) == ("applied", None, None, 0)
        with pytest.raises(Halted, match="another plan"):
            driver.quarantine(driver.plan(1, "/in/other.csv"))

    def test_a_quarantined_batch_is_not_committed(self, world: LedgerWorld) -> None:
        """R5: the decision is final; a redrive is a new txid."""
        driver = lead_on(world)
        plan = driver.ready(1)
        driver.quarantine(plan)

        assert driver.commit(plan) == AlreadyCommitted(txid=1)
        assert world.rows("flights_count") == {}

    def test_a_quarantine_waits_for_its_turn(self, world: LedgerWorld) -> None:
        """R6: only last == n-1."""
        driver = lead_on(world)
        driver.ready(1)

        with pytest.raises(Halted, match="gap"):
            driver.quarantine(driver.ready(2))
        with pytest.raises(Halted, match="not of batch 1"):
            driver.quarantine(driver.plan(1), of=2)
        assert world.actions() == []

    def test_a_batch_that_was_not_mirrored_is_not_quarantined(self, world: LedgerWorld) -> None:
        """R9: the plan is in Postgres before the first commit attempt."""
        driver = lead_on(world)

        with pytest.raises(Halted, match="no mirrored plan"):
            driver.quarantine(driver.plan(1))

    def test_what_was_applied_is_not_quarantined(self, world: LedgerWorld) -> None:
        """R14: a quarantined batch has no effect."""
        driver = lead_on(world)
        plan = driver.ready(1)

        with pytest.raises(InvariantBroken, match="cannot be quarantined"):
            with driver.ledger.session(driver.lead) as session:
                session.lock_fence()
                session.append_ledger(LedgerEntry(plan=plan, attempt=TransactionAttempt(1, 0)))
                session.apply(driver.committers[0], result_of([("AA", "JFK", 1, 1)]))
                session.finish_quarantined("poison")

    def test_the_next_batch_is_cut_behind_a_quarantined_one(self, world: LedgerWorld) -> None:
        """A quarantined batch redoes nothing, so its input is spent: the source goes on behind it."""
        driver = lead_on(world)
        driver.commit(driver.ready(1))
        quarantined = driver.ready(2)
        driver.quarantine(quarantined)

        claimed = world.open().claim_fence(claim_for())

        assert (claimed.last_txid, claimed.last_metadata) == (2, quarantined.metadata)


def totals(**other: int) -> LedgerTotals:
    """Totals of a batch that agree; `other` overrides."""
    return LedgerTotals(**{"read": 10, "rejected": 0, "dead_lettered": 0, "committers": 1, **other}, spans={})
