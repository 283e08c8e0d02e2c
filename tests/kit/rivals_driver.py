"""A driver process whose own committer adds to two rows that a rival adds to in the other order. `python -m
tests.kit.rivals_driver FOLDER`.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from pathlib import Path

from tests.kit.driver import in_process
from tests.kit.orders import FIELDS
from txtopo import FileSpout, Topology, TopologyBuilder
from txtopo.app import drive
from txtopo.bolts import BatchCommitter, CommitCollector, CommitTransaction, Tuple
from txtopo.config import load_settings
from txtopo.errors import TxtopoError


class AddsToBoth(BatchCommitter):
    """Counts rows twice, with time between the two for a rival to come in between."""

    def __init__(self, order: list[str]) -> None:
        self.order = order

    def commit(self, transaction: CommitTransaction, rows: Sequence[Tuple], collector: CommitCollector) -> None:
        for name in self.order:
            transaction.execute("update public.shared set n = n + %s where name = %s", [len(rows), name])
            transaction.execute("select pg_sleep(0.2)")


def topology(folder: Path, name: str) -> Topology:
    """`left` and `right` differ in their order."""
    builder = TopologyBuilder(name)
    builder.set_spout("files", FileSpout(str(folder), FIELDS, settled_s=0.05))
    builder.set_committer_bolt("both", AddsToBoth(["a", "b"] if name == "left" else ["b", "a"])).shuffle_grouping(
        "files"
    )
    return builder.build()


def main() -> int:
    """Run to the end of the input."""
    settings = load_settings({"once": True}, cwd=Path.cwd(), environment=os.environ, target=None)
    try:
        return drive(
            topology(Path(sys.argv[1]), os.environ["DRIVER_NAME"]), "tests.kit.rivals_driver", settings, in_process
        )
    except TxtopoError as error:
        print(f"txtopo: {error}", file=sys.stderr, flush=True)
        return error.exit_code


if __name__ == "__main__":
    sys.exit(main())
