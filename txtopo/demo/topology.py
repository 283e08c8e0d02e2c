"""The demo's topology: departures and miles by carrier and airport. TXTOPO_DEMO_FOLDER is the folder with the files."""

from __future__ import annotations

import os
from typing import Any

from txtopo import CountCommitter, FileSpout, TopologyBuilder
from txtopo.demo.names import FOLDER_VARIABLE, TABLE, TOPOLOGY
from txtopo.errors import ConfigurationError

FIELDS = "carrier string, origin string, distance int"

folder = os.environ.get(FOLDER_VARIABLE)
if not folder:
    raise ConfigurationError(f"set {FOLDER_VARIABLE} to the folder with the demo's files; `txtopo demo` does so")


def normalised(departures: Any) -> Any:
    """Carrier codes in capitals; every departure stays."""
    return departures.selectExpr("upper(carrier) as carrier", "origin", "distance")


builder = TopologyBuilder(TOPOLOGY)
builder.set_spout("departures", FileSpout(folder, FIELDS))
builder.set_bolt("normalised", normalised, inputs="departures", fields=FIELDS, rows="same")
counts = CountCommitter(TABLE, ["carrier", "origin"], count="flights", sums={"distance": "distance"})
builder.set_committer_bolt("by_carrier", counts).fields_grouping("normalised", ["carrier", "origin"])
topology = builder.build()
