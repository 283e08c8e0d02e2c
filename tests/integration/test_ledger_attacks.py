"""Attacks on the ledger: each is refused by the server itself, with the SQLSTATE named, and an edit behind its back
shows in the seals.
"""

from __future__ import annotations

import hashlib
import json
import uuid
from collections.abc import Callable, Iterator
from typing import Any

import psycopg2
import pytest

INCARNATION, NONCE, CODE = str(uuid.UUID(int=1)), str(uuid.UUID(int=2)), b"code-1"
DIGESTS = {n: b"digest-%d" % n for n in range(200)}
GOOD = (10, 10, 3, 3, 0)
"""Arrived, counted, results, written, ignored of a batch that agrees."""


def spelled(value: Any) -> bytes:
    """JSON as the server spells it."""
    return json.dumps(value, ensure_ascii=False).encode()


class Attacker:
    """A driver that may send any SQL, with the steps of an honest commit at hand. Four batches are in the ledger."""

    def __init__(self, dsn: str) -> None:
        self._dsn = dsn
        self.connection = psycopg2.connect(dsn)
        self._cursor = self.connection.cursor()
        self.execute("insert into txtopo.fence values ('t', %s, %s, 1, %s, false, 0)", (INCARNATION, NONCE, CODE))
        self.execute(
            "insert into txtopo.ledger (topology, txid, digest, incarnation, epoch, attempt, code_hash, state) "
            "values ('t', 0, %s, %s, 1, 0, %s, 'genesis')",
            (DIGESTS[0], INCARNATION, CODE),
        )
        self.commit(1)
        self.connection.commit()
        self.commit(2, read=5, rejected=5, counts=(0, 0, 0, 0, 0))
        self.connection.commit()
        self.commit(3, state="quarantined", reason="file vanished", counts=None, read=None)
        self.connection.commit()
        self.commit(4, redo_of=3)
        self.connection.commit()

    def execute(self, sql: str, values: Any = None) -> Any:
        """Send one statement."""
        self._cursor.execute(sql, values)

    def rows(self, sql: str, values: Any = None) -> list[Any]:
        """Send one query."""
        self.execute(sql, values)
        return list(self._cursor.fetchall())

    def mirror(self, n: int, digest: bytes | None = None, epoch: int = 1, cut: int = 0) -> Any:
        """Insert the plan of batch n."""
        self.execute(
            "insert into txtopo.plan (topology, txid, digest, bytes, epoch, cut) values ('t', %s, %s, '{}', %s, %s)",
            (n, digest or DIGESTS[n], epoch, cut),
        )

    def open_batch(self, n: int, **other: Any) -> Any:
        """Lock the fence and insert the ledger row; `other` says what is false about it."""
        prev = other.get("prev", n - 1)
        self.execute("select * from txtopo.fence where topology = 't' for no key update")
        self.execute(
            "insert into txtopo.ledger (topology, txid, prev_txid, prev_digest, digest, incarnation, epoch, attempt, "
            "code_hash, state, redo_of, backfills, committer) "
            "values ('t', %s, %s, %s, %s, %s, %s, 0, %s, 'applying', %s, %s, %s)",
            (
                n,
                prev,
                other.get("prev_digest", DIGESTS[prev]),
                other.get("digest", DIGESTS[n]),
                other.get("incarnation", INCARNATION),
                other.get("epoch", 1),
                other.get("code", CODE),
                other.get("redo_of"),
                other.get("backfills"),
                other.get("committer"),
            ),
        )

    def close_batch(self, n: int, **other: Any) -> Any:
        """Insert the counts, make the row final, move the fence; `other` says what is false about it."""
        counts = other.get("counts", GOOD)
        if counts:
            self.execute(
                "insert into txtopo.committer_count values ('t', %s, %s, %s, %s, %s, %s, %s, 0, 77)",
                (n, other.get("counted_by", "c"), *counts),
            )
        self.reject(n, other.get("rejected_rows", other.get("rejected", 0)))
        self.bury(n, other.get("dead_rows", other.get("dead", 0)))
        self.execute(
            "update txtopo.ledger set state = %s, read = %s, rejected = %s, dead_lettered = %s, reason = %s, "
            "committers = %s, committed_at = clock_timestamp() "
            "where topology = 't' and txid = %s",
            (
                other.get("state", "applied"),
                other.get("read", 10),
                other.get("rejected", 0),
                other.get("dead", 0),
                other.get("reason"),
                other.get("committers", 1 if counts else 0),
                n,
            ),
        )
        self.execute("update txtopo.fence set last_txid = %s where topology = 't' and last_txid = %s", (n, n - 1))

    def reject(self, n: int, rows: int, **other: Any) -> Any:
        """Keep rejected records of batch n; `other` says what is false about them."""
        for line in range(2, 2 + rows):
            self.execute(
                "insert into txtopo.rejected_row values ('t', %s, 's', '/a', %s, %s, 'raw', %s)",
                (n, other.get("line", line), other.get("reason", "bad"), other.get("raw_bytes", 3)),
            )

    def bury(self, n: int, rows: int, **other: Any) -> Any:
        """Keep dead letters of batch n; `other` says what is false about them."""
        for line in range(2, 2 + rows):
            self.execute(
                "insert into txtopo.dead_letter values ('t', %s, 's', %s, 'bolt', %s, 'raw')",
                (n, other.get("position", f"/a:{line}"), other.get("reason", "bad")),
            )

    def order(self, kind: str = "retry", arguments: str = "{}") -> Any:
        """Leave an order."""
        self.execute("insert into txtopo.request (topology, kind, arguments) values ('t', %s, %s)", (kind, arguments))

    def act(self, order: int | None = None) -> Any:
        """Write a row of the action log."""
        self.execute(
            "insert into txtopo.action (topology, actor, host, command, request_id, before, after) values ('t', 'a', "
            "'h', 'skip', %s, '{}', '{}')",
            (order,),
        )

    def commit(self, n: int, *, mirrored: bool = True, **other: Any) -> Any:
        """All of an honest commit but COMMIT."""
        if mirrored:
            self.mirror(n, other.get("digest"))
        self.open_batch(n, **other)
        self.close_batch(n, **other)

    def begin(self, n: int, attempt: int) -> Any:
        """Record an attempt."""
        self.execute(
            "insert into txtopo.attempt (topology, txid, attempt, epoch, code_hash) values ('t', %s, %s, 1, %s)",
            (n, attempt, CODE),
        )

    def end(self, n: int, state: str) -> Any:
        """End all attempts of a batch."""
        self.execute("update txtopo.attempt set state = %s, ended_at = clock_timestamp() where txid = %s", (state, n))

    def takeover_beside_mirror(self) -> Any:
        """Raise the epoch while another session has a plan in flight."""
        other = psycopg2.connect(self._dsn)
        try:
            other.cursor().execute(
                "insert into txtopo.plan (topology, txid, digest, bytes, epoch) values ('t', 5, %s, '{}', 1)",
                (DIGESTS[5],),
            )
            self.execute("set local lock_timeout = '300ms'")
            self.execute(
                "update txtopo.fence set epoch = 2, owner_nonce = %s where topology = 't'", (str(uuid.UUID(int=9)),)
            )
        finally:
            other.rollback()
            other.close()

    def broken_seal(self) -> int | None:
        """The first txid whose seal is not the sha-256 of its values, its counts and the seal before; recomputed here
        from the rows alone.
        """
        before = None
        for row in self.rows(
            "select topology, txid, cut, digest, incarnation, epoch, attempt, code_hash, state, read, rejected, "
            "dead_lettered, committers, reason, redo_of, "
            "extract(epoch from planned_at) * 1000000, extract(epoch from committed_at) * 1000000, seal from "
            "txtopo.ledger order by txid"
        ):
            txid = (row[1],)
            values = [value.tobytes().hex() if isinstance(value, memoryview) else value for value in row[:-3]]
            times = [None if at is None else int(at) for at in row[-3:-1]]
            counts = self.rows(
                "select committer, arrived, counted, results, written, ignored, reversed, digest::text from "
                "txtopo.committer_count where txid = %s order by committer",
                txid,
            )
            edges = self.rows("select edge, sent, received from txtopo.edge_count where txid = %s order by edge", txid)
            bad = [
                hashlib.sha256(spelled([line, reason, hashlib.sha256(raw).hexdigest(), size])).digest()
                for line, reason, raw, size in self.rows(
                    "select line, reason, raw, raw_bytes from txtopo.rejected_row where txid = %s order by line", txid
                )
            ]
            rejected = [["s", "/a", len(bad), hashlib.sha256(b"".join(bad)).hexdigest()]] if bad else None
            dead = self.rows(
                "select spout, position, component, reason, raw from txtopo.dead_letter where txid = %s order by "
                "position",
                txid,
            )
            letters = [[*letter[:4], hashlib.sha256(letter[4]).hexdigest()] for letter in dead] or None
            listed = [[list(one) for one in rows] or None for rows in (counts, edges)]
            # No attempts, no description and no action in these tests.
            parts = [2, *values, *times, *listed, rejected, letters, None, None, None, None, None, before]
            seal = hashlib.sha256(spelled(parts)).hexdigest()
            if seal != row[-1].tobytes().hex():
                return int(row[1])
            before = seal
        return None


