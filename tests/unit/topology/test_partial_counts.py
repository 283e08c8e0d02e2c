"""Where tuples are counted before they reach a committer: only if a group in a task is a group everywhere."""

from __future__ import annotations

from typing import Any

import pytest

from tests.kit.tuple_runs import Keeping, RowsSpout
from txtopo import CountCommitter, TopologyBuilder
from txtopo.topology.components import Topology
from txtopo.topology.partial_counts import PartialCount, counted_in_spout

FIELDS = (
    "name string, n int, long bigint, price decimal(28,2), wide decimal(29,2), measure double, day date, at timestamp"
)


def topology_of(*committers: Any, bolt: bool = False) -> Topology:
    builder = TopologyBuilder("counted")
    builder.set_spout("source", RowsSpout(FIELDS))
    if bolt:
        builder.set_bolt("bolt", lambda frame: frame, "source", fields=FIELDS)
    for number, committer in enumerate(committers):
        builder.set_committer_bolt(f"c{number}", committer, "source")
    if bolt:
        builder.set_committer_bolt("after", CountCommitter("after", ["name"]), "bolt")
    return builder.build()


def test_all_committers_that_read_a_spout_share_its_groups() -> None:
    topology = topology_of(
        CountCommitter("one", ["name", "day"], sums={"n": "total"}),
        CountCommitter("two", ["day", "at"], sums={"price": "paid", "n": "all"}),
    )

    assert counted_in_spout(topology, "source") == PartialCount(
        keys=("name", "day", "at"), aggregates=(("sum", "n"), ("sum", "price"))
    )


@pytest.mark.parametrize(
    ("committer", "reason"),
    [
        (CountCommitter("c", ["name"], sums={"wide": "s"}), "a sum of wide, a decimal(29,2), may overflow in a task"),
        (Keeping(), "committer c0 receives tuples"),
    ],
    ids=["too many digits", "custom committer"],
)
def test_what_a_task_cannot_count_exactly_is_sent_tuple_by_tuple(committer: Any, reason: str) -> None:
    assert counted_in_spout(topology_of(committer), "source") == reason


def test_a_float_is_no_key_of_a_task_whatever_its_committer_accepts() -> None:
    class Lenient(CountCommitter):
        def check_fields(self, fields: Any) -> None:
            """Accept floats."""

    assert counted_in_spout(topology_of(Lenient("c", ["measure"])), "source") == "key measure is a double"
    refused = counted_in_spout(topology_of(Lenient("c", ["name"], sums=["measure"])), "source")
    assert refused == "a sum of measure, a double, may overflow in a task"


def test_a_bolt_that_reads_the_spout_too_gets_its_tuples() -> None:
    topology = topology_of(CountCommitter("c", ["name"]), bolt=True)

    assert counted_in_spout(topology, "source") == "bolt bolt reads tuples of source"
