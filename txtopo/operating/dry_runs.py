"""Previews of orders, from Postgres alone: the batches that an order concerns, or why there is nothing to do."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from sqlalchemy import Connection

from txtopo.errors import TxtopoError
from txtopo.operating.orders import NewOrder
from txtopo.reports import report_statements
from txtopo.reports.formatting import clean, clip, instant, place_of, size
from txtopo.reports.inputs import other_inputs
from txtopo.reports.interventions import read_redos, txids_of
from txtopo.reports.list_batches import Span, rows, tried_states
from txtopo.reports.model import AttemptRow, BatchState, SourceFile, TopologyStatus, how_to_run, told_advice
from txtopo.reports.read import read_batch

FILES_TOLD_MAX = 5
"""Files of a batch that the text names; the JSON has all."""
METADATA_CHARS_MAX = 500
"""Characters of the metadata of another source in the text; the JSON has all."""

_MIRRORED = """select max(txid) as txid from txtopo.plan where topology = :topology"""
_QUARANTINED = """
select txid from txtopo.ledger where topology = :topology and state = 'quarantined' and redo_of is null
   and backfills is null order by txid limit 100000
"""
_OPEN = """
select request_id as order_id, arguments from txtopo.request
 where topology = :topology and state = 'open' and kind = :kind order by request_id limit 1000
