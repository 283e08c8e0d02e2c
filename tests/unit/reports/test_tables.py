"""Rows as Arrow tables and pandas frames: columns and types do not depend on what is in them."""

from __future__ import annotations

import json
from datetime import UTC, datetime

import pyarrow as pa
import pytest

from txtopo.reports.model import BatchRow, CommitterNumbers, OrderRow, TopologyStatus
from txtopo.reports.tables import Rows
from txtopo.reports.timeline import TimelineEvent

AT = datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)
NUMBERS = CommitterNumbers(
    committer="counts", arrived=9, counted=9, results=2, written=2, ignored=0, reversed=0, digest="7" * 40
)


def batch(txid: int, committed_at: datetime | None) -> BatchRow:
    """A batch, committed or not yet."""
    return BatchRow(
        txid=txid,
        state="planned" if committed_at is None else "committed",
        attempts=1,
        failed_attempts=0,
        files=1,
        read=None if committed_at is None else 9,
        rejected=None if committed_at is None else 0,
        redo_of=None,
        committers=() if committed_at is None else (NUMBERS,),
        committed_at=committed_at,
        duration_s=None if committed_at is None else 1.5,
    )


def test_rows_are_a_sequence() -> None:
    """Promise: a list of typed values, which a program goes through, counts and slices."""
    rows = Rows(BatchRow, [batch(2, None), batch(1, AT)])

    assert (len(rows), rows[0].txid, [row.txid for row in rows], rows[1:]) == (2, 2, [2, 1], (batch(1, AT),))
    assert rows == Rows(BatchRow, list(rows)) != Rows(BatchRow, [])
    assert not Rows(BatchRow, [])


def test_columns_are_the_fields_with_their_types() -> None:
    """Promise: numbers are numbers, times are in UTC, and what is no single value is JSON."""
    table = Rows(BatchRow, [batch(2, None), batch(1, AT)]).to_arrow()

    assert table.schema.field("read").type == pa.int64()
    assert table.schema.field("duration_s").type == pa.float64()
    assert table.schema.field("committed_at").type == pa.timestamp("us", tz="UTC")
    assert table["read"].to_pylist() == [None, 9]
    assert table["state"].to_pylist() == ["planned", "committed"]
    assert table["committed_at"].to_pylist() == [None, AT]
    assert [json.loads(cell) for cell in table["committers"].to_pylist()][1][0]["digest"] == "7" * 40


@pytest.mark.parametrize("kind", [BatchRow, OrderRow, TimelineEvent, TopologyStatus])
def test_no_rows_have_the_same_columns(kind: type) -> None:
    """A program that joins the tables of two days must not fail on the day on which nothing happened."""
    empty: Rows[object] = Rows(kind, [])

    assert empty.to_arrow().num_rows == 0
    assert pa.null() not in empty.to_arrow().schema.types
    assert list(empty.to_pandas().columns) == empty.to_arrow().schema.names
    if kind is BatchRow:
        assert empty.to_arrow().schema == Rows(BatchRow, [batch(1, AT)]).to_arrow().schema


def test_lists_of_numbers_stay_lists_and_facts_are_json() -> None:
    """What an order is about, and what is known of an event; how events are told apart is nobody's business."""
    event = TimelineEvent(at=AT, kind="planned", txid=3, facts={"epoch": 2}, identity=("planned", 3))
    order = OrderRow(
        order_id=1,
        kind="retry",
        txids=(3, 4),
        reason=None,
        actor="ann",
        host="desk",
        created_at=AT,
        state="open",
        answer=None,
        done_at=None,
    )

    events, orders = Rows(TimelineEvent, [event]).to_arrow(), Rows(OrderRow, [order]).to_arrow()

    assert json.loads(events["facts"][0].as_py()) == {"epoch": 2}
    assert "identity" not in events.schema.names
    assert orders["txids"].to_pylist() == [[3, 4]]
