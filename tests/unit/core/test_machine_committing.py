"""The machine's decisions from commit to end, one promise a test."""

from __future__ import annotations

import pytest

from tests.kit.machines import Hand, chain, ready, started
from txtopo.core.events import (
    Cancel,
    Checkpoint,
    Checkpointed,
    CheckpointFailed,
    Commit,
    CommitEnded,
    End,
    HaltRequired,
    LeadGone,
    Mirror,
    PostgresAnswered,
    PostgresSilent,
    RecordEnd,
    Resolve,
    ResolveFailed,
    StopWanted,
    ZooKeeperSeen,
)
from txtopo.core.scheduling import keep_from
from txtopo.core.state import Phase
from txtopo.core.values import Aborted, AlreadyCommitted, Failure, Unknown


class TestCommitting:
    def test_later_batch_waits_for_earlier_commit(self) -> None:
        """Commits are strictly in txid order."""
        hand = ready(2)
        hand.succeed(2)
        waiting = hand.of(Mirror) + hand.of(Commit)
        hand.succeed(1)
        hand.mirrored(2)
        first = [item.plan.txid for commit in hand.of(Commit) for item in commit.items]

        hand.committed(1)

        assert waiting == []
        assert first == [1]
        assert [item.plan.txid for commit in hand.of(Commit) for item in commit.items] == [2]

    def test_no_commit_before_the_plan_is_mirrored(self) -> None:
        """R9."""
        hand = ready(1)

        hand.succeed(1)
        before = hand.of(Commit)
        hand.mirrored(1)

        assert before == []
        assert len(hand.of(Commit)) == 1

    def test_plans_are_mirrored_in_order_without_holes_and_only_when_processed(self) -> None:
        """R9; an unprocessed plan stays replaceable (R3)."""
        hand = ready(4)
        hand.succeed(4)
        hand.succeed(2)

        hand.succeed(1)

        assert [[one.txid for one in mirror.plans] for mirror in hand.of(Mirror)] == [[1, 2]]

    def test_a_plan_mirrored_by_an_earlier_leader_is_not_mirrored_again(self) -> None:
        hand = Hand(plans=chain(1, 1))
        hand.state = hand.state.with_batch(hand.state.batches[1])
        hand.tick()
        hand.mirrored(1)

        hand.succeed(1)

        assert hand.of(Mirror) == []
        assert len(hand.of(Commit)) == 1

    def test_one_commit_at_a_time(self) -> None:
        hand = ready(2)
        hand.succeed(1)
        hand.succeed(2)

        hand.mirrored(2)
        hand.tick(1.0)

        assert [
            item.plan.txid for commit in hand.everything if isinstance(commit, Commit) for item in commit.items
        ] == [1]

    def test_an_unknown_outcome_is_resolved_before_anything_else_is_committed(self) -> None:
        """R7."""
        hand = ready(2)
        hand.succeed(1)
        hand.succeed(2)
        hand.mirrored(2)

        hand.tell(CommitEnded(outcomes=(Unknown(txid=1, message="cut"),)))
        asked = hand.of(Resolve)
        hand.tell(ResolveFailed(message="away"))
        hand.tick(5.0)

        assert [plan.txid for resolve in asked for plan in resolve.plans] == [1]
        assert [plan.txid for resolve in hand.everything if isinstance(resolve, Resolve) for plan in resolve.plans] == [
            1,
            1,
        ]
        assert len([commit for commit in hand.everything if isinstance(commit, Commit)]) == 1

    def test_a_resolved_commit_advances_and_a_refuted_one_is_sent_again(self) -> None:
        hand = ready(2)
        hand.succeed(1)
        hand.succeed(2)
        hand.mirrored(2)
        hand.tell(CommitEnded(outcomes=(Unknown(txid=1, message="cut"),)))

        hand.tell(CommitEnded(outcomes=(Aborted(txid=1, failure=Failure(kind="infrastructure", message="not there")),)))
        hand.tick(1.0)
        again = [item.plan.txid for commit in hand.of(Commit) for item in commit.items]
        hand.tell(CommitEnded(outcomes=(Unknown(txid=1, message="cut"),)))
        hand.committed(1)

        assert again == [1]
        assert hand.state.last_txid == 1

    def test_an_aborted_commit_is_sent_again_with_the_same_results(self) -> None:
        hand = ready(1)
        hand.succeed(1)
        hand.mirrored(1)

        hand.tell(CommitEnded(outcomes=(Aborted(txid=1, failure=Failure(kind="infrastructure", message="deadlock")),)))
        hand.tick(1.0)

        assert [str(item.processed.attempt) for commit in hand.of(Commit) for item in commit.items] == ["1:0"]

    def test_rows_that_the_table_refuses_get_a_new_attempt(self) -> None:
        hand = ready(1)
        hand.succeed(1)
        hand.mirrored(1)

        hand.tell(CommitEnded(outcomes=(Aborted(txid=1, failure=Failure(kind="data", message="overflow")),)))
        hand.tick(1.0)

        assert started(hand) == ["1:1"]

    def test_rows_that_the_server_loses_again_and_again_halt_the_topology(self) -> None:
        """R10, W2: the batch is processed again, but not without an end, and it is never quarantined."""
        hand = ready(1)
        lost = Aborted(txid=1, failure=Failure(kind="suspect", message="5 of 9 rows"), rows_lost=True)

        for attempt in range(3):
            hand.succeed(1, attempt)
            if attempt == 0:
                hand.mirrored(1)
            assert len(hand.of(Commit)) == 1, attempt
            hand.tell(CommitEnded(outcomes=(lost,)))
            if attempt < 2:
                assert hand.state.halting is None
                hand.tick(60.0)
                assert started(hand) == [f"1:{attempt + 1}"]

        halting = hand.state.halting
        assert halting is not None and "no batch is at fault: 5 of 9 rows (3 times now)" in halting.reason
        assert "txtopo_staging" in str(halting.next_command)
        assert hand.state.batches[1].quarantine is None

    def test_a_batch_that_is_there_already_is_skipped(self) -> None:
        """R5, with the same digest."""
        hand = ready(1)
        hand.succeed(1)
        hand.mirrored(1)

        hand.tell(CommitEnded(outcomes=(AlreadyCommitted(txid=1),)))

        assert hand.state.last_txid == 1

    def test_no_new_commit_once_zookeeper_was_silent_for_most_of_the_session(self) -> None:
        """New commits go on until 0.6 of the session (Z5)."""
        hand = ready(2, session_s=10)
        hand.succeed(1)
        hand.succeed(2)
        hand.tell(ZooKeeperSeen(suspended=True))
        hand.now += 5.0
        hand.mirrored(2)
        early = [item.plan.txid for commit in hand.of(Commit) for item in commit.items]
        hand.now += 2.0
        hand.committed(1)
        late = hand.of(Commit)

        hand.tell(ZooKeeperSeen(suspended=False))

        assert early == [1]
        assert late == []
        assert [item.plan.txid for commit in hand.of(Commit) for item in commit.items] == [2]

    def test_the_lead_is_given_up_when_postgres_is_away_for_too_long(self) -> None:
        """R16."""
        hand = ready(1, postgres_away_max_s=30)
        hand.tell(PostgresSilent(message="refused"))
        hand.tick(29)
        patient = hand.of(End)

        hand.tick(2)

        assert patient == []
        assert [end.kind for end in hand.of(End)] == ["lead_lost"]

    def test_postgres_that_answers_again_keeps_the_lead(self) -> None:
        hand = ready(1, postgres_away_max_s=30)
        hand.tell(PostgresSilent(message="refused"))
        hand.tick(20)

        hand.tell(PostgresAnswered())
        hand.tick(20)

        assert hand.of(End) == []


