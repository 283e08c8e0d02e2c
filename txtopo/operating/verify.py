"""Verifies committed batches: processes their stored plans again and compares the results with what was committed.
Changes nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import psycopg2
from sqlalchemy import Connection, text
from sqlalchemy.exc import SQLAlchemyError

from txtopo.audit.audit_statements import SETTINGS
from txtopo.committers.postgres.apply_counts import ROWS_PER_STATEMENT, array_literal, hash_of
from txtopo.committers.postgres.copied_rows import sums_of
from txtopo.committers.postgres.sql_errors import one_line
from txtopo.committers.postgres.user_committers import RowSums
from txtopo.committers.protocol.count_tables import TableShape, shape_of
from txtopo.committers.protocol.row_tables import numbered, row_shape_of
from txtopo.committers.sql_names import quoted
from txtopo.core.values import CommitterResult, Failed, Processed, TransactionAttempt
from txtopo.errors import ConfigurationError
from txtopo.ports import Assignment, Executor
from txtopo.reports.formatting import clean, count
from txtopo.reports.model import BatchDetail, CommitterNumbers, LedgerSummary
from txtopo.reports.read import reading
from txtopo.topology.components import CommitterComponent, Topology
from txtopo.topology.phases import PROCESSING

KEYS_TOLD_MAX = 3
"""Number of differing keys of a committer that are named."""
Verdict = Literal["MATCH", "MISMATCH", "UNVERIFIED"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Verified:
    """The result of verifying one batch."""

    txid: int
    verdict: Verdict
    findings: tuple[str, ...] = ()
    """What differs, or why the batch could not be verified."""


@dataclass(frozen=True, slots=True)
class Sums:
    """Sums over the rows of one committer; they do not depend on the order of the rows."""

    rows: int
    weight: int
    digest: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Recount:
    """What is needed to process batches again."""

    dsn: str
    topology: Topology
    code_hash: bytes
    """Hash of the code that processes them now (R12, the code hash belongs to the attempt)."""
    executor: Executor
    """An executor that was started."""


def check_same_topology(topology: Topology, name: str, application: str) -> None:
    """Raise ConfigurationError if the application has another topology than the expected one."""
    if topology.name != name:
        raise ConfigurationError(
            f"{application} is the topology {topology.name}, not {name}: name the right one with --app"
        )


def exit_code_of(verified: Sequence[Verified]) -> int:
    """Return 0 if all batches match, 1 if one differs, 3 if one could not be verified or there was none, and none
    differs.
    """
    verdicts = {one.verdict for one in verified}
    if "MISMATCH" in verdicts:
        return 1
    return 0 if verdicts == {"MATCH"} else 3


def verify(recount: Recount, batches: Sequence[BatchDetail]) -> Iterator[Verified]:
    """Process each of these applied batches again, one after the other, and compare. Yields the results. Takes no lead
    and records no attempt.
    """
    for batch in batches:
        if batch.ledger is None or batch.state != "committed":
            yield Verified(txid=batch.txid, verdict="UNVERIFIED", findings=("it is not committed",))
            continue
        yield _verify(recount, batch, batch.ledger)


def verified_text(one: Verified) -> str:
    """Return one line for the batch, and one for each finding."""
    return "\n".join([f"batch {one.txid}  {one.verdict}", *(f"  {clean(finding)}" for finding in one.findings)])


def _verify(recount: Recount, batch: BatchDetail, ledger: LedgerSummary) -> Verified:
    problem = _unusable(recount.topology, batch)
    if problem is not None:
        return Verified(txid=batch.txid, verdict="UNVERIFIED", findings=(problem,))
    attempt = TransactionAttempt(batch.txid, ledger.attempt)
    # Records that were dead letters fail again, and are removed again.
    assignment = Assignment(attempt=attempt, metadata=batch.metadata, dead_letter_max=ledger.dead_lettered or 0)
    (outcome,) = recount.executor.process([assignment])
    if isinstance(outcome, Failed):
        failure = outcome.failure
        place = " at ".join(part for part in (failure.component, failure.position) if part)
        why = f"could not be processed again: {failure.message}{f' ({place})' if place else ''}"
        return Verified(txid=batch.txid, verdict="UNVERIFIED", findings=(why,))
    findings: list[str] = []
    try:
        with reading(recount.dsn) as connection:
            connection.execute(text(SETTINGS))
            # One by one: findings before an error count too.
            findings.extend(_differences(connection, recount.topology, batch, ledger, outcome))
    except _UncomparableError as error:
        if not findings:
            return Verified(txid=batch.txid, verdict="UNVERIFIED", findings=(str(error),))
        findings.append(str(error))  # a mismatch is more important than a part that could not be compared
    if findings and ledger.code_hash != recount.code_hash.hex():
        findings.append(
            f"it was committed by other code ({ledger.code_hash[:12]}) than runs now "
            f"({recount.code_hash.hex()[:12]}); the rows may differ for that"
        )
    return Verified(txid=batch.txid, verdict="MISMATCH" if findings else "MATCH", findings=tuple(findings))


class _UncomparableError(Exception):
    """The stored rows cannot be read, or the rows cannot be sent."""


def _unusable(topology: Topology, batch: BatchDetail) -> str | None:
    """Why this topology cannot process the stored plan; None: it can."""
    spouts, committers = {one.name for one in topology.spouts}, {one.name for one in topology.committers}
    recorded = {one.committer for one in batch.committers}
    if batch.plan_problem is not None:
        return f"its plan cannot be read: {batch.plan_problem}"
    if not batch.metadata:
        return "its plan is no longer in Postgres"
    if not set(batch.metadata) <= spouts:  # a spout that is missing had no input in the batch
        return (
            f"it was planned by {', '.join(sorted(batch.metadata))}; the topology now has {', '.join(sorted(spouts))}"
        )
    if not recorded <= committers:  # one that was added later has not counted it, and a backfill has only one
        return (
            f"it was committed by {', '.join(sorted(recorded))}; the topology now has {', '.join(sorted(committers))}"
        )
    return None


def _differences(
    connection: Connection, topology: Topology, batch: BatchDetail, ledger: LedgerSummary, outcome: Processed
) -> Iterator[str]:
    if outcome.read != ledger.read:
        yield f"the source has {count(outcome.read)} records, {count(ledger.read or 0)} were committed"
    if outcome.rejected != ledger.rejected:
        yield (
            f"{count(outcome.rejected)} records are rejected, {count(ledger.rejected or 0)} were when it was committed"
        )
    if outcome.dead_lettered != (ledger.dead_lettered or 0):
        yield (
            f"{count(outcome.dead_lettered)} records are dead letters, {count(ledger.dead_lettered or 0)} were "
            f"when it was committed"
        )
    recorded = {one.committer: one for one in batch.committers}
    results = {one.committer: one for one in outcome.results}
    later = []
    for component in topology.committers:
        name = component.name
        if name not in recorded:
            continue
        if topology.phases[name] != PROCESSING:
            later.append(name)
        else:
            compare = COMPARED[component.bolt.committer_kind]
            yield from compare(connection, component, results[name], recorded[name], batch.txid)
    if later:
        raise _UncomparableError(
            f"committer {', '.join(later)} is downstream of another committer: its rows are made in the commit phase "
            f"only"
        )


def _of_user_committer(
    connection: Connection,
    component: CommitterComponent,
    result: CommitterResult,
    recorded: CommitterNumbers,
    txid: int,
) -> Iterator[str]:
    """Differences in the rows between the halves of a custom committer. Only its code knows what it made of them."""
    who = f"committer {result.committer}"
    if result.arrived != recorded.arrived:
        yield f"{who}: {count(result.arrived)} tuples arrive, {count(recorded.arrived)} did when it was committed"
    sums, digest = RowSums(component.result_fields), 0
    for piece in sums.chunks(result.rows):
        digest += int(_run(connection, f"{sums.sql} select digest from n", piece)[0][0])
    if (result.row_count, digest) != (recorded.results, int(recorded.digest)):
        yield (
            f"{who}: {count(result.row_count)} rows (digest {digest}) now, {count(recorded.results)} (digest "
            f"{recorded.digest}) were committed"
        )


def _of_committer(
    connection: Connection,
    component: CommitterComponent,
    result: CommitterResult,
    recorded: CommitterNumbers,
    txid: int,
) -> Iterator[str]:
    """Differences in the rows and in the contributions of a counting committer."""
    who, shape = f"committer {result.committer}", shape_of(component)
    if result.arrived != recorded.arrived:
        yield f"{who}: {count(result.arrived)} tuples arrive, {count(recorded.arrived)} did when it was committed"
    now = _sums_of_rows(connection, shape, result.rows)
    then = Sums(recorded.results - recorded.ignored, recorded.counted, int(recorded.digest))
    kept = then if shape.contributions is None else _sums_of_contributions(connection, shape, txid)
    if kept != then:
        yield f"{who}: its contributions are not those that were committed; `txtopo audit` says more"
    if now not in (then, kept):
        yield f"{who}: {_told(now)} now, {_told(then)} were committed"
    if now != kept and shape.contributions is not None:
        yield from _differing_keys(connection, shape, result, txid)


def _of_rows(
    connection: Connection,
    component: CommitterComponent,
    result: CommitterResult,
    recorded: CommitterNumbers,
    txid: int,
) -> Iterator[str]:
    """Differences in the rows of a committer that stores rows: those made now, those in its table, those committed."""
    who, shape = f"committer {result.committer}", row_shape_of(component)
    if result.arrived != recorded.arrived:
        yield f"{who}: {count(result.arrived)} tuples arrive, {count(recorded.arrived)} did when it was committed"
    made, now = numbered(component, result), (0, 0)
    names = ", ".join(quoted(column.name) for column in shape.hashed)
    arrays = ", ".join(f"%(c{at})s::{column.type}[]" for at, column in enumerate(shape.hashed))
    sql = f"select {sums_of(shape, 'r')} from unnest({arrays}) as r ({names})"
    for start in range(0, made.num_rows, ROWS_PER_STATEMENT):
        chunk = made.slice(start, ROWS_PER_STATEMENT)
        values = {f"c{at}": array_literal(column.to_pylist()) for at, column in enumerate(chunk.columns)}
        number, digest = _run(connection, sql, values)[0]
        now = (now[0] + int(number), now[1] + int(digest))
    then = (recorded.results, int(recorded.digest))
    stored = f"select {sums_of(shape, 't')} from {shape.target} t where t.txid = %(txid)s"
    number, digest = _run(connection, stored, {"txid": txid})[0]
    if (int(number), int(digest)) != then:
        yield f"{who}: its rows in {shape.name} are not those that were committed; `txtopo audit` says more"
    if now != then:
        yield (f"{who}: {count(now[0])} rows (digest {now[1]}) now, {count(then[0])} (digest {then[1]}) were committed")


Compare = Callable[[Connection, CommitterComponent, CommitterResult, CommitterNumbers, int], Iterator[str]]
COMPARED: Mapping[str, Compare] = {
    "aggregate": _of_committer,
    "append": _of_rows,
    "code": _of_user_committer,
    "replace": _of_rows,
    "upsert": _of_rows,
}
"""Kind of committer -> what yields the differences between what it would commit now and what it committed."""


def _told(sums: Sums) -> str:
    return f"{count(sums.rows)} rows of {count(sums.weight)} tuples (digest {sums.digest})"


# ----------------------------------------------------------------------------------------------------------------------


def _sums_of_rows(connection: Connection, shape: TableShape, rows: Any) -> Sums:
    """Sums of the rows as the apply statement would compute them: Postgres hashes them, with the types of the
    tables.
    """
    found = Sums(0, 0, 0)
    for start in range(0, rows.num_rows, ROWS_PER_STATEMENT):
        chunk = rows.slice(start, ROWS_PER_STATEMENT)
        row = _run(connection, f"with {_recomputed(shape)} {_summed(shape, 'r')} from r", _arrays(shape, chunk))[0]
        found = Sums(found.rows + int(row[0]), found.weight + int(row[1]), found.digest + int(row[2]))
    return found


def _sums_of_contributions(connection: Connection, shape: TableShape, txid: int) -> Sums:
    sql = f"{_summed(shape, 'c')} from {shape.contributions} c where c.txid = %(txid)s and c.reverses is null"
    row = _run(connection, sql, {"txid": txid})[0]
    return Sums(int(row[0]), int(row[1]), int(row[2]))


def _differing_keys(connection: Connection, shape: TableShape, result: CommitterResult, txid: int) -> Iterator[str]:
    """Name the first keys whose rows differ, with both rows."""
    names = ", ".join(quoted(column.name) for column in shape.columns)
    keys = ", ".join(quoted(column.name) for column in shape.keys)
    cells = ", ".join(f"{quoted(column.name)}::text" for column in shape.columns)
    sql = f"""with {_recomputed(shape)},
