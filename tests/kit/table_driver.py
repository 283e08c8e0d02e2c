"""A driver process over a table: the real stores, the in-process executor. `python -m tests.kit.table_driver SPOUT`:
`table` or `sql`; settings from TXTOPO_*, the table from ORDERS_DSN or SHOP_URL.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path

from tests.kit.driver import in_process
from tests.kit.tables import VARIABLE
from txtopo import CountCommitter, SqlTableSpout, TableSpout, TopologyBuilder
from txtopo.app import drive
from txtopo.config import load_settings
from txtopo.errors import TxtopoError
from txtopo.topology.components import Topology

FIELDS = "id bigint, shop string"


def rows_topology(kind: str) -> Topology:
    """Counts rows by shop, a few in each batch; each row has a shop of its own."""
    builder = TopologyBuilder("rows")
    if kind == "table":
        builder.set_spout("rows", TableSpout("orders", FIELDS, dsn_env=VARIABLE, max_rows=3))
    else:
        builder.set_spout("rows", SqlTableSpout("orders", FIELDS, settled_s=0, url_env="SHOP_URL", max_rows=3))
    committer = CountCommitter("row_totals", ["shop"], count="n", sums={"id": "ids"})
    builder.set_committer_bolt("totals", committer).fields_grouping("rows", ["shop"])
    return builder.build()


def main() -> int:
    """Run the topology to the end of what the table has; the exit code is that of `txtopo run`."""
    settings = load_settings({"once": True}, cwd=Path.cwd(), environment=os.environ, target=None)
    try:
        return drive(rows_topology(sys.argv[1]), "tests.kit.table_driver", settings, in_process)
    except TxtopoError as error:
        print(f"txtopo: {error}", file=sys.stderr, flush=True)
        return error.exit_code


if __name__ == "__main__":
    sys.exit(main())
