"""Faults of memory stores at random moments of a simulated driver."""

from __future__ import annotations

import random

from txtopo.core.state import State
from txtopo.testing.simulated import SimulatedDriver, SimulatedStores


class Nemesis:
    """Causes a fault after a random step, and ends it some steps later."""

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
        """End the fault."""
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
