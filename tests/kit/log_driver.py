"""A driver process over a growing log: the real stores, the in-process executor. `python -m tests.kit.log_driver
FOLDER`; settings from TXTOPO_*. With `DRIVER_ONCE=0` it follows the log.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path

from tests.kit.driver import in_process
from txtopo import CountCommitter, TailSpout, TopologyBuilder
from txtopo.app import drive
from txtopo.config import load_settings
from txtopo.errors import TxtopoError
from txtopo.topology.components import Topology


def lines_topology(folder: Path) -> Topology:
    """Counts the lines of `app.log`, a few in each batch."""
    builder = TopologyBuilder("lines")
    spout = TailSpout(
        folder / "app.log", "line string, _line bigint", settled_s=0.05, rotated_s=0.5, bytes_per_batch=200
    )
    builder.set_spout("log", spout)
    committer = CountCommitter("line_totals", ["line"], count="n", sums={"_line": "numbers"})
    builder.set_committer_bolt("totals", committer).fields_grouping("log", ["line"])
    return builder.build()


def main() -> int:
    """Run the topology; the exit code is that of `txtopo run`."""
    once = os.environ.get("DRIVER_ONCE", "1") == "1"
    settings = load_settings({"once": once}, cwd=Path.cwd(), environment=os.environ, target=None)
    try:
        return drive(lines_topology(Path(sys.argv[1])), "tests.kit.log_driver", settings, in_process)
    except TxtopoError as error:
        print(f"txtopo: {error}", file=sys.stderr, flush=True)
        return error.exit_code


if __name__ == "__main__":
    sys.exit(main())
