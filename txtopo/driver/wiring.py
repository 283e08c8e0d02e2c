"""The one place where a leader is put together. The application, the test harness and the simulation use it, each with
its own stores.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from txtopo.config import Settings
from txtopo.coordinators.codec import CandidateNode
from txtopo.coordinators.election import Election
from txtopo.coordinators.ended_processes import has_ended
from txtopo.coordinators.topology_nodes import TopologyCoordinator
from txtopo.core.events import End
from txtopo.core.limits import SPOUT_PENDING_MAX
from txtopo.core.state import Rules, State, first_state
from txtopo.core.values import ActionRecord
from txtopo.driver.changed_committers import new_committers
from txtopo.driver.leader_services import LeaderServices
from txtopo.driver.planner import Planner
from txtopo.driver.runner import Runner
from txtopo.driver.takeover import CandidateIdentity, Leadership, begin, is_opaque
from txtopo.errors import ConfigurationError, Halted
from txtopo.ports import CoordinatorSession, Staging


def candidate_of(
    identity: CandidateIdentity, session: CoordinatorSession, since: str
) -> tuple[Election, TopologyCoordinator]:
    """Return a candidate's place in the queue and its access to the metadata, both on one session (Z4, lock objects
    cannot be used again). `since` is shown to drivers that wait.
    """
    node = CandidateNode(host=identity.host, pid=identity.pid, since=since, nonce=identity.owner_nonce)
    return (
        Election(session, identity.topology, node, has_ended),
        TopologyCoordinator(session, identity.topology, opaque=identity.opaque),
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class ReadyLeader:
    """A leader that is ready to run."""

    planner: Planner
    runner: Runner
    state: State
    """The state in which it begins."""
    leadership: Leadership
    staging: Staging

    def run(self) -> End:
        """Lead until the end; returns how it ended."""
        end = self.runner.run(self.state, self.leadership.orders)
        if end.kind != "lead_lost":  # Postgres may be away then; the next leader removes what is left.
            self.staging.close()
        return end


def make_leader(
    leadership: Leadership,
    services: LeaderServices,
    rules: Rules,
    *,
    cut: bool = True,
    by_hand: Mapping[str, Any] | None = None,
) -> ReadyLeader:
    """Check that the topology fits what is committed, and return a leader that is ready to run. With `cut=False` it
    plans no new input. `by_hand` are settings from flags and the environment: an order that is carried out without a
    leader uses them.

    Raises Halted, ConfigurationError and the errors of the stores; the planner is closed then.
    """
    topology, reconciled = services.topology, leadership.reconciled
    rules = replace(rules, opaque=is_opaque(topology))
    planner = Planner(
        lead=leadership.lead,
        spouts=topology.spouts,
        coordinator=services.coordinator,
        ledger=services.ledger,
        clock=services.clock,
        once=rules.once,
        say=services.say,
        last_digest=leadership.last_digest,
        last_metadata=leadership.last_metadata,
        committers=topology.committers,
        phases=topology.phases,
        config=topology.config,
        last_txid=leadership.last_txid,
        opaque=rules.opaque,
        notified_again=max(rules.spout_pending_max, SPOUT_PENDING_MAX),
    )
    try:
        begin(leadership, topology, planner, services.ledger, by_hand or {})
        _name_new_committers(leadership, services)
        left = leadership.staging_tables
        staging = services.ledger.staging(leadership.lead, services.staging_place, left)
        staging.begin()
        services.executor.stage_with(staging)
        services = replace(services, staging=staging)
        single = topology.single_commits
        found = None if single is not None or rules.opaque else _single_commits(services)
        if found is not None:
            services.say(f"batches are committed one by one: {found}")
        sizes = {plan.txid: planner.batch_bytes(plan) for plan in reconciled.plans}
    except BaseException:
        planner.close()
        raise
    state = first_state(
        rules,
        topology.name,
        leadership.last_txid,
        now=services.clock.monotonic(),
        plans=reconciled.plans,
        mirrored_txid=reconciled.mirrored_txid,
        next_attempts=reconciled.next_attempts,
        suspects=reconciled.suspects,
        suspects_once=reconciled.suspects_once,
        recent=leadership.recent,
        owed=frozenset(plan.txid for plan in reconciled.discarded),
        cut=cut,
        one_by_one=services.executor.one_by_one,
        waves_proven=services.executor.waves_proven,
        sizes=sizes,
        last_digest=leadership.last_digest,
        single_commits=single or found,
    )
    runner = Runner(services, leadership.lead, planner, [] if found is None else [_one_by_one(found)])
    return ReadyLeader(planner=planner, runner=runner, state=state, leadership=leadership, staging=staging)


def _name_new_committers(leadership: Leadership, services: LeaderServices) -> None:
    for name in new_committers(leadership.last_txid, leadership.description, services.topology):
        services.say(
            f"committer {name} is new: it counts from batch {leadership.last_txid + 1} on, and "
            f"txtopo backfill {services.topology.name} {name} counts the batches before"
        )


def _single_commits(services: LeaderServices) -> str | None:
    """Return why the tables of the committers allow no commit runs (R20); None if they do."""
    try:
        return services.ledger.single_commits(services.topology.committers)
    except (Halted, ConfigurationError) as error:  # single commits need nothing of this
        return str(error)


def _one_by_one(why: str) -> ActionRecord:
    """What the action log says of it, once for each reason."""
    return ActionRecord(command="single_commits", reason=why, before={}, after={"commits": "one by one"})


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
        run_txids_max=settings.run_txids_max,
        once=settings.once,
    )
