"""The runner's work on commits: performs them, resolves unknown ones, and notifies the spouts of what is known."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from txtopo.committers.protocol.commit import commit_batch, quarantine_batch
from txtopo.committers.protocol.commit_run import commit_run
from txtopo.core.crash_points import CrashPoint, reach
from txtopo.core.events import (
    Commit,
    CommitEnded,
    CommitItem,
    CommitQuarantine,
    CommitRunFailed,
    Event,
    Resolve,
    ResolveFailed,
)
from txtopo.core.plan import Plan
from txtopo.core.values import (
    Aborted,
    AlreadyCommitted,
    CommitOutcome,
    Committed,
    Failure,
    Lead,
    RunEnded,
    RunFailed,
    Unknown,
)
from txtopo.driver.leader_services import LeaderServices
from txtopo.driver.planner import Planner
from txtopo.driver.spout_coordinators import Settled
from txtopo.driver.work_queues import WorkQueue
from txtopo.errors import PostgresUnavailable

Submit = Callable[[WorkQueue, Callable[[], Event | None]], None]
"""Performs a piece of work in a queue; its result goes to the machine."""


class Committing:
    """The commits of one leadership. One thread calls it."""

    def __init__(self, services: LeaderServices, lead: Lead, planner: Planner, submit: Submit) -> None:
        self._services = services
        self._lead = lead
        self._planner = planner
        self._submit = submit

    def commit(self, action: Commit) -> Event:
        """Commit one batch, or several together (R19). Raises Fenced and Halted."""
        services = self._services
        plans = [item.plan for item in action.items]
        if len(action.items) > 1:
            ended = commit_run(
                services.ledger, self._lead, action.items, services.topology, services.clock.monotonic
            )  # R19
        else:
            ended = RunEnded(outcomes=(self._commit_one(action.items[0], mirrors=action.mirrors),))
        if isinstance(ended, RunFailed):
            return CommitRunFailed(failed=ended)
        self._notify_spouts(plans, ended.outcomes, "applied")
        return CommitEnded(outcomes=ended.outcomes, locked_s=ended.own_s)

    def _commit_one(self, one: CommitItem, *, mirrors: bool) -> CommitOutcome:
        services, plan, mirror = self._services, one.plan, None
        if mirrors:
            reach(CrashPoint.BEFORE_MIRROR, plan.txid)
            try:
                mirror = self._planner.mirror_entry(plan)
            except PostgresUnavailable as error:  # a part of its metadata could not be read
                failure = Failure(kind="infrastructure", message=str(error))
                return Aborted(txid=plan.txid, failure=failure, patience=error.patience)
        return commit_batch(services.ledger, self._lead, plan, one.processed, services.topology, mirror)

    def quarantine(self, action: CommitQuarantine) -> Event:
        """Write the quarantine of a batch as its ledger row (R14). Raises Fenced and Halted."""
        services = self._services
        outcome = quarantine_batch(services.ledger, self._lead, action.plan, action.quarantine)  # R14
        self._notify_spouts([action.plan], [outcome], "quarantined")
        return CommitEnded(outcomes=(outcome,))

    def resolve(self, action: Resolve) -> Event:
        """Find out whether a COMMIT happened (R7, R26). Raises Fenced and Halted."""
        ledger, plans = self._services.ledger, [(plan.txid, plan.digest) for plan in action.plans]
        try:
            outcomes = tuple(ledger.resolve(self._lead, plans))
        except PostgresUnavailable as error:
            return ResolveFailed(message=str(error), patience=error.patience)
        unknown = next((one for one in outcomes if isinstance(one, Unknown)), None)
        if unknown is not None:
            return ResolveFailed(message=unknown.message)
        self._notify_spouts(action.plans, outcomes, None)
        return CommitEnded(outcomes=outcomes)

    def _notify_spouts(self, plans: Sequence[Plan], outcomes: Sequence[CommitOutcome], state: Settled | None) -> None:
        """Notify the spouts after the outcome of COMMIT is known, and before the machine is, so that no later plan is
        made before (R28): in ascending order, in one piece of work.
        """
        planner, staging = self._planner, self._services.staging
        known = [
            (plan, state if isinstance(outcome, Committed) else None)
            for plan, outcome in zip(plans, outcomes, strict=False)
            if isinstance(outcome, Committed | AlreadyCommitted)
        ]
        if staging is not None and known:
            staging.settled(known[-1][0].txid)  # R10: no commit reads the tables of these batches again.
        if not planner.wants_settled or not known:
            return

        def notify() -> None:
            for plan, settled in known:
                planner.settled(plan, settled)

        self._submit(WorkQueue.PLAN, notify)
