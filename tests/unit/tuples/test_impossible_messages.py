"""Messages between tasks that cannot be: doubled reports that differ, tuples for nobody or for another task, words from
strangers.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from typing import Any

import pyarrow as pa
import pytest

from tests.kit.tuple_runs import Ran, graph_of, ran, run_spec
from tests.unit.tuples.test_tuple_edge_cases import Got, Pass, kept, spouts
from txtopo.topology.components import Tally
from txtopo.tuples.engine import Engine
from txtopo.tuples.message import DRIVER, Kind, Message, TaskReport


def disturbed(change: Callable[[Sequence[Message]], Sequence[Message]]) -> Ran:
    """words -> pass (2 tasks) -> got (2 tasks), with the messages to `got` changed."""
    builder = spouts(words="word string")
    builder.set_bolt("pass_on", Pass(), parallelism_hint=2).shuffle_grouping("words")
    builder.set_bolt("got", Got(), parallelism_hint=2).fields_grouping("pass_on", ["word"])
    graph, run = graph_of(kept(builder, "got")), run_spec({"words": 1})
    engine, reports = Engine(graph), list[TaskReport]()
    source = [pa.record_batch({"word": ["a", "b", "c", "d"]})]
    messages = list(engine.source(0, run, "words", 0, iter(source), Tally(read=4), reports.append))
    for level in range(1, graph.levels + 1):
        if level == 2:
            messages = list(change(messages))
        messages = list(engine.level([run], iter(sorted(messages, key=lambda m: m[:6])), level, reports.append))
    return ran(graph, run, reports, messages)


def _first(messages: Sequence[Message], kind: Kind) -> Message:
    return next(message for message in messages if message.kind == kind and message.target in (3, 4))


def _other_count(messages: Sequence[Message]) -> Sequence[Message]:
    report = _first(messages, Kind.REPORT)
    return [*messages, report._replace(seq=report.seq + 1, rows=report.rows + 1)]


def _same_report_again(messages: Sequence[Message]) -> Sequence[Message]:
    return [*messages, _first(messages, Kind.REPORT)]


def _to_nobody(messages: Sequence[Message]) -> Sequence[Message]:
    lost = _first(messages, Kind.DATA)
    return [message._replace(target=999) if message is lost else message for message in messages]


def _to_the_other_task(messages: Sequence[Message]) -> Sequence[Message]:
    lost = _first(messages, Kind.DATA)
    return [message._replace(target=7 - lost.target) if message is lost else message for message in messages]


def _straight_to_the_driver(messages: Sequence[Message]) -> Sequence[Message]:
    lost = _first(messages, Kind.DATA)
    return [message._replace(target=DRIVER) if message is lost else message for message in messages]


def _report_from_nobody(messages: Sequence[Message]) -> Sequence[Message]:
    return [*messages, _first(messages, Kind.REPORT)._replace(source=77)]


@pytest.mark.parametrize(
    ("change", "told"),
    [
        (_other_count, r"pass_on -> got: task \d reported \d tuples sent, and then \d"),
        (_to_nobody, r"pass_on -> got: task \d sent \d tuples, 0 arrived"),
        (_to_the_other_task, r"pass_on -> got: task \d sent \d tuples, \d arrived"),
        (_straight_to_the_driver, r"pass_on -> got: task \d sent \d tuples, 0 arrived"),
        (_report_from_nobody, r"a report came over pass_on -> got from task 77, which does not belong to this attempt"),
    ],
    ids=lambda value: getattr(value, "__name__", ""),
)
def test_a_message_that_cannot_be_fails_the_attempt(change: Any, told: str) -> None:
    """TB-02: a second report with another count, tuples for a task that does not exist or another one: at once, naming
    edge, task and counts.
    """
    seen = disturbed(change)

    assert seen.failure is not None
    assert seen.failure.component == "got"
    assert re.search(told, seen.failure.message), seen.failure.message


def test_a_report_that_comes_twice_is_one() -> None:
    """STORM.md mistake 14: reports are a set by source task, not a counter."""
    seen = disturbed(_same_report_again)

    assert seen.failure is None
    assert sorted(" ".join(text for _, text in seen.rows("got_kept")).split()) == ["a", "b", "c", "d"]
