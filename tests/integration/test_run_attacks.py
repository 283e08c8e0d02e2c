"""Attacks on the ledger that commit runs make possible: several batches in one database transaction. Each ends with
COMMIT, and the server refuses it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import closing
from typing import Any

import psycopg2
import pytest

from tests.integration.test_ledger_attacks import CODE, DIGESTS, GOOD, INCARNATION, Attacker, attacker
from tests.kit.fix_postgres import fresh_database
from txtopo.local.postgres import LocalPostgres

__all__ = ["attacker"]
NOT_PLANNED = 9
"""Batches 5 to 8 are mirrored, and each has begun an attempt."""
RUN = (5, 6, 7)
CONTRIBUTIONS = """
create table public.counts (k text, n bigint not null, unique nulls not distinct (k));
create table public.counts_contribution (txid bigint not null, reverses bigint, k text, n bigint not null,
  unique nulls not distinct (txid, reverses, k));
create trigger contributes after insert on public.counts_contribution referencing new table as new_rows
  for each statement execute function txtopo.contributes();
insert into txtopo.target values ('public.counts', 't', 'c');
"""


class Runner(Attacker):
    """Commits several batches at once, and says false things about them."""

    def __init__(self, dsn: str) -> None:
        super().__init__(dsn)
        self.beside = psycopg2.connect(dsn)
        for n in range(5, NOT_PLANNED):
            self.mirror(n)
            self.begin(n, 0)
        self.execute(CONTRIBUTIONS)
        self.connection.commit()

    def open(self, *ns: int) -> Any:
        """The ledger rows of a run, each with its count."""
        for n in ns:
            self.open_batch(n)
        for n in ns:
            self.count(n)

    def count(self, n: int, *numbers: int) -> Any:
        """The numbers of one committer."""
        self.execute(
            "insert into txtopo.committer_count values ('t', %s, 'c', %s, %s, %s, %s, %s, 0, 77)",
            (n, *(numbers or GOOD)),
        )

    def final(self, n: int, rejected: int = 0) -> Any:
        """One row."""
        self.execute(
            "update txtopo.ledger set state = 'applied', read = 10, rejected = %s, dead_lettered = 0, committers = 1 "
            "where topology = 't' and txid = %s",
            (rejected, n),
        )

    def fence(self, n: int, before: int | None = None) -> Any:
        """Move it to this batch."""
        last = n - 1 if before is None else before
        self.execute("update txtopo.fence set last_txid = %s where topology = 't' and last_txid = %s", (n, last))

    def close(self, *ns: int) -> Any:
        """Each row final and the fence behind it."""
        for n in ns:
            self.final(n)
            self.fence(n)

    def finish(self, *ns: int, attempt: int = 0) -> Any:
        """As a driver does it."""
        same: Callable[[int], list[int]] = lambda value: [value] * len(ns)  # noqa: E731
        self.execute(
            "select txtopo.finish_run('t', %s::bigint[], %s::integer[], %s::bigint[], %s::bigint[], %s::bigint[], "
            "%s::jsonb[], 1)",
            (list(ns), same(attempt), same(10), same(0), same(0), ["{}"] * len(ns)),
        )

    def set_based(self) -> Any:
        """One UPDATE for all rows, in an order that a join decides."""
        self.open(*RUN)
        self.execute(
            "update txtopo.ledger l set state = 'applied', read = 10, rejected = 0, dead_lettered = 0, committers = 1 "
            "from (values (7), (5), (6)) u (txid) where l.topology = 't' and l.txid = u.txid"
        )
        for n in RUN:
            self.fence(n)

    def from_beside(self, sql: str, values: Any = None) -> Any:
        """A second driver with its own database transaction."""
        with self.beside.cursor() as cursor:
            cursor.execute("set local lock_timeout = '100ms'")
            cursor.execute(sql, values)

    def row_from_beside(self) -> Any:
        """The next ledger row, without the lock."""
        self.from_beside(
            "insert into txtopo.ledger (topology, txid, prev_txid, prev_digest, digest, incarnation, epoch, attempt, "
            "code_hash, state) values ('t', 6, 5, %s, %s, %s, 1, 0, %s, 'applying')",
            (DIGESTS[5], DIGESTS[6], INCARNATION, CODE),
        )

    def quarantined(self, n: int) -> Any:
        """Inserted as final."""
        self.execute(
            "insert into txtopo.ledger (topology, txid, prev_txid, prev_digest, digest, incarnation, epoch, attempt, "
            "code_hash, state, reason, committers) values ('t', %s, %s, %s, %s, %s, 1, 0, %s, 'quarantined', 'x', 0)",
            (n, n - 1, DIGESTS[n - 1], DIGESTS[n], INCARNATION, CODE),
        )

    def contribute(self, n: int) -> Any:
        """To the target."""
        self.execute("insert into public.counts_contribution values (%s, null, 'a', 1)", (n,))

    def checked_early(self) -> Any:
        """One whole batch, with its deferred checks made."""
        self.open(5)
        self.close(5)
        self.execute("set constraints all immediate")


Attack = Callable[[Runner], Any]
TURN, SEALED, STEP, COMPLETE = "finished out of turn", "sealed before", "may not go from", "COMMIT before batch"
ATTACKS: dict[str, tuple[str, str, Attack]] = {
    "out of order, row by row": (
        "P0001",
        SEALED,
        lambda w: (w.open(*RUN), w.final(7), w.final(5), w.final(6), [w.fence(n) for n in RUN]),
    ),
    "out of order, by finish_run": ("P0001", SEALED, lambda w: (w.open(*RUN), w.finish(6, 5, 7))),
    "out of order, one UPDATE": ("P0001", "sealed before|finished out of turn", Runner.set_based),
    "in order, but the fence afterwards": (
        "P0001",
        TURN,
        lambda w: (w.open(*RUN), [w.final(n) for n in RUN], [w.fence(n) for n in RUN]),
    ),
    "quarantined inside": (
        "P0001",
        SEALED,
        lambda w: (w.open(5), w.quarantined(6), w.close(5), w.fence(6)),
    ),
    "two quarantined, then the fence": (
        "P0001",
        TURN,
        lambda w: (w.quarantined(5), w.quarantined(6), w.fence(5), w.fence(6)),
    ),
    "fence jumps over the run": ("P0001", STEP, lambda w: (w.open(*RUN), w.close(5), w.fence(7, 5))),
    "fence jumps without rows": ("P0001", STEP, lambda w: w.fence(8, 4)),
    "fence steps without rows": ("P0001", "ahead of its ledger", lambda w: [w.fence(n) for n in RUN]),
    "hole": ("23503", "foreign key", lambda w: (w.open(5), w.open_batch(7))),
    "hole that names another predecessor": (
        "23514",
        "check constraint",
        lambda w: (w.open(5), w.open_batch(7, prev=5)),
    ),
    "run that begins with what is committed": ("23505", "duplicate key", lambda w: w.open(4, 5)),
    "half a run, fence behind": ("P0001", COMPLETE, lambda w: (w.open(5, 6), w.close(5))),
    "half a run, fence past it": ("P0001", COMPLETE, lambda w: (w.open(5, 6), w.close(5), w.fence(6))),
    "half a run, by finish_run": ("P0001", COMPLETE, lambda w: (w.open(5, 6), w.finish(5))),
    "last row final, fence not moved": (
        "P0001",
        "does not match the fence",
        lambda w: (w.open(5, 6), w.close(5), w.final(6)),
    ),
    "two runs, both with the lock": (
        "55P03",
        "lock timeout",
        lambda w: (w.open(5), w.from_beside("select from txtopo.fence for no key update")),
    ),
    "two runs, one without the lock": ("23503", "foreign key", lambda w: (w.open(5), w.row_from_beside())),
    "higher epoch in the middle": (
        "P0001",
        "does not match the fence",
        lambda w: (w.open(5), w.open_batch(6, epoch=2), w.count(6), w.open(7), w.close(*RUN)),
    ),
    "lower epoch in the middle": (
        "P0001",
        "does not match the fence",
        lambda w: (w.open(5), w.open_batch(6, epoch=0), w.count(6), w.close(5, 6)),
    ),
    "other code in the middle": (
        "P0001",
        "does not match the fence",
        lambda w: (w.open_batch(5, code=b"code-0"), w.count(5), w.open(6), w.close(5, 6)),
    ),
    "last plan not mirrored": (
        "P0001",
        "no mirrored plan",
        lambda w: (w.open(*range(5, NOT_PLANNED + 1)), w.close(*range(5, NOT_PLANNED + 1))),
    ),
    "rejected records of the other batch": (
        "P0001",
        "each of its rejected records",
        lambda w: (w.open(5, 6), w.reject(5, 2), w.final(5, 1), w.fence(5), w.final(6, 1), w.fence(6)),
    ),
    "a batch without its count": (
        "P0001",
        "a count of each committer",
        lambda w: (w.open(5), w.open_batch(6), w.close(5, 6)),
    ),
    "contributions of a batch that is final": ("P0001", "batch 4, which is not", lambda w: w.contribute(4)),
    "contributions of a batch outside": (
        "P0001",
        "batch 7, which is not",
        lambda w: (w.open(5, 6), w.contribute(5), w.contribute(7)),
    ),
    "contributions after the row": (
        "P0001",
        "batch 5, which is not",
        lambda w: (w.open(5, 6), w.close(5), w.contribute(5)),
    ),
    "checked early, then a row": ("P0001", COMPLETE, lambda w: (w.checked_early(), w.open(6))),
    "checked early, then a count": ("P0001", "is not being applied", lambda w: (w.checked_early(), w.count(5))),
    "checked early, then the fence": ("P0001", "ahead of its ledger", lambda w: (w.checked_early(), w.fence(6))),
    "checked early and deferred again, then a row": (
        "P0001",
        COMPLETE,
        lambda w: (w.checked_early(), w.execute("set constraints all deferred"), w.open_batch(6)),
    ),
    "finished, then a row": ("P0001", COMPLETE, lambda w: (w.open(5), w.finish(5), w.open_batch(6))),
    "finished, then the fence": ("P0001", "ahead of its ledger", lambda w: (w.open(5), w.finish(5), w.fence(6))),
    "finished twice": ("P0001", "may not be applied", lambda w: (w.open(5), w.finish(5, 5))),
    "attempt that never began": ("P0001", "may not be applied", lambda w: (w.open(5), w.finish(5, attempt=3))),
    "row that is not there": ("P0001", "is not being applied", lambda w: (w.open(5), w.finish(5, 6))),
    "count for a row of the run that is final": (
        "P0001",
        "is not being applied",
        lambda w: (w.open(5, 6), w.close(5), w.count(5)),
    ),
}


@pytest.fixture(scope="module")
def runner(postgres_server: LocalPostgres, migrated_template: str) -> Iterator[Runner]:
    """One for all attacks: each is refused, so it leaves nothing."""
    with fresh_database(postgres_server, migrated_template) as dsn:
        made = Runner(dsn)
        with closing(made.connection), closing(made.beside):
            yield made


@pytest.mark.parametrize("name", ATTACKS)
def test_an_attack_with_several_batches_is_refused(runner: Runner, name: str) -> None:
    """Promise: a database transaction with several batches is refused wherever one of them alone would be, and where
    they are finished in another order than one after the other.
    """
    sqlstate, words, attack = ATTACKS[name]

    with pytest.raises(psycopg2.Error, match=words) as refused:
        attack(runner)
        runner.connection.commit()

    runner.connection.rollback()
    runner.beside.rollback()
    assert refused.value.pgcode == sqlstate
    assert runner.rows(
        "select last_txid, (select count(*) from txtopo.ledger), (select count(*) from public.counts_contribution) "
        "from txtopo.fence"
    ) == [(4, 5, 0)]
    runner.connection.rollback()


def test_honest_runs_pass_and_each_seal_is_of_its_row_and_the_seal_before(attacker: Attacker) -> None:
    """Promise: what refuses everything proves nothing. A run may be finished by `finish_run` or with the statements of
    a single commit, also those of an earlier release: row and fence in one statement.
    """
    w = attacker
    for n in range(5, 12):
        w.mirror(n)
    w.connection.commit()
    for n in (5, 6):
        w.open_batch(n)
    for n in (5, 6):
        w.close_batch(n, rejected=n - 5)
    w.connection.commit()
    w.open_batch(7)
    w.execute("insert into txtopo.committer_count values ('t', 7, 'c', 10, 10, 3, 3, 0, 0, 77)")
    w.execute(
        "with row as (update txtopo.ledger set state = 'applied', read = 10, rejected = 0, dead_lettered = 0, "
        "committers = 1 where topology = 't' and txid = 7 and state = 'applying' returning 1), fence as (update "
        "txtopo.fence set last_txid = 7 where topology = 't' and last_txid = 6 returning 1) select * from row, fence"
    )
    w.connection.commit()

    assert w.broken_seal() is None
    assert w.rows(
        "select last_txid, (select count(*) from txtopo.ledger where seal is not null) from txtopo.fence"
    ) == [(7, 8)]


def test_finish_run_does_what_the_commits_one_by_one_do(runner: Runner) -> None:
    """Promise: each batch is final and sealed, its attempt has ended, and the fence is at the last one; the deferred
    checks have been made.
    """
    w = runner
    w.open(*RUN)
    w.contribute(6)
    w.finish(*RUN)

    assert w.rows(
        "select txid, l.state, a.state, seal is not null, l.sealed_attempts from txtopo.ledger l "
        "join txtopo.attempt a using (topology, txid) where txid > 4 order by txid"
    ) == [(n, "applied", "applied", True, [[0, "applied"]]) for n in RUN]
    assert w.rows("select last_txid from txtopo.fence") == [(7,)]
    w.connection.rollback()
