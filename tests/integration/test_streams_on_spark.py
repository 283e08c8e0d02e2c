"""Streams give the same on Spark as in this process: steps with functions of the user, aggregates, a merge."""

from __future__ import annotations

from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession

from tests.kit.row_batches import texts
from txtopo import CountCommitter
from txtopo.testing import TopologyHarness
from txtopo.topology.components import Acking, Topology
from txtopo.trident import Count, FilterNull, MapGet, Max, PostgresMapState, Split, Sum, TridentTopology

pytestmark = pytest.mark.spark

TABLES = ("word_counts", "sizes", "most", "longest", "asked", "news")
LINES = (["the man on the moon", "a b"], ["hello", "", "the man"], ["x"])


def streams(acking: Acking) -> Topology:
    """Word counts, sizes of words of each batch, and the longest word of each batch."""
    topology = TridentTopology("streams", acking=acking)
    lines = topology.new_stream("lines", texts(*LINES))
    more = lines.flat_map(lambda line: [word.upper() for word in line.split()], "word string").parallelism_hint(2)
    words = topology.merge(lines.flat_map(Split(), "word string"), more).filter(FilterNull("word")).name("words")
    counts = words.group_by("word").persistent_aggregate(PostgresMapState("word_counts"), Count(), "n bigint")
    asked = words.group_by("word").state_query(counts, MapGet(), "seen bigint").name("asked")
    asked.persist("asked_seen", CountCommitter("asked", ["word", "seen"]))
    counts.new_values().map(str, "text string", of="n").persist("news", CountCommitter("news", ["text"]))
    sized = words.each("word", len, "size bigint")
    sizes = sized.group_by("size").chained_agg().aggregate(Count(), "n bigint").aggregate(Sum("size"), "total bigint")
    sizes.chain_end().name("sizes").persist("sizes_seen", CountCommitter("sizes", ["size", "n", "total"]))
    sized.aggregate(Max("size"), "most bigint").name("most").persist("most_seen", CountCommitter("most", ["most"]))
    longest = sized.max_by("size").name("longest")
    longest.persist("longest_seen", CountCommitter("longest", ["word"]))
    return topology.build()


@pytest.mark.parametrize("acking", ["batch", "tuple"])
def test_streams_give_the_same_on_spark(spark_session: SparkSession, acking: Acking) -> None:
    topology = streams(acking)
    seen: list[Any] = []
    for session in (None, spark_session):
        with TopologyHarness(topology, session=session) as harness:
            harness.run()
            tables = {name: harness.table(name) for name in TABLES}
            emitted = {
                name: sorted(harness.values(name), key=repr) for name in ("words", "sizes", "most", "longest", "asked")
            }
            seen.append((tables, emitted))

    here, spark = seen
    assert spark == here
    assert here[0]["word_counts"][("the",)] == (3,)
    assert here[0]["word_counts"][("THE",)] == (3,)
    assert here[0]["asked"]["the", None] == (2,)
    assert here[0]["asked"]["the", 2] == (1,)
    assert here[0]["most"] == {(4,): (1,), (5,): (1,), (1,): (1,)}


def test_a_function_over_dataframes_is_a_step(spark_session: SparkSession) -> None:
    def longer(frame: DataFrame) -> DataFrame:
        return frame.where("length(word) > 1")

    topology = TridentTopology("frames")
    words = topology.new_stream("lines", texts(*LINES)).flat_map(str.split, "word string")
    longer_ones = words.frame(longer, "word string", rows="fewer").name("long_words")
    longer_ones.map(str.upper).group_by("word").persistent_aggregate(PostgresMapState("longer"), Count(), "n bigint")
    with TopologyHarness(topology.build(), session=spark_session) as harness:
        harness.run()
        assert harness.table("longer") == {
            ("THE",): (3,),
            ("MAN",): (2,),
            ("ON",): (1,),
            ("MOON",): (1,),
            ("HELLO",): (1,),
        }
