"""The program that Pathway's own Python runs: all CSV files of a folder, counted and summed by carrier and origin."""

from __future__ import annotations

import json
import os
import sys
import time
from typing import Any

# Pathway reads it when it is imported.
os.environ.setdefault("PATHWAY_THREADS", str(os.cpu_count() or 1))

import pathway as pw


class Flights(pw.Schema):  # type: ignore[misc]
    """The columns that are read."""

    carrier: str
    origin: str
    distance: int


def main(folder: str) -> None:
    """Count, and print one line of JSON."""
    began, used = time.monotonic(), time.process_time()
    flights = pw.io.csv.read(folder, schema=Flights, mode="static")
    counts = flights.groupby(flights.carrier, flights.origin).reduce(
        flights.carrier,
        flights.origin,
        flights=pw.reducers.count(),
        miles=pw.reducers.sum(flights.distance),
    )
    found: dict[Any, tuple[str, str, int, int]] = {}

    def change(key: Any, row: dict[str, Any], time: int, is_addition: bool) -> None:
        if is_addition:
            found[key] = (row["carrier"], row["origin"], row["flights"], row["miles"])
        else:
            found.pop(key, None)

    pw.io.subscribe(counts, on_change=change)
    pw.run(monitoring_level=pw.MonitoringLevel.NONE)
    wall_s, cpu_s = time.monotonic() - began, time.process_time() - used
    print(json.dumps({"wall_s": wall_s, "cpu_s": cpu_s, "counts": list(found.values())}))


if __name__ == "__main__":
    main(sys.argv[1])
