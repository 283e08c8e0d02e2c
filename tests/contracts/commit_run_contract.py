"""What every commit run must do on every ledger, as tests to inherit: the contract of a commit again, with the batch at
hand first, in the middle and last in a run of three.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import pytest

from tests.contracts.ledger_driver import (
    ROWS,
    Driver,
    LedgerWorld,
    Row,
    committer,
    dead_letter,
    die_at,
    lead_on,
    rejected_row,
    result_of,
)
from txtopo.core import crash_points
from txtopo.core.crash_points import CrashPoint
from txtopo.core.plan import Plan
from txtopo.core.values import (
    Aborted,
    AlreadyCommitted,
    Committed,
    EdgeCount,
    RunEnded,
    RunFailed,
    TransactionAttempt,
    Unknown,
)
from txtopo.errors import Fenced, Halted, InvariantBroken
from txtopo.ports import LedgerEntry, LedgerRunSession, LedgerTotals

Listen = Callable[[crash_points.Listener], None]
AT = pytest.mark.parametrize("at", [1, 2, 3], ids=["first", "middle", "last"])
OTHER_ROWS: list[Row] = [("AA", "JFK", 1, 10), ("DL", None, 4, 7)]
POINTS = [
    CrashPoint.FENCE_LOCKED,
    CrashPoint.LEDGER_APPENDED,
    CrashPoint.APPLIED,
    CrashPoint.RUN_FINISHED,
    CrashPoint.BEFORE_COMMIT,
]
TOTALS = LedgerTotals(read=10, rejected=0, dead_lettered=0, committers=1, spans={})


def at_hand(at: int, **values: Any) -> Mapping[int, Mapping[str, Any]]:
    """The other values of the batch at hand; its neighbours keep theirs."""
    return {at: values}


def untouched(world: LedgerWorld, driver: Driver) -> None:
    """Nothing of a run of three is there, and all of its attempts are still begun."""
    assert world.rows("flights_count") == {}
    assert world.contributions("flights_count") == []
    assert [world.ledger_row(txid) for txid in (1, 2, 3)] == [None] * 3
    assert [world.attempt_state(txid, 0) for txid in (1, 2, 3)] == ["begun"] * 3
    fence = driver.ledger.read_fence()
    assert fence is not None
    assert fence.last_txid == 0


class CommitRunContract:
    """The commit of several batches in one database transaction (R19 to R26)."""

    @AT
    def test_run_leaves_what_its_batches_one_by_one_leave(self, world: LedgerWorld, at: int) -> None:
        """R19, R22: each has its ledger row, counts, edges, records, contributions and ended attempt."""
        driver = lead_on(world)
        plans = driver.ready_run()
        edge, lines = (
            EdgeCount(edge="spout>by_route", sent=5, received=5),
            (rejected_row(2), rejected_row(7, unit="row")),
        )
        other = at_hand(
            at, rows=OTHER_ROWS, edges=(edge,), rejected=2, rejected_rows=lines, dead_letters=(dead_letter(),)
        )

        ended = driver.commit_run(plans, other)

        assert isinstance(ended, RunEnded)
        assert [type(one) for one in ended.outcomes] == [Committed] * 3
        for txid in (1, 2, 3):
            mine, rows = txid == at, OTHER_ROWS if txid == at else ROWS
            counted = sum(row[2] for row in rows)
            assert world.counts(txid) == {"by_route": (counted, counted, len(rows), len(rows), 0)}
            kept = [row for row in world.contributions("flights_count") if row[0] == txid]
            assert sorted(kept, key=repr) == sorted(((txid, None, *row) for row in rows), key=repr)
            assert world.edges(txid) == ({"spout>by_route": (5, 5)} if mine else {})
            assert [row[2::4] for row in world.rejected(txid)] == ([(2, "line"), (7, "row")] if mine else [])
            assert [row[1] for row in world.dead_letters(txid)] == (["/in/1.csv:4"] if mine else [])
            assert world.ledger_row(txid) == ("applied", None, None, 2 if mine else 0)
            assert world.attempt_state(txid, 0) == "applied"
        assert world.rows("flights_count") == {
            ("AA", "JFK"): (5, 410),
            ("AA", None): (2, 100),
            ("UA", "EWR"): (6, 1800),
            ("DL", None): (4, 7),
        }
        fence = driver.ledger.read_fence()
        assert fence is not None
        assert fence.last_txid == 3
        assert isinstance(driver.commit(driver.ready(4)), Committed)

    def test_digests_are_those_of_single_commits(self, world: LedgerWorld) -> None:
        """A reader of the counts cannot tell whether a batch was committed in a run."""
        driver = lead_on(world)
        alone = [driver.commit(driver.ready(txid), rows) for txid, rows in ((1, ROWS), (2, OTHER_ROWS))]

        ended = driver.commit_run(driver.ready_run(3), {4: {"rows": OTHER_ROWS}})

        assert isinstance(ended, RunEnded)
        digests = [one.counts[0].digest for one in (*alone, *ended.outcomes) if isinstance(one, Committed)]
        assert digests[0] == digests[2] == digests[4]
        assert digests[1] == digests[3] != digests[0]

    @AT
    def test_empty_batch_is_a_batch(self, world: LedgerWorld, at: int) -> None:
        """K6: a batch without rows has its row and its count of nothing; so has a run of nothing else."""
        driver = lead_on(world)

        ended = driver.commit_run(driver.ready_run(), at_hand(at, rows=[], read=0))

        assert isinstance(ended, RunEnded)
        assert world.counts(at) == {"by_route": (0, 0, 0, 0, 0)}
        empty = {txid: {"rows": [], "read": 0} for txid in (4, 5, 6)}
        assert isinstance(driver.commit_run(driver.ready_run(4), empty), RunEnded)
        assert world.counts(6) == {"by_route": (0, 0, 0, 0, 0)}

    def test_null_keys_add_up(self, world: LedgerWorld) -> None:
        """NULL is a key like any other, also within a run."""
        driver = lead_on(world)

        driver.commit_run(
            driver.ready_run(), {txid: {"rows": [("AA", None, 1, 50), (None, None, 2, -7)]} for txid in (1, 2, 3)}
        )

        assert world.rows("flights_count") == {("AA", None): (3, 150), (None, None): (6, -21)}
        assert world.counts(2) == {"by_route": (3, 3, 2, 2, 0)}

    def test_same_run_again_is_skipped(self, world: LedgerWorld) -> None:
        """R21: all digests the same, so all of them are committed already."""
        driver = lead_on(world)
        plans = driver.ready_run()
        driver.commit_run(plans)

        assert driver.commit_run(plans) == RunEnded(outcomes=tuple(AlreadyCommitted(txid=txid) for txid in (1, 2, 3)))
        assert world.rows("flights_count")["AA", "JFK"] == (6, 600)

    @pytest.mark.parametrize("there", [1, 2])
    def test_run_that_straddles_the_last_batch_is_given_up(self, world: LedgerWorld, there: int) -> None:
        """R21: what is there is compared and skipped, and the rest is a new run: nothing is applied twice."""
        driver = lead_on(world)
        plans = driver.ready_run()
        for plan in plans[:there]:
            driver.commit(plan)

        assert driver.commit_run(plans) == RunEnded(
            outcomes=tuple(AlreadyCommitted(txid=plan.txid) for plan in plans[:there])
        )
        assert world.rows("flights_count")["AA", "JFK"] == (2 * there, 200 * there)
        assert world.ledger_row(there + 1) is None

    @AT
    def test_other_batch_with_the_same_txid_fails_the_run(self, world: LedgerWorld, at: int) -> None:
        """R21 compares each digest, not the last one; R25: the halt counts when the batch alone repeats it."""
        driver = lead_on(world)
        plans = driver.ready_run()
        driver.commit_run(plans)
        plans[at - 1] = driver.plan(at, "/in/other.csv")

        failed = driver.commit_run(plans)

        assert isinstance(failed, RunFailed)
        assert f"batch {at} was committed with another plan" in failed.message
        with pytest.raises(Halted, match=f"batch {at} was committed with another plan"):
            driver.commit(plans[at - 1])

    def test_gap_fails_the_run(self, world: LedgerWorld) -> None:
        """R6: only what follows the last batch is applied."""
        driver = lead_on(world)
        driver.ready(1)

        failed = driver.commit_run(driver.ready_run(2))

        assert isinstance(failed, RunFailed)
        assert "gap" in failed.message
        assert world.rows("flights_count") == {}

    @AT
    def test_batch_that_chains_to_another_predecessor_fails_the_run(self, world: LedgerWorld, at: int) -> None:
        """R12: the digest of the batch before is part of the batch."""
        driver = lead_on(world)
        plans = driver.ready_run(1, at - 1) if at > 1 else []
        driver.digests[at - 1] = b"e" * 32
        plans += driver.ready_run(at, 4 - at)

        failed = driver.commit_run(plans)

        assert isinstance(failed, RunFailed)
        untouched(world, driver)

    @AT
    def test_batch_that_was_not_mirrored_fails_the_run(self, world: LedgerWorld, at: int) -> None:
        """R9: each plan of a run is in Postgres before."""
        driver = lead_on(world)
        plans = [driver.plan(txid) for txid in (1, 2, 3)]
        driver.mirror(*plans[: at - 1])
        for txid in (1, 2, 3):
            driver.begin(txid)

        failed = driver.commit_run(plans)

        assert isinstance(failed, RunFailed)
        assert "no mirrored plan" in failed.message
        untouched(world, driver)

    @AT
    def test_attempt_that_never_began_fails_the_run(self, world: LedgerWorld, at: int) -> None:
        """What commits is an attempt that was recorded before anything was emitted."""
        driver = lead_on(world)

        failed = driver.commit_run(driver.ready_run(), at_hand(at, attempt=1))

        assert isinstance(failed, RunFailed)
        untouched(world, driver)

    @AT
    @pytest.mark.parametrize(
        "wrong",
        [
            {"code_hash": b"x" * 32},
            {"results": ()},
            {"results": (result_of(ROWS), result_of(ROWS))},
            {"results": (result_of(ROWS, "else"),)},
            {"edges": (EdgeCount(edge="a>b", sent=2, received=1),)},
            {"read": 1, "rejected": 2, "rejected_rows": (rejected_row(2), rejected_row(3))},
            {"rejected": 1},
        ],
        ids=["code", "none", "twice", "else", "edge", "totals", "rejected"],
    )
    def test_run_ends_before_results_that_are_not_sound(
        self, world: LedgerWorld, at: int, wrong: Mapping[str, Any]
    ) -> None:
        """R20: what needs no database is checked before, and the batch fails alone, with its own message."""
        driver = lead_on(world)

        ended = driver.commit_run(driver.ready_run(), {at: wrong})

        assert isinstance(ended, RunEnded)
        if at == 1:
            [outcome] = ended.outcomes
            assert isinstance(outcome, Aborted)
            assert (outcome.txid, outcome.failure.kind) == (1, "data")
        else:
            assert [type(one) for one in ended.outcomes] == [Committed] * (at - 1)
        assert world.ledger_row(at) is None

    @AT
    @pytest.mark.parametrize("wrong", [{"arrived": 7}, {"row_count": 4}])
    def test_numbers_that_disagree_fail_the_run(self, world: LedgerWorld, at: int, wrong: dict[str, Any]) -> None:
        """I6 holds for each batch of a run, not for their sum."""
        driver = lead_on(world)

        failed = driver.commit_run(driver.ready_run(), at_hand(at, results=(result_of(ROWS, **wrong),)))

        assert isinstance(failed, RunFailed)
        assert "its numbers disagree" in failed.message
        assert (failed.first, failed.last, failed.patience, failed.off) == (1, 3, None, None)
        untouched(world, driver)

    def test_numbers_that_disagree_in_opposite_ways_fail_the_run(self, world: LedgerWorld) -> None:
        """I6: tuples of one batch that were counted for another one leave every sum right."""
        driver = lead_on(world)
        swapped = {1: {"results": (result_of(ROWS, arrived=5),)}, 3: {"results": (result_of(ROWS, arrived=7),)}}

        assert isinstance(driver.commit_run(driver.ready_run(), swapped), RunFailed)
        untouched(world, driver)

    @AT
    @pytest.mark.parametrize(
        "rows",
        [[("A\0", "JFK", 1, 1)], [("AA", "JFK", 2**63 - 1, 1), ("AA", "EWR", 1, 1)], [("AA", "JFK", 1, None)]],
        ids=["NUL", "overflow", "NULL sum"],
    )
    def test_rows_that_do_not_fit_fail_the_run(self, world: LedgerWorld, at: int, rows: list[Row]) -> None:
        """R25: nothing of the run stays, no attempt has ended, and the batch alone shows whose fault it is."""
        driver = lead_on(world)
        plans = driver.ready_run()

        assert isinstance(driver.commit_run(plans, at_hand(at, rows=rows)), RunFailed)
        untouched(world, driver)
        for plan in plans[: at - 1]:
            assert isinstance(driver.commit(plan), Committed)
        if len(rows) == 1:
            outcome = driver.commit(plans[at - 1], rows)
            assert isinstance(outcome, Aborted)
            assert (outcome.failure.kind, outcome.failure.component) == ("data", "by_route")

    @AT
    def test_key_that_comes_twice_in_a_batch_fails_the_run(self, world: LedgerWorld, at: int) -> None:
        """R22: the sum would hide it, and every number would agree."""
        driver = lead_on(world)

        assert isinstance(driver.commit_run(driver.ready_run(), at_hand(at, rows=[ROWS[1], ROWS[1]])), RunFailed)
        untouched(world, driver)

    @AT
    def test_key_that_comes_twice_fails_the_run_also_without_contributions(self, world: LedgerWorld, at: int) -> None:
        """R22: no unique index of a contribution table notices it."""
        driver = lead_on(world, committer(contributions=False))

        assert isinstance(driver.commit_run(driver.ready_run(), at_hand(at, rows=[ROWS[0], ROWS[0]])), RunFailed)
        assert world.rows("flights_count") == {}

    @AT
    def test_edge_or_record_that_comes_twice_fails_the_run(self, world: LedgerWorld, at: int) -> None:
        """What the ledger refuses of one batch it refuses of a run."""
        driver = lead_on(world)
        plans, edge = driver.ready_run(), EdgeCount(edge="a>b", sent=2, received=2)

        for wrong in (
            {"edges": (edge, edge)},
            {"rejected": 2, "rejected_rows": (rejected_row(2), rejected_row(2))},
            {"dead_letters": (dead_letter(), dead_letter())},
        ):
            assert isinstance(driver.commit_run(plans, {at: wrong}), RunFailed)
        untouched(world, driver)

    def test_batches_may_have_the_same_edges_and_records(self, world: LedgerWorld) -> None:
        """What has to be unique has to be unique in a batch."""
        driver = lead_on(world)
        same = {
            "edges": (EdgeCount(edge="a>b", sent=2, received=2),),
            "rejected": 1,
            "rejected_rows": (rejected_row(2),),
            "dead_letters": (dead_letter(),),
        }

        assert isinstance(driver.commit_run(driver.ready_run(), dict.fromkeys((1, 2, 3), same)), RunEnded)
        assert [len(world.rejected(txid)) + len(world.dead_letters(txid)) for txid in (1, 2, 3)] == [2, 2, 2]

    @AT
    def test_all_committers_or_none(self, world: LedgerWorld, at: int) -> None:
        """R13: what the first committer wrote goes with the second one's failure."""
        driver = lead_on(world, committer("one", "one"), committer("two", "two"))
        plans = driver.ready_run()
        wrong = (result_of(ROWS, "one"), result_of(ROWS, "two", arrived=1))

        assert isinstance(driver.commit_run(plans, at_hand(at, results=wrong)), RunFailed)
        assert world.rows("one") == world.rows("two") == {}
        assert isinstance(driver.commit_run(plans), RunEnded)
        assert world.rows("one") == world.rows("two") != {}
        assert world.counts(at) == {"one": (6, 6, 3, 3, 0), "two": (6, 6, 3, 3, 0)}

    @pytest.mark.parametrize("point", POINTS)
    def test_crash_before_commit_leaves_nothing(self, world: LedgerWorld, listen: Listen, point: CrashPoint) -> None:
        """A database transaction that was not committed never was."""
        driver = lead_on(world)
        plans = driver.ready_run()
        die_at(listen, point)

        with pytest.raises(KeyboardInterrupt):
            driver.commit_run(plans)

        crash_points.listen(None)
        untouched(world, driver)
        assert isinstance(driver.commit_run(plans), RunEnded)

    def test_crash_after_commit_changes_nothing(self, world: LedgerWorld, listen: Listen) -> None:
        """What was committed stays, and is not applied again."""
        driver = lead_on(world)
        plans = driver.ready_run()
        die_at(listen, CrashPoint.COMMITTED)

        with pytest.raises(KeyboardInterrupt):
            driver.commit_run(plans)

        crash_points.listen(None)
        assert driver.commit_run(plans) == RunEnded(outcomes=tuple(AlreadyCommitted(txid=txid) for txid in (1, 2, 3)))
        assert world.rows("flights_count")["AA", "JFK"] == (6, 600)

    def test_crash_points_are_reached_once_for_each_batch(self, world: LedgerWorld, listen: Listen) -> None:
        """Ascending, those of one kind together; the lock and the finished run once, with the first txid."""
        driver = lead_on(world, committer("one", "one"), committer("two", "two"))
        plans = driver.ready_run()
        reached: list[tuple[CrashPoint, int | None]] = []
        listen(lambda point, txid: reached.append((point, txid)))

        driver.commit_run(plans)

        each = [(point, txid) for point in POINTS for txid in ((1,) if point in (POINTS[0], POINTS[3]) else (1, 2, 3))]
        again = each.index((CrashPoint.APPLIED, 3)) + 1
        applied = [(CrashPoint.APPLIED, txid) for txid in (1, 2, 3)]
        assert reached == [
            *each[:again],
            *applied,
            *each[again:],
            *((CrashPoint.COMMITTED, txid) for txid in (1, 2, 3)),
        ]

    def test_unanswered_commit_is_unknown_for_the_whole_run(self, world: LedgerWorld, listen: Listen) -> None:
        """R26: one look resolves all of them, under the fence lock, on a new connection."""
        driver = lead_on(world)
        plans = driver.ready_run()

        def break_it(point: CrashPoint, txid: int | None) -> None:
            if (point, txid) == (CrashPoint.BEFORE_COMMIT, 3):
                world.break_commit()

        listen(break_it)
        ended = driver.commit_run(plans)
        crash_points.listen(None)

        assert isinstance(ended, RunEnded)
        assert [type(one) for one in ended.outcomes] == [Unknown] * 3
        resolved = driver.ledger.resolve(driver.lead, [(plan.txid, plan.digest) for plan in plans])
        assert [(one.txid, type(one)) for one in resolved] == [(txid, Aborted) for txid in (1, 2, 3)]
        untouched(world, driver)
        assert isinstance(driver.commit(plans[0]), Committed)

    def test_resolve_finds_all_of_a_run_or_halts(self, world: LedgerWorld) -> None:
        """R26: all there and equal, or none. Half of a run, or another batch, is evidence against the ledger."""
        driver = lead_on(world)
        plans = driver.ready_run(1, 4)
        asked = [(plan.txid, plan.digest) for plan in plans]
        driver.commit_run(plans[:3])

        assert list(driver.ledger.resolve(driver.lead, asked[:3])) == [Committed(txid=txid) for txid in (1, 2, 3)]
        with pytest.raises(Halted, match=r"half of a commit run.* batch 4 is missing"):
            driver.ledger.resolve(driver.lead, asked)
        for at in range(3):
            wrong = [(txid, b"o" * 32 if txid == at + 1 else digest) for txid, digest in asked[:3]]
            with pytest.raises(Halted, match=f"batch {at + 1} was committed with another plan"):
                driver.ledger.resolve(driver.lead, wrong)

    def test_resolve_of_a_run_is_fenced(self, world: LedgerWorld) -> None:
        """R4: a leader that was replaced learns nothing."""
        driver = lead_on(world)
        plans = driver.ready_run()
        lead_on(world, incarnation=driver.lead.incarnation)

        with pytest.raises(Fenced):
            driver.ledger.resolve(driver.lead, [(plan.txid, plan.digest) for plan in plans])

    def test_old_leader_commits_no_run(self, world: LedgerWorld) -> None:
        """R4: the one error, with a lost lead, that is not the run's own: this driver must stop."""
        driver = lead_on(world)
        plans = driver.ready_run()
        lead_on(world, incarnation=driver.lead.incarnation)

        with pytest.raises(Fenced):
            driver.commit_run(plans)
        untouched(world, driver)

    def test_commit_before_every_batch_is_complete_is_refused(self, world: LedgerWorld) -> None:
        """P9: whoever ends the database transaction early commits nothing."""
        driver = lead_on(world)
        plans = driver.ready_run()

        for finished in ((), (1,), (1, 2)):
            with pytest.raises(Halted, match="COMMIT before batch"):
                with driver.ledger.run_session(driver.lead) as session:
                    session.lock_fence()
                    session.append_run(
                        [LedgerEntry(plan=plan, attempt=TransactionAttempt(plan.txid, 0)) for plan in plans]
                    )
                    session.apply_run(driver.committers[0], {txid: result_of(ROWS) for txid in (1, 2, 3)})
                    if finished:
                        session.finish_run(dict.fromkeys(finished, TOTALS))
                    session.commit()
        untouched(world, driver)

    @pytest.mark.parametrize("lacking", [1, 2, 3])
    def test_batches_are_finished_in_order(self, world: LedgerWorld, lacking: int) -> None:
        """R23, I13: a row becomes final, and is sealed, directly after the one before it; so all of them or none."""
        driver = lead_on(world)
        plans = driver.ready_run()

        with pytest.raises((Halted, InvariantBroken)):
            with driver.ledger.run_session(driver.lead) as session:
                self._apply(session, driver, plans)
                session.finish_run({txid: TOTALS for txid in (1, 2, 3) if txid != lacking})
                session.commit()
        untouched(world, driver)

    def test_totals_in_any_order_finish_the_batches_in_theirs(self, world: LedgerWorld) -> None:
        """R23: the order of the txids decides, not that of a mapping."""
        driver = lead_on(world)
        plans = driver.ready_run()

        with driver.ledger.run_session(driver.lead) as session:
            self._apply(session, driver, plans)
            session.finish_run(dict.fromkeys((3, 1, 2), TOTALS))
            session.commit()

        assert [world.ledger_row(txid) for txid in (1, 2, 3)] == [("applied", None, None, 0)] * 3
        assert isinstance(driver.commit(driver.ready(4)), Committed)

    @staticmethod
    def _apply(session: LedgerRunSession, driver: Driver, plans: Sequence[Plan]) -> None:
        session.lock_fence()
        session.append_run([LedgerEntry(plan=plan, attempt=TransactionAttempt(plan.txid, 0)) for plan in plans])
        session.apply_run(driver.committers[0], {plan.txid: result_of(ROWS) for plan in plans})

    def test_table_that_is_not_plain_is_refused_under_the_locks(self, world: LedgerWorld) -> None:
        """R20: a CHECK would see the sum of a run: it may pass where a batch alone is refused."""
        driver = lead_on(world)
        plans = driver.ready_run()
        assert driver.ledger.single_commits(driver.committers) is None
        world.add_check("flights_count")

        failed = driver.commit_run(plans, {1: {"rows": [("AA", "JFK", -3, 0)]}})

        assert isinstance(failed, RunFailed)
        assert failed.off is not None
        assert "flights_count" in failed.off
        untouched(world, driver)
        assert "flights_count" in (driver.ledger.single_commits(driver.committers) or "")

    def test_time_is_measured_from_the_lock(self, world: LedgerWorld, listen: Listen) -> None:
        """R24: waiting for the lock is not the run's own time."""
        driver = lead_on(world)
        plans = driver.ready_run()
        clock: list[CrashPoint | str] = []
        listen(lambda point, _: clock.append(point))

        def now() -> float:
            clock.append("now")
            return float(clock.count("now"))

        ended = driver.commit_run(plans, now=now)

        assert isinstance(ended, RunEnded)
        assert ended.locked_s == 1.0
        first = clock.index("now")
        assert clock[first - 1 : first + 2] == [CrashPoint.FENCE_LOCKED, "now", CrashPoint.LEDGER_APPENDED]
        assert clock.index("now", first + 1) == len(clock) - 4  # before the batches are told one by one

    def test_action_of_the_leader_is_logged(self, world: LedgerWorld) -> None:
        """R25: a fall-back is told where `txtopo events` reads; an old leader tells nothing."""
        driver = lead_on(world)
        action = driver.run_failed(1, 3, "deadlock")

        driver.ledger.log_action(driver.lead, action)

        [(actor, command, reason, order_id, txid, before, _)] = world.actions()
        assert (actor, command, reason, order_id, txid) == ("leader", "run_failed", "deadlock", None, 1)
        assert before == {"first": 1, "last": 3}
        lead_on(world, incarnation=driver.lead.incarnation)
        with pytest.raises(Fenced):
            driver.ledger.log_action(driver.lead, action)

    def test_action_that_is_logged_again_is_one_row(self, world: LedgerWorld) -> None:
        """R25: the answer may be lost. Only the newest row of the command counts: what comes again later is told
        again.
        """
        driver = lead_on(world)
        one, two = driver.run_failed(1, 3, "deadlock"), driver.run_failed(4, 8, "deadlock")
        reason = replace(two, reason="serialization failure")
        other = replace(one, command="single_commits", txid=None)

        for action in (one, one, other, one, other, two, two, reason, one):
            driver.ledger.log_action(driver.lead, action)

        logged = [(command, reason, txid) for _, command, reason, _, txid, *_ in world.actions()]
        failed = [(1, "deadlock"), (4, "deadlock"), (4, "serialization failure"), (1, "deadlock")]
        assert [row for row in logged if row[0] == "run_failed"] == [("run_failed", why, txid) for txid, why in failed]
        assert [row for row in logged if row[0] != "run_failed"] == [("single_commits", "deadlock", None)]
