"""Views on a target: its windows where its rows are slides, and numbers of distinct values. They store nothing."""

from __future__ import annotations

from collections.abc import Sequence

from sqlalchemy import Connection

from txtopo.committers.aggregate_committer import DISTINCT_SUFFIX
from txtopo.committers.postgres.transactions import run
from txtopo.committers.protocol.count_tables import Sliding, TableShape
from txtopo.committers.protocol.folds import total
from txtopo.committers.sql_names import unescaped
from txtopo.errors import Halted
from txtopo.topology.event_windows import CELL_RANKS, RANK_BITS, REGISTERS_BITS


def views_of(shape: TableShape) -> Sequence[str]:
    """Return the statements that create the views."""
    return [ddl for _, _, ddl in _views(shape)]


def prepare_views(connection: Connection, shape: TableShape) -> None:
    """Create each view that is missing; the tables are there. Raises Halted if there is something else of its name."""
    for view, names, ddl in _views(shape):
        found = run(connection, "list_columns", schema=shape.schema, table=view).all()
        if not found:
            connection.exec_driver_sql(ddl.replace("%", "%%"), {})
        elif found[0][3] != "v" or {row[0] for row in found} != names:
            raise Halted(
                f"{shape.schema}.{view} is not the view on {shape.schema}.{shape.table}; txtopo would create it as: "
                f"{ddl}",
                next_command="drop or rename it, then start `txtopo run` again",
            )


def _views(shape: TableShape) -> list[tuple[str, set[str], str]]:
    """Return name, columns and statement of each view."""
    found = []
    stored = {column.name for column in shape.columns} | {one.name for one in shape.computed}
    if shape.sliding is not None:
        found.append((shape.sliding.view, stored, _windows(shape, shape.sliding)))
    if shape.distinct:
        names = stored | {one.column for one in shape.distinct}
        found.append((f"{shape.table}{DISTINCT_SUFFIX}", names, _distinct(shape)))
    return found


def _windows(shape: TableShape, sliding: Sliding) -> str:
    start = unescaped(sliding.start.name)
    others = [f"t.{unescaped(key.name)}" for key in shape.keys if key is not sliding.start]
    keys = "".join(f"{key}, " for key in others)
    numbers = ", ".join(f"{total(column, 't.')} as {unescaped(column.name)}" for column in shape.numbers)
    computed = "".join(f", {one.sql} as {unescaped(one.name)}" for one in sliding.computed)
    # The window of NULL is NULL, once.
    made = (
        f"select {keys}w.start as {start}, {numbers} from {_table(shape, shape.table)} t cross "
        f"join lateral (select t.{start} - make_interval(secs => {sliding.seconds} * n) as start from "
        f"generate_series(0, case when t.{start} is null then 0 else {sliding.slides - 1} end) n) w group by {keys}"
        f"w.start"
    ).replace("%%", "%")
    return f"create view {_table(shape, sliding.view)} as select v.*{computed} from ({made}) v"


def _distinct(shape: TableShape) -> str:
    """All tables by key, where NULL is one key: a join would need another condition for it, and no index."""
    keys = ", ".join(unescaped(key.name) for key in shape.keys)
    own = [*(column.name for column in shape.numbers), *(one.name for one in shape.computed)]
    numbers = ", ".join(
        f"(array_agg({unescaped(name)}) filter (where part = 0))[1] as {unescaped(name)}" for name in own
    )
    counts = ", ".join(f"coalesce(max(n{at}), 0) as {unescaped(one.column)}" for at, one in enumerate(shape.distinct))
    listed, places = ", ".join(map(unescaped, own)), range(len(shape.distinct))
    branches = [f"select 0 as part, {keys}, {listed}, {', '.join(f'0::bigint as n{at}' for at in places)} from "]
    branches[0] += _table(shape, shape.table)
    types = [*(column.type for column in shape.numbers), *(one.type for one in shape.computed)]
    nothing = ", ".join(f"null::{kind}" for kind in types)
    for at, one in enumerate(shape.distinct):
        value, source = f"count({unescaped(one.field)})", _table(shape, one.table)
        if one.cell is not None:
            value, source = _ESTIMATE, _registers(keys, unescaped(one.cell), source)
        counted = ", ".join(value if at == place else "0" for place in places)
        branches.append(f"select 1, {keys}, {nothing}, {counted} from {source} group by {keys}")
    return (
        f"create view {_table(shape, shape.table + DISTINCT_SUFFIX)} as select {keys}, {numbers}, {counts} from "
        f"({' union all '.join(branches)}) parts group by {keys}"
    )


_REGISTERS = 1 << REGISTERS_BITS
_UNIT = f"{1 << (RANK_BITS + 1)}::numeric"
_EMPTY = f"({_REGISTERS} - count(rank))"
_SUM = f"((sum(1::bigint << ({RANK_BITS + 1} - rank)) + {_EMPTY} * {_UNIT}) / {_UNIT})"
_RAW = f"({0.7213 / (1 + 1.079 / _REGISTERS) * _REGISTERS**2} / {_SUM})"
_LINEAR = f"{_REGISTERS} * ln({_REGISTERS}::numeric / nullif({_EMPTY}, 0))"
_CHOSEN = f"case when {_RAW} <= {2.5 * _REGISTERS} and {_EMPTY} > 0 then {_LINEAR} else {_RAW} end"
_ESTIMATE = f"coalesce(round({_CHOSEN})::bigint, 0)"
"""HyperLogLog over the registers of a key, linear counting where many are empty; exact numbers, so that no order
matters.
"""


def _registers(keys: str, cell: str, table: str) -> str:
    """Return the highest rank of each register, by key."""
    return (
        f"(select {keys}, {cell} / {CELL_RANKS} as register, max({cell} % {CELL_RANKS}) as rank from {table} group by "
        f"{keys}, {cell} / {CELL_RANKS}) r"
    )


def _table(shape: TableShape, name: str) -> str:
    return f"{unescaped(shape.schema)}.{unescaped(name)}"
