"""Records of Avro in messages: what is declared is given exactly, what is no record is a rejected row, and the audit
decodes them with its own code.
"""

from __future__ import annotations

import io
import json
from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Any

import fastavro
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from tests.unit.spouts.test_kafka_messages import Fake, emitted
from txtopo.core.fields import parse_fields
from txtopo.errors import BatchDataError, TopologyError
from txtopo.formats import Avro
from txtopo.spouts.kafka.avro_lines import AvroLines
from txtopo.spouts.kafka.avro_schema import without_logical
from txtopo.spouts.kafka_spout import KafkaSpout

ORDER: dict[str, Any] = {
    "type": "record",
    "name": "shop.Order",
    "fields": [
        {"name": "id", "type": "long"},
        {"name": "n", "type": ["null", "int"]},
        {"name": "more", "type": {"type": "array", "items": ["null", "string", {"type": "map", "values": "double"}]}},
        {"name": "price", "type": {"type": "bytes", "logicalType": "decimal", "precision": 8, "scale": 2}},
        {"name": "kind", "type": {"type": "enum", "name": "Kind", "symbols": ["TEA", "CUP"]}},
        {"name": "day", "type": {"type": "int", "logicalType": "date"}},
        {"name": "sold", "type": {"type": "long", "logicalType": "timestamp-millis"}},
        {"name": "local", "type": [{"type": "long", "logicalType": "local-timestamp-micros"}, "null"]},
        {
            "name": "buyer",
            "type": [
                "null",
                {
                    "type": "record",
                    "name": "Buyer",
                    "fields": [{"name": "name", "type": "string"}, {"name": "k", "type": "Kind"}],
                },
            ],
        },
        {"name": "code", "type": {"type": "fixed", "name": "Code", "size": 2}},
        {"name": "ok", "type": "boolean"},
        {"name": "f", "type": "float"},
        {"name": "d", "type": {"type": "double"}},
    ],
}
FIELDS = (
    "id bigint, n bigint, price decimal(10,4), kind string, day date, sold timestamp, local timestamp_ntz, "
    "buyer string, buys string, code binary, ok boolean, f double, d double"
)
PATHS: dict[str, str | tuple[str, ...]] = {"buyer": ("buyer", "name"), "buys": ("buyer", "k")}
GOOD: dict[str, Any] = {
    "id": 2**63 - 1,
    "n": None,
    "more": ["a", None, {"x": 1.5}],
    "price": Decimal("-17.05"),
    "kind": "CUP",
    "day": date(1969, 12, 31),
    "sold": datetime(2026, 11, 1, 12, 0, 0, 123000, UTC),
    "local": datetime(1, 1, 1),
    "buyer": {"name": "ä", "k": "TEA"},
    "code": b"\xff\0",
    "ok": True,
    "f": 0.5,
    "d": -1e300,
}


def layout(format_: Avro) -> dict[str, Any]:
    return {"kind": "avro", **format_.layout()}


def written(schema: Any, record: Any) -> bytes:
    stream = io.BytesIO()
    fastavro.schemaless_writer(stream, fastavro.parse_schema(schema), record)
    return stream.getvalue()


def test_a_record_has_its_values_exactly() -> None:
    """Logical types, nested values, NULL; what is not declared is passed over."""
    values = layout(Avro(json.dumps(ORDER), paths=PATHS))
    other = {**GOOD, "n": -5, "buyer": None, "local": None, "price": Decimal("999999.99")}
    rows, refused = emitted(
        FIELDS, values, Fake(0, written(ORDER, GOOD)), Fake(1, written(ORDER, other)), Fake(2, None)
    )
    sold, code = GOOD["sold"], GOOD["code"]
    rest = (code, True, 0.5, -1e300)
    price = Decimal("-17.0500")
    day = date(1969, 12, 31)
    assert rows == [
        (2**63 - 1, None, price, "CUP", day, sold, datetime(1, 1, 1), "ä", "TEA", *rest),
        (2**63 - 1, -5, Decimal("999999.9900"), "CUP", day, sold, None, None, None, *rest),
    ]
    assert refused == {2: "the message has no value (a tombstone)"}


SMALL: dict[str, Any] = {
    "type": "record",
    "name": "r",
    "fields": [
        {"name": "n", "type": "int"},
        {"name": "t", "type": "string"},
        {"name": "p", "type": {"type": "bytes", "logicalType": "decimal", "precision": 3, "scale": 1}},
        {"name": "at", "type": {"type": "long", "logicalType": "timestamp-micros"}},
        {"name": "u", "type": ["null", "boolean", "double"]},
    ],
}
SMALL_FIELDS = "n int not null, t string, p decimal(3,1), at timestamp"


