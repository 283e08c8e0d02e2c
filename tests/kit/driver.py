"""A driver process for fault tests: the real stores, the in-process executor. `python -m tests.kit.driver FOLDER`; settings from TXTOPO_*."""

from __future__ import annotations

import os
import sys
from pathlib import Path

from tests.kit.applications import orders_topology
from txtopo.app import drive
from txtopo.config import Settings, load_settings
from txtopo.errors import TxtopoError
from txtopo.ports import Executor
from txtopo.testing.inprocess import InProcessExecutor
from txtopo.topology.components import Topology


def in_process(topology: Topology, code_hash: bytes, _settings: Settings) -> Executor:
    """The executor of these drivers."""
    return InProcessExecutor(topology, code_hash)


def main() -> int:
    """Run the orders topology to the end of its input; the exit code is that of `txtopo run`."""
    once = os.environ.get("DRIVER_ONCE", "1") == "1"
    settings = load_settings({"once": once}, cwd=Path.cwd(), environment=os.environ, target=None)
    name = os.environ.get("DRIVER_NAME", "orders")
    settled_s = float(os.environ.get("DRIVER_SETTLED_S", "0.05"))  # part of the description: another one is other code
    try:
        return drive(
            orders_topology(Path(sys.argv[1]), name=name, settled_s=settled_s),
            "tests.kit.driver",
            settings,
            in_process,
        )
    except TxtopoError as error:
        print(f"txtopo: {error}", file=sys.stderr, flush=True)
        return error.exit_code


if __name__ == "__main__":
    sys.exit(main())