class TestCleaning:
    def test_the_counter_is_written_once_a_run_of_commits(self) -> None:
        hand = ready(4)
        for txid in (1, 2, 3, 4):
            hand.succeed(txid)
        hand.mirrored(4)
        hand.committed(1)
        hand.tell(Checkpointed(last_txid=1, keep_from=1))
        hand.committed(2)
        hand.committed(3)
        written = hand.of(Checkpoint)

        hand.tick(1.0)

        assert written == []
        assert [(one.last_txid, one.keep_from) for one in hand.of(Checkpoint)] == [(3, 1)]

    def test_a_failed_checkpoint_is_tried_again(self) -> None:
        hand = ready(1)
        hand.succeed(1)
        hand.mirrored(1)
        hand.committed(1)

        hand.tell(CheckpointFailed(message="away"))
        hand.tick(1.0)

        assert [one.last_txid for one in hand.of(Checkpoint)] == [1]

    def test_metadata_of_ten_txids_and_of_the_last_minute_is_kept(self) -> None:
        """R8: K is the larger of 10 txids and all commits of the last 60 s."""
        hand = Hand(last_txid=100)
        fresh = keep_from(hand.state, hand.now + 59)
        later = keep_from(hand.state, hand.now + 61)

        assert fresh == 1
        assert later == 91

    def test_at_most_ten_thousand_are_kept(self) -> None:
        hand = Hand(last_txid=50_000)

        assert keep_from(hand.state, hand.now) == 40_001

    def test_commits_of_the_last_minute_are_kept(self) -> None:
        hand = Hand(last_txid=100, plans=chain(101, 130), workers=30)
        hand.tick(100)
        for txid in range(101, 131):
            hand.succeed(txid)
        hand.mirrored(130)
        for txid in range(101, 131):
            hand.tick(2)
            hand.committed(txid)

        kept = keep_from(hand.state, hand.now + 10)

        assert kept <= 106
        assert kept > 91


