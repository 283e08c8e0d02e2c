"""`txtopo explain` says which steps a bolt runs, and where partial values are made and meet."""

from __future__ import annotations

from pathlib import Path

from tests.kit.row_batches import texts
from txtopo.cli.explain import explain_text
from txtopo.cli.explaining import WavesExplained, explained
from txtopo.config import Settings
from txtopo.trident import Count, PostgresMapState, TridentTopology

HERE = Path(__file__).name


def test_the_steps_of_each_bolt_are_explained() -> None:
    topology = TridentTopology("words")
    lines = topology.new_stream("lines", texts(["a b"]))
    words = lines.flat_map(str.split, "word string")
    words.group_by("word").aggregate(Count(), "n bigint").filter(lambda word, n: n > 1).group_by(
        "n"
    ).persistent_aggregate(PostgresMapState("often"), Count(), "words bigint")
    words.join(words.map(str.upper, "upper string"), left_on="word", right_on="upper").group_by(
        "word"
    ).persistent_aggregate(PostgresMapState("same"), Count(), "n bigint")
    text = explain_text(explained(topology.build(), Settings(), WavesExplained(True)))

    first = next(line for line in text.splitlines() if "flat_map" in line)
    assert first.strip().startswith(f"runs step 1 flat_map(split) of stream lines, {HERE}:")
    assert "partial values of the tuples of each task" in text
    assert "partial values meet of a group by word in one task" in text
    assert "one batch only, tuples of different batches do not meet" in text
