"""Compares a batch with its source: counts the files of its plan again, and compares with ledger and contributions."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from sqlalchemy import Connection, text

from txtopo.audit import audit_statements
from txtopo.audit.check_redos import Chains, batch_again
from txtopo.audit.check_rejects import DEAD_LETTERS, lines_by_path
from txtopo.audit.check_target import shown
from txtopo.audit.recount import (
    ChangedError,
    Recounted,
    Totals,
    UnknownSourceError,
    UnreadableError,
    recount,
    same_totals,
)
from txtopo.audit.recount_rejects import KeptReject
from txtopo.audit.verdicts import Findings
from txtopo.core.planned_fingerprint import planned_fingerprint
from txtopo.reports.cursors import stream
from txtopo.reports.formatting import counted
from txtopo.reports.stored_description import CommitterTables, listed
from txtopo.reports.stored_plans import is_idle

CONTENT, RECORDS, KEYS, FILES, LINES = "source.content", "source.records", "source.keys", "plan.files", "rejects.lines"
_PART_KEY = "$part"
REJECTS_AT_ONCE = 500
"""Number of rejected records in memory, at most 64 KiB each."""
KEYS_NAMED_MAX = 5
"""Number of different keys of a batch that are named; the rest is counted."""


class PlanError(Exception):
    """The file list of a plan cannot be read."""


@dataclass(slots=True, kw_only=True)
class SourceCheck:
    """Compares batches with their sources, one by one."""

    findings: Findings
    connection: Connection
    topology: str
    committers: Mapping[str, CommitterTables]
    described_code: bytes | None
    chains: Chains
    """A batch that another one replaced is not compared: its source may have changed since."""
    recounting: bool
    readable: set[str] = field(default_factory=set)
    """Committers whose contributions can be read."""
    _rejecting: frozenset[tuple[str, str]] = frozenset()
    """Spout and path of the batch's files for which rejected records are stored."""
    _dead: Sequence[Any] = ()
    """The batch's dead letters."""
    _counting: frozenset[str] | None = None
    """The committers that have counted the batch: one that was added later has not, and a backfill has only one."""

    def check(
        self,
        row: Any,
        plan: Any | None,
        files: Sequence[Any],
        kept: Sequence[Any],
        dead_letters: Sequence[Any] = (),
        counting: frozenset[str] | None = None,
    ) -> int | None:
        """Check one committed batch; returns the number of records in its files, None if they were not counted. `kept`:
        its rejected records by file. `counting`: the committers that have counted it; None: all.
        """
        self._dead, self._counting = dead_letters, counting
        self._rejecting = frozenset((one.spout, one.path) for one in kept)
        reason = self._left_out(row)
        if plan is None:
            if reason is None:  # The missing plan itself is a separate finding.
                self.findings.unknown(CONTENT, "its plan is missing, so nothing can be recounted", row.txid)
            return None
        try:
            metadata = self._metadata(plan)
        except PlanError as error:
            self.findings.wrong("plan.digest", str(error), row.txid)
            return None
        self._check_files(row.txid, batch_again(row) is not None, metadata, files)
        if reason is not None:
            self.findings.by_design(CONTENT, reason)
            return None
        return self._recount(row, metadata)

    def _left_out(self, row: Any) -> str | None:
        if not self.recounting:
            return "not recounted, as asked (--no-recount)"
        if row.state != "applied":
            return "nothing was counted of a quarantined batch"
        if self.chains.redone_as(row.txid if row.backfills is None else row.backfills) is not None:
            return "redone by a later batch, whose source counts"
        return None

    def _metadata(self, plan: Any) -> Mapping[str, Any]:
        """Return the metadata by spout, pieces joined, of the spouts that have a part in the batch."""
        try:
            stored = json.loads(bytes(plan.bytes))["metadata"]
            return {spout: self._whole(value) for spout, value in stored.items() if not is_idle(value)}
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            raise PlanError(f"its plan cannot be read: {error!r}") from error

    def partitions(self, plan: Any | None) -> frozenset[tuple[str, str]]:
        """Return spout and name of the named partitions of which a plan has a range, and the paths of such ranges of
        growing files; empty if it cannot be read.
        """
        try:
            metadata = {} if plan is None else self._metadata(plan)
            return frozenset(
                (spout, str(place))
                for spout, value in metadata.items()
                if isinstance(value, Mapping) and "names" in value
                for name, entry in zip(value["names"], value["partitions"], strict=True)
                if "range" in entry
                for place in (name, *_path_in(entry["range"]))
            )
        except (PlanError, KeyError, TypeError, ValueError):
            return frozenset()

    def _whole(self, metadata: Any) -> Any:
        if not isinstance(metadata, Mapping) or _PART_KEY not in metadata:
            return metadata
        digest = str(metadata[_PART_KEY])
        data = self.connection.execute(text(audit_statements.PART), {"digest": digest}).scalar_one_or_none()
        if data is None:
            raise PlanError(f"its file list, piece {digest[:16]}, no longer exists")
        found = hashlib.sha256(bytes(data)).hexdigest()
        if found != digest:
            raise PlanError(f"its file list has digest {found[:16]}, the plan says {digest[:16]}")
        return json.loads(bytes(data))

    def check_planned(self, plan: Any, files: Sequence[Any]) -> None:
        """Check one batch that is planned and not committed: the files stored as consumed by it are those of its
        plan.
        """
        try:
            metadata = self._metadata(plan)
            is_redo = json.loads(bytes(plan.bytes))["kind"] != "cut"
        except (PlanError, KeyError) as error:
            self.findings.wrong("plan.digest", f"planned, not committed: {error}", plan.txid)
            return
        self._check_files(plan.txid, is_redo, metadata, files)

    def _check_files(self, txid: int, is_redo: bool, metadata: Mapping[str, Any], files: Sequence[Any]) -> None:
        planned: set[tuple[str, str, str]] = set()
        others: set[str] = set()
        for spout, value in metadata.items():
            try:
                planned |= {(spout, str(file["path"]), planned_fingerprint(file).hex()) for file in value["files"]}
            except (KeyError, TypeError, ValueError):
                others.add(spout)
        if others:
            self.findings.by_design(FILES, "a source that is not made of files")
        # Only the stored inputs of the plan's other sources cannot be compared: an unknown spout is a difference.
        remembered = {(one.spout, one.path, bytes(one.fingerprint).hex()) for one in files if one.spout not in others}
        if not planned and not remembered and others:
            return
        other = sorted(planned ^ remembered)
        self.findings.equal(
            FILES,
            not other,
            f"its plan and what is remembered as consumed differ in {counted(len(other), 'file')}, first "
            f"{other[0][1] if other else ''}",
            txid,
        )
        marked = [one.path for one in files if one.redo != is_redo]
        self.findings.equal(
            FILES,
            not marked,
            f"remembered as input of {'a first reading' if is_redo else 'a redo'}: {counted(len(marked), 'file')}, "
            f"first {marked[0] if marked else ''}",
            txid,
        )

    def _recount(self, row: Any, metadata: Mapping[str, Any]) -> int | None:
        whole = Recounted()
        complete = True
        for spout, value in metadata.items():
            try:
                self._recount_spout(row, spout, value, whole)
            except ChangedError as error:
                self.findings.wrong(CONTENT, str(error), row.txid)
                complete = False
            except (UnreadableError, UnknownSourceError) as error:
                self.findings.unknown(CONTENT, f"spout {spout}: {error}" if len(metadata) > 1 else str(error), row.txid)
                complete = False
        self._check_idle(row, metadata)
        if not complete:
            return None
        first = f" (first {whole.first_rejected})" if whole.first_rejected else ""
        self.findings.equal(
            RECORDS,
            (whole.records, whole.judged.rejected) == (row.read, row.rejected),
            f"its files hold {whole.records} records of which {whole.judged.rejected} do not parse{first}; "
            f"the ledger says {row.read} read, {row.rejected} rejected",
            row.txid,
        )
        return whole.records

    def _recount_spout(self, row: Any, spout: str, metadata: Any, whole: Recounted) -> None:
        """Recount one spout's files; findings are reported, and counts added to `whole`."""
        direct = [one for one in self.committers.values() if one.way == "direct" and one.spout == spout]
        wanted = [one for one in direct if one.contributions and one.name in self.readable and self._has_counted(one)]
        dead, nowhere = lines_by_path(self._dead, spout, _paths_of(metadata))
        found, totals = recount(metadata, wanted, lambda path: self._kept(row.txid, spout, path), dead)
        unsure = found.judged.unsure.number + nowhere
        if nowhere:
            self.findings.unknown(
                DEAD_LETTERS,
                f"{counted(nowhere, 'dead letter')} without a line of its files: what would have been counted is not "
                f"known",
                row.txid,
            )
        named = sum(map(len, dead.values()))
        self.findings.equal(
            DEAD_LETTERS,
            found.dead == named,
            f"where its files have no record that parses: {counted(named - found.dead, 'dead letter')} of {named}",
            row.txid,
        )
        whole.records += found.records
        whole.judged.rejected += found.judged.rejected
        whole.first_rejected = whole.first_rejected or found.first_rejected
        self.findings.compared(CONTENT, found.files)
        self.findings.compared(LINES, found.judged.compared)
        for remark in found.judged.wrong.lines:
            self.findings.wrong(LINES, remark, row.txid)
        for remark in found.judged.unsure.lines:
            self.findings.unknown(LINES, f"{remark}; how such a value is spelled leaves room for doubt", row.txid)
        for committer, expected in zip(wanted, totals, strict=True):
            self._check_keys(row, committer, expected, unsure)
        for name in sorted({*self.committers} - {one.name for one in wanted}):
            self._tell_why_not(self.committers[name], row)

    def _has_counted(self, committer: CommitterTables) -> bool:
        return self._counting is None or committer.name in self._counting

    def _check_idle(self, row: Any, metadata: Mapping[str, Any]) -> None:
        """Check that a committer which reads a spout without a part in the batch contributed nothing to it."""
        for committer in self.committers.values():
            if (
                committer.way == "direct"
                and committer.spout not in metadata
                and committer.contributions
                and committer.name in self.readable
                and self._has_counted(committer)
            ):
                self._check_keys(row, committer, {}, 0)

    def _kept(self, txid: int, spout: str, path: str) -> Iterator[KeptReject]:
        """Return the stored rejected records of one file of a batch."""
        if (spout, path) not in self._rejecting:
            return
        values = {"topology": self.topology, "txid": txid, "spout": spout, "path": path}
        lines = stream(self.connection, audit_statements.REJECTED_LINES, rows_at_once=REJECTS_AT_ONCE, **values)
        for one in lines:
            yield KeptReject(
                line=one.line, unit=one.unit, reason=one.reason, raw=bytes(one.raw), raw_bytes=one.raw_bytes
            )

    def _tell_why_not(self, committer: CommitterTables, row: Any) -> None:
        if committer.way != "direct":
            self.findings.by_design(KEYS, f"bolts stand between the source and {committer.name}")
        elif not committer.contributions:
            self.findings.by_design(KEYS, f"{committer.name} keeps no contributions")
        elif (
            not self._has_counted(committer)
            and row.backfills is None
            and not self.chains.backfills(row.txid, committer.name)
        ):
            self.findings.by_design(
                KEYS,
                f"{committer.name} was added later, and has not counted all earlier batches "
                f"(txtopo backfill {self.topology} {committer.name})",
            )

    def _check_keys(self, row: Any, committer: CommitterTables, expected: Totals, unsure: int) -> None:
        stored = self._contributions(committer, row.txid)
        differing = same_totals(expected, stored)
        if differing and bytes(row.code_hash) != self.described_code:
            self.findings.unknown(
                KEYS,
                f"committer {committer.name}: {counted(len(differing), 'key')} not as in its files, but it was "
                f"counted by other code than the one described now",
                row.txid,
            )
            return
        if differing and unsure:
            self.findings.unknown(
                KEYS,
                f"committer {committer.name}: {counted(len(differing), 'key')} not as in its files, of which "
                f"{counted(unsure, 'record')} cannot be judged",
                row.txid,
            )
            return
        self.findings.compared(KEYS, len(expected))
        for key in differing[:KEYS_NAMED_MAX]:
            name = ", ".join(f"{column} {shown(value)}" for column, value in zip(committer.keys, key, strict=True))
            self.findings.wrong(
                KEYS,
                f"committer {committer.name}, key {name}: {_numbers(committer, expected.get(key))} in its files, "
                f"{_numbers(committer, stored.get(key))} contributed",
                row.txid,
            )
        if len(differing) > KEYS_NAMED_MAX:
            self.findings.wrong(
                KEYS,
                f"committer {committer.name}: and {counted(len(differing) - KEYS_NAMED_MAX, 'more key')}",
                row.txid,
            )

    def _contributions(self, committer: CommitterTables, txid: int) -> Totals:
        sql = (
            f"select {listed(committer.columns, 'c')} from {committer.contributions_sql} c"
            " where c.txid = %(txid)s and c.reverses is null"
        )
        width = len(committer.keys)
        return {tuple(map(_plain, row[:width])): list(row[width:]) for row in stream(self.connection, sql, txid=txid)}


def _path_in(planned: Any) -> Sequence[Any]:
    return [planned["path"]] if isinstance(planned, Mapping) and "path" in planned else []


def _paths_of(metadata: Any) -> frozenset[str]:
    """Return the files and partitions of a plan; empty if its source has none, which the recount reports."""
    if not isinstance(metadata, Mapping):
        return frozenset()
    files = metadata.get("files", [entry.get("range") for entry in metadata.get("partitions", ())])
    named = [file for file in files if isinstance(file, Mapping)] if isinstance(files, list) else []
    names = metadata.get("names", [])
    return frozenset([*(str(file["path"]) for file in named if "path" in file), *map(str, names)])


def _plain(value: Any) -> Any:
    return bytes(value) if isinstance(value, memoryview) else value


def _numbers(committer: CommitterTables, values: Sequence[Any] | None) -> str:
    if values is None:
        return "nothing"
    return ", ".join(f"{name} {value}" for name, value in zip(committer.numbers, values, strict=True))
