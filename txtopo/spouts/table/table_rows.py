"""Rows of a table, each value as text, as rows of the declared fields, or with a reason why a row is none."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from functools import partial

import pyarrow as pa

from txtopo.core.fields import Fields
from txtopo.core.limits import REJECTED_RAW_BYTES_MAX
from txtopo.core.values import RejectedRow
from txtopo.spouts.formats.format import Emitted
from txtopo.spouts.formats.lines.typed_texts import sifted_batch, whole_batch
from txtopo.spouts.range_spout import Block

BLOCK_ROWS = 10_000


def row_blocks(name: str, fields: Fields, key: Sequence[str], found: pa.Table, before: int) -> Iterator[Block]:
    """Yield the rows of a piece, before which a batch has `before` others. `found` has their texts, key first."""
    rows = TableRows(name, fields, key)
    for start in range(0, found.num_rows, BLOCK_ROWS):
        block = found.slice(start, BLOCK_ROWS)
        emitted, kept = rows.emit(block, before + start)
        yield Block(emitted=emitted, record=partial(_record, rows, block, kept, before + start))


def _record(rows: TableRows, block: pa.Table, kept: Sequence[int], before: int, at: int) -> tuple[int, bytes]:
    return before + kept[at] + 1, rows.raw(block, kept[at])


class TableRows:
    """Turns blocks of rows into the planned fields."""

    def __init__(self, name: str, fields: Fields, key: Sequence[str]) -> None:
        self._name = name
        self._fields = fields
        self._key = key

    def emit(self, block: pa.Table, before: int) -> tuple[Emitted, list[int]]:
        """Return rows and rejects of a block, and the places in the block of the rows. `before` is the number of rows
        of the batch before it.
        """
        columns = [self._column(block, field.name, field.type.kind) for field in self._fields.items]
        batch = whole_batch(self._fields, columns)
        if batch is not None:
            return Emitted(batch=batch), list(range(block.num_rows))
        batch, refused = sifted_batch(self._fields, columns)
        rejects = [self._reject(block, at, before, reason) for at, reason in refused.items()]
        return Emitted(batch=batch, rejects=rejects), [at for at in range(block.num_rows) if at not in refused]

    def raw(self, block: pa.Table, at: int) -> bytes:
        """Return a row as JSON: each value as text, NULL as null."""
        row = {name: block.column(name)[at].as_py() for name in block.column_names}
        return json.dumps(
            {name: None if text is None else text.decode() for name, text in row.items()}, ensure_ascii=False
        ).encode()

    def _reject(self, block: pa.Table, at: int, before: int, reason: str) -> RejectedRow:
        raw = self.raw(block, at)
        return RejectedRow(
            path=self._name,
            line=before + at + 1,
            reason=f"{self.place(block, at)}: {reason}",
            raw=raw[:REJECTED_RAW_BYTES_MAX],
            raw_bytes=len(raw),
            unit="row",
        )

    def place(self, block: pa.Table, at: int) -> str:
        """Return the key of a row as text."""
        return ", ".join(f"{name} {block.column(name)[at].as_py().decode()}" for name in self._key)

    @staticmethod
    def _column(block: pa.Table, name: str, kind: str) -> pa.Array:
        column = block.column(name).combine_chunks()
        column = column.chunk(0) if isinstance(column, pa.ChunkedArray) else column
        if kind != "binary":
            return column
        # `bytea` is the text \x and two digits a byte.
        return pa.array(
            [None if text is None else bytes.fromhex(text[2:].decode()) for text in column.to_pylist()], pa.binary()
        )
