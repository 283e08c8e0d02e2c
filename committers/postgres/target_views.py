"""Views on a target: its windows where its rows are slides, sessions where they are slots of time, and numbers of
distinct values. They store nothing.
"""

from __future__ import annotations

from collections.abc import Sequence

from sqlalchemy import Connection

from txtopo.committers.aggregate_committer import DISTINCT_SUFFIX, Distinct
from txtopo.committers.postgres.transactions import run
from txtopo.committers.protocol.count_tables import Column, SessionsView, Sliding, TableShape
from txtopo.committers.protocol.folds import total
from txtopo.committers.sql_names import quoted, unescaped
from txtopo.errors import Halted
from txtopo.topology.event_windows import CELL_RANKS, RANK_BITS, REGISTERS_BITS

_TRIAL = "txtopo_trial"
"""Of a view that exists while two definitions are compared."""


def views_of(shape: TableShape) -> Sequence[str]:
    """Return the statements that create the views."""
    return [_ddl(shape, view, made) for view, _, made in _views(shape)]


def prepare_views(connection: Connection, shape: TableShape) -> None:
    """Create each view that is missing; the tables are there. Raises Halted if there is something else of its name, or
    a view that is defined in another way.
    """
    for view, names, made in _views(shape):
        ddl = _ddl(shape, view, made)
        found = run(connection, "list_columns", schema=shape.schema, table=view).all()
        if not found:
            connection.exec_driver_sql(ddl.replace("%", "%%"), {})
        elif found[0][3] != "v" or {row[0] for row in found} != names or not _is_made_so(connection, shape, view, made):
            raise Halted(
                f"{shape.schema}.{view} is not the view on {shape.schema}.{shape.table}; txtopo would create it as: "
                f"{ddl}",
                next_command="drop or rename it, then start `txtopo run` again",
            )


def _is_made_so(connection: Connection, shape: TableShape, view: str, made: str) -> bool:
    """Return True if the server spells the definition of a view as that of another one which is made now, and removed
    again: how it spells something differs from release to release, and once more if a view was restored from a dump.
    Also True if this role may not make one.
    """
    values = {"view": _table(shape, view)}
    definition = "select pg_catalog.pg_get_viewdef(pg_catalog.to_regclass(%(view)s))"
    may = "pg_catalog.has_database_privilege(pg_catalog.current_database(), 'TEMP')"
    there, may_try = connection.exec_driver_sql(f"{definition}, {may}", values).one()
    if not may_try:
        return True
    connection.exec_driver_sql("savepoint made", {})
    spelled = [made]
    for _ in ("made", "restored"):
        trial = f"create or replace temporary view {_TRIAL} as {spelled[-1]}"
        connection.exec_driver_sql(trial.replace("%", "%%"), {})
        spelled.append(connection.exec_driver_sql(definition, {"view": f"pg_temp.{_TRIAL}"}).scalar_one())
    connection.exec_driver_sql("rollback to savepoint made", {})
    return there in spelled[1:]


def _ddl(shape: TableShape, view: str, made: str) -> str:
    return f"create view {_table(shape, view)} as {made}"


def _views(shape: TableShape) -> list[tuple[str, set[str], str]]:
    """Return name, columns and query of each view, in the order in which they are created."""
    found = []
    names = {column.name for column in shape.columns} | {one.name for one in shape.computed}
    if shape.sliding is not None:
        found.append((shape.sliding.view, names, _windows(shape, shape.sliding)))
    if shape.sessions is not None:
        keys, numbers = _presented(shape), _numbers(shape)
        names = {*keys, shape.sessions.named.end, *(column.name for column in numbers)}
        names |= {one.name for one in shape.sessions.computed}
        found.append((shape.sessions.view, names, _sessions(shape, shape.sessions)))
    if shape.distinct:
        names = names | {one.column for one in shape.distinct}
        found.append((f"{shape.table}{DISTINCT_SUFFIX}", names, _distinct(shape)))
    return found


def _presented(shape: TableShape) -> list[str]:
    """Return the keys of what users see: rows of the table, windows, or sessions."""
    last = [] if shape.sessions is None else [shape.sessions.named.start]
    return [*(key.name for key in shape.keys if not last or key is not shape.keys[-1]), *last]


