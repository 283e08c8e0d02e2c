"""The planner: durable before emission, cut once, chained, never a pointer into nothing (R3, R9, R12, Z6, Z9)."""

from __future__ import annotations

import hashlib
import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import pytest

from tests.kit.machines import INCARNATION, chain
from txtopo.core import limits
from txtopo.core.events import CutRedo, Redo
from txtopo.core.plan import Metadata, Plan, canonical, genesis_digest, read_plan
from txtopo.core.values import Lead, LedgerBatch
from txtopo.driver.long_metadata import PART_KEY
from txtopo.driver.planner import PLANS_PER_READ, Planner
from txtopo.driver.spout_coordinators import IDLE_KEY
from txtopo.errors import BatchDataError, Halted, InvariantBroken, PostgresUnavailable, ZooKeeperUnavailable
from txtopo.testing.simulated import SimulatedClock
from txtopo.topology.components import Input, SpoutComponent, SpoutContext

LEAD = Lead(topology="t", incarnation=INCARNATION, epoch=1, owner_nonce="n", code_hash=b"c")
LAST_DIGEST = genesis_digest("t", INCARNATION)


class Source:
    """A spout that offers what the test says; an error in the row is raised instead."""

    wants_settled = False

    def __init__(self, *offers: Metadata | Exception) -> None:
        self.offers = list(offers)
        self.context: SpoutContext | None = None
        self.previous: list[Metadata | None] = []
        self.done = False

    def open_coordinator(self, context: SpoutContext) -> Source:
        self.context = context
        return self

    def inputs(self, metadata: Metadata) -> Sequence[Input]:
        return [Input(path=metadata["file"], fingerprint=b"f")] if "file" in metadata else []

    def is_ready(self) -> bool:
        return bool(self.offers)

    def initialize_transaction(self, txid: int, previous: Metadata | None) -> Metadata:
        self.previous.append(previous)
        if isinstance(self.offers[0], Exception):
            raise self.offers[0]
        return self.offers.pop(0)  # type: ignore[return-value]

    def initialize_redo(self, metadata: Metadata) -> Metadata:
        return {**metadata, "again": True}

    def batch_bytes(self, metadata: Metadata) -> int:
        return len(metadata)

    def is_exhausted(self) -> bool:
        return self.done

    def close(self) -> None:
        pass


class Stores:
    """Both stores as far as a planner sees them; `happened` is the order in which things became durable."""

    def __init__(self) -> None:
        self.happened: list[str] = []
        self.parts: dict[str, bytes] = {}
        self.recorded: list[Plan] = []
        self.tried: list[Plan] = []
        self.zookeeper_away = 0
        self.postgres_away = 0
        self.chains: dict[int, list[LedgerBatch]] = {}

    def redo_chain(self, txid: int) -> Sequence[LedgerBatch]:
        return self.chains.get(txid, [])

    def batches_after(self, txid: int) -> Sequence[LedgerBatch]:
        return [one for number, chain in sorted(self.chains.items()) for one in chain if one.txid == number > txid]

    def record_plans(self, plans: Sequence[Plan]) -> None:
        self.tried.extend(plans)
        if self.zookeeper_away:
            self.zookeeper_away -= 1
            raise ZooKeeperUnavailable("reply lost")
        self.happened.append("plans")
        self.recorded.extend(plans)

    def store_part(self, data: bytes) -> str:
        if self.postgres_away:
            self.postgres_away -= 1
            raise PostgresUnavailable("gone")
        digest = hashlib.sha256(data).hexdigest()
        self.happened.append("part")
        self.parts[digest] = data
        return digest

    def read_part(self, digest: str) -> bytes:
        return self.parts[digest]

    def consumed(self, spout: str, paths: Sequence[str]) -> Mapping[str, bytes]:
        return {path: b"c" for path in paths if path == "/committed"}

    def not_consumed(self, spout: str, paths: Sequence[str]) -> set[str]:
        return {path for path in paths if path != "/committed"}

    def consumed_after(self, spout: str, path: str, count: int) -> Sequence[tuple[str, bytes]]:
        return [("/committed", b"c")] if path < "/committed" else []


def planner(source: Source, stores: Stores, *, once: bool = True, last_metadata: Metadata | None = None) -> Planner:
    both: Any = stores
    spout: Any = source
    return Planner(
        lead=LEAD,
        spouts=[SpoutComponent(name="s", spout=spout)],
        coordinator=both,
        ledger=both,
        clock=SimulatedClock(),
        once=once,
        say=lambda message: None,
        last_digest=LAST_DIGEST,
        last_metadata=last_metadata,
    )


def opened(source: Source, stores: Stores, *uncommitted: Plan, **settings: Any) -> Planner:
    made = planner(source, stores, **settings)
    made.open(uncommitted)
    return made


