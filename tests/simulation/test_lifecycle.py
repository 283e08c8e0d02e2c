"""The table of docs/batch_lifecycle.md is the machine's: every move that happens is in it, and every move in it happens."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.kit.machines import Hand, chain
from txtopo.core.events import AttemptNotBegun, CommitEnded, Event, PlansCut, RequestsSeen, Tick
from txtopo.core.state import State
from txtopo.core.values import Aborted, Committed, Failure, Request, TransactionAttempt, Unknown

PAGE = Path(__file__).resolve().parents[2] / "docs" / "batch_lifecycle.md"


def documented() -> set[tuple[str, str]]:
    """Moves in the page's table."""
    return {
        (row[0], row[1])
        for row in re.findall(r"^\| (\w+) \| (\w+) \| ", PAGE.read_text(encoding="utf-8"), re.MULTILINE)
    } - {("from", "to")}


def moves(before: State, after: State) -> set[tuple[str, str]]:
    """What changed between two states."""
    found = set()
    for txid, batch in after.batches.items():
        was = before.batches[txid].phase.value if txid in before.batches else "new"
        if was != batch.phase.value:
            found.add((was, batch.phase.value))
    for txid, batch in before.batches.items():
        if txid not in after.batches:
            found.add((batch.phase.value, "committed"))
    return found


def an_event(hand: Hand, chance: int) -> Event:
    """Some event that may come next, drawn by `chance`."""
    state = hand.state
    lowest = state.lowest
    running = sorted(state.running)
    infrastructure = Failure(kind="infrastructure", message="x")
    choices: list[Event] = [Tick(progress={})]
    if state.cutting:
        choices.append(PlansCut(plans=chain(state.next_txid, state.next_txid + chance % 3), exhausted=False))
    for attempt in running:
        choices += hand_outcomes(attempt)
    if chance % 7 == 0 and state.batches:
        skipped = min(state.batches) + chance % len(state.batches)
        choices.append(RequestsSeen(requests=(Request(request_id=chance, kind="skip", txids=(skipped,)),)))
    if state.committing and lowest is not None:
        txid = lowest.plan.txid
        choices += [CommitEnded(outcome=Committed(txid=txid)), CommitEnded(outcome=Unknown(txid=txid, message="x"))]
        choices.append(CommitEnded(outcome=Aborted(txid=txid, failure=infrastructure)))
        if not state.unresolved and lowest.quarantine is None:
            choices.append(CommitEnded(outcome=Aborted(txid=txid, failure=Failure(kind="data", message="x"))))
    return choices[chance % len(choices)]


def hand_outcomes(attempt: TransactionAttempt) -> list[Event]:
    """How an attempt may end."""
    from tests.kit.machines import failed, processed
    from txtopo.core.events import AttemptEnded

    return [
        AttemptEnded(outcome=processed(attempt.txid, attempt.attempt)),
        AttemptEnded(outcome=processed(attempt.txid, attempt.attempt)),
        AttemptEnded(outcome=failed(attempt.txid, attempt.attempt, "infrastructure")),
        AttemptEnded(outcome=failed(attempt.txid, attempt.attempt, "data")),
        AttemptNotBegun(attempt=attempt, store="postgres", message="x"),
    ]


@pytest.fixture(scope="module")
def seen() -> set[tuple[str, str]]:
    """Every move of 60 runs of 300 events, with invariants checked on the way."""
    import random

    found: set[tuple[str, str]] = set()
    for seed in range(60):
        chance = random.Random(seed)
        hand = Hand(
            workers=1 + seed % 4,
            spout_pending_max=6,
            attempts_max=4,
            on_poison="quarantine_batch",
            postgres_away_max_s=1e9,
        )
        for _ in range(300):
            before = hand.state
            hand.now += chance.random() * 5
            hand.tell(an_event(hand, chance.randrange(1 << 30)), chance.random())
            if hand.state.mirroring:
                upto = max(
                    (
                        txid
                        for txid, batch in hand.state.batches.items()
                        if batch.phase.value in ("processed", "quarantined", "committing")
                    ),
                    default=0,
                )
                if chance.random() < 0.7 and upto:
                    hand.mirrored(min(upto, hand.state.last_txid + 1))
            found |= moves(before, hand.state)
            check(hand.state)
            if hand.state.ended is not None:
                break
    return found


def check(state: State) -> None:
    """Contiguous txids, one commit at a time, workers bounded, a suspect alone."""
    assert sorted(state.batches) == list(range(state.last_txid + 1, state.next_txid))
    committing = [txid for txid, batch in state.batches.items() if batch.phase.value == "committing"]
    assert committing in ([], [state.last_txid + 1])
    live = state.running - state.abandoned
    assert len(live) <= state.rules.workers
    suspects = [attempt for attempt in live if attempt.txid in state.batches and state.batches[attempt.txid].suspect]
    assert not suspects or len(live) == 1


def test_every_move_that_happens_is_documented(seen: set[tuple[str, str]]) -> None:
    """The diagram has every legal move."""
    assert seen - documented() == set()


def test_every_documented_move_happens(seen: set[tuple[str, str]]) -> None:
    """The diagram has no other move."""
    assert documented() - seen == set()
