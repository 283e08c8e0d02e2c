"""The real planner, machine and commit on memory stores over a log that grows and is rotated, killed at every step."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from tests.kit.tails import Log
from txtopo import CountCommitter, TailSpout, TopologyBuilder
from txtopo.core.crash_points import CrashPoint
from txtopo.core.limits import SPOUT_POLL_S
from txtopo.core.state import State
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


@pytest.mark.parametrize("every_s", [0.3, 7.0])
def test_lines_are_counted_within_seconds_after_they_were_written(tmp_path: Path, every_s: float) -> None:
    """In a run that follows the log, at the waits that it has by default: a line waits until it has settled, at most
    twice as long where the log grows at every look, and for a look or two. A rotation between them costs nothing.
    """
    log, stores = Log(tmp_path / "app.log"), SimulatedStores()
    builder = TopologyBuilder("growing")
    spout = TailSpout(log.path, "line string")
    builder.set_spout("log", spout)
    builder.set_committer_bolt("lines", CountCommitter("public.lines", ["line"], count="n")).shuffle_grouping("log")
    written: dict[str, float] = {}
    took: dict[str, float] = {}

    def watch(_: State) -> None:
        now = stores.clock.now
        while len(written) * every_s <= now - 1000.0:
            if len(written) in (20, 40):
                log.rename()
            log.write(f"line {len(written)}")
            written[log.written[-1]] = now
        for line in counted(stores) if stores.postgres.tables else ():
            took.setdefault(line, now - written[line])
        if len(took) >= 60:
            raise Killed

    with pytest.raises(Killed):
        SimulatedDriver(topology=builder.build(), stores=stores, seed=3, once=False, watch=watch).run()
    assert set(counted(stores).values()) == {1}
    bound_s = (2 if every_s < spout.settled_s else 1) * spout.settled_s + 3 * SPOUT_POLL_S
    assert max(took.values()) <= bound_s, took
