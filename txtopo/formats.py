"""Formats of files, for `FileSpout(…, format=)`, and the class of which other formats are subclasses: `from
txtopo.formats import Csv`.
"""

from __future__ import annotations

from txtopo.core.values import RejectedRow
from txtopo.spouts.fingerprint import Scan
from txtopo.spouts.formats.csv.csv_format import Csv
from txtopo.spouts.formats.format import Emitted, Format, Opened, PlannedFile, Section
from txtopo.spouts.formats.json_format import Json
from txtopo.spouts.formats.parquet.parquet_format import Parquet
from txtopo.spouts.formats.pattern import Pattern
from txtopo.spouts.formats.text import Text
from txtopo.spouts.kafka.avro_format import Avro
from txtopo.topology.components import Position

__all__ = [
    "Avro",
    "Csv",
    "Emitted",
    "Format",
    "Json",
    "Opened",
    "Parquet",
    "Pattern",
    "PlannedFile",
    "Position",
    "RejectedRow",
    "Section",
    "Scan",
    "Text",
]
