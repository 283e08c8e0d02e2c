"""Messages become rows, or rejected rows with their offset; hostile ones harm no other."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import date
from decimal import Decimal
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from txtopo.audit.readers.kafka_reader import KafkaReader
from txtopo.core.fields import parse_fields
from txtopo.errors import TopologyError
from txtopo.formats import Csv, Json
from txtopo.spouts.kafka.messages import MessageRows
from txtopo.spouts.kafka_spout import KafkaSpout

JSON = {"kind": "json", "paths": {}}
CSV = {"kind": "csv", **Csv(header=False, null_values=["", "NA"]).layout()}


@dataclass
class Fake:
    """A message."""

    at: int
    body: bytes | None = b"{}"
    name: bytes | None = None
    time: tuple[int, int] = (1, 1_000)
    pairs: Any = None

    def offset(self) -> int:
        return self.at

    def key(self) -> bytes | None:
        return self.name

    def value(self) -> bytes | None:
        return self.body

    def headers(self) -> Any:
        if isinstance(self.pairs, Exception):
            raise self.pairs
        return self.pairs

    def timestamp(self) -> tuple[int, int]:
        return self.time


def emitted(
    fields: str, value: dict[str, Any], *messages: Fake, key: dict[str, Any] | None = None
) -> tuple[list[tuple[Any, ...]], dict[int, str]]:
    """What the audit reads of them is compared."""
    found, kept = MessageRows("t/3", parse_fields(fields), value, key).emit(messages)
    assert found.batch is not None
    assert found.batch.num_rows == len(kept)
    assert found.batch.num_rows + len(found.rejects) == len(messages)
    assert all((one.path, one.unit) == ("t/3", "offset") for one in found.rejects)
    rows = [tuple(row.values()) for row in found.batch.to_pylist()]
    refused = {one.line: one.reason for one in found.rejects}
    recount(fields, value, key, messages, rows, refused)
    return rows, refused


def recount(
    fields: str,
    value: dict[str, Any],
    key: dict[str, Any] | None,
    messages: Sequence[Fake],
    rows: list[tuple[Any, ...]],
    refused: dict[int, str],
) -> None:
    """The audit's reader, with code of its own, has the same rows and refuses the same messages."""
    layout = {"kind": "kafka", "value": value, "isolation": "read_committed", **({"key": key} if key else {})}
    reader = KafkaReader(layout, parse_fields(fields))
    left = iter(rows)
    for message in messages:
        read = reader._judged("t", 3, message)
        row = None if message.at in refused else next(left)
        if read.is_doubtful():
            continue
        assert (read.reason is None) == (row is not None), (message, read.reason, refused.get(message.at))
        if row is not None:
            assert tuple(read.values) == row


def test_each_kind_of_poison_is_a_rejected_row_of_its_own() -> None:
    """Value, key, timestamp: rows of the others stay in order, with their own keys and offsets."""
    rows, refused = emitted(
        "id bigint, _key string, _offset bigint, _timestamp timestamp",
        JSON,
        Fake(10, b'{"id": 1}', b"a"),
        Fake(11, None, b"b"),
        Fake(12, b'{"id": 2}', b"\xff"),
        Fake(13, b'{"id": "3"}', b"c"),
        Fake(14, b'{"id": 4}', b"d", time=(1, 2**62)),
        Fake(16, b'{\n"id": 5\n}', None, time=(0, -1)),
        Fake(17, b"", b"e"),
        Fake(18, b'{"id": 6, "id": 7}', b"f"),
        Fake(19, b'{"id": 8}', b"g", time=(1, -1)),
        Fake(20, b'{"id": 9}', b"h", time=(1, -2)),
    )

    assert [row[:3] for row in rows] == [(1, "a", 10), (5, None, 16), (8, "g", 19), (9, "h", 20)]
    assert [row[3] and row[3].year for row in rows] == [1970, None, None, 1969]  # -1 is no time, of any kind.
    assert list(refused) == [11, 12, 13, 14, 17, 18]
    assert refused[11] == "the message has no value (a tombstone)"
    assert "_key" in refused[12]
    assert "years" in refused[14]
    assert refused[17].startswith("the value is no JSON")


