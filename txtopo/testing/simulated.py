"""A driver in simulated time: the real planner, machine, runner and commit on memory stores, one thread, one seed.

`SimulatedDriver` lives until its run ends or a crash point kills it with `Killed`; the stores survive, as real ones
would.
"""

from __future__ import annotations

import random
import uuid
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any

from txtopo.committers.memory.memory_ledger import MemoryLedger, MemoryPostgres
from txtopo.coordinators.memory import MemorySession, MemoryZooKeeper
from txtopo.core import crash_points
from txtopo.core.crash_points import CrashPoint
from txtopo.core.events import End
from txtopo.core.state import Rules, State
from txtopo.driver.leader_services import LeaderServices
from txtopo.driver.takeover import CandidateIdentity, is_opaque, take_lead
from txtopo.driver.wiring import candidate_of, make_leader
from txtopo.driver.work_queues import Work, WorkQueue
from txtopo.ports import Executor, StagingPlace
from txtopo.testing.inprocess import InProcessExecutor
from txtopo.topology.components import Topology

STEPS_MAX = 200_000
"""Number of actions of one driver after which a simulation counts as endless."""


class Killed(BaseException):
    """The simulated driver dies here."""


class SimulatedClock:
    """A clock that only advances when a component waits."""

    def __init__(self) -> None:
        self.now = 1000.0

    def monotonic(self) -> float:
        return self.now

    def wait(self, seconds: float) -> None:
        self.now += seconds

    def age_s(self, stamp_s: float) -> float:
        return 0.0  # files are stamped by the real clock


class SerialInbox:
    """The inbox of SerialWorkQueues: waiting for an event makes work happen."""

    def __init__(self, queues: SerialWorkQueues) -> None:
        self._queues = queues
        self._items: deque[Any] = deque()

    def put(self, item: Any) -> None:
        if isinstance(item, BaseException):
            raise item  # Raise it before any other event is handled.
        self._items.append(item)

    def get(self, wait_s: float) -> Any | None:
        while not self._items:
            if not self._queues.work_once():
                self._queues.clock.wait(wait_s)
                return None
        return self._items.popleft()

    def get_another(self) -> Any | None:
        return self._items.popleft() if self._items else None


class SerialWorkQueues:
    """All work queues in one thread. The seed decides which queue is next; the order within a queue is kept (except
    WORK).
    """

    def __init__(self, clock: SimulatedClock, chance: random.Random) -> None:
        self.clock = clock
        self.inbox = SerialInbox(self)
        self._chance = chance
        self._waiting: dict[WorkQueue, deque[Work]] = {queue: deque() for queue in WorkQueue}
        self._steps = 0

    def submit(self, queue: WorkQueue, work: Work) -> None:
        self._waiting[queue].append(work)

    def finish(self, queue: WorkQueue) -> None:
        while self._waiting[queue]:
            self._waiting[queue].popleft()()

    def work_once(self) -> bool:
        """Do one piece of work and advance the clock a little; returns False if there is none."""
        queues = [queue for queue, works in self._waiting.items() if works]
        if not queues:
            return False
        self._steps += 1
        if self._steps > STEPS_MAX:
            raise RuntimeError(f"no end after {STEPS_MAX} steps")
        queue = self._chance.choice(queues)
        works = self._waiting[queue]
        if queue is WorkQueue.WORK:
            works.rotate(-self._chance.randrange(len(works)))
        self.clock.wait(self._chance.uniform(0.0005, 0.02))
        works.popleft()()
        return True


@dataclass(kw_only=True)
class SimulatedStores:
    """What survives a driver: both stores and the clock."""

    clock: SimulatedClock = field(default_factory=SimulatedClock)
    zookeeper: MemoryZooKeeper = field(default_factory=MemoryZooKeeper)
    postgres: MemoryPostgres = field(default_factory=MemoryPostgres)


@dataclass(kw_only=True)
class SimulatedDriver:
    """One driver process with its own seed."""

    topology: Topology
    stores: SimulatedStores
    seed: int = 0
    rules: Rules = field(default_factory=lambda: Rules(workers=3))
    code_hash: bytes = b"code-1"
    once: bool = True
    cut: bool = True
    """True if new input is planned."""
    staging_place: StagingPlace | None = None
    """Where results that are too large for the driver are stored; None: nowhere."""
    make_executor: Callable[[Topology, bytes], Executor] = InProcessExecutor
    said: list[str] = field(default_factory=list)
    watch: Callable[[State], None] = lambda state: None
    session: MemorySession | None = None
    """The session of the running candidacy, for tests that suspend or expire it."""

    def run(self) -> End:
        """Take the lead and run to the end. However it ends, its session is closed and its database transactions are
        rolled back.
        """
        chance = random.Random(self.seed)
        while (end := self._run_once(chance)).kind == "replan":
            pass  # As in a driver process: the plans are discarded when it takes the lead again.
        return end

    def _run_once(self, chance: random.Random) -> End:
        session = MemorySession(self.stores.zookeeper)
        self.session = session
        ledger = MemoryLedger(self.stores.postgres, self.topology.name)
        try:
            return self._lead(session, ledger, chance)
        finally:
            ledger.close()
            session.close()

    def _lead(self, session: MemorySession, ledger: MemoryLedger, chance: random.Random) -> End:
        identity = CandidateIdentity(
            topology=self.topology.name,
            owner_nonce=str(uuid.UUID(int=chance.getrandbits(128))),
            new_incarnation=str(uuid.UUID(int=chance.getrandbits(128))),
            code_hash=self.code_hash,
            host="simulated",
            pid=1,
            application="simulated",
            description=self.topology.describe(),
            epoch_seen=1 << 60,
            opaque=is_opaque(self.topology),
        )
        election, coordinator = candidate_of(identity, session, since="-")
        election.enter()
        leadership = take_lead(identity, election, coordinator, ledger, self.said.append)
        executor = self.make_executor(self.topology, self.code_hash)
        executor.start()
        services = LeaderServices(
            topology=self.topology,
            session=session,
            candidacy=election,
            coordinator=coordinator,
            ledger=ledger,
            executor=executor,
            clock=self.stores.clock,
            queues=SerialWorkQueues(self.stores.clock, chance),
            say=self.said.append,
            watch=self.watch,
            chance=chance,
            staging_place=self.staging_place,
        )
        rules = replace(self.rules, once=self.once)
        return make_leader(leadership, services, rules, cut=self.cut).run()


class KillAt:
    """Kills the driver the n-th time that any crash point is reached (or only `point`); use as a context manager."""

    def __init__(self, nth: int, point: CrashPoint | None = None) -> None:
        self._left = nth
        self._point = point
        self.killed_at: CrashPoint | None = None

    def __enter__(self) -> KillAt:
        crash_points.listen(self._reached)
        return self

    def __exit__(self, *_: object) -> None:
        crash_points.listen(None)

    def _reached(self, point: CrashPoint, _txid: int | None) -> None:
        if self._point is not None and point is not self._point:
            return
        self._left -= 1
        if self._left == 0:
            self.killed_at = point
            raise Killed(point.value)
