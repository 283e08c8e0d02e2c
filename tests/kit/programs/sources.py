"""Two spouts of a program: a log with partitions whose halves are classes of their own, and a queue with acks."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, TypedDict

from txtopo import CountCommitter, Guarantee, Topology, TopologyBuilder, TransactionAttempt
from txtopo.spouts import (
    NOTHING,
    PartitionedCoordinator,
    PartitionedEmitter,
    PartitionedTransactionalSpout,
    ReliableSpout,
    Spout,
    SpoutContext,
    SpoutOutputCollector,
)


class Range(TypedDict):
    """Bytes of a log."""

    start: int
    end: int


class LogCoordinator:
    """Says how far each log is read."""

    def __init__(self, folder: Path) -> None:
        self.logs = sorted(folder.glob("*.log"))

    def number_of_partitions(self) -> int:
        return len(self.logs)

    def next_range(self, partition: int, last: Range | None) -> object:
        start = last["end"] if last else 0
        end = self.logs[partition].stat().st_size
        return Range(start=start, end=end) if end > start else NOTHING

    def is_ready(self) -> bool:
        return True

    def close(self) -> None:
        """Nothing is open."""


class LogEmitter:
    """Reads a range of a log."""

    def __init__(self, folder: Path) -> None:
        self.logs = sorted(folder.glob("*.log"))

    def emit_partition_batch(
        self, attempt: TransactionAttempt, partition: int, metadata: Range
    ) -> Iterator[tuple[str, int]]:
        with self.logs[partition].open("rb") as log:
            log.seek(metadata["start"])
            for line in log.read(metadata["end"] - metadata["start"]).splitlines():
                yield line.decode(), attempt.txid


class Logs(PartitionedTransactionalSpout):
    """Partition n is the n-th log of a folder."""

    outputs = ["line string", "txid bigint"]

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def get_coordinator(self, config: Mapping[str, Any], context: SpoutContext) -> PartitionedCoordinator:
        context.say(f"{context.spout} reads {self.folder}")
        return LogCoordinator(self.folder)

    def get_emitter(self, config: Mapping[str, Any], partition: int) -> PartitionedEmitter:
        return LogEmitter(self.folder)


class Queue(ReliableSpout):
    """Messages of a folder; an acked one is removed."""

    outputs = ["line string", "txid bigint"]

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def open(self, config: Mapping[str, Any], context: SpoutContext) -> None:
        self.given: set[str] = set()

    def next_tuple(self, collector: SpoutOutputCollector) -> None:
        for path in sorted(self.folder.glob("*.msg")):
            if path.name not in self.given:
                self.given.add(path.name)
                collector.emit((path.read_text(), 0), message_id=path.name)
                return

    def ack(self, message_id: str) -> None:
        super().ack(message_id)
        (self.folder / message_id).unlink(missing_ok=True)


def topology_of(source: Spout, guarantee: Guarantee = "exactly_once") -> Topology:
    """Lines and how often they came."""
    builder = TopologyBuilder("lines", guarantee=guarantee)
    builder.set_spout("source", source)
    builder.set_committer_bolt("lines", CountCommitter("lines", ["line"])).fields_grouping("source", ["line"])
    return builder.build()


def test_all_lines_are_counted(folder: Path) -> None:
    """By a harness, without services."""
    from txtopo.testing import TopologyHarness

    (folder / "a.log").write_text("one\ntwo\none\n")
    with TopologyHarness(topology_of(Logs(folder))) as harness:
        end = harness.run()
        assert end is not None
        assert end.kind == "finished"
        assert harness.table("lines") == {("one",): (2,), ("two",): (1,)}


logs = topology_of(Logs(Path("logs")))
queue = topology_of(Queue(Path("queue")), "at_least_once")
