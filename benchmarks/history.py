"""Makes the history of a topology that ran for long: batches planned, begun and committed by the ledger itself, in runs
of 64, with results that come from memory. Only Spark, ZooKeeper and the reading of files are left out.
"""

from __future__ import annotations

import hashlib
import time
import uuid
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from decimal import Decimal
from typing import Any

import pyarrow as pa

from benchmarks.led import WrongResult
from txtopo import FileSpout, Topology
from txtopo.committers.postgres.ledger import PostgresLedger
from txtopo.committers.protocol.commit import commit_batch
from txtopo.committers.protocol.commit_run import commit_run
from txtopo.core.events import CommitItem
from txtopo.core.plan import Plan
from txtopo.core.values import Committed, CommitterResult, Processed, RunEnded, TransactionAttempt
from txtopo.ports import AttemptStart, Claim, MirrorEntry

RUN = 64
"""Batches in a commit run."""
EMPTY = hashlib.sha256(b"").hexdigest()


@dataclass(frozen=True, slots=True)
class PlannedFile:
    """A file as a plan names it."""

    path: str
    mtime_ns: int = 0
    inode: int = 0
    ctime_ns: int = 0


def named_files(folder: str) -> Iterator[PlannedFile]:
    """Yield files that do not exist, in the order of their names, without an end."""
    number = 0
    while True:
        number += 1
        yield PlannedFile(f"{folder}/part_{number:010}.csv")


@dataclass
class History:
    """The leader of a topology whose batches read files in order and count `keys` groups each."""

    dsn: str
    topology: Topology
    code_hash: bytes
    files: Iterator[PlannedFile]
    files_per_batch: int
    keys: int
    last_txid: int = 0
    ledger: PostgresLedger = field(init=False)

    def __post_init__(self) -> None:
        self.ledger = PostgresLedger(self.dsn, self.topology.name)
        claimed = self.ledger.claim_fence(
            Claim(
                topology=self.topology.name,
                owner_nonce=str(uuid.uuid4()),
                code_hash=self.code_hash,
                epoch_above=0,
                incarnation=None,
                new_incarnation=str(uuid.uuid4()),
                host="bench",
                pid=1,
                application="bench",
                description=self.topology.describe(),
            )
        )
        self.lead = claimed.lead
        self.last_txid, self._digest = claimed.last_txid, claimed.last_digest
        self._planned_txid = claimed.last_txid
        self.ledger.prepare_targets(self.lead, self.topology.committers, self.topology.describe())
        (self._committer,) = self.topology.committers
        (spout,) = self.topology.spouts
        self._spout, self._source = spout.name, spout.spout
        self._rows = _rows(self.keys)

    def ready(self, count: int) -> list[CommitItem]:
        """Plan, mirror and begin the next batches. The caller commits them."""
        plans = [self._plan(txid) for txid in range(self._planned_txid + 1, self._planned_txid + count + 1)]
        self._planned_txid += count
        source = self._source
        assert isinstance(source, FileSpout)
        self.ledger.mirror(
            self.lead,
            [MirrorEntry(plan=plan, inputs={self._spout: source.inputs(plan.metadata[self._spout])}) for plan in plans],
        )
        attempts = [TransactionAttempt(plan.txid, 0) for plan in plans]
        self.ledger.begin_attempts(self.lead, [AttemptStart(attempt=attempt) for attempt in attempts])
        return [
            CommitItem(plan=plan, processed=self._processed(attempt))
            for plan, attempt in zip(plans, attempts, strict=True)
        ]

    def commit_alone(self, item: CommitItem) -> None:
        """Commit one batch. Raises WrongResult if it was not."""
        outcome = commit_batch(self.ledger, self.lead, item.plan, item.processed, self.topology)
        if not isinstance(outcome, Committed):
            raise WrongResult(f"{outcome}")
        self.last_txid = item.plan.txid

    def commit_together(self, items: Sequence[CommitItem]) -> None:
        """Commit batches in one commit run. Raises WrongResult if they were not."""
        ended = commit_run(self.ledger, self.lead, items, self.topology, time.monotonic)
        if not isinstance(ended, RunEnded) or not all(isinstance(one, Committed) for one in ended.outcomes):
            raise WrongResult(f"{ended}")
        self.last_txid = items[-1].plan.txid

    def continue_to(self, txid: int) -> None:
        """Commit batches in runs until `txid` is committed."""
        while self.last_txid < txid:
            self.commit_together(self.ready(min(RUN, txid - self.last_txid)))

    def _plan(self, txid: int) -> Plan:
        files = [
            {
                "path": file.path,
                "size": 0,
                "mtime_ns": file.mtime_ns,
                "inode": file.inode,
                "ctime_ns": file.ctime_ns,
                "sha256": EMPTY,
                "quotes": False,
                "nul": False,
                "hexadecimal": False,
                "header": None,
                "data": 0,
            }
            for _, file in zip(range(self.files_per_batch), self.files, strict=False)
        ]
        metadata = {"format": self._layout(), "schema": self._ddl(), "headers": [], "files": files}
        plan = Plan(
            topology=self.lead.topology,
            incarnation=self.lead.incarnation,
            txid=txid,
            previous_digest=self._digest,
            metadata={self._spout: metadata},
        )
        self._digest = plan.digest
        return plan

    def _layout(self) -> Mapping[str, Any]:
        assert isinstance(self._source, FileSpout)
        return self._source.layout()

    def _ddl(self) -> str:
        assert isinstance(self._source, FileSpout)
        return self._source.fields.ddl

    def _processed(self, attempt: TransactionAttempt) -> Processed:
        result = CommitterResult(
            committer=self._committer.name,
            arrived=self.keys,
            rows=self._rows,
            row_count=self.keys,
            bytes=self._rows.nbytes,
        )
        return Processed(
            attempt=attempt, code_hash=self.code_hash, read=self.keys, results=(result,), spans={"processing": 0.001}
        )


def _rows(keys: int) -> pa.Table:
    """Return result rows of a batch: one flight for each key."""
    return pa.table(
        {
            "carrier": pa.array([f"C{number}" for number in range(keys)], pa.string()),
            "origin": pa.array(["JFK"] * keys, pa.string()),
            "flights": pa.array([1] * keys, pa.int64()),
            "miles": pa.array([Decimal(100)] * keys, pa.decimal128(38, 0)),
        }
    )
