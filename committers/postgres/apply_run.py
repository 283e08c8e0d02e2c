"""Applies the result rows of several consecutive batches in one statement (R22): the target is written once, with
sums; contributions and counts are those of each batch.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cache
from itertools import chain
from typing import Any

from sqlalchemy import Connection

from txtopo.committers.postgres.apply_counts import array_literal, hash_of
from txtopo.committers.postgres.plain_targets import count_tables
from txtopo.committers.postgres.run_half import PreparedRun
from txtopo.committers.postgres.transactions import Held, joined
from txtopo.committers.protocol.count_tables import TableShape
from txtopo.committers.protocol.folds import key_of, merges, total
from txtopo.committers.sql_names import quoted
from txtopo.core.values import CommitterCount, CommitterResult
from txtopo.errors import BatchDataError, invariant


class CountRuns:
    """The RunHalf of a counting committer."""

    def __init__(self, committer: str, shape: TableShape) -> None:
        self._committer = committer
        self._shape = shape

    @property
    def tables(self) -> Sequence[Mapping[str, Any]]:
        """See RunHalf."""
        return list(count_tables(self._shape))

    def prepare_run(self, results: Mapping[int, CommitterResult], attempts: Mapping[int, int]) -> PreparedRun:
        """See RunHalf."""
        return PreparedRun(trips=1, values=run_values(self._shape, results))

    def apply_run(
        self,
        connection: Connection,
        topology: str,
        results: Mapping[int, CommitterResult],
        prepared: PreparedRun,
        held: Held | None,
    ) -> Mapping[int, CommitterCount]:
        """See RunHalf."""
        return apply_run(connection, self._shape, self._committer, topology, results, prepared.values, held)


def run_values(shape: TableShape, results: Mapping[int, CommitterResult]) -> dict[str, Any]:
    """Return the values of the statement for one committer: every row with the txid of its batch, ascending. Raises
    BatchDataError if a result has other columns.
    """
    names = [column.name for column in shape.columns]
    for result in results.values():
        if list(result.rows.column_names) != names:
            raise BatchDataError(
                f"committer {result.committer}: got columns {', '.join(result.rows.column_names)}, expected "
                f"{', '.join(names)}",
                component=result.committer,
            )
    txids = sorted(results)
    tables = [results[txid].rows for txid in txids]
    rows = chain.from_iterable([txid] * results[txid].rows.num_rows for txid in txids)
    columns = {
        f"c{index}": array_literal(chain.from_iterable(table.column(index).to_pylist() for table in tables))
        for index in range(len(names))
    }
    return {
        "txids": array_literal(txids),
        "arrived": array_literal(results[txid].arrived for txid in txids),
        "results": array_literal(results[txid].row_count for txid in txids),
        "rows": array_literal(rows),
        **columns,
    }


def apply_run(
    connection: Connection,
    shape: TableShape,
    committer: str,
    topology: str,
    results: Mapping[int, CommitterResult],
    values: Mapping[str, Any],
    held: Held | None,
) -> dict[int, CommitterCount]:
    """Apply the rows of all batches and record the count of each. `values` are those of `run_values`. `held` is a
    delayed statement, which is sent first, in the same round trip. Raises BatchDataError if a batch has a key twice.
    """
    sent = joined(held, run_statement(shape), {**values, "topology": topology, "committer": committer})
    rows = connection.exec_driver_sql(*sent).all()
    invariant(
        sorted(row[0] for row in rows) == sorted(results),
        f"committer {committer}: a commit run returned counts of other batches than it applied",
    )
    if any(row[4] for row in rows):
        reason = "a batch of the run has a key twice"
        raise BatchDataError(
            f"committer {committer}: its rows do not fit the table: {reason}",
            component=committer,
        )
    return {
        txid: CommitterCount(
            committer=committer,
            arrived=results[txid].arrived,
            counted=int(counted),
            results=results[txid].row_count,
            written=int(written),
            digest=int(digest),
        )
        for txid, counted, written, digest, _ in rows
    }


@cache
def run_statement(shape: TableShape) -> str:
    """Return the statement that applies a commit run to the tables of one committer.

    Rows r; target t, each key once, in the order in which single commits lock keys; contributions x; per batch the
    number of its keys that were written, m, and its numbers, n. Keys are compared as records (`key_of`).
    """
    names = ", ".join(quoted(column.name) for column in shape.columns)
    keys = ", ".join(quoted(column.name) for column in shape.keys)
    given = ", ".join(f"r.{quoted(column.name)}" for column in shape.keys)
    arrays = ", ".join(f"%(c{index})s::{column.type}[]" for index, column in enumerate(shape.columns))
    totals = ", ".join(total(column) for column in shape.numbers)
    weight = quoted(shape.numbers[0].name)
    if shape.contributions is None:
        taken = f"select r.txid, r.{weight}, {hash_of(shape.columns, 'r')}, {key_of(shape, 'r')} from r"
        twice = f"exists (select from r group by r.txid, {given} having count(*) > 1)"
    else:
        taken = (
            f"insert into {shape.contributions} as c (txid, reverses, {names}) select txid, null, {names} from r order "
            f"by r.txid, {given} returning c.txid, c.{weight}, {hash_of(shape.columns, 'c')}, {key_of(shape, 'c')}"
        )
        twice = "false"  # its unique index refuses a key that a batch has twice
    return f"""with r (txid, {names}) as materialized (
  select * from unnest(%(rows)s::bigint[], {arrays}) as u (txid, {names})),
t (key) as (insert into {shape.target} as t ({names}) select {given}, {totals} from r group by {given} order by {given}
  on conflict ({keys}) do update set {merges(shape)} returning {key_of(shape, "t")}),
x (txid, weight, hash, key) as ({taken}),
m (txid, written) as (select x.txid, count(*) from x join t on t.key = x.key group by x.txid),
n (txid, counted, digest) as (select txid, sum(weight), sum(hash) from x group by txid),
u (txid, arrived, results) as (
  select * from unnest(%(txids)s::bigint[], %(arrived)s::bigint[], %(results)s::bigint[]) as u (txid, arrived, results))
insert into txtopo.committer_count (topology, txid, committer, arrived, counted, results, written, ignored, reversed,
  digest)
select %(topology)s, u.txid, %(committer)s, u.arrived, coalesce(n.counted, 0), u.results, coalesce(m.written, 0), 0, 0,
  coalesce(n.digest, 0)
from u left join n on n.txid = u.txid left join m on m.txid = u.txid order by u.txid
returning txid, counted, written, digest, {twice}"""
