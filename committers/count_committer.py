"""`CountCommitter`: the simple case of `AggregateCommitter`, exact counts and sums by key."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from txtopo.committers.aggregate_committer import AggregateCommitter
from txtopo.core.fields import Fields


class CountCommitter(AggregateCommitter):
    """Counts rows and sums exact numbers by key, into `table`.

    `table` is `name` (in schema public) or `schema.name`. `keys` are the fields to group by; `count` is the column for
    the number of rows. `sums` maps input fields to result columns; a list uses the field names as columns. Only
    integers and decimals can be summed: sums of floats depend on the order of addition. NULL is a key like any other.

    `baseline=True` adopts, once, a table that already has rows. `contributions=False` keeps no contribution table; then
    the audit cannot name the batches that contributed to a key, and a batch cannot be recomputed.

    `values` declares what components downstream get in the commit of each batch: for each key of the batch, some of its
    columns as they are after the batch, such as `"carrier string, count bigint"`. Then batches cannot be recomputed.

    Raises TopologyError if the name of a table or column is not valid, or if a column is named twice.

        >>> CountCommitter("flights_count", ["carrier", "origin"], sums={"distance": "distance_sum"}).table
        'public.flights_count'
    """

    def __init__(
        self,
        table: str,
        keys: Sequence[str],
        *,
        count: str = "count",
        sums: Mapping[str, str] | Sequence[str] = (),
        baseline: bool = False,
        contributions: bool = True,
        values: str | Fields | None = None,
    ) -> None:
        super().__init__(
            table, keys, count=count, sums=sums, baseline=baseline, contributions=contributions, values=values
        )

    def describe(self) -> Mapping[str, Any]:
        return {
            "kind": "count",
            "table": self.table,
            "keys": list(self.keys),
            "count": self.count,
            "sums": {one.field: one.column for one in self.aggregates},
            "contributions": self.contributions,
            **self._described_values(),
        }
