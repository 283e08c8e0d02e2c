"""Turn emitted rows into record batches of the declared fields, and say which value does not fit."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from datetime import date, datetime
from numbers import Integral
from typing import Any, NoReturn

import pyarrow as pa

from txtopo.core.fields import INTEGER_KINDS, Fields
from txtopo.errors import BatchDataError
from txtopo.spouts.arrow_types import arrow_schema
from txtopo.tuples.frames import shown_value

_Kinds = tuple[frozenset[type], tuple[type, ...], tuple[type, ...]]
_NONE: type = type(None)
_WHOLE: _Kinds = (frozenset({int, _NONE}), (Integral,), (bool,))
_DATE: _Kinds = (frozenset({date, _NONE}), (date,), (datetime,))
_TIME: _Kinds = (frozenset({datetime, _NONE}), (datetime,), ())
_EXACT: Mapping[str, _Kinds] = {
    **dict.fromkeys(INTEGER_KINDS, _WHOLE),
    "date": _DATE,
    "timestamp": _TIME,
    "timestamp_ntz": _TIME,
}
"""By kind of field: the usual Python types; all types that fit; and those among them that do not."""


class Columns:
    """The declared fields of one output stream of one component."""

    def __init__(self, component: str, stream: str, fields: Fields) -> None:
        self.stream = stream
        self.schema = arrow_schema(fields)
        self._component = component
        self._fields = fields.items
        self.width = len(fields.items)
        self._nullable = [field.nullable for field in fields.items]
        self._exact = [_EXACT.get(field.type.kind) for field in fields.items]

    def batch(self, values: Sequence[list[Any]]) -> pa.RecordBatch:
        """Emitted values, a list a field, as a record batch. Raises BatchDataError naming component, stream, field and value."""
        arrays = []
        for at, column in enumerate(values):
            try:
                array = pa.array(column, type=self.schema.field(at).type)
            except Exception:
                self._refuse_first(at, column)
            if (array.null_count and not self._nullable[at]) or self._loses(at, column):
                self._refuse_first(at, column)
            arrays.append(array)
        return pa.RecordBatch.from_arrays(arrays, schema=self.schema)

    def row(self, values: Any) -> pa.RecordBatch:
        """One emitted row as a record batch. Raises BatchDataError where it does not fit."""
        lists: list[list[Any]] = [[] for _ in range(self.width)]
        adder(lists, self)(values)
        return self.batch(lists)

    def check_kind(self, values: Any) -> None:
        """Raise for a row that is no list, tuple or the like: a text or a dict is a sequence of other things than values."""
        if isinstance(values, str | bytes) or not isinstance(values, Sequence):
            raise self._error(
                f"emitted {shown_value(values)} ({type(values).__name__}); a list or tuple of {self.width} values is wanted"
            )

    def refuse(self, values: Any) -> NoReturn:
        """Raise for a row of more or fewer values than fields."""
        names = ", ".join(field.name for field in self._fields)
        shown = ", ".join(map(shown_value, values))
        raise self._error(f"emitted {len(values)} values ({shown}); it declares {self.width} fields ({names})")

    def fitted(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """A record batch that a bolt emitted, its columns in the declared types. Raises BatchDataError."""
        if not isinstance(batch, pa.RecordBatch):
            raise self._error(f"emitted {shown_value(batch)} ({type(batch).__name__}), a RecordBatch is wanted")
        if batch.schema.names != self.schema.names:
            raise self._error(
                f"emitted columns {', '.join(batch.schema.names)}; it declares {', '.join(self.schema.names)}"
            )
        arrays = []
        for field, declared, column in zip(self._fields, self.schema, batch.columns, strict=True):
            try:
                array = column if column.type == declared.type else column.cast(declared.type)
            except Exception as error:
                raise self._error(f"field {field.name}: {column.type} is no {field.type} ({error})") from error
            if array.null_count and not field.nullable:
                raise self._error(f"field {field.name}: NULL, but it is declared NOT NULL")
            arrays.append(array)
        return pa.RecordBatch.from_arrays(arrays, schema=self.schema)

    def _loses(self, at: int, values: Sequence[Any]) -> bool:
        """Would Arrow change a value without a word: cut off digits behind the point, or the time of a day, or take a number for a time?"""
        known = self._exact[at]
        if known is None:
            return False
        found = set(map(type, values))
        if found <= known[0]:
            return False
        return any(not issubclass(kind, known[1]) or issubclass(kind, known[2]) for kind in found - known[0])

    def _refuse_first(self, at: int, values: Sequence[Any]) -> NoReturn:
        field, kind = self._fields[at], self.schema.field(at).type
        for value in values:
            if value is None:
                if not field.nullable:
                    raise self._error(f"field {field.name}: NULL, but it is declared NOT NULL")
                continue
            try:
                pa.array([value], type=kind)
            except Exception as error:
                raise self._error(
                    f"field {field.name}: {shown_value(value)} ({type(value).__name__}) is no {field.type}: {error}"
                ) from error
            if self._loses(at, [value]):
                raise self._error(
                    f"field {field.name}: {shown_value(value)} ({type(value).__name__}) is no {field.type}"
                )
        raise self._error(f"field {field.name}: the values do not fit {field.type} together")

    def _error(self, what: str) -> BatchDataError:
        return BatchDataError(f"{self._component}, stream {self.stream}: {what}", component=self._component)


def adder(lists: Sequence[list[Any]], columns: Columns) -> Callable[[Any], None]:
    """A function that puts a row's values at the end of `lists`. Values are kept apart at once: the row itself, made for one call, is free again."""
    appends = [values.append for values in lists]
    width, refuse, check_kind = columns.width, columns.refuse, columns.check_kind

    def add(values: Any) -> None:
        if type(values) is not list and type(values) is not tuple:
            check_kind(values)
        if len(values) != width:
            refuse(values)
        for put, value in zip(appends, values, strict=True):
            put(value)

    return add
