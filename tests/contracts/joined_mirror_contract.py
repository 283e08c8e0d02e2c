"""What every ledger must do where a commit mirrors the plan of its batch, as tests to inherit with the rest of
`LedgerContract`.
"""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tests.contracts.ledger_driver import ROWS, Driver, LedgerWorld, claim_for, die_at, lead_on, result_of
from txtopo.core import crash_points
from txtopo.core.crash_points import CrashPoint
from txtopo.core.plan import Plan
from txtopo.core.values import Aborted, AlreadyCommitted, Committed, Unknown
from txtopo.errors import Fenced, Halted


def begun(driver: Driver, txid: int = 1, path: str | None = None) -> Plan:
    """A batch that was processed and whose plan is not mirrored."""
    plan = driver.plan(txid, path)
    driver.begin(txid)
    return plan


def known(world: LedgerWorld) -> tuple[int, int]:
    """Last txid and number of mirrored plans after it, as a new leader finds them."""
    claimed = world.open().claim_fence(claim_for())
    return claimed.last_txid, len(claimed.plans)


class JoinedMirrorContract:
    """R9: plan, inputs and ledger row become durable together, or none of them."""

    def test_a_commit_mirrors_the_plan_of_its_batch(self, world: LedgerWorld) -> None:
        """With its inputs; the next one follows it."""
        driver = lead_on(world)

        outcomes = [driver.commit_with_mirror(begun(driver, txid)) for txid in (1, 2)]

        assert all(isinstance(one, Committed) for one in outcomes)
        assert [path for path, _ in driver.ledger.consumed_after("spout", "", 9)] == ["/in/1.csv", "/in/2.csv"]
        assert [one.txid for one in driver.ledger.batches_after(0)] == [1, 2]  # they have their plans
        assert world.rows("flights_count")["AA", "JFK"] == (4, 400)

    @pytest.mark.parametrize(
        "point",
        [CrashPoint.FENCE_LOCKED, CrashPoint.MIRROR_OPEN, CrashPoint.LEDGER_APPENDED, CrashPoint.BEFORE_COMMIT],
    )
    def test_a_death_before_commit_leaves_no_plan(
        self, world: LedgerWorld, listen: Callable[[crash_points.Listener], None], point: CrashPoint
    ) -> None:
        """The plan is where it was before: in ZooKeeper alone, and it can be replaced (R3)."""
        driver = lead_on(world)
        plan = begun(driver)
        die_at(listen, point)

        with pytest.raises(KeyboardInterrupt):
            driver.commit_with_mirror(plan)

        crash_points.listen(None)
        assert driver.ledger.consumed_after("spout", "", 9) == []
        assert known(world) == (0, 0)

    @pytest.mark.parametrize("point", [CrashPoint.COMMITTED, CrashPoint.MIRRORED])
    def test_a_death_after_commit_leaves_both(
        self, world: LedgerWorld, listen: Callable[[crash_points.Listener], None], point: CrashPoint
    ) -> None:
        """And the same commit again changes nothing."""
        driver = lead_on(world)
        plan = begun(driver)
        die_at(listen, point)

        with pytest.raises(KeyboardInterrupt):
            driver.commit_with_mirror(plan)

        crash_points.listen(None)
        assert driver.commit_with_mirror(plan) == AlreadyCommitted(txid=1)
        assert world.rows("flights_count")["AA", "JFK"] == (2, 200)
        assert known(world) == (1, 0)

    def test_a_batch_that_fails_in_its_commit_leaves_no_plan(self, world: LedgerWorld) -> None:
        """It is processed again, or its plan is replaced."""
        driver = lead_on(world)
        plan = begun(driver)

        outcome = driver.commit_with_mirror(plan, results=(result_of(ROWS, arrived=7),))

        assert isinstance(outcome, Aborted)
        assert driver.ledger.consumed_after("spout", "", 9) == []
        driver.mirror(driver.plan(1, "/in/other.csv"))
        assert known(world) == (0, 1)

    def test_an_unanswered_commit_is_unknown_with_its_mirror(
        self, world: LedgerWorld, listen: Callable[[crash_points.Listener], None]
    ) -> None:
        """R7: what did not happen left nothing, and the plan is mirrored before the next try."""
        driver = lead_on(world)
        plan = begun(driver)
        listen(lambda point, _: world.break_commit() if point is CrashPoint.BEFORE_COMMIT else None)
        outcome = driver.commit_with_mirror(plan)
        crash_points.listen(None)

        assert isinstance(outcome, Unknown)
        assert isinstance(driver.ledger.resolve(driver.lead, [(1, plan.digest)])[0], Aborted)
        assert driver.ledger.consumed_after("spout", "", 9) == []
        driver.mirror(plan)
        assert isinstance(driver.commit(plan), Committed)

    def test_a_plan_that_is_mirrored_is_compared(self, world: LedgerWorld) -> None:
        """Create-only: the same plan is nothing new, another one halts and nothing is applied."""
        driver = lead_on(world)
        driver.mirror(driver.plan(1))
        other = driver.plan(1, "/in/other.csv")
        driver.begin(1)

        with pytest.raises(Halted, match="is mirrored in Postgres with another plan"):
            driver.commit_with_mirror(other)

        assert world.rows("flights_count") == {}
        assert isinstance(driver.commit_with_mirror(driver.plan(1)), Committed)

    def test_an_input_of_another_batch_halts(self, world: LedgerWorld) -> None:
        """As in a mirror of its own; nothing is applied."""
        driver = lead_on(world)
        driver.commit_with_mirror(begun(driver))

        with pytest.raises(Halted, match=r"/in/1\.csv is planned into batch 2, but batch 1 consumed it"):
            driver.commit_with_mirror(begun(driver, 2, "/in/1.csv"))

        assert world.rows("flights_count")["AA", "JFK"] == (2, 200)
        assert known(world) == (1, 0)

    def test_a_leader_that_was_replaced_mirrors_nothing(self, world: LedgerWorld) -> None:
        """R4: the fence is compared before the plan is inserted."""
        driver = lead_on(world)
        plan = begun(driver)
        lead_on(world)

        with pytest.raises(Fenced):
            driver.commit_with_mirror(plan)

        assert known(world) == (0, 0)
