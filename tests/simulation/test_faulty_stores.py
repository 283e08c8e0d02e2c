"""The real driver code on memory stores that fail: lost replies, unknown commits, outages, lost sessions, two leaders."""  # noqa: E501

from __future__ import annotations

import os
import random
from pathlib import Path

import pytest

from tests.kit.applications import orders_topology
from tests.kit.orders import write_orders
from tests.simulation.test_crash_walk import FILES, check
from txtopo.core.state import State
from txtopo.errors import Fenced, LeadLost, StoreUnavailable
from txtopo.testing.simulated import SimulatedDriver, SimulatedStores

SEEDS = int(os.environ.get("TXTOPO_SIMULATION_SEEDS", "40"))
LIVES_MAX = 60


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("simulated") / "orders"
    write_orders(path, FILES, rows=6)
    return path


class Nemesis:
    """Draws a fault after a step now and then, and heals it some steps later."""

    def __init__(self, stores: SimulatedStores, driver: SimulatedDriver, chance: random.Random, faults: int) -> None:
        self._stores = stores
        self._driver = driver
        self._chance = chance
        self.left = faults
        self._heal_at = 0.0

    def __call__(self, _state: State) -> None:
        now = self._stores.clock.now
        if self._heal_at:
            if now >= self._heal_at:
                self.heal()
            return
        if self.left and self._chance.random() < 0.08:
            self.left -= 1
            self._heal_at = now + self._chance.uniform(0.05, 8.0)
            self._strike(
                self._chance.choice(
                    ["postgres", "zookeeper", "lost", "aborted", "reply", "no reply", "suspend", "expire"]
                )
            )

    def heal(self) -> None:
        """All is well again."""
        self._heal_at = 0.0
        self._stores.postgres.unavailable = False
        self._stores.zookeeper.unavailable = False
        if self._driver.session is not None:
            self._stores.zookeeper.resume(self._driver.session)

    def _strike(self, fault: str) -> None:
        session = self._driver.session
        assert session is not None
        match fault:
            case "postgres":
                self._stores.postgres.unavailable = True
            case "zookeeper":
                self._stores.zookeeper.unavailable = True
            case "lost" | "aborted":
                self._stores.postgres.fail_next_commit("lost" if fault == "lost" else "aborted")
            case "reply" | "no reply":
                self._stores.zookeeper.lose_next_reply(applied=fault == "reply")
            case "suspend":
                self._stores.zookeeper.suspend(session)
            case _:
                self._stores.zookeeper.expire(session)


@pytest.mark.parametrize("seed", range(SEEDS))
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
        if not struck and state.last_txid == nth - 1 and state.committing:
            struck = True
            stores.postgres.fail_next_commit("lost" if how == "lost" else "aborted")

    driver = SimulatedDriver(topology=orders_topology(folder), stores=stores, watch=strike)

    assert driver.run().kind == "finished"
    assert struck
    check(stores, folder)
    assert {attempt for _, attempt in stores.postgres.topologies["orders"].attempts} == {0}
