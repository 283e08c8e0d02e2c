"""What a counting committer passes on: the rows of the keys that a batch has changed, as they are after it. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from txtopo.committers.aggregate_committer import AggregateCommitter
from txtopo.committers.protocol.redo_checks import values_were_read
from txtopo.core.fields import Fields
from txtopo.core.values import CommitterResult
from txtopo.errors import BatchDataError
from txtopo.topology.batch_committer import CommitCollector
from txtopo.topology.components import CommitterComponent
from txtopo.topology.keyed_table import KeyedTable


def changed_rows(component: CommitterComponent, result: CommitterResult) -> tuple[KeyedTable, list[tuple[Any, ...]]]:
    """Return the columns to read after an apply, and the keys of the batch."""
    bolt = component.bolt_as(AggregateCommitter)
    fields = component.result_fields.items
    width = len(bolt.aggregation().sources)
    wanted = bolt.values.names if bolt.values is not None else ()
    table = KeyedTable(
        table=bolt.table,
        keys=Fields(fields[:width]),
        values=Fields(tuple(field for field in fields[width:] if field.name in wanted)),
    )
    columns = [result.rows.column(at).to_pylist() for at in range(width)]
    return table, list(zip(*columns, strict=True))


def check_can_emit(component: CommitterComponent, reverses: int | None) -> None:
    """Raise BatchDataError if the batch redoes one whose values were passed on: what followed from them stays."""
    if reverses is not None:
        raise values_were_read(component.name, reverses)


def emit_rows(
    component: CommitterComponent,
    table: KeyedTable,
    keys: Sequence[tuple[Any, ...]],
    found: Mapping[tuple[Any, ...], tuple[Any, ...]],
    collector: CommitCollector,
) -> None:
    """Emit the declared fields of each key, in the order of the keys. Raises BatchDataError if a row is missing."""
    values = component.bolt_as(AggregateCommitter).values
    names = [*table.keys.names, *table.values.names]
    places = [names.index(name) for name in values.names] if values is not None else []
    for key in keys:
        if key not in found:
            raise BatchDataError(
                f"committer {component.name}: the row of key {key} is not in {table.table} after it was counted there",
                component=component.name,
                fault="row not kept",
            )
        row = (*key, *found[key])
        collector.emit([row[at] for at in places])
