"""Several spouts share the txid: idle ones keep their place in the plan, and each hears how its batches ended (rules
R3, R12).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest

from tests.kit.machines import INCARNATION
from tests.unit.driver.test_planner import LAST_DIGEST, LEAD, Source, Stores, large, quarantined, redrive
from txtopo.core import limits
from txtopo.core.events import RedoCut
from txtopo.core.plan import Metadata, Plan
from txtopo.core.values import LedgerBatch
from txtopo.driver.long_metadata import PART_KEY
from txtopo.driver.planner import Planner
from txtopo.driver.spout_coordinators import IDLE_KEY
from txtopo.errors import BatchDataError, Halted, InvariantBroken, PostgresUnavailable, ZooKeeperUnavailable
from txtopo.testing.simulated import SimulatedClock
from txtopo.topology.components import Input, SpoutComponent, SpoutContext


class Offering(Source):
    """A spout of any kind, which notes what it is told and how often it is opened."""

    def __init__(self, *offers: Metadata | Exception, kind: str = "transactional", wants_settled: bool = False) -> None:
        super().__init__(*offers)
        self.kind = kind
        self.wants_settled = wants_settled
        self.told: list[tuple[int, Metadata, str]] = []
        self.trouble: Exception | None = None
        self.contexts: list[SpoutContext] = []
        self.closed = 0

    def open_coordinator(self, context: SpoutContext) -> Source:
        self.contexts.append(context)
        return super().open_coordinator(context)

    def initialize_again(self, txid: int, previous: Metadata | None, discarded: Metadata | None) -> Metadata:
        return self.initialize_transaction(txid, previous)

    def settled(self, txid: int, metadata: Metadata, state: str) -> None:
        if self.trouble is not None:
            raise self.trouble
        self.told.append((txid, metadata, state))

    def batch_bytes(self, metadata: Metadata) -> int:
        return 100

    def close(self) -> None:
        self.closed += 1


def planner(stores: Stores, *, uncommitted: Sequence[Plan] = (), settings: Any = None, **spouts: Offering) -> Planner:
    """Opened, over these spouts by name."""
    both: Any = stores
    anything: Any = spouts
    components = [SpoutComponent(name=name, spout=spout) for name, spout in anything.items()]
    values: dict[str, Any] = {"once": True, "say": lambda line: None, "last_metadata": None, **(settings or {})}
    made = Planner(
        lead=LEAD,
        spouts=components,
        coordinator=both,
        ledger=both,
        clock=SimulatedClock(),
        last_digest=LAST_DIGEST,
        **values,
    )
    made.open(uncommitted)
    return made


def test_a_batch_has_what_every_ready_spout_gives_and_idle_ones_keep_their_place() -> None:
    """Ready when any spout is ready; `previous` is never lost, over any number of batches without input."""
    a, b = Offering({"at": 1}, {"at": 2}, {"at": 3}), Offering({"at": 10})
    made = planner(Stores(), a=a, b=b)

    one, two, three = made.cut(1, 9).plans
    b.offers.append({"at": 11})
    (four,) = made.cut(4, 9).plans

    assert one.metadata == {"a": {"at": 1}, "b": {"at": 10}}
    assert two.metadata == {"a": {"at": 2}, "b": {IDLE_KEY: {"at": 10}}}
    assert three.metadata == {"a": {"at": 3}, "b": {IDLE_KEY: {"at": 10}}}
    assert four.metadata == {"a": {IDLE_KEY: {"at": 3}}, "b": {"at": 11}}
    assert (a.previous, b.previous) == ([None, {"at": 1}, {"at": 2}], [None, {"at": 10}])
    assert made.metadata(two) == {"a": {"at": 2}}
    assert made.batch_bytes(one) == 200
    assert made.batch_bytes(two) == 100


def test_a_spout_that_never_had_input_is_idle_with_nothing() -> None:
    a, b = Offering({"at": 1}), Offering()

    (one,) = planner(Stores(), a=a, b=b).cut(1, 9).plans

    assert one.metadata == {"a": {"at": 1}, "b": {IDLE_KEY: None}}


def test_the_plan_of_a_single_spout_stays_as_it_was() -> None:
    """R12: byte for byte, so that batches that are planned already keep their digests."""
    (one,) = planner(Stores(), s=Offering({"file": "/1"})).cut(1, 9).plans

    assert (
        one.bytes
        == Plan(
            topology="t", incarnation=INCARNATION, txid=1, previous_digest=LAST_DIGEST, metadata={"s": {"file": "/1"}}
        ).bytes
    )


def test_a_new_leader_tells_each_spout_its_own_place() -> None:
    """R12: from the highest uncommitted plan that redoes nothing, else the last committed batch."""
    uncommitted = Plan(
        topology="t",
        incarnation=INCARNATION,
        txid=5,
        previous_digest=LAST_DIGEST,
        metadata={"a": {"file": "/a5"}, "b": {IDLE_KEY: {"at": 10}}},
    )
    a, b, c = Offering(), Offering(), Offering()
    planner(Stores(), uncommitted=[uncommitted], a=a, b=b, c=c, settings={"last_metadata": {"c": {"at": 99}}})
    d = Offering()
    planner(Stores(), d=d, settings={"last_metadata": {"d": {"at": 4}}})

    told = [spout.contexts[0] for spout in (a, b, c, d)]
    assert [context.previous for context in told] == [{"file": "/a5"}, {"at": 10}, None, {"at": 4}]
    assert [context.consumed for context in told[:2]] == [{"/committed": b"c", "/a5": b"f"}, {"/committed": b"c"}]


def test_only_the_longest_metadata_is_kept_in_pieces_also_of_idle_spouts() -> None:
    """Z9: the znode stays small, and what an idle spout remembers is put together again when it goes on."""
    stores = Stores()
    a, b = Offering({"at": 1}, {"at": 2}), Offering(large("/b"))
    made = planner(stores, a=a, b=b)
    (one, two) = made.cut(1, 9).plans
    b.offers.append({"at": 3})
    made.cut(3, 1)

    assert one.metadata["a"] == {"at": 1}
    assert set(one.metadata["b"]) == {PART_KEY}
    assert two.metadata["b"] == {IDLE_KEY: one.metadata["b"]}
    assert b.previous == [None, large("/b")]
    assert max(len(plan.bytes) for plan in (one, two)) <= limits.METADATA_BYTES_MAX


def test_what_one_spout_gave_waits_while_another_has_trouble() -> None:
    """A spout gives its input once: it must be in the next plan, not lost, when another spout fails."""
    a, b = Offering({"at": 1}), Offering(OSError("broker away"), {"at": 10})
    made = planner(Stores(), a=a, b=b)
    with pytest.raises(OSError, match="broker away"):
        made.cut(1, 9)
    b.offers.pop(0)

    (one,) = made.cut(1, 9).plans

    assert one.metadata == {"a": {"at": 1}, "b": {"at": 10}}


def test_a_batch_whose_piece_could_not_be_stored_is_planned_later() -> None:
    """R3: Postgres away while a plan is made loses no input."""
    stores = Stores()
    stores.postgres_away = 1
    made = planner(stores, s=Offering(large("/1")))
    with pytest.raises(PostgresUnavailable):
        made.cut(1, 9)

    (one,) = made.cut(1, 9).plans

    assert made.metadata(one) == {"s": large("/1")}


def test_good_input_of_one_spout_does_not_hide_a_bad_one() -> None:
    a, b = Offering({"at": 1}), Offering(BatchDataError("no column pieces", component="b"))

    with pytest.raises(Halted, match=r"batch 1 of t cannot be planned: no column pieces"):
        planner(Stores(), a=a, b=b).cut(1, 9)


def test_a_run_once_ends_when_all_are_exhausted() -> None:
    a, b = Offering(), Offering()
    made = planner(Stores(), a=a, b=b)
    a.done = True
    assert not made.cut(1, 9).exhausted
    b.done = True

    assert made.cut(1, 9).exhausted


def test_a_redo_has_the_spouts_that_had_a_part_and_moves_none() -> None:
    """R12: idle spouts have no part in a redo, and the next batch follows the last that redoes nothing."""
    stores = Stores()
    base = quarantined(3)
    plan = Plan(
        topology="t",
        incarnation=INCARNATION,
        txid=3,
        previous_digest=b"p",
        metadata={"a": {"file": "/3"}, "b": {IDLE_KEY: None}},
    )
    stores.chains[3] = [replace(base, plan=plan.bytes)]
    a, b = Offering(), Offering({"at": 1})
    made = planner(stores, a=a, b=b, settings={"last_metadata": {"a": {"file": "/8"}, "b": {IDLE_KEY: {"at": 0}}}})

    cut = made.redo(redrive(9, 3))
    (after,) = made.cut(10, 9).plans

    assert isinstance(cut, RedoCut)
    assert cut.plan is not None
    assert cut.plan.metadata == {"a": {"file": "/3", "again": True}}
    assert after.metadata == {"a": {IDLE_KEY: {"file": "/8"}}, "b": {"at": 1}}
    assert b.previous == [{"at": 0}]


def test_a_redo_of_a_spout_that_is_gone_is_refused() -> None:
    stores = Stores()
    stores.chains[3] = [quarantined(3)]

    cut = planner(stores, other=Offering()).redo(redrive(9, 3))

    assert isinstance(cut, RedoCut)
    assert cut.refused == "batch 3 cannot be planned again: the topology no longer has spout s"


def test_a_spout_that_the_topology_no_longer_has_keeps_its_place() -> None:
    """It may come back; then it goes on where it stood, and input is never counted twice."""
    a = Offering({"at": 1})
    (one,) = planner(Stores(), a=a, settings={"last_metadata": {"a": {"at": 0}, "gone": {"at": 7}}}).cut(8, 9).plans

    assert one.metadata == {"a": {"at": 1}, "gone": {IDLE_KEY: {"at": 7}}}


def test_a_planned_batch_of_a_spout_that_is_gone_halts() -> None:
    plan = Plan(
        topology="t", incarnation=INCARNATION, txid=5, previous_digest=LAST_DIGEST, metadata={"gone": {"at": 7}}
    )

    with pytest.raises(
        Halted, match="batch 5 of t is planned with input of spout gone, which the topology no longer has"
    ):
        planner(Stores(), uncommitted=[plan], a=Offering())


def test_inputs_are_remembered_by_spout() -> None:
    made = planner(Stores(), a=Offering({"file": "/a"}), b=Offering({"file": "/b"}), c=Offering())
    (one,) = made.cut(1, 9).plans

    assert made.mirror_entry(one).inputs == {
        "a": [Input(path="/a", fingerprint=b"f")],
        "b": [Input(path="/b", fingerprint=b"f")],
    }


def test_every_spout_is_closed() -> None:
    a, b = Offering(), Offering()

    planner(Stores(), a=a, b=b).close()

    assert (a.closed, b.closed) == (1, 1)


# ----------------------------------------------------------------------------------------------------------- planned ag


def test_an_opaque_batch_is_cut_again_after_the_one_before_it() -> None:
    """Opaque spouts: a failure of n has n and all after it cut again, each with the metadata of the txid before, under
    ids never used.
    """
    stores = Stores()
    s = Offering({"at": 1}, {"at": 2}, {"at": 3}, kind="opaque")
    made = planner(stores, s=s, settings={"opaque": True})
    one, two, three = made.cut(1, 3).plans
    s.offers += [{"at": 22}, {"at": 33}]

    second, third = made.cut(2, 2, last_txid=1, attempts={2: 1}).plans

    assert [(plan.txid, plan.cut) for plan in (one, two, three, second, third)] == [
        (1, 0),
        (2, 0),
        (3, 0),
        (2, 1),
        (3, 1),
    ]
    assert s.previous == [None, {"at": 1}, {"at": 2}, {"at": 1}, {"at": 22}]
    assert (second.previous_digest, third.previous_digest) == (one.digest, second.digest)
    assert [context.previous for context in s.contexts] == [None, {"at": 1}]
    assert s.closed == 1


def test_input_of_other_spouts_in_an_opaque_topology_is_used_again() -> None:
    """Their input is given once: it must be in the new cuts, in its order, before anything new."""
    a, b = Offering({"at": 1}, {"at": 2}, {"at": 3}), Offering({"at": 10}, kind="opaque")
    made = planner(Stores(), a=a, b=b, settings={"opaque": True})
    made.cut(1, 2)
    b.offers.append({"at": 11})

    plans = made.cut(1, 3, attempts={1: 1, 2: 1}).plans

    assert [plan.metadata["a"] for plan in plans] == [{"at": 1}, {"at": 2}, {"at": 3}]
    assert plans[0].metadata["b"] == {"at": 11}


def test_plans_that_zookeeper_may_hold_are_not_cut_again_under_their_ids() -> None:
    """Z6: a reply that was lost leaves a node that is create-only."""
    stores = Stores()
    s = Offering({"at": 1}, {"at": 2}, kind="opaque")
    made = planner(stores, s=s, settings={"opaque": True})
    made.cut(1, 1)
    stores.zookeeper_away = 1
    with pytest.raises(ZooKeeperUnavailable):
        made.cut(2, 1)
    s.offers += [{"at": 11}, {"at": 22}]

    plans = made.cut(1, 2, attempts={1: 1}).plans

    assert [(plan.txid, plan.cut) for plan in plans] == [(1, 1), (2, 1)]


def test_a_batch_behind_a_committed_one_is_cut_again_after_that() -> None:
    """What is committed is remembered as long as the next cut needs it, and no longer."""
    s = Offering(*({"at": at} for at in range(1, 6)), kind="opaque")
    made = planner(Stores(), s=s, settings={"opaque": True})
    plans = made.cut(1, 5).plans
    s.offers.append({"at": 44})

    (again,) = made.cut(4, 1, last_txid=3, attempts={4: 1}).plans

    assert again.previous_digest == plans[2].digest
    assert s.previous[-1] == {"at": 3}
    assert len(made._chain) == 2


def test_an_immutable_batch_is_never_cut_again() -> None:
    """R3."""
    s = Offering({"at": 1}, {"at": 2})
    made = planner(Stores(), s=s)
    made.cut(1, 1)

    with pytest.raises(InvariantBroken, match="batch 1 is planned already"):
        made.cut(1, 1)


# ------------------------------------------------------------------------------------------------------ how batches end


def committed(txid: int, state: Any, **metadata: Metadata) -> LedgerBatch:
    plan = Plan(topology="t", incarnation=INCARNATION, txid=txid, previous_digest=b"p", metadata=metadata)
    return LedgerBatch(txid=txid, state=state, redo_of=None, plan=plan.bytes)


def test_spouts_that_want_it_hear_how_a_batch_ended() -> None:
    """SettledListener: those with a part in it; where the state is not at hand the ledger is asked."""
    stores = Stores()
    a, b, c = Offering({"at": 1}, wants_settled=True), Offering({"at": 10}), Offering(wants_settled=True)
    made = planner(stores, a=a, b=b, c=c)
    (one,) = made.cut(1, 9).plans
    stores.chains[1] = [committed(9, "applied"), committed(1, "quarantined")]

    made.settled(one, "applied")
    made.settled(one, None)

    assert made.wants_settled
    assert a.told == [(1, {"at": 1}, "applied"), (1, {"at": 1}, "quarantined")]
    assert b.told == c.told == []
    assert not planner(Stores(), b=Offering()).wants_settled


def test_what_waits_is_known_of_the_spouts_that_say_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """LaggingCoordinator: the sum, and by name the partitions where most waits."""
    monkeypatch.setattr(limits, "LAGGING_NAMED_MAX", 2)
    a, b = Offering({"at": 1}), Offering({"at": 10})
    made = planner(Stores(), a=a, b=b)
    made.cut(1, 9)
    assert made.lag == {}

    a.lag = lambda: {"p": 3, "q": 0, "r": 7, "s": 5}  # type: ignore[attr-defined]
    made.cut(2, 9)
    assert made.lag == {"lag": {"a": {"records": 15, "lagging": 3, "partitions": {"r": 7, "s": 5}}}}


def test_what_a_spout_could_not_be_told_is_told_before_the_next_cut() -> None:
    """At least once, in order; nothing is planned before, so that a takeover knows how far back to go."""
    said: list[str] = []
    a = Offering({"at": 1}, {"at": 2}, {"at": 3}, wants_settled=True)
    made = planner(Stores(), a=a, settings={"say": said.append})
    one, two = made.cut(1, 2).plans
    a.trouble = OSError("broker away")
    made.settled(one, "applied")
    made.settled(two, "applied")
    with pytest.raises(OSError, match="broker away"):
        made.cut(3, 9)
    assert said[0] == "a spout could not be notified that batch 1 is committed: broker away; trying again"
    a.trouble = None

    assert len(made.cut(3, 9).plans) == 1
    assert [txid for txid, _, _ in a.told] == [1, 2]


def test_a_new_leader_tells_of_the_batches_that_were_committed_lately() -> None:
    """A driver may die between COMMIT and ack: every batch that may not have been told is told once more."""
    stores = Stores()
    stores.chains = {txid: [committed(txid, "applied", a={"at": txid}, b={"at": 0})] for txid in range(1, 8)}
    redo = committed(7, "applied", a={"at": 7})
    stores.chains[6] = [committed(6, "quarantined", a={"at": 6}, b={IDLE_KEY: None}), redo]
    stores.chains[7] = [committed(6, "quarantined", a={"at": 6}), redo]
    a = Offering(wants_settled=True)

    planner(stores, a=a, settings={"last_txid": 7, "notified_again": 3})

    assert a.told == [(5, {"at": 5}, "applied"), (6, {"at": 6}, "quarantined"), (7, {"at": 7}, "applied")]


def test_a_mistake_in_ack_halts_with_the_batch_named() -> None:
    a = Offering({"at": 1}, wants_settled=True)
    made = planner(Stores(), a=a)
    (one,) = made.cut(1, 9).plans
    a.trouble = BatchDataError("KeyError in ack", component="a")

    with pytest.raises(Halted, match="batch 1 of t is committed, but a could not be notified: KeyError in ack"):
        made.settled(one, "applied")
