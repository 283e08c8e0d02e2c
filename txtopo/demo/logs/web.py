"""Requests and bytes by section of the site and status: txtopo run web.py:topology

The demo copies this file into its folder. It has a bug on purpose: not every request has a path.
"""

from __future__ import annotations

import os

from txtopo import CountCommitter, FileSpout, TopologyBuilder
from txtopo.bolts import BasicBolt, BasicOutputCollector, Tuple
from txtopo.formats import Pattern


class BySection(BasicBolt):
    """/cart/17 is of the section cart."""

    outputs = ["section string", "status int", "size bigint"]

    def execute(self, tup: Tuple, collector: BasicOutputCollector) -> None:
        section = tup["path"].split("/")[1]
        collector.emit((section, tup["status"], tup["size"]))


logs = FileSpout(
    os.environ.get("TXTOPO_DEMO_FOLDER", "files"),
    "path string, status int not null, size bigint",
    format=Pattern("apache_combined"),
)
builder = TopologyBuilder("web")
builder.set_spout("requests", logs)
builder.set_bolt("by_section", BySection()).shuffle_grouping("requests")
counts = CountCommitter("requests_by_section", ["section", "status"], count="requests", sums={"size": "bytes"})
builder.set_committer_bolt("counts", counts).fields_grouping("by_section", ["section", "status"])
topology = builder.build()