def large(name: str) -> Metadata:
    return {"file": name, "text": "x" * (limits.METADATA_BYTES_MAX + 1)}


def test_a_piece_of_metadata_is_in_postgres_before_the_plan_that_points_to_it() -> None:
    """R3, Z9: the pointer never dangles, and the znode stays small."""
    stores = Stores()
    cutting = opened(Source(large("/1")), stores).cut(1, 4)

    (plan,) = cutting.plans
    assert stores.happened == ["part", "plans"]
    assert len(plan.bytes) < limits.METADATA_BYTES_MAX
    assert stores.parts[plan.metadata["s"][PART_KEY]] == canonical(large("/1"))


def test_a_piece_that_cannot_be_stored_makes_no_plan() -> None:
    """R3: nothing points to what Postgres does not have."""
    stores = Stores()
    stores.postgres_away = 1

    with pytest.raises(PostgresUnavailable):
        opened(Source(large("/1")), stores).cut(1, 4)

    assert stores.tried == []


def test_the_first_of_the_spouts_that_know_when_they_are_ready_counts() -> None:
    """And only where nothing was planned: otherwise there may be more."""
    source: Any = Source({"file": "/1"})
    made = opened(source, Stores(), once=False)
    source.ready_in_s = lambda: 0.25

    assert made.cut(1, 4).ready_in_s == math.inf
    assert made.cut(2, 4).ready_in_s == 0.25
    del source.ready_in_s
    assert made.cut(2, 4).ready_in_s == math.inf


def test_a_piece_has_a_largest_size(monkeypatch: pytest.MonkeyPatch) -> None:
    """Z9: what would not fit into Postgres halts, and says what to change."""
    monkeypatch.setattr(limits, "PLAN_PART_BYTES_MAX", 1000)
    stores = Stores()

    with pytest.raises(Halted, match="files_per_batch"):
        opened(Source(large("/1")), stores).cut(1, 4)

    assert stores.happened == []


def test_whole_metadata_is_handed_out_and_handed_on() -> None:
    """A pointer is never shown to a spout: not when the next batch is cut, not when inputs are mirrored, not at the
    opening.
    """
    stores = Stores()
    source = Source(large("/1"), {"file": "/2"})
    made = opened(source, stores)

    plans = made.cut(1, 4).plans

    assert source.previous == [None, large("/1")]
    assert made.metadata(plans[0]) == {"s": large("/1")}
    assert made.mirror_entry(plans[0]).inputs == {"s": [Input(path="/1", fingerprint=b"f")]}
    after = Source()
    opened(after, stores, plans[0])
    assert after.context is not None
    assert "/1" in after.context.consumed


def test_what_zookeeper_did_not_confirm_is_recorded_again_byte_for_byte() -> None:
    """Z6: it may be there all the same, so it is not cut again, not even when more input has come."""
    stores = Stores()
    stores.zookeeper_away = 1
    source = Source({"file": "/1"}, {"file": "/2"})
    made = opened(source, stores)

    with pytest.raises(ZooKeeperUnavailable):
        made.cut(1, 2)
    source.offers.append({"file": "/3"})
    again = made.cut(1, 3)

    assert [plan.bytes for plan in stores.tried[2:4]] == [plan.bytes for plan in stores.tried[:2]]
    assert [plan.metadata["s"]["file"] for plan in again.plans] == ["/1", "/2", "/3"]
    assert again.plans[2].previous_digest == again.plans[1].digest


def test_what_was_recorded_is_not_recorded_again() -> None:
    """R3: the next cut begins with the next txid."""
    stores = Stores()
    source = Source({"file": "/1"})
    made = opened(source, stores)
    made.cut(1, 4)
    source.offers.append({"file": "/2"})

    (plan,) = made.cut(2, 4).plans

    assert (plan.txid, plan.metadata["s"]["file"]) == (2, "/2")
    assert plan.previous_digest == stores.recorded[0].digest


def test_good_batches_before_a_bad_one_are_planned_and_the_bad_one_halts_after_them() -> None:
    """Nothing is skipped, and nothing good is held up."""
    stores = Stores()
    source = Source({"file": "/1"}, BatchDataError("no column pieces", component="s"))
    made = opened(source, stores)

    assert [plan.txid for plan in made.cut(1, 4).plans] == [1]
    with pytest.raises(Halted, match=r"batch 2 of t .*no column pieces") as caught:
        made.cut(2, 4)
    assert caught.value.txid == 2
    assert len(stores.recorded) == 1
    assert len(source.previous) == 2, "code that raised is not asked again: what it gave then may be gone"


