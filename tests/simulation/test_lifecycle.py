"""The table of docs/batch_lifecycle.md is the machine's: every move that happens is in it, and every move in it
happens.
"""

from __future__ import annotations

import itertools
import random
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tests.kit.machines import Hand, chain, plan
from txtopo.core.events import (
    Action,
    AttemptNotBegun,
    CommitEnded,
    Cut,
    Event,
    Mirror,
    OrdersSeen,
    PlansCut,
    Process,
    Proven,
    Tick,
)
from txtopo.core.plan import Plan
from txtopo.core.state import State
from txtopo.core.values import Aborted, Committed, Failure, Order, OrderKind, TransactionAttempt, Unknown

PAGE = Path(__file__).resolve().parents[2] / "docs" / "batch_lifecycle.md"


def documented(*, opaque: bool = False) -> set[tuple[str, str]]:
    """Moves in the page's table; with `opaque` those that only opaque batches make."""
    return {
        (row[0], row[1])
        for row in re.findall(r"^\| (\w+) \| (\w+) \| ", PAGE.read_text(encoding="utf-8"), re.MULTILINE)
        if (row[1] == "discarded" or row in (("new", "quarantined"), ("new", "proving"))) is opaque
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
            found.add((batch.phase.value, "committed" if txid <= after.last_txid else "discarded"))
    return found


def an_event(hand: Hand, chance: int) -> Event:
    """Some event that may come next, drawn by `chance`."""
    state = hand.state
    lowest = state.lowest
    running = sorted(state.running)
    infrastructure = Failure(kind="infrastructure", message="x")
    proofs = [None, infrastructure, *([Failure(kind="halt", message="x")] if chance % 11 == 0 else [])]
    choices: list[Event] = [Tick(progress={})]
    if state.cutting:
        choices.append(PlansCut(plans=some_plans(hand, chance % 3), exhausted=False))
    choices += [Proven(txid=txid, failure=failure) for txid in state.proving for failure in proofs]
    for attempt in running:
        choices += hand_outcomes(attempt)
    if (chance % 7 == 0 or (state.proving and chance % 5 == 0)) and state.batches:
        skipped = min(state.batches) + chance % len(state.batches)
        if chance % 5 == 0:
            skipped = min(state.proving, default=skipped)
        kind: OrderKind = "retry" if chance % 2 == 0 else "skip"
        choices.append(OrdersSeen(orders=(Order(order_id=chance, kind=kind, txids=(skipped,)),)))
    if state.committing and lowest is not None:
        txid = lowest.plan.txid
        choices += [
            CommitEnded(outcomes=(Committed(txid=txid),)),
            CommitEnded(outcomes=(Unknown(txid=txid, message="x"),)),
        ]
        choices.append(CommitEnded(outcomes=(Aborted(txid=txid, failure=infrastructure),)))
        if not state.unresolved and lowest.quarantine is None:
            choices.append(CommitEnded(outcomes=(Aborted(txid=txid, failure=Failure(kind="data", message="x")),)))
    return choices[chance % len(choices)]


def some_plans(hand: Hand, more: int) -> tuple[Plan, ...]:
    """What the cut under way may give: of an opaque topology plans that chain, cut for attempts that were never made."""  # noqa: E501
    state = hand.state
    if not state.rules.opaque:
        return chain(state.next_txid, state.next_txid + more)
    cut = next(action for action in reversed(hand.everything) if isinstance(action, Cut))
    last = state.batches.get(cut.first_txid - 1)
    before = last.plan.digest if last else state.last_digest or b"before"
    plans: list[Plan] = []
    for txid in range(cut.first_txid, cut.first_txid + min(1 + more, cut.count)):
        made = plan(txid, plans[-1].digest if plans else before)
        plans.append(replace(made, cut=cut.attempts.get(txid, 0)))
    return tuple(plans)


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
    """Of immutable batches."""
    return walked(opaque=False)


@pytest.fixture(scope="module")
def seen_opaque() -> set[tuple[str, str]]:
    """Of opaque batches."""
    return walked(opaque=True)


def walked(*, opaque: bool) -> set[tuple[str, str]]:
    """Every move of many runs of 300 events, with invariants checked on the way."""
    found: set[tuple[str, str]] = set()
    for seed in range(40 if opaque else 60):
        chance = random.Random(seed)
        hand = Hand(
            workers=1 + seed % 4,
            spout_pending_max=6,
            attempts_max=4,
            on_poison="quarantine_batch",
            postgres_away_max_s=1e9,
            opaque=opaque,
            **found_at_takeover(seed),
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
                    found |= moves(before, hand.state)
                    before = hand.state
                    hand.mirrored(min(upto, hand.state.last_txid + 1))
            found |= moves(before, hand.state)
            check(hand.state)
            check_actions(before, hand.actions, hand.state)
            if hand.state.ended is not None:
                break
    return found


def found_at_takeover(seed: int) -> dict[str, Any]:
    """Every tenth driver follows others that ended, one after the other, with batch 1 in their hands: planned, or to be
    cut again.
    """
    deadly: dict[str, Any] = {"suspects": {1: 3}, "next_attempts": {1: 4}}
    return {5: {**deadly, "plans": chain(1, 2)}, 8: {**deadly, "owed": frozenset({1})}}.get(seed % 10, {})


def check(state: State) -> None:
    """Contiguous txids, one commit at a time, workers bounded, a suspect alone; what was planned once is planned now or
    owed, and nothing has finished before.
    """
    assert sorted(state.batches) == list(range(state.last_txid + 1, state.next_txid))
    committing = [txid for txid, batch in state.batches.items() if batch.phase.value == "committing"]
    assert committing in ([], [state.last_txid + 1])
    live = state.running - state.abandoned
    assert len(live) <= state.rules.workers
    suspects = [attempt for attempt in live if attempt.txid in state.batches and state.batches[attempt.txid].suspect]
    assert not suspects or len(live) == 1
    assert not state.owed & state.batches.keys()
    assert all(txid > state.last_txid for txid in state.owed)
    if state.ended is not None and state.ended.kind == "finished":
        assert not state.batches
        assert not state.owed


def check_actions(before: State, actions: list[Action], after: State) -> None:
    """What is processed, mirrored or committed is a plan that the machine holds, and each chains to the one before."""
    now = {batch.plan.digest for batch in after.batches.values()}
    held = now | {batch.plan.digest for batch in before.batches.values()}
    for action in actions:
        if isinstance(action, Process):
            assert {one.digest for _, one in action.attempts} <= now
        elif isinstance(action, Mirror):
            assert {one.digest for one in action.plans} <= held
            assert not after.rules.opaque or [one.txid for one in action.plans] == [after.last_txid + 1]
    if after.rules.opaque:
        plans = [after.batches[txid].plan for txid in sorted(after.batches)]
        for earlier, later in itertools.pairwise(plans):
            assert later.previous_digest == earlier.digest
        if plans and after.last_digest is not None:
            assert plans[0].previous_digest == after.last_digest


def test_every_move_of_opaque_batches_is_documented_and_happens(seen_opaque: set[tuple[str, str]]) -> None:
    """Those of all batches, and those of opaque ones."""
    leaves = documented(opaque=True)

    assert seen_opaque - documented() - leaves == set()
    assert leaves - seen_opaque == set()
    # Opaque plans are mirrored in their turn, so that nothing is committed in the step in which its attempt ends or it
    # is skipped.
    assert documented() - seen_opaque <= {("processing", "committing"), ("planned", "committing")}


def test_no_immutable_batch_is_ever_discarded(seen: set[tuple[str, str]]) -> None:
    """A failed attempt of an immutable plan discards nothing."""
    assert not seen & documented(opaque=True)


def test_every_move_that_happens_is_documented(seen: set[tuple[str, str]]) -> None:
    """The diagram has every legal move."""
    assert seen - documented() == set()


def test_every_documented_move_happens(seen: set[tuple[str, str]]) -> None:
    """The diagram has no other move."""
    assert documented() - seen == set()
