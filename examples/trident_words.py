"""Words of real texts as a stream, and a query of their counts: txtopo run examples/trident_words.py:topology --once"""

from __future__ import annotations

import os
import re
from pathlib import Path

from txtopo.spouts import TextSpout
from txtopo.trident import Count, FilterNull, MapGet, PostgresMapState, Sum, TridentTopology


def words_of(line: str) -> list[str]:
    """Its words, in small letters."""
    return re.findall(r"[a-z']+", line.lower())


streams = TridentTopology("trident_words")
texts = TextSpout(Path(os.environ.get("TEXTS_FOLDER", Path(__file__).parent / "texts")) / "*.txt")
words = streams.new_stream("texts", texts).flat_map(words_of, "word string", of="line")
counts = words.group_by("word").persistent_aggregate(PostgresMapState("trident_words"), Count(), "times bigint")

# How often the words of a text have occurred: txtopo query examples/trident_words.py words "the moon"
asked = streams.new_query("words", "text string").flat_map(words_of, "word string").group_by("word")
asked.state_query(counts, MapGet(), "times bigint").filter(FilterNull("times")).aggregate(Sum("times"), "total bigint")
topology = streams.build()

if __name__ == "__main__":
    raise SystemExit(topology.run_cli())
