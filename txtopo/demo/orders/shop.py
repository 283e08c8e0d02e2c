"""Orders and pieces by shop and kind of article, from a topic of Kafka: txtopo run shop.py:topology

The demo copies this file into its folder. It has a bug on purpose: not every order has an article.
"""

from __future__ import annotations

from pathlib import Path

from txtopo import CountCommitter, KafkaSpout, TopologyBuilder
from txtopo.bolts import BasicBolt, BasicOutputCollector, Tuple


class ByKind(BasicBolt):
    """tea-17 is of the kind tea."""

    outputs = ["shop string", "kind string", "pieces int"]

    def execute(self, tup: Tuple, collector: BasicOutputCollector) -> None:
        kind = tup["article"].split("-")[0]
        collector.emit((tup["shop"], kind, tup["pieces"]))


messages = KafkaSpout(
    "orders",
    "shop string not null, article string, pieces int not null",
    config=Path(__file__).with_name("kafka.properties"),
    max_records=2_000,
)
builder = TopologyBuilder("shop")
builder.set_spout("messages", messages)
builder.set_bolt("by_kind", ByKind()).shuffle_grouping("messages")
counts = CountCommitter("orders_by_kind", ["shop", "kind"], count="orders", sums={"pieces": "pieces"})
builder.set_committer_bolt("counts", counts).fields_grouping("by_kind", ["shop", "kind"])
topology = builder.build()