@pytest.fixture
def attacker(database: str) -> Iterator[Attacker]:
    """An attacker with its own database."""
    attacker = Attacker(database)
    yield attacker
    attacker.connection.close()


Attack = Callable[[Attacker], Any]
ATTACKS: dict[str, tuple[str, Attack]] = {
    "early COMMIT": ("P0001", lambda w: (w.mirror(5), w.open_batch(5))),
    "same txid again": ("23505", lambda w: w.open_batch(4)),
    "gap": ("23503", lambda w: w.open_batch(6, prev=5)),
    "gap with another predecessor": ("23514", lambda w: w.open_batch(6, prev=4)),
    "other predecessor digest": ("23503", lambda w: w.open_batch(5, prev_digest=b"else")),
    "NULL predecessor": (
        "23514",
        lambda w: w.execute(
            "insert into txtopo.ledger (topology, txid, digest, incarnation, epoch, attempt, code_hash, state) "
            "values ('t', 5, 'x', %s, 1, 0, %s, 'applying')",
            (INCARNATION, CODE),
        ),
    ),
    "counted more than arrived": ("23514", lambda w: w.commit(5, counts=(10, 11, 3, 3, 0))),
    "results vanish": ("23514", lambda w: w.commit(5, counts=(10, 10, 3, 2, 0))),
    "more rejected than read": ("23514", lambda w: w.commit(5, read=3, rejected=4)),
    "NULL counts": ("23514", lambda w: w.commit(5, read=None)),
    "applied without any committer": ("23514", lambda w: w.commit(5, counts=None)),
    "one committer fewer than said": ("P0001", lambda w: w.commit(5, committers=2)),
    "quarantine with counts": ("23514", lambda w: w.commit(5, state="quarantined", reason="x")),
    "quarantine without mirrored plan": (
        "P0001",
        lambda w: w.commit(5, state="quarantined", reason="x", counts=None, mirrored=False),
    ),
    "counts for a final batch": (
        "P0001",
        lambda w: w.execute("insert into txtopo.committer_count values ('t', 3, 'd', 1, 1, 1, 1, 0, 0, 7)"),
    ),
    "edge count for a final batch": (
        "P0001",
        lambda w: w.execute("insert into txtopo.edge_count values ('t', 4, 'a>c', 5, 5)"),
    ),
    "plan of a stale epoch": ("P0001", lambda w: w.mirror(5, epoch=0)),
    "plan for a committed txid": ("P0001", lambda w: w.mirror(4, cut=0)),
    "immutable plan cut again": ("P0001", lambda w: (w.mirror(5), w.mirror(5, cut=1))),
    "fence ahead of the ledger": ("P0001", lambda w: w.execute("update txtopo.fence set last_txid = 5")),
    "redo of the genesis row": ("23514", lambda w: w.commit(5, redo_of=0)),
    "file planned twice": (
        "23505",
        lambda w: [w.execute("insert into txtopo.source_file values ('t', 's', '/a', 'f', %s)", (n,)) for n in (5, 6)],
    ),
    "consumed file forgotten": (
        "P0001",
        lambda w: (
            w.execute("insert into txtopo.source_file values ('t', 's', '/b', 'f', 5)"),
            w.execute("delete from txtopo.source_file"),
        ),
    ),
    "target handed to another": (
        "P0001",
        lambda w: (
            w.execute("insert into txtopo.target values ('public.y', 't', 'c')"),
            w.execute("update txtopo.target set committer = 'd'"),
        ),
    ),
    "plans with a hole": ("P0001", lambda w: (w.mirror(5), w.mirror(7))),
    "uncommitted plan removed": ("P0001", lambda w: (w.mirror(5), w.execute("delete from txtopo.plan where txid = 5"))),
    "redo_of changes while applying": (
        "P0001",
        lambda w: (w.mirror(5), w.open_batch(5), w.execute("update txtopo.ledger set redo_of = 2 where txid = 5")),
    ),
    "spout turns opaque within an epoch": ("P0001", lambda w: w.execute("update txtopo.fence set opaque = true")),
    "takeover passes a mirror in flight": ("55P03", lambda w: w.takeover_beside_mirror()),
    "table of two committers": (
        "23505",
        lambda w: [w.execute("insert into txtopo.target values ('public.x', 't', %s)", (c,)) for c in "ab"],
    ),
    "quarantine without reason": ("23514", lambda w: w.commit(5, state="quarantined", counts=None)),
    "quarantine with empty reason": ("23514", lambda w: w.commit(5, state="quarantined", reason="", counts=None)),
    "stale epoch": ("P0001", lambda w: w.commit(5, epoch=0)),
    "other code than the leader's": ("P0001", lambda w: w.commit(5, code=b"code-0")),
    "other incarnation": ("P0001", lambda w: w.commit(5, incarnation=str(uuid.uuid4()))),
    "no mirrored plan": ("P0001", lambda w: w.commit(5, mirrored=False)),
    "mirrored plan with another digest": ("P0001", lambda w: (w.mirror(5, b"else"), w.open_batch(5), w.close_batch(5))),
    "redo twice": ("23505", lambda w: w.commit(5, redo_of=3)),
    "redo of a later txid": ("23514", lambda w: w.commit(5, redo_of=5)),
    "redo of an unknown txid": ("23514", lambda w: w.commit(5, redo_of=99)),
    "rewrite": ("P0001", lambda w: w.execute("update txtopo.ledger set read = 1 where txid = 2")),
    "delete": ("P0001", lambda w: w.execute("delete from txtopo.ledger where txid = 2")),
    "change identity while applying": (
        "P0001",
        lambda w: (w.mirror(5), w.open_batch(5), w.execute("update txtopo.ledger set digest = 'x' where txid = 5")),
    ),
    "rewrite a count": ("P0001", lambda w: w.execute("update txtopo.committer_count set written = 0, ignored = 3")),
    "rewrite a plan": ("P0001", lambda w: w.execute("update txtopo.plan set bytes = 'x' where txid = 1")),
    "edge loses a row": (
        "23514",
        lambda w: (w.open_batch(5), w.execute("insert into txtopo.edge_count values ('t', 5, 'a>b', 5, 4)")),
    ),
    "fence goes back": ("P0001", lambda w: w.execute("update txtopo.fence set last_txid = 1")),
    "fence jumps": ("P0001", lambda w: w.execute("update txtopo.fence set last_txid = 9")),
    "epoch goes back": ("P0001", lambda w: w.execute("update txtopo.fence set epoch = 0")),
    "owner changes within an epoch": (
        "P0001",
        lambda w: w.execute("update txtopo.fence set owner_nonce = %s", (str(uuid.uuid4()),)),
    ),
    "topology name with a quote": (
        "23514",
        lambda w: w.execute(
            "insert into txtopo.fence values ('a\"b', %s, %s, 1, %s, false, 0)", (INCARNATION, NONCE, CODE)
        ),
    ),
}
LATER: dict[str, tuple[str, Attack]] = {
    "attempt forgotten": ("P0001", lambda w: (w.begin(5, 0), w.execute("delete from txtopo.attempt"))),
    "attempt id goes back": ("P0001", lambda w: (w.begin(5, 1), w.begin(5, 0))),
    "attempt begun twice": ("23505", lambda w: (w.begin(5, 0), w.begin(5, 0))),
    "attempt ends twice": ("P0001", lambda w: (w.begin(5, 0), w.end(5, "applied"), w.end(5, "cancelled"))),
    "attempt begins again": (
        "P0001",
        lambda w: (
            w.begin(5, 0),
            w.end(5, "cancelled"),
            w.execute("update txtopo.attempt set state = 'begun', ended_at = null"),
        ),
    ),
    "attempt changes its epoch": ("P0001", lambda w: (w.begin(5, 0), w.execute("update txtopo.attempt set epoch = 2"))),
    "attempt fails without a reason": ("23514", lambda w: (w.begin(5, 0), w.end(5, "failed"))),
    "metadata piece under a false digest": (
        "23514",
        lambda w: w.execute("insert into txtopo.plan_part values (sha256('a'), 'b')"),
    ),
    "metadata piece rewritten": (
        "P0001",
        lambda w: (
            w.execute("insert into txtopo.plan_part values (sha256('a'), 'a')"),
            w.execute("update txtopo.plan_part set bytes = 'b'"),
        ),
    ),
    "ledger truncated": ("P0001", lambda w: w.execute("truncate txtopo.ledger cascade")),
    "rejected record without its batch": ("P0001", lambda w: w.reject(5, 1)),
    "rejected record after the fact": ("P0001", lambda w: w.reject(4, 1)),
    "rejected record edited": ("P0001", lambda w: w.execute("update txtopo.rejected_row set reason = 'other'")),
    "rejected record deleted": ("P0001", lambda w: w.execute("delete from txtopo.rejected_row where line = 2")),
    "rejected records truncated": ("P0001", lambda w: w.execute("truncate txtopo.rejected_row")),
    "fewer rejected records than said": ("P0001", lambda w: w.commit(5, rejected=2, rejected_rows=1)),
    "more rejected records than said": ("P0001", lambda w: w.commit(5, rejected=2, rejected_rows=3)),
    "rejected records of a quarantined batch": (
        "P0001",
        lambda w: w.commit(5, state="quarantined", reason="x", counts=None, rejected=None, rejected_rows=1),
    ),
    "rejected record twice": (
        "23505",
        lambda w: (w.mirror(5), w.open_batch(5), w.reject(5, 2, line=2)),
    ),
    "rejected record on no line": ("23514", lambda w: (w.mirror(5), w.open_batch(5), w.reject(5, 1, line=0))),
    "rejected record without a reason": ("23514", lambda w: (w.mirror(5), w.open_batch(5), w.reject(5, 1, reason=""))),
    "rejected record longer than it was": (
        "23514",
        lambda w: (w.mirror(5), w.open_batch(5), w.reject(5, 1, raw_bytes=2)),
    ),
    "dead letter without its batch": ("P0001", lambda w: w.bury(5, 1)),
    "dead letter after the fact": ("P0001", lambda w: w.bury(4, 1)),
    "dead letter edited": (
        "P0001",
        lambda w: (w.commit(5, dead=1), w.execute("update txtopo.dead_letter set reason = 'x'")),
    ),
    "dead letter deleted": ("P0001", lambda w: (w.commit(5, dead=1), w.execute("delete from txtopo.dead_letter"))),
    "dead letters truncated": ("P0001", lambda w: w.execute("truncate txtopo.dead_letter")),
    "fewer dead letters than said": ("P0001", lambda w: w.commit(5, dead=2, dead_rows=1)),
    "more dead letters than said": ("P0001", lambda w: w.commit(5, dead=2, dead_rows=3)),
    "dead letters of a quarantined batch": (
        "P0001",
        lambda w: w.commit(
            5, state="quarantined", reason="x", counts=None, rejected=None, dead=None, rejected_rows=0, dead_rows=1
        ),
    ),
    "dead letter twice": ("23505", lambda w: (w.mirror(5), w.open_batch(5), w.bury(5, 2, position="/a:2"))),
    "dead letter from nowhere": ("23514", lambda w: (w.mirror(5), w.open_batch(5), w.bury(5, 1, position=""))),
    "dead letter without a reason": ("23514", lambda w: (w.mirror(5), w.open_batch(5), w.bury(5, 1, reason=""))),
    "more dead letters than read": ("23514", lambda w: w.commit(5, read=1, dead=2)),
    "action edited": ("P0001", lambda w: (w.act(), w.execute("update txtopo.action set actor = 'b'"))),
    "action deleted": ("P0001", lambda w: (w.act(), w.execute("delete from txtopo.action"))),
    "action log truncated": ("P0001", lambda w: w.execute("truncate txtopo.action")),
    "action of no order": ("23503", lambda w: w.act(order=99)),
    "order of an unknown kind": ("23514", lambda w: w.order("destroy")),
    "order about no batch": ("23514", lambda w: w.order(arguments='{"txids": [0]}')),
    "order about half a batch": ("23514", lambda w: w.order(arguments='{"txids": [1.5]}')),
    "order about words": ("23514", lambda w: w.order(arguments='{"txids": ["1"]}')),
    "order about one number": ("23514", lambda w: w.order(arguments='{"txids": 1}')),
    "order without a form": ("23514", lambda w: w.order(arguments="[1]")),
    "backfill without a committer": ("23514", lambda w: w.commit(5, backfills=1)),
    "committer without a backfill": ("23514", lambda w: w.commit(5, committer="d")),
    "backfill of itself": ("23514", lambda w: w.commit(5, backfills=5, committer="d", counted_by="d")),
    "backfill and redo": ("23514", lambda w: w.commit(5, backfills=1, redo_of=1, committer="d", counted_by="d")),
    "backfill of what was counted": ("P0001", lambda w: w.commit(5, backfills=1, committer="c")),
    "backfill into another committer": ("P0001", lambda w: w.commit(5, backfills=1, committer="d")),
    "backfill of nothing": ("23514", lambda w: w.commit(5, backfills=0, committer="d", counted_by="d")),
    "backfill changed while applying": (
        "P0001",
        lambda w: (
            w.mirror(5),
            w.open_batch(5, backfills=1, committer="d"),
            w.execute("update txtopo.ledger set backfills = 2 where txid = 5"),
        ),
    ),
    "backfill of a committer without a name": ("23514", lambda w: w.order("backfill", '{"committer": 7}')),
}
"""Attacks on what was added to the ledger since."""


