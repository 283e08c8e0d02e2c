"""The real planner, machine and commit on memory stores over a log that grows and is rotated, killed at every step."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from tests.kit.tails import Log
from txtopo import CountCommitter, TailSpout, TopologyBuilder
from txtopo.core.crash_points import CrashPoint
from txtopo.testing.simulated import KillAt, Killed, SimulatedDriver, SimulatedStores
from txtopo.topology.components import Topology

CHANGES = ("rename", "copytruncate", "write", "compress")


def topology_of(log: Log, bytes_per_batch: int = 20) -> Topology:
    builder = TopologyBuilder("growing")
    spout = TailSpout(log.path, "line string", settled_s=0, rotated_s=0, bytes_per_batch=bytes_per_batch)
    builder.set_spout("log", spout)
    builder.set_committer_bolt("lines", CountCommitter("public.lines", ["line"], count="n")).shuffle_grouping("log")
    return builder.build()


def change(log: Log, kind: str, number: int) -> None:
    """What happens to a log between two drivers, or while one runs."""
    if kind == "compress":
        if log.name(1).exists():
            log.compress(1)
        kind = "write"
    if kind != "write":
        getattr(log, kind)()
    log.write(*(f"line {number} {at}" for at in range(3)))


def counted(stores: SimulatedStores) -> dict[str, int]:
    return {str(key[0]): int(values[0]) for key, values in stores.postgres.tables["public.lines"].items()}


def run(topology: Topology, stores: SimulatedStores, seed: int) -> None:
    end = SimulatedDriver(topology=topology, stores=stores, seed=seed).run()
    assert end.kind == "finished", end


def test_every_step_of_a_driver_over_a_growing_log_can_be_its_last(tmp_path: Path) -> None:
    """Whatever rotation does meanwhile, the next driver counts every line once."""
    reached: set[CrashPoint] = set()
    for nth in range(1, 1000):
        (tmp_path / str(nth)).mkdir()
        log, stores = Log(tmp_path / str(nth) / "app.log"), SimulatedStores()
        topology = topology_of(log, bytes_per_batch=1)
        for number in range(3):
            log.write(f"first {number}")
        with KillAt(nth) as kill:
            try:
                run(topology, stores, 7)
            except Killed:
                pass
        change(log, CHANGES[nth % len(CHANGES)], nth)
        run(topology, stores, 8)
        assert counted(stores) == dict.fromkeys(log.written, 1), (nth, kill.killed_at)
        if kill.killed_at is None:
            break
        reached.add(kill.killed_at)
    assert reached == set(CrashPoint) - {CrashPoint.STAGED}  # no large results here


@pytest.mark.parametrize("seed", range(10))
def test_a_log_that_is_rotated_under_dying_drivers_is_counted_once(tmp_path: Path, seed: int) -> None:
    log, stores, chance = Log(tmp_path / "app.log"), SimulatedStores(), random.Random(seed)
    topology = topology_of(log)
    for life in range(8):
        change(log, chance.choice(CHANGES), life)
        with KillAt(chance.randint(1, 30)):
            try:
                run(topology, stores, seed * 100 + life)
            except Killed:
                continue
    run(topology, stores, seed)

    assert counted(stores) == dict.fromkeys(log.written, 1)
