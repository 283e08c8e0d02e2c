"""The cross-check of both stores at takeover (R11)."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tests.kit.machines import INCARNATION, chain, plan
from txtopo.core.plan import read_plan
from txtopo.core.reconcile import Stores, reconcile
from txtopo.core.values import AttemptRecord, TransactionAttempt
from txtopo.errors import Halted

PLANS = chain(3, 5, b"last")


def stores(**changes: object) -> Stores:
    """Batch 2 is committed, 3 to 5 are planned, 3 is mirrored."""
    both = Stores(
        topology="t",
        incarnation=INCARNATION,
        last_txid=2,
        last_digest=b"last",
        mark=2,
        coordinator_plans={one.txid: one.bytes for one in PLANS},
        mirrored_plans=[PLANS[0].bytes],
        coordinator_attempts={3: 0, 4: 0, 5: 0},
        attempts=[],
    )
    return replace(both, **changes)  # type: ignore[arg-type]


def record(txid: int, attempt: int, state: str = "begun", alone: bool = False) -> AttemptRecord:
    return AttemptRecord(attempt=TransactionAttempt(txid, attempt), epoch=1, state=state, kind=None, alone=alone)


def test_planned_batches_are_taken_up_with_attempt_ids_that_were_never_used() -> None:
    found = reconcile(stores(attempts=[record(4, 3, "failed")]))

    assert [one.txid for one in found.plans] == [3, 4, 5]
    assert found.mirrored_txid == 3
    assert found.next_attempts == {3: 1, 4: 4, 5: 1}
    assert found.restore == ()


def test_mirrored_plans_that_zookeeper_lost_are_restored() -> None:
    """R9, R11: absent in ZooKeeper and present in Postgres means wiped."""
    found = reconcile(stores(coordinator_plans={}, mark=0, coordinator_attempts={}))

    assert [one.txid for one in found.plans] == [3]
    assert [one.txid for one in found.restore] == [3]


def test_different_plans_for_one_txid_halt() -> None:
    """R9."""
    other = plan(3, b"last", path="/other")

    with pytest.raises(Halted, match="planned differently"):
        reconcile(stores(coordinator_plans={3: other.bytes}))


def test_commits_that_postgres_lost_are_replayed_when_all_their_plans_are_kept() -> None:
    """P7: survived when plans are kept."""
    found = reconcile(stores(mark=5))

    assert [one.txid for one in found.plans] == [3, 4, 5]


def test_commits_that_postgres_lost_without_their_plans_halt_with_both_positions() -> None:
    """R11: PG.last >= ZooKeeper's mark, else replay from kept plans or halt."""
    with pytest.raises(Halted, match=r"batch 6 as committed, Postgres has 2 and plans up to 5"):
        reconcile(stores(mark=6))


def test_a_hole_in_the_plans_halts() -> None:
    with pytest.raises(Halted, match="batch 4 has no plan, but batch 5 has one"):
        reconcile(stores(coordinator_plans={3: PLANS[0].bytes, 5: PLANS[2].bytes}))


def test_a_plan_that_follows_another_batch_halts() -> None:
    """R12: the digest chains."""
    with pytest.raises(Halted, match="follows another batch 2"):
        reconcile(stores(last_digest=b"else"))


def test_a_plan_of_another_life_of_the_topology_halts() -> None:
    with pytest.raises(Halted, match="another life"):
        reconcile(stores(incarnation="00000000-0000-0000-0000-000000000002"))


def test_attempts_without_an_end_make_suspects_and_count_their_runs_alone() -> None:
    attempts = [record(3, 0), record(3, 1, alone=True), record(4, 0, "failed"), record(2, 0)]

    assert reconcile(stores(attempts=attempts)).suspects == {3: 1}


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"{}",
        b"\xff",
        b"[1]",
        b'{"v":2}',
        PLANS[0].bytes + b" ",
        PLANS[0].bytes.replace(b'"txid":3', b'"txid":-3'),
        b"[" * 100_000,
    ],
)
def test_an_unreadable_plan_halts_and_never_reads_as_no_state(data: bytes) -> None:
    """Z14: unparsable = halt."""
    with pytest.raises(Halted, match="here holds"):
        read_plan(data, "here")
