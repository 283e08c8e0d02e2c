"""Every class of SQLSTATE, raised by a trigger at every statement of a commit: waited out, data with its words, or a
halt. Nothing hangs, nothing is left out.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import psycopg2
import pytest

from tests.contracts.ledger_driver import ROWS, Driver, Row, claim_for, committer, dead_letter, rejected_row
from tests.kit.fix_postgres import fresh_database
from tests.kit.meanings import meaning_of
from txtopo.committers.postgres.ledger import PostgresLedger
from txtopo.committers.postgres.sqlstates import TABLE, Fault, Owner, verdict_on
from txtopo.committers.protocol.fault_proof import prove_commit
from txtopo.core.values import Aborted, CommitOutcome, Committed, EdgeCount, Failure, TransactionAttempt
from txtopo.local.postgres import LocalPostgres
from txtopo.ports import AttemptStart

CODES = sorted(
    {f"{code:0<5}".replace("00000", "00001") for code in TABLE} | {"42703", "42883", "54000", "08006", "ZZ999"}
)
FEW = [
    "08006",
    "22003",
    "25006",
    "40001",
    "42703",
    "53100",
    "54000",
    "55P03",
    "57014",
    "57P01",
    "P0001",
    "XX000",
    "ZZ999",
]
"""One of each kind of verdict, for statements that go the same way as another."""
PLANT = """
create table public.planted (place text, code text);
create function public.plant() returns trigger language plpgsql as $$ declare found text; begin
  select code into found from public.planted where place = tg_argv[0];
  if found is not null then raise exception 'planted at %', tg_argv[0] using errcode = found, detail = 'the details'; end if;
  return new; end $$;
create trigger planted before insert or update on public.flights_count for each row execute function public.plant('target');
create trigger planted before insert on public.flights_count_contribution for each row execute function public.plant('contribution');
create trigger planted before insert on txtopo.committer_count for each row execute function public.plant('committer_count');
create trigger planted before insert on txtopo.edge_count for each row execute function public.plant('edge_count');
create trigger planted before insert on txtopo.rejected_row for each row execute function public.plant('rejected_row');
create trigger planted before insert on txtopo.dead_letter for each row execute function public.plant('dead_letter');
create trigger planted_row before insert on txtopo.ledger for each row execute function public.plant('ledger row');
create trigger planted_final before update on txtopo.ledger for each row execute function public.plant('finish');
create trigger planted before update of last_txid on txtopo.fence for each row execute function public.plant('fence');
create trigger planted_begin before insert on txtopo.attempt for each row execute function public.plant('begin');
create trigger planted_end before update on txtopo.attempt for each row execute function public.plant('attempt');
create trigger planted before insert on txtopo.plan for each row execute function public.plant('plan');
create constraint trigger planted_late after insert or update on public.flights_count deferrable initially deferred
  for each row execute function public.plant('COMMIT');
"""  # noqa: E501
SENT: dict[str, Owner] = {
    "target": Owner.TARGET,
    "contribution": Owner.TARGET,
    "committer_count": Owner.TARGET,
    "edge_count": Owner.LEDGER,
    "rejected_row": Owner.TARGET,
    "dead_letter": Owner.TARGET,
    "ledger row": Owner.TARGET,
    "finish": Owner.LEDGER,
    "fence": Owner.LEDGER,
    "attempt": Owner.LEDGER,
    "COMMIT": Owner.TARGET,
}
"""Place -> whose statement an error there is taken for. A trigger says no table: the ledger row travels with a target's
rows, edges with the finish.
"""
WORDS = {
    Fault.STORE: "waits",
    Fault.LOCK: "waits",
    Fault.TIME: "waits",
    Fault.ONCE: "waits",
    Fault.BROKEN: "data",
}
"""A trigger breaks no connection (W1)."""


class World:
    """A batch that is ready to commit, again and again, and an error that waits for it somewhere."""

    def __init__(self, dsn: str) -> None:
        self.beside = psycopg2.connect(dsn)
        self.beside.autocommit = True
        self.ledger = PostgresLedger(dsn, "flights")
        self.driver = Driver(self.ledger, self.ledger.claim_fence(claim_for()), (committer(),))
        self.ledger.prepare_targets(self.driver.lead, self.driver.committers)
        self.plan = self.driver.ready(1)
        self.query(PLANT)

    def query(self, statement: str, *values: Any) -> list[Any]:
        """Run anything beside."""
        with self.beside.cursor() as cursor:
            cursor.execute(statement, values or None)
            return list(cursor.fetchall()) if cursor.description else []

    def plant(self, place: str, code: str) -> None:
        """From now on this statement fails with this code; no other does."""
        self.query("delete from public.planted; insert into public.planted values (%s, %s)", place, code)

    def commit(self, rows: list[Row] | None = None) -> CommitOutcome:
        """One try at the commit, with something of each kind in it."""
        more = {
            "rejected": 1,
            "rejected_rows": (rejected_row(3),),
            "dead_letters": (dead_letter(),),
            "edges": (EdgeCount(edge="a>b", sent=2, received=2),),
        }
        return self.driver.commit(self.plan, ROWS if rows is None else rows, **more)


@pytest.fixture(scope="module")
def world(postgres_server: LocalPostgres, migrated_template: str) -> Iterator[World]:
    """One for all: nothing is ever committed in it."""
    with fresh_database(postgres_server, migrated_template) as dsn:
        made = World(dsn)
        yield made
        made.ledger.close()
        made.beside.close()


def expected(code: str, owner: Owner) -> str:
    """By the table."""
    verdict = verdict_on(code, owner)
    return WORDS.get(verdict, verdict.value)


@pytest.mark.parametrize("place", SENT)
def test_an_error_of_any_class_at_any_statement_has_one_meaning_and_its_words(world: World, place: str) -> None:
    """W1 to W3: by the owner of the statement; nothing is committed, and the batch is neither waited for nor left out
    in silence.
    """
    found, wanted = {}, {}
    for code in CODES if place in ("target", "finish", "COMMIT") else FEW:
        world.plant(place, code)
        meaning, words = meaning_of(world.commit)
        assert f"planted at {place}" in words, (code, words)
        if meaning == "unknown":
            assert isinstance(world.ledger.resolve(world.driver.lead, [(1, world.plan.digest)])[0], Aborted)
        found[code] = meaning
        wanted[code] = expected(code, SENT[place])
        if place == "COMMIT" and (code[:2] in ("08", "XX") or code in ("40003", "57P01", "57P02", "57P03")):
            wanted[code] = "unknown"  # R7

    assert found == wanted
    assert world.query("select last_txid from txtopo.fence where topology = 'flights'") == [(0,)]


@pytest.mark.parametrize("place", ["plan", "begin", "attempt"])
def test_an_error_outside_a_commit_is_never_a_batchs_fault(world: World, place: str) -> None:
    """The mirror of a plan, the begin and the end of an attempt: waited out, or a halt."""
    lead, attempt = world.driver.lead, TransactionAttempt(1, 0)
    failure = Failure(kind="data", message="no")
    plan = world.driver.plan(2)
    calls: dict[str, Callable[[], Any]] = {
        "plan": lambda: world.driver.mirror(plan),
        "begin": lambda: world.ledger.begin_attempts(lead, [AttemptStart(attempt=TransactionAttempt(1, 1))]),
        "attempt": lambda: world.ledger.end_attempt(lead, attempt, "failed", failure),
    }
    found = {}
    for code in FEW:
        world.plant(place, code)
        found[code], words = meaning_of(calls[place])
        assert f"planted at {place}" in words

    assert found == {code: expected(code, Owner.LEDGER) for code in FEW}


def test_a_key_that_is_too_long_is_data_and_is_named(world: World) -> None:
    """A stack trace or an address in a key column: the batch's own fault, with committer, column and value."""
    world.plant("nowhere", "P0001")
    value = "".join(chr(0x4E00 + 7919 * number % 20000) for number in range(3000))

    outcome = world.commit([(value, "JFK", 10, 5)])

    assert isinstance(outcome, Aborted)
    assert (outcome.failure.kind, outcome.failure.component) == ("data", "by_route")
    assert "SQLSTATE 54000" in outcome.failure.message
    assert f"the longest key has 9002 bytes, carrier = {value[:40]!r}…" in outcome.failure.message


