"""Functions and filters over Arrow arrays, for steps that need no Python for each tuple; the built-in ones."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc


class ArrowFilter(ABC):
    """A filter over whole columns: `stream.filter(FilterNull("word"))`."""

    of: tuple[str, ...] = ()
    """Fields that it gets; empty: all, or those that the step names."""

    @abstractmethod
    def keep(self, *columns: pa.Array) -> pa.BooleanArray:
        """Return for each tuple whether it is kept; no NULL."""


class ArrowFunction(ABC):
    """A function over whole columns, for `each`, `map`, `flat_each` and `flat_map`."""

    @abstractmethod
    def rows(self, *columns: pa.Array) -> tuple[Any, Sequence[pa.Array]]:
        """Return the new rows, an array for each declared field, and for each row the number of the tuple that it was
        made of.
        """


class FilterNull(ArrowFilter):
    """Keeps tuples that have a value in all these fields (Trident's FilterNull); without fields, in all."""

    def __init__(self, *fields: str) -> None:
        self.of = fields

    def keep(self, *columns: pa.Array) -> pa.BooleanArray:
        kept = pc.is_valid(columns[0])
        for column in columns[1:]:
            kept = pc.and_(kept, pc.is_valid(column))
        return kept


class Split(ArrowFunction):
    """The words of a text, as `str.split` gives them, without Python for each of them; none for NULL."""

    def rows(self, *columns: pa.Array) -> tuple[Any, Sequence[pa.Array]]:
        (texts,) = columns
        lists = pc.utf8_split_whitespace(texts)
        positions, words = pc.list_parent_indices(lists), pc.list_flatten(lists)
        some = pc.greater(pc.binary_length(words), 0)
        if not pc.all(some, min_count=0).as_py():
            positions, words = positions.filter(some), words.filter(some)
        return positions, [words]
