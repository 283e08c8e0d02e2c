"""Which batch a redo redoes: the last applied one of its chain, once."""

from __future__ import annotations

from dataclasses import replace
from typing import Literal

from tests.kit.machines import plan
from txtopo.core.events import Redo
from txtopo.core.redo import choose_redo
from txtopo.core.values import LedgerBatch

State = Literal["applied", "quarantined"]


def batch(txid: int, state: State, redo_of: int | None = None, order_id: int | None = None) -> LedgerBatch:
    """A row of the ledger with its plan."""
    made = replace(plan(txid), kind="redo" if redo_of else "cut", redo_of=redo_of, order_id=order_id)
    return LedgerBatch(txid=txid, state=state, redo_of=redo_of, plan=made.bytes)


def redrive(txid: int) -> Redo:
    return Redo(order_id=5, kind="redrive", txid=txid)


def recompute(txid: int) -> Redo:
    return Redo(order_id=5, kind="recompute", txid=txid)


def test_a_quarantined_batch_is_redriven() -> None:
    choice = choose_redo(redrive(3), [batch(3, "quarantined")], ())

    assert choice.base is not None
    assert choice.base.txid == 3


def test_an_applied_batch_is_not_redriven() -> None:
    assert "recompute it instead" in str(choose_redo(redrive(3), [batch(3, "applied")], ()).refused)


def test_a_quarantined_batch_is_not_recomputed() -> None:
    assert "redrive" in str(choose_redo(recompute(3), [batch(3, "quarantined")], ()).refused)


def test_a_batch_that_is_not_in_the_ledger_is_refused() -> None:
    assert choose_redo(redrive(3), [], ()).refused == "batch 3 is not in the ledger"


def test_a_redrive_done_before_is_not_done_again() -> None:
    """Twice commits once."""
    chain = [batch(3, "quarantined"), batch(8, "applied", redo_of=3, order_id=1)]

    assert choose_redo(redrive(3), chain, ()).by == 8


def test_a_redo_that_was_quarantined_leaves_the_place_free() -> None:
    chain = [batch(3, "quarantined"), batch(8, "quarantined", redo_of=3, order_id=1)]

    choice = choose_redo(redrive(3), chain, ())

    assert choice.base is not None
    assert choice.base.txid == 3


def test_a_recompute_redoes_the_last_applied_redo_of_the_chain() -> None:
    chain = [
        batch(3, "applied"),
        batch(8, "applied", redo_of=3, order_id=1),
        batch(9, "quarantined", redo_of=8, order_id=2),
    ]

    choice = choose_redo(recompute(3), chain, ())

    assert choice.base is not None
    assert choice.base.txid == 8


def test_an_order_that_an_earlier_leader_carried_out_is_not_carried_out_again() -> None:
    """An order that a leader had begun when it died is carried out once."""
    chain = [batch(3, "applied"), batch(8, "applied", redo_of=3, order_id=5)]

    assert choose_redo(recompute(3), chain, ()).by == 8


def test_an_open_plan_of_the_same_order_is_taken_up() -> None:
    assert choose_redo(recompute(3), [batch(3, "applied")], [(3, 9, 5)]).by == 9


def test_an_open_plan_of_another_order_refuses_this_one() -> None:
    """A redo is planned only if no applied ledger row or plan redoes that txid yet."""
    refused = choose_redo(recompute(3), [batch(3, "applied")], [(3, 9, 4)]).refused

    assert refused == "batch 3 is being redone as batch 9 already"


def test_a_quarantined_redo_is_not_redone_itself() -> None:
    """The batch that it was to redo is in effect still: both would be counted."""
    for redo in (redrive(8), recompute(8)):
        choice = choose_redo(redo, [batch(8, "quarantined", redo_of=3, order_id=1)], ())

        assert choice.refused == "batch 8 is a redo of batch 3: redo that one again"
