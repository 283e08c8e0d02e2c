"""Taking the lead on memory stores: the order of the steps, and what each of them is there for (R1, R2, R9, R11, R12)."""  # noqa: E501

from __future__ import annotations

import uuid
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

import pytest

from tests.contracts.ledger_driver import Driver, claim_for, committer
from tests.kit.machines import plan
from txtopo.committers.memory.memory_ledger import MemoryLedger, MemoryPostgres
from txtopo.coordinators.codec import CandidateNode, EpochNode, encode_epoch, encode_mark
from txtopo.coordinators.election import Election
from txtopo.coordinators.memory import MemorySession, MemoryZooKeeper
from txtopo.coordinators.paths import TopologyPaths
from txtopo.coordinators.topology_nodes import TopologyCoordinator
from txtopo.core.plan import Plan
from txtopo.core.values import Committed, Failure, TransactionAttempt
from txtopo.driver.takeover import CandidateIdentity, Leadership, take_lead
from txtopo.errors import Fenced, Halted, LeadLost, PostgresUnavailable
from txtopo.ports import AttemptStart, DeleteNode, MirrorEntry, Operation, SetNode

CODE = b"code-1"
OTHER = b"code-2"


def nothing() -> None:
    """What happens in between, mostly."""


class Noting:
    """Passes every call on, and notes its name before; `before` says what happens just then, by method."""

    def __init__(
        self, inner: Any, name: str, calls: list[str], before: Mapping[str, Callable[[], None]] | None = None
    ) -> None:
        self._inner, self._name, self._calls, self._before = inner, name, calls, before or {}

    def __getattr__(self, method: str) -> Any:
        self._calls.append(f"{self._name}.{method}")
        self._before.get(method, nothing)()
        return getattr(self._inner, method)


class Candidacy:
    """One driver that stands in the queue of both stores."""

    def __init__(
        self, zookeeper: MemoryZooKeeper, postgres: MemoryPostgres, *, code: bytes = CODE, epoch_seen: int = 1 << 40
    ) -> None:
        nonce = str(uuid.uuid4())
        self.identity = CandidateIdentity(
            topology="t",
            owner_nonce=nonce,
            new_incarnation=str(uuid.uuid4()),
            code_hash=code,
            host="h",
            pid=1,
            application="a.py:t",
            description={},
            epoch_seen=epoch_seen,
        )
        self.calls: list[str] = []
        self.session = MemorySession(zookeeper)
        self.coordinator = TopologyCoordinator(self.session, "t")
        self.ledger = MemoryLedger(postgres, "t")
        self.election = Election(self.session, "t", CandidateNode(host="h", pid=1, since="-", nonce=nonce))
        self.election.enter()
        self.said: list[str] = []
        self.before_claim: Callable[[], None] = nothing

    def lead(self) -> Leadership:
        """Take the lead as a driver does."""
        candidacy: Any = Noting(self.election, "candidacy", self.calls)
        coordinator: Any = Noting(self.coordinator, "coordinator", self.calls)
        ledger: Any = Noting(self.ledger, "ledger", self.calls, {"claim_fence": self.before_claim})
        return take_lead(self.identity, candidacy, coordinator, ledger, self.said.append)

    def die(self) -> None:
        """The process is gone, its session with it."""
        self.ledger.close()
        self.session.close()


@pytest.fixture
def zookeeper() -> MemoryZooKeeper:
    return MemoryZooKeeper()


@pytest.fixture
def postgres() -> MemoryPostgres:
    return MemoryPostgres()


def first_plan(leadership: Leadership) -> Plan:
    """A plan that follows the genesis row."""
    return replace(plan(1, leadership.last_digest), incarnation=leadership.lead.incarnation)


def test_the_steps_have_the_order_that_makes_them_safe(zookeeper: MemoryZooKeeper, postgres: MemoryPostgres) -> None:
    """R12 before anything, Z1 before R1, R1 before R2, and what decides is read behind the epoch write (Z8)."""
    driver = Candidacy(zookeeper, postgres)

    driver.lead()

    assert driver.calls == [
        "ledger.read_fence",
        "coordinator.read",
        "candidacy.confirm",
        "ledger.claim_fence",
        "coordinator.write_epoch",
        "coordinator.read",
    ]


