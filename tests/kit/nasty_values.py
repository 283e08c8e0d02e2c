"""Values that two engines may group differently: by type, with NULL, and a spout that emits many of them."""

from __future__ import annotations

import random
from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, date, datetime, timedelta, timezone
from decimal import Decimal
from typing import Any

import pyarrow as pa

from txtopo.core.fields import parse_fields
from txtopo.core.plan import Metadata
from txtopo.spouts.arrow_types import arrow_schema
from txtopo.topology.components import Input, Spout, SpoutContext, SpoutCoordinator, Tally

KEYS = (
    "k_string string, k_binary binary, k_boolean boolean, k_tiny tinyint, k_small smallint, k_int int, k_big bigint, "
    "k_decimal decimal(10,2), k_wide decimal(38,10), k_date date, k_at timestamp, k_local timestamp_ntz"
)
SUMMED = "s_tiny tinyint, s_small smallint, s_int int, s_big bigint, s_decimal decimal(28,3), unread double"
FIELDS = f"{KEYS}, {SUMMED}"
_EAST = timezone(timedelta(hours=5, minutes=30))
_NOON = datetime(2024, 3, 31, 12, 0, 0, 1, tzinfo=UTC)
VALUES: Mapping[str, Sequence[Any]] = {
    # Empty, blanks, case, composed and decomposed, letters that a collation calls equal, NUL, beyond 16 bits.
    "string": ["", " ", "a", "a ", "A", "\u00e9", "e\u0301", "ß", "ss", "İ", "i", "\0", "a\0", "\U0001f600", "a" * 300],
    "binary": [b"", b"\0", b"\0\0", b" ", b"\xff", b"\xfe\xff", b"a"],
    "boolean": [True, False],
    "tinyint": [0, -128, 127],
    "smallint": [0, -32768, 32767],
    "int": [0, -(2**31), 2**31 - 1],
    "bigint": [0, -(2**63), 2**63 - 1, 2**53, 2**53 + 1],
    "decimal(10,2)": [Decimal("-0.00"), Decimal("1.1"), Decimal("1.10"), Decimal("-99999999.99"), Decimal(1)],
    "decimal(38,10)": [Decimal("0"), Decimal("1E-10"), Decimal("9" * 28 + "." + "9" * 10), Decimal("-1.0000000000")],
    "decimal(28,3)": [Decimal("0"), Decimal("9" * 25 + ".999"), Decimal("-" + "9" * 25 + ".999"), Decimal("0.001")],
    "double": [0.0, -0.0, float("nan"), float("inf")],
    "date": [date(1, 1, 1), date(1582, 10, 10), date(1970, 1, 1), date(9999, 12, 31)],
    # One instant in two zones, and its neighbours.
    "timestamp": [_NOON, _NOON.astimezone(_EAST), _NOON + timedelta(microseconds=1), datetime(1, 1, 2, tzinfo=UTC)],
    "timestamp_ntz": [datetime(2024, 3, 31, 2, 30), datetime(1900, 1, 1, 0, 0, 0, 999999), datetime(9999, 12, 31)],
}


def nasty_batch(fields: str, rows: int, seed: int, *, variety: int = 20) -> pa.RecordBatch:
    """Return rows of random values, the same for one seed; at most `variety` different ones of a type, NULL always."""
    chance = random.Random(seed)
    declared = parse_fields(fields)
    columns = []
    for field, kind in zip(declared.items, arrow_schema(declared).types, strict=True):
        values = [None, *VALUES[str(field.type)]][:variety]
        columns.append(pa.array([chance.choice(values) for _ in range(rows)], kind))
    return pa.RecordBatch.from_arrays(columns, schema=arrow_schema(declared))


def near_twins(fields: str, rows: int, seed: int) -> pa.RecordBatch:
    """Return rows of which several have the same keys, and others differ in one key alone: every value of every type is
    in one of them. What is summed differs from row to row.
    """
    chance = random.Random(seed)
    batch = nasty_batch(fields, rows, seed)
    keys = [at for at, name in enumerate(batch.schema.names) if name.startswith("k_")]
    first = nasty_batch(fields, 1, 0).to_pylist()[0]
    kinds = parse_fields(fields).items
    twins = [first]
    for at in keys:
        twins += [{**first, kinds[at].name: value} for value in (None, *VALUES[str(kinds[at].type)])]
    chosen = [chance.choice(twins) for _ in range(rows)]
    columns = [
        pa.array([row[name] for row in chosen], kind) if at in keys else batch.column(at)
        for at, (name, kind) in enumerate(zip(batch.schema.names, batch.schema.types, strict=True))
    ]
    return pa.RecordBatch.from_arrays(columns, schema=batch.schema)


class NastySpout(Spout):
    """Metadata is `{"parts": [{"seed": …, "rows": …}, …]}`; rows come in batches of uneven sizes."""

    def __init__(self, fields: str = FIELDS) -> None:
        self.ddl = fields
        self.fields = parse_fields(fields)

    def open_coordinator(self, context: SpoutContext) -> SpoutCoordinator:
        raise NotImplementedError

    def parts(self, metadata: Metadata) -> Sequence[Mapping[str, Any]]:
        found: Sequence[Mapping[str, Any]] = metadata["parts"]
        return found

    def emit_part(self, metadata: Metadata, part: Mapping[str, Any], tally: Tally) -> Iterator[pa.RecordBatch]:
        batch = near_twins(self.ddl, part["rows"], part["seed"])
        for piece in uneven(batch):
            tally.read += piece.num_rows
            yield piece

    def inputs(self, metadata: Metadata) -> Sequence[Input]:
        return ()

    def describe(self) -> Mapping[str, Any]:
        return {"kind": "nasty"}


def uneven(batch: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
    """Yield the rows in batches of 0, 1, 2, 4, … rows."""
    start, size = 0, 0
    while start < batch.num_rows:
        yield batch.slice(start, size)
        start, size = start + size, max(1, 2 * size)
