"""Finds keys that cannot be stored, before a commit tries it: NULL or twice where that says nothing, or too long for an
index row of Postgres.

Postgres refuses an index row above 2,704 bytes. It may compress a value, so a long text might fit or not, depending on
what it says; here the limit is on the bytes themselves, so that it is the same for every text.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from txtopo.errors import BatchDataError
from txtopo.topology.committer_bolt import RowKeys
from txtopo.tuples.user_errors import shown_value

INDEX_ROW_BYTES_MAX = 2704
"""A third of a page of Postgres, without its header."""
_OWN_BYTES = 32
"""Header of an index row, the bitmap of what is NULL, and the columns txid and reverses of a contribution table."""
_VALUE_BYTES = 8
"""The most that a value of fixed length needs, or the header of another one with what aligns the next value."""
_DECIMAL_BYTES = 32
"""The most that a decimal needs."""


def check_keys(committer: str, rows: pa.Table, keys: int, beside: Sequence[pa.DataType] = ()) -> None:
    """Raise BatchDataError, naming committer, column and length, if the first `keys` columns of a row are too long for
    an index row. `beside`: types of fixed length that the index has, too.
    """
    columns = list(zip(rows.column_names[:keys], rows.columns[:keys], strict=True))
    long = [(name, pc.binary_length(column)) for name, column in columns if _is_long(column.type)]
    if not long or not rows.num_rows:
        return
    room = text_bytes_max([*(column.type for _, column in columns), *beside])
    total = pc.fill_null(long[0][1], 0)
    for _, lengths in long[1:]:
        total = pc.add(total, pc.fill_null(lengths, 0))
    if pc.max(total).as_py() <= room:
        return
    row = pc.index(total, pc.max(total)).as_py()
    name, size = max(((name, lengths[row].as_py() or 0) for name, lengths in long), key=lambda item: item[1])
    value = rows.column(name)[row].as_py()
    raise BatchDataError(
        f"committer {committer}: key {name} has {size:,} bytes ({shown_value(value)}); the texts of a key have at most "
        f"{room:,} bytes here, as an index row of Postgres holds {INDEX_ROW_BYTES_MAX:,}: shorten {name} in a bolt, or "
        f"use its hash in its place",
        component=committer,
        fault="key too long",
    )


def check_row_keys(committer: str, keys: RowKeys | None, rows: pa.Table) -> None:
    """Raise BatchDataError, naming the committer, for a row whose key has a NULL or is too long for an index row, and
    for two rows of one key if nothing says which is the last.
    """
    if keys is None:
        return
    for key in keys.fields:
        if rows.column(key).null_count:
            raise BatchDataError(
                f"committer {committer}: key {key} is NULL in a row", component=committer, fault="key is NULL"
            )
    versions = [rows.schema.field(name).type for name in keys.version]
    check_keys(committer, rows.select(keys.fields), len(keys.fields), versions)
    if not keys.one_row:
        return
    counted = rows.group_by(list(keys.fields)).aggregate([([], "count_all")])
    twice = counted.filter(pc.greater(counted.column("count_all"), 1))
    if twice.num_rows:
        values = [twice.column(one)[0].as_py() for one in keys.fields]
        raise two_rows(committer, keys.fields, values, twice.column("count_all")[0].as_py())


def two_rows(committer: str, fields: Sequence[str], values: Sequence[Any], count: int) -> BatchDataError:
    """Return the error for `count` rows of a batch with one key if nothing says which is the last."""
    key = ", ".join(f"{field} {shown_value(value)}" for field, value in zip(fields, values, strict=True))
    return BatchDataError(
        f"committer {committer}: the batch has {count} rows of key {key}, and nothing says which is the last: name a "
        f"version",
        component=committer,
        fault="two rows of a key",
    )


def text_bytes_max(types: list[pa.DataType]) -> int:
    """Return how many bytes the texts and binaries of a key with these types may have together."""
    fixed = sum(_DECIMAL_BYTES if pa.types.is_decimal(kind) else _VALUE_BYTES for kind in types)
    return INDEX_ROW_BYTES_MAX - _OWN_BYTES - fixed


def _is_long(kind: pa.DataType) -> bool:
    return bool(pa.types.is_string(kind) or pa.types.is_binary(kind))
