"""Tells whether the tables of committers are plain (R20): whether several batches in one database transaction have the
same effect there as each by itself.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from sqlalchemy import Connection

from txtopo.committers.postgres.transactions import run_first
from txtopo.committers.protocol.count_tables import Column, TableShape


def obstacles(connection: Connection, topology: str, tables: Iterable[Mapping[str, Any]]) -> str | None:
    """Return why these tables allow no commit runs, as text; None if they do."""
    found: str | None = run_first(
        connection, "list_run_obstacles", topology=topology, tables=json.dumps(list(tables))
    ).scalar_one()
    return found


def plain_table(name: str, target: str, columns: Sequence[Column], keys: Sequence[Column]) -> dict[str, Any]:
    """Return a table for `txtopo.run_obstacles`. `target` is its quoted name."""
    return {
        "table_name": name,
        "quoted": target,
        "is_target": True,
        "keys": sorted(key.name for key in keys),
        "columns": {column.name: column.type for column in columns},
    }


def count_tables(shape: TableShape) -> Iterator[dict[str, Any]]:
    """Yield the tables of a counting committer."""
    computed = {one.name: {one.type: one.spelled} for one in shape.computed}
    target = plain_table(f"{shape.schema}.{shape.table}", shape.target, shape.columns, shape.keys)
    yield {**target, "computed": computed}
    if shape.contributions is not None:
        yield {
            "table_name": f"{shape.schema}.{shape.contribution_table}",
            "quoted": shape.contributions,
            "is_target": False,
        }
