"""Declared outputs of tuple bolts and committers: what they may say, and what is refused."""

from __future__ import annotations

import pytest

from txtopo.bolts import Stream
from txtopo.core.fields import Fields, parse_fields
from txtopo.errors import TopologyError
from txtopo.topology.outputs import fields_of, parse_outputs, parse_result


def test_text_entries_are_the_default_stream_and_streams_come_under_their_names() -> None:
    """PY-01: several streams, the default one from plain text; each with parsed fields, in their order."""
    streams = parse_outputs("bolt 'b'", ["word string", Stream("line string", name="errors"), "n bigint not null"])

    assert {name: (fields_of(stream).ddl, stream.direct) for name, stream in streams.items()} == {
        "default": ("`word` string, `n` bigint NOT NULL", False),
        "errors": ("`line` string", False),
    }
    assert all(isinstance(stream.fields, Fields) for stream in streams.values())
    assert list(streams) == ["default", "errors"]


def test_a_stream_may_be_direct_and_may_come_with_parsed_fields() -> None:
    fields = parse_fields("n int")

    assert parse_outputs("b", (Stream(fields, name="told", direct=True),)) == {
        "told": Stream(fields, name="told", direct=True)
    }


def test_nothing_declared_is_no_stream() -> None:
    assert parse_outputs("b", ()) == {}
    assert parse_result("b", ()) is None


@pytest.mark.parametrize(
    ("outputs", "kind", "complaint"),
    [
        ("word string", TypeError, "is not a list: write outputs ="),
        (Stream("a int"), TypeError, "is not a list"),
        (["word string", 3], TypeError, "3 in its outputs is neither text nor a Stream"),
        ([Stream(3)], TypeError, "the fields of stream 'default' are 3"),  # type: ignore[arg-type]
        ([Stream("a int", name=3)], TypeError, "a stream's name is text"),  # type: ignore[arg-type]
        (["word"], ValueError, "stream 'default': .*word has no type"),
        (["word strin"], ValueError, "unknown type"),
        (["word string", "word int"], ValueError, "word declared twice"),
        ([Stream("a int", name="x"), Stream("b int", name="x")], ValueError, "declare stream 'x' twice"),
        (["a int", Stream("b int")], ValueError, "declare stream 'default' twice"),
        ([Stream("b int"), "a int"], ValueError, "declare stream 'default' twice"),
        ([Stream("a int", name="No")], ValueError, "stream name 'No' is not allowed"),
        ([Stream("")], ValueError, "at least one field"),
        ([Stream(Fields(()))], ValueError, "declares no fields"),
    ],
)
def test_what_cannot_be_declared_is_refused(outputs: object, kind: type[Exception], complaint: str) -> None:
    """PY-03: outputs as text and a number among them are type errors; what cannot be read is a value error."""
    with pytest.raises(TopologyError, match=complaint) as raised:
        parse_outputs("bolt 'b'", outputs)

    assert isinstance(raised.value, kind)
    assert str(raised.value).startswith("bolt 'b'")


@pytest.mark.parametrize(("result", "kind"), [("a int", TypeError), ([3], TypeError), (["a"], ValueError)])
def test_result_rows_are_declared_as_a_list_of_text(result: object, kind: type[Exception]) -> None:
    with pytest.raises(TopologyError) as raised:
        parse_result("committer bolt 'c'", result)

    assert isinstance(raised.value, kind)
