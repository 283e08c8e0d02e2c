"""Declared fields: the DDL parser, and their Arrow types."""

from __future__ import annotations

import pyarrow as pa
import pytest

from txtopo.core.fields import parse_fields
from txtopo.errors import TopologyError
from txtopo.spouts.arrow_types import arrow_schema


def test_names_types_and_nullability_are_read() -> None:
    fields = parse_fields(
        "carrier string, `air ``time`: INTEGER NOT NULL, price decimal(10,2) not null, n numeric(5), d dec"
    )

    assert fields.names == ("carrier", "air `time", "price", "n", "d")
    assert [str(field.type) for field in fields.items] == [
        "string",
        "int",
        "decimal(10,2)",
        "decimal(5,0)",
        "decimal(10,0)",
    ]
    assert [field.nullable for field in fields.items] == [True, False, False, True, True]


def test_ddl_of_fields_reads_back_as_the_same_fields() -> None:
    """The plan carries the schema itself (R12), so its text must say all."""
    fields = parse_fields("a string not null, `b c` decimal(38,9), `d``e` timestamp_ntz, f binary")

    assert parse_fields(fields.ddl) == fields


@pytest.mark.parametrize(
    ("ddl", "complaint"),
    [
        ("", "at least one field"),
        ("a", "a has no type"),
        ("a strin", "unknown type 'strin'"),
        ("a int,", "nothing follows"),
        ("a int b int", "expected a comma"),
        ("a int, a string", "a declared twice"),
        ("a decimal(39,0)", "precision"),
        ("a decimal(5,6)", "scale"),
        ("a decimal(5,2", "not closed"),
        ("a int(5)", "takes no arguments"),
        (", a int", "expected a name"),
        ("a int not", "expected a comma"),
    ],
)
def test_a_mistake_is_named(ddl: str, complaint: str) -> None:
    with pytest.raises(TopologyError, match=complaint):
        parse_fields(ddl)


def test_arrow_types_are_those_that_spark_uses() -> None:
    ddl = (
        "a string, b boolean, c tinyint, d smallint, e int, f bigint, g float, h double, i decimal(7,3), j date, k "
        "timestamp, l timestamp_ntz, m binary"
    )

    types = arrow_schema(parse_fields(ddl)).types

    assert types[:8] == [
        pa.string(),
        pa.bool_(),
        pa.int8(),
        pa.int16(),
        pa.int32(),
        pa.int64(),
        pa.float32(),
        pa.float64(),
    ]
    assert types[8:] == [pa.decimal128(7, 3), pa.date32(), pa.timestamp("us", "UTC"), pa.timestamp("us"), pa.binary()]


@pytest.mark.parametrize(
    "ddl", ['"Origin State" string', "Origin State string", "n int, 'Origin State' string not null"]
)
def test_a_name_with_blanks_is_told_with_its_backticks(ddl: str) -> None:
    with pytest.raises(TopologyError, match="write a name with blanks in backticks: `Origin State`"):
        parse_fields(ddl)
    assert parse_fields("`Origin State` string").names == ("Origin State",)


def test_a_text_is_parsed_once() -> None:
    """Every part of a batch asks for the fields of its plan; an error is raised each time."""
    assert parse_fields("shop string, n int") is parse_fields("shop string, n int")
    assert parse_fields("shop string, n bigint") != parse_fields("shop string, n int")
    for _ in range(2):
        with pytest.raises(TopologyError, match="unknown type"):
            parse_fields("shop text_of_some_kind")
