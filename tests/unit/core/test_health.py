"""Health goes by commit progress: "running" that means running, and a stall that is shouted."""

from __future__ import annotations

import pytest

from tests.kit.machines import Hand, plan, processed, ready
from txtopo.core.events import (
    AttemptEnded,
    AttemptNotBegun,
    CommitEnded,
    CutFailed,
    Mirrored,
    MirrorFailed,
    PostgresAnswered,
    ZooKeeperSeen,
)
from txtopo.core.health import health_of
from txtopo.core.values import Aborted, Failure, TransactionAttempt, Unknown
from txtopo.errors import Patience


def test_a_leader_without_anything_to_commit_is_running_however_long() -> None:
    hand = Hand(message_timeout_s=10)
    hand.tick()
    hand.plans()

    hand.tick(1000)

    health = health_of(hand.state, hand.now)
    assert (health.state, health.waiting) == ("running", {})


def test_the_batch_whose_turn_it_is_is_named_with_its_attempt_and_phase() -> None:
    hand = ready(2, message_timeout_s=10)

    hand.now += 4

    assert health_of(hand.state, hand.now).waiting == {"txid": 1, "attempt": 0, "phase": "processing", "for_s": 4.0}


def test_a_batch_that_waits_longer_than_the_message_timeout_is_a_stall() -> None:
    """Health is derived from commit progress, not from a thread being alive."""
    hand = ready(2, message_timeout_s=10)

    hand.now += 11

    health = health_of(hand.state, hand.now)
    assert health.state == "stalled"
    assert health.problem == "no batch was committed for 11 s: batch 1 attempt 0 is processing"


def test_every_commit_starts_the_clock_anew() -> None:
    hand = ready(2, message_timeout_s=10)
    hand.tick(8)
    hand.succeed(1)
    hand.mirrored(1)
    hand.committed(1)

    hand.now += 8

    assert health_of(hand.state, hand.now).state == "running"


def test_time_without_work_is_no_stall_of_the_work_that_comes_then() -> None:
    hand = Hand(message_timeout_s=10, spout_poll_s=0.5)
    hand.tick()
    hand.plans()
    hand.tick(1000)

    hand.plans(plan(1))

    assert health_of(hand.state, hand.now).state == "running"


def test_the_cause_of_the_last_failure_is_told_with_the_stall() -> None:
    hand = ready(1, message_timeout_s=10, attempts_max=100)
    hand.fail(1, 0, "data")

    hand.now += 11

    assert str(health_of(hand.state, hand.now).problem).endswith("is planned (boom)")


def words(hand: Hand) -> str | None:
    """What the heartbeat says is waited for."""
    return health_of(hand.state, hand.now).problem


def aborted(message: str) -> CommitEnded:
    """The commit of batch 1 was aborted through trouble of the store."""
    return CommitEnded(outcomes=(Aborted(txid=1, failure=Failure(kind="infrastructure", message=message)),))


def test_what_a_commit_waits_for_stays_until_it_went_through_whatever_else_goes_well() -> None:
    """Heartbeats, attempts, cuts and mirrors go through while one commit does not: `status` says why all the same."""
    hand = ready(3, workers=2)
    hand.succeed(1)
    hand.mirrored(1)
    hand.tell(aborted("no space left on device"))

    seen = []
    for event in (
        PostgresAnswered(),
        AttemptEnded(outcome=processed(2)),
        Mirrored(txid=2),
        ZooKeeperSeen(suspended=True),
        ZooKeeperSeen(suspended=False),
        PostgresAnswered(),
        CutFailed(store="source", message="no route"),
    ):
        hand.tell(event)
        seen.append(words(hand))
    hand.tick(31)
    hand.plans()
    hand.committed(1)

    full = "no space left on device"
    away = f"{full}; ZooKeeper does not answer; nothing new is planned"
    assert seen == [full, full, full, away, full, full, f"{full}; source: no route"]
    assert words(hand) is None


def test_a_commit_that_did_not_happen_says_why_it_was_not_known() -> None:
    """A deferred trigger of the user's that raises a code of connections: COMMIT after COMMIT is unknown, then found
    not to have happened.
    """
    hand = ready(1)
    hand.succeed(1)
    hand.mirrored(1)
    for _ in range(3):
        hand.tell(CommitEnded(outcomes=(Unknown(txid=1, message="COMMIT of batch 1: refused (SQLSTATE 08006)"),)))
        hand.tell(aborted("it did not happen"))
        hand.tell(PostgresAnswered())
        said = words(hand)
        hand.tick(31)

    assert said == "it did not happen (COMMIT of batch 1: refused (SQLSTATE 08006))"


@pytest.mark.parametrize("patience", ["lock", "store"])
def test_what_a_mirror_waits_for_stays_until_it_went_through(patience: Patience) -> None:
    hand = ready(2)
    hand.succeed(1)
    hand.tell(MirrorFailed(message="no space left on device", patience=patience))
    hand.tell(PostgresAnswered())
    waiting = words(hand)
    hand.tick(31)
    hand.mirrored(1)

    assert (waiting, words(hand)) == ("no space left on device", None)


def test_a_batch_that_is_processed_again_does_not_wait_to_be_committed() -> None:
    hand = ready(1, attempts_max=3)
    hand.succeed(1)
    hand.mirrored(1)
    hand.tell(aborted("too many connections"))
    hand.tell(PostgresAnswered())
    hand.tick(31)

    hand.tell(CommitEnded(outcomes=(Aborted(txid=1, failure=Failure(kind="data", message="does not fit")),)))
    hand.tell(PostgresAnswered())

    assert words(hand) is None


def test_trouble_of_zookeeper_that_is_over_is_not_waited_for() -> None:
    """A call may fail without the session being suspended, so nothing but a later call says that it is over."""
    cutting, beginning = Hand(), ready(1)
    cutting.tick()
    cutting.tell(CutFailed(store="zookeeper", message="timed out"))
    beginning.tell(AttemptNotBegun(attempt=TransactionAttempt(1, 0), store="zookeeper", message="timed out"))
    waiting = [words(cutting), words(beginning)]

    cutting.tick(31)
    cutting.plans()
    beginning.tick(31)
    beginning.succeed(1, attempt=1)

    assert (waiting, [words(cutting), words(beginning)]) == (["zookeeper: timed out"] * 2, [None, None])


def test_why_no_attempt_begins_stays_until_one_has_begun() -> None:
    hand = ready(1)
    hand.tell(AttemptNotBegun(attempt=TransactionAttempt(1, 0), store="postgres", message="no space left on device"))
    hand.tell(PostgresAnswered())
    waiting = words(hand)
    hand.tick(31)
    hand.succeed(1, attempt=1)

    assert (waiting, words(hand)) == ("no space left on device", None)
