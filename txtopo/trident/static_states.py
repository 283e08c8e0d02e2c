"""Static states: small tables that do not change while a driver runs, for enrichment."""

from __future__ import annotations

import csv
import hashlib
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from txtopo.core.fields import FLOAT_KINDS, Field, Fields
from txtopo.errors import TopologyError, TopologyTypeError
from txtopo.spouts.arrow_types import arrow_schema
from txtopo.trident.links import ChainColumn, ChainRows, Link, LinkContext, RunningLink
from txtopo.tuples.columns import Columns, adder

STATIC_BYTES_MAX = 64 * 2**20
"""Maximum size of a static state: every task has it in memory, and every driver sends it."""


class StaticRows(ABC):
    """Where the rows of a static state come from."""

    @abstractmethod
    def rows(self, fields: Fields) -> Iterable[Sequence[Any]]:
        """Return all rows, each with a value for each field."""


class PythonRows(StaticRows):
    """Rows that a function returns, or that are given."""

    def __init__(self, rows: Iterable[Sequence[Any]] | Callable[[], Iterable[Sequence[Any]]]) -> None:
        self._rows = rows

    def rows(self, fields: Fields) -> Iterable[Sequence[Any]]:
        return self._rows() if callable(self._rows) else self._rows


class CsvRows(StaticRows):
    """Rows of a CSV file in UTF-8 with a header line. An empty value is NULL; values are read as Arrow reads texts."""

    def __init__(self, path: str | Path) -> None:
        self._path = Path(path)

    def rows(self, fields: Fields) -> Iterator[Sequence[Any]]:
        try:
            with self._path.open(encoding="utf-8", newline="") as file:
                reader = csv.DictReader(file, strict=True)
                for missing in sorted(set(fields.names) - set(reader.fieldnames or ())):
                    raise TopologyError(f"{self._path}: there is no column {missing!r}")
                for row in reader:
                    if None in row or None in row.values():
                        raise TopologyError(
                            f"{self._path}:{reader.line_num}: the row has not as many values as columns"
                        )
                    yield [self._value(one, row[one.name], reader.line_num) for one in fields.items]
        except (OSError, UnicodeDecodeError, csv.Error) as error:
            raise TopologyError(f"{self._path}: {error}") from error

    def _value(self, of: Field, text: str, line: int) -> Any:
        if text == "":
            return None
        if of.type.kind == "string":
            return text
        try:
            return pa.scalar(text, pa.string()).cast(arrow_schema(Fields((of,))).field(0).type).as_py()
        except (pa.ArrowInvalid, pa.ArrowNotImplementedError) as error:
            raise TopologyError(f"{self._path}:{line}: {of.name}: {text!r} is no {of.type}") from error


class StaticTable:
    """The rows of one static state, shared by all tasks of a process: nobody changes them."""

    def __init__(self, fields: Fields, keys: Sequence[str], batch: pa.RecordBatch) -> None:
        self.fields = fields
        self.batch = batch
        self.digest = digest_of_rows(fields, batch)
        self._index: dict[tuple[Any, ...], list[int]] | None = None
        self._keys = tuple(map(fields.names.index, keys))

    def __deepcopy__(self, memo: Any) -> StaticTable:
        return self

    def __getstate__(self) -> Mapping[str, Any]:
        return {**self.__dict__, "_index": None}

    def index(self) -> Mapping[tuple[Any, ...], Sequence[int]]:
        """Return the numbers of the rows of each key; rows with a NULL in the key have none."""
        if self._index is None:
            found: dict[tuple[Any, ...], list[int]] = {}
            columns = [self.batch.column(at).to_pylist() for at in self._keys]
            for at, key in enumerate(zip(*columns, strict=True)):
                if None not in key:
                    found.setdefault(key, []).append(at)
            self._index = found
        return self._index


def digest_of_rows(fields: Fields, batch: pa.RecordBatch) -> str:
    """Return a digest of the content, whatever the order of the rows."""
    rows = sorted(map(repr, zip(*(column.to_pylist() for column in batch.columns), strict=True)))
    digest = hashlib.sha256(fields.ddl.encode())
    for row in rows:
        digest.update(b"\0" + row.encode())
    return digest.hexdigest()[:16]


@dataclass(frozen=True, slots=True)
class StaticState:
    """A static state: `stream.join(state, on=…)`. Made by `TridentTopology.new_static_state`."""

    name: str
    keys: tuple[str, ...]
    table: StaticTable

    @property
    def fields(self) -> Fields:
        """The fields of its rows."""
        return self.table.fields


def static_state(who: str, name: str, rows: StaticRows, keys: tuple[str, ...], fields: Fields) -> StaticState:
    """Read all rows. Raises TopologyError for rows that do not fit, and for too many."""
    if not isinstance(rows, StaticRows):
        raise TopologyTypeError(f"{who}: {rows!r} is not CsvRows or PythonRows")
    for key in keys:
        of = next(one for one in fields.items if one.name == key)
        if of.type.kind in FLOAT_KINDS:
            raise TopologyError(f"{who}: {key} is a {of.type}; equal-looking floats differ: declare it decimal")
    columns = Columns(name, "static state", fields)
    lists: list[list[Any]] = [[] for _ in fields.items]
    add = adder(lists, columns)
    try:
        for row in rows.rows(fields):
            add(row)
        batch = columns.batch(lists)
    except TopologyError as error:
        raise TopologyError(f"{who}: {error}") from error
    except Exception as error:
        raise TopologyError(f"{who}: {type(error).__name__}: {error}") from error
    if batch.nbytes > STATIC_BYTES_MAX:
        raise TopologyError(
            f"{who}: {batch.nbytes:,} bytes, at most {STATIC_BYTES_MAX:,} are possible: every task has it in memory; "
            f"join a stream, or look values up in a bolt"
        )
    return StaticState(name, keys, StaticTable(fields, keys, batch))


@dataclass(frozen=True, slots=True, kw_only=True)
class LookupLink(Link):
    """Joins each tuple with the rows of a static state that have its key."""

    name: str
    digest: str
    """Of the content: it is part of the code hash."""
    keys: tuple[int, ...]
    """Positions of the key in the tuples."""
    others: tuple[int, ...]
    """Positions, in the state, of the fields that are appended."""
    is_left: bool
    """True: a tuple without a match continues with NULL."""
    table: StaticTable = field(repr=False)

    def shown(self) -> str:
        return (
            f"{self.place}: static state {self.name} {self.digest}, {self.table.batch.num_rows} rows, in each task; "
            f"other content needs a new start"
        )

    def open(self, context: LinkContext) -> RunningLink:
        return _Looking(self)


class _Looking(RunningLink):
    def __init__(self, link: LookupLink) -> None:
        self._link = link
        self._index = link.table.index()
        self._columns = [link.table.batch.column(at) for at in link.others]

    def take(self, rows: ChainRows) -> Iterator[ChainRows]:
        found: list[int | None] = []
        parents: list[int] = []
        alone: Sequence[int | None] = (None,) if self._link.is_left else ()
        keys = zip(*(rows.columns[at].values() for at in self._link.keys), strict=True)
        for at, key in enumerate(keys):
            matches = self._index.get(key) or alone
            found += matches
            parents += [at] * len(matches)
        positions = np.array(parents, dtype=np.int64)
        looked = pa.array(found, pa.int64())
        kept = [column.take(positions) for column in rows.columns]
        yield rows.made(positions, [*kept, *(ChainColumn(column.take(looked)) for column in self._columns)])
