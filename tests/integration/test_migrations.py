"""The schema: brought up once, by whoever comes first, the same online and as SQL."""

from __future__ import annotations

import contextlib
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import psycopg2
import pytest
from alembic import command
from psycopg2 import sql

import txtopo
from tests.kit.filled_ledger import FilledLedger
from tests.kit.fix_postgres import execute_as_superuser, with_database
from txtopo.committers.postgres.connect import check_server, make_engine
from txtopo.committers.postgres.ledger import PostgresLedger
from txtopo.committers.postgres.migrate import migrate, migration_sql, pending
from txtopo.errors import ConfigurationError
from txtopo.local.postgres import LocalPostgres
from txtopo.reports.read import read_batch, read_topologies, reading

REVISIONS = ["0001", "0002", "0003", "0004", "0005", "0006", "0007", "0008", "0009", "0010", "0011", "0012"]
OLD_REVISIONS = ["0001", "0002", "0003"]
"""Of release 0.1.0."""
CATALOG = """
select 'column', table_name || '.' || column_name, data_type || ' ' || is_nullable || ' ' || coalesce(column_default, '')
  from information_schema.columns where table_schema = 'txtopo'
union all select 'constraint', conrelid::regclass::text || '.' || conname, pg_get_constraintdef(oid) from pg_constraint where connamespace = 'txtopo'::regnamespace
union all select 'index', indexname, indexdef from pg_indexes where schemaname = 'txtopo'
union all select 'trigger', tgrelid::regclass::text || '.' || tgname, pg_get_triggerdef(oid) from pg_trigger
  where not tgisinternal and tgrelid in (select oid from pg_class where relnamespace = 'txtopo'::regnamespace)
union all select 'function', proname, pg_get_functiondef(oid) from pg_proc where pronamespace = 'txtopo'::regnamespace
union all select 'revision', version_num, '' from txtopo.schema_version
order by 1, 2, 3
"""  # noqa: E501


def catalog(dsn: str) -> list[tuple[str, ...]]:
    """Everything in schema txtopo, as text."""
    with contextlib.closing(psycopg2.connect(dsn)) as connection, connection.cursor() as cursor:
        cursor.execute(CATALOG)
        return list(cursor.fetchall())


def test_migrating_twice_changes_nothing(empty_database: str) -> None:
    """`migrate` applies what is missing and says what it was."""
    assert pending(empty_database) == REVISIONS

    assert migrate(empty_database) == REVISIONS

    assert pending(empty_database) == []
    assert migrate(empty_database) == []


def test_two_may_migrate_at_once(empty_database: str) -> None:
    """Whoever comes second waits and finds it done."""
    with ThreadPoolExecutor(3) as pool:
        applied = list(pool.map(migrate, [empty_database] * 3))

    assert sorted(applied) == [[], [], REVISIONS]


def test_sql_for_an_administrator_makes_the_same_schema(database: str, empty_database: str) -> None:
    """What `migrate --sql` prints is what `migrate` does."""
    with contextlib.closing(psycopg2.connect(empty_database)) as connection, connection.cursor() as cursor:
        cursor.execute(migration_sql())
        connection.commit()

    assert catalog(empty_database) == catalog(database)
    assert pending(empty_database) == []