def test_what_is_no_record_is_a_rejected_row() -> None:
    """Cut off, followed by more, not UTF-8, out of range: each alone, with its reason."""
    good = written(SMALL, {"n": 1, "t": "a", "p": Decimal("99.9"), "at": datetime(2026, 1, 1, tzinfo=UTC), "u": True})
    at = good[:4] + good[4:]
    too_long = written(SMALL, {"n": 1, "t": "a", "p": b"\x27\x0f", "at": 0, "u": None})
    rows, refused = emitted(
        SMALL_FIELDS,
        layout(Avro(SMALL)),
        Fake(0, good),
        Fake(1, good[:-1]),
        Fake(2, good + b"\0"),
        Fake(3, b""),
        Fake(4, at.replace(b"\x02a", b"\x02\xff")),
        Fake(5, at.replace(b"\x02a", b"\x02\0")),
        Fake(6, too_long),
        Fake(7, written(SMALL, {"n": 1, "t": "", "p": b"", "at": 2**62, "u": None})),
        Fake(8, b"\xfe\xff\xff\xff\x7f" + good[1:]),
        Fake(9, good[:-2] + b"\x06"),
        Fake(10, good),
    )
    assert [row[:3] for row in rows] == [(1, "a", Decimal("99.9"))] * 2
    assert refused[1] == refused[3] == "the value is no Avro: it ends in a value"
    assert refused[2] == "the value is no Avro: 1 bytes are left after the record"
    assert "utf-8" in refused[4]
    assert "NUL" in refused[5]
    assert refused[6] == "column 'p': a number of 2 bytes is no decimal(3,1)"
    assert refused[7] == f"column 'at': {2**62} is no timestamp"
    assert "is no int" in refused[8]
    assert refused[9] == "the value is no Avro: a number of a type or symbol is out of range"
    assert list(refused) == [1, 2, 3, 4, 5, 6, 7, 8, 9]


@given(st.lists(st.binary(max_size=14), max_size=5))
@example([b"\xff" * 14])
@example([b"\2\2a\0\0\1"])
def test_any_bytes_are_judged_alone_and_as_the_audit_judges_them(scraps: list[bytes]) -> None:
    """Also such as no writer makes."""
    good = written(SMALL, {"n": 1, "t": "a", "p": Decimal("9.5"), "at": 5, "u": None})
    messages = [Fake(at, raw) for at, raw in enumerate((good, *scraps, good))]
    rows, refused = emitted(SMALL_FIELDS, layout(Avro(SMALL)), *messages)
    alone = [emitted(SMALL_FIELDS, layout(Avro(SMALL)), message) for message in messages]
    assert rows == [row for found, _ in alone for row in found]
    assert refused == {at: reason for _, wrong in alone for at, reason in wrong.items()}


MANY: dict[str, Any] = {
    "type": "record",
    "name": "r",
    "fields": [
        {"name": "n", "type": ["int", "null"]},
        {"name": "t", "type": ["null", "string"]},
        {"name": "p", "type": ["null", {"type": "bytes", "logicalType": "decimal", "precision": 3, "scale": 1}]},
        {"name": "day", "type": {"type": "int", "logicalType": "date"}},
        {"name": "ms", "type": ["null", {"type": "long", "logicalType": "timestamp-millis"}]},
        {"name": "us", "type": {"type": "long", "logicalType": "local-timestamp-micros"}},
        {"name": "f", "type": "float"},
        {"name": "b", "type": ["null", "boolean"]},
    ],
}
MANY_FIELDS = (
    "n bigint, t string, p decimal(6,2), day date, ms timestamp, us timestamp_ntz, f double, b boolean not null"
)
WRITTEN: Any = without_logical(MANY)
"""What a writer makes that keeps to no type: an int of any size."""
WRITTEN["fields"][0]["type"] = ["long", "null"]
LONG = st.sampled_from([0, -1, 2**63 - 1, -(2**63), 253402300799999, 253402300800000, -62135596800000, -62135596800001])
RECORD = st.fixed_dictionaries(
    {
        "n": st.none() | st.sampled_from([0, -(2**31), 2**31 - 1, 2**31, -(2**31) - 1]),
        "t": st.none() | st.text("a\0é", max_size=3),
        "p": st.none()
        | st.sampled_from([b"", b"\xff", b"\x01\x86\x9f", b"\x01\x86\xa0", b"\xfe\x79\x61", b"\xfe\x79\x60"]),
        "day": st.sampled_from([0, -719162, -719163, 2932896, 2932897]),
        "ms": st.none() | LONG,
        "us": st.sampled_from([0, 253402300799999999, 253402300800000000, -62135596800000000]) | LONG,
        "f": st.sampled_from([0.5, -1.0]),
        "b": st.none() | st.booleans(),
    }
)


