"""Messages become rows, or rejected rows with their offset; hostile ones harm no other."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from txtopo.core.fields import parse_fields
from txtopo.spouts.kafka.messages import MessageRows

JSON = {"kind": "json", "paths": {}}


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
        return self.pairs

    def timestamp(self) -> tuple[int, int]:
        return self.time


def emitted(fields: str, value: dict[str, Any], *messages: Fake) -> tuple[list[tuple[Any, ...]], dict[int, str]]:
    found, kept = MessageRows("t/3", parse_fields(fields), value).emit(messages)
    assert found.batch is not None
    assert found.batch.num_rows == len(kept)
    assert found.batch.num_rows + len(found.rejects) == len(messages)
    assert all((one.path, one.unit) == ("t/3", "offset") for one in found.rejects)
    return [tuple(row.values()) for row in found.batch.to_pylist()], {one.line: one.reason for one in found.rejects}


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
    )

    assert [(row[0], row[1], row[2]) for row in rows] == [(1, "a", 10), (5, None, 16)]
    assert rows[1][3] is None
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