def test_what_an_earlier_release_left_is_read_after_migrating(
    empty_database: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Attempts that were written before they had inputs, and a halt from before it had a next command, are shown as
    they are.
    """
    upgrade = command.upgrade
    with monkeypatch.context() as release:
        release.setattr(command, "upgrade", lambda config, _: upgrade(config, OLD_REVISIONS[-1]))
        assert migrate(empty_database) == OLD_REVISIONS
    with contextlib.closing(FilledLedger(empty_database)) as ledger:
        ledger.batch(1)
        ledger.attempt(2, 0, "failed", kind="data", message="no")
        ledger.lead("halted", planned_txid=2, halted_txid=2, reason="batch 2 of flights: 3 attempts failed")

    assert migrate(empty_database) == REVISIONS[len(OLD_REVISIONS) :]

    with reading(empty_database) as connection:
        (status,) = read_topologies(connection, "flights")
        batch = read_batch(connection, "flights", 2)
    assert (status.state, status.advice, status.last_txid) == ("HALTED", None, 1)
    assert status.next_commands[0] == "txtopo show flights 2"
    assert batch is not None
    assert (batch.state, batch.files, batch.metadata) == ("failed", (), {})


def test_failed_migration_leaves_nothing(empty_database: str) -> None:
    """All of it is one database transaction."""
    with contextlib.closing(psycopg2.connect(empty_database)) as connection, connection.cursor() as cursor:
        cursor.execute("create schema txtopo; create table txtopo.target (x int)")
        connection.commit()

        with pytest.raises(Exception, match="already exists"):
            migrate(empty_database)

        cursor.execute("select count(*) from pg_tables where schemaname = 'txtopo'")
        assert cursor.fetchone() == (1,)


def test_missing_schema_is_a_clear_error(empty_database: str) -> None:
    """A database that was never migrated is no outage to wait out."""
    with pytest.raises(ConfigurationError, match="txtopo migrate"):
        PostgresLedger(empty_database, "flights").read_fence()


def test_a_database_of_a_newer_release_asks_for_an_upgrade_of_txtopo(empty_database: str) -> None:
    """Promise: `txtopo migrate` is no advice where this release is the old one; nothing is changed."""
    migrate(empty_database)
    with contextlib.closing(psycopg2.connect(empty_database)) as connection, connection, connection.cursor() as cursor:
        cursor.execute("update txtopo.schema_version set version_num = '9999'")

    for call in (pending, migrate):
        with pytest.raises(ConfigurationError, match=r"newer release .* at revision 9999, .*; upgrade txtopo"):
            call(empty_database)


def test_database_without_an_encoding_is_refused(postgres_server: LocalPostgres) -> None:
    """P14: SQL_ASCII databases are refused."""
    name = sql.Identifier("ascii_only")
    create = sql.SQL("create database {} encoding 'SQL_ASCII' template template0 lc_collate 'C' lc_ctype 'C'").format(
        name
    )
    execute_as_superuser(postgres_server.dsn, create)
    try:
        with pytest.raises(ConfigurationError, match="UTF8"):
            migrate(with_database(postgres_server.dsn, "ascii_only"))
    finally:
        execute_as_superuser(postgres_server.dsn, sql.SQL("drop database {} with (force)").format(name))


def test_server_that_may_lose_commits_is_refused(own_postgres: LocalPostgres) -> None:
    """P8: start-up assertions."""
    engine = make_engine(own_postgres.dsn, "test", pooled=False)
    execute_as_superuser(
        own_postgres.dsn, sql.SQL("alter system set full_page_writes = off"), sql.SQL("select pg_reload_conf()")
    )

    with contextlib.closing(psycopg2.connect(own_postgres.dsn)) as connection, connection.cursor() as cursor:
        cursor.execute("select current_setting('full_page_writes'), current_setting('fsync')")
        settings = cursor.fetchone()

    assert "off" in settings
    with pytest.raises(ConfigurationError, match="crash loses"):
        check_server(engine)


def test_good_server_passes(database: str) -> None:
    """A server as it comes is good enough, or says what is not."""
    with contextlib.closing(psycopg2.connect(database)) as connection, connection.cursor() as cursor:
        cursor.execute("select current_setting('fsync')")
        is_durable = cursor.fetchone() == ("on",)

    if is_durable:
        check_server(make_engine(database, "test", pooled=False))
    else:
        with pytest.raises(ConfigurationError, match="fsync"):
            check_server(make_engine(database, "test", pooled=False))


def test_migrations_lie_inside_the_package() -> None:
    """The wheel carries them."""
    folder = (
        Path(txtopo.__file__ or next(iter(txtopo.__path__))).parent / "migrations"
        if txtopo.__file__
        else Path(next(iter(txtopo.__path__))) / "migrations"
    )

    assert (folder / "env.py").exists()
    assert [path.stem[:4] for path in sorted((folder / "versions").glob("[0-9]*.sql"))] == REVISIONS
