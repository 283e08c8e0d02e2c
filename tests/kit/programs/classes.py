"""A topology as a class, with a stream for what could not be read."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from typing import Any

from pyspark.sql import DataFrame

from txtopo import ClassTopology, CountCommitter, FileSpout, Grouping, Topology, TransactionAttempt, spec
from txtopo.bolts import (
    BasicBolt,
    BasicOutputCollector,
    BatchBolt,
    BatchOutputCollector,
    Stream,
    TopologyContext,
    Tuple,
)


def trimmed(visits: DataFrame) -> DataFrame:
    """Pages without blanks."""
    return visits.selectExpr("trim(page) as page")


class Section(BasicBolt):
    """The first part of a page's path; pages without one go to a stream of their own."""

    outputs = ["section string", Stream("page string", name="odd")]

    def execute(self, tup: Tuple, collector: BasicOutputCollector) -> None:
        page: str = tup["page"]
        if page.startswith("/"):
            collector.emit((page.split("/")[1],))
        else:
            collector.emit((page,), stream="odd")


class Counts(BatchBolt):
    """Sections of a batch with the number of their visits."""

    outputs = ["section string", "visits bigint"]

    def prepare(
        self,
        config: Mapping[str, Any],
        context: TopologyContext,
        collector: BatchOutputCollector,
        attempt: TransactionAttempt,
    ) -> None:
        self.collector = collector
        self.visits: Counter[str] = Counter()

    def execute(self, tup: Tuple) -> None:
        self.visits[tup["section"]] += 1

    def finish_batch(self) -> None:
        for section, visits in sorted(self.visits.items()):
            self.collector.emit((section, visits))


class Visits(ClassTopology):
    """Visits by section, and odd pages."""

    config = {"topology.message.timeout.secs": 60}

    pages = FileSpout.spec("visits", "page string", par=2)
    trimmed = spec(trimmed, inputs=[pages], fields="page string", rows="same")
    section = Section.spec(inputs={trimmed: Grouping.SHUFFLE}, par=2)
    counts = Counts.spec(inputs={section: Grouping.fields("section")}, par=2)
    sections = CountCommitter("sections", ["section"], count="batches", sums=["visits"]).spec(
        inputs={counts: Grouping.fields("section")}
    )
    odd = CountCommitter("odd_pages", ["page"]).spec(inputs={section["odd"]: Grouping.fields("page")})


def topologies(customers: list[str]) -> list[Topology]:
    """One for each customer."""
    return [Visits.build(f"visits_{customer}", config={"customer": customer}) for customer in customers]
