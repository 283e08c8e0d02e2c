"""The planner: makes plans from what the spouts offer. A plan is durable in ZooKeeper before anything is read (R3,
metadata is create-only).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import cached_property, partial
from typing import Any

from txtopo.core import crash_points, limits
from txtopo.core.crash_points import CrashPoint
from txtopo.core.events import Backfill, CutRedo, PlansCut, Redo, RedoCut
from txtopo.core.opaque_replanning import Recuts
from txtopo.core.plan import Metadata, Plan, read_plan
from txtopo.core.redo import choose_backfill, choose_redo, plan_of
from txtopo.core.values import Lead, LedgerBatch
from txtopo.driver.long_metadata import MetadataParts
from txtopo.driver.spout_coordinators import NoInputError, Settled, Sources, is_idle, last_of
from txtopo.errors import BatchDataError, Halted, StoreUnavailable, invariant, unreachable
from txtopo.ports import Clock, Coordinator, Ledger, MirrorEntry
from txtopo.topology.components import CommitterComponent, SpoutComponent, SpoutContext
from txtopo.topology.consumed_inputs import ConsumedInputs
from txtopo.topology.filled_committers import cannot_backfill

CUT_S = 0.25
"""A call of `cut` ends after about this many seconds, so that the first batches need not wait for the fingerprints of
all.
"""
PLANS_PER_READ = 500
"""Number of earlier plans that one statement reads."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Cutting:
    """What a call of `cut` planned. `exhausted`: no spout will have more input."""

    plans: tuple[Plan, ...]
    exhausted: bool
    sizes: Mapping[int, int]
    """Estimated bytes of input, by txid."""
    ready_in_s: float = math.inf
    """Seconds after which a spout may be ready again, if there is no plan and a spout knows."""


