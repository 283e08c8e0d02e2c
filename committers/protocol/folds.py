"""How the values of a target follow from its contributions: one rule for each fold, as SQL and in Python. Pure.

A target is a fold of the contributions that count: those of every applied batch that no other applied batch has
reversed. `add`: applying adds, reversing subtracts. `min`, `max`: applying keeps the smaller or larger value; a minimum
has no negative, so reversing recomputes the keys for which the batch held the present value.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from txtopo.committers.protocol.count_tables import Column, TableShape
from txtopo.committers.sql_names import quoted

_C = ' collate "C"'


def _plain(column: Column, alias: str) -> str:
    """Return a value as it is compared: texts by their bytes, whatever the collation of a table."""
    return f"{alias}{quoted(column.name)}{_C if column.type == 'text' else ''}"


def merged(column: Column) -> str:
    """Return SQL for the value after an apply: of the row `t` of the target and the row `excluded`. NULL is nothing to
    `least` and `greatest`.
    """
    if column.fold == "add":
        return f"t.{quoted(column.name)} + excluded.{quoted(column.name)}"
    function = "least" if column.fold == "min" else "greatest"
    return f"{function}({_plain(column, 't.')}, {_plain(column, 'excluded.')})"


def merges(shape: TableShape, columns: Sequence[Column] | None = None) -> str:
    """Return the SET clause of an apply, for all numbers or some of them."""
    return ", ".join(
        f"{quoted(column.name)} = {merged(column)}" for column in (shape.numbers if columns is None else columns)
    )


def total(column: Column, alias: str = "") -> str:
    """Return SQL that aggregates contributions. The sum over a NULL is NULL, so that the table refuses it."""
    name = f"{alias}{quoted(column.name)}"
    if column.fold == "add":
        return f"(case when count(*) = count({name}) then sum({name}) end)::{column.type}"
    if column.type == "boolean":
        return f"bool_{'and' if column.fold == 'min' else 'or'}({name})"
    return f"{column.fold}({_plain(column, alias)})::{column.type}"


def taken_back(column: Column) -> str:
    """Return SQL for the value in the row that reverses a contribution: negated if it is subtracted, else the same."""
    return f"-{quoted(column.name)}" if column.fold == "add" else quoted(column.name)


def key_of(shape: TableShape, alias: str) -> str:
    """Return SQL for the key as a record, which compares NULL as equal to NULL; with the declared types, which a column
    of the table may not have (varchar).
    """
    # Equal bytes are equal text in every collation that a plain table has; texts of two collations are not comparable.
    collated = {"text": _C}
    keys = (f"{alias}.{quoted(column.name)}::{column.type}{collated.get(column.type, '')}" for column in shape.keys)
    return f"row({', '.join(keys)})"


def held(shape: TableShape, own: str) -> str:
    """Return the condition that a contribution `own` of a batch has the present minimum or maximum, v0, v1, …, of its
    row `t` of the target. Only such keys depend on the batch.
    """
    return " or ".join(f"t.v{at} = {_plain(column, own)}" for at, column in enumerate(shape.refolded))


def left(shape: TableShape) -> str:
    """Return the statement that aggregates the contributions of the batches `first` to `last` which count, for the rows
    of the target with these places, which this database transaction has just written.

    A contribution counts if its batch was not reversed (`gone`); a batch is always reversed as a whole.
    """
    totals = ", ".join(total(column, "c.") for column in shape.refolded)
    return f"""with h as materialized (
  select {_spelled(shape, "t")} as key, u.place
  from {shape.target} t join unnest(%(tables)s::bigint[], %(rows)s::text[]) with ordinality as u (row_table, row_id,
  place) on t.ctid = u.row_id::tid and t.tableoid = u.row_table::oid)
select h.place, {totals}
from h join {shape.contributions} c on {_spelled(shape, "c")} = h.key
where c.reverses is null and c.txid between %(first)s and %(last)s and c.txid <> all(%(gone)s::bigint[])
group by h.place"""


def left_of_keys(shape: TableShape, nulls: Sequence[bool]) -> str:
    """Return the statement that gives the same for the rows of the target with these places whose keys are NULL where
    `nulls` says so, from the contributions to their keys alone: by an index on the keys, which serves `=` and `is
    null`, but not `is not distinct from`. `before` is added to the number of the place.
    """
    pairs = list(zip(shape.keys, nulls, strict=True))
    same = [
        f"c.{quoted(key.name)} is null" if is_null else f"c.{quoted(key.name)} = {_plainly(key)}"
        for key, is_null in pairs
    ]
    these = [f"t.{quoted(key.name)} is {'' if is_null else 'not '}null" for key, is_null in pairs]
    values = ", ".join(f"v{at}" for at in range(len(shape.refolded)))
    totals = ", ".join(total(column, "c.") for column in shape.refolded)
    return f"""select u.place + %(before)s, {values}
from {shape.target} t join unnest(%(tables)s::bigint[], %(rows)s::text[]) with ordinality as u (row_table, row_id,
  place) on t.ctid = u.row_id::tid and t.tableoid = u.row_table::oid
cross join lateral (
  select count(*), {totals} from {shape.contributions} c
  where {" and ".join(same)} and c.reverses is null and c.txid <> all(%(gone)s::bigint[])) x (number, {values})
where x.number > 0 and {" and ".join(these)}"""


def _plainly(key: Column) -> str:
    """Return the value of a key of the target as an index of the contributions has it, whatever the collation of the
    target.
    """
    value = f"t.{quoted(key.name)}"
    return f'{value}::text collate "default"' if key.type == "text" else value


def reversed_before(shape: TableShape) -> str:
    """Return the query for the batches whose contributions were reversed: by batch `txid`, or by one that recorded
    so.
    """
    return f"""select coalesce(array_agg(distinct c.reverses), '{{}}') from {shape.contributions} c
where c.reverses is not null and c.txid in (
  select o.txid from txtopo.committer_count o
  where (o.topology, o.committer) = (%(topology)s, %(committer)s) and o.reversed > 0
  union select %(txid)s)"""


def refolded(shape: TableShape) -> str:
    """Return the statement that sets minima and maxima of the rows with these places, given as one array for each
    column.
    """
    names = ", ".join(f"v{at}" for at in range(len(shape.refolded)))
    arrays = ", ".join(f"%(v{at})s::{column.type}[]" for at, column in enumerate(shape.refolded))
    sets = ", ".join(f"{quoted(column.name)} = u.v{at}" for at, column in enumerate(shape.refolded))
    return f"""update {shape.target} t set {sets}
from unnest(%(tables)s::bigint[], %(rows)s::text[], {arrays}) as u (row_table, row_id, {names})
where t.ctid = u.row_id::tid and t.tableoid = u.row_table::oid"""


def _spelled(shape: TableShape, alias: str) -> str:
    """Return SQL for the key as text, one text for each key: the server joins texts by hash, but records only by
    sorting all contributions.
    """
    return f"{key_of(shape, alias)}::text{_C}"


def after(column: Column, old: Any, new: Any) -> Any:
    """Return the value after an apply, in Python: the same as `merged`."""
    if column.fold == "add":
        return old + new
    if old is None or new is None:
        return new if old is None else old
    return min(old, new) if column.fold == "min" else max(old, new)


def reversing(column: Column, value: Any) -> Any:
    """Return the value in the row that reverses a contribution, in Python: the same as `taken_back`."""
    return -value if column.fold == "add" else value
