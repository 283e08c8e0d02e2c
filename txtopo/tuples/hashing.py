"""Hashes values by content: the same number in every process, on every machine, in every run (Storm's TupleUtils, never
Python's `hash`).

Integers of any width hash by value, and so do booleans, as 0 and 1; floats by value with -0.0 = 0.0 and all NaNs equal;
decimals by value whatever their scale; NULL is a value like any other. Values of different kinds, such as 2 and 2.0,
may have different hashes.
"""

from __future__ import annotations

from collections.abc import Sequence
from hashlib import blake2b
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

Hashes = npt.NDArray[np.uint64]

REMEMBERED_MAX = 100_000
"""Number of values per column whose hash a task remembers."""
_GOLDEN = np.uint64(0x9E3779B97F4A7C15)
_FIRST = np.uint64(0xBF58476D1CE4E5B9)
_SECOND = np.uint64(0x94D049BB133111EB)
_MASK = (1 << 64) - 1
_NULL = np.uint64(0x6E756C6C00000001)
_INTEGER = np.uint64(0x696E740000000002)
_FLOAT = np.uint64(0x666C740000000003)
_DATE = np.uint64(0x6461740000000004)
_TIME = np.uint64(0x74696D0000000005)


def mix(values: Hashes) -> Hashes:
    """Return scattered 64-bit numbers (splitmix64): a bijection, so different numbers stay different."""
    with np.errstate(over="ignore"):
        values = values + _GOLDEN
        values = (values ^ (values >> np.uint64(30))) * _FIRST
        values = (values ^ (values >> np.uint64(27))) * _SECOND
        return values ^ (values >> np.uint64(31))


def mix_int(*numbers: int) -> int:
    """Return one 64-bit number from several: `mix` after each of them, on Python's integers, because there are only a
    few.
    """
    value = 0
    for number in numbers:
        value = ((value ^ number & _MASK) + int(_GOLDEN)) & _MASK
        value = ((value ^ value >> 30) * int(_FIRST)) & _MASK
        value = ((value ^ value >> 27) * int(_SECOND)) & _MASK
        value ^= value >> 31
    return value


class Hasher:
    """Hashes rows by some of their columns. There is one per task and edge: it remembers the hashes of texts and
    decimals.
    """

    def __init__(self, columns: Sequence[int]) -> None:
        """`columns` are positions."""
        self._columns = tuple(columns)
        self._seen: list[dict[Any, int]] = [{} for _ in self._columns]

    def rows(self, batch: pa.RecordBatch) -> Hashes:
        """Return a hash for each row."""
        combined = np.full(batch.num_rows, len(self._columns), dtype=np.uint64)
        for position, seen in zip(self._columns, self._seen, strict=True):
            combined = mix(combined ^ hash_column(batch.column(position), seen))
        return combined


def targets(hashes: Hashes, count: int) -> npt.NDArray[np.intp]:
    """Return which of `count` tasks each hash belongs to: from 0, never negative."""
    return (hashes % np.uint64(count)).astype(np.intp)


def second_targets(hashes: Hashes, first: npt.NDArray[np.intp], count: int) -> npt.NDArray[np.intp]:
    """Return the other candidate of a partial key grouping: from a second hash, plus one if it would equal the
    first.
    """
    second = targets(mix(hashes ^ _SECOND), count)
    return np.where(second == first, (second + 1) % count, second)


def hash_column(column: pa.Array, seen: dict[Any, int] | None = None) -> Hashes:
    """Return a hash for each value of a column. `seen` remembers the hashes of texts and decimals."""
    kind = column.type
    if pa.types.is_dictionary(kind):
        return hash_column(column.dictionary_decode(), seen)
    if pa.types.is_null(kind):
        return np.full(len(column), _NULL, dtype=np.uint64)
    if pa.types.is_boolean(kind) or pa.types.is_integer(kind):
        return _numbers(column, pa.int64(), _INTEGER)
    if pa.types.is_floating(kind):
        return _floats(column)
    if pa.types.is_date(kind):
        return _numbers(column.cast(pa.date32()).cast(pa.int32()), pa.int64(), _DATE)
    if pa.types.is_timestamp(kind):
        return _numbers(column.cast(pa.timestamp("us", tz=kind.tz)), pa.int64(), _TIME)
    return _texts(column, {} if seen is None else seen)


def _with_nulls(column: pa.Array, hashes: Hashes) -> Hashes:
    if column.null_count:
        hashes[column.is_null().to_numpy(zero_copy_only=False)] = _NULL
    return hashes


def _numbers(column: pa.Array, width: pa.DataType, tag: np.uint64) -> Hashes:
    numbers = pc.fill_null(column.cast(width), 0).to_numpy(zero_copy_only=False)
    return _with_nulls(column, mix(numbers.astype(np.int64).view(np.uint64) ^ tag))


def _floats(column: pa.Array) -> Hashes:
    numbers = pc.fill_null(column.cast(pa.float64()), 0.0).to_numpy(zero_copy_only=False) + 0.0  # -0.0 + 0.0 is 0.0
    numbers[np.isnan(numbers)] = np.nan
    return _with_nulls(column, mix(numbers.view(np.uint64) ^ _FLOAT))


def _texts(column: pa.Array, seen: dict[Any, int]) -> Hashes:
    """Return hashes of text, bytes and decimals: each distinct value is hashed once."""
    encoded = column.dictionary_encode()
    values = encoded.dictionary.to_pylist()
    known = seen.get
    found = [known(value) for value in values]
    for at, value in enumerate(found):
        if value is None:
            digest = _digest(values[at])
            found[at] = digest
            if len(seen) < REMEMBERED_MAX:
                seen[values[at]] = digest
    if not found:
        return np.full(len(column), _NULL, dtype=np.uint64)
    indices = pc.fill_null(encoded.indices, 0).to_numpy(zero_copy_only=False)
    return _with_nulls(column, np.array(found, dtype=np.uint64)[indices])


def _digest(value: Any) -> int:
    if isinstance(value, str):
        return _blake(value.encode(), b"text")
    if isinstance(value, bytes):
        return _blake(value, b"bytes")
    # A decimal: digits without trailing zeros, so that 1.50 equals 1.5.
    sign, digits, exponent = value.as_tuple()
    stripped = "".join(map(str, digits)).lstrip("0").rstrip("0")
    zeros = len(digits) - len("".join(map(str, digits)).rstrip("0"))
    text = f"{sign}:{stripped}:{exponent + zeros}" if stripped else "0"
    return _blake(text.encode(), b"decimal")


def _blake(data: bytes, kind: bytes) -> int:
    return int.from_bytes(blake2b(data, digest_size=8, person=kind).digest(), "little")
