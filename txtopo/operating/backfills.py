"""The preview of a backfill, from Postgres alone, and its progress."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass

from sqlalchemy import Connection

from txtopo.operating.dry_runs import NotOrderedError
from txtopo.reports import report_statements
from txtopo.reports.formatting import clean, counted
from txtopo.reports.list_batches import rows
from txtopo.reports.model import TopologyStatus

TOLD_EVERY_S = 2.0
"""Seconds between two reports of the progress."""

_LACKING = """
select count(*) as number, min(l.txid) as first, max(l.txid) as last,
       count(*) filter (where not exists (select from txtopo.plan p where (p.topology, p.txid, p.cut, p.digest)
         = (l.topology, l.txid, l.cut, l.digest))) as unplanned
  from txtopo.ledger l
 where l.topology = :topology and l.txid > 0 and l.state = 'applied' and l.backfills is null
   and not exists (select from txtopo.committer_count c
     where (c.topology, c.txid, c.committer) = (l.topology, l.txid, :committer))
   and not exists (select from txtopo.ledger r
     where r.topology = l.topology and r.redo_of = l.txid and r.redo_of is not null and r.state = 'applied')
   and not exists (select from txtopo.ledger b where b.topology = l.topology and b.backfills = l.txid
     and b.backfills is not null and b.committer = :committer and b.state = 'applied')
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class BackfillPreview:
    """What a backfill would do."""

    topology: str
    committer: str
    table: str | None
    """Its target; None: no leader has prepared it yet."""
    lacking: int
    """Number of batches in effect that it has not counted."""
    first: int | None
    """The lowest of them."""
    last: int | None
    """The highest of them."""
    unplanned: int
    """Those of them whose plans retention has removed: they cannot be counted."""
    filled: int
    """Number of batches that backfills have counted already."""


def preview_backfill(connection: Connection, status: TopologyStatus, committer: str) -> BackfillPreview:
    """Return what a backfill of this committer would do. Raises NotOrderedError if a leader is alive and has no such
    committer.
    """
    named = {"topology": status.topology, "committer": committer}
    targets = {row["committer"]: row["target"] for row in rows(connection, report_statements.TARGETS, **named)}
    if status.is_led and committer not in targets:
        raise NotOrderedError(
            f"{status.topology} has no committer {committer} that keeps a table; it has {', '.join(sorted(targets))}\n"
            f"  next: start `txtopo run` with the committer, then txtopo backfill {status.topology} {committer}"
        )
    (found,), (filled,) = rows(connection, _LACKING, **named), rows(connection, report_statements.FILLED, **named)
    return BackfillPreview(
        topology=status.topology,
        committer=committer,
        table=targets.get(committer),
        lacking=found["number"],
        first=found["first"],
        last=found["last"],
        unplanned=found["unplanned"],
        filled=filled["number"],
    )


def backfill_text(preview: BackfillPreview) -> str:
    """Return the preview as text."""
    one, table = preview, "" if preview.table is None else f" (table {preview.table})"
    if not one.lacking:
        return clean(f"committer {one.committer} of {one.topology} has counted every batch; nothing to do")
    number = f"{counted(one.lacking, 'batch')} of {one.topology}, {one.first} to {one.last}, would be counted"
    lines = [f"{number} into {one.committer}{table}, under new txids at the end of the order, next to new input."]
    if one.filled:
        lines.append(f"  counted   {counted(one.filled, 'batch')} already, by earlier backfills")
    if one.unplanned:
        lines.append(f"  not       {counted(one.unplanned, 'batch')} whose plans retention has removed")
    lines.append("  note      a batch whose input has changed or no longer exists is named, and not counted")
    return "\n".join(clean(line) for line in lines)


class BackfillFollower:
    """Reports how many batches a backfill has counted."""

    def __init__(self, topology: str, committer: str, say: Callable[[str], None]) -> None:
        self._named = {"topology": topology, "committer": committer}
        self._say = say
        self._told: int | None = None
        self._told_at = 0.0

    def __call__(self, connection: Connection) -> None:
        """Report the number if it has changed, not too often."""
        if self._told is not None and time.monotonic() - self._told_at < TOLD_EVERY_S:
            return
        (filled,) = rows(connection, report_statements.FILLED, **self._named)
        if self._told is not None and filled["number"] != self._told:
            self._say(f"{filled['number']} batches are counted into {self._named['committer']} by backfills")
        self._told, self._told_at = filled["number"], time.monotonic()
