"""SqlTableSpout: rows of a table of any database that SQLAlchemy knows; a batch is a range of keys, and the user says
after how long all rows of lower keys can be seen.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Literal

from txtopo.core.fields import Fields, parse_fields
from txtopo.core.limits import REJECTED_MAX, TABLE_BYTES_PER_BATCH, TABLE_ROWS_PER_BATCH
from txtopo.errors import TopologyError
from txtopo.spouts.partitioned import NamedCoordinator
from txtopo.spouts.table import pieced_spout
from txtopo.spouts.table.pieced_spout import (
    PiecedSpout,
    check_word,
    checked_count,
    checked_number,
    checked_table,
)
from txtopo.spouts.table.sql_database import SqlDatabase, database_of
from txtopo.topology.components import SpoutContext

if TYPE_CHECKING:
    import pyarrow as pa

KIND = "sql_table"
"""The kind of the layout in plans."""
SETTLED_S_MAX = 7 * 86400.0
_NAME = "SqlTableSpout"


class SqlTableSpout(PiecedSpout):
    """Reads the rows that are added to a table with a growing key, each once, if what the user says of it is true.

    >>> SqlTableSpout("shop.orders", "id bigint, shop string", settled_s=60).assumes
    'every row can be seen within 60 s after any row with a higher key'
    """

    described_as = "sql table"

    def __init__(
        self,
        table: str,
        fields: str | Fields,
        *,
        settled_s: float,
        key: str | None = None,
        url_env: str | None = None,
        start: Literal["earliest", "latest"] = "earliest",
        max_rows: int = TABLE_ROWS_PER_BATCH,
        max_bytes: int = TABLE_BYTES_PER_BATCH,
        on_late: Literal["halt", "continue"] = "halt",
        on_other_table: Literal["halt", "continue"] = "halt",
        rejected_max: float = REJECTED_MAX,
    ) -> None:
        """`table` is the name of a table, with its schema if it has one before a dot. `fields` are columns.

        `settled_s` is the user's word: `settled_s` seconds (0 to 7 days) after a row could be seen, all rows with lower
        keys can be seen, so no transaction that adds rows takes longer. A row that comes later is in no batch; where
        that is noticed, the topology halts unless `on_late` says that it continues. `key` is a unique column of whole
        numbers that grow, by default the primary key; no number is used a second time.

        The URL of the database is in the environment variable `url_env` (TXTOPO_TABLE_URL) of each host; nothing of
        its password is in a plan. With `start="latest"` the first batch begins after what has settled when it is
        planned. A batch has at most `max_rows` rows, and at most `max_bytes` bytes or one row. If the database is
        another one than in the last plan, or its last rows were deleted, the topology halts, unless `on_other_table`
        says that new rows have higher keys. A batch fails if more than the share `rejected_max` (0 to 1) of its rows is
        rejected.

        Raises TopologyError for an invalid value.
        """
        self.table: str = checked_table(_NAME, table)
        self.fields: Fields = parse_fields(fields)
        for field in self.fields.items:
            if field.type.kind == "float":
                raise TopologyError(f"{_NAME}: field {field.name!r}: clients give no float exactly, declare double")
        self.settled_s: float = checked_number(_NAME, "settled_s", settled_s, SETTLED_S_MAX, "a number of seconds")
        if key is not None and (not isinstance(key, str) or not key):
            raise TopologyError(f"{_NAME}: key {key!r} is no name of a column")
        self.key: str | None = key
        self.database: SqlDatabase = database_of(url_env)
        check_word(_NAME, "start", start, "earliest", "latest")
        self.start = start
        self.max_rows: int = checked_count(_NAME, "max_rows", max_rows)
        self.max_bytes: int = checked_count(_NAME, "max_bytes", max_bytes)
        check_word(_NAME, "on_late", on_late, "halt", "continue")
        self.on_late = on_late
        check_word(_NAME, "on_other_table", on_other_table, "halt", "continue")
        self.on_other_table = on_other_table
        self.rejected_max: float = checked_number(_NAME, "rejected_max", rejected_max, 1, "a share from 0 to 1")

    @property
    def assumes(self) -> str:  # type: ignore[override]
        """Return what must be true of the table for the guarantee."""
        return f"every row can be seen within {self.settled_s:g} s after any row with a higher key"

    def get_coordinator(self, config: Mapping[str, Any], context: SpoutContext) -> NamedCoordinator:
        """Return the coordinator half."""
        from txtopo.spouts.table.sql_coordinator import SqlCuts, SqlTableCoordinator

        cuts = SqlCuts(
            table=self.table,
            database=self.database,
            fields=self.fields,
            key=self.key,
            settled_s=self.settled_s,
            start=self.start,
            on_late=self.on_late,
            on_other_table=self.on_other_table,
            rows_max=self.max_rows,
            bytes_max=self.max_bytes,
            piece_rows=pieced_spout.PIECE_ROWS,
            piece_bytes=pieced_spout.PIECE_BYTES,
        )
        return SqlTableCoordinator(cuts, once=context.once, monotonic=context.monotonic, say=context.say)

    def layout(self) -> Mapping[str, Any]:
        return {"kind": KIND, "url_env": self.database.url_env}

    def read_piece(
        self, name: str, planned: Mapping[str, Any], piece: int, fields: Fields
    ) -> tuple[pa.Table, Mapping[int, str]]:
        from txtopo.spouts.table.sql_rows import read_piece

        return read_piece(self.database, name, planned, piece, fields)

    def warm_up(self) -> None:
        import txtopo.spouts.table.sql_rows
        import txtopo.spouts.table.table_rows  # noqa: F401

    def describe(self) -> Mapping[str, Any]:
        """Return a description; where the database is is no part of it."""
        return {
            "kind": KIND,
            "table": self.table,
            "fields": self.fields.ddl,
            "settled_s": self.settled_s,
            "key": self.key,
            "start": self.start,
            "max_rows": self.max_rows,
            "max_bytes": self.max_bytes,
            "on_late": self.on_late,
            "on_other_table": self.on_other_table,
            "rejected_max": self.rejected_max,
        }
