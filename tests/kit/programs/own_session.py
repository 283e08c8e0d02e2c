"""A program that has a Spark session and settings of its own."""

from __future__ import annotations

from pyspark.sql import DataFrame, SparkSession

import txtopo
from txtopo import RunSettings, Topology

STORES: RunSettings = {"dsn": "postgresql://db/warehouse", "zookeeper": "zk:2181/txtopo"}


def normalised(orders: DataFrame) -> DataFrame:
    """Shops without blanks; every order stays."""
    return orders.selectExpr("trim(shop) as shop", "price")


def topology_of(folder: str) -> Topology:
    """Orders by shop."""
    fields = "shop string, price decimal(10,2)"
    builder = txtopo.TopologyBuilder("orders")
    builder.set_spout("files", txtopo.FileSpout(folder, fields, files_per_batch=4))
    builder.set_bolt("normalised", normalised, inputs="files", fields=fields, rows="same")
    totals = txtopo.CountCommitter("totals", ["shop"], count="orders", sums={"price": "price"})
    builder.set_committer_bolt("totals", totals).fields_grouping("normalised", ["shop"])
    return builder.build()


def counted(spark: SparkSession, folder: str) -> int:
    """Batches that were committed now."""
    settings: RunSettings = {**STORES, "once": True, "quiet": True}
    return txtopo.run(topology_of(folder), spark=spark, **settings).batches
