"""The pure comparisons behind the ledger: each difference by itself (R4, R9, R11)."""

from __future__ import annotations

import hashlib
from dataclasses import replace
from typing import Any

import pytest

from tests.kit.machines import INCARNATION, chain
from txtopo.committers.protocol.rules import check_mirrored, check_order, checked_part, compare_lead, last_metadata
from txtopo.core.values import Fence, Lead
from txtopo.errors import Fenced, Halted, InvariantBroken
from txtopo.ports import MirrorEntry

LEAD = Lead(topology="t", incarnation=INCARNATION, epoch=3, owner_nonce="n", code_hash=b"c")
FENCE = Fence(incarnation=INCARNATION, owner_nonce="n", epoch=3, code_hash=b"c", last_txid=7)
PLANS = chain(1, 2)


@pytest.mark.parametrize(
    "other", [{"epoch": 4}, {"epoch": 2}, {"owner_nonce": "m"}, {"incarnation": "x"}, {"code_hash": b"d"}], ids=str
)
def test_a_fence_that_differs_in_one_thing_is_another_drivers(other: dict[str, Any]) -> None:
    """R4: epoch, nonce, incarnation and code, each by itself."""
    assert compare_lead(FENCE, LEAD) is FENCE
    with pytest.raises(Fenced):
        compare_lead(replace(FENCE, **other), LEAD)


def test_a_fence_that_is_gone_is_nobodys() -> None:
    """R4."""
    with pytest.raises(Fenced):
        compare_lead(None, LEAD)


def test_a_mirrored_plan_that_is_missing_or_altered_halts() -> None:
    """R9: mirrored plans have no holes, and each is what its digest says."""
    plan = PLANS[0]
    check_mirrored(1, 1, plan.digest, plan.bytes)

    with pytest.raises(Halted, match="plan 1 is missing"):
        check_mirrored(2, 1, plan.digest, plan.bytes)
    with pytest.raises(Halted, match="digest"):
        check_mirrored(1, 1, plan.digest, plan.bytes + b" ")


def test_plans_are_mirrored_in_order_and_in_their_own_life() -> None:
    """R9, R12."""
    one, two = (MirrorEntry(plan=plan, inputs={}) for plan in PLANS)
    check_order(LEAD, [one, two])

    for wrong in ([two, one], [one, one]):
        with pytest.raises(InvariantBroken, match="out of order"):
            check_order(LEAD, wrong)
    lives: list[dict[str, Any]] = [{"incarnation": "another"}, {"topology": "u"}]
    for life in lives:
        with pytest.raises(InvariantBroken, match="another life"):
            check_order(replace(LEAD, **life), [one])


def test_a_piece_of_metadata_that_is_missing_or_altered_halts() -> None:
    """Z14: never read as no state."""
    digest = hashlib.sha256(b"{}").hexdigest()
    assert checked_part(digest, b"{}") == b"{}"

    with pytest.raises(Halted, match="missing"):
        checked_part(digest, None)
    with pytest.raises(Halted, match="does not match its digest"):
        checked_part(digest, b"[]")


def test_the_plan_that_the_next_batch_follows_is_needed() -> None:
    """Retention never removes the plan of the highest txid that redoes nothing."""
    with pytest.raises(Halted, match="plan of batch 7 is missing"):
        last_metadata(7, None)
