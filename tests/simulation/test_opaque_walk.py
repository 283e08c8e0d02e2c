"""The real driver code with an opaque source: killed anywhere, on stores and workers that fail, no number is lost and
none is counted twice.
"""

from __future__ import annotations

import random
from collections.abc import Callable

import pytest

from tests.kit.nemesis import Nemesis
from tests.kit.opaque import TOPOLOGY, check_numbers, numbers_topology
from tests.kit.seeds import seeds
from tests.simulation.test_faulty_stores import LIVES_MAX
from txtopo.core.crash_points import CrashPoint
from txtopo.core.state import Rules, State
from txtopo.core.values import TransactionAttempt
from txtopo.errors import BatchDataError, Fenced, LeadLost, StoreUnavailable
from txtopo.ports import Executor
from txtopo.testing.inprocess import InProcessExecutor
from txtopo.testing.simulated import KillAt, Killed, SimulatedDriver, SimulatedStores
from txtopo.topology.components import Topology

COUNT = 30
SEEDS = seeds(20)
RULES = Rules(workers=3, attempts_max=1000, spout_pending_max=6)


def flaky(chance: random.Random, share: float) -> Callable[[Topology, bytes], Executor]:
    """Executors whose attempts fail now and then, of either kind."""

    def fail(attempt: TransactionAttempt) -> None:
        if chance.random() < share:
            raise chance.choice([BatchDataError("no", component="numbers"), OSError("away")])

    return lambda topology, code: InProcessExecutor(topology, code, faults=fail)


def cuts(stores: SimulatedStores) -> int:
    """Metadata nodes that belong to an attempt."""
    return sum(path.count("/") == 5 for path in stores.zookeeper.paths())


def test_every_step_can_be_the_last_of_its_driver() -> None:
    """A new driver drops what is not mirrored from view, cuts it again, and adopts what is mirrored (R11)."""
    reached: set[CrashPoint] = set()
    for nth in range(1, 1000):
        stores, chance = SimulatedStores(), random.Random(nth)
        topology = numbers_topology(12, chance)
        make = flaky(chance, 0.15)
        with KillAt(nth) as kill:
            try:
                end = SimulatedDriver(topology=topology, stores=stores, seed=7, rules=RULES, make_executor=make).run()
            except Killed:
                end = None
        if end is not None and kill.killed_at is None:
            break
        assert kill.killed_at is not None
        reached.add(kill.killed_at)

        end = SimulatedDriver(topology=topology, stores=stores, seed=8, rules=RULES, make_executor=make).run()
        assert end.kind == "finished", end
        check_numbers(stores, 12)
    assert reached >= {CrashPoint.METADATA_WRITTEN, CrashPoint.ATTEMPT_BEGUN, CrashPoint.MIRRORED, CrashPoint.PROCESSED}


@pytest.mark.parametrize("seed", SEEDS)
def test_any_number_of_deaths_leaves_each_number_counted_once(seed: int) -> None:
    """Drivers in a row die at random steps, and their attempts fail, with every order of work that the seed draws."""
    stores, chance = SimulatedStores(), random.Random(seed)
    topology = numbers_topology(COUNT, chance)
    for life in range(12):
        with KillAt(1 + (seed * 7919 + life * 104729) % 60):
            try:
                end = SimulatedDriver(
                    topology=topology,
                    stores=stores,
                    seed=seed * 100 + life,
                    rules=RULES,
                    make_executor=flaky(chance, 0.1),
                ).run()
            except Killed:
                continue
        if end.kind == "halted":  # the same batch was running at every death
            assert "no verdict from 3 attempts that ran alone" in end.reason
            return
        assert end.kind == "finished", end
        break
    else:
        end = SimulatedDriver(topology=topology, stores=stores, seed=seed, rules=RULES).run()
        assert end.kind == "finished", end
    check_numbers(stores, COUNT)


@pytest.mark.parametrize("seed", SEEDS)
def test_faults_of_the_stores_and_of_attempts_lose_and_repeat_nothing(seed: int) -> None:
    """Lost replies, unknown commits, outages, lost sessions, and attempts that fail in between."""
    stores, chance = SimulatedStores(), random.Random(seed)
    topology = numbers_topology(COUNT, chance)
    faults = 6
    for life in range(LIVES_MAX):
        driver = SimulatedDriver(
            topology=topology, stores=stores, seed=seed * 1000 + life, rules=RULES, make_executor=flaky(chance, 0.1)
        )
        nemesis = Nemesis(stores, driver, chance, faults)
        driver.watch = nemesis
        try:
            kind: str = driver.run().kind
        except (StoreUnavailable, LeadLost, Fenced):
            kind = "trouble"
        faults = nemesis.left
        nemesis.heal()
        stores.postgres.take_failure()
        if kind == "finished":
            break
        assert kind in ("lead_lost", "trouble")
    else:
        raise AssertionError(f"not finished after {LIVES_MAX} candidacies")
    check_numbers(stores, COUNT)


def test_batches_are_cut_again_while_waves_run() -> None:
    """The walks above mean something: txids were cut more than once, waves held several of them, and no attempt id was
    used twice.
    """
    stores, chance = SimulatedStores(), random.Random(3)
    widest = 0

    def watch(state: State) -> None:
        nonlocal widest
        waves = [batch.wave for batch in state.batches.values() if batch.in_wave]
        widest = max([widest, *(waves.count(wave) for wave in waves)])

    driver = SimulatedDriver(
        topology=numbers_topology(60, chance, most=2),
        stores=stores,
        seed=3,
        rules=RULES,
        make_executor=flaky(chance, 0.1),
        watch=watch,
    )

    assert driver.run().kind == "finished"

    check_numbers(stores, 60)
    assert widest > 1
    applied = stores.postgres.topologies[TOPOLOGY].ledger
    assert max(row.attempt for row in applied.values()) > 0
    assert cuts(stores) > 0
