"""A driver process for fault tests: the real stores, the in-process executor. `python -m tests.kit.driver FOLDER`;
settings from TXTOPO_*.

`DRIVER_CLOCK_JUMP_S`: once the file `jump` is in the working folder of the input's parent, the clock on the wall is off
by so much.
`DRIVER_ROWS=1`: rows are stored too, by each committer of rows.
`DRIVER_HEARTBEAT_S` is how often it beats and looks at the stores.
`DRIVER_BAD`: txids, with commas, on which the user's code fails. `DRIVER_DIES`: `before METHOD` or `after METHOD` of
the ledger or the coordinator.
"""

from __future__ import annotations

import os
import signal
import sys
import time
from pathlib import Path
from typing import Any

from tests.kit.applications import orders_topology
from txtopo.app import drive
from txtopo.committers.postgres.ledger import PostgresLedger
from txtopo.config import Settings, load_settings
from txtopo.coordinators.topology_nodes import TopologyCoordinator
from txtopo.core import limits
from txtopo.core.values import TransactionAttempt
from txtopo.errors import BatchDataError, TxtopoError
from txtopo.ports import Executor
from txtopo.testing.inprocess import InProcessExecutor
from txtopo.topology.components import Topology


def in_process(topology: Topology, digest: bytes, settings: Settings) -> Executor:
    """The executor of these drivers."""
    bad = {int(txid) for txid in os.environ.get("DRIVER_BAD", "").split(",") if txid}

    def fail(attempt: TransactionAttempt) -> None:
        if attempt.txid in bad:
            raise BatchDataError("bolts.py:12 ValueError: no hour", component="clean")

    return InProcessExecutor(topology, digest, faults=fail if bad else None)


def die(moment: str, method: str) -> None:
    """From now on this process ends as by `kill -9` before or after the first call of a method of its ledger or
    coordinator.
    """
    owner: Any = next(one for one in (PostgresLedger, TopologyCoordinator) if hasattr(one, method))
    real = getattr(owner, method)

    def deadly(*arguments: Any, **named: Any) -> Any:
        if moment == "after":
            real(*arguments, **named)
        os.kill(os.getpid(), signal.SIGKILL)

    setattr(owner, method, deadly)


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
    if dies := os.environ.get("DRIVER_DIES"):
        die(*dies.split())
    if heartbeat_s := os.environ.get("DRIVER_HEARTBEAT_S"):
        limits.HEARTBEAT_EVERY_S = float(heartbeat_s)
    once = os.environ.get("DRIVER_ONCE", "1") == "1"
    settings = load_settings({"once": once}, cwd=Path.cwd(), environment=os.environ, target=None)
    name = os.environ.get("DRIVER_NAME", "orders")
    settled_s = float(os.environ.get("DRIVER_SETTLED_S", "0.05"))  # part of the description: another one is other code
    try:
        return drive(
            orders_topology(Path(sys.argv[1]), name=name, settled_s=settled_s, rows="DRIVER_ROWS" in os.environ),
            "tests.kit.driver",
            settings,
            in_process,
        )
    except TxtopoError as error:
        print(f"txtopo: {error}", file=sys.stderr, flush=True)
        return error.exit_code


if __name__ == "__main__":
    sys.exit(main())