def test_all_attacks_are_here() -> None:
    """The ledger refuses 51 attacks."""
    assert len(ATTACKS) == 51


@pytest.mark.parametrize("name", [*ATTACKS, *LATER])
def test_attack_is_refused(attacker: Attacker, name: str) -> None:
    """The server itself refuses what would break the protocol, and nothing of it stays."""
    sqlstate, attack = {**ATTACKS, **LATER}[name]

    with pytest.raises(psycopg2.Error) as refused:
        attack(attacker)
        attacker.connection.commit()

    attacker.connection.rollback()
    assert refused.value.pgcode == sqlstate
    assert attacker.rows("select last_txid, epoch, (select count(*) from txtopo.ledger) from txtopo.fence") == [
        (4, 1, 5)
    ]


@pytest.mark.parametrize("arguments", ["{}", '{"txids": []}', '{"txids": [1, 17]}'])
def test_honest_orders_pass(attacker: Attacker, arguments: str) -> None:
    """What refuses everything proves nothing."""
    attacker.order(arguments=arguments)
    attacker.order("stop", '{"now": true}')
    attacker.act(order=attacker.rows("select min(request_id) from txtopo.request")[0][0])
    attacker.connection.commit()

    assert attacker.rows("select count(*) from txtopo.action") == [(1,)]


