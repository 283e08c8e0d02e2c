"""Commit runs in the machine: which batches are committed together, and what a run that fails or is unknown means."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from tests.kit.machines import Hand, chain, processed, ready
from txtopo.core import limits
from txtopo.core.commit_runs import grown
from txtopo.core.events import (
    Action,
    Answer,
    AttemptEnded,
    Commit,
    CommitEnded,
    CommitRunFailed,
    End,
    HaltRequired,
    LeadGone,
    LogAction,
    Mirror,
    OrdersSeen,
    PlansCut,
    Process,
    RecordEnd,
    Resolve,
    StopWanted,
    ZooKeeperSeen,
)
from txtopo.core.plan import Plan
from txtopo.core.values import (
    Aborted,
    AlreadyCommitted,
    CommitOutcome,
    Committed,
    DeadLetter,
    EdgeCount,
    Failure,
    Order,
    Processed,
    RejectedRow,
    RunEnded,
    RunFailed,
    Unknown,
)
from txtopo.errors import InvariantBroken, Patience


def runs(actions: list[Action]) -> list[list[int]]:
    """The txids of each commit."""
    return [[item.plan.txid for item in action.items] for action in actions if isinstance(action, Commit)]


def waiting(count: int, mirrored: int | None = None, **rules: Any) -> Hand:
    """A leader with `count` processed batches, whose plans are mirrored in one piece."""
    hand = ready(count, **{"workers": count, "run_txids_max": 64, **rules})
    for txid in range(count, 0, -1):
        hand.succeed(txid)
    hand.mirrored(count if mirrored is None else mirrored)
    return hand


def of_size(txid: int, **values: Any) -> Processed:
    """Results with other sizes."""
    made = processed(txid)
    result = {name: values.pop(name) for name in ("row_count", "bytes") if name in values}
    return replace(made, results=(replace(made.results[0], **result),), **values)


def waiting_with(values: dict[int, dict[str, Any]]) -> Hand:
    """Three processed batches, some of them with results of other sizes."""
    hand = ready(3, workers=3, run_txids_max=64)
    for txid in (3, 2, 1):
        hand.tell(AttemptEnded(outcome=of_size(txid, **values.get(txid, {}))))
    hand.mirrored(3)
    return hand


def rejected(count: int, size: int = 1) -> tuple[RejectedRow, ...]:
    """So many rejected records of so many bytes."""
    return tuple(
        RejectedRow(path="f", line=n + 1, reason="no int", raw=b"x" * size, raw_bytes=size) for n in range(count)
    )


def dead(count: int, size: int = 1) -> tuple[DeadLetter, ...]:
    """So many dead letters of so many bytes."""
    return tuple(
        DeadLetter(spout="s", position=f"f:{n}", component="b", reason="no", raw=b"x" * size) for n in range(count)
    )


def ended(*outcomes: CommitOutcome, locked_s: float | None = None) -> CommitEnded:
    """The commit that is under way ended so."""
    return CommitEnded(outcomes=outcomes, locked_s=locked_s)


def committed(first: int, last: int, locked_s: float | None = None) -> CommitEnded:
    """All of a run were committed."""
    return ended(*(Committed(txid=txid) for txid in range(first, last + 1)), locked_s=locked_s)


def failed(first: int, last: int, patience: Patience | None = None, off: str | None = None) -> CommitRunFailed:
    """The run under way was rolled back."""
    return CommitRunFailed(failed=RunFailed(first=first, last=last, message="57014", patience=patience, off=off))


class TestWhatIsInARun:
    """R19, R20."""

    def test_batches_that_are_ready_are_committed_together(self) -> None:
        """In ascending order, whichever was processed first."""
        hand = waiting(5)

        assert runs(hand.actions) == [[1, 2, 3, 4, 5]]
        assert hand.tick(1.0) == []

    def test_nobody_waits_for_a_run_to_fill(self) -> None:
        """The lowest is ready: it is committed at once, with whatever else is ready at that moment."""
        hand = ready(5, workers=5, run_txids_max=64)
        hand.succeed(1)
        hand.mirrored(1)
        first = runs(hand.actions)
        for txid in (2, 3, 5):
            hand.succeed(txid)
        hand.mirrored(3)
        hand.committed(1)

        assert (first, runs(hand.actions)) == ([[1]], [[2, 3]])

    def test_every_batch_of_a_run_is_mirrored(self) -> None:
        """R9 holds for each of them."""
        assert runs(waiting(5, mirrored=3).actions) == [[1, 2, 3]]

    def test_a_run_ends_before_a_skipped_batch(self) -> None:
        """Its row is final when it is inserted."""
        hand = waiting(5, mirrored=0)
        hand.tell(OrdersSeen(orders=(Order(order_id=1, kind="skip", txids=(3,), reason="bad"),)))
        hand.mirrored(5)

        assert runs(hand.actions) == [[1, 2]]

    @pytest.mark.parametrize(("at", "run"), [(1, [1]), (2, [1]), (3, [1, 2])])
    def test_a_redo_is_committed_alone(self, at: int, run: list[int]) -> None:
        """It takes back under the lock what another batch contributed."""
        hand = Hand(5, workers=5, run_txids_max=64)
        hand.tick()
        plans: list[Plan] = []
        for one in chain(6, 9):
            kind: dict[str, Any] = {"kind": "redo", "redo_of": 2} if one.txid == 5 + at else {}
            plans.append(replace(one, previous_digest=plans[-1].digest if plans else b"before", **kind))
        hand.tell(PlansCut(plans=tuple(plans), exhausted=False))
        for txid in (9, 8, 7, 6):
            hand.succeed(txid)
        hand.mirrored(9)

        assert runs(hand.actions) == [[5 + number for number in run]]

    def test_a_run_ends_below_a_halt(self) -> None:
        """What lies above the halt is not committed."""
        hand = waiting(4, mirrored=0)
        hand.tell(HaltRequired(reason="evidence", txid=3, planning=True))
        hand.mirrored(4)

        assert runs(hand.actions) == [[1, 2]]

    def test_opaque_batches_are_committed_one_by_one(self) -> None:
        """Only the next one is mirrored; a run would pin plans of batches whose commit fails."""
        hand = ready(3, workers=3, run_txids_max=64, opaque=True)
        for txid in (3, 2, 1):
            hand.succeed(txid)
        hand.mirrored(3)

        assert runs(hand.actions) == [[1]]

    @pytest.mark.parametrize(
        "values",
        [
            {1: {"row_count": 9_999}, 2: {"row_count": 2}},
            {1: {"bytes": 3 * 2**20}, 2: {"bytes": 2**20 + 1}},
            {2: {"edges": tuple(EdgeCount(edge=str(n), sent=1, received=1) for n in range(10_001))}},
            {1: {"rejected_rows": rejected(600)}, 2: {"dead_letters": dead(401)}},
            {1: {"rejected_rows": rejected(2, 2**19)}},
            {2: {"dead_letters": dead(2, 2**19)}},
            {1: {"row_count": 10_001}},
        ],
        ids=["rows", "bytes", "edges", "records", "bytes of rejects", "bytes of dead letters", "too large"],
    )
    def test_a_run_fits_into_one_statement_of_each_kind(self, values: dict[int, dict[str, Any]]) -> None:
        """What does not fit any more is the next run; what is too large by itself is committed alone, in pieces."""
        assert runs(waiting_with(values).actions) == [[1]]

    def test_a_run_that_just_fits_is_one(self) -> None:
        """Each bound is reached and not exceeded."""
        values: dict[int, dict[str, Any]] = {
            1: {"row_count": 9_998, "edges": tuple(EdgeCount(edge=str(n), sent=1, received=1) for n in range(9_999))},
            2: {"rejected_rows": rejected(500), "dead_letters": dead(500)},
            3: {"bytes": 4 * 2**20 - 200, "edges": (EdgeCount(edge="e", sent=1, received=1),)},
        }
        assert runs(waiting_with(values).actions) == [[1, 2, 3]]

    def test_a_topology_that_allows_no_runs_has_none(self) -> None:
        """Its tables, or its components."""
        hand = waiting(3, mirrored=0)
        hand.state = replace(hand.state, single_commits="a CHECK")
        hand.mirrored(3)

        assert runs(hand.actions) == [[1]]

    def test_no_run_starts_when_zookeeper_was_silent_for_too_long(self) -> None:
        """R24, Z5."""
        hand = waiting(3, mirrored=0)
        hand.tell(ZooKeeperSeen(suspended=True))
        hand.now += limits.SUSPENDED_SHARE_MAX * hand.state.rules.session_s + 0.1

        assert runs(hand.mirrored(3)) == []

    def test_the_results_held_are_counted_as_they_come_and_go(self) -> None:
        """A run gives back the memory of all of its batches."""
        hand = waiting(4, mirrored=3)
        before = hand.state.held_bytes
        hand.tell(committed(1, 3))

        assert (before, hand.state.held_bytes) == (400, 100)


class TestHowLargeARunIs:
    """R24."""

    def test_runs_begin_small_and_grow_while_they_are_fast(self) -> None:
        """8, then 16, 32, 64, and never more."""
        hand = waiting(200, spout_pending_max=200)
        sizes = []
        while hand.of(Commit):
            [run] = runs(hand.actions)
            sizes.append(len(run))
            hand.tell(committed(run[0], run[-1], locked_s=0.05))

        assert sizes == [8, 16, 32, 64, 64, 16]

    def test_of_the_time_under_the_lock_only_what_the_run_itself_takes(self) -> None:
        """R24: a commit of one batch makes the same round trips."""
        assert RunEnded(outcomes=(), locked_s=0.5, travel_s=0.375).own_s == 0.125
        assert RunEnded(outcomes=(), locked_s=0.1, travel_s=0.2).own_s == 0.0
        assert RunEnded(outcomes=()).own_s is None

    @pytest.mark.parametrize(
        ("run_max", "txids", "locked_s", "then"),
        [
            (8, 8, 0.099, 16),
            (8, 8, 0.1, 8),
            (8, 8, 0.25, 8),
            (8, 8, 0.251, 4),
            (3, 3, 9.0, 2),
            (2, 2, 9.0, 2),
            (64, 64, 0.01, 64),
            (8, 1, 0.01, 8),
            (8, 3, None, 8),
        ],
    )
    def test_time_under_the_lock_decides(self, run_max: int, txids: int, locked_s: float | None, then: int) -> None:
        """Below 100 ms it doubles, above 250 ms it halves; one batch alone says nothing."""
        assert grown(run_max, txids, locked_s) == then


class TestARunThatFails:
    """R25."""

    def test_its_batches_are_committed_one_by_one_and_then_runs_begin_again(self) -> None:
        """At once, without a failed attempt, a halt or a backoff; 2, then 4."""
        hand = waiting(9, mirrored=3)
        hand.mirrored(9)
        hand.tell(failed(1, 3))
        sizes = []
        while hand.of(Commit):
            [run] = runs(hand.actions)
            sizes.append(len(run))
            hand.tell(committed(run[0], run[-1], locked_s=0.01))

        assert sizes == [1, 1, 1, 2, 4]
        assert not [one for one in hand.everything if isinstance(one, RecordEnd | End)]
        assert len([one for one in hand.everything if isinstance(one, Process)]) == 9

    def test_runs_that_all_fail_become_rare(self) -> None:
        """What makes every run fail, and no batch alone, costs less and less; a run that is committed ends that."""
        hand = waiting(30)
        sizes, failing = [], 3
        while hand.of(Commit):
            [run] = runs(hand.actions)
            sizes.append(len(run))
            if failing and len(run) > 1:
                hand.tell(failed(run[0], run[-1]))
                failing -= 1
            else:
                hand.tell(committed(run[0], run[-1], locked_s=0.01))

        assert sizes == [8, *[1] * 8, 2, *[1] * 4, 2, *[1] * 8, 2, 4, 4]
        assert hand.state.runs_failed == 0

    def test_it_is_told(self) -> None:
        """A mistake in the statements of a run would only be slow, for ever, and nobody would see it."""
        hand = waiting(3)
        hand.tell(failed(1, 3))

        [logged] = hand.of(LogAction)
        assert (logged.action.command, logged.action.txid, logged.action.reason) == ("run_failed", 1, "57014")
        assert dict(logged.action.before) == {"first": 1, "last": 3}

    def test_no_run_begins_before_all_of_them_are_decided(self) -> None:
        """Also while one of them is processed again."""
        hand = waiting(6, mirrored=6, attempts_max=3)
        hand.tell(failed(1, 6))
        hand.committed(1)
        hand.tell(ended(Aborted(txid=2, failure=Failure(kind="data", message="does not fit"))))
        hand.tick(60.0)
        hand.succeed(2, 1)

        assert runs(hand.actions) == [[2]]
        hand.committed(2)
        assert runs(hand.actions) == [[3]]

    @pytest.mark.parametrize("patience", ["store", "lock", "time", "once"])
    def test_a_store_that_fails_a_run_is_left_alone_for_a_moment(self, patience: Patience) -> None:
        """Today's backoff; no try of the batch is counted, since only a batch alone has a kind of failure (W6)."""
        hand = waiting(3)
        hand.tell(failed(1, 3, patience))
        early = runs(hand.actions)
        hand.tick(1.0)

        assert (early, runs(hand.actions)) == ([], [[1]])
        assert hand.state.commit_tries.counts == {}

    def test_tables_that_are_not_plain_any_more_end_all_runs(self) -> None:
        """R20, read under the locks."""
        hand = waiting(12)
        hand.tell(failed(1, 8, off="a CHECK"))
        sizes = []
        while hand.of(Commit):
            [run] = runs(hand.actions)
            sizes.append(len(run))
            hand.tell(committed(run[0], run[-1], locked_s=0.01))

        assert sizes == [1] * 12

    def test_a_late_answer_of_another_run_changes_nothing(self) -> None:
        """Only the run that is under way can fail."""
        hand = waiting(3)
        hand.tell(committed(1, 3))
        before = hand.state
        hand.tell(failed(1, 3))

        assert hand.state == before


