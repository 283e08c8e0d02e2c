"""The verdict over tuple tasks on Spark: reports come as often as tasks run, and count once; those that differ fail the
attempt.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import pytest

from tests.kit.tuple_topologies import diamond
from txtopo.core.values import Failure, RejectedRow, TransactionAttempt
from txtopo.spark.reports import Reports, TupleReport
from txtopo.spark.tuples.tuple_checks import TupleChecks
from txtopo.spark.tuples.tuple_graphs import MAIN, Graphs
from txtopo.spark.tuples.tuple_order import Ordered, TupleOrder, parse_order
from txtopo.spark.tuples.tuple_work import SeenRun
from txtopo.topology.components import Topology
from txtopo.tuples.edge_checks import expected_tasks
from txtopo.tuples.message import RunSpec, TaskReport, TupleFailure

CODE = b"code"
SPEC = RunSpec(run="1:0/1", attempt=TransactionAttempt(1, 0), sources={"source": 2})


def said(**changes: Any) -> TupleReport:
    """What a task that saw nothing says."""
    task = TaskReport(run=SPEC.run, **{"component": "source", "index": 0, **changes})
    return TupleReport(task=task, graph=MAIN, code_hash=CODE, version="1", host="here")


def every(topology: Topology, *changed: TupleReport) -> Mapping[Any, list[TupleReport]]:
    """One report of each task, with some `changed` in their places, as the driver gathers them."""
    reports = Reports()
    reports.open(SPEC.run)
    graph = Graphs(topology, 0).main
    plain = {
        report.key: report
        for report in (said(component=node.name, index=index) for node, index in expected_tasks(graph, SPEC))
    }
    reports.receive([report for key, report in plain.items() if all(key != other.key for other in changed)])
    reports.receive(changed)
    return reports.take(SPEC.run)


def verdict(reports: Mapping[Any, list[TupleReport]]) -> TupleChecks:
    return TupleChecks(Graphs(diamond(), 0), SeenRun(specs={MAIN: SPEC}), reports)


def test_a_task_that_ran_twice_and_said_the_same_counts_once() -> None:
    """K2, K4: retried tasks, retried stages and speculation change no number, wherever the second run took place."""
    report = said(read=7, rejects=(RejectedRow(path="a", line=1, reason="bad", raw=b"x", raw_bytes=1),))

    found = verdict(every(diamond(), report, replace(report, host="there"), report))

    assert found.failure(code_hash=CODE, version="1") is not None, "a seventh of the records is too much"
    assert (found.read, len(found.rejected_rows)) == (7, 1)


def test_a_task_that_ran_twice_and_said_something_else_fails_the_attempt() -> None:
    """K3: code or input that is not deterministic is found, and the component and both hosts are named."""
    first, second = said(component="split", sent=((1, 4),)), said(component="split", sent=((1, 5),))

    failure = verdict(every(diamond(), first, replace(second, host="there"))).failure(code_hash=CODE, version="1")

    assert failure is not None and (failure.kind, failure.component) == ("data", "split")
    assert "task 1 ran twice with different outcomes" in failure.message
    assert "4 sent on here" in failure.message and "5 sent on there" in failure.message


def test_the_cause_is_named_and_not_what_followed_from_it() -> None:
    """Failures are sorted by level."""
    late = TupleFailure(failure=Failure(kind="data", message="count: 3 were sent, 2 arrived", component="count"))
    early = TupleFailure(failure=Failure(kind="data", message="no such word", component="split"))

    found = verdict(
        every(diamond(), said(component="count", failures=(late,)), said(component="split", index=1, failures=(early,)))
    )

    assert found.failure(code_hash=CODE, version="1") == early.failure
    assert found.reported() == early.failure and [cause.failure for cause in found.causes()] == [
        early.failure,
        late.failure,
    ]


def test_a_task_without_a_report_fails_the_attempt() -> None:
    reports = {key: found for key, found in every(diamond()).items() if key != (MAIN, "join", 1)}

    failure = verdict(reports).failure(code_hash=CODE, version="1")

    assert failure is not None and (failure.kind, failure.component) == ("suspect", "join")


@pytest.mark.parametrize(("code", "version", "words"), [(b"x", "1", "ran other code"), (CODE, "2", "another txtopo")])
def test_tasks_that_ran_other_code_fail_the_attempt(code: bytes, version: str, words: str) -> None:
    """R12: an attempt commits only if all its tasks ran the leader's code."""
    reports = every(diamond())
    assert verdict(reports).failure(code_hash=CODE, version="1") is None

    failure = verdict(reports).failure(code_hash=code, version=version)

    assert failure is not None and failure.kind == "data" and words in failure.message


def test_an_order_is_the_same_after_its_way_to_the_tasks() -> None:
    """Numbers of parts and tuples are keys in JSON, and so text; they come back as numbers."""
    spec = replace(SPEC, traced=True, excluded={"source": {1: frozenset({3, 5})}})
    run = Ordered(spec=spec, metadata={"source": {"parts": [[], []]}}, parts={"source": [{"rows": []}, {"rows": []}]})
    order = TupleOrder(runs=(run, replace(run, spec=replace(spec, sources={"source": 1}))))

    assert parse_order(order.text()) == order
    assert [(task.run, task.index) for task in order.source_tasks(["source"])] == [(0, 0), (0, 1), (1, 0)]