def test_a_candidate_that_is_not_first_raises_no_epoch(zookeeper: MemoryZooKeeper, postgres: MemoryPostgres) -> None:
    """Z1: one that slept, and woke when another had its place, would fence that one for nothing."""
    leader, sleeper = Candidacy(zookeeper, postgres), Candidacy(zookeeper, postgres)
    epoch = leader.lead().lead.epoch

    with pytest.raises(LeadLost):
        sleeper.lead()

    assert postgres.topologies["t"].fence.epoch == epoch


def test_the_epoch_is_above_that_of_zookeeper_too(zookeeper: MemoryZooKeeper, postgres: MemoryPostgres) -> None:
    """R1: after Postgres was restored to an earlier time ZooKeeper's epoch is the higher one."""
    before = Candidacy(zookeeper, postgres)
    lead = before.lead().lead
    before.coordinator.write_epoch(replace(lead, epoch=lead.epoch + 6), "memory")
    before.die()

    assert Candidacy(zookeeper, postgres).lead().lead.epoch == lead.epoch + 7


@pytest.mark.parametrize(
    ("code", "epoch_seen", "leads"),
    [(OTHER, 0, False), (OTHER, 1, True), (CODE, 0, True)],
    ids=["other code, started before", "other code, started after", "same code"],
)
def test_a_standby_with_other_code_stands_aside_unless_it_was_started_later(
    zookeeper: MemoryZooKeeper, postgres: MemoryPostgres, code: bytes, epoch_seen: int, leads: bool
) -> None:
    """R12: old code that waited must not take over from the newer one."""
    leader = Candidacy(zookeeper, postgres)
    assert leader.lead().lead.epoch == 1
    leader.die()
    standby = Candidacy(zookeeper, postgres, code=code, epoch_seen=epoch_seen)

    if leads:
        assert standby.lead().lead.epoch == 2
    else:
        with pytest.raises(Fenced, match="other code"):
            standby.lead()
        assert postgres.topologies["t"].fence.epoch == 1


