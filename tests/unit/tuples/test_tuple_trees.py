"""Random topologies with every tuple tracked: what the ackers say is what the bolts did, whatever the groupings and the
sizes of messages.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any
from unittest.mock import patch

import pyarrow as pa
import pyarrow.compute as pc
from hypothesis import given
from hypothesis import strategies as st

from tests.kit.tuple_runs import Keeping, Ran, RowsSpout, run_tuples
from txtopo.topology.builder import TopologyBuilder
from txtopo.topology.components import Topology
from txtopo.topology.streams import Tuple
from txtopo.topology.tuple_bolts import ArrowBolt, BasicBolt, CustomStreamGrouping, RichBolt, TupleBolt
from txtopo.tuples import acking, basic_runner
from txtopo.tuples.graph import root_place
from txtopo.tuples.message import Kind

FIELDS = "key int, sources string"
"""`sources` lists the spout tuples that a tuple comes of, so that bolts know what they do to whom."""
FORGETS, FAILS = 7, 5
"""A careless bolt never acks tuples with a key that leaves 3 when divided by the first, and fails those that leave 1 by
the second.
"""

forgotten: set[str] = set()
failed: set[str] = set()
"""Spout tuples to which that was done in the run under test, as the bolts saw it."""


class Copies(BasicBolt):
    """None, one or two of each tuple."""

    outputs = [FIELDS]

    def execute(self, tup: Any, collector: Any) -> None:
        for more in range(tup[0] % 3):
            collector.emit([tup[0] + more, tup[1]])


class Breaking(BasicBolt):
    """Emits once, then raises over some, and goes on with the next."""

    outputs = [FIELDS]

    def execute(self, tup: Any, collector: Any) -> None:
        collector.emit(tup.values)
        if tup[0] % FAILS == 1:
            failed.update(tup[1].split())
            raise ValueError(tup[0])
        collector.emit([tup[0] + 1, tup[1]])


class ArrowCopies(ArrowBolt):
    """The same, of many at once and from behind."""

    outputs = [FIELDS]

    def execute(self, batch: pa.RecordBatch, collector: Any) -> None:
        rows = [row for row, key in enumerate(batch.column(0).to_pylist()) for _ in range(key % 3)][::-1]
        copies = batch.take(pa.array(rows, pa.int64()))
        keys = pc.add(copies.column(0), 1).cast(pa.int32())
        collector.emit_batch(
            pa.RecordBatch.from_arrays([keys, copies.column(1)], names=["key", "sources"]), anchors=rows
        )


class Careless(RichBolt):
    """Joins two tuples that follow each other, and forgets or fails some."""

    outputs = [FIELDS]

    def prepare(self, config: Any, context: Any, collector: Any) -> None:
        self.collector = collector
        self.held: Tuple | None = None

    def execute(self, tup: Tuple) -> None:
        if tup[0] % FORGETS == 3:
            forgotten.update(tup[1].split())
        elif tup[0] % FAILS == 1:
            failed.update(tup[1].split())
            self.collector.fail(tup)
        elif self.held is None:
            self.held = tup
        else:
            self._join(self.held, tup)
            self.held = None

    def _join(self, *pair: Tuple) -> None:
        sources = sorted({source for tup in pair for source in tup[1].split()}, key=int)
        self.collector.emit([pair[0][0], " ".join(sources)], anchors=pair)
        for tup in pair:
            self.collector.ack(tup)

    def cleanup(self) -> None:
        # The last one has nobody to be joined with.
        if self.held is not None:
            forgotten.update(self.held[1].split())


class Twice(CustomStreamGrouping):
    """To none, one or two tasks."""

    def prepare(self, source: str, stream: str, fields: Any, targets: Any) -> None:
        self.targets = targets

    def choose_tasks(self, task: int, values: Any) -> Any:
        return [
            self.targets[(values[0] + more) % len(self.targets)]
            for more in range(min(values[0] % 3, len(self.targets)))
        ]


def topology_of(bolts: Sequence[tuple[type[TupleBolt], str, int]]) -> Topology:
    """One bolt behind the other, each with its grouping and number of tasks; a second committer reads all of them."""
    builder = TopologyBuilder("trees", acking="tuple")
    builder.set_spout("numbers", RowsSpout(FIELDS))
    keep = builder.set_committer_bolt("keep", Keeping(), parallelism_hint=2)
    keep_all = builder.set_committer_bolt("all", Keeping())
    source = "numbers"
    for at, (kind, grouping, tasks) in enumerate(bolts):
        declarer = builder.set_bolt(f"bolt{at}", kind(), parallelism_hint=tasks)
        if grouping == "custom":
            declarer.custom_grouping(source, Twice())
        elif grouping in ("fields", "partial_key"):
            getattr(declarer, f"{grouping}_grouping")(source, "sources")
        else:
            getattr(declarer, f"{grouping}_grouping")(source)
        source = f"bolt{at}"
        keep_all.shuffle_grouping(source)
    keep.fields_grouping(source, "key")
    return builder.build()


def said_by_ackers(seen: Ran) -> acking.AckOutcome:
    """Also of a run that failed."""
    mine = [message for message in seen.messages if message.edge == acking.ACK_EDGE]
    return acking.outcome_of(
        [m.body for m in mine if m.kind == Kind.RESULT], [m.body for m in mine if m.kind == Kind.END]
    )


def numbers(seen: Ran, roots: Sequence[int], parts: Sequence[int]) -> set[str]:
    """The spout tuples with these root ids, as `sources` names them."""
    places = [root_place(seen.graph, root) for root in roots]
    return {str(sum(parts[:part]) + number) for _, part, number in places}


bolts = st.lists(
    st.tuples(
        st.sampled_from([Copies, Breaking, ArrowCopies, Careless]),
        st.sampled_from(["shuffle", "fields", "partial_key", "all", "global", "local_or_shuffle", "custom"]),
        st.integers(1, 3),
    ),
    min_size=1,
    max_size=3,
)


@given(
    bolts=bolts,
    parts=st.lists(st.integers(0, 9), min_size=1, max_size=3),
    ackers=st.integers(1, 3),
    batch_rows=st.sampled_from([100, 4, 1]),
    tracked_rows=st.sampled_from([1000, 5, 1]),
    bits=st.sampled_from([12, 2, 0]),
)
def test_the_ackers_know_exactly_what_the_bolts_did(
    bolts: list[tuple[type[TupleBolt], str, int]],
    parts: list[int],
    ackers: int,
    batch_rows: int,
    tracked_rows: int,
    bits: int,
) -> None:
    """Every spout tuple is acked to its end but those that a bolt failed, or forgot; a tuple joined of several speaks
    for all of them.
    """
    forgotten.clear()
    failed.clear()
    rows = [
        [(sum(parts[:part]) + at, str(sum(parts[:part]) + at)) for at in range(size)] for part, size in enumerate(parts)
    ]

    with patch.object(basic_runner, "TRACKED_ROWS", tracked_rows), patch.object(acking, "ACKER_BITS", bits):
        seen = run_tuples(
            topology_of([*bolts, (Careless, "shuffle", 2)]),
            {"numbers": rows},
            ackers=ackers,
            batch_rows=batch_rows,
            failures_max=10_000,
        )

    outcome = said_by_ackers(seen)
    assert outcome.roots == sum(parts)
    assert numbers(seen, outcome.failed_roots, parts) == failed
    assert numbers(seen, outcome.incomplete_roots, parts) == forgotten - failed
