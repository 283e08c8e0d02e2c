"""Compares a batch with its source: the files of its plan, counted again, against ledger and contributions."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from sqlalchemy import Connection, text

from txtopo.audit import audit_statements
from txtopo.audit.check_target import shown
from txtopo.audit.cursors import stream
from txtopo.audit.describing import CommitterTables, listed
from txtopo.audit.recount import (
    ChangedError,
    Recounted,
    Totals,
    UnknownSourceError,
    UnreadableError,
    recount,
    same_totals,
)
from txtopo.audit.verdicts import Findings

CONTENT, RECORDS, KEYS, FILES = "source.content", "source.records", "source.keys", "plan.files"
_PART_KEY = "$part"
KEYS_NAMED_MAX = 5
"""Keys of a batch that are named when they differ; the rest is counted."""


class PlanError(Exception):
    """A plan's file list that cannot be had."""


@dataclass(slots=True, kw_only=True)
class Source:
    """Compares batches with their sources, one by one."""

    findings: Findings
    connection: Connection
    committers: Mapping[str, CommitterTables]
    described_code: bytes | None
    redone: frozenset[int]
    """Txids whose batch a later one redid: their source may differ since."""
    recounting: bool
    readable: set[str] = field(default_factory=set)
    """Committers whose contributions can be read."""

    def check(self, row: Any, plan: Any | None, files: Sequence[Any]) -> int | None:
        """One committed batch; returns the records counted in its files, None where they were not."""
        if plan is None:
            self.findings.by_design(CONTENT, "the plan has expired, and with it what to recount")
            return None
        try:
            metadata = self._metadata(plan)
        except PlanError as error:
            self.findings.wrong("plan.digest", str(error), row.txid)
            return None
        self._check_files(row, metadata, files)
        reason = self._left_out(row)
        if reason is not None:
            self.findings.by_design(CONTENT, reason)
            return None
        return self._recount(row, metadata)

    def _left_out(self, row: Any) -> str | None:
        if not self.recounting:
            return "not recounted, as asked (--no-recount)"
        if row.state != "applied":
            return "nothing was counted of a quarantined batch"
        if row.txid in self.redone:
            return "redone by a later batch, whose source counts"
        return None

    def _metadata(self, plan: Any) -> Mapping[str, Any]:
        """By spout, pieces put back."""
        try:
            stored = json.loads(bytes(plan.bytes))["metadata"]
            return {spout: self._whole(value) for spout, value in stored.items()}
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            raise PlanError(f"its plan cannot be read: {error!r}") from error

    def _whole(self, metadata: Any) -> Any:
        if not isinstance(metadata, Mapping) or _PART_KEY not in metadata:
            return metadata
        digest = str(metadata[_PART_KEY])
        data = self.connection.execute(text(audit_statements.PART), {"digest": digest}).scalar_one_or_none()
        if data is None:
            raise PlanError(f"its file list, piece {digest[:16]}, is gone")
        found = hashlib.sha256(bytes(data)).hexdigest()
        if found != digest:
            raise PlanError(f"its file list has digest {found[:16]}, the plan says {digest[:16]}")
        return json.loads(bytes(data))

    def _check_files(self, row: Any, metadata: Mapping[str, Any], files: Sequence[Any]) -> None:
        try:
            planned = {
                (spout, str(file["path"]), str(file["sha256"]))
                for spout, value in metadata.items()
                for file in value["files"]
            }
        except (KeyError, TypeError):
            self.findings.by_design(FILES, "a source that is not made of files")
            return
        remembered = {(one.spout, one.path, bytes(one.fingerprint).hex()) for one in files}
        other = sorted(planned ^ remembered)
        self.findings.equal(
            FILES,
            not other,
            f"{len(other)} files differ between its plan and what is remembered as consumed, first {other[0][1] if other else ''}",
            row.txid,
        )

    def _recount(self, row: Any, metadata: Mapping[str, Any]) -> int | None:
        whole = Recounted()
        records: int | None = None
        try:
            for spout, value in metadata.items():
                direct = [one for one in self.committers.values() if one.way == "direct" and one.spout == spout]
                wanted = [one for one in direct if one.contributions and one.name in self.readable]
                found, totals = recount(value, wanted)
                whole.records += found.records
                whole.rejected += found.rejected
                whole.first_rejected = whole.first_rejected or found.first_rejected
                self.findings.compared(CONTENT, found.files)
                for committer, counted in zip(wanted, totals, strict=True):
                    self._check_keys(row, committer, counted)
                for name in sorted({*self.committers} - {one.name for one in wanted}):
                    self._tell_why_not(self.committers[name])
            records = whole.records
        except ChangedError as error:
            self.findings.wrong(CONTENT, str(error), row.txid)
            return None
        except (UnreadableError, UnknownSourceError) as error:
            self.findings.unknown(CONTENT, str(error), row.txid)
            return None
        first = f" (first {whole.first_rejected})" if whole.first_rejected else ""
        self.findings.equal(
            RECORDS,
            (whole.records, whole.rejected) == (row.read, row.rejected),
            f"its files hold {whole.records} records of which {whole.rejected} do not parse{first}; "
            f"the ledger says {row.read} read, {row.rejected} rejected",
            row.txid,
        )
        return records

    def _tell_why_not(self, committer: CommitterTables) -> None:
        if committer.way != "direct":
            self.findings.by_design(KEYS, f"bolts stand between the source and {committer.name}")
        elif not committer.contributions:
            self.findings.by_design(KEYS, f"{committer.name} keeps no contributions")

    def _check_keys(self, row: Any, committer: CommitterTables, counted: Totals) -> None:
        stored = self._contributions(committer, row.txid)
        differing = same_totals(counted, stored)
        if differing and bytes(row.code_hash) != self.described_code:
            self.findings.unknown(
                KEYS,
                f"committer {committer.name}: {len(differing)} keys differ from its files, but it was counted by other code than the one described now",
                row.txid,
            )
            return
        self.findings.compared(KEYS, len(counted))
        for key in differing[:KEYS_NAMED_MAX]:
            name = ", ".join(f"{column} {shown(value)}" for column, value in zip(committer.keys, key, strict=True))
            self.findings.wrong(
                KEYS,
                f"committer {committer.name}, key {name}: {_numbers(committer, counted.get(key))} in its files, "
                f"{_numbers(committer, stored.get(key))} contributed",
                row.txid,
            )
        if len(differing) > KEYS_NAMED_MAX:
            self.findings.wrong(
                KEYS, f"committer {committer.name}: {len(differing) - KEYS_NAMED_MAX} more keys differ", row.txid
            )

    def _contributions(self, committer: CommitterTables, txid: int) -> Totals:
        sql = (
            f"select {listed(committer.columns, 'c')} from {committer.contributions_sql} c"
            " where c.txid = %(txid)s and c.reverses is null"
        )
        width = len(committer.keys)
        return {tuple(map(_plain, row[:width])): list(row[width:]) for row in stream(self.connection, sql, txid=txid)}


def _plain(value: Any) -> Any:
    return bytes(value) if isinstance(value, memoryview) else value


def _numbers(committer: CommitterTables, values: Sequence[Any] | None) -> str:
    if values is None:
        return "nothing"
    return ", ".join(f"{name} {value}" for name, value in zip(committer.numbers, values, strict=True))
