"""A driver process with everything real and bolts that take memory or end their process where an article says so.
`python -m tests.kit.memory_driver FOLDER`.

`DRIVER_BOLTS` chooses them: `tuples`, `arrow`, `heap`, or `rows` (the default). `DRIVER_MENDED` makes them do nothing
but pass rows on.
"""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

from tests.kit.orders import FIELDS
from txtopo import CountCommitter, FileSpout, Topology, TopologyBuilder
from txtopo.app import drive, spark_executor
from txtopo.bolts import BasicBolt
from txtopo.config import load_settings
from txtopo.errors import TxtopoError

PIECE = 64 * 2**20
MENDED = os.environ.get("DRIVER_MENDED") == "1"
"""Other code, by its hash too, which does nothing that is told."""


def kept() -> list[bytearray]:
    """What a bolt that leaks keeps in its worker, over batches. This module travels by value, so its own names would be
    new in each task.
    """
    return sys.__dict__.setdefault("txtopo_kept", [])  # type: ignore[no-any-return]


def obey(article: str | None) -> str | None:
    """Do what the article says."""
    if MENDED:
        return article
    if article == "exit":
        os._exit(1)
    if article == "kill":
        os.kill(os.getpid(), signal.SIGKILL)  # as the kernel does when the machine has no memory left
    if article == "fault":
        os.kill(os.getpid(), signal.SIGSEGV)
    if article == "leak":
        kept().append(bytearray(PIECE))
    while article == "fill":
        kept().append(bytearray(PIECE))
    return article


class Obeys(BasicBolt):
    """A tuple bolt."""

    outputs = ["shop string", "article string", "pieces int", "price decimal(12,2)"]

    def execute(self, tup: Any, collector: Any) -> None:
        obey(tup["article"])
        collector.emit(list(tup.values))


def of_rows(orders: Any) -> Any:
    """A function over DataFrames, row by row."""
    from pyspark.sql.functions import udf

    return orders.withColumn("article", udf(obey, "string")("article"))


def of_arrow(orders: Any) -> Any:
    """A function over DataFrames, by Arrow batches."""

    def each(batches: Iterator[Any]) -> Iterator[Any]:
        for batch in batches:
            for article in batch.column("article").to_pylist():
                obey(article)
            yield batch

    return orders.mapInArrow(each, orders.schema)


def of_heap(orders: Any) -> Any:
    """A function over DataFrames that wants 800 MB of the JVM, in one piece, where it reads the article `heap`."""
    from pyspark.sql import functions as F  # noqa: N812

    times = F.when(F.col("article") == "heap", F.lit(200_000_000)).otherwise(F.lit(1))
    return orders.withColumn("shop", F.when(F.length(F.repeat(F.col("shop"), times)) > 0, F.col("shop")))


def topology(folder: Path, bolts: str) -> Topology:
    """Counts orders by shop and article behind the bolt."""
    builder = TopologyBuilder("orders")
    builder.set_spout("files", FileSpout(str(folder), FIELDS, settled_s=0.05))
    if bolts == "tuples":
        builder.set_bolt("told", Obeys()).shuffle_grouping("files")
    else:
        function = {"arrow": of_arrow, "rows": of_rows, "heap": of_heap}[bolts]
        builder.set_bolt("told", function, inputs="files", fields=FIELDS, rows="same")
    builder.set_committer_bolt(
        "totals", CountCommitter("order_totals", ["shop", "article"], count="rows", sums=["pieces", "price"])
    ).fields_grouping("told", ["shop", "article"])
    made = builder.build()
    return replace(made, module_file=__file__) if MENDED else made


def main() -> int:
    """Run the topology; settings come from the environment."""
    once = os.environ.get("DRIVER_ONCE", "1") == "1"
    settings = load_settings({"once": once}, cwd=Path.cwd(), environment=os.environ, target=None)
    made = topology(Path(sys.argv[1]), os.environ.get("DRIVER_BOLTS", "rows"))
    try:
        return drive(made, "tests.kit.memory_driver", settings, spark_executor)
    except TxtopoError as error:
        print(f"txtopo: {error}", file=sys.stderr, flush=True)
        return error.exit_code


if __name__ == "__main__":
    sys.exit(main())
