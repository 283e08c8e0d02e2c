"""A machine in a test's hands: feeds events, keeps the actions, answers for the world."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, TypeVar

from txtopo.core.events import (
    Action,
    AttemptEnded,
    CommitEnded,
    CutRedo,
    Event,
    Mirrored,
    Moment,
    PlansCut,
    Process,
    Proven,
    Redo,
    Tick,
)
from txtopo.core.machine import step
from txtopo.core.plan import Plan
from txtopo.core.state import Rules, State, first_state
from txtopo.core.values import (
    Committed,
    CommitterResult,
    Failed,
    Failure,
    FailureKind,
    Left,
    Processed,
    TransactionAttempt,
)

Wanted = TypeVar("Wanted", bound=Action)
INCARNATION = "00000000-0000-0000-0000-000000000001"


def plan(txid: int, previous: bytes = b"before", path: str | None = None) -> Plan:
    """A plan that is only distinguished by its number."""
    return Plan(
        topology="t",
        incarnation=INCARNATION,
        txid=txid,
        previous_digest=previous,
        metadata={"s": {"file": path or f"/{txid}"}},
    )


def chain(first: int, last: int, before: bytes = b"before") -> tuple[Plan, ...]:
    """Plans first..last, each naming the digest of the one before."""
    plans: list[Plan] = []
    for txid in range(first, last + 1):
        plans.append(plan(txid, plans[-1].digest if plans else before))
    return tuple(plans)


def processed(txid: int, attempt: int = 0, size: int = 100) -> Processed:
    """A successful outcome with one committer's result of `size` bytes."""
    result = CommitterResult(committer="c", arrived=1, rows=None, row_count=1, bytes=size)
    return Processed(attempt=TransactionAttempt(txid, attempt), code_hash=b"code", read=1, results=(result,))


def failed(txid: int, attempt: int, kind: FailureKind, message: str = "boom") -> Failed:
    """An outcome of that kind."""
    return Failed(attempt=TransactionAttempt(txid, attempt), failure=Failure(kind=kind, message=message))


class Hand:
    """Drives `step` by hand. `actions` are those of the last event; `now` is moved by `tick`."""

    def __init__(
        self,
        last_txid: int = 0,
        *,
        plans: tuple[Plan, ...] = (),
        suspects: dict[int, int] | None = None,
        next_attempts: dict[int, int] | None = None,
        cut: bool = True,
        suspects_once: frozenset[int] = frozenset(),
        recent: tuple[Left, ...] = (),
        owed: frozenset[int] = frozenset(),
        **rules: Any,
    ) -> None:
        self.now = 1000.0
        # One batch a worker and a commit, and a mirror before it, unless a test is about what is done together.
        settings = Rules(**{"wave_bytes_max": 0, "run_txids_max": 1, "joins_mirrors": False, **rules})
        self.state: State = first_state(
            settings,
            "t",
            last_txid,
            now=self.now,
            plans=plans,
            suspects=suspects,
            next_attempts=next_attempts,
            cut=cut,
            suspects_once=suspects_once,
            owed=owed,
            recent=recent,
        )
        self.actions: list[Action] = []
        self.everything: list[Action] = []

    def tell(self, event: Event, chance: float = 0.5) -> list[Action]:
        """One event; returns the actions it led to."""
        return self.tell_all([event], chance)

    def tell_all(self, events: Sequence[Event], chance: float = 0.5) -> list[Action]:
        """Events that are there together; returns the actions they led to."""
        self.state, self.actions = step(self.state, events, Moment(self.now, chance))
        self.everything += self.actions
        return self.actions

    def tick(self, seconds: float = 0.0, progress: dict[TransactionAttempt, int] | None = None) -> list[Action]:
        """Let time pass."""
        self.now += seconds
        return self.tell(Tick(progress=progress or {}))

    def plans(self, *plans: Plan, exhausted: bool = False) -> list[Action]:
        """The cut that is under way gives these plans."""
        return self.tell(PlansCut(plans=plans, exhausted=exhausted))

    def succeed(self, txid: int, attempt: int = 0, size: int = 100) -> list[Action]:
        """An attempt ends well."""
        return self.tell(AttemptEnded(outcome=processed(txid, attempt, size)))

    def fail(self, txid: int, attempt: int, kind: FailureKind) -> list[Action]:
        """An attempt fails."""
        return self.tell(AttemptEnded(outcome=failed(txid, attempt, kind)))

    def proven(self, txid: int, failure: Failure | None = None) -> list[Action]:
        """The proof that is under way ended: what is known to be good passed, unless something failed."""
        return self.tell(Proven(txid=txid, failure=failure))

    def mirrored(self, txid: int) -> list[Action]:
        """The mirror that is under way is durable."""
        return self.tell(Mirrored(txid=txid))

    def committed(self, txid: int) -> list[Action]:
        """The commit that is under way happened."""
        return self.tell(CommitEnded(outcomes=(Committed(txid=txid),)))

    def of(self, kind: type[Wanted]) -> list[Wanted]:
        """The last event's actions of one kind."""
        return [action for action in self.actions if isinstance(action, kind)]


def started(hand: Hand) -> list[str]:
    """Attempts that the last event started, as `txid:attempt`."""
    return [str(attempt) for action in hand.of(Process) for attempt, _ in action.attempts]


def ready(count: int, **rules: Any) -> Hand:
    """A leader with `count` batches planned."""
    hand = Hand(**rules)
    hand.tick()
    hand.plans(*chain(1, count))
    return hand


def redo_in(cut: CutRedo) -> Redo:
    """What an action plans, if it is a redo."""
    assert isinstance(cut.redo, Redo)
    return cut.redo
