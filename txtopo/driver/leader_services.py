"""What a process provides to its leader: the application, the test harness and the simulation each fill it with their
own stores.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass, field

from txtopo.core import limits
from txtopo.core.state import State
from txtopo.driver.work_queues import WorkQueues
from txtopo.ports import Candidacy, Clock, Coordinator, CoordinatorSession, Executor, Ledger, Staging, StagingPlace
from txtopo.topology.components import Topology


@dataclass(frozen=True, slots=True, kw_only=True)
class LeaderServices:
    """One session on each store, a started executor, a clock, and functions that
    report to the operator.
    """

    topology: Topology
    session: CoordinatorSession
    candidacy: Candidacy
    coordinator: Coordinator
    ledger: Ledger
    executor: Executor
    clock: Clock
    queues: WorkQueues
    say: Callable[[str], None]
    watch: Callable[[State], None] = lambda state: None
    """Called after every step of the machine; prints the progress."""
    chance: random.Random = field(default_factory=random.Random)
    staging_place: StagingPlace | None = None
    """Where tasks store results that are too large for the driver; None: they are refused."""
    staging: Staging | None = None
    """The staging tables of the leader, as soon as there is one (R10)."""
    dead_letter_max: int = limits.DEAD_LETTER_MAX
    """Largest number of source records that `on_poison="dead_letter_rows"` may remove from one batch."""
