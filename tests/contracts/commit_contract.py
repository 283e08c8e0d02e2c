"""What every commit must do on every ledger, as tests to inherit with the rest of `LedgerContract`."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from tests.contracts.ledger_driver import (
    ROWS,
    LedgerWorld,
    Row,
    committer,
    die_at,
    lead_on,
    rejected_row,
    result_of,
)
from txtopo.core import crash_points
from txtopo.core.crash_points import CrashPoint
from txtopo.core.values import (
    Aborted,
    AlreadyCommitted,
    Committed,
    EdgeCount,
    TransactionAttempt,
    Unknown,
)
from txtopo.errors import Halted, InvariantBroken
from txtopo.ports import LedgerEntry


class CommitContract:
    """The commit of a batch, once and in order."""

    def test_committed_batch_is_counted(self, world: LedgerWorld) -> None:
        """One database transaction applies the rows, records their numbers and moves the fence."""
        driver = lead_on(world)
        plan = driver.ready(1)

        outcome = driver.commit(plan, edges=(EdgeCount(edge="spout>by_route", sent=6, received=6),))

        assert isinstance(outcome, Committed)
        [count] = outcome.counts
        assert (count.arrived, count.counted, count.results, count.written, count.ignored) == (6, 6, 3, 3, 0)
        assert count.digest != 0
        assert world.rows("flights_count") == {("AA", "JFK"): (2, 200), ("AA", None): (1, 50), ("UA", "EWR"): (3, 900)}
        assert sorted(world.contributions("flights_count"), key=repr) == sorted(
            ((1, None, *row) for row in ROWS), key=repr
        )
        assert world.attempt_state(1, 0) == "applied"
        fence = driver.ledger.read_fence()
        assert fence is not None
        assert fence.last_txid == 1

    def test_batches_add_up_null_keys_included(self, world: LedgerWorld) -> None:
        """NULL is a key like any other; the target is the sum of the contributions."""
        driver = lead_on(world)
        for txid in (1, 2):
            driver.commit(driver.ready(txid), [("AA", None, 1, 50), (None, None, 2, -7)])

        assert world.rows("flights_count") == {("AA", None): (2, 100), (None, None): (4, -14)}
        assert [row[0] for row in world.contributions("flights_count")] == [1, 1, 2, 2]

    def test_digest_depends_on_rows_and_not_on_their_order(self, world: LedgerWorld) -> None:
        """The digest is the order-free sum of the hashes of the rows applied."""
        driver = lead_on(world)
        outcomes = [
            driver.commit(driver.ready(txid), rows) for txid, rows in enumerate([ROWS, ROWS[::-1], ROWS[:2]], 1)
        ]

        digests = [outcome.counts[0].digest for outcome in outcomes if isinstance(outcome, Committed)]
        assert len(digests) == 3
        assert digests[0] == digests[1] != digests[2]

    def test_empty_batch_is_a_batch(self, world: LedgerWorld) -> None:
        """K6: a batch without rows is committed in its turn."""
        driver = lead_on(world)

        outcome = driver.commit(driver.ready(1), [], read=0)

        assert isinstance(outcome, Committed)
        assert outcome.counts[0].digest == 0
        assert isinstance(driver.commit(driver.ready(2)), Committed)

    def test_same_batch_again_is_skipped(self, world: LedgerWorld) -> None:
        """R5: skip if the ledger's digest equals mine."""
        driver = lead_on(world)
        plan = driver.ready(1)
        driver.commit(plan)

        assert driver.commit(plan) == AlreadyCommitted(txid=1)
        assert world.rows("flights_count")["AA", "JFK"] == (2, 200)

    def test_other_batch_with_the_same_txid_halts(self, world: LedgerWorld) -> None:
        """R5: otherwise HALT."""
        driver = lead_on(world)
        driver.commit(driver.ready(1))

        with pytest.raises(Halted, match="another plan"):
            driver.commit(driver.plan(1, "/in/other.csv"))

    def test_gap_halts(self, world: LedgerWorld) -> None:
        """R6: only last == n-1 applies."""
        driver = lead_on(world)
        driver.ready(1)

        with pytest.raises(Halted, match="gap"):
            driver.commit(driver.ready(2))
        assert world.rows("flights_count") == {}

    def test_batch_that_chains_to_another_predecessor_halts(self, world: LedgerWorld) -> None:
        """R12: the digest of the batch before is part of the batch."""
        driver = lead_on(world)
        driver.digests[0] = b"e" * 32

        with pytest.raises(Halted, match="ledger refuses"):
            driver.commit(driver.ready(1))

    def test_batch_that_was_not_mirrored_halts(self, world: LedgerWorld) -> None:
        """R9: the plan is in Postgres before the first commit attempt."""
        driver = lead_on(world)
        driver.begin(1)

        with pytest.raises(Halted, match="no mirrored plan"):
            driver.commit(driver.plan(1))
        assert world.rows("flights_count") == {}

    def test_attempt_that_never_began_is_not_committed(self, world: LedgerWorld) -> None:
        """What commits is an attempt that was remembered before anything was emitted."""
        driver = lead_on(world)
        driver.mirror(driver.plan(1))

        with pytest.raises(InvariantBroken):
            driver.commit(driver.plan(1))

    def test_results_of_other_code_are_refused(self, world: LedgerWorld) -> None:
        """R12: an attempt commits only if its code hash is the leader's."""
        driver = lead_on(world)

        outcome = driver.commit(driver.ready(1), code_hash=b"x" * 32)

        assert isinstance(outcome, Aborted)
        assert (outcome.failure.kind, b"x".hex() * 6 in outcome.failure.message) == ("data", True)

    def test_batch_without_one_of_its_committers_is_refused(self, world: LedgerWorld) -> None:
        """R13: all committers of a batch, each once."""
        driver = lead_on(world)
        plan = driver.ready(1)

        for results in ((), (result_of(ROWS), result_of(ROWS)), (result_of(ROWS, "else"),)):
            outcome = driver.commit(plan, results=results)
            assert isinstance(outcome, Aborted)
            assert outcome.failure.kind == "data"

    @pytest.mark.parametrize("wrong", [{"arrived": 7}, {"row_count": 4}])
    def test_numbers_that_disagree_are_refused(self, world: LedgerWorld, wrong: dict[str, Any]) -> None:
        """I6: arrived = counted and results = written + ignored; the message has the numbers."""
        driver = lead_on(world)
        result = result_of(ROWS, **wrong)

        outcome = driver.commit(driver.ready(1), results=(result,))

        assert isinstance(outcome, Aborted)
        assert (outcome.failure.kind, outcome.failure.component) == ("data", "by_route")
        assert (
            f"{result.arrived} tuples arrived, the rows applied count 6; {result.row_count} result rows were passed "
            f"to it, 3 written" in outcome.failure.message
        )
        assert world.rows("flights_count") == {}

    def test_edges_and_totals_that_disagree_are_refused(self, world: LedgerWorld) -> None:
        """What was sent was received; no more is rejected than was read."""
        driver = lead_on(world)
        plan = driver.ready(1)

        wrongs: list[dict[str, Any]] = [
            {"edges": (EdgeCount(edge="a>b", sent=2, received=1),)},
            {"edges": (EdgeCount(edge="a>b", sent=2, received=2),) * 2},
            {"read": 1, "rejected": 2, "rejected_rows": (rejected_row(2), rejected_row(3))},
        ]
        for wrong in wrongs:
            outcome = driver.commit(plan, **wrong)
            assert isinstance(outcome, Aborted)
            assert outcome.failure.kind == "data"

    @pytest.mark.parametrize(
        "row",
        [("A\0", "JFK", 1, 1), ("AA", "JFK", 2**63 - 1, 1), ("AA", "JFK", 1, None)],
        ids=["NUL", "overflow", "NULL sum"],
    )
    def test_rows_that_do_not_fit_fail_the_batch(self, world: LedgerWorld, row: Row) -> None:
        """P14: what the table cannot hold is a data failure naming the committer, and nothing of the batch stays."""
        driver = lead_on(world)
        driver.commit(driver.ready(1))

        outcome = driver.commit(driver.ready(2), [row])

        assert isinstance(outcome, Aborted)
        assert (outcome.failure.kind, outcome.failure.component) == ("data", "by_route")
        assert world.rows("flights_count")["AA", "JFK"] == (2, 200)
        assert isinstance(driver.commit(driver.plan(2)), Committed)

    def test_key_that_comes_twice_fails_the_batch(self, world: LedgerWorld) -> None:
        """Result rows are one a key."""
        driver = lead_on(world)

        outcome = driver.commit(driver.ready(1), [ROWS[1], ROWS[1]])

        assert isinstance(outcome, Aborted)
        assert outcome.failure.kind == "data"

    def test_all_committers_or_none(self, world: LedgerWorld) -> None:
        """R13: what the first committer wrote goes with the second one's failure."""
        driver = lead_on(world, committer("one", "one"), committer("two", "two"))
        plan = driver.ready(1)

        outcome = driver.commit(plan, results=(result_of(ROWS, "one"), result_of(ROWS, "two", arrived=1)))

        assert isinstance(outcome, Aborted)
        assert world.rows("one") == world.rows("two") == {}
        assert isinstance(driver.commit(plan), Committed)
        assert world.rows("one") == world.rows("two") != {}

    @pytest.mark.parametrize(
        "point", [CrashPoint.FENCE_LOCKED, CrashPoint.LEDGER_APPENDED, CrashPoint.APPLIED, CrashPoint.BEFORE_COMMIT]
    )
    def test_crash_before_commit_leaves_nothing(
        self, world: LedgerWorld, listen: Callable[[crash_points.Listener], None], point: CrashPoint
    ) -> None:
        """A database transaction that was not committed never was."""
        driver = lead_on(world)
        plan = driver.ready(1)
        die_at(listen, point)

        with pytest.raises(KeyboardInterrupt):
            driver.commit(plan)

        crash_points.listen(None)
        assert world.rows("flights_count") == {}
        assert world.attempt_state(1, 0) == "begun"
        assert isinstance(driver.commit(plan), Committed)

    def test_crash_after_commit_changes_nothing(
        self, world: LedgerWorld, listen: Callable[[crash_points.Listener], None]
    ) -> None:
        """What was committed stays, and is not applied again."""
        driver = lead_on(world)
        plan = driver.ready(1)
        die_at(listen, CrashPoint.COMMITTED)

        with pytest.raises(KeyboardInterrupt):
            driver.commit(plan)

        crash_points.listen(None)
        assert driver.commit(plan) == AlreadyCommitted(txid=1)
        assert world.rows("flights_count")["AA", "JFK"] == (2, 200)

    def test_unanswered_commit_is_unknown_and_then_resolved(
        self, world: LedgerWorld, listen: Callable[[crash_points.Listener], None]
    ) -> None:
        """R7: unknown is resolved under the fence lock, on a new connection."""
        driver = lead_on(world)
        plan = driver.ready(1)

        def break_it(point: CrashPoint, _: int | None) -> None:
            if point is CrashPoint.BEFORE_COMMIT:
                world.break_commit()

        listen(break_it)
        outcome = driver.commit(plan)
        crash_points.listen(None)

        assert isinstance(outcome, Unknown)
        resolved = driver.ledger.resolve(driver.lead, [(1, plan.digest)])[0]
        assert isinstance(resolved, Aborted)
        assert resolved.failure.kind == "infrastructure"
        assert isinstance(driver.commit(plan), Committed)

    def test_resolve_finds_the_batch_or_another_one(self, world: LedgerWorld) -> None:
        """R7: ledger row present and digest equal is committed, another digest halts."""
        driver = lead_on(world)
        plan = driver.ready(1)
        driver.commit(plan)

        assert driver.ledger.resolve(driver.lead, [(1, plan.digest)])[0] == Committed(txid=1)
        with pytest.raises(Halted, match="another plan"):
            driver.ledger.resolve(driver.lead, [(1, b"o" * 32)])

    def test_commit_before_the_batch_is_complete_is_refused(self, world: LedgerWorld) -> None:
        """P9: whoever ends the database transaction early commits nothing."""
        driver = lead_on(world)
        plan = driver.ready(1)

        with pytest.raises(Halted, match="COMMIT before batch 1 was complete"):
            with driver.ledger.session(driver.lead) as session:
                session.lock_fence()
                session.append_ledger(LedgerEntry(plan=plan, attempt=TransactionAttempt(1, 0)))
                session.apply(driver.committers[0], result_of(ROWS))
                session.commit()

        assert world.rows("flights_count") == {}