def test_text_and_bytes_keep_what_was_sent() -> None:
    """Without a value they are NULL, unless that is refused; text is UTF-8 without NUL."""
    rows, refused = emitted(
        "_topic string, v string", {"kind": "string"}, Fake(0, b"a\nb"), Fake(1, None), Fake(2, b"\xff")
    )
    assert rows == [("t", "a\nb"), ("t", None)]
    assert list(refused) == [2]
    rows, refused = emitted("v binary not null, _partition int", {"kind": "bytes"}, Fake(0, b"\xff\0"), Fake(1, None))
    assert rows == [(b"\xff\0", 3)]
    assert "NOT NULL" in refused[1]


def test_headers_are_json_in_their_order() -> None:
    """Repeated names stay, bytes that are no text are told apart from text."""
    ((text,),), _ = emitted("_headers string", JSON, Fake(0, pairs=[("a", b"1"), ("a", None), ("b", b"\xff")]))
    assert json.loads(text) == [["a", "1"], ["a", None], ["b", {"base64": "/w=="}]]
    ((none,),), _ = emitted("_headers string", JSON, Fake(0, None))
    assert json.loads(none) == []
    broken = SystemError("returned a result with an exception set")  # As the client does for a name that is no UTF-8.
    rows, refused = emitted(
        "_headers string, _timestamp timestamp",
        JSON,
        Fake(0, pairs=[("a", b"1")]),
        Fake(1, pairs=broken),
        Fake(2, pairs=broken, time=(1, 2**62)),
        Fake(3, pairs=[("b", b"")]),
    )
    assert [json.loads(row[0]) for row in rows] == [[["a", "1"]], [["b", ""]]]
    assert refused == {1: "the name of a header is no UTF-8", 2: "the timestamp is in none of the years 1 to 9999"}


@given(
    st.lists(st.tuples(st.none() | st.binary(max_size=6), st.none() | st.binary(max_size=3), st.integers()), max_size=9)
)
def test_messages_are_judged_alone(scraps: list[tuple[bytes | None, bytes | None, int]]) -> None:
    """A message has the same row or the same reason, whatever stands around it."""
    good = [(b'{"id": %d}' % at, b"k", at) for at in range(3)]
    messages = [
        Fake(at, body, name, (1, time if -(2**63) <= time < 2**63 else 0))
        for at, (body, name, time) in enumerate([*good, *scraps, *good])
    ]
    fields = "id bigint, _key string, _offset bigint, _timestamp timestamp"

    rows, refused = emitted(fields, JSON, *messages)

    alone = [emitted(fields, JSON, message) for message in messages]
    assert rows == [row for found, _ in alone for row in found]
    assert refused == {at: reason for _, wrong in alone for at, reason in wrong.items()}


def test_a_value_is_one_record_of_csv() -> None:
    """With or without a line end; a text is no two records, and no header is expected."""
    rows, refused = emitted(
        "id int, name string, price decimal(5,2), _offset bigint",
        CSV,
        Fake(0, b"1,a,1.50"),
        Fake(1, b'2,"b\n""c""",\r\n'),
        Fake(2, b"3,d,1\n4,e,2"),
        Fake(3, b""),
        Fake(4, b"\n"),
        Fake(5, None),
        Fake(6, b"5,NA"),
        Fake(7, b"5,NA,NA"),
        Fake(8, b'6,"NA,1'),
        Fake(9, b"x,y,1"),
        Fake(10, b'7,"a"b,1'),
        Fake(11, b"\n8,h,1"),
        Fake(12, b"9,\xff,1"),
        Fake(13, b"\xef\xbb\xbf10,h,1"),
        Fake(14, b"11,\xef\xbb\xbfh,1e400"),
        Fake(15, b"12,NA,2\n\n"),
    )
    assert [row[:2] for row in rows] == [(1, "a"), (2, 'b\n"c"'), (5, None)]
    assert [row[3] for row in rows] == [0, 1, 7]
    assert refused[2] == "the value is more than one record of CSV, or text follows a closing quote"
    assert refused[3] == refused[4] == "the value is empty"
    assert refused[6] == "2 columns, declared are 3"
    assert "not closed" in refused[8]
    assert "'x' is no int" in refused[9]
    only = {"kind": "csv", **Csv(header=False, columns=3, delimiter=";", decimal=",").layout()}
    assert emitted("price decimal(5,2)", only, Fake(0, b"1,5;a;b"), Fake(1, b"1.5;a;b"))[0] == [(Decimal("1.50"),)]
    escaped = {"kind": "csv", **Csv(header=False, escape="\\", quote=None, encoding="latin-1").layout()}
    rows, refused = emitted(
        "a string, b string", escaped, Fake(0, b"a\\,b,\xe9"), Fake(1, b"a,b\\"), Fake(2, b"a,b\\\n"), Fake(3, b'"a,b')
    )
    assert rows == [("a,b", "é"), ('"a', "b")]
    assert list(refused) == [1, 2]


