"""Rows of a target are locked in key order, within a statement and over all its pieces: whoever else locks them meets
them in one order (P10). Their numbers add up (P4).
"""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pyarrow as pa
import pytest

from txtopo import CountCommitter, FileSpout, TopologyBuilder
from txtopo.committers.postgres import apply_counts
from txtopo.committers.postgres.apply_counts import Applier
from txtopo.core.values import CommitterResult
from txtopo.errors import BatchDataError


def counting() -> Applier:
    builder = TopologyBuilder("t")
    builder.set_spout("rows", FileSpout("rows", "k string, l string"))
    builder.set_committer_bolt("counts", CountCommitter("counts", ["k", "l"], count="n")).fields_grouping("rows", ["k"])
    return Applier(builder.build().committers[0])


def result() -> CommitterResult:
    rows = pa.table({"k": ["d", "a", "c", "b", "a"], "l": ["x", "z", "x", "x", "y"], "n": [1, 2, 3, 4, 5]})
    return CommitterResult(committer="counts", arrived=15, rows=rows, row_count=5, bytes=1)


def test_rows_are_applied_in_key_order_over_all_pieces(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(apply_counts, "ROWS_PER_STATEMENT", 2)
    applier = counting()

    pieces = [piece.column("k").to_pylist() for piece in applier._chunks(result())]

    assert pieces == [["a", "a"], ["b", "c"], ["d"]]
    assert 'order by "k", "l"' in applier._last
    assert 'order by "k", "l"' in applier._part


class Answering:
    """A connection that notes what it is asked, and answers with the numbers of each piece."""

    def __init__(self, *numbers: tuple[int, int, int]) -> None:
        self.numbers = list(numbers)
        self.asked: list[tuple[str, dict[str, Any]]] = []

    def exec_driver_sql(self, sql: str, values: dict[str, Any]) -> Any:
        self.asked.append((sql, values))
        return SimpleNamespace(one=lambda: self.numbers.pop(0))


def test_pieces_add_up_and_what_goes_first_goes_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """P4: the last statement records what all have applied, and so comes back with the sums; the ledger row goes with
    the first alone.
    """
    monkeypatch.setattr(apply_counts, "ROWS_PER_STATEMENT", 2)
    connection: Any = Answering((3, 2, 10), (7, 2, 20), (15, 5, 105))

    count = counting().apply(connection, "t", 4, result(), ("insert into ledger", {"txid": 4}), reversed_rows=6)

    assert (count.counted, count.written, count.digest, count.reversed) == (15, 5, 105, 6)
    assert [sql.startswith("insert into ledger;\n") for sql, _ in connection.asked] == [True, False, False]
    assert [values.get("digest_before") for _, values in connection.asked] == [None, None, 30]
    last = connection.asked[-1][1]
    assert (last["counted_before"], last["written_before"], last["arrived"], last["results"]) == (10, 4, 15, 5)
    assert sum(values["c0"].count('"') // 2 for _, values in connection.asked) == 5


def test_rows_with_other_columns_are_never_sent() -> None:
    """They go by place: a sum would become a count."""
    names = ["l", "k", "n"]

    with pytest.raises(BatchDataError, match="got columns l, k, n, expected k, l, n"):
        counting().apply(Answering(), "t", 4, replace(result(), rows=result().rows.rename_columns(names)), None)  # type: ignore[arg-type]
