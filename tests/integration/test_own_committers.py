"""What only a real server can show of committers of one's own: where their statements run, and what they can and cannot
do to their batch (P1, P4, P8, P9).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import closing
from typing import Any, ClassVar

import psycopg2
import pytest
from sqlalchemy import Engine, event

from tests.contracts.ledger_driver import ROWS, Driver, claim_for, committer, dead_letter, result_of
from tests.contracts.user_committer_contract import WORDS, Words, own, words
from txtopo.committers.count_committer import CountCommitter
from txtopo.committers.new_ids import NewIds
from txtopo.committers.postgres import user_committers
from txtopo.committers.postgres.ledger import PostgresLedger
from txtopo.committers.protocol import downstream, user_transaction
from txtopo.core.values import Aborted, CommitOutcome, Committed
from txtopo.topology.batch_committer import CommitTransaction
from txtopo.topology.components import CommitterComponent, Subscription, TupleBoltComponent
from txtopo.topology.streams import Stream, Tuple
from txtopo.topology.tuple_bolts import BasicBolt

Told = Callable[[CommitTransaction], Any]
SETTINGS = (
    "statement_timeout",
    "lock_timeout",
    "idle_in_transaction_session_timeout",
    "synchronous_commit",
    "search_path",
    "timezone",
    "enable_seqscan",
    "jit",
)


class World:
    """A driver with a counting committer and one of its own, on a database with table `words`."""

    def __init__(self, dsn: str) -> None:
        self.beside = psycopg2.connect(dsn)
        self.beside.autocommit = True
        self.query("create table public.words (word text primary key, n bigint not null)")
        self.ledger = PostgresLedger(dsn, "flights")
        self.driver = Driver(self.ledger, self.ledger.claim_fence(claim_for()), ())

    def query(self, statement: str, *values: Any) -> list[Any]:
        """Run anything beside."""
        with self.beside.cursor() as cursor:
            cursor.execute(statement, values or None)
            return list(cursor.fetchall()) if cursor.description else []

    def commit(self, tell: Told, rows: Sequence[tuple[Any, ...]] = (("a", 1),), **other: Any) -> CommitOutcome:
        """One try at the next batch, whose own committer does this."""
        fence = self.ledger.read_fence()
        assert fence is not None
        txid = fence.last_txid + 1
        plan = self.driver.plan(txid) if txid in self.driver.digests else self.driver.ready(txid)

        def commit(transaction: CommitTransaction, *_: Any) -> int | None:
            tell(transaction)
            return None

        self.driver.committers = (committer(), own(Words(commit)))
        self.ledger.prepare_targets(self.driver.lead, self.driver.committers)
        return self.driver.commit(plan, results=(result_of(ROWS), words(rows)), **other)

    def failure(self, tell: Told) -> str:
        """What the batch fails with; nothing of it may stay."""
        outcome = self.commit(tell)
        assert isinstance(outcome, Aborted), outcome
        assert outcome.failure.kind == "data", outcome
        assert outcome.failure.component == "words"
        assert self.query("select count(*) from flights_count") == [(0,)]
        assert self.query("select count(*) from words") == [(0,)]
        return outcome.failure.message

    def close(self) -> None:
        """Leave no connection."""
        self.ledger.close()
        self.beside.close()


@pytest.fixture
def world(database: str) -> Iterator[World]:
    """A world of its own."""
    with closing(World(database)) as world:
        yield world


def test_statements_run_in_the_database_transaction_of_the_batch(world: World) -> None:
    """The one database transaction that also writes the ledger: by its xid, and after the ledger row."""
    seen: list[Any] = []

    def look(transaction: CommitTransaction) -> None:
        seen.extend(
            transaction.execute("select pg_current_xact_id()::text, state from txtopo.ledger where txid = %s", [1])
        )

    assert isinstance(world.commit(look), Committed)

    [(xid, state)] = seen
    assert state == "applying"
    assert world.query("select xmin::text from txtopo.committer_count where committer = 'words'") == [(xid,)]


def test_values_are_bound_and_come_back_as_python_values(world: World) -> None:
    """Statements with bound parameters, named or by place; bytea comes back as bytes; without parameters a percent sign
    is one.
    """
    seen: list[Any] = []

    def ask(transaction: CommitTransaction) -> None:
        seen.extend(
            transaction.execute(
                "select %s, %s::bytea, %s::text[], '100%%'", ["'; drop table words; --", b"\0\xff", ["a", None]]
            )
        )
        seen.extend(transaction.execute("select %(n)s + 1 as n", {"n": 1}))
        seen.extend(transaction.execute("select '100%'"))
        seen.append(transaction.execute("insert into words values ('a', 1)"))

    assert isinstance(world.commit(ask), Committed)

    assert seen == [("'; drop table words; --", b"\0\xff", ["a", None], "100%"), (2,), ("100%",), []]


@pytest.mark.parametrize(
    ("tell", "said"),
    [
        (lambda t: t.execute("insert into words values ('a', 1), ('a', 2)"), "SQLSTATE 23505"),
        (lambda t: t.execute("select nothing"), "SQLSTATE 42703"),
        (lambda t: t.execute("select %s, %s", [1]), "committer words"),
        (lambda t: t.execute("select %s", [object()]), "can't adapt type"),
        (lambda t: t.execute("select %s", ["a\0"]), "NUL"),
        (lambda t: t.execute("do $$ begin commit; end $$"), "SQLSTATE 2D000"),
        (lambda t: t.execute("select pg_catalog.set_config('synchronous_commit', 'off', true)"), "set_config"),
        (lambda t: t.execute("update txtopo.ledger set digest = 'x'"), "final"),
        (lambda t: t.execute("delete from txtopo.committer_count"), "are final"),
    ],
)
def test_a_statement_that_fails_names_committer_and_line(world: World, tell: Told, said: str) -> None:
    """Errors of its statements are data failures that name the committer and the user's own line; all committers or
    none.
    """
    message = world.failure(tell)

    assert said in message
    assert message.startswith(f"{__file__}:")
    assert "committer words" in message


def test_a_failure_that_is_swallowed_still_fails_the_batch(world: World) -> None:
    """P1: COMMIT of a failed database transaction is a ROLLBACK without an exception, so it is never sent."""

    def swallow(transaction: CommitTransaction) -> None:
        for statement in ("select 1 / 0", "insert into words values ('a', 1)"):
            try:
                transaction.execute(statement)
            except Exception:
                continue

    assert "division by zero" in world.failure(swallow)


def test_whoever_gets_past_the_reader_of_statements_is_stopped_by_the_ledger(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """P9: the ledger row is there before the first statement, so that the server itself refuses an early COMMIT."""
    monkeypatch.setattr(user_transaction, "objection", lambda _: None)

    assert "COMMIT before batch 1 was complete" in world.failure(
        lambda t: t.execute("insert into words values ('a', 1); commit; begin")
    )


def test_another_database_transaction_is_noticed(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """P9: whoever rolls back and begins anew holds no lock, and nothing of it is committed."""
    monkeypatch.setattr(user_transaction, "objection", lambda _: None)

    outcome = world.commit(lambda t: t.execute("rollback; begin; insert into words values ('a', 1)"))

    assert isinstance(outcome, Aborted)
    assert (world.query("select * from words"), world.query("select max(txid) from txtopo.ledger")) == ([], [(0,)])


def test_settings_are_as_they_were_whatever_the_code_does(world: World) -> None:
    """P8: nothing weakens what follows; names without a schema are in public while the code runs, and in pg_catalog
    afterwards. Its statements are planned as in any other session.
    """
    seen: list[Any] = []
    asked = ", ".join(f"current_setting('{name}')" for name in SETTINGS)
    world.query("create table seen_settings (line text)")
    world.query(
        f"create function public.look() returns trigger language plpgsql as $$ begin insert into "
        f"public.seen_settings values (concat_ws('|', {asked})); return new; end $$"
    )
    world.query("create trigger look after update on txtopo.ledger for each row execute function public.look()")
    world.query(
        "create function public.weaken() returns int language plpgsql as $$ begin perform set_config(n, v, true) "
        "from (values ('synchronous_commit', 'off'), "
        "('statement_timeout', '0'), ('lock_timeout', '0'), ('idle_in_transaction_session_timeout', '0'), "
        "('search_path', 'public'), ('timezone', 'Asia/Tokyo')) as s (n, v); return 1; end $$"
    )

    assert isinstance(world.commit(lambda _: None), Committed)
    assert isinstance(
        world.commit(
            lambda t: seen.extend(
                t.execute("select current_setting('search_path'), current_setting('enable_seqscan'), weaken()")
            )
        ),
        Committed,
    )

    [before], [after] = world.query("select line from seen_settings")
    assert before == after
    assert "pg_catalog" in after
    assert seen == [("public, pg_temp", "on", 1)]


def test_own_code_costs_one_round_trip_a_statement_and_one_for_its_numbers(world: World) -> None:
    """Few round trips: the held ledger row goes with the first statement, whichever that is."""
    sent: list[str] = []
    world.driver.committers = (own(Words()),)
    plan = world.driver.ready(1)

    def note(_connection: Any, _cursor: Any, text: str, *_: Any) -> None:
        sent.append(text)

    event.listen(Engine, "before_cursor_execute", note)
    try:
        assert isinstance(world.driver.commit(plan, results=(words([("a", 1)]),)), Committed)
        assert isinstance(world.driver.commit(world.driver.ready(2), results=(words([]),)), Committed)
    finally:
        event.remove(Engine, "before_cursor_execute", note)

    # Statements of the code itself go past this ear; of txtopo's there are the lock, the numbers and the end.
    counted = [text for text in sent if "txtopo.committer_count" in text]
    assert ["insert into txtopo.ledger" in text for text in counted] == [False, True]
    assert sent[-2] == counted[-1]


def test_many_rows_are_counted_in_pieces(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """The digest of all pieces is that of the whole."""
    rows = [(f"w{n}", n) for n in range(7)]
    assert isinstance(world.commit(lambda _: None, rows), Committed)
    monkeypatch.setattr(user_committers, "ROWS_PER_STATEMENT", 3)
    assert isinstance(world.commit(lambda _: None, rows[::-1]), Committed)

    assert world.query(
        "select count(distinct digest), min(results), min(written) from txtopo.committer_count where committer = "
        "'words'"
    ) == [(1, 7, 7)]


def test_a_statement_that_the_server_ends_is_the_committers_fault(world: World) -> None:
    """Promise: a server-side timeout while user code holds the database transaction is a data failure that names the
    committer.
    """
    said = world.failure(
        lambda transaction: transaction.execute("select pg_cancel_backend(pg_backend_pid()), pg_sleep(5)")
    )

    assert "committer words: canceling statement" in said
    assert "a statement may take 60 s" in said


def test_a_deadlock_is_not_the_batchs_fault(world: World) -> None:
    """P10: what says nothing about the statement is tried again: infrastructure."""
    world.query(
        "create function public.lose() returns int language plpgsql as $$ begin raise exception 'lost' using errcode "
        "= '40P01'; end $$"
    )

    outcome = world.commit(lambda t: t.execute("select lose()"))

    assert isinstance(outcome, Aborted)
    assert (outcome.failure.kind, "committer words" in outcome.failure.message) == ("infrastructure", True)


def test_a_transaction_that_is_kept_for_later_is_shut(world: World) -> None:
    """Strictly in its turn: once `commit` has returned, its transaction does nothing more."""
    kept: list[CommitTransaction] = []
    assert isinstance(world.commit(kept.append), Committed)

    with pytest.raises(Exception, match="the commit of its batch has ended"):
        kept[0].execute("insert into words values ('late', 1)")

    assert world.query("select * from words") == []


def test_dead_letters_come_in_one_statement_with_the_batch(world: World) -> None:
    """The same database transaction as the good rows."""
    letters = tuple(dead_letter(f"/in/1.csv:{line}") for line in range(2, 7))

    assert isinstance(world.commit(lambda _: None, dead_letters=letters), Committed)

    assert world.query(
        "select dead_lettered, (select count(distinct d.xmin::text) from txtopo.dead_letter d) from txtopo.ledger "
        "where txid = 1"
    ) == [(5, 1)]


def test_an_id_is_new_in_the_first_batch_that_has_it(world: World) -> None:
    """Exactly once by message id: what a batch before has brought is passed on no more, and a table without a unique id
    is refused.
    """
    world.query("create table public.seen (word text unique); create table public.not_unique (word text)")
    passed: list[list[Any]] = []
    below = own(
        Words(lambda _t, rows, _c: passed.append([row.values for row in rows])),
        "below",
        WORDS,
        Subscription(source="words"),
    )
    handed = [words([("a", 1), ("b", 2), ("a", 3)]), words([("c", 1), ("b", 9)])]
    counting = CountCommitter("ids", ["word"], sums=["n"])
    counts = CommitterComponent(name="ids", bolt=counting, input=Subscription(source="words"), fields=WORDS)
    for table, expected in (("seen", Committed), ("not_unique", Aborted)):
        world.driver.committers = (own(NewIds(table, "word", "word string, n bigint")), below, counts)
        world.ledger.prepare_targets(world.driver.lead, world.driver.committers)
        for rows in handed:
            fence = world.ledger.read_fence()
            assert fence is not None
            txid = fence.last_txid + 1
            plan = world.driver.plan(txid) if txid in world.driver.digests else world.driver.ready(txid)
            assert isinstance(world.driver.commit(plan, results=(rows,)), expected)

    assert passed == [[("a", 1), ("b", 2)], [("c", 1)]]
    assert world.query("select word from seen order by 1") == [("a",), ("b",), ("c",)]
    # Counted once: what a second batch brings again is nowhere, contributions included.
    assert world.query("select word, count, n from ids order by 1") == [("a", 1, 1), ("b", 1, 2), ("c", 1, 1)]
    assert world.query("select txid, word from ids_contribution order by 1, 2") == [(1, "a"), (1, "b"), (2, "c")]
    assert world.query(
        "select txid, arrived, counted from txtopo.committer_count where committer = 'ids' order by 1"
    ) == [(1, 2, 2), (2, 1, 1)]
    assert world.query("select edge, sent, received from txtopo.edge_count where txid = 2 order by 1") == [
        ("words -> below", 1, 1),
        ("words -> ids", 1, 1),
    ]


class Clock:
    """Seconds that pass by a call of user code."""

    def __init__(self) -> None:
        self.now = 0.0

    def monotonic(self) -> float:
        """As `time.monotonic`."""
        return self.now


class Working(BasicBolt):
    """Takes time over each tuple; sees what the server thinks of the leader meanwhile, or has it ended."""

    outputs = ("word string", "n bigint")
    clock = Clock()
    seconds = 3.0
    look: Callable[[], Any] = staticmethod(lambda: None)
    seen: ClassVar[list[Any]] = []

    def execute(self, tup: Tuple, collector: Any) -> None:
        """Pass on."""
        self.seen.append(type(self).look())
        self.clock.now += self.seconds
        collector.emit(tup.values)


def _downstream(world: World, monkeypatch: pytest.MonkeyPatch) -> Callable[[], CommitOutcome]:
    """A batch of three rows with a bolt between two committers."""
    monkeypatch.setattr(downstream, "time", Working.clock)
    monkeypatch.setattr(downstream, "ROWS_PER_MESSAGE", 1)
    monkeypatch.setattr(Working, "seen", [])

    class Emits(Words):
        outputs = ("word string", "n bigint")

        def commit(self, transaction: CommitTransaction, rows: Any, collector: Any) -> int | None:
            for row in rows:
                collector.emit(row.values)
            return None

    read = Subscription(source="working", grouping="shuffle")
    counts = CommitterComponent(name="by_word", bolt=CountCommitter("by_word", ["word"]), input=read, fields=WORDS)
    outputs = {"default": Stream(WORDS)}
    world.driver.bolts = (
        TupleBoltComponent(
            name="working", bolt=Working(), inputs=(Subscription(source="words", grouping="shuffle"),), outputs=outputs
        ),
    )
    world.driver.committers = (own(Emits()), counts)
    world.ledger.prepare_targets(world.driver.lead, world.driver.committers)
    plan = world.driver.ready(1)
    return lambda: world.driver.commit(plan, results=(words([("a", 1), ("b", 2), ("c", 3)]),))


LEADER = "application_name = 'txtopo/flights/1' and state = 'idle in transaction'"


def test_the_server_hears_of_work_downstream_of_a_committer(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """P6: between two tuples the leader says that it is alive; nothing of the batch changes by it."""
    commit = _downstream(world, monkeypatch)
    monkeypatch.setattr(
        Working, "look", staticmethod(lambda: world.query(f"select query from pg_stat_activity where {LEADER}"))
    )

    assert isinstance(commit(), Committed)

    assert [query == "select 1" for [(query,)] in Working.seen] == [False, True, True]
    assert world.query("select word, count from by_word order by 1") == [("a", 1), ("b", 1), ("c", 1)]


@pytest.mark.parametrize(("seconds", "kind"), [(6.0, "data"), (2.0, "infrastructure")])
def test_a_turn_that_the_server_ended_is_the_fault_of_who_let_it_wait(
    world: World, monkeypatch: pytest.MonkeyPatch, seconds: float, kind: str
) -> None:
    """A call that takes longer than the server waits fails its batch by name; a connection that is gone sooner is no
    fault of the batch's.
    """
    commit = _downstream(world, monkeypatch)
    monkeypatch.setattr(Working, "seconds", seconds)
    kill = f"select pg_terminate_backend(pid, 5000) from pg_stat_activity where {LEADER}"
    monkeypatch.setattr(Working, "look", staticmethod(lambda: world.query(kill)))

    outcome = commit()

    assert isinstance(outcome, Aborted)
    assert outcome.failure.kind == kind
    said = "working let the database transaction of the batch wait for 6.0 s in one call"
    assert (said in outcome.failure.message) == (kind == "data")
    assert world.query("select count(*) from by_word") == [(0,)]
