"""A machine driven as Storm's tests drive a coordinator: emissions are captured, acks and fails are told, metadata lies
in a ZooKeeper in memory.
"""

from __future__ import annotations

from typing import Any

from tests.kit.machines import INCARNATION, Hand, failed, processed
from txtopo.coordinators.memory import MemorySession, MemoryZooKeeper
from txtopo.coordinators.topology_nodes import TopologyCoordinator
from txtopo.core.events import (
    Action,
    AttemptEnded,
    Checkpoint,
    Checkpointed,
    Commit,
    CommitEnded,
    Cut,
    Event,
    Mirror,
    Mirrored,
    PlansCut,
    Process,
)
from txtopo.core.plan import Plan
from txtopo.core.values import Aborted, Committed, Failure, FailureKind, Lead
from txtopo.ports import CoordinatorView


class Storm:
    """`meta` is what the source gives as metadata, None while it is not ready. Mirrors and clean-up end well at once; a
    failed batch waits for nothing.
    """

    def __init__(self, meta: Any, *, active: int, opaque: bool, last_txid: int = 0, **rules: Any) -> None:
        self.meta = meta
        self.session = MemorySession(MemoryZooKeeper())
        self.coordinator = TopologyCoordinator(self.session, "t", opaque=opaque)
        lead = Lead(topology="t", incarnation=INCARNATION, epoch=1, owner_nonce="n", code_hash=b"c")
        self.coordinator.write_epoch(lead, "memory")
        self.hand = Hand(
            last_txid,
            spout_pending_max=active,
            workers=active,
            opaque=opaque,
            checkpoint_every_s=0.0,
            message_timeout_s=1e9,
            **{"attempts_max": 100, **rules},
        )
        self.attempts: dict[int, int] = {}
        """Newest attempt of each txid."""
        self.committed_txids: list[int] = []
        """What each cut was told as the highest committed txid (Storm's third field of the batch stream)."""
        self._plans: dict[int, Plan] = {}

    def next_tuple(self) -> list[str]:
        """Let the coordinator look around, all backoff being over."""
        self.hand.now += 60
        return self._after(self.hand.tick(), ticks=1)

    def ack(self, txid: int, attempt: int | None = None) -> list[str]:
        """The processing of the newest attempt, or of this one, has ended well."""
        return self._tell(AttemptEnded(outcome=processed(txid, self._attempt(txid, attempt))))

    def fail(self, txid: int, attempt: int | None = None, kind: FailureKind = "data") -> list[str]:
        """It has failed."""
        return self._tell(AttemptEnded(outcome=failed(txid, self._attempt(txid, attempt), kind)))

    def ack_commit(self, txid: int) -> list[str]:
        """COMMIT was seen."""
        return self._tell(CommitEnded(outcomes=(Committed(txid=txid),)))

    def fail_commit(self, txid: int) -> list[str]:
        """The rows did not fit the table."""
        return self._tell(CommitEnded(outcomes=(Aborted(txid=txid, failure=Failure(kind="data", message="overflow")),)))

    @property
    def active(self) -> list[str]:
        """Attempts of the uncommitted batches."""
        return [str(batch.transaction_attempt) for _, batch in sorted(self.hand.state.batches.items())]

    @property
    def store(self) -> CoordinatorView:
        """What lies in ZooKeeper."""
        return self.coordinator.read()

    def _attempt(self, txid: int, attempt: int | None) -> int:
        return self.attempts[txid] if attempt is None else attempt

    def _tell(self, event: Event) -> list[str]:
        return self._after(self.hand.tell(event), ticks=1)

    def _after(self, actions: list[Action], *, ticks: int) -> list[str]:
        """Answer for the world until it is quiet; returns what was emitted on the batch and commit streams."""
        emitted: list[str] = []
        todo = list(actions)
        while todo or ticks:
            if not todo:
                ticks -= 1
                self.hand.now += 60  # a failed batch has waited
                todo += self.hand.tick()
                continue
            match todo.pop(0):
                case Cut() as cut:
                    self.committed_txids.append(cut.last_txid)
                    plans = self._plans_of(cut)
                    self.coordinator.record_plans(plans)
                    todo += self.hand.tell(PlansCut(plans=plans, exhausted=False))
                case Process(attempts=attempts):
                    self.coordinator.record_attempts({one.txid: one.attempt for one, _ in attempts if one.attempt})
                    for one, plan in attempts:
                        self.attempts[one.txid] = one.attempt
                        emitted.append(f"batch {one} {plan.metadata['s']}")
                case Commit(items=items):
                    emitted += [f"commit {item.plan.txid}:{self.attempts[item.plan.txid]}" for item in items]
                case Mirror(plans=plans):
                    todo += self.hand.tell(Mirrored(txid=plans[-1].txid))
                case Checkpoint() as checkpoint:
                    self.coordinator.checkpoint(checkpoint.last_txid, checkpoint.keep_from)
                    done = Checkpointed(last_txid=checkpoint.last_txid, keep_from=checkpoint.keep_from)
                    todo += self.hand.tell(done)
                case _:
                    pass
        return emitted

    def _plans_of(self, cut: Cut) -> tuple[Plan, ...]:
        plans: list[Plan] = []
        for txid in range(cut.first_txid, cut.first_txid + cut.count if self.meta is not None else cut.first_txid):
            before = plans[-1] if plans else self._plans.get(txid - 1)
            plan = Plan(
                topology="t",
                incarnation=INCARNATION,
                txid=txid,
                previous_digest=before.digest if before else b"genesis",
                metadata={"s": self.meta},
                cut=cut.attempts.get(txid, 0),
            )
            plans.append(plan)
        self._plans |= {plan.txid: plan for plan in plans}
        return tuple(plans)