def test_seals_can_be_recomputed_from_the_rows(attacker: Attacker) -> None:
    """Each final row carries a seal that anybody can compute again."""
    for n in range(5, 10):
        attacker.commit(n, dead=n - 5)
        attacker.connection.commit()

    assert attacker.broken_seal() is None
    assert attacker.rows("select count(*) from txtopo.dead_letter") == [(10,)]


@pytest.mark.parametrize(
    ("edit", "txid"),
    [
        ("update txtopo.ledger set read = 11 where txid = 2", 2),
        ("update txtopo.ledger set reason = 'other' where txid = 3", 3),
        ("update txtopo.ledger set attempt = 7 where txid = 1", 1),
        ("update txtopo.committer_count set arrived = 11, counted = 11 where txid = 4", 4),
        ("update txtopo.dead_letter set reason = 'other' where txid = 5", 5),
        ("update txtopo.dead_letter set raw = 'other' where txid = 5", 5),
        ("delete from txtopo.dead_letter where txid = 5", 5),
        ("insert into txtopo.dead_letter values ('t', 4, 's', '/a:9', 'b', 'r', 'raw')", 4),
    ],
)
def test_edit_by_a_superuser_shows_in_the_seals(attacker: Attacker, edit: str, txid: int) -> None:
    """Whoever may switch triggers off can change a row, but not unseen."""
    attacker.commit(5, dead=2)
    attacker.connection.commit()
    attacker.execute("alter table txtopo.ledger disable trigger all")
    for table in ("committer_count", "dead_letter"):
        attacker.execute(f"alter table txtopo.{table} disable trigger all")

    attacker.execute(edit)

    assert attacker.broken_seal() == txid
