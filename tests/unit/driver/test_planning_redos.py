"""Plans of batches that redo others: linked to what they redo, without moving the source."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import pytest

from tests.kit.machines import chain
from tests.unit.driver.test_planner import LAST_DIGEST, Source, Stores, opened, quarantined, redrive
from txtopo.core.events import CutRedo, PlansCut, Redo, RedoCut
from txtopo.core.plan import Metadata
from txtopo.core.values import LedgerBatch
from txtopo.errors import BatchDataError, Halted, ZooKeeperUnavailable


def test_a_redo_is_a_plan_of_its_own_linked_to_what_it_redoes() -> None:
    """R12: the digest covers kind, redo_of and order; inputs are described as they are now; durable before it is told
    (R3).
    """
    stores = Stores()
    stores.chains[3] = [quarantined(3)]
    made = opened(Source(), stores)

    cut = made.redo(redrive(9, 3))

    assert isinstance(cut, RedoCut)
    plan = cut.plan
    assert plan is not None
    assert (plan.txid, plan.kind, plan.redo_of, plan.order_id) == (9, "redo", 3, 5)
    assert plan.metadata == {"s": {"file": "/3", "again": True}}
    assert plan.previous_digest == LAST_DIGEST
    assert stores.recorded == [plan]


def test_a_redo_never_moves_the_source() -> None:
    """R12: `previous` is the metadata of the highest txid that redoes nothing."""
    stores = Stores()
    stores.chains[3] = [quarantined(3)]
    source = Source({"file": "/9"}, {"file": "/11"})
    made = opened(source, stores, last_metadata={"s": {"file": "/8"}})
    made.cut(9, 1)
    made.redo(redrive(10, 3))

    (after,) = made.cut(11, 1).plans

    assert source.previous == [{"file": "/8"}, {"file": "/9"}]
    assert after.previous_digest == stores.recorded[-2].digest


def test_the_source_is_not_moved_by_a_redo_that_a_new_leader_finds_either() -> None:
    stores = Stores()
    (cut,) = chain(9, 9, LAST_DIGEST)
    redo = replace(cut, txid=10, previous_digest=cut.digest, kind="redo", redo_of=3, order_id=5)
    source = Source({"file": "/11"})
    made = opened(source, stores, cut, redo)

    made.cut(11, 1)

    assert source.previous == [cut.metadata["s"]]


def test_the_source_is_not_moved_by_a_redo_that_is_committed_either() -> None:
    """R12: of committed plans the last one is kept, and the last one that redoes nothing: it is the `previous` of the
    next cut.
    """
    source, stores = Source({"file": "a"}, {"file": "b"}), Stores()
    stores.chains[3] = [quarantined(3, {"file": "old"})]
    made = opened(source, stores)
    made.cut(9, 1)
    redo = made.redo(redrive(10, 3))
    assert isinstance(redo, RedoCut) and redo.plan is not None

    (plan,) = made.cut(11, 1, last_txid=10).plans

    assert source.previous == [None, {"file": "a"}]
    assert plan.previous_digest == redo.plan.digest


def test_a_redo_that_zookeeper_has_not_confirmed_is_recorded_again() -> None:
    """Z6: it may be there already; another plan in its place would halt the topology."""
    stores = Stores()
    stores.chains[3] = [quarantined(3)]
    made = opened(Source(), stores)
    stores.zookeeper_away = 1
    with pytest.raises(ZooKeeperUnavailable):
        made.redo(redrive(9, 3))

    again = made.redo(redrive(9, 3))

    assert isinstance(again, PlansCut)
    assert stores.tried == [*again.plans, *again.plans]


def test_a_redo_that_cannot_be_planned_says_why() -> None:
    """The order is refused with these words, and everything else goes on."""
    stores = Stores()
    made = opened(Source(), stores)

    def expired(txid: int) -> Sequence[LedgerBatch]:
        raise Halted("the plan of batch 3 was removed by retention", next_command="-")

    stores.redo_chain = expired  # type: ignore[method-assign]
    assert made.redo(redrive(9, 3)) == RedoCut(
        redo=redrive(9, 3).redo, refused="the plan of batch 3 was removed by retention"
    )
    del stores.redo_chain
    stores.chains[3] = [replace(quarantined(3), state="applied")]
    refused = made.redo(redrive(9, 3))
    assert isinstance(refused, RedoCut) and refused.plan is None and refused.refused
    assert stores.tried == []


def test_plans_that_zookeeper_has_not_confirmed_come_before_a_redo() -> None:
    """Z6: txids are contiguous; what may be there already is recorded again first."""
    stores = Stores()
    stores.chains[3] = [quarantined(3)]
    made = opened(Source({"file": "/9"}), stores)
    stores.zookeeper_away = 1
    with pytest.raises(ZooKeeperUnavailable):
        made.cut(9, 1)

    first = made.redo(redrive(9, 3))
    second = made.redo(redrive(10, 3))

    assert isinstance(first, PlansCut)
    assert [plan.txid for plan in first.plans] == [9]
    assert isinstance(second, RedoCut)
    assert second.plan is not None
    assert second.plan.previous_digest == first.plans[0].digest


def test_a_redo_whose_input_is_gone_is_refused_and_nothing_else_is_held_up() -> None:
    stores = Stores()
    stores.chains[3] = [quarantined(3)]
    source = Source()
    source.initialize_redo = _gone  # type: ignore[method-assign]

    cut = opened(source, stores).redo(redrive(9, 3))

    assert isinstance(cut, RedoCut)
    assert cut.refused == "batch 3 cannot be planned again: /3: gone"
    assert stores.tried == []


def _gone(metadata: Metadata) -> Metadata:
    raise BatchDataError("/3: gone", component="s", position="/3")


def test_a_batch_is_not_recomputed_where_a_committer_keeps_no_contributions() -> None:
    """Refused, naming the committer, unless every committer keeps contributions."""
    stores = Stores()
    stores.chains[3] = [replace(quarantined(3), state="applied")]
    made = opened(Source(), stores)
    made.committers = [Component("keeps", contributions=True), Component("totals", contributions=False)]  # type: ignore[list-item]

    cut = made.redo(CutRedo(first_txid=9, redo=Redo(order_id=5, kind="recompute", txid=3), open_redos=()))

    assert isinstance(cut, RedoCut)
    assert cut.refused == "batch 3 cannot be recomputed: committer totals keeps no contributions"


class Component:
    """A committer by name, as far as a planner sees it."""

    def __init__(self, name: str, *, contributions: bool) -> None:
        self.name = name
        self.bolt = self
        self.contributions = contributions
