"""The plan of a replay: which committed batches a range contains, from which files, and what verifying or recomputing
them would do.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from sqlalchemy import Connection

from txtopo.errors import TxtopoError
from txtopo.reports.formatting import NOTHING, clean, count, instant, size, table
from txtopo.reports.interventions import read_redos
from txtopo.reports.list_batches import one
from txtopo.reports.model import BatchDetail, TopologyStatus
from txtopo.reports.read import read_batch
from txtopo.reports.stored_description import committers_of, own_committers_of
from txtopo.spouts.places.known_places import planned_place
from txtopo.spouts.places.object_place import SCHEME

FILES_TOLD_MAX = 3
"""Files of a batch that the text names; the JSON has all."""
HASHED_BYTES_MAX = 256 * 1024 * 1024
"""Bytes of files whose content is compared with the planned fingerprint. Of further files only the size is compared."""
TOLD_EVERY = 1000
"""Batches between two reports about the progress of reading the plan."""

_DESCRIPTION = """select description from txtopo.topology where topology = :topology"""


class NoSuchBatchesError(TxtopoError):
    """The range contains batches that are not in the ledger, or that cannot be recomputed."""

    exit_code = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplayBatch:
    """One batch of the range; it is in the ledger."""

    batch: BatchDetail
    counts_as: int | None
    """The txid whose rows the tables contain for it: its own, or that of the last applied redo. None: quarantined and
    not redone.
    """


@dataclass(frozen=True, slots=True, kw_only=True)
class Replay:
    """What a replay concerns."""

    topology: str
    batches: tuple[ReplayBatch, ...]
    obstacle: str | None
    """Why these batches cannot be recomputed, and what to do; None: they can."""

    notes: tuple[str, ...] = ()
    """Dead letters of these batches, and files that have changed since they were planned."""

    @property
    def txids(self) -> tuple[int, ...]:
        """The batches to verify or recompute: those that count, each once, in order."""
        return tuple(sorted({item.counts_as for item in self.batches if item.counts_as is not None}))

    @property
    def recomputed(self) -> tuple[int, ...]:
        """The batches that a recompute redoes: for a backfill the batch that it counted, whose redo replaces both."""
        backfills = {item.batch.txid: item.batch.backfills for item in self.batches}
        return tuple(sorted({backfills.get(txid) or txid for txid in self.txids}))

    @property
    def tables(self) -> Mapping[str, str]:
        """Committer -> target table."""
        return {name: table for item in self.batches for name, table in item.batch.targets.items()}


def plan_replay(
    connection: Connection,
    status: TopologyStatus,
    spans: Sequence[tuple[int | None, int | None]],
    say: Callable[[str], None] = lambda _: None,
) -> Replay:
    """Read every batch of the ranges. Raises NoSuchBatchesError if one is not committed or does not exist."""
    topology = status.topology
    txids = sorted({txid for span in spans for txid in _txids(span, status)})
    redos = read_redos(connection, topology)
    found = []
    for number, txid in enumerate(txids, 1):
        batch = read_batch(connection, topology, txid)
        if batch is None or batch.ledger is None:
            raise NoSuchBatchesError(f"the ledger has no batch {txid} of {topology}\n  next: txtopo audit {topology}")
        own = txid if batch.state == "committed" else None
        # The redo of a batch counts in the place of its backfills too (R32).
        found.append(ReplayBatch(batch=batch, counts_as=redos.applied_for(batch.backfills or txid) or own))
        if number % TOLD_EVERY == 0:
            say(f"read the plans of {count(number)} of {count(len(txids))} batches")
    return Replay(
        topology=topology,
        batches=tuple(found),
        obstacle=_quarantined(topology, found) or _keepless(connection, topology),
        notes=(*_dead_letters(found), *_changed_files(found)),
    )


def replay_text(replay: Replay) -> str:
    """Return the plan as text: one line for each batch, then what --verify and --recompute would do."""
    names = sorted(replay.tables)
    header = ["txid", "state", "committed at", "attempt", "read", "rejected", *names, "counts as", "files"]
    cells = [_cells(item, names) for item in replay.batches]
    number = "1 batch" if len(replay.txids) == 1 else f"{count(len(replay.txids))} batches"
    return "\n".join(
        [
            table(header, cells, left=("state", "committed at", "files")),
            "",
            *(f"{clean(name)} > {clean(replay.tables[name])}" for name in names),
            *(f"note: {clean(note)}" for note in replay.notes),
            (
                f"--verify     would read the files of {number} again with Spark and compare with what was committed; "
                f"it changes nothing"
            ),
            f"--recompute  {_recompute(replay, number)}",
        ]
    )


def _recompute(replay: Replay, number: str) -> str:
    if replay.obstacle is not None:
        return f"is not possible: {clean(replay.obstacle)}"
    return (
        f"would process {number} again and replace what {'it' if len(replay.txids) == 1 else 'they'} contributed, "
        f"under new txids after the last: add --execute --reason TEXT to do it"
    )


def _cells(item: ReplayBatch, names: Sequence[str]) -> list[str]:
    batch, ledger = item.batch, item.batch.ledger
    numbers = {one.committer: one for one in batch.committers}
    return [
        str(batch.txid),
        batch.state,
        instant(ledger.committed_at) if ledger else NOTHING,
        str(ledger.attempt) if ledger else NOTHING,
        count(ledger.read) if ledger and ledger.read is not None else NOTHING,
        count(ledger.rejected) if ledger and ledger.rejected is not None else NOTHING,
        *(
            f"{count(numbers[name].arrived)} > {count(numbers[name].written)}" if name in numbers else NOTHING
            for name in names
        ),
        NOTHING if item.counts_as is None else str(item.counts_as),
        ", ".join(_files(batch)) or NOTHING,
    ]


def _files(batch: BatchDetail) -> Iterator[str]:
    for file in batch.files[:FILES_TOLD_MAX]:
        yield f"{file.path}{'' if file.size is None else f' ({size(file.size)})'}"
    if len(batch.files) > FILES_TOLD_MAX:
        yield f"{count(len(batch.files) - FILES_TOLD_MAX)} more"


def _txids(span: tuple[int | None, int | None], status: TopologyStatus) -> range:
    topology, first = status.topology, span[0] or 1
    last = status.last_txid if span[1] is None else span[1]
    if not status.last_txid:
        raise NoSuchBatchesError(f"{topology} has no committed batches yet\n  next: txtopo status {topology}")
    if first < 1 or last > status.last_txid or first > status.last_txid:
        wrong = 0 if first < 1 else last if last > status.last_txid else first
        raise NoSuchBatchesError(
            f"batch {wrong} of {topology} is not committed: those from 1 to {status.last_txid} are; "
            f"failed batches come again with txtopo retry {topology}\n  next: txtopo batches {topology}"
        )
    return range(first, last + 1)


def _dead_letters(found: Sequence[ReplayBatch]) -> Iterator[str]:
    for item in found:
        if item.batch.ledger and (number := item.batch.ledger.dead_lettered):
            yield (
                f"batch {item.batch.txid} has {number} dead letter{'s' if number > 1 else ''}: if the bolt still "
                f"fails on them, a recompute fails too, unless it runs with --on-poison dead_letter_rows"
            )


def _changed_files(found: Sequence[ReplayBatch]) -> Iterator[str]:
    """Notes about files that have changed on this machine since they were planned. Content is compared up to a
    limit.
    """
    left = HASHED_BYTES_MAX
    for item in found:
        for file in item.batch.files:
            if file.size is None:
                continue
            try:
                if file.path.startswith(SCHEME):
                    same = planned_place({"path": file.path}).stat(file.path).etag == file.fingerprint
                else:
                    size_now = Path(file.path).stat().st_size
                    left -= size_now if size_now == file.size else 0
                    same = size_now == file.size and (left < 0 or _sha256(file.path) == file.fingerprint)
            except OSError as error:
                yield f"batch {item.batch.txid}: {file.path} cannot be read here: {error.strerror or error}"
                continue
            if not same:
                yield (
                    f"batch {item.batch.txid}: {file.path} has other content than was planned; a recompute reads "
                    f"its present content"
                )


def _sha256(path: str) -> str:
    with Path(path).open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _quarantined(topology: str, found: Sequence[ReplayBatch]) -> str | None:
    txids = [item.batch.txid for item in found if item.counts_as is None]
    if not txids:
        return None
    which = (
        f"batch {txids[0]} is"
        if len(txids) == 1
        else f"batches {', '.join(map(str, txids[:10]))}{' …' if len(txids) > 10 else ''} are"
    )
    return f"{which} quarantined and contributed nothing; `txtopo redrive {topology} {txids[0]}` redoes it"


def _keepless(connection: Connection, topology: str) -> str | None:
    """Why contributions cannot be replaced: the names of committers that keep none; None: they can."""
    row = one(connection, _DESCRIPTION, topology=topology)
    return why_keepless(topology, row["description"] if row else {})


def why_keepless(topology: str, description: Mapping[str, Any]) -> str | None:
    """The same for the stored description of a topology. Pure."""
    try:
        committers = committers_of(description)
        own = sorted(own_committers_of(description))
    except ValueError as error:
        return f"the description of {topology} in txtopo.topology cannot be read ({error})"
    if own:
        return f"committer {', '.join(own)} is custom code, so its batches cannot be reversed"
    passing = sorted(name for name, found in description["committers"].items() if "values" in found)
    if passing:
        return f"committer {', '.join(passing)} passes on its values, and what followed from them cannot be reversed"
    without = sorted(name for name, committer in committers.items() if not committer.contributions)
    if not without:
        return None
    return (
        f"committer {', '.join(without)} keeps no contributions (contributions=False), so its batches cannot be "
        f"reversed"
    )
