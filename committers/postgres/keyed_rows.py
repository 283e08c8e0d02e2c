"""Reads rows of a committer's table by their keys, by the index that the keys have."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from txtopo.committers.postgres.apply_counts import ROWS_PER_STATEMENT, array_literal
from txtopo.committers.sql_names import postgres_type, quoted
from txtopo.topology.keyed_table import KeyedTable


def reads_of(table: KeyedTable, keys: Sequence[tuple[Any, ...]]) -> Iterator[tuple[str, Mapping[str, Any]]]:
    """Yield statements with their parameters that return keys and values of the rows with these keys.

    Keys with a NULL at other places are asked for apart: an index serves `=` and `is null`, but not `is not distinct
    from`.
    """
    alike: dict[tuple[bool, ...], list[tuple[Any, ...]]] = {}
    for key in keys:
        alike.setdefault(tuple(value is None for value in key), []).append(key)
    for nulls, some in alike.items():
        statement = _statement(table, nulls)
        for start in range(0, len(some), ROWS_PER_STATEMENT):
            asked = some[start : start + ROWS_PER_STATEMENT]
            columns = enumerate(zip(*asked, strict=True))
            arrays = {f"k{at}": array_literal(values) for at, values in columns if not nulls[at]}
            yield statement, {"asked": len(asked), **arrays}


def _statement(table: KeyedTable, nulls: Sequence[bool]) -> str:
    schema, _, name = table.table.partition(".")
    listed = ", ".join(f"t.{quoted(one.name)}" for one in (*table.keys.items, *table.values.items))
    read = f"select {listed} from {quoted(schema)}.{quoted(name)} t"
    given = [at for at, is_null in enumerate(nulls) if not is_null]
    conditions = [f"t.{quoted(table.keys.names[at])} is null" for at, is_null in enumerate(nulls) if is_null]
    if given:
        arrays = ", ".join(f"%(k{at})s::{postgres_type(table.keys.items[at].type)}[]" for at in given)
        names = ", ".join(f"k{at}" for at in given)
        read = f"{read} join unnest({arrays}) as u ({names}) on true"
        conditions += [f"t.{quoted(table.keys.names[at])} = u.k{at}" for at in given]
    return f"{read} where {' and '.join(conditions)}" if conditions else read
