"""Log files that grow, a partition each, counted by level: txtopo run examples/partitioned.py:topology

Lines are added to files and files are added to the folder while it runs. A batch takes at most `LINES_MAX` new lines of
each file; which bytes
those are is remembered before a line is read, so a batch can be replayed to the byte.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from txtopo import CountCommitter, TopologyBuilder, TransactionAttempt
from txtopo.bolts import BasicBolt, BasicOutputCollector, Tuple
from txtopo.spouts import NOTHING, PartitionedTransactionalSpout

LINES_MAX = 1000


class Logs(PartitionedTransactionalSpout):
    """Partition n is the file `n.log`; files are numbered from 0 without a gap."""

    outputs = ["service string", "line string"]

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def number_of_partitions(self) -> int:
        count = 0
        while self._log(count).is_file():
            count += 1
        return count

    def next_range(self, partition: int, last: Any) -> Any:
        start = last["end"] if last else 0
        with self._log(partition).open("rb") as file:
            if file.seek(0, os.SEEK_END) < start:
                raise ValueError(f"{file.name} is shorter than what was read of it: logs may grow, not be replaced")
            file.seek(start)
            lines = [line for _, line in zip(range(LINES_MAX), file, strict=False) if line.endswith(b"\n")]
        end = start + sum(map(len, lines))  # a line that is still being written waits for its end
        return {"start": start, "end": end} if end > start else NOTHING

    def emit_partition_batch(
        self, attempt: TransactionAttempt, partition: int, metadata: Any
    ) -> Iterator[tuple[str, str]]:
        with self._log(partition).open("rb") as file:
            file.seek(metadata["start"])
            data = file.read(metadata["end"] - metadata["start"])
        if len(data) < metadata["end"] - metadata["start"] or not data.endswith(b"\n"):
            raise ValueError(f"{file.name} is not what it was when the batch was planned")
        for line in (
            data.decode("utf-8").removesuffix("\n").split("\n")
        ):  # splitlines would find more line ends than these
            yield f"service {partition}", line

    def _log(self, partition: int) -> Path:
        return self.folder / f"{partition}.log"


class Level(BasicBolt):
    """`WARN disk is full` has level WARN."""

    outputs = ["service string", "level string"]

    def execute(self, tup: Tuple, collector: BasicOutputCollector) -> None:
        level, _, words = tup["line"].partition(" ")
        if not words:
            raise ValueError(f"a log line is a level and words, not {tup['line']!r}")
        collector.emit((tup["service"], level))


builder = TopologyBuilder("log_levels")
builder.set_spout("logs", Logs(Path(os.environ.get("LOGS_FOLDER", "logs"))))
builder.set_bolt("level", Level(), parallelism_hint=2).local_or_shuffle_grouping("logs")
levels = CountCommitter("log_levels", ["service", "level"], count="lines")
builder.set_committer_bolt("levels", levels).fields_grouping("level", ["service", "level"])
topology = builder.build()

if __name__ == "__main__":
    raise SystemExit(topology.run_cli())
