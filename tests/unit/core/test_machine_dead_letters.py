"""Records that fail are taken out of a batch, as `dead_letter_rows` says, which then runs in no wave."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from tests.kit.machines import Hand, started
from tests.unit.core.test_machine_waves import planned
from txtopo.core import limits
from txtopo.core.events import Answer, End, OrdersSeen, Process, Say
from txtopo.core.values import Order


class TestDeadLetters:
    """on_poison="dead_letter_rows": the source records that a bolt fails on are taken out, as a last resort."""

    def used_up(self, **rules: Any) -> Hand:
        hand = planned(2, workers=1, attempts_max=2, on_poison="dead_letter_rows", **rules)
        hand.succeed(2)
        hand.fail(1, 0, "data")
        hand.tick(60)
        hand.fail(1, 1, "data")
        return hand

    def test_after_the_last_attempt_one_more_is_made_without_the_records_that_fail(self) -> None:
        hand = self.used_up()

        hand.tick(60)

        everything = [p for p in hand.everything if isinstance(p, Process)]
        assert [(str(p.attempts[0][0]), p.dead_letter) for p in everything] == [
            ("1:0", False),
            ("1:1", False),
            ("1:2", True),
        ]
        assert hand.state.halting is None

    def test_it_runs_in_no_wave(self) -> None:
        hand = self.used_up()
        hand.tick(60)

        assert hand.state.batches[1].may_share is False
        assert hand.state.batches[1].in_wave is False

    def test_a_batch_with_dead_letters_never_shares_even_when_its_failures_are_forgiven(self) -> None:
        """An order to retry forgives failures; which records are taken out may depend on the company."""
        hand = self.used_up()

        forgiven = replace(hand.state.batches[1], data_failures=0, other_failures=0)

        assert (forgiven.dead_letter, forgiven.may_share) == (True, False)

    def test_where_that_fails_too_the_topology_halts(self) -> None:
        hand = self.used_up()
        hand.tick(60)

        hand.fail(1, 2, "data")

        (end,) = hand.of(End)
        assert end.kind == "halted"
        assert "3 attempts failed" in end.reason

    def test_failures_of_the_machinery_do_not_lead_there(self) -> None:
        hand = planned(1, workers=1, attempts_max=1, on_poison="dead_letter_rows")

        for attempt in range(3):
            hand.fail(1, attempt, "infrastructure")
            hand.tick(60)

        assert not any(p.dead_letter for p in hand.everything if isinstance(p, Process))

    def test_a_suspect_without_a_verdict_halts_and_loses_no_records(self) -> None:
        """Nobody knows which record it was."""
        hand = planned(1, workers=1, attempts_max=1, on_poison="dead_letter_rows")

        for attempt in range(limits.SUSPECT_RUNS_ALONE_MAX + 1):
            hand.fail(1, attempt, "suspect")
            hand.tick(60)

        assert not any(p.dead_letter for p in hand.everything if isinstance(p, Process))
        assert [end.kind for end in hand.everything if isinstance(end, End)] == ["halted"]

    def test_other_policies_take_nothing_out(self) -> None:
        for policy in ("halt", "quarantine_batch"):
            hand = planned(1, workers=1, attempts_max=1, on_poison=policy)
            hand.fail(1, 0, "data")
            hand.tick(60)

            assert not any(p.dead_letter for p in hand.everything if isinstance(p, Process))

    def test_what_it_does_is_said(self) -> None:
        said = [say.message for say in self.used_up().of(Say)]

        assert said == ["batch 1: 2 attempts failed: boom; again without the records that fail"]


def test_an_order_to_retry_is_not_answered_as_failed_while_dead_letters_are_tried() -> None:
    hand = planned(1, workers=1, attempts_max=1, on_poison="dead_letter_rows")
    hand.tell(OrdersSeen(orders=(Order(order_id=1, kind="retry", txids=(1,)),)))

    hand.fail(1, 0, "data")

    assert hand.of(Answer) == []
    hand.tick(60)
    assert started(hand) in ([], ["1:1"])
