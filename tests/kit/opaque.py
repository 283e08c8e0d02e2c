"""An opaque source of numbers that cuts its batches otherwise each time it is asked, and what must come of it whatever
happens.
"""

from __future__ import annotations

import random
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import pyarrow as pa

from txtopo import CountCommitter, Topology, TopologyBuilder
from txtopo.core.fields import parse_fields
from txtopo.core.plan import Metadata, Plan, genesis_digest, read_plan
from txtopo.testing.simulated import SimulatedStores
from txtopo.topology.components import Input, Spout, SpoutContext, SpoutCoordinator, Tally

TABLE = "public.numbers"
TOPOLOGY = "numbers"


class OpaqueNumbers(Spout):
    """Emits 0, 1, … up to `count`; how many are in a batch is drawn anew in every cut."""

    kind = "opaque"

    def __init__(self, count: int, chance: random.Random, most: int = 5) -> None:
        self.fields = parse_fields("n bigint")
        self.count = count
        self.chance = chance
        self.most = most

    def open_coordinator(self, context: SpoutContext) -> SpoutCoordinator:
        return _Cutting(self, context)

    def parts(self, metadata: Metadata) -> Sequence[Mapping[str, Any]]:
        return [{}]

    def emit_part(self, metadata: Metadata, part: Mapping[str, Any], tally: Tally) -> Iterator[pa.RecordBatch]:
        numbers = range(metadata["start"], metadata["end"])
        tally.read += len(numbers)
        yield pa.record_batch({"n": pa.array(numbers, pa.int64())})

    def inputs(self, metadata: Metadata) -> Sequence[Input]:
        return [Input(path=f"/{n}", fingerprint=b"n") for n in range(metadata["start"], metadata["end"])]

    def describe(self) -> Mapping[str, Any]:
        return {"kind": "opaque numbers", "count": self.count}


class _Cutting:
    """Keeps a position of its own, as halves do that ask their source ahead; it is good from `previous` on only."""

    def __init__(self, spout: OpaqueNumbers, context: SpoutContext) -> None:
        self._spout = spout
        self._at = 0 if context.previous is None else context.previous["end"]

    def is_ready(self) -> bool:
        return self._at < self._spout.count

    def initialize_transaction(self, txid: int, previous: Metadata | None) -> Metadata:
        start = 0 if previous is None else previous["end"]
        assert start == self._at, f"asked to go on at {start}, opened for {self._at}"
        self._at = min(self._spout.count, start + self._spout.chance.randint(1, self._spout.most))
        return {"start": start, "end": self._at}

    def initialize_again(self, txid: int, previous: Metadata | None, discarded: Metadata | None) -> Metadata:
        return self.initialize_transaction(txid, previous)

    def initialize_redo(self, metadata: Metadata) -> Metadata:
        return metadata

    def is_exhausted(self) -> bool:
        return not self.is_ready()

    def close(self) -> None:
        pass


def numbers_topology(count: int, chance: random.Random, most: int = 5) -> Topology:
    """Counts every number: in the end each has 1, or it was lost or repeated."""
    builder = TopologyBuilder(TOPOLOGY)
    builder.set_spout("numbers", OpaqueNumbers(count, chance, most))
    builder.set_committer_bolt("totals", CountCommitter(table=TABLE, keys=["n"], count="rows")).shuffle_grouping(
        "numbers"
    )
    return builder.build()


def plans_of(stores: SimulatedStores) -> list[Plan]:
    """The plans that the ledger applied or quarantined, in order."""
    rows = stores.postgres.topologies[TOPOLOGY]
    return [read_plan(rows.plans[txid][1], "test") for txid in sorted(rows.ledger) if txid > 0]


def check_numbers(stores: SimulatedStores, count: int, missing: Sequence[int] = ()) -> None:
    """I1, I2, I4: every number is in exactly one applied batch, and the batches tile the source without a gap, each
    chained to the one before.
    """
    table = stores.postgres.tables[TABLE]
    assert {int(key[0]): int(values[0]) for key, values in table.items()} == {
        n: 1 for n in range(count) if n not in missing
    }
    rows = stores.postgres.topologies[TOPOLOGY]
    assert sorted(rows.ledger) == list(range(len(rows.ledger)))
    plans = plans_of(stores)
    digest = genesis_digest(TOPOLOGY, rows.fence.incarnation)
    end = 0
    for plan in plans:
        assert plan.previous_digest == digest
        assert rows.ledger[plan.txid].digest == plan.digest
        digest = plan.digest
        if plan.redo_of is None:
            assert plan.metadata["numbers"]["start"] == end
            end = plan.metadata["numbers"]["end"]
    assert end == count
