"""The search for a bad row tells the operator that it goes on, and how far it is."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import SimpleNamespace
from typing import Any

import pytest

from tests.kit.list_spout import list_topology
from txtopo.core.values import Failure, TransactionAttempt
from txtopo.ports import Assignment
from txtopo.spark.frames.find_bad_row import BadRows
from txtopo.spark.jobs import BatchWork, JobError, Run, RunReports
from txtopo.spark.reports import Report, Reports

ROWS, BAD = 1000, 613


class SlowPieces:
    """A batch of one part with one bad row; every run over some of it takes its time."""

    def __init__(self, reports: Reports, takes_s: float) -> None:
        self.now = 0.0
        self.runs = 0
        self._reports = reports
        self._takes_s = takes_s

    def results(self, runs: Sequence[Run], works: Sequence[BatchWork], *, name: str, only: Mapping[str, Any]) -> Any:
        self.now += self._takes_s
        self.runs += 1
        self._reports.receive(
            [
                Report(
                    run=name,
                    spout="source",
                    part=0,
                    read=ROWS,
                    rejects=(),
                    failure=None,
                    code_hash=b"",
                    version="",
                    host="",
                )
            ]
        )
        first, behind = only["source"][0]
        if first <= BAD < behind:
            raise JobError("bolt1")

    def emitted(self, run: Run, work: BatchWork, spout: str, ranges: Any) -> Any:
        return SimpleNamespace(to_pylist=lambda: [{"name": "x"}])


@pytest.mark.parametrize(("takes_s", "lines"), [(0.1, 0), (2.0, 3)])
def test_a_long_search_says_that_it_goes_on_and_a_short_one_nothing(
    monkeypatch: pytest.MonkeyPatch, takes_s: float, lines: int
) -> None:
    reports = Reports()
    pieces = SlowPieces(reports, takes_s)
    monkeypatch.setattr("txtopo.spark.frames.find_bad_row.time.monotonic", lambda: pieces.now)
    said: list[str] = []

    def judge(error: Exception, run: Run, reports: RunReports) -> Failure:
        return Failure(kind="data", message="app.py:7: ValueError: no", component="bolt1")

    attempt = TransactionAttempt(4, 0)
    work = BatchWork(
        assignment=Assignment(attempt=attempt, metadata={"source": {"parts": [[]]}}), parts={"source": [{"rows": []}]}
    )
    rows = BadRows(list_topology(lambda frame: frame), pieces, reports, judge, {}, say=said.append)

    found = rows.explain(Run(name="r", tag="t", attempt=attempt), work, Failure(kind="data", message="no"))

    assert f"tuple {BAD + 1} of part 1 of source" in found.message
    assert 10 <= pieces.runs <= 13
    assert len(said) == (0 if not lines else int(pieces.runs * takes_s // 6)), said
    if lines:
        assert (
            said[0]
            == "batch 4 attempt 0 failed; still looking for the row that does it: run 4 over parts of the batch, 6 s "
            "so far"
        )