@pytest.mark.parametrize(("failures", "leads"), [(1, True), (2, False)])
def test_a_connection_that_died_while_a_standby_waited_does_not_cost_the_lead(
    zookeeper: MemoryZooKeeper, postgres: MemoryPostgres, failures: int, leads: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Once: a second failure is an outage of Postgres, and another standby may do better."""
    standby = Candidacy(zookeeper, postgres)
    left, read = [failures], standby.ledger.read_fence

    def dying() -> Any:
        if left[0]:
            left[0] -= 1
            raise PostgresUnavailable("server closed the connection unexpectedly")
        return read()

    monkeypatch.setattr(standby.ledger, "read_fence", dying)
    if leads:
        assert standby.lead().lead.epoch == 1
    else:
        with pytest.raises(PostgresUnavailable):
            standby.lead()


def test_another_cluster_with_the_same_incarnation_halts(zookeeper: MemoryZooKeeper, postgres: MemoryPostgres) -> None:
    """R11: a copy of the database is not the database; nothing is written to ZooKeeper for it."""
    before = Candidacy(zookeeper, postgres)
    lead = before.lead().lead
    before.coordinator.write_epoch(replace(lead, epoch=lead.epoch + 1), "another cluster")
    before.die()
    driver = Candidacy(zookeeper, postgres)

    with pytest.raises(Halted, match="another cluster"):
        driver.lead()

    assert driver.coordinator.read().epoch == lead.epoch + 1


def test_another_incarnation_halts_before_the_fence_is_claimed(postgres: MemoryPostgres) -> None:
    """R11: these stores do not belong together, so neither is written."""
    before = Candidacy(MemoryZooKeeper(), postgres)
    lead = before.lead().lead
    driver = Candidacy(MemoryZooKeeper(), postgres)
    driver.coordinator.write_epoch(replace(lead, incarnation=str(uuid.uuid4())), "memory")

    with pytest.raises(Halted, match="incarnation"):
        driver.lead()

    assert postgres.topologies["t"].fence.epoch == lead.epoch


OTHER_LIFE = encode_epoch(
    EpochNode(epoch=1, incarnation=str(uuid.UUID(int=9)), system_identifier="memory", owner_nonce="x")
)
DAMAGE: dict[str, tuple[Callable[[TopologyPaths], Operation], str]] = {
    "a plan that is no plan": (lambda paths: SetNode(paths.plan(1), b"{{{"), "holds no readable plan"),
    "the plan of another batch": (lambda paths: SetNode(paths.plan(2), b""), "holds the plan of t 1"),
    "a hole among the plans": (lambda paths: DeleteNode(paths.plan(1)), "knows batch|has no plan"),
    "a counter ahead of Postgres": (
        lambda paths: SetNode(paths.mark, encode_mark(1000)),
        "Postgres was restored to an earlier time",
    ),
    "no epoch": (lambda paths: DeleteNode(paths.epoch), "changed by hand or restored in part"),
    "no counter": (lambda paths: DeleteNode(paths.mark), "removed by hand or restored in part"),
    "garbage for attempts": (lambda paths: SetNode(paths.attempts, b"garbage"), "cannot be read"),
    "an epoch of another life": (lambda paths: SetNode(paths.epoch, OTHER_LIFE), "is incarnation"),
}


@pytest.mark.parametrize("damage", DAMAGE)
def test_a_halt_while_taking_the_lead_is_in_status_and_its_next_command_helps(
    zookeeper: MemoryZooKeeper, postgres: MemoryPostgres, damage: str
) -> None:
    """Whoever looks at `status` sees HALTED and why; removing the topology's node, as the halt says, lets the next
    driver lead.
    """
    before = Candidacy(zookeeper, postgres)
    leadership = before.lead()
    plans = [first_plan(leadership)]
    plans.append(replace(plan(2, plans[0].digest), incarnation=leadership.lead.incarnation))
    before.coordinator.record_plans(plans)
    paths = TopologyPaths("t")
    operation, words = DAMAGE[damage]
    before.session.multi(
        [SetNode(paths.plan(2), plans[0].bytes) if damage == "the plan of another batch" else operation(paths)]
    )
    before.ledger.note_end(leadership.lead, "stopped", "interrupted", None, 2)
    before.die()
    driver = Candidacy(zookeeper, postgres)

    with pytest.raises(Halted, match=words) as halt:
        driver.lead()

    life = postgres.topologies["t"].life
    assert (life["state"], life["reason"], life["advice"]) == ("halted", halt.value.reason, halt.value.next_command)
    if damage == "an epoch of another life":
        assert life["advice"] == "name the stores that belong together"
        return
    assert "remove /t below the chroot" in life["advice"]
    driver.die()
    remove_all(MemorySession(zookeeper), "/t")
    following = Candidacy(zookeeper, postgres)
    assert following.lead().last_txid == 0
    assert postgres.topologies["t"].life["state"] == "running"


def remove_all(session: MemorySession, path: str) -> None:
    """`deleteall` of ZooKeeper's client."""
    for name in session.children(path):
        remove_all(session, f"{path}/{name}")
    session.multi([DeleteNode(path)])


def test_what_the_old_leader_wrote_last_is_taken_up(zookeeper: MemoryZooKeeper, postgres: MemoryPostgres) -> None:
    """Z8: a plan that came in between the first look and the epoch write is there, and is not cut again."""
    old = Candidacy(zookeeper, postgres)
    leadership = old.lead()
    one = first_plan(leadership)
    new = Candidacy(zookeeper, postgres)
    zookeeper.expire(old.session)
    late = TopologyCoordinator(MemorySession(zookeeper), "t")
    late.write_epoch(replace(leadership.lead, epoch=2), "memory")
    new.before_claim = lambda: late.record_plans([one])

    found = new.lead()

    assert found.lead.epoch == 3
    assert [each.txid for each in found.reconciled.plans] == [1]


def test_a_wiped_zookeeper_gets_plans_and_attempt_ids_back(
    zookeeper: MemoryZooKeeper, postgres: MemoryPostgres
) -> None:
    """R9, R11: what is uncommitted stands in both stores again before anything else happens, and no attempt id is used
    twice.
    """
    old = Candidacy(zookeeper, postgres)
    leadership = old.lead()
    one = first_plan(leadership)
    old.coordinator.record_plans([one])
    old.ledger.begin_attempts(leadership.lead, [AttemptStart(attempt=TransactionAttempt(1, 4), alone=False)])
    old.ledger.end_attempt(
        leadership.lead, TransactionAttempt(1, 4), "failed", Failure(kind="infrastructure", message="gone")
    )
    old.ledger.mirror(leadership.lead, [MirrorEntry(plan=one, inputs={})])
    old.die()
    zookeeper.wipe()
    new = Candidacy(zookeeper, postgres)

    found = new.lead()

    view = new.coordinator.read()
    assert view.plans == {1: one.bytes}
    assert view.attempts == {1: 4}
    assert found.reconciled.next_attempts == {1: 5}
    assert new.said == []  # nothing is committed yet, so there is nothing to tell


@pytest.mark.parametrize("is_wiped", [True, False])
def test_the_operator_is_told_that_zookeeper_was_wiped(
    zookeeper: MemoryZooKeeper, postgres: MemoryPostgres, is_wiped: bool
) -> None:
    """R11: it is restored, and whoever wiped it by mistake reads of it."""
    old = Driver(MemoryLedger(postgres, "t"), MemoryLedger(postgres, "t").claim_fence(claim_for("t")), (committer(),))
    old.ledger.prepare_targets(old.lead, old.committers)
    assert isinstance(old.commit(old.ready(1)), Committed)
    first = Candidacy(zookeeper, postgres)
    first.lead()
    first.die()
    if is_wiped:
        zookeeper.wipe()
    new = Candidacy(zookeeper, postgres)

    assert new.lead().last_txid == 1
    words = "ZooKeeper knows nothing of this topology: restoring it from Postgres"
    assert new.said == ([words] if is_wiped else [])


def planned_and_left(zookeeper: MemoryZooKeeper, postgres: MemoryPostgres) -> list[Plan]:
    """A leader has planned two batches, mirrored none of them, and is gone."""
    driver = Candidacy(zookeeper, postgres)
    leadership = driver.lead()
    first = first_plan(leadership)
    second = replace(plan(2, first.digest), incarnation=leadership.lead.incarnation)
    driver.coordinator.record_plans([first, second])
    driver.die()
    return [first, second]


def test_plans_are_dropped_by_an_order_under_the_new_epoch(
    zookeeper: MemoryZooKeeper, postgres: MemoryPostgres
) -> None:
    """R3's one exception: the epoch is raised in both stores, then what is dropped is noted, then it is dropped."""
    planned_and_left(zookeeper, postgres)
    order_id = postgres.ask("t", "replan", (), "wrong schema")
    driver = Candidacy(zookeeper, postgres)

    leadership = driver.lead()

    assert leadership.reconciled.plans == ()
    assert leadership.orders == ()
    assert driver.calls[4:] == [
        "coordinator.write_epoch",
        "coordinator.read",
        "ledger.note_progress",
        "coordinator.drop_plans",
        "ledger.answer_order",
    ]
    assert postgres.orders[order_id][1].state == "done"
    assert driver.said == [postgres.orders[order_id][1].answer]
    assert driver.said[0].startswith("plans of batches 1, 2 dropped: ")
    (action,) = [row.action for row in postgres.actions]
    assert (action.command, action.order_id, action.after) == ("replan", order_id, {"plans": {}})
    assert list(action.before["plans"]) == ["1", "2"]


def test_a_mirrored_plan_is_never_dropped(zookeeper: MemoryZooKeeper, postgres: MemoryPostgres) -> None:
    """R3: only what was never mirrored, since a mirrored plan may have been committed by somebody who was not heard."""
    driver = Candidacy(zookeeper, postgres)
    leadership = driver.lead()
    first = first_plan(leadership)
    driver.coordinator.record_plans([first, replace(plan(2, first.digest), incarnation=leadership.lead.incarnation)])
    driver.ledger.mirror(leadership.lead, [MirrorEntry(plan=first, inputs={})])
    driver.die()
    postgres.ask("t", "replan", (), "wrong schema")
    new = Candidacy(zookeeper, postgres)

    again = new.lead()

    assert [one.txid for one in again.reconciled.plans] == [1]
    assert again.reconciled.restore == (), "it stayed in ZooKeeper too"
    (said,) = new.said
    assert said.startswith("plans of batches 2 dropped: ")


def test_plans_made_since_an_order_was_begun_are_not_dropped(
    zookeeper: MemoryZooKeeper, postgres: MemoryPostgres
) -> None:
    """An order that a leader had begun when it died is carried out once: it names the plans that it drops by their
    digests.
    """
    planned_and_left(zookeeper, postgres)
    order_id = postgres.ask("t", "replan", (), "wrong schema")
    postgres.orders[order_id][1].progress = {"dropped": {"1": "00", "2": "11"}}

    leadership = Candidacy(zookeeper, postgres).lead()

    assert [one.txid for one in leadership.reconciled.plans] == [1, 2]
    assert postgres.orders[order_id][1].state == "done"


def test_an_order_that_a_leader_had_begun_is_carried_out_by_the_next(
    zookeeper: MemoryZooKeeper, postgres: MemoryPostgres
) -> None:
    """It died with the plans named and not dropped: they are still those."""
    plans = planned_and_left(zookeeper, postgres)
    order_id = postgres.ask("t", "replan", (), "wrong schema")
    postgres.orders[order_id][1].progress = {"dropped": {str(one.txid): one.digest.hex() for one in plans}}
    driver = Candidacy(zookeeper, postgres)

    assert driver.lead().reconciled.plans == ()
    assert "ledger.note_progress" not in driver.calls, "what was noted first stays"


def test_an_order_that_drops_nothing_changes_nothing(zookeeper: MemoryZooKeeper, postgres: MemoryPostgres) -> None:
    """So it is not in the action log, and says why."""
    before = Candidacy(zookeeper, postgres)
    before.lead()
    before.die()
    order_id = postgres.ask("t", "replan", (), "wrong schema")

    Candidacy(zookeeper, postgres).lead()

    order = postgres.orders[order_id][1]
    assert (order.state, str(order.answer).partition(":")[0]) == ("done", "no plan was dropped")
    assert list(postgres.actions) == []


def test_an_order_about_a_plan_that_was_dropped_is_refused_by_that_name(
    zookeeper: MemoryZooKeeper, postgres: MemoryPostgres
) -> None:
    """The batch is another one from now on: nobody may think that this one was skipped."""
    planned_and_left(zookeeper, postgres)
    skip = postgres.ask("t", "skip", (2,), "no")
    redrive = postgres.ask("t", "redrive", (9,))
    postgres.ask("t", "replan", (), "wrong schema")

    leadership = Candidacy(zookeeper, postgres).lead()

    assert [order.order_id for order in leadership.orders] == [redrive]
    row = postgres.orders[skip][1]
    assert (row.state, row.answer) == (
        "refused",
        "the plan was dropped by the replan of order 3: its inputs are planned again",
    )


def test_other_orders_are_handed_on_to_the_runner(zookeeper: MemoryZooKeeper, postgres: MemoryPostgres) -> None:
    first = Candidacy(zookeeper, postgres)
    first.lead()
    first.die()
    postgres.ask("t", "skip", (1,), "no")

    assert [order.kind for order in Candidacy(zookeeper, postgres).lead().orders] == ["skip"]