@given(st.lists(st.text('a1",\n\r\\', max_size=8), min_size=1, max_size=6), st.sampled_from((None, "\\")))
def test_records_of_csv_are_judged_alone_and_as_the_audit_judges_them(texts: list[str], escape: str | None) -> None:
    """Whatever stands in a value, it takes nothing from its neighbours."""
    layout = {"kind": "csv", **Csv(header=False, escape=escape).layout()}
    messages = [Fake(at, text.encode()) for at, text in enumerate(("1,a", *texts, "1,b"))]
    rows, refused = emitted("n string, s string", layout, *messages)
    alone = [emitted("n string, s string", layout, message) for message in messages]
    assert rows == [row for found, _ in alone for row in found]
    assert refused == {at: reason for _, wrong in alone for at, reason in wrong.items()}
    plain = emitted("n string, s string", layout, *(message for message in messages if message.at not in refused))
    assert plain == (rows, {})


def test_fields_of_the_key_stand_next_to_those_of_the_value() -> None:
    """A message without a key has NULL there, unless that is refused; a key that is none is a rejected row."""
    key = {**JSON, "fields": ["shop"]}
    rows, refused = emitted(
        "id bigint, shop string, _key string",
        JSON,
        Fake(0, b'{"id": 1}', b'{"shop": "a"}'),
        Fake(1, b'{"id": 2}', None),
        Fake(2, b'{"id": 3}', b"{"),
        Fake(3, b"{", b'{"shop": "b"}'),
        Fake(4, None, b'{"shop": "c"}'),
        Fake(5, b'{"id": 6}', b"{}"),
        key=key,
    )
    assert rows == [(1, "a", '{"shop": "a"}'), (2, None, None), (6, None, "{}")]
    assert refused[2].startswith("the key is no JSON")
    assert refused[3].startswith("the value is no JSON")
    assert refused[4].endswith("(a tombstone)")
    rows, refused = emitted(
        "day date, n int not null, v binary",
        {"kind": "bytes"},
        Fake(0, b"x", b"2026-11-01,7"),
        Fake(1, b"y", None),
        Fake(2, None, b"NA,8"),
        key={**CSV, "fields": ["day", "n"]},
    )
    assert rows == [(date(2026, 11, 1), 7, b"x"), (None, 8, None)]
    assert refused == {1: "the message has no key, and n is NOT NULL"}
    rows, _ = emitted("k string", JSON, Fake(0, b"no JSON", b"a"), key={"kind": "string", "fields": ["k"]})
    assert rows == [("a",)]


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"value": Csv()}, "value: a record that stands alone has no header line: say Csv(header=False)"),
        ({"value": Csv(header=False, comment="#")}, "value: a record that stands alone is no comment"),
        ({"value": Csv(header=False, encoding="utf-16")}, "value: encoding 'utf-16' is only for files"),
        ({"key": "json"}, "key says how keys are written, and key_fields which"),
        ({"key_fields": ["a"]}, "key says how keys are written, and key_fields which"),
        ({"key": "json", "key_fields": "a"}, "key_fields 'a' is not a list"),
        ({"key": "json", "key_fields": ["c"]}, "key_fields has 'c', which is no declared field"),
        ({"key": "json", "key_fields": ["a", "a"]}, "or is there twice"),
        ({"key": "json", "key_fields": ["_key"]}, "key_fields has '_key'"),
        ({"key": "xml", "key_fields": ["a"]}, "key 'xml' is none of 'string', 'bytes', 'json', 'csv', and no"),
        ({"key": "string", "key_fields": ["b"]}, "a key of format 'string' is one field of type string, not `b` int"),
        ({"key": Json(paths={"b": "x"}), "key_fields": ["a"]}, "key: paths has 'b'"),
    ],
)
def test_wrong_formats_are_refused_before_anything_starts(settings: dict[str, Any], words: str) -> None:
    """Each in words that name it."""
    with pytest.raises(TopologyError) as refused:
        KafkaSpout("t", "a string, b int, _key string", **settings)
    assert words in str(refused.value)
    good = KafkaSpout("t", "a string, b int", key="csv", key_fields=["a"], value="csv")
    assert good.layout()["key"] == {"kind": "csv", **Csv(header=False).layout(), "fields": ["a"]}
    assert good.describe()["key"] == good.layout()["key"]
