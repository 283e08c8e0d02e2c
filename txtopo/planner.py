"""The planner: turns what a spout offers into plans, durable in ZooKeeper before anything is read (R3)."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from txtopo import faults
from txtopo.core import limits
from txtopo.core.events import CutRedo, PlansCut, RedoCut
from txtopo.core.plan import Metadata, Plan, canonical
from txtopo.core.redo import choose_redo, plan_of
from txtopo.core.values import Lead, LedgerBatch
from txtopo.errors import BatchDataError, Halted
from txtopo.faults import CrashPoint
from txtopo.ports import Clock, Coordinator, Ledger, MirrorEntry
from txtopo.topology.components import CommitterComponent, SpoutComponent, SpoutContext, SpoutCoordinator

CUT_S = 0.25
"""A cut ends after about this many seconds, so that the first batches need not wait for the fingerprints of all."""
PART_KEY = "$part"
"""Metadata that is too long for a znode is replaced by {PART_KEY: digest}; the piece lies in `plan_part`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Cutting:
    """What a cut gave."""

    plans: tuple[Plan, ...]
    exhausted: bool


@dataclass(kw_only=True)
class Planner:
    """Cuts batches for one leadership. `cut` is called from one thread; `metadata` and `mirror_entry` from any."""

    lead: Lead
    spout: SpoutComponent
    coordinator: Coordinator
    ledger: Ledger
    clock: Clock
    once: bool
    say: Callable[[str], None]
    last_digest: bytes
    """Digest that the first new plan chains to when nothing uncommitted is before it."""
    last_metadata: Metadata | None
    """Metadata of the highest committed txid that redoes nothing."""
    committers: Sequence[CommitterComponent] = ()
    """Asked whether they can take back what a batch contributed."""
    _source: SpoutCoordinator | None = None
    _unrecorded: list[Plan] = field(default_factory=list)
    """Cut, but ZooKeeper has not confirmed them: recorded again, never cut again."""
    _cut_last: Plan | None = None
    """The highest uncommitted plan: the next one chains to it."""
    _last_input: Metadata | None = None
    """Metadata of the highest uncommitted plan that redoes nothing: `previous` of the next cut (R12)."""

    def open(self, uncommitted: Sequence[Plan]) -> None:
        """Open the coordinator half of the spout. What any batch ever consumed is never input again (`source_file` plus plans > last)."""
        consumed = dict(self.ledger.consumed(self.spout.name))
        for plan in uncommitted:
            for item in self.spout.spout.inputs(self.metadata(plan)[self.spout.name]):
                consumed[item.path] = item.fingerprint
        context = SpoutContext(
            topology=self.lead.topology, spout=self.spout.name, consumed=consumed, once=self.once, monotonic=self.clock.monotonic, say=self.say,
        )  # fmt: skip
        self._source = self.spout.spout.open_coordinator(context)
        for plan in uncommitted:
            self._remember(plan)

    def cut(self, first_txid: int, count: int) -> Cutting:
        """Plan up to `count` batches from `first_txid` on, stopping at the first that is not ready, and record them in ZooKeeper.

        Raises ZooKeeperUnavailable, PostgresUnavailable, OSError (the source): the same call later goes on where it stopped.
        Raises Halted where the input cannot be a batch. Returns no plan when there is nothing new.
        """
        source = self._opened()
        deadline = self.clock.monotonic() + CUT_S
        while len(self._unrecorded) < count and self._is_ready(source, first_txid):
            txid = first_txid + len(self._unrecorded)
            try:
                self._unrecorded.append(self._plan(source, txid))
            except BatchDataError as error:
                if self._unrecorded:
                    break  # those before it are good: the next cut comes upon it again
                topology = self.lead.topology
                raise Halted(
                    f"batch {txid} of {topology} cannot be planned: {error}", txid=txid, next_command=_TRY_AGAIN
                ) from error
            if self.clock.monotonic() >= deadline:
                break
        plans = tuple(self._unrecorded)
        if plans:
            self._record(plans)
        return Cutting(plans=plans, exhausted=self.once and not plans and source.is_exhausted())

    def redo(self, action: CutRedo) -> RedoCut | PlansCut:
        """Plan one redo as a new txid at the end of the order, or find that there is nothing to plan.

        Plans of a cut that ZooKeeper has not confirmed come first: then they are what is returned. Raises like `cut`.
        """
        if self._unrecorded:
            return PlansCut(plans=self.cut(action.first_txid, 0).plans, exhausted=False)
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
        """The inputs of the batch as they are now, under a new txid. The source is not moved."""
        metadata = self._opened().initialize_redo(self.metadata(plan_of(base))[self.spout.name])
        return self._compose(action.first_txid, metadata, redo_of=base.txid, request_id=action.redo.request_id)

    def _without_contributions(self) -> str | None:
        """A committer that cannot take back what it counted, by name."""
        names = (item.name for item in self.committers if not getattr(item.bolt, "contributions", False))
        return next(names, None)

    def _opened(self) -> SpoutCoordinator:
        if self._source is None:
            raise Halted("the planner was not opened")
        return self._source

    def _is_ready(self, source: SpoutCoordinator, txid: int) -> bool:
        try:
            return source.is_ready()
        except FileNotFoundError as error:
            if not self.once:
                raise  # it may come yet
            raise Halted(f"{self.lead.topology} has no input: {error}", txid=txid, next_command=_TRY_AGAIN) from error

    def metadata(self, plan: Plan) -> Mapping[str, Metadata]:
        """The plan's metadata by spout, with pieces from `plan_part` put back."""
        return {name: self._whole(value) for name, value in plan.metadata.items()}

    def mirror_entry(self, plan: Plan) -> MirrorEntry:
        """The plan with the inputs that it consumes, as they go into `source_file`."""
        metadata = self.metadata(plan)
        return MirrorEntry(plan=plan, inputs={self.spout.name: self.spout.spout.inputs(metadata[self.spout.name])})

    def batch_bytes(self, plan: Plan) -> int:
        """Source bytes of the batch, 0 where they are not known."""
        return self.spout.spout.batch_bytes(self.metadata(plan)[self.spout.name])

    def close(self) -> None:
        """Close the spout's coordinator half."""
        if self._source is not None:
            self._source.close()

    def _plan(self, source: SpoutCoordinator, txid: int) -> Plan:
        inputs = [plan.metadata for plan in self._unrecorded if plan.redo_of is None]
        before = inputs[-1] if inputs else (self._last_input or self.last_metadata or {})
        previous = before.get(self.spout.name)
        metadata = source.initialize_transaction(txid, None if previous is None else self._whole(previous))
        return self._compose(txid, metadata)

    def _compose(
        self, txid: int, metadata: Metadata, *, redo_of: int | None = None, request_id: int | None = None
    ) -> Plan:
        """The plan; metadata that is too long for a znode is kept in Postgres, before the znode that points to it: the pointer never dangles."""
        before = self._unrecorded[-1] if self._unrecorded else self._cut_last
        plan = Plan(
            topology=self.lead.topology, incarnation=self.lead.incarnation, txid=txid,
            previous_digest=self.last_digest if before is None else before.digest, metadata={self.spout.name: metadata},
            kind="cut" if redo_of is None else "redo", redo_of=redo_of, request_id=request_id,
        )  # fmt: skip
        if len(plan.bytes) <= limits.METADATA_BYTES_MAX:
            return plan
        part = self.ledger.store_part(_part(metadata, txid, self.lead.topology))
        return replace(plan, metadata={self.spout.name: {PART_KEY: part}})

    def _record(self, plans: tuple[Plan, ...]) -> None:
        faults.reach(CrashPoint.BEFORE_METADATA, plans[0].txid)
        # Z6: where this raises they may be there all the same. The very same bytes are written again by the next cut.
        self.coordinator.record_plans(plans)
        faults.reach(CrashPoint.METADATA_WRITTEN, plans[-1].txid)
        for plan in plans:
            self._remember(plan)
        self._unrecorded.clear()

    def _remember(self, plan: Plan) -> None:
        self._cut_last = plan
        if plan.redo_of is None:
            self._last_input = plan.metadata

    def _whole(self, metadata: Metadata) -> Metadata:
        if PART_KEY not in metadata:
            return metadata
        return _read_metadata(self.ledger.read_part(str(metadata[PART_KEY])))


_TRY_AGAIN = "mend the file or the declared fields, then start `txtopo run` again"


def _part(metadata: Metadata, txid: int, topology: str) -> bytes:
    data = canonical(metadata)
    if len(data) > limits.PLAN_PART_BYTES_MAX:
        raise Halted(
            f"batch {txid} of {topology} has {len(data)} bytes of metadata, at most {limits.PLAN_PART_BYTES_MAX} are allowed: "
            "put fewer files into a batch (files_per_batch)",
            txid=txid,
        )
    return data


def _read_metadata(data: bytes) -> Metadata:
    value = json.loads(data)
    if not isinstance(value, dict):
        raise Halted("a piece in table txtopo.plan_part holds no metadata")
    return value
