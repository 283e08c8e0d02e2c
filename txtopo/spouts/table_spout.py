"""TableSpout: rows of a Postgres table, exactly once; a batch is a range of transaction ids, cut by the key."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Literal

from txtopo.core.fields import Fields, parse_fields
from txtopo.core.limits import REJECTED_MAX, TABLE_BYTES_PER_BATCH, TABLE_ROWS_PER_BATCH
from txtopo.errors import TopologyError
from txtopo.spouts.partitioned import NamedCoordinator
from txtopo.spouts.table import pieced_spout
from txtopo.spouts.table.database import TableDatabase, database_of
from txtopo.spouts.table.pieced_spout import (
    PiecedSpout,
    check_word,
    checked_count,
    checked_number,
    checked_table,
)
from txtopo.spouts.table.row_ranges import settled_by
from txtopo.topology.components import SpoutContext

if TYPE_CHECKING:
    import pyarrow as pa

KIND = "table"
"""The kind of the layout in plans."""
_NAME = "TableSpout"


class TableSpout(PiecedSpout):
    """Reads the rows of a Postgres table to which rows are added, each once, as soon as no older transaction is open.

    >>> TableSpout("shop.orders", "id bigint, price decimal(10,2)").fields.names
    ('id', 'price')
    """

    described_as = "table"

    def __init__(
        self,
        table: str,
        fields: str | Fields,
        *,
        settled: str = "xid8:written_by",
        key: str | Sequence[str] | None = None,
        dsn_env: str | None = None,
        service: str | None = None,
        start: Literal["earliest", "latest"] = "earliest",
        max_rows: int = TABLE_ROWS_PER_BATCH,
        max_bytes: int = TABLE_BYTES_PER_BATCH,
        on_other_server: Literal["halt", "continue"] = "halt",
        rejected_max: float = REJECTED_MAX,
    ) -> None:
        """`table` is the name of a table as SQL has it, with its schema or found by the search path. `fields` are
        columns.

        `settled` says how a row tells which transaction wrote it: `"xid8:COLUMN"` names a column of type `xid8` whose
        default is `pg_current_xact_id()`, with an index on it and the key; `"xmin"` is the system column, which needs
        no column and reads the whole table for each batch. `key` has the columns of a unique key, by default those of
        the primary key.

        The connection string is in the environment variable `dsn_env` (TXTOPO_TABLE_DSN) of each host, or in the
        service `service` of libpq; nothing of it is in a plan. With `start="latest"` the first batch begins after what
        is there when it is planned. A batch has at most `max_rows` rows, and at most `max_bytes` bytes or one row.
        If the server is another one than in the last plan, the topology halts, unless `on_other_server` says that no
        transaction was lost. A batch fails if more than the share `rejected_max` (0 to 1) of its rows is rejected.

        Raises TopologyError for an invalid value.
        """
        self.table: str = checked_table(_NAME, table)
        self.fields: Fields = parse_fields(fields)
        self.settled: str = str(settled_by(settled))
        self.key: tuple[str, ...] | None = _key(key)
        self.database: TableDatabase = database_of(dsn_env, service)
        check_word(_NAME, "start", start, "earliest", "latest")
        self.start = start
        self.max_rows: int = checked_count(_NAME, "max_rows", max_rows)
        self.max_bytes: int = checked_count(_NAME, "max_bytes", max_bytes)
        check_word(_NAME, "on_other_server", on_other_server, "halt", "continue")
        self.on_other_server = on_other_server
        self.rejected_max: float = checked_number(_NAME, "rejected_max", rejected_max, 1, "a share from 0 to 1")

    def get_coordinator(self, config: Mapping[str, Any], context: SpoutContext) -> NamedCoordinator:
        """Return the coordinator half."""
        from txtopo.spouts.table.table_coordinator import TableCoordinator, TableCuts

        cuts = TableCuts(
            table=self.table,
            database=self.database,
            fields=self.fields,
            settled=settled_by(self.settled),
            key=self.key,
            start=self.start,
            on_other_server=self.on_other_server,
            rows_max=self.max_rows,
            bytes_max=self.max_bytes,
            piece_rows=pieced_spout.PIECE_ROWS,
            piece_bytes=pieced_spout.PIECE_BYTES,
        )
        return TableCoordinator(cuts, once=context.once, monotonic=context.monotonic, say=context.say)

    def layout(self) -> Mapping[str, Any]:
        return {"kind": KIND, "database": self.database.stored}

    def read_piece(
        self, name: str, planned: Mapping[str, Any], piece: int, fields: Fields
    ) -> tuple[pa.Table, Mapping[int, str]]:
        from txtopo.spouts.table.table_reading import read_piece

        return read_piece(self.database, name, planned, piece, fields.names), {}

    def warm_up(self) -> None:
        import txtopo.spouts.table.table_reading
        import txtopo.spouts.table.table_rows  # noqa: F401

    def describe(self) -> Mapping[str, Any]:
        """Return a description; where the database is is no part of it."""
        return {
            "kind": KIND,
            "table": self.table,
            "fields": self.fields.ddl,
            "settled": self.settled,
            "key": None if self.key is None else list(self.key),
            "start": self.start,
            "max_rows": self.max_rows,
            "max_bytes": self.max_bytes,
            "on_other_server": self.on_other_server,
            "rejected_max": self.rejected_max,
        }


def _key(key: object) -> tuple[str, ...] | None:
    if key is None:
        return None
    found = (key,) if isinstance(key, str) else tuple(key) if isinstance(key, list | tuple) else ()
    if not found or not all(isinstance(name, str) and name for name in found) or len(set(found)) < len(found):
        raise TopologyError(f"TableSpout: key {key!r} is neither a column nor a list of different columns")
    return found
