"""Tests of a bolt that waits for the clock, tuple by tuple, and of batches that fail, by hand."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from txtopo import Acking, BoltDeclarer, CountCommitter, Fields, FileSpout, Topology, TopologyBuilder
from txtopo.bolts import CustomStreamGrouping, OutputCollector, RichBolt, TopologyContext, Tuple, is_tick
from txtopo.spouts import Spout
from txtopo.testing import BatchSeen, FeederSpout, FeederTopology, TopologyHarness


class Latest(RichBolt):
    """The last reading of each sensor, once a minute."""

    outputs = ["sensor string", "reading double"]
    config = {"topology.tick.tuple.freq.secs": 60}

    def prepare(self, config: Mapping[str, Any], context: TopologyContext, collector: OutputCollector) -> None:
        self.collector = collector
        self.latest: dict[str, Tuple] = {}

    def execute(self, tup: Tuple) -> None:
        if is_tick(tup):
            self.finish_batch()
        elif tup["reading"] < 0:
            self.collector.fail(tup)
        else:
            if (before := self.latest.get(tup["sensor"])) is not None:
                self.collector.ack(before)
            self.latest[tup["sensor"]] = tup

    def finish_batch(self) -> None:
        for tup in self.latest.values():
            self.collector.emit((tup["sensor"], tup["reading"]), anchors=[tup])
            self.collector.ack(tup)
        self.latest.clear()


class ByFloor(CustomStreamGrouping):
    """`2-west` goes to the task of floor 2."""

    def prepare(self, source: str, stream: str, fields: Fields, targets: Sequence[int]) -> None:
        self.targets = targets
        self.at = fields.names.index("sensor")

    def choose_tasks(self, task: int, values: Sequence[Any]) -> Sequence[int]:
        floor = int(values[self.at].partition("-")[0])
        return [self.targets[floor % len(self.targets)]]


def topology_of(source: Spout, acking: Acking = "tuple") -> Topology:
    """Readings by sensor."""
    builder = TopologyBuilder("readings", acking=acking)
    builder.set_spout("sensors", source)
    latest: BoltDeclarer = builder.set_bolt("latest", Latest(), parallelism_hint=2)
    latest.custom_grouping("sensors", ByFloor())
    counts = CountCommitter("readings", ["sensor"])
    builder.set_committer_bolt("readings", counts).fields_grouping("latest", ["sensor"])
    return builder.build()


def test_the_last_reading_counts() -> None:
    """A negative one fails, an older one is acked unseen."""
    with FeederTopology(topology_of(FeederSpout("sensor string, reading double"))) as feeder:
        for number, (sensor, reading) in enumerate([("1-east", 20.5), ("1-east", 21.0), ("2-west", -1.0)]):
            assert feeder.feed("sensors", (sensor, reading), message_id=number)
        feeder.tick("latest")

        assert feeder.arrived("readings") == [("1-east", 21.0)]
        assert (feeder.acked, feeder.failed) == ([0, 1], [2])


def test_a_batch_that_fails_is_tried_again(folder: Path) -> None:
    """And the next one waits for it."""
    for number in (1, 2):
        (folder / f"{number}.csv").write_text(f"sensor\n{number}-east\n")
    builder = TopologyBuilder("sensors")
    builder.set_spout("sensors", FileSpout(folder, "sensor string"))
    builder.set_committer_bolt("counts", CountCommitter("counts", ["sensor"])).shuffle_grouping("sensors")

    with TopologyHarness(builder.build(), by_hand=True, spout_pending_max=2) as harness:
        harness.run()
        harness.fail_processing(1, "no space", kind="infrastructure")
        harness.release_processing(2)
        assert harness.held_processing == {1: 1}
        harness.fail_commit(1, kind="infrastructure")
        harness.release_processing(1)
        harness.release_commit(*harness.held_commits)
        batches: list[BatchSeen] = harness.batches

        assert [(batch.txid, batch.attempt, batch.state) for batch in batches][:1] == [(1, 1, "applied")]
        assert all(edge.sent == edge.received for edge in harness.edges(1))
