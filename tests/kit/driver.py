"""A driver process for fault tests: the real stores, the in-process executor. `python -m tests.kit.driver FOLDER`; settings from TXTOPO_*.

`DRIVER_CLOCK_JUMP_S`: once the file `jump` is in the working folder of the input's parent, the clock on the wall is off by so much.
"""

from __future__ import annotations

import os
import sys
import time
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


def _jump(seconds: float, sign: Path) -> None:
    """Put the clock off for all code in this process, kazoo and psycopg2 included."""
    real, real_ns = time.time, time.time_ns

    def off() -> float:
        return seconds if sign.exists() else 0.0

    time.time = lambda: real() + off()
    time.time_ns = lambda: real_ns() + int(off() * 1e9)


def main() -> int:
    """Run the orders topology to the end of its input; the exit code is that of `txtopo run`."""
    if jump_s := os.environ.get("DRIVER_CLOCK_JUMP_S"):
        _jump(float(jump_s), Path(sys.argv[1]).parent / "jump")
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
