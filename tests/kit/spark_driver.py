"""A driver process for fault tests with everything real: both stores and Spark. `python -m tests.kit.spark_driver
FOLDER`.

`DRIVER_SILENT_S` is how long its executor may be silent; Spark then gets a second to stop.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path

from tests.kit.applications import orders_topology_with_bolt
from txtopo.app import drive, spark_executor
from txtopo.config import load_settings
from txtopo.core import limits
from txtopo.errors import TxtopoError
from txtopo.spark.session import spark_session


def main() -> int:
    """Run the orders topology on Spark to the end of its input."""
    if silent_s := os.environ.get("DRIVER_SILENT_S"):
        limits.EXECUTOR_SILENT_MAX_S, spark_session.STOP_S = float(silent_s), 1.0
    once = os.environ.get("DRIVER_ONCE", "1") == "1"
    settings = load_settings({"once": once}, cwd=Path.cwd(), environment=os.environ, target=None)
    try:
        return drive(orders_topology_with_bolt(Path(sys.argv[1])), "tests.kit.spark_driver", settings, spark_executor)
    except TxtopoError as error:
        print(f"txtopo: {error}", file=sys.stderr, flush=True)
        return error.exit_code


if __name__ == "__main__":
    sys.exit(main())
