"""Requests and bytes by hour and status, exactly once: txtopo run examples/access_log.py:topology"""

from __future__ import annotations

import os

from txtopo import AggregateCommitter, FileSpout, TopologyBuilder
from txtopo.formats import Pattern

FIELDS = "time timestamp, status int, size bigint"
counts = AggregateCommitter(
    "requests_by_hour", ["status"], window="1 hour", time="time", count="requests", sums={"size": "bytes"}
)
builder = TopologyBuilder("web")
builder.set_spout("log", FileSpout(os.environ.get("LOGS_FOLDER", "logs"), FIELDS, format=Pattern("apache_combined")))
builder.set_committer_bolt("by_hour", counts).fields_grouping("log", ["status"])
topology = builder.build()

if __name__ == "__main__":
    raise SystemExit(topology.run_cli())
