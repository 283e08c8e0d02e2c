"""A driver process with everything real and a bolt that does what the rows tell it to. `python -m
tests.kit.hostile_driver FOLDER`.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Any

from tests.kit.orders import FIELDS
from txtopo import CountCommitter, FileSpout, Topology, TopologyBuilder
from txtopo.app import drive, spark_executor
from txtopo.config import load_settings
from txtopo.errors import TxtopoError


def does_as_told(orders: Any) -> Any:
    """Ends its process or raises where an article says so; else every row stays."""
    from pyspark.sql.functions import udf

    def obey(article: str) -> str:
        if article == "exit":
            os._exit(1)
        if article == "raise":
            raise ValueError("told to")
        return article

    return orders.withColumn("article", udf(obey, "string")("article"))


def topology(folder: Path) -> Topology:
    """Counts orders by shop and article behind the bolt."""
    builder = TopologyBuilder("orders")
    builder.set_spout("files", FileSpout(str(folder), FIELDS, settled_s=0.05))
    builder.set_bolt("told", does_as_told, inputs="files", fields=FIELDS, rows="same")
    builder.set_committer_bolt(
        "totals", CountCommitter("order_totals", ["shop", "article"], count="rows", sums=["pieces", "price"])
    ).fields_grouping("told", ["shop", "article"])
    return builder.build()


def main() -> int:
    """Run to the end of the input; settings come from the environment."""
    settings = load_settings({"once": True}, cwd=Path.cwd(), environment=os.environ, target=None)
    try:
        return drive(topology(Path(sys.argv[1])), "tests.kit.hostile_driver", settings, spark_executor)
    except TxtopoError as error:
        print(f"txtopo: {error}", file=sys.stderr, flush=True)
        return error.exit_code


if __name__ == "__main__":
    sys.exit(main())