class TestWhatARunEndsWith:
    """R21, R26, R28."""

    def test_first_batches_only_leave_the_others_for_the_next_run(self) -> None:
        """Those that the ledger had already, or those before results that are not sound."""
        hand = waiting(5)
        hand.tell(ended(AlreadyCommitted(txid=1), AlreadyCommitted(txid=2)))

        assert runs(hand.actions) == [[3, 4, 5]]
        assert hand.state.last_txid == 2

    def test_the_first_alone_fails_with_its_own_words(self) -> None:
        """The others wait again, with their results."""
        hand = waiting(3)
        hand.tell(ended(Aborted(txid=1, failure=Failure(kind="data", message="other code"))))

        phases = [hand.state.batches[txid].phase.value for txid in (1, 2, 3)]
        assert phases == ["planned", "processed", "processed"]
        assert not hand.state.committing

    @pytest.mark.parametrize("outcomes", [(1, 3), (1, 2, 2), (2, 1)])
    def test_outcomes_with_a_hole_are_refused(self, outcomes: tuple[int, ...]) -> None:
        """I2: nothing is taken for committed that nobody spoke of."""
        hand = waiting(3)
        told = ended(*(Committed(txid=txid) for txid in outcomes))
        if outcomes[0] != 1:
            before = hand.state
            hand.tell(told)
            assert hand.state == before
            return
        with pytest.raises(InvariantBroken):
            hand.tell(told)

    def test_a_committed_batch_and_a_failed_one_do_not_come_from_one_transaction(self) -> None:
        """I16: all or none."""
        hand = waiting(2)
        with pytest.raises(InvariantBroken):
            hand.tell(ended(Committed(txid=1), Aborted(txid=2, failure=Failure(kind="data", message="x"))))

    def test_an_unknown_run_is_resolved_as_a_whole_before_anything_else(self) -> None:
        """R26: with the plans of all of them, and of no other."""
        hand = waiting(9)
        hand.tell(ended(*(Unknown(txid=txid, message="cut") for txid in range(1, 9))))

        [asked] = hand.of(Resolve)
        assert [plan.txid for plan in asked.plans] == list(range(1, 9))
        assert runs(hand.actions) == []
        hand.tell(committed(1, 8))
        assert (hand.state.last_txid, runs(hand.actions)) == (8, [[9]])

    def test_an_unknown_run_that_did_not_happen_is_committed_one_by_one(self) -> None:
        """R26, and told like any fall-back."""
        hand = waiting(3)
        hand.tell(ended(*(Unknown(txid=txid, message="cut") for txid in (1, 2, 3))))
        lost = Failure(kind="infrastructure", message="did not happen")
        hand.tell(ended(*(Aborted(txid=txid, failure=lost) for txid in (1, 2, 3))))
        told = [one.action.reason for one in hand.of(LogAction)]
        hand.tick(1.0)

        assert told == ["did not happen (cut)"]
        assert runs(hand.actions) == [[1]]
        hand.committed(1)
        assert runs(hand.actions) == [[2]]

    def test_orders_are_answered_in_ascending_order_after_the_commit_is_known(self) -> None:
        """R28."""
        hand = waiting(3)
        orders = tuple(Order(order_id=txid, kind="retry", txids=(txid,)) for txid in (3, 1, 2))
        early = hand.tell(OrdersSeen(orders=orders))
        hand.tell(committed(1, 3))

        assert not [one for one in early if isinstance(one, Answer)]
        assert [one.order_id for one in hand.of(Answer)] == [1, 2, 3]


