"""One of each at a time, and nothing new once something ends it: the machine's conditions that only an unlucky order of
events shows.
"""

from __future__ import annotations

from tests.kit.machines import Hand, chain, failed, ready, started
from txtopo.core.events import (
    AttemptEnded,
    Checkpoint,
    Checkpointed,
    CheckpointFailed,
    Commit,
    CommitEnded,
    End,
    Mirror,
    Mirrored,
    Moment,
    PostgresSilent,
    Process,
    Resolve,
    ResolveFailed,
    StopWanted,
    ZooKeeperSeen,
)
from txtopo.core.machine import step
from txtopo.core.scheduling import keep_from
from txtopo.core.state import Phase
from txtopo.core.values import Aborted, Failure, Unknown


def all_of(hand: Hand, kind: type) -> list[object]:
    """Every action of one kind so far."""
    return [action for action in hand.everything if isinstance(action, kind)]


class TestOneAtATime:
    def test_an_unknown_commit_is_asked_about_once_at_a_time(self) -> None:
        """R7: the question takes the fence lock and may end the old session; it is not asked again before it is
        answered.
        """
        hand = ready(1)
        hand.succeed(1)
        hand.mirrored(1)
        hand.tell(CommitEnded(outcomes=(Unknown(txid=1, message="cut"),)))

        hand.tick()
        hand.tick()

        assert len(all_of(hand, Resolve)) == 1

    def test_one_mirror_is_under_way_at_a_time(self) -> None:
        """R9: plans are mirrored in txid order; what became ready meanwhile goes with the next one."""
        hand = ready(2)
        hand.succeed(1)
        hand.succeed(2)
        hand.tick()
        before = [[plan.txid for plan in mirror.plans] for mirror in all_of(hand, Mirror)]  # type: ignore[attr-defined]

        hand.mirrored(1)

        assert before == [[1]]
        assert [[plan.txid for plan in mirror.plans] for mirror in hand.of(Mirror)] == [[2]]

    def test_a_second_outcome_of_one_attempt_changes_nothing(self) -> None:
        """While its commit is open the batch stays as it is."""
        hand = ready(1)
        hand.succeed(1)
        hand.mirrored(1)

        hand.succeed(1)
        late = hand.tell(AttemptEnded(outcome=failed(1, 0, "data")))

        assert late == []
        assert hand.state.batches[1].phase is Phase.COMMITTING
        assert len(all_of(hand, Commit)) == 1

    def test_an_outcome_of_another_batch_than_the_lowest_changes_nothing(self) -> None:
        """I2: last moves by one."""
        hand = ready(2)
        hand.succeed(1)
        hand.succeed(2)
        hand.mirrored(1)

        hand.committed(2)

        assert hand.state.last_txid == 0
        assert sorted(hand.state.batches) == [1, 2]


class TestNothingNew:
    def test_no_batch_behind_a_halting_one_is_begun(self) -> None:
        """R17: nothing behind it can be committed any more."""
        hand = ready(4, workers=2, attempts_max=1)
        hand.fail(2, 0, "data")

        begun = started(hand)
        hand.tick(60.0)

        assert begun == [] and started(hand) == []

    def test_the_lowest_failed_batch_halts_also_if_it_failed_first(self) -> None:
        """R17: the evidence is that of the batch at which the topology stands."""
        hand = ready(3, workers=3, attempts_max=1)
        hand.fail(2, 0, "data")
        hand.fail(3, 0, "data")
        hand.succeed(1)
        hand.mirrored(1)
        hand.committed(1)
        hand.tell(Checkpointed(last_txid=1, keep_from=1))

        assert [end.txid for end in all_of(hand, End)] == [2]  # type: ignore[attr-defined]

    def test_nothing_is_cleaned_while_zookeeper_is_suspended(self) -> None:
        """Z5: nothing is written there that could be late."""
        hand = ready(1)
        hand.succeed(1)
        hand.mirrored(1)
        hand.tell(ZooKeeperSeen(suspended=True))
        hand.committed(1)
        while_suspended = all_of(hand, Checkpoint)

        hand.tell(ZooKeeperSeen(suspended=False))

        assert while_suspended == []
        assert len(hand.of(Checkpoint)) == 1

    def test_a_stop_at_once_commits_and_mirrors_nothing_more(self) -> None:
        """The open commit is waited for; the one behind it, processed and mirrored, is left to the next leader."""
        hand = ready(3, workers=3)
        hand.succeed(1)
        hand.succeed(2)
        hand.mirrored(1)
        hand.mirrored(2)
        hand.tell(StopWanted(at_once=True, reason="interrupted"))
        hand.succeed(3)
        hand.committed(1)

        assert [item.plan.txid for commit in all_of(hand, Commit) for item in commit.items] == [1]  # type: ignore[attr-defined]
        assert [plan.txid for mirror in all_of(hand, Mirror) for plan in mirror.plans] == [1, 2]  # type: ignore[attr-defined]
        assert hand.state.last_txid == 1


