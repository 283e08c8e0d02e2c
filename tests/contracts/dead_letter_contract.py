"""What every ledger must do with dead letters, as tests to inherit with the rest of `LedgerContract`."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tests.contracts.ledger_driver import LedgerWorld, dead_letter, die_at, lead_on, result_of
from tests.contracts.quarantine_contract import totals
from txtopo.core import crash_points
from txtopo.core.crash_points import CrashPoint
from txtopo.core.values import Aborted, Committed, DeadLetter, TransactionAttempt
from txtopo.errors import Halted, InvariantBroken
from txtopo.ports import LedgerEntry


class DeadLetterContract:
    """Records that a bolt failed on."""

    def test_dead_letters_come_with_the_good_rows_of_their_batch(
        self, world: LedgerWorld, listen: Callable[[crash_points.Listener], None]
    ) -> None:
        """Dead letters are written in the same database transaction as the good rows, or not at all."""
        driver = lead_on(world)
        plan = driver.ready(1)
        letters = (dead_letter(), dead_letter("/in/1.csv:9", component="count", raw=b"UA"))
        die_at(listen, CrashPoint.BEFORE_COMMIT)
        with pytest.raises(KeyboardInterrupt):
            driver.commit(plan, dead_letters=letters)
        crash_points.listen(None)
        assert world.dead_letters(1) == []

        assert isinstance(driver.commit(plan, dead_letters=letters), Committed)

        assert world.dead_letters(1) == [
            ("spout", "/in/1.csv:4", "split", "bolts.py:7: ValueError: no", b"AA,JFK,7"),
            ("spout", "/in/1.csv:9", "count", "bolts.py:7: ValueError: no", b"UA"),
        ]
        assert len(world.rows("flights_count")) == 3

    def test_hostile_dead_letters_are_kept(self, world: LedgerWorld) -> None:
        """P14: NUL and lone surrogates cost neither the record nor the batch."""
        driver = lead_on(world)
        letter = dead_letter("/in/\udcff %s.csv:3", reason="bad \0 value", raw=b"\x00\xff\\{}")

        assert isinstance(driver.commit(driver.ready(1), dead_letters=(letter,)), Committed)

        [(_, position, _, reason, raw)] = world.dead_letters(1)
        assert (position.startswith("/in/"), reason.endswith("value"), raw) == (True, True, b"\x00\xff\\{}")

    @pytest.mark.parametrize("said", [1, 3])
    def test_the_ledger_itself_counts_the_dead_letters(self, world: LedgerWorld, said: int) -> None:
        """I6: whoever finishes a batch with another number commits nothing."""
        driver = lead_on(world)
        plan = driver.ready(1)

        with pytest.raises(Halted, match="each of its dead letters"):
            with driver.ledger.session(driver.lead) as session:
                session.lock_fence()
                session.append_ledger(LedgerEntry(plan=plan, attempt=TransactionAttempt(1, 0)))
                session.apply(driver.committers[0], result_of([]))
                session.append_dead_letters([dead_letter("/in/1.csv:2"), dead_letter("/in/1.csv:3")])
                session.finish(totals(dead_lettered=said))
                session.commit()

    @pytest.mark.parametrize(
        "wrong", [(dead_letter(), dead_letter(reason="else")), (dead_letter(reason=""),)], ids=["twice", "no reason"]
    )
    def test_a_dead_letter_that_cannot_be_kept_fails_the_batch(
        self, world: LedgerWorld, wrong: tuple[DeadLetter, ...]
    ) -> None:
        """A record is a dead letter once, and for a reason."""
        driver = lead_on(world)

        outcome = driver.commit(driver.ready(1), dead_letters=wrong)

        assert isinstance(outcome, Aborted)
        assert (outcome.failure.kind, outcome.failure.component) == ("data", "spout")
        assert world.rows("flights_count") == {}

    def test_more_dead_letters_than_records_are_refused(self, world: LedgerWorld) -> None:
        """I6: rejected and dead-lettered records are part of what was read."""
        driver = lead_on(world)

        outcome = driver.commit(driver.ready(1), read=1, dead_letters=(dead_letter("a:1"), dead_letter("a:2")))

        assert isinstance(outcome, Aborted)
        assert outcome.failure.kind == "data"

    def test_a_batch_with_dead_letters_is_not_quarantined(self, world: LedgerWorld) -> None:
        """R14: a quarantined batch has no effect."""
        driver = lead_on(world)
        plan = driver.ready(1)

        with pytest.raises(InvariantBroken, match="cannot be quarantined"):
            with driver.ledger.session(driver.lead) as session:
                session.lock_fence()
                session.append_ledger(LedgerEntry(plan=plan, attempt=TransactionAttempt(1, 0)))
                session.append_dead_letters([dead_letter()])
                session.finish_quarantined("poison")