class TestOrders:
    """R27."""

    @pytest.mark.parametrize("txid", [1, 2, 3])
    @pytest.mark.parametrize("unknown", [False, True], ids=["in progress", "unknown"])
    @pytest.mark.parametrize("happened", [True, False])
    def test_a_skip_waits_for_the_end_of_the_run(self, txid: int, unknown: bool, happened: bool) -> None:
        """I16: the answer is what the ledger says, wherever in the run the batch is."""
        hand = waiting(3)
        if unknown:
            hand.tell(ended(*(Unknown(txid=one, message="cut") for one in (1, 2, 3))))
        hand.tell(OrdersSeen(orders=(Order(order_id=7, kind="skip", txids=(txid,), reason="bad"),)))
        assert all(batch.quarantine is None for batch in hand.state.batches.values())

        if happened:
            hand.tell(committed(1, 3))
            [answer] = hand.of(Answer)
            assert (answer.state, answer.answer) == ("refused", f"batch {txid} was committed before the order came")
            return
        hand.tell(failed(1, 3) if not unknown else ended(*(aborted(one) for one in (1, 2, 3))))
        assert hand.state.batches[txid].quarantine is not None

    @pytest.mark.parametrize("at_once", [True, False])
    def test_a_stop_lets_the_run_end(self, at_once: bool) -> None:
        """Its outcome is known before the lead is given up."""
        hand = waiting(3, mirrored=3)
        early = hand.tell(StopWanted(at_once=at_once, reason="enough"))
        hand.tell(committed(1, 3))

        assert not [one for one in early if isinstance(one, End)]
        assert hand.state.last_txid == 3

    def test_a_replan_waits_for_the_end_of_the_run(self) -> None:
        """Also while the run is unknown."""
        hand = waiting(3)
        hand.tell(OrdersSeen(orders=(Order(order_id=7, kind="replan"),)))
        in_progress = hand.state.ended
        hand.tell(ended(*(Unknown(txid=one, message="cut") for one in (1, 2, 3))))

        assert (in_progress, hand.state.ended) == (None, None)


def aborted(txid: int) -> Aborted:
    """An unanswered COMMIT that did not happen."""
    return Aborted(txid=txid, failure=Failure(kind="infrastructure", message="did not happen"))


def test_results_that_are_there_together_are_mirrored_and_committed_together() -> None:
    """R19: not the first by itself, before anybody looks at the others."""
    hand = ready(4, workers=4, run_txids_max=64, joins_mirrors=True)

    hand.tell_all([AttemptEnded(outcome=processed(txid)) for txid in (1, 2, 3)])
    mirrors = [[plan.txid for plan in one.plans] for one in hand.of(Mirror)]
    before = runs(hand.actions)
    hand.mirrored(3)

    assert (mirrors, before) == ([[1, 2, 3]], [])
    assert runs(hand.actions) == [[1, 2, 3]]


def test_what_ends_the_run_ends_the_events() -> None:
    """R15: what came after it changes nothing, and starts nothing."""
    hand = ready(2, workers=2)

    hand.tell_all([LeadGone(fenced=True, message="x"), AttemptEnded(outcome=processed(1))])

    assert hand.state.ended is not None and hand.state.ended.kind == "fenced"
    assert hand.state.batches[1].processed is None
    assert hand.of(Mirror) == []
