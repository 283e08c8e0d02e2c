"""A committer that passes on its values: its batches are not recomputed, and it is not filled."""

from __future__ import annotations

import pytest

from tests.kit.row_batches import RowBatches
from txtopo import AggregateCommitter, CountCommitter, TopologyBuilder
from txtopo.errors import TopologyError
from txtopo.operating.replay_plans import why_keepless
from txtopo.topology.components import Topology
from txtopo.topology.filled_committers import cannot_backfill


def topology(values: str | None) -> Topology:
    """Counts, and counts of what they are."""
    builder = TopologyBuilder("values")
    builder.set_spout("rows", RowBatches("k string, n int", [[("a", 1)]]))
    counts = AggregateCommitter("counts", ["k"], maxs={"n": "most"}, values=values)
    builder.set_committer_bolt("counts", counts).fields_grouping("rows", ["k"])
    if values is not None:
        builder.set_committer_bolt("sizes", CountCommitter("sizes", ["most"])).shuffle_grouping("counts")
    return builder.build()


def test_its_batches_are_neither_recomputed_nor_filled_and_its_rows_come_to_the_driver() -> None:
    plain, passing = topology(None), topology("k string, most int")
    assert why_keepless("values", plain.describe()) is None
    why = why_keepless("values", passing.describe())
    assert why == "committer counts passes on its values, and what followed from them cannot be reversed"
    assert cannot_backfill(plain.committers, plain.phases, "counts") is None
    assert "its values are passed on" in (cannot_backfill(passing.committers, passing.phases, "counts") or "")
    assert [item.bolt.can_be_staged for item in (*plain.committers, *passing.committers)] == [True, False, True]


@pytest.mark.parametrize(
    ("values", "words"),
    [
        ("k string, least int", "values: there is no least; each is one of `k` string"),
        ("k string, most bigint", "values: most is int, not bigint"),
    ],
)
def test_values_are_columns_that_it_has(values: str, words: str) -> None:
    with pytest.raises(TopologyError) as error:
        topology(values)
    assert words in str(error.value)


def test_a_table_that_is_read_belongs_to_a_counting_committer_of_the_topology() -> None:
    builder = TopologyBuilder("reads")
    builder.set_spout("rows", RowBatches("k string, n int", [[("a", 1)]]))
    counts = CountCommitter("counts", ["k"])
    counts.reads = ("others",)
    builder.set_committer_bolt("counts", counts).fields_grouping("rows", ["k"])
    with pytest.raises(TopologyError, match="'counts' reads the table of 'others', which is no counting committer"):
        builder.build()
