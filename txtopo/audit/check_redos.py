"""Finds the batches in effect: follows the redos of every batch, finds those whose records are counted nowhere or
twice, and checks what a redo subtracted.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from typing import Any

from txtopo.audit.check_contributions import Contributed
from txtopo.audit.verdicts import Findings
from txtopo.reports.formatting import batches_named, counted
from txtopo.reports.stored_description import CommitterTables

HOLES, CHAIN, REVERSED, EMPTY = "source.holes", "redo.chain", "redo.reversed", "quarantine.empty"
NOBODY = Contributed()


class Chains:
    """All quarantined batches and all redos of one topology, also outside of the audited range.

    A chain is a batch that was planned from the source, its redos, and theirs. Exactly one of them must be in effect:
    applied, and redone by no applied batch.
    """

    def __init__(self, rows: Iterable[Any], filled: Iterable[Any] = ()) -> None:
        """Build the chains. `rows`: txid, redo_of and state of every ledger row that is quarantined or a redo.
        `filled`: backfills, txid and committer of every count of a backfill.
        """
        self._states: dict[int, str] = {}
        self._redo_of: dict[int, int] = {}
        self._redos: dict[int, list[int]] = defaultdict(list)
        for row in rows:
            self._states[row.txid] = row.state
            if row.redo_of is not None and 0 < row.redo_of < row.txid:
                self._redo_of[row.txid] = row.redo_of
                self._redos[row.redo_of].append(row.txid)
        self._effective = {root: self._in_effect(root) for root in self._roots()}
        self._holders: dict[tuple[int, str], list[int]] = defaultdict(list)
        for one in filled:
            self._holders[one.backfills, one.committer].append(one.txid)

    @property
    def redone(self) -> frozenset[int]:
        """Return the txids that another batch redoes, or was to redo."""
        return frozenset(self._redos)

    @property
    def holes(self) -> tuple[int, ...]:
        """Return the txids of batches planned from the source without any batch in effect."""
        return tuple(sorted(root for root, effective in self._effective.items() if not effective))

    def redone_before(self, first: int, last: int) -> list[int]:
        """Return the txids below a range that a batch of the range redoes."""
        redos = self._redo_of.items()
        redone = {redo_of for txid, redo_of in redos if first <= txid <= last}
        held = {holder for (txid, _), holders in self._holders.items() if txid in redone for holder in holders}
        return sorted(txid for txid in redone | held if txid < first)

    def backfills(self, txid: int, committer: str) -> list[int]:
        """Return the backfills that have counted a batch into a committer; at most one, if nothing is wrong (R32)."""
        return self._holders.get((txid, committer), [])

    def holder(self, txid: int | None, committer: str) -> int | None:
        """Return the batch that holds what batch `txid` contributed to a committer: a backfill, or itself."""
        return next(iter(self.backfills(txid, committer)), txid) if txid is not None else None

    def is_applied(self, txid: int | None) -> bool:
        """Return True if this txid of the ledger is applied."""
        return txid is not None and self._states.get(txid, "applied") == "applied"

    def applied_redos(self, txid: int) -> list[int]:
        """Return the applied batches that redo this one."""
        return [redo for redo in self._redos.get(txid, ()) if self._states[redo] == "applied"]

    def redone_as(self, txid: int) -> int | None:
        """Return the batch in effect instead of it; None: itself, or none at all."""
        effective = self._effective.get(self._root(txid), [])
        return effective[-1] if effective and txid not in effective else None

    def check(self, findings: Findings, first: int, last: int) -> None:
        """Check every chain whose planned batch is in the range: one of it is in effect."""
        chains = [root for root in self._effective if first <= root <= last]
        redos = sum(first <= txid <= last for txid in self._redo_of)
        findings.compared(HOLES, max(0, last - first + 1 - redos - len(chains)))
        for root in sorted(chains):
            effective = self._effective[root]
            if not effective:
                findings.equal(
                    HOLES, False, "it is quarantined and no applied batch redoes it: its records are in no table", root
                )
                continue
            named = ", ".join(map(str, effective))
            findings.equal(
                HOLES,
                len(effective) == 1,
                f"its records count {len(effective)} times: batches {named} are in effect",
                root,
                *effective,
            )

    def _roots(self) -> set[int]:
        return {self._root(txid) for txid in (*self._states, *self._redos)}

    def _root(self, txid: int) -> int:
        while txid in self._redo_of:
            txid = self._redo_of[txid]
        return txid

    def _in_effect(self, root: int) -> list[int]:
        """Return the batches of a chain that are applied and not redone by an applied one. A planned batch that is not
        quarantined is applied.
        """
        found, waiting = [], [root]
        while waiting:
            txid = waiting.pop()
            waiting += self._redos.get(txid, ())
            if self._states.get(txid, "applied") == "applied" and not self.applied_redos(txid):
                found.append(txid)
        return sorted(found)


def check_redo(findings: Findings, row: Any, chains: Chains) -> None:
    """Check what a redo's ledger row says about the batch that it redoes."""
    if row.redo_of is None:
        return
    findings.equal(
        CHAIN, 0 < row.redo_of < row.txid, f"it redoes batch {row.redo_of}, which is not before it", row.txid
    )
    applied = chains.applied_redos(row.redo_of)
    findings.equal(
        CHAIN,
        len(applied) <= 1,
        f"batches {', '.join(map(str, applied))} are all applied as redos of batch {row.redo_of}",
        row.txid,
    )


