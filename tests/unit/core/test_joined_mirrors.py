"""R9: a batch that is ready alone is committed by the database transaction that mirrors its plan."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from tests.kit.machines import Hand, chain, ready
from txtopo.core.events import (
    Commit,
    CommitEnded,
    CommitQuarantine,
    Mirror,
    StopWanted,
    ZooKeeperSeen,
)
from txtopo.core.values import Aborted, Failure, Unknown


def commits(hand: Hand) -> list[tuple[list[int], bool]]:
    """Txids of the commits that the last event started, and whether they mirror."""
    return [([item.plan.txid for item in one.items], one.mirrors) for one in hand.of(Commit)]


def mirrors(hand: Hand) -> list[list[int]]:
    """Txids of the mirrors that the last event started."""
    return [[plan.txid for plan in one.plans] for one in hand.of(Mirror)]


def joining(count: int, **rules: Any) -> Hand:
    """A leader with `count` batches planned, as it is in production."""
    return ready(count, joins_mirrors=True, **rules)


def aborted(txid: int, kind: Any = "infrastructure") -> CommitEnded:
    """A commit that certainly did not happen."""
    return CommitEnded(outcomes=(Aborted(txid=txid, failure=Failure(kind=kind, message="no")),))


def test_a_batch_that_is_ready_alone_is_committed_with_its_mirror() -> None:
    """One database transaction instead of two; the next one likewise."""
    hand = joining(2)

    hand.succeed(1)
    first = commits(hand), mirrors(hand)
    hand.committed(1)
    hand.succeed(2)

    assert first == ([([1], True)], [])
    assert (commits(hand), mirrors(hand)) == ([([2], True)], [])
    assert hand.state.mirrored_txid == 1


def test_nothing_is_mirrored_beside_a_commit_that_mirrors() -> None:
    """The plans after it come after it; then those that became ready meanwhile are mirrored together."""
    hand = joining(4, run_txids_max=64)
    hand.succeed(1)

    beside = [*hand.succeed(3), *hand.succeed(2)]
    hand.committed(1)

    assert beside == []
    assert (commits(hand), mirrors(hand)) == ([], [[2, 3]])
    hand.mirrored(3)
    assert commits(hand) == [([2, 3], False)]


def test_a_plan_that_is_mirrored_is_not_mirrored_again() -> None:
    """By an earlier leader, or since several were ready."""
    hand = Hand(plans=chain(1, 1), joins_mirrors=True)
    hand.mirrored(1)
    hand.tick()

    hand.succeed(1)

    assert commits(hand) == [([1], False)]


@pytest.mark.parametrize("outcome", [aborted(1), CommitEnded(outcomes=(Unknown(txid=1, message="no answer"),))])
def test_after_a_failure_mirror_and_commit_are_separate(outcome: CommitEnded) -> None:
    """W5: each has its own limit and its own words. What is unknown is resolved first (R7)."""
    hand = joining(1)
    hand.succeed(1)

    hand.tell(outcome)
    if hand.state.unresolved:
        hand.tell(aborted(1))
    mirror = [one for one in hand.everything if isinstance(one, Mirror)]
    hand.tick(20.0)
    early = commits(hand)
    hand.mirrored(1)

    assert [[plan.txid for plan in one.plans] for one in mirror] == [[1]]
    assert early == []
    assert commits(hand) == [([1], False)]
    hand.committed(1)
    assert hand.state.commit_failures == 0


@pytest.mark.parametrize("trouble", [{"commit_failures": 1}, {"mirror_failures": 1}, {"mirroring": True}])
def test_neither_trouble_nor_a_mirror_in_progress_is_joined(trouble: dict[str, Any]) -> None:
    """Whatever it comes from: the mirror that is in progress, or the next one, is by itself."""
    hand = joining(1)
    hand.state = replace(hand.state, **trouble)

    hand.succeed(1)

    assert commits(hand) == []
    assert mirrors(hand) == ([] if "mirroring" in trouble else [[1]])
    hand.mirrored(1)
    assert commits(hand) == [([1], False)]


def test_a_batch_that_failed_in_its_commit_is_mirrored_with_the_next_try() -> None:
    """Its own failure says nothing about the mirror, and until it is committed its plan can be replaced (R3)."""
    hand = joining(1)
    hand.succeed(1)

    hand.tell(aborted(1, "data"))
    hand.tick(20.0)
    hand.succeed(1, attempt=1)

    assert commits(hand) == [([1], True)]


def test_an_opaque_plan_is_mirrored_before_its_commit() -> None:
    """The mirror pins it."""
    hand = joining(1, opaque=True)

    hand.succeed(1)

    assert (commits(hand), mirrors(hand)) == ([], [[1]])


def test_a_quarantine_is_mirrored_before_its_commit() -> None:
    """W7 decides before."""
    hand = joining(1, attempts_max=1, on_poison="quarantine_batch")
    hand.fail(1, 0, "data")

    hand.proven(1)
    before = hand.of(CommitQuarantine), mirrors(hand)
    hand.mirrored(1)

    assert before == ([], [[1]])
    assert len(hand.of(CommitQuarantine)) == 1


def test_neither_a_stop_at_once_nor_a_silent_zookeeper_commits_with_a_mirror() -> None:
    """Z5: no new commit after 0.6 of the session."""
    stopped, silent = joining(1), joining(1)
    stopped.tell(StopWanted(at_once=True, reason="x"))
    silent.tell(ZooKeeperSeen(suspended=True))
    silent.tick(20.0)

    stopped.succeed(1)
    silent.succeed(1)

    assert (commits(stopped), mirrors(stopped), commits(silent)) == ([], [], [])
