"""Cells of sketches: the tasks and the audit find the same ones, each with its own code."""

from __future__ import annotations

import hashlib
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from txtopo import AggregateCommitter
from txtopo.audit.recount import _cell as recounted
from txtopo.core.fields import parse_fields
from txtopo.errors import TopologyError
from txtopo.topology.event_windows import KeySource
from txtopo.tuples.aggregate_batches import _cell, key_values

CELL = KeySource("field", is_cell=True)


@pytest.mark.parametrize(
    ("kind", "values"),
    [
        (pa.string(), ["", "a", "é", "a", None, "\U0001f600"]),
        (pa.binary(), [b"", b"\xff\x00", None, b"a"]),
        (pa.int64(), [0, -1, 2**63 - 1, -(2**63), None]),
        (pa.int8(), [127, -128, None]),
    ],
)
def test_the_audit_finds_the_same_cells(kind: pa.DataType, values: list[Any]) -> None:
    """Texts are hashed in UTF-8, integers in decimal digits; NULL has no cell."""
    array = pa.array(values, kind)
    for given_values in (array, pa.chunked_array([array, array.slice(1)])):
        found = key_values(CELL, given_values)
        assert found.type == pa.int32()
        assert found.to_pylist() == [recounted(value) for value in given_values.to_pylist()]


@given(st.binary(max_size=40))
def test_a_cell_is_register_and_rank(value: bytes) -> None:
    """By the words of its definition."""
    bits = bin(int.from_bytes(hashlib.sha256(value).digest(), "big"))[2:].zfill(256)
    rest = bits[12:64]
    rank = 53 if "1" not in rest else len(rest) - len(rest.lstrip("0")) + 1
    assert _cell(value) == recounted(value) == int(bits[:12], 2) * 64 + rank


def test_a_hash_that_has_no_one_has_the_last_rank(monkeypatch: pytest.MonkeyPatch) -> None:
    """No text is known that has it."""

    class Nothing:
        def __init__(self, _: bytes) -> None: ...

        def digest(self) -> bytes:
            return bytes(32)

        def hexdigest(self) -> str:
            return "00" * 32

    monkeypatch.setattr(hashlib, "sha256", Nothing)
    assert (_cell(b""), recounted("")) == (53, 53)


def test_only_values_with_one_text_are_estimated() -> None:
    """A decimal or a time has several."""
    bolt = AggregateCommitter("t", ["shop"], distinct={"price": "prices"}, approximate=True)
    with pytest.raises(TopologyError, match=r"price is a decimal.*; only texts, binaries and integers are estimated"):
        bolt.parts()["_prices"].check_fields(parse_fields("shop string, price decimal(10,2)"))
