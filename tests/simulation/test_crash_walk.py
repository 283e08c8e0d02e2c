"""The real planner, machine, runner and commit on memory stores, killed at every step of every batch of a short run,
thousands of seeds a minute.
"""

from __future__ import annotations

from decimal import Decimal
from pathlib import Path

import pytest

from tests.kit.applications import orders_topology
from tests.kit.orders import Totals, recount, write_orders
from tests.kit.seeds import seeds
from txtopo.core.crash_points import CrashPoint
from txtopo.core.state import Rules
from txtopo.ports import StagingPlace
from txtopo.testing.simulated import KillAt, Killed, SimulatedDriver, SimulatedStores

FILES = 4
LARGE = StagingPlace(dsn="", rows_max=3)
"""Batches of these files have about six keys: tasks store them (R10)."""
SEEDS = seeds(40)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("simulated") / "orders"
    write_orders(path, FILES, rows=6)
    return path


def totals(stores: SimulatedStores) -> Totals:
    rows = stores.postgres.tables["public.order_totals"]
    return {
        (str(k[0]) if k[0] is not None else None, str(k[1])): (int(v[0]), Decimal(v[1]), Decimal(v[2]))
        for k, v in rows.items()
    }


def check(stores: SimulatedStores, folder: Path) -> None:
    """I1, I2, I4, I6 on what is left."""
    assert totals(stores) == recount(folder)
    ledger = stores.postgres.topologies["orders"].ledger
    assert sorted(ledger) == list(range(FILES + 1))
    assert not stores.postgres.staging, "nothing is left of what tasks stored"
    epochs = [ledger[txid].epoch for txid in sorted(ledger)]
    assert epochs == sorted(epochs)


def test_every_step_of_a_short_run_can_be_the_last_of_its_driver(folder: Path) -> None:
    """After any death a new driver takes up the work: nothing lost, nothing twice."""
    topology = orders_topology(folder)
    reached: set[CrashPoint] = set()
    for nth in range(1, 1000):
        stores = SimulatedStores()
        with KillAt(nth) as kill:
            try:
                end = SimulatedDriver(topology=topology, stores=stores, seed=7).run()
            except Killed:
                end = None
        if end is not None:
            assert kill.killed_at is None
            break
        assert kill.killed_at is not None
        reached.add(kill.killed_at)

        assert SimulatedDriver(topology=topology, stores=stores, seed=8).run().kind == "finished"
        check(stores, folder)
    assert reached == set(CrashPoint) - {CrashPoint.STAGED}


def test_every_step_of_a_run_with_large_results_can_be_the_last_of_its_driver(folder: Path) -> None:
    """R10: what tasks had stored for a driver that died is counted once or not at all, and nothing of it is left."""
    topology, reached = orders_topology(folder), set[CrashPoint]()
    for nth in range(1, 1000):
        stores = SimulatedStores()
        with KillAt(nth) as kill:
            try:
                SimulatedDriver(topology=topology, stores=stores, seed=7, staging_place=LARGE).run()
            except Killed:
                pass
        if kill.killed_at is None:
            check(stores, folder)
            break
        reached.add(kill.killed_at)
        after = None if nth % 2 else LARGE  # The next driver may have no place for large results.

        assert SimulatedDriver(topology=topology, stores=stores, seed=8, staging_place=after).run().kind == "finished"
        check(stores, folder)
    assert reached == set(CrashPoint) - {CrashPoint.RUN_FINISHED}


@pytest.mark.parametrize("seed", SEEDS)
def test_any_number_of_deaths_leaves_the_counts_right(folder: Path, seed: int) -> None:
    """Several drivers in a row die at random steps, with every order of work that the seed draws."""
    topology = orders_topology(folder)
    stores = SimulatedStores()
    for life in range(12):
        with KillAt(1 + (seed * 7919 + life * 104729) % 60):
            try:
                end = SimulatedDriver(
                    topology=topology,
                    stores=stores,
                    seed=seed * 100 + life,
                    staging_place=LARGE if (seed + life) % 3 == 0 else None,
                ).run()
            except Killed:
                continue
        assert end.kind in ("finished", "halted"), end
        if end.kind == "halted":
            assert (
                "no verdict from 3 attempts that ran alone" in end.reason
            )  # killed at the same batch over and over, as a bolt that ends its process does
            return
        break
    else:
        assert SimulatedDriver(topology=topology, stores=stores, seed=seed).run().kind == "finished"
    check(stores, folder)


@pytest.mark.parametrize("seed", range(5))
def test_drivers_that_die_in_the_turns_of_other_batches_leave_none_out(tmp_path: Path, seed: int) -> None:
    """Each commits a batch and dies in the turn of the next: whatever else it had processed alone by then, and held, is
    not at fault.
    """
    write_orders(tmp_path, 12, rows=2)
    topology, stores = orders_topology(tmp_path), SimulatedStores()
    rules = Rules(workers=3, on_poison="quarantine_batch")
    for life in range(9):
        with KillAt(2, CrashPoint.LEDGER_APPENDED), pytest.raises(Killed):
            SimulatedDriver(topology=topology, stores=stores, seed=seed * 100 + life, rules=rules).run()

    end = SimulatedDriver(topology=topology, stores=stores, seed=seed, rules=rules).run()

    assert end.kind == "finished", end
    assert {row.state for txid, row in stores.postgres.topologies["orders"].ledger.items() if txid} == {"applied"}
    assert totals(stores) == recount(tmp_path)
