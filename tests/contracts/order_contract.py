"""What every ledger must do with operators' orders and the action log, as tests to inherit with the rest of
`LedgerContract`.
"""

from __future__ import annotations

import pytest

from tests.contracts.ledger_driver import LedgerWorld, claim_for, lead_on
from txtopo.core.values import ActionRecord, Order, OrderKind
from txtopo.errors import Halted, InvariantBroken

KINDS: list[OrderKind] = ["retry", "skip", "redrive", "replan", "recompute"]
SKIPPED = ActionRecord(command="retry", txid=1, before={"state": "failed"}, after={"state": "planned"})


class OrderContract:
    """Orders reach the leader, are carried out once, and what was done is on record."""

    def test_orders_reach_the_leader_and_are_answered_once(self, world: LedgerWorld) -> None:
        """The heartbeat returns open orders; an answered one does not come again."""
        driver = lead_on(world)
        order_id = world.ask("stop")

        waiting = {"txid": 1, "attempt": 0, "phase": "processing", "for_s": 301.5}
        found = driver.ledger.heartbeat(driver.lead, "stalled", "no batch was committed for 301 s", 5, waiting)
        driver.ledger.answer_order(driver.lead, order_id, "done", "stopping")
        driver.ledger.answer_order(driver.lead, order_id, "refused", "too late")

        assert list(found) == [Order(order_id=order_id, kind="stop")]
        assert list(driver.ledger.heartbeat(driver.lead, "running", None, 5)) == []
        assert world.order(order_id) == ("done", "stopping", {})
        driver.ledger.note_end(driver.lead, "halted", "gap", 5, 6)

    def test_orders_of_every_kind_come_whole_and_in_order(self, world: LedgerWorld) -> None:
        """An order names its batches and its reason."""
        driver = lead_on(world)
        txids = {"retry": (), "redrive": (17, 18), "recompute": (3, 1, 2)}
        asked = [
            Order(
                order_id=world.ask(kind, txids.get(kind, (1,)), f"because of {kind}"),
                kind=kind,
                txids=txids.get(kind, (1,)),
                reason=f"because of {kind}",
            )
            for kind in KINDS
        ]

        assert list(driver.ledger.heartbeat(driver.lead, "running", None, 0)) == asked
        assert list(world.open().claim_fence(claim_for()).orders) == asked

    def test_an_order_to_stop_is_refused_at_takeover_and_others_are_kept(self, world: LedgerWorld) -> None:
        """A stop was meant for the leader that was there; the next one must not end because of it. A retry is for
        whoever leads.
        """
        lead_on(world)
        stop, retry = world.ask("stop"), world.ask("retry", [4])

        following = lead_on(world)

        assert [order.order_id for order in following.claimed.orders] == [retry]
        assert [one.order_id for one in following.ledger.heartbeat(following.lead, "running", None, 0)] == [retry]
        assert world.order(stop)[0] == "refused"

    def test_an_order_says_whether_anything_was_done_for_it(self, world: LedgerWorld) -> None:
        """A leader that finds its batch quarantined must know whether this order did it, before the one that died could
        answer.
        """
        driver = lead_on(world)
        asked = [world.ask("skip", [1], "bad"), world.ask("skip", [1], "bad again")]
        assert [one.acted for one in driver.ledger.heartbeat(driver.lead, "running", None, 0)] == [False, False]

        driver.quarantine(driver.ready(1), order_id=asked[0])

        for found in (driver.ledger.heartbeat(driver.lead, "running", None, 1), lead_on(world).claimed.orders):
            assert [(one.order_id, one.acted) for one in found] == [(asked[0], True), (asked[1], False)]

    def test_a_halt_without_the_lead_is_said_where_no_leader_lives(self, world: LedgerWorld) -> None:
        """Who looks at `status` sees it; a leader that lives is not talked over, and its next heartbeat takes it back."""  # noqa: E501
        halt = Halted("a node cannot be read", txid=4, next_command="remove it")
        driver = lead_on(world)
        world.open("other").note_halt(halt)  # nobody knows it: there is nothing to say

        world.open().note_halt(halt)
        assert world.said() == ("running", None, None)
        driver.ledger.note_end(driver.lead, "stopped", "interrupted", None, 0)
        world.open().note_halt(halt)
        assert world.said() == ("halted", "a node cannot be read", "remove it")
        driver.ledger.heartbeat(driver.lead, "running", None, 0)
        assert world.said() == ("running", None, None)

    def test_orders_of_another_topology_are_not_mine(self, world: LedgerWorld) -> None:
        """A leader sees, answers and notes only what was asked of its own topology."""
        lead_on(world)
        order_id = world.ask("skip", [1], "bad")
        other = world.open("other")
        lead = other.claim_fence(claim_for("other")).lead

        other.answer_order(lead, order_id, "done", "not yours", SKIPPED)
        other.note_progress(lead, order_id, {"at": 1})

        assert list(other.heartbeat(lead, "running", None, 0)) == []
        assert (world.order(order_id), world.actions()) == (("open", None, {}), [])

    def test_progress_is_remembered_for_the_next_leader(self, world: LedgerWorld) -> None:
        """What a leader is about to do about an order survives it."""
        driver = lead_on(world)
        order_id = world.ask("replan", reason="wrong type")

        driver.ledger.note_progress(driver.lead, order_id, {"plans": {"3": "ab"}})
        driver.ledger.note_progress(driver.lead, order_id, {"plans": {"4": "c\0d"}})

        [found] = lead_on(world).claimed.orders
        assert list(found.progress) == ["plans"]
        assert list(found.progress["plans"]) == ["4"]

    def test_the_progress_of_a_closed_order_stays_as_it_was(self, world: LedgerWorld) -> None:
        """An order that was answered is closed."""
        driver = lead_on(world)
        order_id = world.ask("replan")
        driver.ledger.answer_order(driver.lead, order_id, "refused", "nothing to drop")

        driver.ledger.note_progress(driver.lead, order_id, {"plans": {}})

        assert world.order(order_id) == ("refused", "nothing to drop", {})

    def test_an_answer_logs_its_action_once(self, world: LedgerWorld) -> None:
        """The change and its row in the log are one; a second answer changes nothing and logs nothing."""
        driver = lead_on(world)
        order_id = world.ask("retry", [1], "bolt fixed")
        action = ActionRecord(command="retry", txid=1, order_id=order_id, after={"text": "a\0\ud800"})

        for _ in range(2):
            driver.ledger.answer_order(driver.lead, order_id, "done", "again from the start", action)

        [row] = world.actions()
        assert row[:5] == ("operator", "retry", "bolt fixed", order_id, 1)
        assert world.order(order_id) == ("done", "again from the start", {})

    def test_an_action_of_no_order_fails_the_answer_too(self, world: LedgerWorld) -> None:
        """One database transaction: no answer without its action."""
        driver = lead_on(world)
        order_id = world.ask("retry", [1])

        with pytest.raises(InvariantBroken):
            driver.ledger.answer_order(
                driver.lead, order_id, "done", "yes", ActionRecord(command="retry", order_id=order_id + 1)
            )

        assert (world.order(order_id), world.actions()) == (("open", None, {}), [])
