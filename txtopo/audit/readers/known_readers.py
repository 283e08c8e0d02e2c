"""The table of the audit's readers: from the layout in a plan to the code that reads its files again."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from txtopo.audit.readers.csv_reader import CsvReader
from txtopo.audit.readers.parquet_reader import ParquetReader
from txtopo.audit.readers.reader import Reader

READERS: Mapping[str, type[Reader]] = {one.kind: one for one in (CsvReader, ParquetReader)}
"""Kind of a layout -> its reader."""
_OF_THE_SPOUT = ("kind", "part_bytes")


def settings_of(layout: Mapping[str, Any]) -> dict[str, Any]:
    """Return what a layout says of the format."""
    return {name: value for name, value in layout.items() if name not in _OF_THE_SPOUT}