@dataclass(kw_only=True)
class Planner:
    """Plans batches for one leadership. `cut`, `redo` and `settled` are called from one thread; `metadata` and
    `mirror_entry` from any.
    """

    lead: Lead
    spouts: Sequence[SpoutComponent]
    coordinator: Coordinator
    ledger: Ledger
    clock: Clock
    once: bool
    say: Callable[[str], None]
    last_digest: bytes
    """Digest that the first new plan chains to if no uncommitted plan is before it."""
    last_metadata: Mapping[str, Metadata] | None
    """Metadata by spout of the highest committed txid that is not a redo."""
    committers: Sequence[CommitterComponent] = ()
    """They say whether the contribution of a batch can be reversed."""
    phases: Mapping[str, int] = field(default_factory=dict)
    """Of the committers: only those of the processing phase can be filled (R32)."""
    config: Mapping[str, Any] = field(default_factory=dict)
    """The configuration of the topology, for the spouts."""
    last_txid: int = 0
    """Highest committed txid when the lead was taken."""
    notified_again: int = limits.SPOUT_PENDING_MAX
    """Number of committed batches of which spouts are notified again at takeover. It is at least the number of batches
    that may have been committed since the last notification.
    """
    opaque: bool = False
    """True if batches may be planned again. The `cut` of a plan is then the attempt that it was planned for."""
    _recuts: Recuts = field(default_factory=Recuts)
    """For an opaque topology: the attempt ids that plans in ZooKeeper have used."""
    _attempts: Mapping[int, int] = field(default_factory=dict)
    """txid -> first attempt id that was never used, for txids that were planned before; from the machine."""
    _discarded: dict[int, Plan] = field(default_factory=dict)
    """Opaque topologies: the last plans of uncommitted txids that must be planned again. All of them are, so no input
    is lost.
    """
    lag: Mapping[str, Any] = field(default_factory=dict)
    """`lag`: how many records of each spout waited at the last look; empty if no spout knows it. Replaced as a
    whole, since another thread reads it.
    """
    _is_open: bool = False
    _unrecorded: list[Plan] = field(default_factory=list)
    """Plans that ZooKeeper has not confirmed. They are recorded again, but never changed."""
    _sizes: dict[int, int] = field(default_factory=dict)
    """Estimated bytes of input, by txid, of plans that ZooKeeper has not confirmed."""
    _refused: BatchDataError | None = None
    """Why no batch can be planned after those that are not recorded yet."""
    _chain: list[Plan] = field(default_factory=list)
    """Recorded plans in txid order: the uncommitted ones, and the earlier ones that the next plan needs. It chains to
    the last one (R12), and `previous` is the metadata of the last one that is not a redo.
    """
    _unnotified: list[tuple[Plan, Settled | None]] = field(default_factory=list)
    """Committed batches of which spouts have not been notified, oldest first."""

    @cached_property
    def _parts(self) -> MetadataParts:
        return MetadataParts(ledger=self.ledger, topology=self.lead.topology)

    @cached_property
    def _sources(self) -> Sources:
        return Sources(spouts=self.spouts, whole=self._parts.whole, context=self._context)

    def open(self, uncommitted: Sequence[Plan], discarded: Sequence[Plan] = ()) -> None:
        """Open the coordinator halves of the spouts. An input that a batch has consumed is never read again:
        `source_file` has those of mirrored plans, `uncommitted` the others.

        `discarded` are plans of an opaque topology that earlier leaders made and that must be planned again. Raises
        Halted if a plan has input of a spout that the topology no longer has.
        """
        self._discarded = {plan.txid: plan for plan in discarded}
        for plan in uncommitted:
            self._check_known(plan, self.metadata(plan))
            self._check_filled(plan)
            self._chain.append(plan)
        self._sources.open()
        self._is_open = True
        if self._sources.want_settled:
            self._unnotified = self._committed_lately()
            self._try_to_notify()

    def _context(self, spout: str) -> SpoutContext:
        uncommitted: dict[str, bytes] = {}
        for plan in (*self._chain, *self._unrecorded):
            uncommitted |= {
                item.path: item.fingerprint for item in self._sources.inputs(self.metadata(plan)).get(spout, ())
            }
        previous = last_of(self._before().get(spout))
        return SpoutContext(
            topology=self.lead.topology,
            spout=spout,
            consumed=ConsumedInputs(
                partial(self.ledger.consumed, spout),
                partial(self.ledger.consumed_after, spout),
                uncommitted,
                partial(self.ledger.not_consumed, spout),
            ),
            once=self.once,
            monotonic=self.clock.monotonic,
            say=self.say,
            previous=None if previous is None else self._parts.whole(previous),
            config=self.config,
            recent=lambda: self._recent(spout),
            age_s=self.clock.age_s,
        )

    def _recent(self, spout: str) -> Iterator[Metadata]:
        below = 1 << 62
        for _ in range(0, limits.FILES_COMPARED_MAX, PLANS_PER_READ):
            plans = self.ledger.plans_below(below, PLANS_PER_READ)
            for txid, data in plans:
                below = txid
                with suppress(Halted):  # the audit reports one that cannot be read; nothing depends on it here
                    entry = read_plan(data, "table txtopo.plan").metadata.get(spout)
                    if entry is not None and not is_idle(entry):
                        yield self._parts.whole(entry)
            if len(plans) < PLANS_PER_READ:
                return

    def _check_known(self, plan: Plan, metadata: Mapping[str, Metadata]) -> None:
        names = {item.name for item in self.spouts}
        for name in metadata:
            if name not in names:
                raise Halted(
                    f"batch {plan.txid} of {self.lead.topology} is planned with input of spout {name}, which the "
                    f"topology no longer has",
                    txid=plan.txid,
                    next_command=f"put spout {name} back until batch {plan.txid} is committed, then start `txtopo run` "
                    f"again",
                )

    def _check_filled(self, plan: Plan) -> None:
        if plan.committer is not None and cannot_backfill(self.committers, self.phases, plan.committer) is not None:
            raise Halted(
                f"batch {plan.txid} of {self.lead.topology} is planned to count batch {plan.backfills} into committer "
                f"{plan.committer}, which the topology no longer has as it was",
                txid=plan.txid,
                next_command=f"put committer {plan.committer} back until batch {plan.txid} is committed, then start "
                "`txtopo run` again",
            )

    def cut(
        self,
        first_txid: int,
        count: int,
        *,
        last_txid: int = 0,
        attempts: Mapping[int, int] | None = None,
        given_up: frozenset[int] = frozenset(),
    ) -> Cutting:
        """Plan up to `count` batches from `first_txid` on, and record them in ZooKeeper. Ends at the first txid for
        which no spout is ready. Returns no plan if there is no new input.

        Raises ZooKeeperUnavailable, PostgresUnavailable or OSError (a source): the same call later continues where it
        stopped. Raises Halted if the input cannot be a batch.

        In an opaque topology `first_txid` may be planned already: it and all later txids are planned again. `last_txid`
        is committed; `attempts` has the lowest attempt id for txids where it is not 0. A txid that was planned before
        is planned again whether or not a spout is ready. It may be empty if its input is in earlier batches, or if it
        is in `given_up`.
        """
        self._check_open()
        self._go_back(first_txid, last_txid, attempts or {})
        self._notify()
        deadline = self.clock.monotonic() + CUT_S
        while len(self._unrecorded) < count:
            txid = first_txid + len(self._unrecorded)
            try:
                if self._refused is not None:
                    error, self._refused = self._refused, None
                    raise error
                again = self._planned_before(txid)
                metadata = self._sources.next_batch(txid, self._before(), again, given_up=txid in given_up)
            except (BatchDataError, NoInputError) as error:
                if self._unrecorded:
                    # The batches before it are good. A spout whose code raised is not called again now: what it
                    # returned may be lost.
                    self._refused = error if isinstance(error, BatchDataError) else None
                    break
                raise self._not_cut(txid, error) from error
            except (OSError, StoreUnavailable):
                if self._unrecorded:
                    break  # the batches before it are good
                raise
            if metadata is None:
                break
            self._unrecorded.append(self._compose(txid, metadata))
            self._sources.mark_planned()
            self._discarded.pop(txid, None)
            if self.clock.monotonic() >= deadline:
                break
        plans = tuple(self._unrecorded)
        lag = self._sources.lag()
        self.lag = {"lag": lag} if lag else {}
        sizes = self._record(plans) if plans else {}
        return Cutting(
            plans=plans,
            exhausted=self.once and not plans and self._is_at_end(last_txid),
            sizes=sizes,
            ready_in_s=math.inf if plans else self._sources.ready_in_s(),
        )

    def _is_at_end(self, last_txid: int) -> bool:
        """True if no spout will have more input and all spouts with `wants_settled` were notified of all their
        batches.
        """
        unheard = self.wants_settled and any(plan.txid > last_txid for plan in self._chain)
        return not unheard and self._sources.are_exhausted()

    def _planned_before(self, txid: int) -> Mapping[str, Metadata] | None:
        """Metadata by spout of the discarded plan of this txid; empty if only a later txid was planned before; None if
        neither was.
        """
        if txid > max(self._discarded, default=0):
            return None
        plan = self._discarded.get(txid)
        return {} if plan is None else self.metadata(plan)

    def _not_cut(self, txid: int, error: BatchDataError | NoInputError) -> Halted | OSError:
        """The error if no batch can be planned: a halt, or an OSError after which the source is asked again."""
        topology = self.lead.topology
        if isinstance(error, BatchDataError):
            words = f"batch {txid} of {topology} cannot be planned: {error}"
        elif self.once:
            words = f"{topology} has no input: {error}"
        else:
            return FileNotFoundError(str(error))  # the source may appear later
        return Halted(words, txid=txid, next_command=_TRY_AGAIN)

    def redo(self, action: CutRedo) -> RedoCut | PlansCut:
        """Plan one redo as a new txid after the last one, or find that there is nothing to plan.

        If earlier plans are not confirmed by ZooKeeper, they are recorded and returned first. Raises the errors of
        `cut`.
        """
        self._go_back(action.first_txid, action.last_txid, action.attempts)
        if self._unrecorded:
            again = self.cut(action.first_txid, 0, last_txid=action.last_txid, attempts=action.attempts)
            return PlansCut(plans=again.plans, exhausted=False, sizes=again.sizes)
        if isinstance(action.redo, Backfill):
            return self._backfill(action, action.redo)
        redo = action.redo
        try:
            chain = self.ledger.redo_chain(redo.txid)
        except Halted as error:  # e.g. its plan has expired: the order is refused, everything else continues
            return RedoCut(redo=redo, refused=str(error))
        choice = choose_redo(redo, chain, action.open_redos)
        if choice.base is None:
            return RedoCut(redo=redo, by=choice.by, refused=choice.refused)
        if choice.base.state == "applied" and (keeper := self._without_contributions()) is not None:
            return RedoCut(
                redo=redo, refused=f"batch {redo.txid} cannot be recomputed: committer {keeper} keeps no contributions"
            )
        try:
            plan = self._plan_redo(action, redo, choice.base)
        except BatchDataError as error:
            return RedoCut(redo=redo, refused=f"batch {redo.txid} cannot be planned again: {error}")
        self._unrecorded.append(plan)
        self._record((plan,))
        return RedoCut(redo=redo, plan=plan)

    def _plan_redo(self, action: CutRedo, redo: Redo, base: LedgerBatch) -> Plan:
        """Plan the same inputs as they are now, under a new txid. The position of the sources does not change."""
        self._check_open()
        metadata = self._sources.redo(self.metadata(plan_of(base)))
        return self._compose(action.first_txid, metadata, kind="redo", redo_of=base.txid, order_id=action.redo.order_id)

    def _backfill(self, action: CutRedo, backfill: Backfill) -> RedoCut:
        """Plan the next batch that the committer lacks, or find why it is not counted, or that there is none (R32)."""
        self._check_open()
        why = cannot_backfill(self.committers, self.phases, backfill.committer)
        found = self.ledger.lacking(backfill.committer, backfill.above, backfill.planned) if why is None else None
        if found is None:
            return RedoCut(redo=backfill, refused=why)
        base = None if found.plan is None else read_plan(found.plan, f"plan {found.txid} in Postgres")
        why = choose_backfill(backfill, found, base)
        if why is None and base is not None:
            try:
                plan = self._plan_backfill(action, backfill, base)
            except BatchDataError as error:
                why = f"batch {found.txid} is not counted: {error}"
            else:
                self._unrecorded.append(plan)
                self._record((plan,))
                return RedoCut(redo=backfill, plan=plan, named=found.txid)
        return RedoCut(redo=backfill, refused=why, named=found.txid)

    def _plan_backfill(self, action: CutRedo, backfill: Backfill, base: Plan) -> Plan:
        """Plan the same inputs with the same content, and the fields that are declared now. Raises BatchDataError if an
        input has other content: the committers would have counted different batches.
        """
        before = self.metadata(base)
        metadata = self._sources.redo(before)
        then, now = self._sources.inputs(before), self._sources.inputs(metadata)
        for spout, inputs in then.items():
            kept = {(one.path, one.fingerprint) for one in now.get(spout, ())}
            for one in inputs:
                if (one.path, one.fingerprint) not in kept:
                    raise BatchDataError(f"{one.path} has changed since the batch was committed", component=spout)
        return self._compose(
            action.first_txid,
            metadata,
            kind="backfill",
            backfills=base.txid,
            committer=backfill.committer,
            order_id=backfill.order_id,
        )

    def _without_contributions(self) -> str | None:
        """Name of a committer whose contributions cannot be reversed; None if there is none."""
        names = (item.name for item in self.committers if not item.bolt.contributions)
        return next(names, None)

    def _check_open(self) -> None:
        if not self._is_open:
            unreachable("the planner was not opened")

    @property
    def wants_settled(self) -> bool:
        """True if a spout has `wants_settled`."""
        return self._sources.want_settled

    def settled(self, plan: Plan, state: Settled | None) -> None:
        """Notify the spouts of the final state of a batch. Called when its ledger row is final and the COMMIT is known.
        `state` None: read it from the ledger.

        If a spout fails, that is reported, and it is notified again before the next plan. Nothing is planned until
        then, so at most `notified_again` batches wait.
        """
        self._unnotified.append((plan, state))
        self._try_to_notify()

    def _try_to_notify(self) -> None:
        try:
            self._notify()
        except OSError as error:
            self.say(f"{error}; trying again")
        except StoreUnavailable as error:
            self.say(f"{_not_notified(self._unnotified[0][0])}: {error}; trying again")

    def _notify(self) -> None:
        while self._unnotified:
            plan, state = self._unnotified[0]
            try:
                known = self._state_of(plan.txid) if state is None else state
                self._sources.settled(plan.txid, self.metadata(plan), known)
            except OSError as error:
                raise OSError(f"{_not_notified(plan)}: {error}") from error
            except BatchDataError as error:
                raise Halted(
                    f"batch {plan.txid} of {self.lead.topology} is committed, but {error.component} could not be "
                    f"notified: {error}",
                    next_command="fix the spout, then start `txtopo run` again: it is notified again",
                ) from error
            del self._unnotified[0]

    def _state_of(self, txid: int) -> Settled:
        return next(one.state for one in self.ledger.redo_chain(txid) if one.txid == txid)

    def _committed_lately(self) -> list[tuple[Plan, Settled | None]]:
        lately = self.ledger.batches_after(self.last_txid - self.notified_again)
        return [(plan_of(one), one.state) for one in lately]

    def metadata(self, plan: Plan) -> Mapping[str, Metadata]:
        """Return the plan's metadata by spout, with stored parts included. Spouts without input in this batch are
        missing.
        """
        return {name: self._parts.whole(value) for name, value in plan.metadata.items() if not is_idle(value)}

    def mirror_entry(self, plan: Plan) -> MirrorEntry:
        """Return the plan with the inputs that it consumes, as they are stored in `source_file`."""
        return MirrorEntry(plan=plan, inputs=self._sources.inputs(self.metadata(plan)))

    def close(self) -> None:
        """Close the coordinator halves of the spouts."""
        self._sources.close()

    def batch_bytes(self, plan: Plan) -> int:
        """Return the estimated size of the batch in bytes of its sources, as far as the spouts know it."""
        return self._bytes_of(self.metadata(plan))

    def _bytes_of(self, metadata: Mapping[str, Metadata]) -> int:
        return sum(item.spout.batch_bytes(metadata[item.name]) for item in self.spouts if item.name in metadata)

    def _before(self) -> Mapping[str, Metadata]:
        """Metadata by spout of the plan that the next one follows (R12)."""
        inputs = [plan.metadata for plan in (*self._chain, *self._unrecorded) if plan.is_input]
        return inputs[-1] if inputs else (self.last_metadata or {})

    def _go_back(self, first_txid: int, last_txid: int, attempts: Mapping[int, int]) -> None:
        """Remove plans that are committed and no longer needed. In an opaque topology, discard the plans from
        `first_txid` on.
        """
        self._attempts = attempts
        gone = [plan for plan in self._chain if plan.txid >= first_txid]
        invariant(self.opaque or not gone, f"batch {first_txid} is planned already")
        if gone or (self._unrecorded and self._unrecorded[0].txid != first_txid):
            gone += self._unrecorded
            self._recuts.use_up(gone)  # Z6: unconfirmed plans may exist in ZooKeeper too
            self._discarded |= {plan.txid: plan for plan in gone if plan.is_input}
            self._sources.plan_again([plan.metadata for plan in gone if plan.is_input])
            self._unrecorded.clear()
            self._sizes.clear()
            self._refused = None
        self._recuts.forget(last_txid)
        self._discarded = {txid: plan for txid, plan in self._discarded.items() if txid > last_txid}
        kept = [plan for plan in self._chain if plan.txid < first_txid]
        committed = [plan for plan in kept if plan.txid <= last_txid]
        needed = [*committed[-1:], *[plan for plan in committed if plan.is_input][-1:]]
        self._chain = [plan for plan in kept if plan.txid > last_txid or plan in needed]

    def _compose(self, txid: int, metadata: Mapping[str, Metadata], *, kind: str = "cut", **of_order: Any) -> Plan:
        """The next plan; it chains to the last one. `of_order` has what an order adds to it.

        Its size is taken from the metadata at hand: once these are in Postgres, it could only be known while Postgres
        answers.
        """
        self._sizes[txid] = self._bytes_of({name: value for name, value in metadata.items() if not is_idle(value)})
        before = next(reversed([*self._chain, *self._unrecorded]), None)
        plan = Plan(
            topology=self.lead.topology,
            incarnation=self.lead.incarnation,
            txid=txid,
            previous_digest=self.last_digest if before is None else before.digest,
            metadata=metadata,
            kind=kind,
            **of_order,
            cut=max(self._attempts.get(txid, 0), self._recuts.first_attempt(txid)),
        )
        return self._parts.moved_to_table(plan)

    def _record(self, plans: tuple[Plan, ...]) -> Mapping[int, int]:
        """Write them to ZooKeeper; returns their sizes."""
        crash_points.reach(CrashPoint.BEFORE_METADATA, plans[0].txid)
        # Z6: if this raises, the nodes may exist all the same. The next call of `cut` writes the same bytes again.
        self.coordinator.record_plans(plans)
        crash_points.reach(CrashPoint.METADATA_WRITTEN, plans[-1].txid)
        self._chain += plans
        self._unrecorded.clear()
        sizes, self._sizes = self._sizes, {}
        return sizes


_TRY_AGAIN = "fix the input, the spout or the declared fields, then start `txtopo run` again"


def _not_notified(plan: Plan) -> str:
    return f"a spout could not be notified that batch {plan.txid} is committed"
