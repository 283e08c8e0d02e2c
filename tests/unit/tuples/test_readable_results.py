"""Result rows that Arrow holds and Python cannot read: found where the batch can still fail of them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, ClassVar

import pyarrow as pa
import pytest

from txtopo.committers.count_committer import CountCommitter
from txtopo.errors import BatchDataError
from txtopo.spouts import NOTHING, PartitionedTransactionalSpout
from txtopo.testing import TopologyHarness
from txtopo.topology.batch_committer import BatchCommitter
from txtopo.topology.builder import TopologyBuilder
from txtopo.topology.tuple_bolts import ArrowBolt
from txtopo.tuples.readable_results import check_readable

DAY_MIN, DAY_MAX = -719162, 2932896
TIME_MIN, TIME_MAX = -62135596800000000, 253402300799999999


def texts(values: Sequence[bytes | None]) -> pa.Array:
    """The bytes taken for text, as Spark's `cast(binary as string)` does."""
    array = pa.array(values, pa.binary())
    return pa.Array.from_buffers(pa.string(), len(array), array.buffers(), array.null_count)


def numbers(kind: pa.DataType, values: Sequence[int | None]) -> pa.Array:
    return pa.array(values, pa.int32() if kind == pa.date32() else pa.int64()).cast(kind)


TIMES = [pa.timestamp("us"), pa.timestamp("us", tz="UTC")]


@pytest.mark.parametrize(
    ("column", "told"),
    [
        (texts([b"a", None, b"\xc3"]), r"b'\xc3' is no UTF-8 (unexpected end of data)"),
        (texts([b"\xed\xa0\x80"]), r"b'\xed\xa0\x80' is no UTF-8 (invalid continuation byte)"),
        (numbers(pa.date32(), [0, None, DAY_MAX + 1]), "10000-01-01 is not between the years 1 and 9999"),
        (numbers(pa.date32(), [DAY_MIN - 1]), "0000-12-31 is not between the years 1 and 9999"),
        *[(numbers(kind, [0, TIME_MAX + 1]), "10000-01-01 00:00:00.000000") for kind in TIMES],
        *[(numbers(kind, [TIME_MIN - 1, 0]), "0000-12-31 23:59:59.999999") for kind in TIMES],
    ],
    ids=str,
)
def test_a_value_that_python_cannot_read_is_named(column: pa.Array, told: str) -> None:
    """By committer and column; Python's own error would end the driver."""
    with pytest.raises(Exception):  # noqa: B017 - whatever Python says
        column.to_pylist()

    with pytest.raises(BatchDataError) as caught:
        check_readable("counter", pa.table({"good": pa.nulls(len(column)), "key": column}))

    assert str(caught.value).startswith("committer counter: column key: ")
    assert told in str(caught.value)
    assert caught.value.component == "counter"


@pytest.mark.parametrize(
    "column",
    [
        texts([]),
        texts([None, "é".encode(), b""]),
        numbers(pa.date32(), [DAY_MIN, None, DAY_MAX]),
        *[numbers(kind, [TIME_MIN, None, TIME_MAX]) for kind in TIMES],
        pa.array([b"\xff"]),
    ],
    ids=str,
)
def test_the_first_and_last_values_that_python_can_read_pass(column: pa.Array) -> None:
    check_readable("counter", pa.table({"key": column}))
    column.to_pylist()


class Words(PartitionedTransactionalSpout):
    """Three batches of a word each."""

    outputs: ClassVar[Sequence[str]] = ["word string"]

    def number_of_partitions(self) -> int:
        return 1

    def next_range(self, partition: int, last: Any) -> Any:
        start = last["end"] if last else 0
        return {"start": start, "end": start + 1} if start < 3 else NOTHING

    def emit_partition_batch(self, attempt: Any, partition: int, metadata: Any) -> Any:
        return [["abc"[metadata["start"]]]]


class Cut(ArrowBolt):
    """Cuts the word `b` in the middle of a letter."""

    outputs: ClassVar[Sequence[str]] = ["word string"]

    def execute(self, batch: pa.RecordBatch, collector: Any) -> None:
        found = [b"\xc3" if word == "b" else word.encode() for word in batch.column(0).to_pylist()]
        collector.emit_batch(pa.RecordBatch.from_arrays([texts(found)], ["word"]))


class Keeps(BatchCommitter):
    result: ClassVar[Sequence[str]] = ["word string"]

    def commit(self, transaction: Any, rows: Any, collector: Any) -> int:
        return len(rows)


@pytest.mark.parametrize(
    ("committer", "told"),
    [
        (CountCommitter("counts", ["word"]), r"committer counter: column word: b'\xc3' is no UTF-8"),
        (Keeps(), "UnicodeDecodeError: "),  # its executor half gets tuples, and cannot be given this one
    ],
    ids=["counts", "one's own"],
)
def test_such_a_batch_fails_by_itself_and_the_others_are_committed(committer: Any, told: str) -> None:
    """Promise: trouble of a batch's data is an attempt at that batch, and `on_poison` says what becomes of it."""
    builder = TopologyBuilder("cut")
    builder.set_spout("words", Words())
    builder.set_bolt("cut", Cut()).shuffle_grouping("words")
    builder.set_committer_bolt("counter", committer).fields_grouping("cut", ["word"])

    with TopologyHarness(builder.build(), capture=False, on_poison="quarantine_batch", attempts_max=2) as harness:
        harness.run()

        assert [(batch.txid, batch.state) for batch in harness.batches] == [
            (1, "applied"),
            (2, "quarantined"),
            (3, "applied"),
        ]
        assert any(told in line for line in harness.said)
