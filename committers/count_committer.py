"""`CountCommitter`: maintains a table of exact counts and sums by key, and a contribution table with the share of each
batch.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

from txtopo.core.fields import FLOAT_KINDS, Field, Fields
from txtopo.errors import TopologyError
from txtopo.topology.committer_bolt import Aggregation, CommitterBolt

IDENTIFIER_BYTES_MAX = 63
KEYS_MAX = 30
"""An index of Postgres has at most 32 columns, and the one on the contribution table has two more than the keys."""
CONTRIBUTION_SUFFIX = "_contribution"
_PART = re.compile(r"[a-z_][a-z0-9_]*")
_RESERVED = frozenset({"txid", "reverses", "ctid", "xmin", "xmax", "cmin", "cmax", "tableoid"})
"""Column names that the contribution table or Postgres itself uses."""


class CountCommitter(CommitterBolt):
    """Counts rows and sums exact numbers by key, into `table`.

    `table` is `name` (in schema public) or `schema.name`. `keys` are the fields to group by; `count` is the column for
    the number of rows. `sums` maps input fields to result columns; a list uses the field names as columns. Only
    integers and decimals can be summed: sums of floats depend on the order of addition. NULL is a key like any other.

    `baseline=True` adopts, once, a table that already has rows. `contributions=False` keeps no contribution table; then
    the audit cannot name the batches that contributed to a key, and a batch cannot be recomputed.

    Raises TopologyError if the name of a table or column is not valid, or if a column is named twice.

        >>> CountCommitter("flights_count", ["carrier", "origin"], sums={"distance": "distance_sum"}).table
        'public.flights_count'
    """

    committer_kind: ClassVar[str] = "count"
    commits_in_runs: ClassVar[bool] = True

    def __init__(
        self,
        table: str,
        keys: Sequence[str],
        *,
        count: str = "count",
        sums: Mapping[str, str] | Sequence[str] = (),
        baseline: bool = False,
        contributions: bool = True,
    ) -> None:
        if isinstance(keys, str) or isinstance(sums, str):
            raise TopologyError(f"CountCommitter({table!r}): keys and sums are lists of field names, not text")
        self.schema: str
        self.name: str
        self.schema, self.name = _split(table, contributions)
        self.keys: tuple[str, ...] = tuple(keys)
        self.count = count
        self.sums: tuple[tuple[str, str], ...] = (
            tuple(sums.items()) if isinstance(sums, Mapping) else tuple((name, name) for name in sums)
        )
        self.baseline = baseline
        self.contributions = contributions
        self._check_names()

    @property
    def table(self) -> str:
        """Schema and name of the target table."""
        return f"{self.schema}.{self.name}"

    @property
    def contribution_table(self) -> str:
        """Schema and name of the contribution table."""
        return f"{self.table}{CONTRIBUTION_SUFFIX}"

    def aggregation(self) -> Aggregation:
        return Aggregation(keys=self.keys, count=self.count, sums=self.sums)

    def required_fields(self) -> tuple[str, ...]:
        return tuple(dict.fromkeys([*self.keys, *(source for source, _ in self.sums)]))

    def check_fields(self, fields: Fields) -> None:
        for name in self.keys:
            field = self._field(fields, name)
            if field.type.kind in FLOAT_KINDS:
                raise TopologyError(
                    f"{self}: key {name} is a {field.type}; equal-looking floats differ: declare it decimal, or "
                    f"round it in a bolt"
                )
        for name, _ in self.sums:
            field = self._field(fields, name)
            if not field.type.is_exact_number:
                advice = (
                    "; sums of floats depend on their order: declare it decimal"
                    if field.type.kind in FLOAT_KINDS
                    else ""
                )
                raise TopologyError(
                    f"{self}: {name} is a {field.type}, and only integers and decimals are summed{advice}"
                )

    def describe(self) -> Mapping[str, Any]:
        return {
            "kind": "count",
            "table": self.table,
            "keys": list(self.keys),
            "count": self.count,
            "sums": dict(self.sums),
            "contributions": self.contributions,
        }

    def __repr__(self) -> str:
        return f"CountCommitter({self.table!r})"

    def _field(self, fields: Fields, name: str) -> Field:
        field = fields.get(name)
        if field is None:
            raise TopologyError(f"{self}: there is no field {name}; there are {', '.join(fields.names)}")
        return field

    def _check_names(self) -> None:
        if not self.keys:
            raise TopologyError(f"{self}: at least one key is needed, e.g. ['carrier']")
        if len(self.keys) > KEYS_MAX:
            raise TopologyError(f"{self}: {len(self.keys)} keys, at most {KEYS_MAX} are possible")
        columns = [*self.keys, self.count, *(column for _, column in self.sums)]
        twice = sorted({name for name in columns if columns.count(name) > 1})
        if twice:
            raise TopologyError(
                f"{self}: column {', '.join(twice)} is named twice; name the result of a sum with sums={{'field': "
                f"'column'}}"
            )
        for name in columns:
            if not name or "\0" in name or len(name.encode()) > IDENTIFIER_BYTES_MAX:
                raise TopologyError(f"{self}: {name!r} is not a column name of 1 to {IDENTIFIER_BYTES_MAX} bytes")
            if name in _RESERVED:
                raise TopologyError(
                    f"{self}: {name} is a column that txtopo or Postgres keeps itself; rename the field in a bolt"
                )


def _split(table: str, contributions: bool) -> tuple[str, str]:
    schema, _, name = table.rpartition(".")
    schema = schema or "public"
    if not (_PART.fullmatch(schema) and _PART.fullmatch(name)):
        raise TopologyError(
            f"CountCommitter: {table!r} is not a table name; write name or schema.name in lower-case letters, digits "
            f"and _"
        )
    if schema == "txtopo" or schema.startswith("pg_"):
        raise TopologyError(f"CountCommitter: schema {schema} is not for tables of topologies")
    bound = IDENTIFIER_BYTES_MAX - (len(CONTRIBUTION_SUFFIX) if contributions else 0)
    if len(name) > bound or len(schema) > IDENTIFIER_BYTES_MAX:
        raise TopologyError(f"CountCommitter: table name {name!r} is longer than {bound} characters")
    return schema, name
