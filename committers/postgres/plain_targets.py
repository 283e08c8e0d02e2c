"""Tells whether the tables of counting committers are plain (R20): whether one sum of several batches has the same
effect there as the amount of each.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from typing import Any

from sqlalchemy import Connection

from txtopo.committers.postgres.transactions import run_first
from txtopo.committers.protocol.count_tables import TableShape


def obstacles(connection: Connection, topology: str, shapes: Iterable[TableShape]) -> str | None:
    """Return why these tables allow no commit runs, as text; None if they do."""
    found: str | None = run_first(
        connection, "list_run_obstacles", topology=topology, tables=tables_of(shapes)
    ).scalar_one()
    return found


def tables_of(shapes: Iterable[TableShape]) -> str:
    """Return the tables of counting committers as JSON for `txtopo.run_obstacles`."""
    return json.dumps([table for shape in shapes for table in _tables(shape)])


def _tables(shape: TableShape) -> Iterator[dict[str, Any]]:
    yield {
        "table_name": f"{shape.schema}.{shape.table}",
        "quoted": shape.target,
        "is_target": True,
        "keys": sorted(key.name for key in shape.keys),
        "columns": {column.name: column.type for column in shape.columns},
        "computed": {one.name: {one.type: one.spelled} for one in shape.computed},
    }
    if shape.contributions is not None:
        yield {
            "table_name": f"{shape.schema}.{shape.contribution_table}",
            "quoted": shape.contributions,
            "is_target": False,
        }
