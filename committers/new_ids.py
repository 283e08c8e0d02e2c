"""`NewIds`: a committer that records message ids in a table of the user and emits only tuples with new ids."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from txtopo.committers.sql_names import postgres_type, quoted
from txtopo.core.fields import FLOAT_KINDS, Fields, parse_fields
from txtopo.errors import TopologyError
from txtopo.topology.batch_committer import BatchCommitter, CommitCollector, CommitTransaction
from txtopo.topology.streams import Stream, Tuple

ROWS_PER_STATEMENT = 10_000


class NewIds(BatchCommitter):
    """Removes duplicate messages by id, for sources that may deliver a message twice (at-least-once).

    Each message id reaches the downstream bolts and committers **exactly once**; there is no error rate. Ids are
    inserted into `table` with ON CONFLICT DO NOTHING in the database transaction of the batch, in the order of the
    batches. So an id is new in the first batch that contains it, whichever process fails. If several tuples of a batch
    have the same id, the first one in canonical order is emitted. A tuple whose id is NULL is always emitted.

    The cost: one row per id in `table`, for as long as the source may repeat the id; and everything downstream runs in
    the driver. Two messages with the same id count as one message, even if their content differs.

    `table` is an existing table of the user, `name` or `schema.name`, with a unique column that has the name of the id
    field. `fields` declares all fields of the input with their types, in any order; the output has the same fields.
    Values are matched by name.

    Raises TopologyError if `id_field` is not in `fields` or cannot be an id, or if `table` is not a table name.

        >>> NewIds("seen_orders", "order_id", "order_id string, amount bigint").outputs
        [Stream(fields='order_id string, amount bigint', name='default', direct=False)]
    """

    def __init__(self, table: str, id_field: str, fields: str) -> None:
        found = parse_fields(fields).get(id_field)
        if found is None or found.type.kind in FLOAT_KINDS:
            raise TopologyError(f"NewIds: {fields!r} has no field {id_field} that can be an id")
        self.id_field = id_field
        self.outputs = [Stream(fields)]  # type: ignore[misc]
        self._fields = parse_fields(fields)
        self._kind = postgres_type(found.type)
        schema, _, name = table.rpartition(".")
        if not name:
            raise TopologyError(f"NewIds: {table!r} is not a table name; write name or schema.name")
        self.table: str = f"{quoted(schema or 'public')}.{quoted(name)}"

    def check_fields(self, fields: Fields) -> None:
        """Raise TopologyError with the differences unless the input has exactly the declared fields."""
        extra = [name for name in fields.names if self._fields.get(name) is None]
        words = [self._fields.missing_in(fields), f"{', '.join(extra)} would be lost" if extra else None]
        if any(words):
            raise TopologyError(
                f"NewIds declares {self._fields.ddl}, and its input has {fields.ddl}: "
                f"{'; '.join(filter(None, words))}; "
                "declare the input's fields, in any order"
            )

    def commit(self, transaction: CommitTransaction, rows: Sequence[Tuple], collector: CommitCollector) -> int | None:
        """Insert the ids and emit the rows with new ids. Returns the number of emitted rows."""
        first: dict[Any, Tuple] = {}
        passed = 0
        for row in rows:
            if row[self.id_field] is None:
                collector.emit(self._by_name(row))
                passed += 1
            else:
                first.setdefault(row[self.id_field], row)
        ids = list(first)
        for start in range(0, len(ids), ROWS_PER_STATEMENT):
            for (found,) in self._insert(transaction, ids[start : start + ROWS_PER_STATEMENT]):
                collector.emit(self._by_name(first[found]))
                passed += 1
        return passed

    def _by_name(self, row: Tuple) -> list[Any]:
        # The input may have the fields in another order.
        return [row[name] for name in self._fields.names]

    def _insert(self, transaction: CommitTransaction, ids: list[Any]) -> Sequence[Sequence[Any]]:
        """Insert ids and return those that were new. The server refuses a table without a unique constraint on the id
        column.
        """
        column = quoted(self.id_field)
        return transaction.execute(
            f"insert into {self.table} ({column}) select * from unnest(%s::{self._kind}[]) on conflict ({column}) do "
            f"nothing returning {column}",
            [ids],
        )
