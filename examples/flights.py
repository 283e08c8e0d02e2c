"""Departures by carrier and airport, exactly once: txtopo run examples/flights.py:topology"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from txtopo import CountCommitter, FileSpout, TopologyBuilder

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


def normalised(departures: DataFrame) -> DataFrame:
    """Carrier codes in capitals; every departure stays."""
    return departures.selectExpr("upper(carrier) as carrier", "origin", "distance")


FIELDS = "carrier string, origin string, distance int"
builder = TopologyBuilder("flights")
builder.set_spout("departures", FileSpout(os.environ.get("FLIGHTS_FOLDER", "flights"), FIELDS))
builder.set_bolt("normalised", normalised, inputs="departures", fields=FIELDS, rows="same")
counts = CountCommitter("flights_by_carrier", ["carrier", "origin"], count="flights", sums={"distance": "distance"})
builder.set_committer_bolt("by_carrier", counts).fields_grouping("normalised", ["carrier", "origin"])
topology = builder.build()

if __name__ == "__main__":
    raise SystemExit(topology.run_cli())
