"""A queue of messages in a folder, each acked once its batch is committed: txtopo run examples/reliable.py:topology

The folder is the queue: a message is a file, renamed to `*.msg` once it is written whole; to ack it is to remove it.
What was planned and not yet
acked when a driver dies is in the queue still, and comes again: the source is at-least-once. `Once` makes it
exactly-once again, by remembering the
id of every message in the database transaction that counts it.
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from txtopo import TopologyBuilder
from txtopo.bolts import BatchCommitter, CommitCollector, CommitTransaction, Tuple
from txtopo.spouts import ReliableSpout, SpoutOutputCollector


class Queue(ReliableSpout):
    """Files `*.msg` in the order of their names."""

    outputs = ["id string", "text string"]

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def open(self, config: Mapping[str, Any], context: Any) -> None:
        self.given: set[str] = set()

    def next_tuple(self, collector: SpoutOutputCollector) -> None:
        for path in sorted(self.folder.glob("*.msg")):
            if path.name not in self.given:
                self.given.add(path.name)
                collector.emit((path.name, path.read_text(encoding="utf-8").strip()), message_id=path.name)
                return

    def ack(self, message_id: Any) -> None:
        super().ack(message_id)
        (self.folder / message_id).unlink(missing_ok=True)


class Once(BatchCommitter):
    """Counts how often each text came, each message once, however often it comes."""

    def commit(self, transaction: CommitTransaction, rows: Sequence[Tuple], collector: CommitCollector) -> int:
        transaction.execute("CREATE TABLE IF NOT EXISTS message_seen (id text PRIMARY KEY)")
        transaction.execute("CREATE TABLE IF NOT EXISTS message_texts (text text PRIMARY KEY, n bigint NOT NULL)")
        texts = {row["id"]: row["text"] for row in rows}
        new = transaction.execute(
            "INSERT INTO message_seen SELECT unnest(%s::text[]) ON CONFLICT DO NOTHING RETURNING id", (list(texts),)
        )
        for text, n in sorted(Counter(texts[found] for (found,) in new).items()):
            transaction.execute(
                "INSERT INTO message_texts VALUES (%s, %s) ON CONFLICT (text) DO UPDATE SET n = message_texts.n + "
                "excluded.n",
                (text, n),
            )
        return len(new)


builder = TopologyBuilder("messages", guarantee="at_least_once")
builder.set_spout("queue", Queue(Path(os.environ.get("QUEUE_FOLDER", "queue"))))
builder.set_committer_bolt("once", Once()).fields_grouping("queue", ["id"])
topology = builder.build()

if __name__ == "__main__":
    raise SystemExit(topology.run_cli())
