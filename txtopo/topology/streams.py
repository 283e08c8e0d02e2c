"""Streams and tuples: what a component declares to emit, and what downstream components receive."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from txtopo.core.fields import Fields

DEFAULT_STREAM = "default"


@dataclass(frozen=True, slots=True)
class Stream:
    """A declared output stream: Storm's OutputFieldsDeclarer.declareStream, with types.

    >>> Stream("word string, n bigint", name="counts").name
    'counts'
    """

    fields: str | Fields
    """Fields of its tuples as DDL, such as `word string, n bigint`."""
    name: str = DEFAULT_STREAM
    direct: bool = False
    """True: the emitter chooses the receiving task (`emit_direct`), and downstream components use a direct grouping."""


class MissingField(KeyError):
    """Raised when a field is read that the stream does not declare."""

    def __str__(self) -> str:
        return str(self.args[0])


class _Positions(dict[str | int, int]):
    """Position of each field. A failed look-up raises an error that lists the fields; a successful one has no extra
    cost.
    """

    def __missing__(self, field: object) -> int:
        there = [name for name in self if isinstance(name, str)]
        raise MissingField(f"the tuple has no field {field!r}; it has {', '.join(there)}")


class Origin:
    """What all tuples of one received record batch have in common; made by the runtime."""

    __slots__ = ("component", "fields", "ids", "index", "number", "positions", "roots", "stream", "task")

    def __init__(
        self, component: str, stream: str, task: int, fields: Fields, *, ids: Any = None, roots: Any = None
    ) -> None:
        self.component: str = component
        self.stream: str = stream
        self.task: int = task
        """Id of the emitting task; below 0 for tasks of spouts."""
        self.fields: Fields = fields
        count = len(fields.names)
        # By position too, from both ends: `tup[...]` is then one look-up, whatever it is given.
        places: dict[str | int, int] = {
            **{name: at for at, name in enumerate(fields.names)},
            **{at: at % count for at in range(-count, count)},
        }
        self.positions: Mapping[str | int, int] = _Positions(places)
        self.ids: Any = ids
        """Tuple ids by row; None without ackers."""
        self.roots: Any = roots
        """Ids of the spout tuples that each row originates from; None unless every tuple is tracked."""
        self.number: int | None = None
        """Number by which the receiver identifies it when it records acked tuples; unique in the process."""


class Tuple:
    """A tuple as a bolt receives it: values with field names, and their origin (Storm's Tuple).

    `tup["word"]` and `tup[0]` return one value; `tup.values` has all values.
    """

    __slots__ = ("_origin", "_row", "values")

    def __init__(self, values: Sequence[Any], origin: Origin, row: int = 0) -> None:
        self.values: Sequence[Any] = values
        self._origin = origin
        self._row = row

    def __getitem__(self, field: str | int) -> Any:
        """Return the value of a field, by name or position. Raises KeyError for a field that the stream does not
        declare.
        """
        return self.values[self._origin.positions[field]]

    def __iter__(self) -> Iterator[Any]:
        return iter(self.values)

    def __len__(self) -> int:
        return len(self.values)

    @property
    def component(self) -> str:
        """Name of the component that emitted the tuple."""
        return self._origin.component

    @property
    def stream(self) -> str:
        """Name of the stream on which it was emitted."""
        return self._origin.stream

    @property
    def task(self) -> int:
        """Id of the task that emitted the tuple; below 0 for tasks of spouts."""
        return self._origin.task

    @property
    def fields(self) -> Fields:
        """Declared fields of the stream."""
        return self._origin.fields

    def as_dict(self) -> Mapping[str, Any]:
        """Return the values by field name."""
        return dict(zip(self._origin.fields.names, self.values, strict=True))

    def __repr__(self) -> str:
        shown = ", ".join(f"{name}={value!r}" for name, value in self.as_dict().items())
        return f"Tuple({self.component}:{self.stream} {shown})"
