"""Tables that tasks stored result rows in and that no open attempt needs: they cost space, and no batch reads them."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterator

from sqlalchemy import Connection

_THERE = """select c.relname::text from pg_class c join pg_namespace s on s.oid = c.relnamespace
where s.nspname = 'txtopo_staging' and c.relkind = 'r' order by 1"""
_NAME = re.compile(r"([0-9a-f]{12})_(\d+)_[0-9a-f]{8}_(\d+)_\d+_\d+")


def find_left(connection: Connection, topology: str, epoch: int | None, last_txid: int) -> Iterator[str]:
    """Return the names of such tables of a topology: of former epochs, or of batches up to `last_txid`, which are in
    the ledger.
    """
    mine = hashlib.sha256(topology.encode()).hexdigest()[:12]
    for (name,) in connection.exec_driver_sql(_THERE).all():
        found = _NAME.fullmatch(name)
        if found is not None and found[1] == mine and (int(found[2]) != epoch or int(found[3]) <= last_txid):
            yield f"txtopo_staging.{name}"
