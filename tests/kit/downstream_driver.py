"""A driver process whose committers have bolts and committers downstream of them, two phases deep. `python -m
tests.kit.downstream_driver FOLDER`.

`DOWNSTREAM_SIGNAL`: `NUMBER ID FILE`: on this order the bolt in the turn sends this signal to its own process, once:
while FILE is not there.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from tests.kit.driver import in_process
from txtopo import CountCommitter, FileSpout, NewIds, Topology, TopologyBuilder
from txtopo.app import drive
from txtopo.bolts import BasicBolt, BatchCommitter, CommitCollector, CommitTransaction, Tuple
from txtopo.config import load_settings
from txtopo.errors import TxtopoError

TABLES = (
    "create table public.seen (id bigint primary key)",
    "create table public.kept (id bigint, txid bigint, attempt int)",
)
"""Of the user's own. Nothing in `kept` is unique: what comes twice is there twice."""
BUCKETS = 4


class Bucketize(BasicBolt):
    """Which bucket an order belongs to."""

    outputs = ["id bigint", "shop string", "bucket bigint"]

    def execute(self, tup: Tuple, collector: Any) -> None:
        number, order, path = os.environ.get("DOWNSTREAM_SIGNAL", "0 0 /").split()
        if tup["id"] == int(order) and not Path(path).exists():
            Path(path).touch()
            os.kill(os.getpid(), int(number))
        collector.emit([tup["id"], tup["shop"], tup["id"] % BUCKETS])


class Keep(BatchCommitter):
    """Keeps each order with the attempt that brought it, and passes it on."""

    outputs = ["bucket bigint"]

    def commit(self, transaction: CommitTransaction, rows: Sequence[Tuple], collector: CommitCollector) -> None:
        for row in rows:
            transaction.execute("insert into kept values (%s, %s, %s)", (row["id"], *transaction.attempt))
            collector.emit([row["bucket"]])


def topology(folder: Path) -> Topology:
    """Orders whose id is new, counted by shop in phase 1 and by bucket in phase 2."""
    builder = TopologyBuilder("orders")
    builder.set_spout("files", FileSpout(str(folder), "id bigint, shop string", settled_s=0.05))
    builder.set_committer_bolt("new", NewIds("seen", "id", "id bigint, shop string")).shuffle_grouping("files")
    builder.set_bolt("bucketize", Bucketize(), parallelism_hint=2).fields_grouping("new", ["id"])
    by_shop = CountCommitter("by_shop", ["shop"], count="rows", sums=["id"])
    builder.set_committer_bolt("by_shop", by_shop, parallelism_hint=2).fields_grouping("bucketize", ["shop"])
    builder.set_committer_bolt("keep", Keep()).shuffle_grouping("bucketize")
    by_bucket = CountCommitter("by_bucket", ["bucket"], count="rows")
    builder.set_committer_bolt("by_bucket", by_bucket).fields_grouping("keep", ["bucket"])
    return builder.build()


def main() -> int:
    """Run; settings come from the environment."""
    once = os.environ.get("DRIVER_ONCE", "1") == "1"
    settings = load_settings({"once": once}, cwd=Path.cwd(), environment=os.environ, target=None)
    try:
        return drive(topology(Path(sys.argv[1])), "tests.kit.downstream_driver", settings, in_process)
    except TxtopoError as error:
        print(f"txtopo: {error}", file=sys.stderr, flush=True)
        return error.exit_code


if __name__ == "__main__":
    sys.exit(main())
