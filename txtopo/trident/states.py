"""States: where a persistent aggregate is kept."""

from __future__ import annotations

from collections.abc import Sequence

from txtopo.committers.aggregate_committer import AggregateCommitter
from txtopo.committers.count_committer import CountCommitter
from txtopo.core.fields import DECIMAL_PRECISION_MAX, Field, Fields, FieldType
from txtopo.errors import TopologyError
from txtopo.trident.aggregates import AnyAggregator, Count, CountDistinct, Max, Min, Sum


class PostgresMapState:
    """A state in a table of Postgres: a row for each group, changed in the database transaction of each batch. So it
    needs no txid beside the value, and none of Trident's kinds.

    `table` is `name` (in schema public) or `schema.name`. `count` is the column with the number of tuples, which each
    such table has; with `Count()` it is the aggregate's own field. `contributions=False` keeps no contribution table:
    then the audit cannot name the batches that contributed to a key, and a batch cannot be recomputed.
    """

    def __init__(self, table: str, *, count: str = "count", contributions: bool = True) -> None:
        self.table = table
        self.count = count
        self.contributions = contributions

    @property
    def name(self) -> str:
        """Name of the component that keeps it: that of the table, without the schema."""
        return self.table.rpartition(".")[2]


def committer_of(
    who: str,
    state: PostgresMapState,
    keys: Sequence[str],
    aggregator: AnyAggregator,
    made: Fields,
    before: Fields,
    values: Fields | None = None,
) -> AggregateCommitter:
    """Return the committer that keeps an aggregate by these keys; `values` are the fields that it passes on. Raises
    TopologyError if no table can keep it, or if the column has another type than the field.
    """
    field = made.items[0]
    count, kept = state.count, state.contributions
    match aggregator:
        case Count(of=()):
            _check_type(who, field, FieldType("bigint"))
            return CountCommitter(state.table, keys, count=field.name, contributions=kept, values=values)
        case Sum(of=(name,)):
            scale = _type_of(before, name).scale or 0
            _check_type(who, field, FieldType("decimal", DECIMAL_PRECISION_MAX, scale))
            return CountCommitter(
                state.table, keys, count=count, sums={name: field.name}, contributions=kept, values=values
            )
        case Min(of=(name,)):
            _check_type(who, field, _type_of(before, name))
            return AggregateCommitter(
                state.table, keys, count=count, mins={name: field.name}, contributions=kept, values=values
            )
        case Max(of=(name,)):
            _check_type(who, field, _type_of(before, name))
            return AggregateCommitter(
                state.table, keys, count=count, maxs={name: field.name}, contributions=kept, values=values
            )
        case CountDistinct(of=(name,)):
            _check_type(who, field, FieldType("bigint"))
            return AggregateCommitter(state.table, keys, count=count, distinct={name: field.name}, contributions=kept)
    raise TopologyError(
        f"{who}: a table keeps Count(), Sum, Min, Max and CountDistinct; for {type(aggregator).__name__} write a "
        f"BatchCommitter and .persist, or aggregate each batch and persist what it gives"
    )


def _type_of(before: Fields, name: str) -> FieldType:
    return next(field.type for field in before.items if field.name == name)


def _check_type(who: str, field: Field, column: FieldType) -> None:
    if field.type != column:
        raise TopologyError(f"{who}: {field.name} is kept as a {column}: declare {field.name!r} so, not {field.type}")