def test_the_servers_details_stay_with_the_attempt(world: World) -> None:
    """They have values in them: not in the message, but where `show` finds them. The cause has none."""
    world.plant("target", "23514")

    outcome = world.commit()

    assert isinstance(outcome, Aborted)
    assert (outcome.failure.detail, outcome.failure.cause) == ("the details", "23514 in by_route")


def test_what_passes_on_a_fresh_connection_gets_one(world: World) -> None:
    """W5: a prepared statement that a pooler has lost, a cached plan: the next try is not made on the connection that
    has it.
    """

    def server() -> list[Any]:
        with world.ledger.session(world.driver.lead) as session:
            session.lock_fence()
            return world.query("select pid from pg_stat_activity where application_name = 'txtopo/flights/1'")

    servers = [server()]
    for code in ("40001", "26000"):
        world.plant("target", code)
        meaning_of(world.commit)
        servers.append(server())

    assert servers[0] == servers[1] != servers[2]


ON_ROWS = "for each row execute function public.refuse()"
CHANGES = {
    "column dropped": ("drop column distance", "halt", "other columns: distance numeric is missing"),
    "type changed": ("alter column distance type text using distance::text", "halt", "distance is text, not numeric"),
    "key dropped": ("drop constraint flights_count_carrier_origin_key", "halt", "needs one row for each key"),
    "new column that must be there": (
        "add column extra int not null default 0; alter table public.flights_count alter column extra drop default",
        "data",
        "extra",
    ),
    "new constraint": ("add constraint small check (distance < 0) not valid", "data", "small"),
    "trigger of the user's": (
        f"drop column if exists nothing; create trigger t before insert on public.flights_count {ON_ROWS}",
        "data",
        "refused",
    ),
    "deferred trigger of the user's": (
        (
            f"drop column if exists nothing; create constraint trigger t after insert or update on "
            f"public.flights_count "
            f"deferrable initially deferred {ON_ROWS}"
        ),
        "data",
        "refused",
    ),
}


@pytest.mark.parametrize("change", CHANGES)
def test_a_change_of_the_table_is_told_from_a_batch_that_does_not_fit(database: str, change: str) -> None:
    """W4: whatever somebody changed, the batch that meets it is not left out: what counted before would fail too."""
    world = World(database)
    committed = world.commit()
    statement, kind, words = CHANGES[change]
    world.query(
        "create function public.refuse() returns trigger language plpgsql as $$ begin raise exception 'refused'; end $$"
    )
    world.query(f"alter table public.flights_count {statement}")
    plan = world.driver.ready(2)

    outcome = world.driver.commit(plan)
    proof = prove_commit(world.ledger, world.driver.lead, plan, world.driver.processed(2), world.driver.topology)
    world.ledger.close()
    world.beside.close()

    assert isinstance(committed, Committed) and isinstance(outcome, Aborted)
    assert (outcome.failure.kind, words in outcome.failure.message) == (kind, True), outcome.failure.message
    assert proof is not None and proof.kind != "infrastructure"