@given(st.lists(RECORD, min_size=1, max_size=4), st.booleans())
def test_records_that_are_converted_together_have_the_values_of_each_alone(records: list[Any], numbered: bool) -> None:
    """Field by field where all records fit, one by one where one may not: the same rows, at each bound of each type."""
    chosen = Avro(schemas={7: MANY}) if numbered else Avro(MANY)
    pair = AvroLines(parse_fields(MANY_FIELDS), chosen)
    lines = [(b"\0\0\0\0\7" if numbered else b"") + written(WRITTEN, record) for record in records]
    alone = pair.sift(lines)
    together = pair.whole(lines)
    assert (together is None) == bool(alone.refused)
    assert together is None or together.equals(alone.batch)


def test_messages_name_their_schema_by_number() -> None:
    """A field that only a later schema has is NULL before; a number that is not known fails the batch."""
    old = {"type": "record", "name": "r", "fields": [{"name": "a", "type": "int"}]}
    new = {"type": "record", "name": "r", "fields": [{"name": "b", "type": "string"}, {"name": "a", "type": "long"}]}
    chosen = Avro(schemas={7: old, 300: json.dumps(new)})
    first, second = b"\0\0\0\0\7" + written(old, {"a": 1}), b"\0\0\0\1\x2c" + written(new, {"a": 2**40, "b": "x"})
    rows, refused = emitted(
        "a bigint, b string",
        layout(chosen),
        Fake(0, first),
        Fake(1, second),
        Fake(2, b"\1" + first[1:]),
        Fake(3, b"\0"),
    )
    assert rows == [(1, None), (2**40, "x")]
    assert refused[2] == refused[3] == "the value is no Avro: it does not begin with the number of a schema"
    spout = KafkaSpout("t", "a bigint, b string", value=chosen)
    assert json.loads(json.dumps(spout.layout())) == spout.layout()
    from txtopo.spouts.kafka.messages import MessageRows

    rows_of = MessageRows("t/0", parse_fields("a bigint"), layout(chosen))
    with pytest.raises(BatchDataError, match="a message has schema 8, which is not among those") as unknown:
        rows_of.emit([Fake(0, b"\0\0\0\0\x08\2")])
    assert unknown.value.halts


def record(*fields: Any) -> dict[str, Any]:
    return {"type": "record", "name": "r", "fields": [{"name": f"f{at}", "type": one} for at, one in enumerate(fields)]}


@pytest.mark.parametrize(
    ("schema", "fields", "words"),
    [
        ('"int"', "f0 int", "its schema is 'int', not a record"),
        ("{", "f0 int", "the schema is no JSON"),
        (record("long"), "f0 int", "f0 is declared int, and f0 of the schema is long: declare it as bigint"),
        (record("string"), "f1 string", "no schema has f1"),
        (record(["int", "string"]), "f0 int", "is one of 2 types: only null and one type"),
        (record({"type": "long", "logicalType": "timestamp-nanos"}), "f0 bigint", "timestamp-nanos: it is not read"),
        (record({"type": "long", "logicalType": "timestamp-micros"}), "f0 bigint", "declare it as timestamp"),
        (record({"type": "bytes", "logicalType": "decimal", "precision": 9}), "f0 decimal(8,0)", "which decimal(8,0)"),
        (record({"type": "bytes", "logicalType": "decimal"}), "f0 decimal(8,0)", "without right precision"),
        (record({"type": "array", "items": "int"}), "f0 string", "f0 of the schema is array: it is not read"),
        (record({"type": "array", "items": "null"}, "int"), "f1 int", "an array of values without bytes"),
        (record("int", ["null", "r"]), "f0 int", "its schema has r, which is in itself"),
        (record("Other"), "f0 int", "'Other', which is no type"),
        (record({"type": "enum", "name": "e"}), "f0 string", "an enum e without symbols"),
        (record({"type": "fixed", "name": "e"}), "f0 binary", "a fixed e without size"),
        (record([]), "f0 binary", "a union of nothing"),
        ({"type": "record", "name": "r"}, "f0 int", "a record r without fields"),
        ({"type": "record", "fields": []}, "f0 int", "a record without a name"),
    ],
)
def test_what_cannot_be_read_exactly_is_refused_before_anything_starts(schema: Any, fields: str, words: str) -> None:
    """In words that name field and type."""
    with pytest.raises(TopologyError) as refused:
        KafkaSpout("t", fields, value=Avro(schema))
    assert words in str(refused.value)


def test_schemas_are_given_in_one_way() -> None:
    """One, or several by number."""
    for settings in ({}, {"schema": SMALL, "schemas": {1: SMALL}}, {"schemas": {-1: SMALL}}, {"schemas": {"1": SMALL}}):
        with pytest.raises(TopologyError, match="Avro: "):
            Avro(**settings)
    assert layout(Avro.of(Avro(SMALL).layout())) == layout(Avro(SMALL))
    assert layout(Avro.of(Avro(schemas={3: SMALL}).layout())) == layout(Avro(schemas={3: SMALL}))