class TestEnding:
    def test_a_run_to_the_end_of_its_input_finishes_after_the_last_checkpoint(self) -> None:
        hand = Hand()
        hand.tick()
        hand.plans(*chain(1, 1))
        hand.plans(exhausted=True)
        hand.succeed(1)
        hand.mirrored(1)
        hand.committed(1)
        before = hand.of(End)

        hand.tell(Checkpointed(last_txid=1, keep_from=1))

        assert before == []
        assert [end.kind for end in hand.of(End)] == ["finished"]

    def test_a_stop_finishes_what_is_in_processing_and_begins_nothing(self) -> None:
        hand = ready(5, workers=2)

        hand.tell(StopWanted(at_once=False, reason="asked"))
        hand.plans()
        hand.succeed(1)
        hand.succeed(2)
        hand.mirrored(2)
        hand.committed(1)
        hand.committed(2)
        hand.tell(Checkpointed(last_txid=1, keep_from=1))
        hand.tell(Checkpointed(last_txid=2, keep_from=1))

        ends = [action for action in hand.everything if isinstance(action, End)]
        assert [end.kind for end in ends] == ["stopped"]
        assert hand.state.last_txid == 2
        assert hand.state.batches[3].phase is Phase.PLANNED

    def test_a_stop_at_once_waits_for_the_open_commit_only(self) -> None:
        hand = ready(3, workers=3)
        hand.succeed(1)
        hand.mirrored(1)
        hand.tell(StopWanted(at_once=True, reason="interrupted"))
        waiting = hand.of(End)

        hand.committed(1)
        hand.tell(Checkpointed(last_txid=1, keep_from=1))

        assert waiting == []
        assert [end.kind for end in hand.of(End)] == ["stopped"]
        assert [cancel.attempt.txid for cancel in hand.of(Cancel)] == [2, 3]
        assert [(end.attempt.txid, end.state) for end in hand.of(RecordEnd)] == [(2, "cancelled"), (3, "cancelled")]

    @pytest.mark.parametrize(("fenced", "kind"), [(True, "fenced"), (False, "lead_lost")])
    def test_a_lost_lead_ends_everything_at_once(self, fenced: bool, kind: str) -> None:
        """R4, R15."""
        hand = ready(2)
        hand.succeed(1)

        hand.tell(LeadGone(fenced=fenced, message="epoch 2"))
        after = hand.mirrored(1)

        assert hand.state.ended is not None and hand.state.ended.kind == kind
        assert after == []

    def test_evidence_halts_at_once(self) -> None:
        """R17: halt is loud and total."""
        hand = ready(2)

        hand.tell(HaltRequired(reason="digest differs", txid=1))

        assert [(end.kind, end.reason) for end in hand.of(End)] == [("halted", "digest differs")]
