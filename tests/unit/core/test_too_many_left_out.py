"""Too many batches that a policy leaves out halt the topology instead."""

from __future__ import annotations

from typing import Any

import pytest

from tests.kit.machines import Hand, chain
from tests.unit.core.test_machine_poison import applied, in_order
from txtopo.core.events import (
    AttemptEnded,
    Mirror,
    OrdersSeen,
)
from txtopo.core.poison import same_cause
from txtopo.core.values import Failed, Failure, Left, Order, TransactionAttempt
from txtopo.errors import BatchDataError


def left_out(hand: Hand, txid: int, cause: str) -> None:
    """A batch fails for good; if it may be left out it is committed so."""
    attempt = TransactionAttempt(txid, hand.state.batches[txid].attempt)
    failure = Failure(kind="data", message=f"value {txid} is bad", cause=cause)
    hand.tell(AttemptEnded(outcome=Failed(attempt=attempt, failure=failure)))
    hand.proven(txid)
    in_order(hand, txid)


SAME, OTHER = "ValueError at a.py:7", "KeyError at b.py:1"


class TestTooManyLeftOut:
    def hand(self, count: int = 25, **rules: Any) -> Hand:
        return Hand(
            plans=chain(1, count), cut=False, workers=count, attempts_max=1, on_poison="quarantine_batch", **rules
        )

    def test_the_third_in_a_row_for_one_cause_halts_instead(self) -> None:
        """W7: the values in the message make no difference; it names the cause, those left out, and what to do."""
        hand = self.hand()
        hand.tick()
        for txid in (1, 2, 3):
            left_out(hand, txid, SAME)

        halting = hand.state.halting
        assert halting is not None and halting.txid == 3 and hand.state.last_txid == 2
        assert "number 3 in a row after 1, 2 to be quarantined for one cause, ValueError at a.py:7" in halting.reason
        assert "topology.quarantined.in.row.max is 3" in halting.reason
        assert halting.next_command is not None and "txtopo redrive t 1 2" in halting.next_command
        assert "txtopo skip t 3" in halting.next_command
        assert hand.state.mirrored_txid == 2  # its plan stays replaceable

    @pytest.mark.parametrize("between", ["applied", "other cause"])
    def test_something_else_in_between_ends_the_row(self, between: str) -> None:
        hand = self.hand()
        hand.tick()
        left_out(hand, 1, SAME)
        left_out(hand, 2, SAME)
        if between == "applied":
            applied(hand, 3)
        else:
            left_out(hand, 3, OTHER)
        left_out(hand, 4, SAME)
        left_out(hand, 5, SAME)

        assert (hand.state.halting, hand.state.last_txid) == (None, 5)

    def test_what_an_operator_skips_and_what_read_nothing_neither_counts_nor_ends_the_row(self) -> None:
        hand = self.hand()
        hand.tick()
        left_out(hand, 1, SAME)
        hand.tell(OrdersSeen(orders=(Order(order_id=1, kind="skip", txids=(2,)),)))
        in_order(hand, 2)
        applied(hand, 3, read=0)
        left_out(hand, 4, SAME)
        left_out(hand, 5, SAME)

        assert hand.state.halting is not None and hand.state.halting.txid == 5
        assert "after 1, 4" in hand.state.halting.reason

    def test_a_new_leader_counts_on(self) -> None:
        hand = self.hand(recent=(Left(8, "ValueError at a.py:7"), Left(9, "ValueError at a.py:7")))
        hand.tick()
        left_out(hand, 1, SAME)

        assert hand.state.halting is not None and "after 8, 9" in hand.state.halting.reason

    def test_with_one_no_batch_is_left_out_but_by_an_order(self) -> None:
        hand = self.hand(quarantined_in_row_max=1)
        hand.tick()
        left_out(hand, 1, SAME)
        halted = hand.state.halting
        skipping = self.hand(quarantined_in_row_max=1)
        skipping.tick()
        skipping.tell(OrdersSeen(orders=(Order(order_id=1, kind="skip", txids=(1,)),)))
        in_order(skipping, 1)

        assert halted is not None and halted.txid == 1
        assert (skipping.state.halting, skipping.state.last_txid) == (None, 1)

    def test_different_faults_of_one_spout_are_different_causes(self) -> None:
        """Three bad files are three bad files; three times the same fault is a fault of something else."""
        hand, same = self.hand(), self.hand()
        for one, faults in ((hand, ("file changed", "line too long", "other fields")), (same, ("file changed",) * 3)):
            one.tick()
            for txid, fault in enumerate(faults, 1):
                left_out(one, txid, BatchDataError("x", component="files", fault=fault).cause or "")

        assert (hand.state.halting, hand.state.last_txid) == (None, 3)
        assert same.state.halting is not None and same.state.halting.txid == 3

    @pytest.mark.parametrize("stored", ["data in files", "BatchDataError in files"])
    def test_a_cause_without_a_fault_as_release_0_1_0_stored_it_counts_with_any_fault(self, stored: str) -> None:
        """The row of batches does not start again at an upgrade."""
        hand = self.hand()
        hand.tick()
        for txid, cause in enumerate((stored, stored, "data (file changed) in files"), 1):
            left_out(hand, txid, cause)

        assert hand.state.halting is not None and hand.state.halting.txid == 3
        assert not same_cause("data (file changed) in files", "data in files")
        assert not same_cause(stored, "data (file changed) in others")
        assert not same_cause(stored, None)

    def test_which_of_them_failed_first_decides_nothing(self) -> None:
        """Decided in txid order: the third is number 3 in the order, not the third to fail."""
        hand = self.hand(count=4)
        hand.tick()
        for txid in (4, 3, 2, 1):
            attempt = TransactionAttempt(txid, 0)
            hand.tell(AttemptEnded(outcome=Failed(attempt=attempt, failure=Failure(kind="data", message=SAME))))
        for txid in (4, 1, 2, 3):
            hand.proven(txid)
        for txid in (1, 2):
            in_order(hand, txid)

        assert hand.state.halting is not None and hand.state.halting.txid == 3
        mirrored = [one.txid for action in hand.everything if isinstance(action, Mirror) for one in action.plans]
        assert mirrored == [1, 2]  # that of the third stays replaceable

    def test_more_than_half_of_the_last_twenty_halts_whatever_the_causes(self) -> None:
        """W8: causes that take turns."""
        hand = self.hand()
        hand.tick()
        for txid in range(1, 26):
            if hand.state.halting is not None:
                break
            left_out(hand, txid, (SAME, OTHER)[txid % 2])

        assert hand.state.halting is not None and hand.state.halting.txid == 11
        assert "more than half of the last 20 batches would be quarantined" in hand.state.halting.reason

    def test_no_more_batches_are_remembered_than_are_looked_at(self) -> None:
        hand = self.hand()
        hand.tick()
        for txid in range(1, 26):
            applied(hand, txid)

        assert [one.txid for one in hand.state.recent] == list(range(7, 26))