def check_backfill(findings: Findings, row: Any, counts: Sequence[Any], chains: Chains) -> None:
    """Check what a backfill has counted: one committer and its parts, from an applied batch, and nobody else has
    counted that batch into them.
    """
    if row.backfills is None or row.state != "applied":
        return
    findings.equal(
        CHAIN,
        0 < row.backfills < row.txid and chains.is_applied(row.backfills),
        f"it backfills batch {row.backfills}, which is not an applied batch before it",
        row.txid,
    )
    for one in counts:
        whose = one.committer == row.committer or one.committer.startswith(f"{row.committer}_")
        findings.equal(
            CHAIN, whose, f"it backfills committer {row.committer}, but has counted into {one.committer}", row.txid
        )
        also = chains.backfills(row.backfills, one.committer)
        findings.equal(
            CHAIN,
            len(also) == 1,
            f"batches {', '.join(map(str, also))} have all counted batch {row.backfills} into {one.committer}",
            row.txid,
        )


def check_not_backfilled(findings: Findings, row: Any, counts: Sequence[Any], chains: Chains) -> None:
    """Check that no backfill has counted a batch into a committer that has counted it itself."""
    for one in counts if row.backfills is None else ():
        also = chains.backfills(row.txid, one.committer)
        findings.equal(
            CHAIN,
            not also,
            f"committer {one.committer} has counted it, and again as batch {', '.join(map(str, also))}",
            row.txid,
        )


def batch_again(row: Any) -> int | None:
    """Return the batch whose input this one reads again: that it redoes or backfills; None: it read new input."""
    found: int | None = row.redo_of if row.redo_of is not None else row.backfills
    return found


def check_same_files(findings: Findings, row: Any, files: Sequence[Any], redone: Sequence[Any]) -> None:
    """Check that a redo reads the files of the batch that it redoes, with their content at that time."""
    again = batch_again(row)
    if again is None:
        return
    other = sorted({(one.spout, one.path) for one in files} ^ {(one.spout, one.path) for one in redone})
    findings.equal(
        CHAIN,
        not other,
        f"it and batch {again}, which it {'redoes' if row.redo_of is not None else 'backfills'}, differ in "
        f"{counted(len(other), 'file')}, first "
        f"{other[0][1] if other else ''}",
        row.txid,
    )


def check_taken_back(
    findings: Findings,
    row: Any,
    counts: Any,
    committer: CommitterTables,
    own: Contributed,
    redone: Contributed | None,
    holder: int | None,
) -> None:
    """Check one committer's reversed rows of one batch: each row of the redone batch, negated, and none in a batch that
    redoes nothing. `holder` is the batch that holds what the redone one contributed to this committer (R32).

    `redone` is None if the redone batch is quarantined or there is none: then there is nothing to reverse.
    """
    who, txid = f"committer {committer.name}", row.txid
    due = redone or NOBODY
    findings.equal(
        REVERSED,
        own.reversed_rows == counts.reversed == due.rows and own.reversed_of <= {holder},
        f"{who} reverses {counted(own.reversed_rows, 'contribution')} of {_batches(own.reversed_of)}, its batch "
        f"recorded {counts.reversed}, "
        f"{'batch ' + str(row.redo_of) if row.redo_of else 'a batch that redoes nothing'} has {due.rows} to reverse",
        txid,
    )
    findings.equal(
        REVERSED,
        (own.reversed_weight, own.reversed_digest) == (due.weight, due.digest),
        f"{who}: what it reverses is not what batch {row.redo_of} contributed "
        f"(weight {own.reversed_weight}, digest {own.reversed_digest}; contributed were {due.weight}, {due.digest})",
        txid,
    )


def check_quarantined(findings: Findings, row: Any, counts: Sequence[Any], edges: Sequence[Any], rejected: int) -> None:
    """Check that a quarantined batch has a reason and no effect. Contributions to it belong to no batch, and are
    reported as such.
    """
    if row.state != "quarantined":
        return
    findings.equal(EMPTY, bool(row.reason), "it is quarantined without a reason", row.txid)
    left = [
        counted(number, what)
        for number, what in (
            (len(counts), "committer's count"),
            (len(edges), "edge's count"),
            (rejected, "rejected record"),
        )
        if number
    ]
    findings.equal(
        EMPTY, not left and not row.rejected, f"it is quarantined, but has {', '.join(left) or 'numbers'}", row.txid
    )


def _batches(txids: Iterable[int]) -> str:
    return batches_named(sorted(txids)) if txids else "no batch"
