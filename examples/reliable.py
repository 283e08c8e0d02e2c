"""A queue of messages in a folder, each acked once its batch is committed: txtopo run examples/reliable.py:topology

The folder is the queue: a message is a file, to ack it is to remove it. What was planned and not yet acked when a driver dies is in the queue still,
and comes again: the source is at-least-once. `Once` makes it exactly-once again, by remembering the id of every message in the database
transaction that counts it.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from txtopo import TopologyBuilder
from txtopo.bolts import BatchCommitter, CommitCollector, CommitTransaction, Tuple
from txtopo.spouts.acked import ReliableSpout, SpoutOutputCollector

QUEUE = Path(os.environ.get("QUEUE_FOLDER", "queue"))


class Queue(ReliableSpout):
    """Files `*.msg` in the order of their names."""

    outputs = ["id string", "text string"]

    def open(self, config: Mapping[str, Any], context: Any) -> None:
        self.given: set[str] = set()

    def next_tuple(self, collector: SpoutOutputCollector) -> None:
        for path in sorted(QUEUE.glob("*.msg")):
            if path.name not in self.given:
                self.given.add(path.name)
                collector.emit((path.name, path.read_text().strip()), message_id=path.name)
                return

    def ack(self, message_id: Any) -> None:
        super().ack(message_id)
        (QUEUE / message_id).unlink(missing_ok=True)


class Once(BatchCommitter):
    """Counts the messages that were never counted before."""

    result = ["id string"]

    def execute(self, tup: Tuple) -> None:
        self.collector.emit((tup["id"],))

    def commit(self, transaction: CommitTransaction, rows: Sequence[Tuple], collector: CommitCollector) -> int:
        transaction.execute("CREATE TABLE IF NOT EXISTS message_seen (id text PRIMARY KEY)")
        new = transaction.execute(
            "INSERT INTO message_seen SELECT DISTINCT unnest(%s::text[]) ON CONFLICT DO NOTHING RETURNING id",
            ([row["id"] for row in rows],),
        )
        return len(new)


builder = TopologyBuilder("messages", guarantee="at_least_once")
builder.set_spout("queue", Queue())
builder.set_committer_bolt("once", Once()).fields_grouping("queue", ["id"])
topology = builder.build()

if __name__ == "__main__":
    raise SystemExit(topology.run())
