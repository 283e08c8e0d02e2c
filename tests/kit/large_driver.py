"""A driver process with everything real, for batches with many result rows: `python -m tests.kit.large_driver FOLDER`.
Its last words are the largest memory that it and a child of it had, in MiB.

`DRIVER_COMMITTER` chooses what stores them: `count` (a topology of DataFrames), or `append` (one of tuples).
"""

from __future__ import annotations

import os
import resource
import sys
from pathlib import Path

from txtopo import AppendCommitter, CountCommitter, FileSpout, Topology, TopologyBuilder
from txtopo.app import drive, spark_executor
from txtopo.config import load_settings
from txtopo.errors import TxtopoError

NAME = "large"


def large_topology(folder: str) -> Topology:
    """As many result rows as the source has rows."""
    builder = TopologyBuilder(NAME)
    builder.set_spout("rows", FileSpout(folder, "id bigint, pieces int", settled_s=0))
    if os.environ.get("DRIVER_COMMITTER") == "append":
        builder.set_committer_bolt("kept", AppendCommitter("kept"), parallelism_hint=2).shuffle_grouping("rows")
    else:
        counts = CountCommitter("counts", ["id"], count="n", sums=["pieces"])
        builder.set_committer_bolt("counts", counts).fields_grouping("rows", ["id"])
    return builder.build()


def peaks() -> str:
    """The largest memory until now."""
    who = {"driver": resource.RUSAGE_SELF, "child": resource.RUSAGE_CHILDREN}
    return ", ".join(f"{name} {resource.getrusage(kind).ru_maxrss // 1024} MiB" for name, kind in who.items())


def main() -> int:
    """Drive to the end."""
    settings = load_settings({"once": True}, cwd=Path.cwd(), environment=os.environ, target=None)
    topology = large_topology(sys.argv[1])
    try:
        code = drive(topology, "large_driver.py:topology", settings, spark_executor)
    except TxtopoError as error:
        print(f"txtopo: {error}", file=sys.stderr)
        code = error.exit_code
    print(f"peak: {peaks()}", flush=True)
    return code


if __name__ == "__main__":
    raise SystemExit(main())
