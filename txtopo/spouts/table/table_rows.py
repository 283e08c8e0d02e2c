"""Rows of a table, each value as text, as rows of the declared fields, or with a reason why a row is none."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from types import MappingProxyType

import pyarrow as pa

from txtopo.core.fields import Fields
from txtopo.core.limits import REJECTED_RAW_BYTES_MAX
from txtopo.core.values import RejectedRow
from txtopo.spouts.formats.format import Emitted
from txtopo.spouts.formats.lines.typed_texts import sifted_batch, whole_batch
from txtopo.spouts.range_spout import Block

BLOCK_ROWS = 10_000
_NONE: Mapping[int, str] = MappingProxyType({})


def row_blocks(
    name: str, fields: Fields, key: Sequence[str], found: pa.Table, before: int, odd: Mapping[int, str] = _NONE
) -> Iterator[Block]:
    """Yield the rows of a piece, before which a batch has `before` others. `found` has their texts, key first; `odd`
    has by place the reason why a row is no row of the fields, whatever its texts are.
    """
    rows = TableRows(name, fields, key)
    for start in range(0, found.num_rows, BLOCK_ROWS):
        block = found.slice(start, BLOCK_ROWS)
        wrong = {at - start: reason for at, reason in odd.items() if start <= at < start + BLOCK_ROWS}
        emitted, kept = rows.emit(block, before + start, wrong)
        yield Block(emitted=emitted, record=partial(_record, rows, block, kept, before + start))


def _record(rows: TableRows, block: pa.Table, kept: Sequence[int], before: int, at: int) -> tuple[int, bytes]:
    return before + kept[at] + 1, rows.raw(block, kept[at])


class TableRows:
    """Turns blocks of rows into the planned fields."""

    def __init__(self, name: str, fields: Fields, key: Sequence[str]) -> None:
        self._name = name
        self._fields = fields
        self._key = key

    def emit(self, block: pa.Table, before: int, odd: Mapping[int, str] = _NONE) -> tuple[Emitted, list[int]]:
        """Return rows and rejects of a block, and the places in the block of the rows. `before` is the number of rows
        of the batch before it; rows at the places of `odd` are rejected with its reasons.
        """
        plain = [at for at in range(block.num_rows) if at not in odd] if odd else range(block.num_rows)
        within = block.take(pa.array(plain, pa.int64())) if odd else block
        columns = [self._column(within, field.name, field.type.kind) for field in self._fields.items]
        batch = whole_batch(self._fields, columns)
        refused: Mapping[int, str] = {}
        if batch is None:
            batch, refused = sifted_batch(self._fields, columns)
        if not refused and not odd:
            return Emitted(batch=batch), list(plain)
        reasons = {**odd, **{plain[at]: reason for at, reason in refused.items()}}
        rejects = [self._reject(block, at, before, reasons[at]) for at in sorted(reasons)]
        return Emitted(batch=batch, rejects=rejects), [at for at in range(block.num_rows) if at not in reasons]

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
        # Bytes are the text \x and two digits a byte.
        return pa.array(
            [None if text is None else bytes.fromhex(text[2:].decode()) for text in column.to_pylist()], pa.binary()
        )