c ({names}) as materialized (select {names} from {shape.contributions} where txid = %(txid)s and reverses is null),
d as (select 0 as side, * from (select * from c except all select * from r) a union all select 1, * from (select * from
  r except all select * from c) b)
select side, {cells} from d order by {keys}, side limit %(limit)s"""
    found = _run(connection, sql, {**_arrays(shape, result.rows), "txid": txid, "limit": 2 * KEYS_TOLD_MAX})
    by_key: dict[tuple[Any, ...], dict[int, tuple[Any, ...]]] = {}
    for side, *values in found:
        by_key.setdefault(tuple(values[: len(shape.keys)]), {})[side] = tuple(values[len(shape.keys) :])
    for key, sides in list(by_key.items())[:KEYS_TOLD_MAX]:
        named = ", ".join(f"{column.name} {_shown(value)}" for column, value in zip(shape.keys, key, strict=True))
        yield (
            f"committer {result.committer}, {named}: {_row(shape, sides.get(1))} now, {_row(shape, sides.get(0))} "
            f"committed"
        )


def _row(shape: TableShape, numbers: tuple[Any, ...] | None) -> str:
    if numbers is None:
        return "nothing"
    return ", ".join(f"{column.name} {value}" for column, value in zip(shape.numbers, numbers, strict=True))


def _shown(value: Any) -> str:
    return "NULL" if value is None else repr(value)


def _recomputed(shape: TableShape) -> str:
    names = ", ".join(quoted(column.name) for column in shape.columns)
    arrays = ", ".join(f"%(c{index})s::{column.type}[]" for index, column in enumerate(shape.columns))
    return f"r ({names}) as materialized (select * from unnest({arrays}) as u ({names}))"


def _summed(shape: TableShape, alias: str) -> str:
    weight = f"{alias}.{quoted(shape.numbers[0].name)}"
    return f"select count(*), coalesce(sum({weight}), 0), coalesce(sum({hash_of(shape.columns, alias)}), 0)"


def _arrays(shape: TableShape, rows: Any) -> dict[str, str]:
    return {
        f"c{index}": array_literal(rows.column(column.name).to_pylist()) for index, column in enumerate(shape.columns)
    }


def _run(connection: Connection, sql: str, values: Mapping[str, Any]) -> Sequence[Any]:
    try:
        return connection.exec_driver_sql(sql, dict(values)).all()
    except (SQLAlchemyError, psycopg2.Error, ValueError) as error:
        if isinstance(error, SQLAlchemyError) and getattr(error, "connection_invalidated", False):
            raise
        raise _UncomparableError(f"could not be compared: {one_line(error)}") from error
