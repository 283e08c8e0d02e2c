"""The cross-check of both stores at takeover (R11)."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tests.kit.machines import INCARNATION, chain, plan
from txtopo.core.plan import Plan, read_plan
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
        code_hash=b"code",
    )
    return replace(both, **changes)  # type: ignore[arg-type]


def record(
    txid: int, attempt: int, state: str = "begun", alone: bool = False, code_hash: bytes = b"code"
) -> AttemptRecord:
    return AttemptRecord(
        attempt=TransactionAttempt(txid, attempt), epoch=1, state=state, kind=None, alone=alone, code_hash=code_hash
    )


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


def opaque(**changes: object) -> Stores:
    """Batch 2 is committed, 3 is mirrored, 4 to 6 were planned and are planned again."""
    cuts = {txid: {0: plan(txid, path="/old").bytes, 1: plan(txid).bytes} for txid in (2, 3, 4, 6)}
    redo = replace(plan(5), kind="redo", redo_of=1)
    return stores(
        opaque=True,
        coordinator_plans={},
        coordinator_cuts={**cuts, 3: {0: PLANS[0].bytes}, 5: {0: redo.bytes}},
        **changes,
    )


def test_of_an_opaque_topology_only_what_is_mirrored_is_adopted() -> None:
    """R9: the last plan of each other batch is planned again, but for redos, which their orders plan."""
    found = reconcile(opaque())

    assert (found.plans, found.restore, found.mirrored_txid) == ((PLANS[0],), (), 3)
    assert found.discarded == (plan(4), plan(6))
    assert reconcile(opaque(mirrored_plans=[])).discarded == (PLANS[0], plan(4), plan(6))
    assert reconcile(stores()).discarded == ()


def test_a_hole_in_what_is_mirrored_of_an_opaque_topology_halts() -> None:
    """What is mirrored may be committed: nothing is planned in its place."""
    with pytest.raises(Halted, match="batch 3 has no plan, but batch 4 has one"):
        reconcile(opaque(mirrored_plans=[plan(4).bytes]))


def test_batches_that_an_opaque_spout_planned_are_not_left_out_by_another() -> None:
    """Only those that are committed are done with."""
    done = stores(coordinator_cuts={2: {0: plan(2).bytes}, 5: {0: plan(5).bytes}})
    assert [one.txid for one in reconcile(done).plans] == [3, 4, 5]

    with pytest.raises(Halted, match="batch 6 was cut by an opaque spout") as halt:
        reconcile(stores(coordinator_cuts={6: {0: plan(6).bytes}}))
    assert halt.value.txid == 6


def test_attempts_of_committed_batches_are_forgotten() -> None:
    found = reconcile(stores(coordinator_attempts={1: 7, 2: 5, 3: 0}, attempts=[record(2, 6)]))

    assert found.next_attempts == {3: 1, 4: 0, 5: 0}


def test_attempts_without_an_end_make_suspects_and_count_their_runs_alone() -> None:
    attempts = [record(3, 0), record(3, 1, alone=True), record(4, 0, "failed"), record(2, 0)]

    assert reconcile(stores(attempts=attempts)).suspects == {3: 1}


def test_runs_alone_count_for_the_code_that_ran() -> None:
    """Other code may be the remedy, and gets as many tries; the batch stays a suspect, so it runs alone."""
    old = [record(4, number, alone=True, code_hash=b"old") for number in range(3)]
    found = reconcile(stores(attempts=[*old, record(4, 3, alone=True)]))

    assert (found.suspects, found.suspects_once) == ({4: 1}, frozenset())
    assert reconcile(stores(attempts=old, code_hash=b"old")).suspects == {4: 3}
    assert reconcile(stores(attempts=old[:1])).suspects_once == frozenset()


def test_runs_alone_count_only_where_they_may_have_ended_their_driver() -> None:
    """Of the batch whose turn it is since it is; of one behind it where no other began alone after it. Whoever was
    processed and waited is innocent.
    """

    def at(epoch: int, txid: int, attempt: int) -> AttemptRecord:
        return replace(record(txid, attempt, alone=True), epoch=epoch)

    attempts = [at(5, 3, 0), at(6, 3, 1), at(7, 3, 2), at(7, 4, 0), at(7, 5, 0), at(8, 3, 3), at(8, 4, 1)]
    attempts.append(replace(record(5, 1, "failed"), epoch=8))  # in a wave, and its end is known

    assert reconcile(stores(attempts=attempts, last_epoch=7)).suspects == {3: 2, 4: 1, 5: 1}
    assert reconcile(stores(attempts=attempts, last_epoch=5)).suspects == {3: 4, 4: 1, 5: 1}


def test_a_batch_that_is_mirrored_was_processed_once() -> None:
    """Only what is processed is mirrored: of such a batch one attempt without an end only waited for its turn, and no
    more than one.
    """
    twice = reconcile(stores(attempts=[record(3, 0), record(3, 1)]))

    assert reconcile(stores(attempts=[record(3, 0)])).suspects == {}
    assert twice.suspects == {3: 0}
    assert twice.suspects_once == {3}


def test_suspects_of_one_end_that_they_shared_are_told_apart() -> None:
    """One attempt without an end beside others is what a driver's death leaves; two of them, or one alone, say more."""
    once = [record(4, 0)]

    assert reconcile(stores(attempts=once)).suspects_once == {4}
    assert reconcile(stores(attempts=[*once, record(4, 1)])).suspects_once == frozenset()
    assert reconcile(stores(attempts=[record(4, 0, alone=True)])).suspects_once == frozenset()


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


