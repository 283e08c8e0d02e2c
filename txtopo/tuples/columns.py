"""Makes record batches of the declared fields from emitted rows, and names the value that does not fit."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from datetime import date, datetime
from numbers import Integral, Real
from typing import Any, NamedTuple, NoReturn

import pyarrow as pa
import pyarrow.compute as pc

from txtopo.core.fields import FLOAT_MAX, INTEGER_KINDS, Fields
from txtopo.errors import BatchDataError
from txtopo.spouts.arrow_types import arrow_schema
from txtopo.tuples.user_errors import shown_value

_NONE: type = type(None)


class _Kind(NamedTuple):
    """Python values that a kind of field accepts: Arrow accepts more, and changes them silently."""

    usual: frozenset[type]
    """Types that need no further check."""
    fits: tuple[type, ...]
    """All types that fit."""
    refused: tuple[type, ...] = ()
    """Subclasses of them that do not fit."""
    loses: Callable[[Any], bool] | None = None
    """True if a value loses information although its type fits."""
    looks_at_usual: bool = False
    """True if `loses` must also be called for the usual types."""
    surely_fit: Callable[[Sequence[Any]], bool] = lambda values: False
    """True if a quick look at all values shows that they fit."""


def _are_texts(values: Sequence[Any]) -> bool:
    # No text starts behind the end of another. To find that, Python looks at the type of each value, which costs less
    # than a set of their types.
    try:
        return not "".startswith(tuple(values), 1)
    except TypeError:
        return False


def _becomes_infinite(value: Any) -> bool:
    return math.isfinite(value) and abs(value) > FLOAT_MAX


def _has_nanoseconds(value: Any) -> bool:
    # Nanoseconds of pandas' Timestamp, which is a datetime.
    return bool(getattr(value, "nanosecond", 0))


def _is_no_local_time(value: datetime) -> bool:
    return value.tzinfo is not None or _has_nanoseconds(value)


_WHOLE = _Kind(frozenset({int, _NONE}), (Integral,), (bool,))
_KINDS: Mapping[str, _Kind] = {
    **dict.fromkeys(INTEGER_KINDS, _WHOLE),
    "double": _Kind(frozenset({float, int, _NONE}), (Real,), (bool,)),
    "float": _Kind(frozenset({float, int, _NONE}), (Real,), (bool,), _becomes_infinite, looks_at_usual=True),
    "string": _Kind(frozenset({str, _NONE}), (str,), surely_fit=_are_texts),
    "binary": _Kind(frozenset({bytes, _NONE}), (bytes, bytearray, memoryview)),
    "date": _Kind(frozenset({date, _NONE}), (date,), (datetime,)),
    "timestamp": _Kind(frozenset({datetime, _NONE}), (datetime,), (), _has_nanoseconds),
    "timestamp_ntz": _Kind(frozenset({datetime, _NONE}), (datetime,), (), _is_no_local_time, looks_at_usual=True),
}
"""Arrow itself refuses values that are no boolean and no decimal."""


class Refused(BaseException):
    """A value that does not fit, in a traced run. An ordinary run reports it after the bolt returned, so an `except
    Exception` around `emit` must not catch it.
    """

    def __init__(self, error: BatchDataError) -> None:
        super().__init__(str(error))
        self.error = error


class Columns:
    """The declared fields of one output stream of one component."""

    def __init__(self, component: str, stream: str, fields: Fields) -> None:
        self.stream = stream
        self.schema = arrow_schema(fields)
        self._component = component
        self._fields = fields.items
        self.width = len(fields.items)
        self._nullable = [field.nullable for field in fields.items]
        self._kinds = [_KINDS.get(field.type.kind) for field in fields.items]

    def batch(self, values: Sequence[list[Any]]) -> pa.RecordBatch:
        """Return emitted values, one list per field, as a record batch. Raises BatchDataError naming component, stream,
        field and value.
        """
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
        """Return one emitted row as a record batch. Raises BatchDataError if it does not fit."""
        return self.batch(self._apart(values))

    def check(self, values: Any) -> None:
        """Check one emitted row immediately. Raises BatchDataError if an ordinary run raises it at this point too, and
        Refused if an ordinary run finds it later.
        """
        lists = self._apart(values)
        try:
            self.batch(lists)
        except BatchDataError as error:
            raise Refused(error) from error

    def check_kind(self, values: Any) -> None:
        """Raise for a row that is no list, tuple or similar sequence: a text or a dict is a sequence of other things
        than values.
        """
        if isinstance(values, str | bytes | bytearray | memoryview) or not isinstance(values, Sequence):
            raise self._error(
                f"emitted {shown_value(values)} ({type(values).__name__}); a list or tuple of {self.width} values is "
                f"wanted"
            )

    def refuse(self, values: Any) -> NoReturn:
        """Raise for a row with more or fewer values than fields."""
        names = ", ".join(field.name for field in self._fields)
        shown = ", ".join(map(shown_value, values))
        raise self._error(f"emitted {len(values)} values ({shown}); it declares {self.width} fields ({names})")

    def fitted(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """Return a record batch that a bolt or a spout emitted, with its columns in the declared order, matched by
        name, and with the declared types. Raises BatchDataError.
        """
        if not isinstance(batch, pa.RecordBatch):
            raise self._error(f"emitted {shown_value(batch)} ({type(batch).__name__}), a RecordBatch is wanted")
        if sorted(batch.schema.names) != sorted(self.schema.names):
            raise self._error(
                f"emitted columns {', '.join(batch.schema.names)}; it declares {', '.join(self.schema.names)}"
            )
        arrays = []
        for field, declared in zip(self._fields, self.schema, strict=True):
            column = batch.column(field.name)
            try:
                array = column if column.type == declared.type else cast_column(column, declared.type)
            except Exception as error:
                raise self._error(f"field {field.name}: {column.type} is no {field.type} ({error})") from error
            if array.null_count and not field.nullable:
                raise self._error(f"field {field.name}: NULL, but it is declared NOT NULL")
            arrays.append(array)
        return pa.RecordBatch.from_arrays(arrays, schema=self.schema)

    def _apart(self, values: Any) -> list[list[Any]]:
        lists: list[list[Any]] = [[] for _ in range(self.width)]
        adder(lists, self)(values)
        return lists

    def _loses(self, at: int, values: Sequence[Any]) -> bool:
        """True if Arrow would change a value silently: remove decimal places or the time of a day, or read bytes as
        text.
        """
        kind = self._kinds[at]
        if kind is None or kind.surely_fit(values):
            return False
        strange = set(map(type, values)) - kind.usual
        if any(not issubclass(found, kind.fits) or issubclass(found, kind.refused) for found in strange):
            return True
        if kind.loses is None or not (strange or kind.looks_at_usual):
            return False
        return any(value is not None and kind.loses(value) for value in values)

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


_FAMILIES: Sequence[tuple[Callable[[pa.DataType], bool], Callable[[pa.DataType], bool]]] = (
    (pa.types.is_integer, lambda to: pa.types.is_integer(to) or pa.types.is_floating(to) or pa.types.is_decimal(to)),
    (pa.types.is_floating, pa.types.is_floating),
    (pa.types.is_decimal, pa.types.is_decimal),
    (lambda of: pa.types.is_large_string(of) or pa.types.is_string_view(of), pa.types.is_string),
    (
        lambda of: pa.types.is_large_binary(of) or pa.types.is_binary_view(of) or pa.types.is_fixed_size_binary(of),
        pa.types.is_binary,
    ),
    (pa.types.is_date, pa.types.is_date),
    (pa.types.is_null, lambda to: True),
)
"""Arrow types that may be cast to each other: the same values in another format."""


def cast_column(column: pa.Array, to: pa.DataType) -> pa.Array:
    """Return the same values in the declared type. Raises ValueError or ArrowInvalid if the cast would change them, or
    if they are of another kind: text for a number, for example.
    """
    of = column.type
    if pa.types.is_dictionary(of):
        return cast_column(column.dictionary_decode(), to)
    if pa.types.is_timestamp(of) and pa.types.is_timestamp(to):
        allowed = (of.tz is None) == (to.tz is None)
    else:
        allowed = of == to or any(is_of(of) and is_to(to) for is_of, is_to in _FAMILIES)
    if not allowed:
        raise ValueError("a value of another kind: convert it in the bolt")
    if pa.types.is_integer(of) and pa.types.is_decimal(to):
        # Arrow requires room for every number of the type; here only the existing numbers must fit.
        return column.cast(pa.decimal128(20, 0)).cast(to)
    made = column.cast(to)
    if pa.types.is_floating(of) and pc.any(pc.and_(pc.is_inf(made), pc.invert(pc.is_inf(column)))).as_py():
        raise ValueError("a value would become infinite")
    return made


def adder(lists: Sequence[list[Any]], columns: Columns) -> Callable[[Any], None]:
    """Return a function that appends a row's values to `lists`. It stores only the values: Python can free the row,
    which was made for one call.
    """
    appends = [values.append for values in lists]
    width, refuse, check_kind = columns.width, columns.refuse, columns.check_kind

    def add(values: Any) -> None:
        if type(values) is not tuple and type(values) is not list:
            check_kind(values)
        if len(values) != width:
            refuse(values)
        for put, value in zip(appends, values, strict=True):
            put(value)

    return add
