"""The machine where two things about faults meet: a second halt, a row that is not yet decided, a retry after a halt;
and how tries are counted.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from typing import Any

import pytest

from tests.kit.machines import Hand, chain, processed, ready, started
from txtopo.core.events import (
    AttemptEnded,
    Commit,
    CommitEnded,
    CommitQuarantine,
    HaltRequired,
    OrdersSeen,
    PostgresAnswered,
)
from txtopo.core.limits import COMMIT_TRIES_MAX, TIMEOUT_TRIES_MAX
from txtopo.core.patience import Tries, is_enough, tried
from txtopo.core.state import Phase
from txtopo.core.values import Aborted, Failed, Failure, Left, Order, TransactionAttempt
from txtopo.errors import Patience

CAUSE = "ValueError at a.py:7"
WORDS = "a.py:7: ValueError: bad"


def leaving_out(count: int, *recent: str | None, **rules: Any) -> Hand:
    """So many batches under way, behind batches that were left out for these causes, or were good."""
    hand = Hand(
        recent=tuple(Left(100 + number, cause) for number, cause in enumerate(recent)),
        plans=chain(1, count),
        cut=False,
        workers=count,
        attempts_max=1,
        on_poison="quarantine_batch",
        **rules,
    )
    hand.tick()
    return hand


def fails_for_good(hand: Hand, txid: int) -> None:
    attempt = TransactionAttempt(txid, hand.state.batches[txid].attempt)
    failure = Failure(kind="data", message="a.py:7: ValueError: bad", cause=CAUSE)
    hand.tell(AttemptEnded(outcome=Failed(attempt=attempt, failure=failure)))
    hand.proven(txid)


def ask(hand: Hand, kind: Any, *txids: int) -> None:
    hand.tell(OrdersSeen(orders=(Order(order_id=1, kind=kind, txids=txids),)))


def test_a_batch_that_may_be_one_too_many_waits_for_those_before_it() -> None:
    """W7: two were left out for its cause, and the batch before it is still at work. That one is good, so this one is
    the first of a new row.
    """
    hand = leaving_out(2, CAUSE, CAUSE)
    fails_for_good(hand, 2)
    assert hand.state.halting is None

    hand.succeed(1)
    hand.mirrored(1)
    hand.committed(1)

    assert (hand.state.halting, hand.state.batches[2].phase) == (None, Phase.QUARANTINED)


def test_a_halt_further_on_hides_no_batch_that_is_one_too_many() -> None:
    """W7: neither is the third in a row left out before the topology halts."""
    hand = leaving_out(2, CAUSE, CAUSE)
    hand.tell(HaltRequired(reason="a file is gone", txid=3, planning=True))
    fails_for_good(hand, 1)

    assert hand.state.halting is not None and hand.state.halting.txid == 1
    assert "number 3 in a row" in hand.state.halting.reason


def test_good_batches_are_not_among_those_left_out() -> None:
    """W8: nineteen good ones and one that is left out."""
    hand = leaving_out(1, *[None] * 19)
    fails_for_good(hand, 1)

    assert (hand.state.halting, hand.state.batches[1].phase) == (None, Phase.QUARANTINED)


def test_a_batch_that_was_one_too_many_counts_once_a_retry_succeeds() -> None:
    """An operator has set right what it failed over, before the halt could end the run: its rows are committed, not its
    quarantine.
    """
    hand = leaving_out(2, CAUSE, CAUSE)
    hand.tell(AttemptEnded(outcome=replace(processed(1), read=0)))
    hand.mirrored(1)
    hand.committed(1)
    hand.tick(60)
    assert hand.state.checkpointing
    fails_for_good(hand, 2)
    assert hand.state.halting is not None and hand.state.halting.txid == 2

    ask(hand, "retry", 2)
    hand.succeed(2, 1)
    hand.mirrored(2)

    assert [item.plan.txid for one in hand.of(Commit) for item in one.items] == [2]


@pytest.mark.parametrize("order", ["retry", "skip"])
def test_a_batch_that_halts_further_on_is_told_once_the_first_is_retried_or_skipped(order: str) -> None:
    """Its own halt gave way to the lower one: it is tried again and halts anew, and nothing waits for it for ever."""
    hand = ready(3, workers=3, attempts_max=1)
    hand.fail(3, 0, "data")
    hand.fail(2, 0, "data")
    assert hand.state.halting is not None and hand.state.halting.txid == 2
    ask(hand, order, 2)

    assert "3:1" in started(hand)
    hand.fail(3, 1, "data")
    assert hand.state.halting is not None and hand.state.halting.txid == 3


def test_an_input_that_cannot_be_planned_takes_nothing_from_a_lower_halt() -> None:
    """It was being planned when a batch below failed for good."""
    hand = ready(2, workers=2, attempts_max=1)
    assert hand.state.cutting
    hand.fail(2, 0, "data")
    hand.tell(HaltRequired(reason="a file is no CSV", txid=3, planning=True))

    assert hand.state.halting is not None and hand.state.halting.txid == 2
    assert not hand.state.cutting


@pytest.mark.parametrize("kind", ["data", "suspect"])
def test_records_are_taken_out_once_and_only_over_data(kind: Any) -> None:
    """`dead_letter_rows`: an attempt without the bad records that fails too ends in a halt, and what has no verdict is
    nobody's record.
    """
    hand = ready(1, attempts_max=1, on_poison="dead_letter_rows")
    attempts = 0
    while hand.state.halting is None and attempts < 9:
        hand.fail(1, attempts, kind)
        hand.tick(60)
        attempts += 1

    assert hand.state.halting is not None
    assert attempts == (2 if kind == "data" else 4)
    assert hand.state.batches[1].dead_letter is (kind == "data")


def test_a_quarantined_batch_keeps_no_results() -> None:
    """They count as memory that is in use, and nothing above could be processed until its turn."""
    hand = leaving_out(2, None)
    hand.succeed(1)
    hand.mirrored(1)
    failure = Failure(kind="data", message=WORDS)
    hand.tell(CommitEnded(outcomes=(Aborted(txid=1, failure=failure),)))
    hand.proven(1)

    assert [one.txid for action in hand.of(CommitQuarantine) for one in [action.plan]] == [1]
    assert hand.state.batches[1].processed is None


def test_a_commit_that_goes_through_ends_the_count_of_tries() -> None:
    """W5: of one batch, not of the run."""
    hand = ready(2, workers=2, postgres_away_max_s=1e9)
    for txid in (1, 2):
        hand.succeed(txid)
    hand.mirrored(1)
    hand.mirrored(2)
    for txid in (1, 2):
        for _ in range(COMMIT_TRIES_MAX - 1):
            hand.tell(
                CommitEnded(outcomes=(Aborted(txid=txid, failure=Failure(kind="infrastructure", message="full")),))
            )
            hand.tell(PostgresAnswered())
            hand.tick(31)
        assert (hand.state.halting, hand.state.ended) == (None, None)
        hand.committed(txid)

    assert hand.state.last_txid == 2


def after(patience: Patience, heard: Iterable[int], tries: Tries | None = None) -> Tries:
    """One failure a number: so many heartbeats had been answered."""
    tries = tries or Tries()
    for answered in heard:
        tries = tried(tries, patience, answered, "words")
    return tries


def test_a_lock_uses_up_neither_a_try_nor_a_heartbeat() -> None:
    """W5: trouble of the store behind it counts all the same."""
    assert after("store", [1], after("lock", [1, 1])).counts == {"store": 1}
    assert not is_enough(after("lock", range(99)), "lock")


def test_a_time_that_is_up_counts_without_a_heartbeat() -> None:
    """W5: Postgres has answered: it said that the time was up."""
    assert is_enough(after("time", [1] * TIMEOUT_TRIES_MAX), "time")


def test_each_kind_of_trouble_has_its_own_bound() -> None:
    """W5: many tries of one kind leave the others all of theirs."""
    tries = after("time", [99], after("store", range(COMMIT_TRIES_MAX - 1)))

    assert not is_enough(tries, "time")
    assert not is_enough(tries, "store")