class TestOpaque:
    """R11: opaque plans that are not mirrored are dropped from view, a mirrored one is adopted."""

    def cuts(self, *plans: Plan) -> dict[int, dict[int, bytes]]:
        found: dict[int, dict[int, bytes]] = {}
        for one in plans:
            found.setdefault(one.txid, {})[one.cut] = one.bytes
        return found

    def stores(self, **changes: object) -> Stores:
        """Batch 2 is committed, 3 and 4 were cut, 4 twice."""
        again = replace(PLANS[1], cut=1)
        opaque = {"opaque": True, "coordinator_plans": {}, "mirrored_plans": [], "coordinator_attempts": {3: 0, 4: 1}}
        return stores(**{**opaque, "coordinator_cuts": self.cuts(*PLANS[:2], again), **changes})

    def test_what_is_not_mirrored_is_cut_again_with_ids_above_all_that_are_known(self) -> None:
        found = reconcile(self.stores(attempts=[record(3, 4, "failed")], coordinator_attempts={4: 0}))

        assert (found.plans, found.restore, found.mirrored_txid) == ((), (), 2)
        assert found.next_attempts == {3: 5, 4: 2}

    def test_a_mirrored_cut_is_adopted(self) -> None:
        found = reconcile(self.stores(mirrored_plans=[PLANS[0].bytes]))

        assert (found.plans, found.restore, found.mirrored_txid) == ((PLANS[0],), (), 3)
        assert found.next_attempts == {3: 1, 4: 2}

    def test_a_mirrored_cut_that_zookeeper_lost_is_restored(self) -> None:
        found = reconcile(self.stores(mirrored_plans=[PLANS[0].bytes], coordinator_cuts={}, mark=0))

        assert (found.plans, found.restore) == ((PLANS[0],), (PLANS[0],))

    def test_a_mirrored_cut_that_zookeeper_has_otherwise_halts(self) -> None:
        """R9."""
        other = plan(3, b"last", path="/other")

        with pytest.raises(Halted, match="planned differently"):
            reconcile(self.stores(mirrored_plans=[PLANS[0].bytes], coordinator_cuts=self.cuts(other)))

    def test_a_mirrored_cut_that_follows_another_batch_halts(self) -> None:
        """R12: a stale plan is never processed."""
        stale = plan(3, b"another", path="/3")

        with pytest.raises(Halted, match="follows another batch"):
            reconcile(self.stores(mirrored_plans=[stale.bytes], coordinator_cuts=self.cuts(stale)))

    def test_commits_that_postgres_lost_are_replayed_from_their_last_cuts(self) -> None:
        """P7: once mirrored nothing is cut again, so the highest cut of a committed batch is the one that was
        committed.
        """
        third, fourth = replace(PLANS[0], cut=1), replace(PLANS[1], cut=2)
        fourth = replace(fourth, previous_digest=third.digest)
        both = self.cuts(PLANS[0], third, PLANS[1], fourth, PLANS[2])

        found = reconcile(self.stores(mark=4, coordinator_cuts=both))

        assert found.plans == (third, fourth)
        assert found.mirrored_txid == 2

    def test_commits_that_postgres_lost_without_their_cuts_halt(self) -> None:
        with pytest.raises(Halted, match="as committed"):
            reconcile(self.stores(mark=5))

    def test_a_begun_attempt_of_a_batch_that_is_cut_again_is_a_suspect(self) -> None:
        found = reconcile(self.stores(attempts=[record(3, 0), record(4, 0, alone=True), record(4, 1, "cancelled")]))

        assert found.suspects == {3: 0, 4: 1}

    def test_plans_from_before_the_spout_was_opaque_halt_with_what_to_do(self) -> None:
        with pytest.raises(Halted, match="before its spout became opaque") as raised:
            reconcile(self.stores(coordinator_cuts={}, coordinator_plans={3: PLANS[0].bytes}))

        assert raised.value.next_command == "txtopo replan t"

    def test_mirrored_plans_from_before_the_spout_was_opaque_are_adopted(self) -> None:
        both = {one.txid: one.bytes for one in PLANS[:2]}

        found = reconcile(self.stores(coordinator_cuts={}, coordinator_plans=both, mirrored_plans=list(both.values())))

        assert (found.plans, found.restore) == (PLANS[:2], ())

    def test_cuts_from_when_the_spout_was_opaque_halt(self) -> None:
        with pytest.raises(Halted, match="cut by an opaque spout"):
            reconcile(self.stores(opaque=False))
