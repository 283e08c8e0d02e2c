"""Rows of the model as a sequence that can also become an Arrow table or a pandas frame."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from dataclasses import fields
from datetime import datetime
from types import NoneType
from typing import (
    TYPE_CHECKING,
    Any,
    ClassVar,
    Generic,
    Literal,
    TypeVar,
    cast,
    get_args,
    get_origin,
    get_type_hints,
    overload,
)

from txtopo.reports.as_json import plain

if TYPE_CHECKING:
    import pandas as pd
    import pyarrow as pa

Row = TypeVar("Row")


class Rows(Sequence[Row], Generic[Row]):
    """Rows of one kind, in order: a sequence of typed values."""

    def __init__(self, kind: type[Row], values: Iterable[Row]) -> None:
        self._kind = kind
        self._values = tuple(values)

    @overload
    def __getitem__(self, index: int) -> Row: ...
    @overload
    def __getitem__(self, index: slice) -> Sequence[Row]: ...
    def __getitem__(self, index: int | slice) -> Row | Sequence[Row]:
        return self._values[index]

    def __len__(self) -> int:
        return len(self._values)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Rows) and (self._kind, self._values) == (other._kind, other._values)

    __hash__: ClassVar[None]  # type: ignore[assignment]

    def __repr__(self) -> str:
        return f"Rows({self._kind.__name__}, {list(self._values)!r})"

    def to_arrow(self) -> pa.Table:
        """Return a table with a column for each field; its types do not depend on the values. Times are in UTC; a field
        that is neither a single value nor a list of them, such as `committers` or `facts`, is JSON text.
        """
        import pyarrow as pa

        hints = get_type_hints(self._kind)
        names = [one.name for one in fields(cast(Any, self._kind)) if one.metadata.get("in_tables", True)]
        types = {name: _arrow_type(hints[name]) for name in names}
        return pa.table(
            {name: pa.array([_cell(getattr(row, name), kind) for row in self], kind) for name, kind in types.items()}
        )

    def to_pandas(self) -> pd.DataFrame:
        """Return the same as a pandas frame."""
        return self.to_arrow().to_pandas()


def _arrow_type(hint: Any) -> Any:
    """Return the Arrow type of a field from its type hint; text if the field becomes JSON."""
    import pyarrow as pa

    simple = {
        int: pa.int64(),
        float: pa.float64(),
        bool: pa.bool_(),
        str: pa.string(),
        datetime: pa.timestamp("us", tz="UTC"),
    }
    given = [one for one in get_args(hint) if one is not NoneType]
    if NoneType in get_args(hint) and len(given) == 1:
        return _arrow_type(given[0])
    if get_origin(hint) is tuple and given[1:] == [Ellipsis] and given[0] in simple:
        return pa.list_(simple[given[0]])
    return pa.string() if get_origin(hint) is Literal else simple.get(hint, pa.string())


def _cell(value: Any, kind: Any) -> Any:
    import pyarrow as pa

    if value is None or not pa.types.is_string(kind) or isinstance(value, str):
        return value
    return json.dumps(plain(value), ensure_ascii=False)
