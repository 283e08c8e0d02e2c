"""The planner: turns what a spout offers into plans, durable in ZooKeeper before anything is read (R3)."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from txtopo import faults
from txtopo.core import limits
from txtopo.core.plan import Metadata, Plan, canonical
from txtopo.core.values import Lead
from txtopo.errors import BatchDataError, Halted
from txtopo.faults import CrashPoint
from txtopo.ports import Clock, Coordinator, Ledger, MirrorEntry
from txtopo.topology.components import SpoutComponent, SpoutContext, SpoutCoordinator

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
    _source: SpoutCoordinator | None = None
    _unrecorded: list[Plan] = field(default_factory=list)
    """Cut, but ZooKeeper has not confirmed them: recorded again, never cut again."""
    _cut_last: Plan | None = None

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
        self._cut_last = uncommitted[-1] if uncommitted else None

    def cut(self, first_txid: int, count: int) -> Cutting:
        """Plan up to `count` batches from `first_txid` on, stopping at the first that is not ready, and record them in ZooKeeper.

        Raises ZooKeeperUnavailable, PostgresUnavailable, OSError (the source): the same call later goes on where it stopped.
        Raises Halted where the input cannot be a batch. Returns no plan when there is nothing new.
        """
        source = self._source
        if source is None:
            raise Halted("the planner was not opened")
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

    def close(self) -> None:
        """Close the spout's coordinator half."""
        if self._source is not None:
            self._source.close()

    def _plan(self, source: SpoutCoordinator, txid: int) -> Plan:
        before = self._unrecorded[-1] if self._unrecorded else self._cut_last
        previous = ((self.last_metadata if before is None else before.metadata) or {}).get(self.spout.name)
        metadata = source.initialize_transaction(txid, None if previous is None else self._whole(previous))
        digest = self.last_digest if before is None else before.digest
        plan = self._compose(txid, digest, metadata)
        if len(plan.bytes) > limits.METADATA_BYTES_MAX:
            # In Postgres before the znode that points to it, so that the pointer never dangles.
            plan = self._compose(
                txid, digest, {PART_KEY: self.ledger.store_part(_part(metadata, txid, self.lead.topology))}
            )
        return plan

    def _compose(self, txid: int, digest: bytes, metadata: Metadata) -> Plan:
        return Plan(
            topology=self.lead.topology, incarnation=self.lead.incarnation, txid=txid, previous_digest=digest, metadata={self.spout.name: metadata}
        )  # fmt: skip

    def _record(self, plans: tuple[Plan, ...]) -> None:
        faults.reach(CrashPoint.BEFORE_METADATA, plans[0].txid)
        # Z6: where this raises they may be there all the same. The very same bytes are written again by the next cut.
        self.coordinator.record_plans(plans)
        faults.reach(CrashPoint.METADATA_WRITTEN, plans[-1].txid)
        self._cut_last = plans[-1]
        self._unrecorded.clear()

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
