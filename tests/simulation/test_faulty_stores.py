"""The real driver code on memory stores that fail: lost replies, unknown commits, outages, lost sessions, two leaders."""  # noqa: E501

from __future__ import annotations

import random
from pathlib import Path

import pytest

from tests.kit.applications import orders_topology
from tests.kit.nemesis import Nemesis
from tests.kit.orders import write_orders
from tests.kit.seeds import seeds
from tests.simulation.test_crash_walk import FILES, check
from txtopo.core.state import Phase, State
from txtopo.errors import Fenced, LeadLost, StoreUnavailable
from txtopo.testing.simulated import SimulatedDriver, SimulatedStores

SEEDS = seeds(40)
LIVES_MAX = 60


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("simulated") / "orders"
    write_orders(path, FILES, rows=6)
    return path


@pytest.mark.parametrize("seed", SEEDS)
def test_faults_of_the_stores_lose_nothing_and_repeat_nothing(folder: Path, seed: int) -> None:
    """Whatever the stores do, and however often the lead is lost, the run ends with the right counts."""
    topology = orders_topology(folder)
    stores = SimulatedStores()
    chance = random.Random(seed)
    faults = 6
    for life in range(LIVES_MAX):
        driver = SimulatedDriver(topology=topology, stores=stores, seed=seed * 1000 + life)
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
    check(stores, folder)


@pytest.mark.parametrize("how", ["lost", "aborted"])
@pytest.mark.parametrize("nth", range(1, FILES + 1))
def test_an_unknown_commit_is_resolved_without_a_new_attempt(folder: Path, how: str, nth: int) -> None:
    """R7: in both cases txtopo reads the ledger under the fence lock and ends in the right state."""
    stores = SimulatedStores()
    struck = False

    def strike(state: State) -> None:
        nonlocal struck
        if not struck and nth in state.batches and state.batches[nth].phase is Phase.COMMITTING:
            struck = True
            stores.postgres.fail_next_commit("lost" if how == "lost" else "aborted")

    driver = SimulatedDriver(topology=orders_topology(folder), stores=stores, watch=strike)

    assert driver.run().kind == "finished"
    assert struck
    check(stores, folder)
    assert {attempt for _, attempt in stores.postgres.topologies["orders"].attempts} == {0}
