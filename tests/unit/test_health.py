"""Health goes by commit progress: "running" that means running, and a stall that is shouted."""

from __future__ import annotations

from tests.kit.machines import Hand, plan, ready
from txtopo.core.health import health_of


def test_a_leader_without_anything_to_commit_is_running_however_long() -> None:
    hand = Hand(message_timeout_s=10)
    hand.tick()
    hand.plans()

    hand.tick(1000)

    health = health_of(hand.state, hand.now)
    assert (health.state, health.waiting) == ("running", {})


def test_the_batch_whose_turn_it_is_is_named_with_its_attempt_and_phase() -> None:
    hand = ready(2, message_timeout_s=10)

    hand.now += 4

    assert health_of(hand.state, hand.now).waiting == {"txid": 1, "attempt": 0, "phase": "processing", "for_s": 4.0}


def test_a_batch_that_waits_longer_than_the_message_timeout_is_a_stall() -> None:
    """Health is derived from commit progress, not from a thread being alive."""
    hand = ready(2, message_timeout_s=10)

    hand.now += 11

    health = health_of(hand.state, hand.now)
    assert health.state == "stalled"
    assert health.problem == "no batch was committed for 11 s: batch 1 attempt 0 is processing"


def test_every_commit_starts_the_clock_anew() -> None:
    hand = ready(2, message_timeout_s=10)
    hand.tick(8)
    hand.succeed(1)
    hand.mirrored(1)
    hand.committed(1)

    hand.now += 8

    assert health_of(hand.state, hand.now).state == "running"


def test_time_without_work_is_no_stall_of_the_work_that_comes_then() -> None:
    hand = Hand(message_timeout_s=10, spout_poll_s=0.5)
    hand.tick()
    hand.plans()
    hand.tick(1000)

    hand.plans(plan(1))

    assert health_of(hand.state, hand.now).state == "running"


def test_the_cause_of_the_last_failure_is_told_with_the_stall() -> None:
    hand = ready(1, message_timeout_s=10, attempts_max=100)
    hand.fail(1, 0, "data")

    hand.now += 11

    assert str(health_of(hand.state, hand.now).problem).endswith("is planned (boom)")