"""


PreviewKind = Literal["retry", "skip", "redrive", "replan"]


class NotOrderedError(TxtopoError):
    """The order is not possible for these batches. Nothing was changed."""

    exit_code = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class PreviewedBatch:
    """A batch that an order concerns, in its present state."""

    txid: int
    state: BatchState
    attempts: int
    """Number of attempts begun so far."""
    next_attempt: int | None
    """Id of the next attempt; None if this batch is not tried again."""
    files: tuple[SourceFile, ...]
    """Empty if the source has no files, or if no attempt has begun."""
    metadata: Mapping[str, Any]
    """spout -> metadata of the plan; a short form while the plan is only in ZooKeeper."""
    failure: AttemptRow | None
    """The last attempt that was not cancelled, if it failed."""
    reason: str | None
    """Reason of the quarantine."""


@dataclass(frozen=True, slots=True, kw_only=True)
class OrderPreview:
    """What an order would do."""

    topology: str
    kind: PreviewKind
    effect: str
    """What would be done, as a sentence."""
    nothing: str | None = None
    """Why there is nothing to do; None: there is something."""
    batches: tuple[PreviewedBatch, ...] = ()
    notes: tuple[str, ...] = ()
    tables: Mapping[str, str]
    """Committer -> target table that would be changed."""
    next_command: str | None = None

    @property
    def txids(self) -> tuple[int, ...]:
        """The txids of the batches."""
        return tuple(batch.txid for batch in self.batches)

    def order(self, reason: str | None) -> NewOrder:
        """Return the order to place. A `replan` names no batch: it drops whatever is not mirrored when it is carried
        out.
        """
        txids = () if self.kind == "replan" else self.txids
        return NewOrder(topology=self.topology, kind=self.kind, txids=txids, reason=reason)


def preview(connection: Connection, status: TopologyStatus, kind: PreviewKind, spans: Sequence[Span]) -> OrderPreview:
    """Return what an order of this kind would do. `spans` are its batches: any number for retry and redrive, one for
    skip, none for replan. Raises NotOrderedError if the order is not possible for them.
    """
    match kind:
        case "retry":
            return preview_retry(connection, status, spans)
        case "redrive":
            return preview_redrive(connection, status, spans)
        case "skip":
            match spans:
                case [(int(txid), int(last))] if txid == last:
                    return preview_skip(connection, status, txid)
            raise _refused("one batch is skipped at a time", f"txtopo skip {status.topology} TXID --reason '…'")
        case "replan":
            return preview_replan(connection, status)


def preview_retry(connection: Connection, status: TopologyStatus, spans: Sequence[Span]) -> OrderPreview:
    """Preview of trying failed, uncommitted batches again: named ones (a span of one), those in ranges, or all."""
    topology = status.topology
    states = _open_states(connection, status)
    skips, retries = (_open_orders(connection, topology, kind) for kind in ("skip", "retry"))
    failed = {txid for txid, state in states.items() if state == "failed"} | _halted_on(status, states)
    found: list[PreviewedBatch] = []
    wanted, notes = _picked(spans or [(None, None)], failed, "failed")
    named = {first for first, last in spans if first == last}
    for txid in wanted:
        batch = _uncommitted(connection, status, states, txid, "retry")
        if txid in skips:
            words = f"batch {txid} of {topology} is to be skipped by order {skips[txid]}, which is open"
            if txid in named:
                raise _refused(f"{words}: it cannot be tried again", _carries_out(status))
            notes.append(words)
        elif txid in failed:
            found.append(batch)
        elif txid not in retries:
            notes.append(f"batch {txid} has not failed: it is processed in order")
    asked = {txid: order for txid, order in retries.items() if not spans or _is_within(txid, spans)}
    return OrderPreview(
        topology=topology,
        kind="retry",
        effect=f"{_batches(len(found))} of {topology} would be tried again, with the stored plan",
        nothing=None if found else nothing_to_retry(status, notes, asked),
        batches=tuple(found),
        notes=tuple(notes),
        tables=_tables(connection, topology),
        next_command=None if found or status.is_led else how_to_run(status.application),
    )


def preview_skip(connection: Connection, status: TopologyStatus, txid: int) -> OrderPreview:
    """Preview of quarantining an uncommitted batch at its place in the order."""
    topology = status.topology
    states = _open_states(connection, status)
    detail = read_batch(connection, topology, txid)
    done = detail.ledger if detail and detail.state == "quarantined" else None
    batch = (
        _batch(connection, topology, txid, states) if done else _uncommitted(connection, status, states, txid, "skip")
    )
    before = [other for other, state in sorted(states.items()) if state == "failed" and other < txid]
    return OrderPreview(
        topology=topology,
        kind="skip",
        effect=f"batch {txid} of {topology} would be quarantined: a row in the ledger in its place in the order, "
        f"without any effect",
        nothing=f"batch {txid} of {topology} is quarantined already: {done.reason}; nothing to do" if done else None,
        batches=(batch,),
        notes=(
            *([f"failed before it, and next to commit: batch {', batch '.join(map(str, before))}"] if before else []),
            *_no_reason_to_skip(status, txid),
        ),
        tables={},
        next_command=f"txtopo redrive {topology} {done.redo_of or txid}" if done else None,
    )


def _no_reason_to_skip(status: TopologyStatus, txid: int) -> Sequence[str]:
    """Notes against skipping: the topology halted at this batch for a reason that is no batch's fault, and advised
    something else.
    """
    advice = told_advice(status.advice) if status.state == "HALTED" and status.halted_txid == txid else None
    if advice is None or "txtopo skip" in advice:
        return ()
    return (f"the topology halted at it and advised: {advice}; to skip it may lose a good batch",)


def preview_redrive(connection: Connection, status: TopologyStatus, spans: Sequence[Span]) -> OrderPreview:
    """Preview of redoing quarantined batches, named ones or those in ranges, as new txids at the end of the order."""
    topology = status.topology
    states, redos = _open_states(connection, status), read_redos(connection, topology)
    found: list[PreviewedBatch] = []
    quarantined = {row["txid"] for row in rows(connection, _QUARANTINED, topology=topology)}
    wanted, notes = _picked(spans, quarantined, "quarantined")
    for txid in wanted:
        batch = _quarantined(connection, status, states, txid)
        redone = redos.applied_for(txid)
        if redone is None and txid in redos.first:
            head = redos.first[txid]
            raise _refused(
                f"batch {txid} of {topology} is a redo of batch {head}: redrive that one",
                f"txtopo redrive {topology} {head}",
            )
        if redone is None:
            found.append(batch)
        else:
            notes.append(f"batch {txid} was redone as batch {redone}: it counts once, and is not redone again")
    return OrderPreview(
        topology=topology,
        kind="redrive",
        effect=f"{_batches(len(found))} of {topology} would be redone under a new txid at the end of the order; the "
        f"position of the source does not change",
        nothing=None if found else f"{'; '.join(notes)}. Nothing to do.",
        batches=tuple(found),
        notes=tuple(notes),
        tables=_tables(connection, topology),
        next_command=None if found else f"txtopo batches {topology}",
    )


def preview_replan(connection: Connection, status: TopologyStatus) -> OrderPreview:
    """Preview of dropping plans that were never mirrored, so that their files are planned again. Postgres knows them
    only from the last leader's report.
    """
    topology = status.topology
    states = _open_states(connection, status)
    mirrored = rows(connection, _MIRRORED, topology=topology)[0]["txid"] or 0
    first, last = max(mirrored, status.last_txid) + 1, max([status.planned_txid, *states])
    which = f"the plans of batches {first} to {last}" if last > first else f"the plan of batch {first}"
    known = (
        f"{which} of {topology} would be dropped"
        if last >= first
        else f"Postgres knows of no plan of {topology} that could be dropped; ZooKeeper may"
    )
    return OrderPreview(
        topology=topology,
        kind="replan",
        effect=f"{known}; their files would be planned again by the next run, with the schema declared then",
        batches=tuple(_batch(connection, topology, txid, states) for txid in sorted(states) if txid >= first),
        notes=(f"batches up to {mirrored} are mirrored in Postgres and keep their plans",)
        if mirrored > status.last_txid
        else (),
        tables={},
    )


def preview_text(preview: OrderPreview) -> str:
    """Return the preview as text: the effect, then each batch."""
    lines = [clean(preview.nothing or f"{preview.effect}.")]
    if preview.nothing is None:
        for batch in preview.batches:
            lines += ["", *(clean(line) for line in _batch_lines(batch))]
        lines += ["", *(f"  note      {clean(note)}" for note in preview.notes)] if preview.notes else []
        lines += (
            ["", *(f"  table     {clean(table)} ({clean(name)})" for name, table in preview.tables.items())]
            if preview.tables
            else []
        )
    if preview.next_command:
        lines.append(f"  next: {clean(preview.next_command)}")
    return "\n".join(lines)


def failure_words(failure: AttemptRow) -> str:
    """Return why an attempt failed, in one line: kind, component, position, message."""
    return f"{failure.kind} failure{place_of(failure.component, failure.position, failure.message)}: {failure.message}"


def _batch_lines(batch: PreviewedBatch) -> list[str]:
    lines = [f"batch {batch.txid}  {batch.state}"]
    if batch.failure is not None:
        lines.append(f"  failed    attempt {batch.failure.attempt}, {failure_words(batch.failure)}")
    if batch.reason:
        lines.append(f"  reason    {batch.reason}")
    again = f", the next is {batch.txid}:{batch.next_attempt}" if batch.next_attempt is not None else ""
    lines.append(f"  attempts  {batch.attempts} so far{again}")
    for file in batch.files[:FILES_TOLD_MAX]:
        lines.append(f"  file      {file.path}{'' if file.size is None else f'  {size(file.size)}'}")
    if len(batch.files) > FILES_TOLD_MAX:
        lines.append(f"            and {len(batch.files) - FILES_TOLD_MAX} more")
    lines += [f"  source    {spout} {clip(text, METADATA_CHARS_MAX)}" for spout, text in other_inputs(batch.metadata)]
    if not batch.files and not batch.metadata:
        lines.append("  file      not known yet: no attempt has begun, and the plan is only in ZooKeeper")
    return lines


# ----------------------------------------------------------------------------------------------------------------------


def _open_states(connection: Connection, status: TopologyStatus) -> dict[int, BatchState]:
    """txid -> state of each uncommitted batch that Postgres knows."""
    named = {"topology": status.topology, "last": status.last_txid}
    states: dict[int, BatchState] = {
        row["txid"]: "planned" for row in rows(connection, report_statements.OPEN_PLANS, **named)
    }
    return states | tried_states(connection, status.topology, status.last_txid)


def _picked(spans: Sequence[Span], fitting: set[int], word: str) -> tuple[list[int], list[str]]:
    """Return the batches named one by one, and those of the ranges that are in `fitting`; with a note for each range
    without any.
    """
    found: set[int] = set()
    notes: list[str] = []
    for first, last in spans:
        if first is not None and first == last:
            found.add(first)
            continue
        within = {txid for txid in fitting if _is_within(txid, [(first, last)])}
        if not within and (first, last) != (None, None):
            notes.append(f"no batch of {first or ''}..{last or ''} is {word}")
        found |= within
    return sorted(found), notes


def _is_within(txid: int, spans: Sequence[Span]) -> bool:
    return any((first or 1) <= txid and (last is None or txid <= last) for first, last in spans)


def _open_orders(connection: Connection, topology: str, kind: str) -> dict[int, int]:
    """txid -> the open order of that kind that names it."""
    found = rows(connection, _OPEN, topology=topology, kind=kind)
    return {txid: row["order_id"] for row in found for txid in txids_of(row["arguments"])}


def _carries_out(status: TopologyStatus) -> str:
    """The command after which an open order is carried out; with a leader, the one that shows its progress."""
    return f"txtopo status {status.topology}" if status.is_led else how_to_run(status.application)


def _halted_on(status: TopologyStatus, states: Mapping[int, BatchState]) -> set[int]:
    """The planned batch at which the topology halted: a halt that ends the process leaves no failed attempt."""
    txid = status.halted_txid
    if status.state != "HALTED" or txid is None:
        return set()
    return {txid} if status.last_txid < txid <= max([status.planned_txid, *states]) else set()


def _uncommitted(
    connection: Connection, status: TopologyStatus, states: Mapping[int, BatchState], txid: int, kind: str
) -> PreviewedBatch:
    """Return the batch. Raises NotOrderedError if it can be neither retried nor skipped."""
    topology = status.topology
    if txid <= status.last_txid:
        detail = read_batch(connection, topology, txid)
        if detail is not None and detail.state == "quarantined":
            raise _refused(f"batch {txid} of {topology} is quarantined", f"txtopo redrive {topology} {txid}")
        when = (
            f" at {instant(detail.ledger.committed_at)}, by attempt {detail.ledger.attempt}"
            if detail and detail.ledger
            else ""
        )
        also = (
            f"; `txtopo replay {topology} {txid} --recompute` would replace its contribution" if kind == "retry" else ""
        )
        raise _refused(
            f"batch {txid} of {topology} is committed{when}: there is nothing to {kind}{also}",
            f"txtopo show {topology} {txid}",
        )
    if txid not in states and txid > status.planned_txid:
        if txid == status.halted_txid:
            raise _refused(
                f"{topology} halted before it could plan batch {txid}: {status.reason}; there is no batch to {kind} "
                f"yet",
                f"{how_to_run(status.application)}, which plans it again",
            )
        raise _refused(
            f"{topology} has not planned batch {txid}: its batches go from 1 to {max([status.planned_txid, *states])}",
            f"txtopo batches {topology}",
        )
    return _batch(connection, topology, txid, states)


def _quarantined(
    connection: Connection, status: TopologyStatus, states: Mapping[int, BatchState], txid: int
) -> PreviewedBatch:
    topology = status.topology
    if txid > status.last_txid:
        batch = _uncommitted(connection, status, states, txid, "redrive")
        raise _refused(
            f"batch {txid} of {topology} is not quarantined, it is {batch.state}", f"txtopo retry {topology} {txid}"
        )
    batch = _batch(connection, topology, txid, states)
    if batch.state != "quarantined":
        raise _refused(
            f"batch {txid} of {topology} is not quarantined, it is {batch.state}",
            f"txtopo replay {topology} {txid} --recompute",
        )
    return batch


def _batch(connection: Connection, topology: str, txid: int, states: Mapping[int, BatchState]) -> PreviewedBatch:
    detail = read_batch(connection, topology, txid)
    state: BatchState = detail.state if detail is not None else states.get(txid, "planned")
    attempts = detail.attempts if detail is not None else ()
    last = attempts[-1] if attempts else None
    counted = [attempt for attempt in attempts if attempt.state != "cancelled"]
    return PreviewedBatch(
        txid=txid,
        state=state,
        attempts=len(attempts),
        next_attempt=None if state in ("committed", "quarantined") else last.attempt + 1 if last else 0,
        files=detail.files if detail is not None else (),
        metadata=detail.metadata if detail is not None else {},
        failure=counted[-1] if counted and counted[-1].state == "failed" else None,
        reason=detail.ledger.reason if detail is not None and detail.ledger else None,
    )


def nothing_to_retry(status: TopologyStatus, notes: Sequence[str], asked: Mapping[int, int]) -> str:
    """Return why there is nothing to retry. `asked` maps a txid to the open order to retry it, which a leader may have
    begun to carry out.
    """
    if asked:
        orders = [f"order {order} to retry batch {txid}" for txid, order in sorted(asked.items())]
        who = "its leader answers it" if status.is_led else "the next leader carries it out"
        words = f"{' and '.join(orders)} is open and not answered yet: {who}"
        return f"{'; '.join([*notes, words])}. Nothing to retry beyond that."
    if status.halted_txid is not None and status.state == "HALTED" and status.halted_txid > status.planned_txid:
        return (
            f"{status.topology} has no failed batch: it halted before batch {status.halted_txid} could be planned "
            f"({status.reason}). Running it plans that again."
        )
    return (
        f"{'; '.join(notes)}. Nothing to retry."
        if notes
        else f"{status.topology} has no failed batch. Nothing to retry."
    )


def _tables(connection: Connection, topology: str) -> dict[str, str]:
    return {row["committer"]: row["target"] for row in rows(connection, report_statements.TARGETS, topology=topology)}


def _batches(number: int) -> str:
    return "1 batch" if number == 1 else f"{number} batches"


def _refused(why: str, next_command: str) -> NotOrderedError:
    return NotOrderedError(f"{why}\n  next: {next_command}")
