"""What one commit changes in the tables of counting committers in memory: a draft that is either published as a whole
or discarded.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from dataclasses import replace
from decimal import Decimal
from typing import Any

from txtopo.committers.memory.memory_store import Key, MemoryPostgres, Numbers
from txtopo.committers.protocol.count_tables import TableShape, result_of_rows, shape_of
from txtopo.committers.protocol.folds import after, reversing
from txtopo.committers.protocol.redo_checks import check_reversed, no_contributions
from txtopo.committers.protocol.row_tables import RowShape, UpsertShape, numbered, of_rows
from txtopo.committers.protocol.rules import describe_counts
from txtopo.core.values import CommitterCount, CommitterResult
from txtopo.errors import BatchDataError, StagedRowsLost
from txtopo.topology.components import CommitterComponent
from txtopo.tuples.storable_keys import check_row_keys

BIGINT_MAX = 2**63 - 1


class MemoryDraft:
    """Tables and contributions as one database transaction sees them."""

    def __init__(self, store: MemoryPostgres) -> None:
        self._store = store
        self._tables: dict[str, dict[Key, Numbers | None]] = {}
        """Changed rows by table and key; None: the row is removed."""
        self._contributions: dict[str, list[tuple[Any, ...]]] = {}
        self.applied: set[str] = set()
        """Tables that a commit run writes once for all of its batches."""

    def reverse_batch(self, committer: CommitterComponent, txid: int, redo_of: int, expected: int | None) -> int:
        """Reverse the rows that batch `redo_of` contributed itself; returns how many. `expected` is the number that the
        ledger recorded, None if the batch did not have this committer.
        """
        shape = shape_of(committer)
        name = f"{shape.schema}.{shape.table}"
        if shape.contribution_table is None:
            raise no_contributions(committer.name, redo_of)
        own = [row for row in self._store.contributions.get(name, []) if row[:2] == (redo_of, None)]
        lacking = 0
        for row in own:
            key, given = row[2 : 2 + len(shape.keys)], row[2 + len(shape.keys) :]
            numbers = tuple(reversing(column, value) for column, value in zip(shape.numbers, given, strict=True))
            subtracted = tuple(
                value if column.fold == "add" else None for column, value in zip(shape.numbers, numbers, strict=True)
            )
            left = self._fold(shape, key, self._without(shape, key, redo_of), subtracted)
            lacking += left[0] < 0
            if left[0] == 0:
                self._tables[name][key] = None
            self._contributions.setdefault(name, []).append((txid, redo_of, *key, *numbers))
        check_reversed(committer.name, redo_of, len(own), lacking, expected)
        return len(own)

    def last_contributed(self, committer: CommitterComponent) -> CommitterResult | None:
        """Return what the last batch contributed; None if nothing of it is stored."""
        shape = shape_of(committer)
        kept = self._store.contributions.get(f"{shape.schema}.{shape.table}", [])
        own = [row for row in kept if row[0] > 0 and row[1] is None]
        last = [row[2:] for row in own if row[0] == max(one[0] for one in own)]
        names = [column.name for column in shape.columns]
        return result_of_rows(committer.name, names, last, len(shape.keys)) if last else None

    def apply(
        self, committer: CommitterComponent, txid: int, result: CommitterResult, reversed_rows: int
    ) -> CommitterCount:
        """Apply the rows of one committer and return its count."""
        shape = shape_of(committer)
        name = f"{shape.schema}.{shape.table}"
        if name not in self._store.tables or list(result.rows.column_names) != [c.name for c in shape.columns]:
            raise _misfit(committer, f"there is no table {name} with these columns")
        counted, digest, seen = 0, 0, set[Key]()
        for row in self._rows_of(committer, result):
            _check_row(committer, shape, row)
            key, numbers = row[: len(shape.keys)], row[len(shape.keys) :]
            if key in seen:
                raise _misfit(committer, f"key {key} occurs twice")
            seen.add(key)
            _check_row(committer, shape, (*key, *self._fold(shape, key, self._row(name, key), numbers)))
            counted += numbers[0]
            digest += _hash(row)
            if shape.contribution_table is not None:
                self._contributions.setdefault(name, []).append((txid, None, *row))
        if result.arrived != counted or result.row_count != len(seen):
            numbers_text = describe_counts(result.arrived, counted, result.row_count, len(seen), 0)
            raise BatchDataError(f"committer {committer.name}: {numbers_text}", component=committer.name)
        return CommitterCount(
            committer=committer.name,
            arrived=result.arrived,
            counted=counted,
            results=result.row_count,
            written=len(seen),
            reversed=reversed_rows,
            digest=digest,
        )

    def remove_rows(self, committer: CommitterComponent, shape: RowShape, redo_of: int, expected: int | None) -> int:
        """Remove the rows that batch `redo_of` added to a table of rows; returns how many. `expected` as above."""
        own = [key for key in self._store.tables.get(shape.name, {}) if key[0] == redo_of]
        check_reversed(committer.name, redo_of, len(own), 0, expected)
        self._tables.setdefault(shape.name, {}).update(dict.fromkeys(own))
        return len(own)

    def append_rows(
        self,
        committer: CommitterComponent,
        shape: RowShape,
        front: tuple[int, ...],
        result: CommitterResult,
        removed: int,
    ) -> CommitterCount:
        """Add the rows of a batch to a table of rows; returns the count. `front` are the values before `n`."""
        if result.staged is not None:
            result = replace(result, rows=of_rows(committer, self._rows_of(committer, result)).rows)
        table = numbered(committer, result)
        check_row_keys(committer.name, committer.bolt.row_keys, table)
        rows = table.to_pylist()
        if shape.name not in self._store.tables:
            raise _misfit(committer, f"there is no table {shape.name} with these columns")
        if result.arrived != len(rows):
            numbers_text = describe_counts(result.arrived, len(rows), result.row_count, len(rows), 0)
            raise BatchDataError(f"committer {committer.name}: {numbers_text}", component=committer.name)
        draft, digest = self._tables.setdefault(shape.name, {}), 0
        for row in rows:
            number, *values = row.values()
            _check_texts(committer, values)
            draft[*front, number] = tuple(values)
            digest += _hash((number, *values))
        return CommitterCount(
            committer=committer.name,
            arrived=result.arrived,
            counted=len(rows),
            results=result.row_count,
            written=len(rows),
            reversed=removed,
            digest=digest,
        )

    def set_last_rows(self, shape: UpsertShape) -> None:
        """Make the table of an `UpsertCommitter` what follows from its log: the last row of each key."""
        names = [column.name for column in shape.columns]
        places = [names.index(key.name) for key in shape.keys]
        versions = [names.index(name) for name in shape.version]
        last: dict[Key, tuple[Any, tuple[Any, ...]]] = {}
        for (_, _, origin, number), values in self._present(shape.log.name).items():
            rank = ([(values[at] is not None, values[at]) for at in versions], origin, number)
            key = tuple(values[at] for at in places)
            if key not in last or last[key][0] < rank:
                last[key] = rank, values
        flag = None if shape.deleted is None else names.index(shape.deleted)
        kept = {key: values for key, (_, values) in last.items() if flag is None or not values[flag]}
        gone = dict.fromkeys(self._store.tables[shape.name].keys() - kept.keys())
        rest = {
            key: tuple(value for at, value in enumerate(values) if at not in places) for key, values in kept.items()
        }
        self._tables[shape.name] = {**gone, **rest}

    def set_rows_of_last_batch(self, shape: UpsertShape) -> None:
        """Make the table of a `ReplaceCommitter` what follows from its log: the rows of the last batch of each key."""
        names = [column.name for column in shape.log.fields]
        places = [names.index(key.name) for key in shape.keys]
        log = self._present(shape.log.name)
        last: dict[Key, int] = {}
        for (_, _, origin, _), values in log.items():
            key = tuple(values[at] for at in places)
            last[key] = max(origin, last.get(key, origin))
        kept = {
            (txid, number): values
            for (txid, _, origin, number), values in log.items()
            if last[tuple(values[at] for at in places)] == origin
        }
        gone = dict.fromkeys(self._store.tables[shape.name].keys() - kept.keys())
        self._tables[shape.name] = {**gone, **kept}

    def last_rows(self, committer: CommitterComponent, shape: RowShape) -> CommitterResult | None:
        """Return the rows of the last batch in a table of rows; None if it has none."""
        stored = self._store.tables.get(shape.name, {})
        last = max((key[0] for key in stored), default=None)
        rows = [stored[key] for key in sorted(stored) if key[0] == last]
        return of_rows(committer, rows) if rows else None

    def _present(self, name: str) -> dict[Key, Numbers]:
        """Return the rows of a table as this database transaction sees them."""
        rows = {**self._store.tables[name], **self._tables.get(name, {})}
        return {key: values for key, values in rows.items() if values is not None}

    def rows_of(self, name: str) -> list[dict[str, Any]]:
        """Return the rows of a table as column -> value, as this database transaction sees them. Raises KeyError if
        there is no such table.
        """
        names = [column.name for column in self._store.columns[name]]
        return [dict(zip(names, (*key, *values), strict=True)) for key, values in self._present(name).items()]

    def publish(self) -> None:
        """Copy the draft into the store: the database transaction is committed."""
        for name, draft in self._tables.items():
            changed = {**self._store.tables[name], **draft}
            self._store.tables[name] = {key: numbers for key, numbers in changed.items() if numbers is not None}
        for name, contributions in self._contributions.items():
            self._store.contributions[name] = [*self._store.contributions.get(name, []), *contributions]

    def _rows_of(self, committer: CommitterComponent, result: CommitterResult) -> list[tuple[Any, ...]]:
        """Return the result rows: those in the driver, or all of those in the staging table that count (R10)."""
        if result.staged is None:
            return list(zip(*(column.to_pylist() for column in result.rows.columns), strict=True))
        chosen = {(part.part, part.task_attempt) for part in result.staged.parts}
        stored = self._store.staging.get(result.staged.table, [])
        rows = [row for part, task_attempt, row in stored if (part, task_attempt) in chosen]
        if len(rows) != result.staged.rows:
            raise StagedRowsLost(f"committer {committer.name}: {len(rows)} of {result.staged.rows} rows are left")
        return rows

    def _row(self, name: str, key: Key) -> Numbers | None:
        draft = self._tables.get(name, {})
        return draft[key] if key in draft else self._store.tables.get(name, {}).get(key)

    def _fold(self, shape: TableShape, key: Key, old: Numbers | None, numbers: Numbers) -> Numbers:
        was = old or tuple(0 if column.fold == "add" else None for column in shape.numbers)
        new = tuple(
            after(column, before, more) for column, before, more in zip(shape.numbers, was, numbers, strict=True)
        )
        self._tables.setdefault(f"{shape.schema}.{shape.table}", {})[key] = new
        return new

    def _without(self, shape: TableShape, key: Key, redo_of: int) -> Numbers | None:
        """Return a row whose minima and maxima are recomputed of the contributions of other batches than `redo_of` that
        count.
        """
        name, width = f"{shape.schema}.{shape.table}", 2 + len(shape.keys)
        row = self._row(name, key)
        if row is None or not shape.refolded:
            return row
        kept = self._store.contributions.get(name, [])
        gone = {redo_of, *(one[1] for one in kept)}
        left = [one[width:] for one in kept if one[1] is None and one[0] not in gone and one[2:width] == key]
        made = list(row)
        for at, column in enumerate(shape.numbers):
            if column.fold != "add":
                made[at] = None
                for numbers in left:
                    made[at] = after(column, made[at], numbers[at])
        return tuple(made)


def _check_row(committer: CommitterComponent, shape: TableShape, row: tuple[Any, ...]) -> None:
    """Raise BatchDataError for values that Postgres refuses (P14, text and numbers that it cannot hold)."""
    _check_texts(committer, row)
    count, *_ = numbers = row[len(shape.keys) :]
    if any(value is None and not column.nullable for column, value in zip(shape.numbers, numbers, strict=True)):
        raise _misfit(committer, "a count or sum is NULL")
    if not -BIGINT_MAX - 1 <= count <= BIGINT_MAX:
        raise _misfit(committer, "bigint out of range")


def _check_texts(committer: CommitterComponent, row: Iterable[Any]) -> None:
    for value in row:
        if isinstance(value, str) and ("\0" in value or any("\ud800" <= letter <= "\udfff" for letter in value)):
            raise _misfit(committer, "a text holds NUL or a lone surrogate")


def _misfit(committer: CommitterComponent, reason: str) -> BatchDataError:
    return BatchDataError(
        f"committer {committer.name}: its rows do not fit the table: {reason}", component=committer.name
    )


def _hash(row: tuple[Any, ...]) -> int:
    text = repr([str(value) if isinstance(value, Decimal) else value for value in row])
    return int.from_bytes(hashlib.sha256(text.encode()).digest()[:8], "big", signed=True)
