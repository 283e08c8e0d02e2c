"""The planner: turns what the spouts offer into plans, durable in ZooKeeper before anything is read (R3)."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

from txtopo.core import crash_points, limits
from txtopo.core.crash_points import CrashPoint
from txtopo.core.events import CutRedo, PlansCut, RedoCut
from txtopo.core.opaque_replanning import Recuts
from txtopo.core.plan import Metadata, Plan, read_plan
from txtopo.core.redo import choose_redo, plan_of
from txtopo.core.values import Lead, LedgerBatch
from txtopo.driver.long_metadata import MetadataParts
from txtopo.driver.spout_coordinators import NoInputError, Settled, Sources, is_idle, last_of
from txtopo.errors import BatchDataError, Halted, StoreUnavailable, invariant, unreachable
from txtopo.ports import Clock, Coordinator, Ledger, MirrorEntry
from txtopo.topology.components import CommitterComponent, SpoutComponent, SpoutContext

CUT_S = 0.25
"""A cut ends after about this many seconds, so that the first batches need not wait for the fingerprints of all."""
PLANS_PER_READ = 500
"""Plans of the past that are read at once."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Cutting:
    """What a cut gave."""

    plans: tuple[Plan, ...]
    exhausted: bool


@dataclass(kw_only=True)
class Planner:
    """Cuts batches for one leadership. `cut`, `redo` and `settled` are called from one thread; `metadata` and
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
    """Digest that the first new plan chains to when nothing uncommitted is before it."""
    last_metadata: Mapping[str, Metadata] | None
    """Metadata by spout of the highest committed txid that redoes nothing."""
    committers: Sequence[CommitterComponent] = ()
    """Asked whether they can take back what a batch contributed."""
    config: Mapping[str, Any] = field(default_factory=dict)
    """Of the topology, for the spouts."""
    last_txid: int = 0
    """Highest committed txid when the lead was taken."""
    told_again: int = limits.SPOUT_PENDING_MAX
    """At takeover, spouts are notified again of this many committed batches: at most this many were committed since the
    last notification.
    """
    opaque: bool = False
    """True if batches may be cut again; then a plan's `cut` is the attempt that it was cut for."""
    _recuts: Recuts = field(default_factory=Recuts)
    """Of an opaque topology: the attempt ids that plans in ZooKeeper have used up."""
    _attempts: Mapping[int, int] = field(default_factory=dict)
    """First attempt id never used of txids that were cut before, as the machine knows it."""
    _discarded: dict[int, Plan] = field(default_factory=dict)
    """Opaque topologies: the last plans of uncommitted txids that must be cut again. Each one is, so that its input is
    not forgotten.
    """
    _is_open: bool = False
    _unrecorded: list[Plan] = field(default_factory=list)
    """Cut, but ZooKeeper has not confirmed them: recorded again, never cut again."""
    _refused: BatchDataError | None = None
    """Why there is no batch after those that are not recorded yet."""
    _chain: list[Plan] = field(default_factory=list)
    """Recorded plans in txid order, uncommitted ones and as many before them as the next one needs: it chains to the
    last, and `previous` is what the last that redoes nothing consists of (R12).
    """
    _untold: list[tuple[Plan, Settled | None]] = field(default_factory=list)
    """Committed batches of which spouts have not been notified, oldest first."""

    @cached_property
    def _pieces(self) -> MetadataParts:
        return MetadataParts(ledger=self.ledger, topology=self.lead.topology)

    @cached_property
    def _sources(self) -> Sources:
        return Sources(spouts=self.spouts, whole=self._pieces.whole, context=self._context)

    def open(self, uncommitted: Sequence[Plan], discarded: Sequence[Plan] = ()) -> None:
        """Open the coordinator halves of the spouts. An input that a batch has consumed is never read again
        (`source_file` plus plans > last).

        `discarded` are plans of an opaque topology that earlier leaders made and that must be cut again.
        """
        self._discarded = {plan.txid: plan for plan in discarded}
        for plan in uncommitted:
            self._check_known(plan, self.metadata(plan))
            self._chain.append(plan)
        self._sources.open()
        self._is_open = True
        if self._sources.want_settled:
            self._untold = self._committed_lately()
            self._try_to_tell()

    def _context(self, spout: str) -> SpoutContext:
        consumed = dict(self.ledger.consumed(spout))
        for plan in (*self._chain, *self._unrecorded):
            consumed |= {
                item.path: item.fingerprint for item in self._sources.inputs(self.metadata(plan)).get(spout, ())
            }
        previous = last_of(self._before().get(spout))
        return SpoutContext(
            topology=self.lead.topology,
            spout=spout,
            consumed=consumed,
            once=self.once,
            monotonic=self.clock.monotonic,
            say=self.say,
            previous=None if previous is None else self._pieces.whole(previous),
            config=self.config,
            recent=lambda: self._recent(spout),
        )

    def _recent(self, spout: str) -> Iterator[Metadata]:
        below = 1 << 62
        for _ in range(0, limits.FILES_COMPARED_MAX, PLANS_PER_READ):
            plans = self.ledger.plans_below(below, PLANS_PER_READ)
            for txid, data in plans:
                below = txid
                with suppress(Halted):  # one that cannot be read is the audit's business: nothing is decided by it here
                    entry = read_plan(data, "table txtopo.plan").metadata.get(spout)
                    if entry is not None and not is_idle(entry):
                        yield self._pieces.whole(entry)
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

    def cut(
        self,
        first_txid: int,
        count: int,
        *,
        last_txid: int = 0,
        attempts: Mapping[int, int] | None = None,
        given_up: frozenset[int] = frozenset(),
    ) -> Cutting:
        """Plan up to `count` batches from `first_txid` on, stopping at the first for which no spout is ready, and
        record them in ZooKeeper.

        Raises ZooKeeperUnavailable, PostgresUnavailable, OSError (a source): the same call later continues where it
        stopped. Raises Halted where the input cannot be a batch. Returns no plan when there is nothing new.

        In an opaque topology `first_txid` may be a txid that is already planned: it and all later ones are cut again.
        `last_txid` is committed, and `attempts` says which ids may be used, where not all. A txid that was planned
        before is planned again, whether or not a spout is ready; it may come out empty where its input is in the
        batches before it, or where it is `given_up`.
        """
        self._check_open()
        self._go_back(first_txid, last_txid, attempts or {})
        self._tell()
        deadline = self.clock.monotonic() + CUT_S
        while len(self._unrecorded) < count:
            txid = first_txid + len(self._unrecorded)
            try:
                if self._refused is not None:
                    error, self._refused = self._refused, None
                    raise error
                drawn = self._sources.draw(txid, self._before(), self._planned_before(txid), given_up=txid in given_up)
            except (BatchDataError, NoInputError) as error:
                if self._unrecorded:
                    # Those before it are good. A spout whose code raised is not asked again: what it gave then may be
                    # gone.
                    self._refused = error if isinstance(error, BatchDataError) else None
                    break
                raise self._not_cut(txid, error) from error
            except OSError:
                if self._unrecorded:
                    break  # the same
                raise
            if drawn is None:
                break
            self._unrecorded.append(self._compose(txid, drawn))
            self._sources.taken()
            self._discarded.pop(txid, None)
            if self.clock.monotonic() >= deadline:
                break
        plans = tuple(self._unrecorded)
        if plans:
            self._record(plans)
        return Cutting(plans=plans, exhausted=self.once and not plans and self._is_at_end(last_txid))

    def _is_at_end(self, last_txid: int) -> bool:
        """True if no spout will have more input; False while a spout with `wants_settled` has not been notified of all
        its batches.
        """
        unheard = self.wants_settled and any(plan.txid > last_txid for plan in self._chain)
        return not unheard and self._sources.are_exhausted()

    def _planned_before(self, txid: int) -> Mapping[str, Metadata] | None:
        """What the discarded plan of this txid consisted of, by spout; None: neither it nor a later one was planned
        before.
        """
        if txid > max(self._discarded, default=0):
            return None
        plan = self._discarded.get(txid)
        return {} if plan is None else self.metadata(plan)

    def _not_cut(self, txid: int, error: BatchDataError | NoInputError) -> Halted | OSError:
        """What it means that there is no batch: a halt, or that the source is asked again."""
        topology = self.lead.topology
        if isinstance(error, BatchDataError):
            words = f"batch {txid} of {topology} cannot be planned: {error}"
        elif self.once:
            words = f"{topology} has no input: {error}"
        else:
            return FileNotFoundError(str(error))  # it may come yet
        return Halted(words, txid=txid, next_command=_TRY_AGAIN)

    def redo(self, action: CutRedo) -> RedoCut | PlansCut:
        """Plan one redo as a new txid at the end of the order, or find that there is nothing to plan.

        Plans of a cut that ZooKeeper has not confirmed come first: then they are what is returned. Raises like `cut`.
        """
        self._go_back(action.first_txid, action.last_txid, action.attempts)
        if self._unrecorded:
            again = self.cut(action.first_txid, 0, last_txid=action.last_txid, attempts=action.attempts)
            return PlansCut(plans=again.plans, exhausted=False)
        redo = action.redo
        try:
            chain = self.ledger.redo_chain(redo.txid)
        except Halted as error:  # e.g. its plan has expired: the order cannot be carried out, all else can go on
            return RedoCut(redo=redo, refused=str(error))
        choice = choose_redo(redo, chain, action.open_redos)
        if choice.base is None:
            return RedoCut(redo=redo, by=choice.by, refused=choice.refused)
        if choice.base.state == "applied" and (keeper := self._without_contributions()) is not None:
            return RedoCut(
                redo=redo, refused=f"batch {redo.txid} cannot be recomputed: committer {keeper} keeps no contributions"
            )
        try:
            plan = self._plan_redo(action, choice.base)
        except BatchDataError as error:
            return RedoCut(redo=redo, refused=f"batch {redo.txid} cannot be planned again: {error}")
        self._unrecorded.append(plan)
        self._record((plan,))
        return RedoCut(redo=redo, plan=plan)

    def _plan_redo(self, action: CutRedo, base: LedgerBatch) -> Plan:
        """The inputs of the batch as they are now, under a new txid. The sources are not moved."""
        self._check_open()
        metadata = self._sources.redo(self.metadata(plan_of(base)))
        return self._compose(action.first_txid, metadata, redo_of=base.txid, order_id=action.redo.order_id)

    def _without_contributions(self) -> str | None:
        """A committer that cannot take back what it counted, by name."""
        names = (item.name for item in self.committers if not getattr(item.bolt, "contributions", False))
        return next(names, None)

    def _check_open(self) -> None:
        if not self._is_open:
            unreachable("the planner was not opened")

    @property
    def wants_settled(self) -> bool:
        """True if a spout has `wants_settled`."""
        return self._sources.want_settled

    def settled(self, plan: Plan, state: Settled | None) -> None:
        """Called when a batch has its final row in the ledger and the COMMIT is known. `state` None: read it from the
        ledger.

        If a source fails, that is reported and retried before the next cut. Until then nothing is planned, so at most
        `told_again` batches wait.
        """
        self._untold.append((plan, state))
        self._try_to_tell()

    def _try_to_tell(self) -> None:
        try:
            self._tell()
        except OSError as error:
            self.say(f"{error}; trying again")
        except StoreUnavailable as error:
            self.say(f"{_not_told(self._untold[0][0])}: {error}; trying again")

    def _tell(self) -> None:
        while self._untold:
            plan, state = self._untold[0]
            try:
                known = self._state_of(plan.txid) if state is None else state
                self._sources.settled(plan.txid, self.metadata(plan), known)
            except OSError as error:
                raise OSError(f"{_not_told(plan)}: {error}") from error
            except BatchDataError as error:
                raise Halted(
                    f"batch {plan.txid} of {self.lead.topology} is committed, but {error.component} could not be "
                    f"notified: {error}",
                    next_command="fix the spout, then start `txtopo run` again: it is notified again",
                ) from error
            del self._untold[0]

    def _state_of(self, txid: int) -> Settled:
        return next(one.state for one in self.ledger.redo_chain(txid) if one.txid == txid)

    def _committed_lately(self) -> list[tuple[Plan, Settled | None]]:
        found: list[tuple[Plan, Settled | None]] = []
        for txid in range(max(1, self.last_txid - self.told_again + 1), self.last_txid + 1):
            try:
                chain = self.ledger.redo_chain(txid)
            except Halted:
                continue  # its plan has expired: it was committed long ago
            found += [(plan_of(one), one.state) for one in chain if one.txid == txid]
        return found

    def metadata(self, plan: Plan) -> Mapping[str, Metadata]:
        """The plan's metadata by spout, with pieces from `plan_part` put back; of the spouts that have a part in the
        batch.
        """
        return {name: self._pieces.whole(value) for name, value in plan.metadata.items() if not is_idle(value)}

    def mirror_entry(self, plan: Plan) -> MirrorEntry:
        """The plan with the inputs that it consumes, as they go into `source_file`."""
        return MirrorEntry(plan=plan, inputs=self._sources.inputs(self.metadata(plan)))

    def close(self) -> None:
        """Close the coordinator halves of the spouts."""
        self._sources.close()

    def batch_bytes(self, plan: Plan) -> int:
        """About how many bytes of their sources the batch has, as far as the spouts know."""
        metadata = self.metadata(plan)
        return sum(item.spout.batch_bytes(metadata[item.name]) for item in self.spouts if item.name in metadata)

    def _before(self) -> Mapping[str, Metadata]:
        """The plan that the next cut follows (R12), by spout as in its plan."""
        inputs = [plan.metadata for plan in (*self._chain, *self._unrecorded) if plan.redo_of is None]
        return inputs[-1] if inputs else (self.last_metadata or {})

    def _go_back(self, first_txid: int, last_txid: int, attempts: Mapping[int, int]) -> None:
        """Forget what is committed and not needed any more and, in an opaque topology, what was planned from
        `first_txid` on.
        """
        self._attempts = attempts
        gone = [plan for plan in self._chain if plan.txid >= first_txid]
        invariant(self.opaque or not gone, f"batch {first_txid} is planned already")
        if gone or (self._unrecorded and self._unrecorded[0].txid != first_txid):
            gone += self._unrecorded
            self._recuts.use_up(gone)  # Z6: those that were not confirmed too may be there
            self._discarded |= {plan.txid: plan for plan in gone if plan.redo_of is None}
            self._sources.give_back([plan.metadata for plan in gone if plan.redo_of is None])
            self._unrecorded.clear()
            self._refused = None
        self._recuts.forget(last_txid)
        self._discarded = {txid: plan for txid, plan in self._discarded.items() if txid > last_txid}
        kept = [plan for plan in self._chain if plan.txid < first_txid]
        committed = [plan for plan in kept if plan.txid <= last_txid]
        needed = [*committed[-1:], *[plan for plan in committed if plan.redo_of is None][-1:]]
        self._chain = [plan for plan in kept if plan.txid > last_txid or plan in needed]

    def _compose(
        self, txid: int, metadata: Mapping[str, Metadata], *, redo_of: int | None = None, order_id: int | None = None
    ) -> Plan:
        """The plan that chains to the last one."""
        before = next(reversed([*self._chain, *self._unrecorded]), None)
        plan = Plan(
            topology=self.lead.topology,
            incarnation=self.lead.incarnation,
            txid=txid,
            previous_digest=self.last_digest if before is None else before.digest,
            metadata=metadata,
            kind="cut" if redo_of is None else "redo",
            redo_of=redo_of,
            order_id=order_id,
            cut=max(self._attempts.get(txid, 0), self._recuts.first_attempt(txid)),
        )
        return self._pieces.fitted(plan)

    def _record(self, plans: tuple[Plan, ...]) -> None:
        crash_points.reach(CrashPoint.BEFORE_METADATA, plans[0].txid)
        # Z6: where this raises they may be there all the same. The very same bytes are written again by the next cut.
        self.coordinator.record_plans(plans)
        crash_points.reach(CrashPoint.METADATA_WRITTEN, plans[-1].txid)
        self._chain += plans
        self._unrecorded.clear()


_TRY_AGAIN = "fix the input, the spout or the declared fields, then start `txtopo run` again"


def _not_told(plan: Plan) -> str:
    return f"a spout could not be notified that batch {plan.txid} is committed"