def _numbers(shape: TableShape) -> list[Column]:
    """Return the numbers of what users see."""
    hidden = () if shape.sessions is None else (shape.sessions.named.first, shape.sessions.named.last)
    return [column for column in shape.numbers if column.name not in hidden]


def _windows(shape: TableShape, sliding: Sliding) -> str:
    numbers = _totals(shape, "t.")
    computed = "".join(f", {one.sql} as {unescaped(one.name)}" for one in sliding.computed)
    keys = ", ".join(f"t.{unescaped(name)}" for name in _presented(shape))
    source = _in_windows(shape, sliding, shape.table, [column.name for column in shape.numbers])
    made = f"select {keys}, {numbers} from {source} t group by {keys}"
    return f"select v.*{computed} from ({made}) v"


def _in_windows(shape: TableShape, sliding: Sliding, table: str, columns: Sequence[str]) -> str:
    """Return each row of a table once for each window that its slide is in."""
    start = unescaped(sliding.start.name)
    listed = [f"s.{unescaped(key.name)}" for key in shape.keys if key is not sliding.start]
    listed += [f"w.start as {start}", *(f"s.{unescaped(name)}" for name in columns)]
    # The window of NULL is NULL, once.
    return (
        f"(select {', '.join(listed)} from {_table(shape, table)} s cross join lateral (select s.{start} - "
        f"make_interval(secs => {sliding.seconds} * n) as start from generate_series(0, case when s.{start} is null "
        f"then 0 else {sliding.slides - 1} end) n) w)"
    )


def _sessions(shape: TableShape, sessions: SessionsView) -> str:
    keys = ", ".join(f"t.{unescaped(name)}" for name in _presented(shape))
    last, end = unescaped(sessions.named.last), unescaped(sessions.named.end)
    computed = "".join(f", {one.sql} as {unescaped(one.name)}" for one in sessions.computed)
    made = (
        f"select {keys}, max(t.{last}) + {_gap(sessions)} as {end}, {_totals(shape, 't.')} from "
        f"{_in_sessions(shape, sessions)} t group by {keys}"
    )
    return f"select v.*{computed} from ({made}) v"


def _in_sessions(shape: TableShape, sessions: SessionsView) -> str:
    """Return the rows of the target, each with the start of its session: a session begins with a slot whose first time
    is later than the last time of the slot before it by more than the gap, as in Spark. NULL is a separate session.
    """
    taken = {column.name for column in shape.columns} | {one.name for one in shape.computed} | {sessions.named.start}
    begins, number = _free("begins", taken), _free("number", taken)
    slot, start = unescaped(sessions.slot.name), unescaped(sessions.named.start)
    first, last = unescaped(sessions.named.first), unescaped(sessions.named.last)
    others = [unescaped(key.name) for key in shape.keys if key is not sessions.slot]
    by, apart = (f"partition by {', '.join(others)} " if others else ""), ", ".join([*others, number])
    follows = f"s.{first} <= lag(s.{last}) over ({by}order by s.{slot}) + {_gap(sessions)}"
    marked = f"(select s.*, ({follows}) is not true as {begins} from {_table(shape, shape.table)} s)"
    rows = "rows between unbounded preceding and current row"
    numbered = (
        f"(select m.*, count(*) filter (where {begins}) over ({by}order by {slot} {rows}) as {number} from {marked} m)"
    )
    return f"(select n.*, min({first}) over (partition by {apart}) as {start} from {numbered} n)"


def _with_session(shape: TableShape, sessions: SessionsView, table: str, column: str) -> str:
    """Return the values of another table, each with the start of its session. Both tables are read in the order of the
    keys, where NULL is one key: a join would need another condition for it, and no index.
    """
    keys = [unescaped(key.name) for key in shape.keys]
    others, start, value = keys[:-1], unescaped(sessions.named.start), unescaped(column)
    both = (
        f"(select {', '.join([*keys, start])}, null as {value} from {_in_sessions(shape, sessions)} i union all select "
        f"{', '.join(keys)}, null, {value} from {_table(shape, table)})"
    )
    found = ", ".join([*others, f"max({start}) over (partition by {', '.join(keys)}) as {start}", value])
    return f"(select * from (select {found} from {both} b) f where {value} is not null)"


def _gap(sessions: SessionsView) -> str:
    return f"make_interval(secs => {sessions.seconds})"


def _free(name: str, taken: set[str]) -> str:
    while name in taken:
        name += "_"
    return name