def test_good_batches_before_a_source_that_is_away_are_planned_and_it_is_asked_again() -> None:
    """OSError: the same input comes when the source is back."""
    stores = Stores()
    source = Source({"file": "/1"}, OSError("away"))
    made = opened(source, stores)

    assert [plan.txid for plan in made.cut(1, 4).plans] == [1]
    with pytest.raises(OSError, match="away"):
        made.cut(2, 4)
    source.offers = [{"file": "/2"}]
    assert [plan.txid for plan in made.cut(2, 4).plans] == [2]


@pytest.mark.parametrize("redoes", [False, True])
def test_nothing_is_planned_before_the_plans_of_the_leader_before_are_known(redoes: bool) -> None:
    """R12: it would chain to the wrong batch, and its source would begin anew."""
    stores = Stores()
    stores.chains[3] = [quarantined(3)]
    made = planner(Source({"file": "/1"}), stores)

    with pytest.raises(InvariantBroken, match="was not opened"):
        made.redo(redrive(9, 3)) if redoes else made.cut(1, 1)
    assert stores.tried == []


def test_what_was_ever_input_is_told_to_the_spout() -> None:
    """A file is input once: committed ones stand in `source_file`, planned ones in their plans."""
    source = Source()
    opened(source, Stores(), *chain(3, 4, LAST_DIGEST))

    assert source.context is not None
    assert source.context.consumed == {"/committed": b"c", "/3": b"f", "/4": b"f"}


def test_the_first_cut_of_a_leader_follows_what_is_planned_already() -> None:
    """R12: the chain goes on where the leader before stopped, and so does the source."""
    plans = chain(3, 4, LAST_DIGEST)
    source = Source({"file": "/5"})

    (plan,) = opened(source, Stores(), *plans, last_metadata={"s": {"file": "/2"}}).cut(5, 1).plans

    assert plan.previous_digest == plans[-1].digest
    assert source.previous == [{"file": "/4"}]


def test_the_first_cut_behind_committed_batches_follows_the_last_of_them() -> None:
    """R12: with nothing planned, `previous` is the metadata of the last batch, and the digest is the ledger's."""
    source = Source({"file": "/3"})

    (plan,) = opened(source, Stores(), last_metadata={"s": {"file": "/2"}}).cut(3, 1).plans

    assert plan.previous_digest == LAST_DIGEST
    assert source.previous == [{"file": "/2"}]


@pytest.mark.parametrize(
    ("once", "done", "exhausted"), [(True, True, True), (True, False, False), (False, True, False)]
)
def test_only_a_run_once_comes_to_an_end(once: bool, done: bool, exhausted: bool) -> None:
    """A run without --once waits for new files for ever."""
    source = Source()
    source.done = done

    assert opened(source, Stores(), once=once).cut(1, 4).exhausted is exhausted


def quarantined(txid: int, metadata: Metadata | None = None) -> LedgerBatch:
    """A batch in the ledger, without effect."""
    plan = Plan(
        topology="t",
        incarnation=INCARNATION,
        txid=txid,
        previous_digest=b"p",
        metadata={"s": metadata or {"file": f"/{txid}"}},
    )
    return LedgerBatch(txid=txid, state="quarantined", redo_of=None, plan=plan.bytes)


def redrive(first_txid: int, txid: int) -> CutRedo:
    """What the machine asks for."""
    return CutRedo(first_txid=first_txid, redo=Redo(order_id=5, kind="redrive", txid=txid), open_redos=())


def test_a_spout_gets_what_it_was_configured_with_and_its_own_batches_of_late() -> None:
    """Newest first, over all pages; batches of others, idle ones, and those that cannot be read are none of its."""
    source, stores = Source(), Stores()
    pages: list[int] = []
    count = 2 * PLANS_PER_READ + 1
    data = {txid: quarantined(txid).plan for txid in range(1, count + 1)}
    data[7] = b"no plan"
    data[8] = replace(read_plan(data[8], "-"), metadata={"other": {"file": "/8"}}).bytes
    data[9] = replace(read_plan(data[9], "-"), metadata={"s": {IDLE_KEY: None}}).bytes

    def plans_below(txid: int, limit: int) -> list[tuple[int, bytes]]:
        pages.append(txid)
        return [(number, data[number]) for number in sorted(data, reverse=True) if number < txid][:limit]

    stores.plans_below = plans_below  # type: ignore[attr-defined]
    made = planner(source, stores)
    made.config = {"topology.debug": True}
    made.open(())

    assert source.context is not None and source.context.config == {"topology.debug": True}
    found = [metadata["file"] for metadata in source.context.recent()]
    assert found == [f"/{txid}" for txid in range(count, 0, -1) if txid not in (7, 8, 9)]
    assert pages[1:] == [count + 1 - PLANS_PER_READ, count + 1 - 2 * PLANS_PER_READ]
