"""The one place where a leader is put together. The application, the test harness and the simulation use it, each with
its own stores.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from txtopo.config import Settings
from txtopo.coordinators.codec import CandidateNode
from txtopo.coordinators.election import Election
from txtopo.coordinators.topology_nodes import TopologyCoordinator
from txtopo.core.events import End
from txtopo.core.limits import DEAD_LETTER_MAX, SPOUT_PENDING_MAX
from txtopo.core.state import Rules, State, first_state
from txtopo.driver.planner import Planner
from txtopo.driver.runner import LeaderServices, Runner
from txtopo.driver.takeover import CandidateIdentity, Leadership, begin, is_opaque
from txtopo.driver.work_queues import WorkQueues
from txtopo.ports import Clock, CoordinatorSession, Executor, Ledger
from txtopo.topology.components import Topology


def candidate_of(
    identity: CandidateIdentity, session: CoordinatorSession, since: str
) -> tuple[Election, TopologyCoordinator]:
    """Return a candidate's place in the queue and its access to the metadata, both on one session (Z4). `since` is
    shown to drivers that wait.
    """
    node = CandidateNode(host=identity.host, pid=identity.pid, since=since, nonce=identity.owner_nonce)
    return (
        Election(session, identity.topology, node),
        TopologyCoordinator(session, identity.topology, opaque=identity.opaque),
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Surroundings:
    """What a process provides to its leader: one session on each store, a started executor, a clock, and functions that
    report to the operator.
    """

    topology: Topology
    session: CoordinatorSession
    candidacy: Election
    coordinator: TopologyCoordinator
    ledger: Ledger
    executor: Executor
    clock: Clock
    lanes: WorkQueues
    say: Callable[[str], None]
    watch: Callable[[State], None] = lambda state: None
    """Called after every step of the machine."""
    chance: random.Random = field(default_factory=random.Random)
    dead_letter_max: int = DEAD_LETTER_MAX
    """Largest number of source records that `on_poison="dead_letter_rows"` may remove from one batch."""
    by_hand: Mapping[str, Any] = field(default_factory=dict)
    """Settings from flags and the environment. An order that is carried out without a leader uses them."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ReadyLeader:
    """A leader that is ready to run."""

    planner: Planner
    runner: Runner
    state: State
    """The state in which it begins."""
    leadership: Leadership

    def run(self) -> End:
        """Lead until the end; returns how it ended."""
        return self.runner.run(self.state, self.leadership.orders)


def make_leader(leadership: Leadership, around: Surroundings, rules: Rules, *, cut: bool = True) -> ReadyLeader:
    """Check that the topology fits what is committed, and return a leader that is ready to run. With `cut=False` it
    plans no new input.

    Raises Halted, ConfigurationError and the errors of the stores; the planner is closed then.
    """
    topology, reconciled = around.topology, leadership.reconciled
    rules = replace(rules, opaque=is_opaque(topology))
    planner = Planner(
        lead=leadership.lead,
        spouts=topology.spouts,
        coordinator=around.coordinator,
        ledger=around.ledger,
        clock=around.clock,
        once=rules.once,
        say=around.say,
        last_digest=leadership.last_digest,
        last_metadata=leadership.last_metadata,
        committers=topology.committers,
        config=topology.config,
        last_txid=leadership.last_txid,
        opaque=rules.opaque,
        notified_again=max(rules.spout_pending_max, SPOUT_PENDING_MAX),
    )
    try:
        begin(leadership, topology, planner, around.ledger, around.by_hand)
        sizes = {plan.txid: planner.batch_bytes(plan) for plan in reconciled.plans}
    except BaseException:
        planner.close()
        raise
    world = LeaderServices(
        topology=topology,
        lead=leadership.lead,
        candidacy=around.candidacy,
        coordinator=around.coordinator,
        session_state=around.session.state,
        ledger=around.ledger,
        executor=around.executor,
        planner=planner,
        clock=around.clock,
        lanes=around.lanes,
        say=around.say,
        watch=around.watch,
        chance=around.chance,
        dead_letter_max=around.dead_letter_max,
    )
    state = first_state(
        rules,
        topology.name,
        leadership.last_txid,
        now=around.clock.monotonic(),
        plans=reconciled.plans,
        mirrored_txid=reconciled.mirrored_txid,
        next_attempts=reconciled.next_attempts,
        suspects=reconciled.suspects,
        suspects_once=reconciled.suspects_once,
        recent=leadership.recent,
        owed=frozenset(plan.txid for plan in reconciled.discarded),
        cut=cut,
        one_by_one=around.executor.one_by_one,
        sizes=sizes,
        last_digest=leadership.last_digest,
    )
    return ReadyLeader(planner=planner, runner=Runner(world), state=state, leadership=leadership)


def rules_of(settings: Settings, session_s: float) -> Rules:
    """Return the settings that the machine needs. `session_s` is the ZooKeeper session timeout in seconds."""
    return Rules(
        spout_pending_max=settings.spout_pending_max,
        workers=settings.workers,
        attempts_max=settings.attempts_max,
        on_poison=settings.on_poison,
        quarantined_in_row_max=settings.quarantined_in_row_max,
        message_timeout_s=settings.message_timeout_s,
        session_s=session_s,
        postgres_away_max_s=settings.postgres_away_max_s,
        spout_poll_s=settings.spout_poll_s,
        results_bytes_max=settings.results_bytes_max,
        checkpoint_every_s=settings.checkpoint_every_s,
        wave_txids_max=settings.wave_txids_max,
        wave_bytes_max=settings.wave_bytes_max,
        once=settings.once,
    )