def _totals(shape: TableShape, alias: str) -> str:
    shown = (f"{total(column, alias)} as {quoted(column.name)}" for column in _numbers(shape))
    return ", ".join(shown).replace("%%", "%")


def _distinct(shape: TableShape) -> str:
    """All tables by key, where NULL is one key."""
    keys = ", ".join(unescaped(name) for name in _presented(shape))
    own = [(column.name, column.type) for column in _numbers(shape)]
    view, computed = shape.table, shape.computed
    if shape.sliding is not None:
        view, computed = shape.sliding.view, shape.sliding.computed
    if shape.sessions is not None:
        view, computed = shape.sessions.view, shape.sessions.computed
        own.append((shape.sessions.named.end, shape.sessions.slot.type))
    own += [(one.name, one.type) for one in computed]
    taken = {name for name, _ in own}.union(_presented(shape))
    part, number = _free("part", taken), _free("n", {name.rstrip("0123456789") for name in taken})
    numbers = ", ".join(
        f"(array_agg({unescaped(name)}) filter (where {part} = 0))[1] as {unescaped(name)}" for name, _ in own
    )
    counts = ", ".join(
        f"coalesce(max({number}{at}), 0) as {unescaped(one.column)}" for at, one in enumerate(shape.distinct)
    )
    listed, places = ", ".join(unescaped(name) for name, _ in own), range(len(shape.distinct))
    branches = [
        f"select 0 as {part}, {keys}, {listed}, {', '.join(f'0::bigint as {number}{at}' for at in places)} from "
    ]
    branches[0] += _table(shape, view)
    nothing = ", ".join(f"null::{kind}" for _, kind in own)
    for at, one in enumerate(shape.distinct):
        value, source = _counted_values(shape, one, keys)
        counted = ", ".join(value if at == place else "0" for place in places)
        branches.append(f"select 1, {keys}, {nothing}, {counted} from {source} group by {keys}")
    return f"select {keys}, {numbers}, {counts} from ({' union all '.join(branches)}) parts group by {keys}"


def _counted_values(shape: TableShape, one: Distinct, keys: str) -> tuple[str, str]:
    """Return the number of values of a key, and what it is counted in."""
    name = one.field if one.cell is None else one.cell
    value, source = f"count({unescaped(name)})", _table(shape, one.table)
    if shape.sliding is not None:
        value, source = (
            f"count(distinct {unescaped(name)})",
            f"{_in_windows(shape, shape.sliding, one.table, [name])} t",
        )
    if shape.sessions is not None:
        value, source = (
            f"count(distinct {unescaped(name)})",
            f"{_with_session(shape, shape.sessions, one.table, name)} t",
        )
    if one.cell is None:
        return value, source
    rank = _free("rank", set(_presented(shape)))
    return _ESTIMATE.replace("$rank", rank), _registers(keys, unescaped(name), source, rank)


_REGISTERS = 1 << REGISTERS_BITS
_UNIT = f"{1 << (RANK_BITS + 1)}::numeric"
_EMPTY = f"({_REGISTERS} - count($rank))"
_SUM = f"((sum(1::bigint << ({RANK_BITS + 1} - $rank)) + {_EMPTY} * {_UNIT}) / {_UNIT})"
_RAW = f"({0.7213 / (1 + 1.079 / _REGISTERS) * _REGISTERS**2} / {_SUM})"
_LINEAR = f"{_REGISTERS} * ln({_REGISTERS}::numeric / nullif({_EMPTY}, 0))"
_CHOSEN = f"case when {_RAW} <= {2.5 * _REGISTERS} and {_EMPTY} > 0 then {_LINEAR} else {_RAW} end"
_ESTIMATE = f"coalesce(round({_CHOSEN})::bigint, 0)"
"""HyperLogLog over the registers of a key, linear counting where many are empty; exact numbers, so that no order
matters. `$rank` stands for a column.
"""


def _registers(keys: str, cell: str, source: str, rank: str) -> str:
    """Return the highest rank of each register, by key."""
    return (
        f"(select {keys}, max({cell} % {CELL_RANKS}) as {rank} from {source} group by {keys}, {cell} / {CELL_RANKS}) r"
    )


def _table(shape: TableShape, name: str) -> str:
    return f"{unescaped(shape.schema)}.{unescaped(name)}"
