"""The view with sliding windows of a target whose rows are slides: each row of the target is a part of several
windows, and is stored once.
"""

from __future__ import annotations

from collections.abc import Sequence

from sqlalchemy import Connection

from txtopo.committers.postgres.transactions import run
from txtopo.committers.protocol.count_tables import TableShape
from txtopo.committers.protocol.folds import total
from txtopo.committers.sql_names import unescaped
from txtopo.errors import Halted


def window_view(shape: TableShape) -> Sequence[str]:
    """Return the statement that creates the view; none if there is no view."""
    sliding = shape.sliding
    if sliding is None:
        return ()
    start = unescaped(sliding.start.name)
    others = [f"t.{unescaped(key.name)}" for key in shape.keys if key is not sliding.start]
    keys = "".join(f"{key}, " for key in others)
    numbers = ", ".join(f"{total(column, 't.')} as {unescaped(column.name)}" for column in shape.numbers)
    computed = "".join(f", {one.sql} as {unescaped(one.name)}" for one in sliding.computed)
    # The window of NULL is NULL, once.
    made = (
        f"select {keys}w.start as {start}, {numbers} from {unescaped(shape.schema)}.{unescaped(shape.table)} t cross "
        f"join lateral (select t.{start} - make_interval(secs => {sliding.seconds} * n) as start from "
        f"generate_series(0, case when t.{start} is null then 0 else {sliding.slides - 1} end) n) w group by {keys}"
        f"w.start"
    ).replace("%%", "%")
    name = f"{unescaped(shape.schema)}.{unescaped(sliding.view)}"
    return (f"create view {name} as select v.*{computed} from ({made}) v",)


def prepare_view(connection: Connection, shape: TableShape) -> None:
    """Create the view where it is missing. Raises Halted if there is something else of this name."""
    if shape.sliding is None:
        return
    found = run(connection, "list_columns", schema=shape.schema, table=shape.sliding.view).all()
    if not found:
        for statement in window_view(shape):
            connection.exec_driver_sql(statement.replace("%", "%%"), {})
        return
    names = {column.name for column in shape.columns} | {one.name for one in shape.sliding.computed}
    if found[0][3] != "v" or {row[0] for row in found} != names:
        (ddl,) = window_view(shape)
        raise Halted(
            f"{shape.schema}.{shape.sliding.view} is not the view of the windows; txtopo would create it as: {ddl}",
            next_command="drop or rename it, then start `txtopo run` again",
        )
