"""A `--once` run waits for nothing, at its start or its end: in the simulated driver a wait is a call."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.kit.applications import orders_topology
from tests.kit.orders import write_orders
from txtopo.spouts.stamped_here import StampedHere
from txtopo.testing.simulated import SerialWorkQueues, SimulatedClock, SimulatedDriver, SimulatedStores


class Old(SimulatedClock):
    """Every file is old."""

    def age_s(self, stamp_s: float) -> float:
        return 1000.0


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize(
    ("clock", "settled_s", "is_idle"),
    [(Old, 2.0, False), (SimulatedClock, 0, False), (SimulatedClock, 2.0, True)],
    ids=["old files", "nothing settles", "young files"],
)
def test_a_once_run_has_no_idle_wait_at_either_end(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    seed: int,
    clock: type[SimulatedClock],
    settled_s: float,
    is_idle: bool,
) -> None:
    """The first run, one with one more file, and one with nothing to do."""
    monkeypatch.setattr(StampedHere, "covers", lambda *_: True)
    idle: list[float] = []
    work_once = SerialWorkQueues.work_once

    def counted(queues: SerialWorkQueues) -> bool:
        has_worked = work_once(queues)
        if not has_worked:
            idle.append(queues.clock.monotonic())
        return has_worked

    monkeypatch.setattr(SerialWorkQueues, "work_once", counted)
    stores = SimulatedStores(clock=clock())
    topology = orders_topology(tmp_path, settled_s=settled_s)
    for files in (4, 5, 5):
        write_orders(tmp_path, files)
        end = SimulatedDriver(topology=topology, stores=stores, seed=seed).run()
        assert end.kind == "finished" and end.reason
        assert stores.postgres.topologies["orders"].fence.last_txid == files
    assert bool(idle) is is_idle
