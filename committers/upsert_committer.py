"""`UpsertCommitter`: keeps the last row of each key in a table, and every row with its batch in a log next to it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

from txtopo.committers.append_committer import ROW_COLUMNS, AppendCommitter
from txtopo.committers.table_names import check_columns, split_table
from txtopo.core.fields import FLOAT_KINDS, Fields
from txtopo.errors import TopologyError
from txtopo.topology.committer_bolt import Later, RowKeys

LOG_SUFFIX = "_log"
ORIGIN = "origin"
"""Column of the log: the batch that was planned from the source, of which a row's batch is a redo; or that batch."""
_UNORDERED_KINDS = frozenset({*FLOAT_KINDS, "binary", "string", "boolean"})


class UpsertCommitter(AppendCommitter):
    """Keeps the last row of each key in `table`. All rows, also earlier ones, are in `<table>_log`, with their batch.

    `keys` are the fields that identify a row; a NULL in one of them fails the batch. The last row is the one with the
    highest `version` (fields that are compared one after the other; NULL is lower than any value), then that of the
    latest batch, then the highest by all fields. A redo has the place of the batch that it redoes. Without `version` a
    batch may have one row of a key only: nothing else says which is the last.

    If the boolean field `deleted` is true in the last row of a key, `table` has no row of this key. A row with a lower
    version that comes later does not bring it back.

    Raises TopologyError if a name is not valid.

        >>> UpsertCommitter("shop.orders", ["id"], version="changed").rows_table
        'orders_log'
    """

    committer_kind: ClassVar[str] = "upsert"
    whole: ClassVar[bool] = False
    """True: the table has all rows of the last batch of a key, not one row."""
    front: ClassVar[tuple[str, ...]] = (*ROW_COLUMNS[:2], ORIGIN, ROW_COLUMNS[2])

    def __init__(
        self, table: str, keys: Sequence[str], *, version: str | Sequence[str] = (), deleted: str | None = None
    ) -> None:
        if isinstance(keys, str) or not keys:
            raise TopologyError(f"UpsertCommitter({table!r}): keys are a list of field names, at least one")
        super().__init__(table)
        split_table(type(self).__name__, table, LOG_SUFFIX)
        self.keys: tuple[str, ...] = tuple(keys)
        self.version: tuple[str, ...] = (version,) if isinstance(version, str) else tuple(version)
        self.deleted = deleted

    @property
    def rows_table(self) -> str:
        """Name of the log, in the same schema."""
        return f"{self.name}{LOG_SUFFIX}"

    @property
    def row_keys(self) -> RowKeys:
        return RowKeys(self.keys, one_row=not (self.version or self.whole), version=self.version)

    def required_fields(self) -> tuple[str, ...]:
        named = (*self.keys, *self.version, *((self.deleted,) if self.deleted is not None else ()))
        return tuple(dict.fromkeys(named))

    def check_fields(self, fields: Fields) -> None:
        check_columns(self, fields.names, self.front)
        for name in self.required_fields():
            found = fields.get(name)
            if found is None:
                raise TopologyError(f"{self}: there is no field {name}; there are {', '.join(fields.names)}")
            kind = found.type.kind
            if name == self.deleted and kind != "boolean":
                raise TopologyError(f"{self}: deleted={name!r} is a {found.type}, not a boolean")
            if name in self.version and kind in _UNORDERED_KINDS:
                raise TopologyError(
                    f"{self}: version {name} is a {found.type}; a version is an integer, a decimal, a date or a "
                    f"timestamp, whose order is the same everywhere"
                )
            if name in self.keys and kind in FLOAT_KINDS:
                raise TopologyError(
                    f"{self}: key {name} is a {found.type}; equal-looking floats differ: declare it decimal, or "
                    f"round it in a bolt"
                )

    def cannot(self) -> Mapping[Later, str]:
        why = super().cannot()
        return why if self.whole else {later: said for later, said in why.items() if later != "trace"}

    def describe(self) -> Mapping[str, Any]:
        described = {"kind": "upsert", "table": self.table, "keys": list(self.keys), "version": list(self.version)}
        return {**described, "deleted": self.deleted}
