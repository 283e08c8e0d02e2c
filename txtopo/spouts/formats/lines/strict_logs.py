"""The fast path of access logs: lines that a strict expression matches are cut by the CSV parser, all others by the
exact expression, one by one.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyarrow import csv

from txtopo.core.fields import Field, Fields
from txtopo.spouts.formats.lines.known_patterns import REQUEST_PARTS, KnownPattern, iso_time
from txtopo.spouts.formats.lines.line_pair import joined

Exact = Callable[[Sequence[bytes]], list[pa.Array] | None]
"""Lines -> the texts of the declared fields by the exact expression; None if one does not match."""


def strict_columns(
    known: KnownPattern,
    lines: pa.Array,
    fields: Fields,
    nulls: Collection[str],
    exact: Exact,
    data: bytes | None = None,
) -> list[pa.Array] | None:
    """Return the texts of the declared fields as `binary`, NULL for NULL; None if a line does not match. `lines` are of
    type `binary`; `data`: the same lines with their ends, if they are there already.
    """
    try:
        strict = pc.match_substring_regex(lines.cast(pa.string()), known.strict)
    except pa.ArrowInvalid:
        return None  # A line is not UTF-8.
    others = pc.indices_nonzero(pc.invert(strict))
    if not len(others):
        return _cut(known, joined(lines) if data is None else data, fields, nulls)
    rest = exact(lines.take(others).to_pylist())
    if rest is None or len(others) == len(lines):
        return rest
    chosen = pc.indices_nonzero(strict)
    plain = _cut(known, joined(lines.take(chosen)), fields, nulls)
    order = np.empty(len(lines), dtype=np.int64)
    order[chosen.to_numpy()] = np.arange(len(chosen))
    order[others.to_numpy()] = np.arange(len(chosen), len(lines))
    return [pa.concat_arrays([a, b]).take(pa.array(order)) for a, b in zip(plain, rest, strict=True)]


def _cut(known: KnownPattern, lines: bytes, fields: Fields, nulls: Collection[str]) -> list[pa.Array]:
    """Return the texts of lines that the strict expression matches."""
    wanted = {"request" if name in REQUEST_PARTS else name for name in fields.names}
    needed = [name for name in known.columns if name in wanted or (name in ("[time", "zone]") and "time" in wanted)]
    # The line end in front is a blank line: without it, a U+FEFF that starts the first line would be lost.
    data = b"\n" + lines
    table = csv.read_csv(
        pa.BufferReader(data),
        read_options=csv.ReadOptions(use_threads=False, block_size=len(data) + 1, column_names=list(known.columns)),
        parse_options=csv.ParseOptions(delimiter=" "),
        convert_options=csv.ConvertOptions(
            column_types=dict.fromkeys(needed, pa.string()),
            include_columns=needed,
            null_values=[],
            strings_can_be_null=False,
        ),
    )
    columns = {name: table.column(name).combine_chunks() for name in needed}
    return [_texts(field, columns, nulls).cast(pa.binary()) for field in fields.items]


def _texts(field: Field, columns: dict[str, pa.Array], nulls: Collection[str]) -> pa.Array:
    if field.name == "time":
        texts = _times(field, columns, nulls)
    elif field.name in REQUEST_PARTS:
        parts = pc.split_pattern(columns["request"], " ").flatten()
        texts = parts.take(pa.array(np.arange(REQUEST_PARTS.index(field.name), len(parts), 3)))
    else:
        texts = columns[field.name]
    if not nulls:
        return texts
    return pc.if_else(pc.is_in(texts, value_set=pa.array(list(nulls), pa.string())), None, texts)


def _times(field: Field, columns: dict[str, pa.Array], nulls: Collection[str]) -> pa.Array:
    together = pc.binary_join_element_wise(
        pc.utf8_slice_codeunits(columns["[time"], 1), pc.utf8_slice_codeunits(columns["zone]"], 0, 5), " "
    )
    if field.type.kind not in ("timestamp", "timestamp_ntz", "date"):
        return together
    encoded = together.dictionary_encode()
    texts = [text if text in nulls else iso_time(text, field.type.kind) for text in encoded.dictionary.to_pylist()]
    return pa.array(texts, pa.string()).take(encoded.indices)