class TestEnding:
    def test_a_stop_waits_until_it_is_known_what_became_of_a_commit(self) -> None:
        """R7: also at once, and also while Postgres is still away."""
        hand = ready(1)
        hand.succeed(1)
        hand.mirrored(1)
        hand.tell(CommitEnded(outcomes=(Unknown(txid=1, message="cut"),)))
        hand.tell(StopWanted(at_once=True, reason="interrupted"))
        hand.tell(ResolveFailed(message="away"))
        hand.tick(0.001)
        waiting = all_of(hand, End)

        hand.tick(5.0)
        hand.committed(1)

        assert waiting == []
        assert hand.state.last_txid == 1

    def test_the_end_of_the_input_waits_for_a_checkpoint_that_failed(self) -> None:
        """R8: the counter in ZooKeeper is right when the run ends."""
        hand = Hand()
        hand.tick()
        hand.plans(*chain(1, 1))
        hand.plans(exhausted=True)
        hand.succeed(1)
        hand.mirrored(1)
        hand.committed(1)

        hand.tell(CheckpointFailed(message="away"))

        assert all_of(hand, End) == []

    def test_an_ended_leadership_stays_ended(self) -> None:
        """R15: whatever still comes in."""
        hand = ready(1)
        hand.tell(StopWanted(at_once=True, reason="interrupted"))
        ended = hand.state

        state, actions = step(ended, [Mirrored(txid=1)], Moment(hand.now, 0.5))

        assert ended.ended is not None
        assert (state, actions) == (ended, [])


class TestTime:
    def test_postgres_that_stays_away_is_away_since_the_first_time(self) -> None:
        """R16: every new failure is not a new beginning."""
        hand = ready(1, postgres_away_max_s=30)
        for _ in range(32):
            hand.now += 1.0
            hand.tell(PostgresSilent(message="refused"))

        assert [end.kind for end in all_of(hand, End)] == ["lead_lost"]  # type: ignore[attr-defined]

    def test_a_session_that_stays_suspended_is_suspended_since_the_first_time(self) -> None:
        """Z5."""
        hand = ready(1, session_s=10)
        hand.tell(ZooKeeperSeen(suspended=True))
        hand.now += 4.0
        hand.tell(ZooKeeperSeen(suspended=True))
        hand.now += 3.0
        hand.succeed(1)
        hand.mirrored(1)

        assert hand.of(Commit) == []

    def test_a_suspect_that_was_processed_is_none_any_more(self) -> None:
        """What the table refuses is no reason to run alone, and its runs alone begin from nothing."""
        hand = Hand(plans=chain(1, 2), suspects={1: 2})
        hand.tick()
        hand.succeed(1)
        hand.mirrored(1)
        hand.tell(CommitEnded(outcomes=(Aborted(txid=1, failure=Failure(kind="data", message="refused")),)))
        hand.tick(5.0)

        assert [process.alone for process in hand.of(Process)] == [False]
        assert hand.state.batches[1].runs_alone == 0

    def test_metadata_older_than_a_minute_goes_while_commits_go_on(self) -> None:
        """R8: what is kept follows the commits, it does not grow with the run."""
        hand = Hand(plans=chain(1, 200), workers=200)
        hand.tick()
        for txid in range(1, 201):
            hand.succeed(txid)
        hand.mirrored(1)
        hand.mirrored(200)
        for txid in range(1, 201):
            hand.tick(1.0)
            hand.committed(txid)

        assert 200 - 65 <= keep_from(hand.state, hand.now) <= 200 - 58

    def test_progress_puts_the_timeout_off(self) -> None:
        """Timeouts go by progress, not by total time."""
        hand = ready(1, message_timeout_s=10)
        attempt = hand.state.batches[1].transaction_attempt
        for part in range(1, 5):
            hand.tick(8.0, progress={attempt: part})

        assert attempt in hand.state.running - hand.state.abandoned
        assert [len(process.attempts) for process in all_of(hand, Process)] == [1]  # type: ignore[attr-defined]
