"""Topologies that tests run in this process and in driver processes."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from tests.kit.orders import FIELDS
from txtopo import (
    AppendCommitter,
    CountCommitter,
    FileSpout,
    ReplaceCommitter,
    Topology,
    TopologyBuilder,
    UpsertCommitter,
)


def orders_topology(
    folder: Path,
    *,
    name: str = "orders",
    files_per_batch: int = 1,
    settled_s: float = 0.05,
    may_be_empty: bool = False,
    rows: bool = False,
    by_shop: bool = False,
) -> Topology:
    """Counts orders by shop and article, straight from the files. With `rows` it stores them too, in each way; with
    `by_shop` it counts them by shop in another table as well.
    """
    builder = TopologyBuilder(name)
    spout = FileSpout(
        str(folder), FIELDS, files_per_batch=files_per_batch, settled_s=settled_s, may_be_empty=may_be_empty
    )
    builder.set_spout("files", spout)
    builder.set_committer_bolt(
        "totals", CountCommitter(table="order_totals", keys=["shop", "article"], count="rows", sums=["pieces", "price"])
    ).shuffle_grouping("files")
    if rows:
        builder.set_committer_bolt("all", AppendCommitter("order_rows")).shuffle_grouping("files")
        last = UpsertCommitter("order_last", ["article"], version="pieces")
        builder.set_committer_bolt("last", last).fields_grouping("files", ["article"])
        builder.set_committer_bolt("by_price", ReplaceCommitter("order_prices", partition="price")).shuffle_grouping(
            "files"
        )
    if by_shop:
        counts = CountCommitter("shop_totals", ["shop"], count="rows")
        builder.set_committer_bolt("by_shop", counts).shuffle_grouping("files")
    return builder.build()


def with_trimmed_shops(orders: Any) -> Any:
    """A DataFrame bolt that keeps every row."""
    return orders.selectExpr("trim(shop) as shop", "article", "pieces", "price")


def orders_topology_with_bolt(folder: Path) -> Topology:
    """The same counts through a DataFrame bolt, for Spark."""
    builder = TopologyBuilder("orders")
    builder.set_spout("files", FileSpout(str(folder), FIELDS, settled_s=0.05))
    builder.set_bolt("trimmed", with_trimmed_shops, inputs="files", fields=FIELDS, rows="same")
    builder.set_committer_bolt(
        "totals",
        CountCommitter(table="order_totals", keys=["shop", "article"], count="rows", sums=["pieces", "price"]),
    ).fields_grouping("trimmed", ["shop", "article"])
    return builder.build()
