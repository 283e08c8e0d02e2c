"""Fixtures of Postgres: one real server for all tests of a run, a database of its own for each test."""

from __future__ import annotations

import contextlib
import fcntl
import itertools
import os
import re
import shutil
import signal
import tempfile
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import psycopg2
import pytest
from psycopg2 import sql

from txtopo.local import postgres
from txtopo.local.postgres import LocalPostgres
from txtopo.local.processes import end

TEMPLATE = "txtopo_template"
ROOM = "shared_buffers = 128MB\n"
"""In which a copy of the template stays until it is dropped; in less of it, each copy is written to the disk first."""
MEMORY = Path("/dev/shm")
"""Linux keeps what lies here in memory. A service that is killed finds its files again, as it does on a disk."""
MEMORY_MIN = 4 << 30
"""Bytes that must be free there, and free in memory: so many services need less than half of it."""

PREFIX = "txtopo-tests-"
"""Of the names of folders with services."""
LEFTOVER_S = 20.0
"""Seconds that a service of a run that was killed has to end."""

_numbers = itertools.count(1)


@cache
def memory_with_room() -> Path | None:
    """MEMORY if there is room for the services of tests, else None: a container may have a few megabytes of it.

    A database for each test is three hundred files that are written, flushed and deleted: on a disk that takes longer
    than most tests.
    """
    try:
        room, memory = os.statvfs(MEMORY), Path("/proc/meminfo").read_text(encoding="ascii")
    except OSError:
        return None
    available = re.search(r"^MemAvailable: +(\d+) kB$", memory, re.MULTILINE)
    free = min(room.f_bavail * room.f_frsize, int(available[1]) << 10 if available else 0)
    return MEMORY if free >= MEMORY_MIN and os.access(MEMORY, os.W_OK | os.X_OK) else None


@contextlib.contextmanager
def folder_for_services() -> Iterator[Path]:
    """A folder with a short path that an unprivileged account may enter, in memory where there is room, deleted
    afterwards.

    Pytest's own `tmp_path` is neither: its parents are closed, and a socket's path must be short. While the folder is
    used, it is locked: what is found without a lock belongs to a run that was killed.
    """
    place = memory_with_room() or Path(tempfile.gettempdir())
    clear_leftovers(place)
    made = Path(tempfile.mkdtemp(prefix="txtopo-new-", dir=place))
    with _locked(made):
        # It gets its name when it is locked: in between it would be taken for a leftover.
        folder = made.rename(made.with_name(made.name.replace("txtopo-new-", PREFIX)))
        folder.chmod(0o711)
        try:
            yield folder
        finally:
            shutil.rmtree(folder, ignore_errors=True)


@contextlib.contextmanager
def _locked(folder: Path) -> Iterator[None]:
    """Raises OSError if another process, or another use in this one, holds the lock of the folder."""
    handle = os.open(folder, os.O_RDONLY)
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        yield
    finally:
        os.close(handle)


@cache
def clear_leftovers(place: Path) -> None:
    """End the services of runs that were killed, and delete their folders in this place. Once a process."""
    for folder in place.glob(f"{PREFIX}*"):
        with contextlib.suppress(OSError, ValueError), _locked(folder):
            for file in folder.rglob("pid"):
                is_postgres = (file.parent / "data" / "PG_VERSION").exists()
                by = LocalPostgres.crash_signal if is_postgres else signal.SIGKILL
                end(int(file.read_text(encoding="ascii")), str(file.parent), by=by, patience_s=LEFTOVER_S)
            shutil.rmtree(folder, ignore_errors=True)


def execute_as_superuser(dsn: str, *statements: sql.Composable) -> None:
    """Run statements outside a database transaction, as CREATE DATABASE wants it."""
    with contextlib.closing(psycopg2.connect(dsn)) as connection:
        connection.autocommit = True
        with connection.cursor() as cursor:
            for statement in statements:
                cursor.execute(statement)


def with_database(dsn: str, name: str) -> str:
    """The same server's URL with another database."""
    return f"{dsn.rsplit('/', 1)[0]}/{name}"


@contextlib.contextmanager
def fresh_database(server: LocalPostgres, template: str | None) -> Iterator[str]:
    """The URL of a new database, dropped afterwards even while somebody is connected."""
    name = f"t{os.getpid()}_{next(_numbers)}"
    create = sql.SQL("CREATE DATABASE {}").format(sql.Identifier(name))
    if template is not None:
        # Copied as files: the other way writes each page into the log as well.
        create += sql.SQL(" TEMPLATE {} STRATEGY file_copy").format(sql.Identifier(template))
    execute_as_superuser(server.dsn, create)
    try:
        yield with_database(server.dsn, name)
    finally:
        execute_as_superuser(
            server.dsn, sql.SQL("DROP DATABASE IF EXISTS {} WITH (FORCE)").format(sql.Identifier(name))
        )


@pytest.fixture(scope="session")
def postgres_server() -> Iterator[LocalPostgres]:
    """A real Postgres shared by the tests of this run. Do not stop or crash it: `own_postgres` is for that."""
    with folder_for_services() as folder:
        server = LocalPostgres(folder / "postgres")
        try:
            with pytest.MonkeyPatch.context() as patch:
                patch.setattr(postgres, "SETTINGS", postgres.SETTINGS + ROOM)
                server.start()
            yield server
        finally:
            server.remove()


def make_template(server: LocalPostgres) -> None:
    """Make the database TEMPLATE with the newest schema, to be copied and for nothing else."""
    from txtopo.committers.postgres.migrate import migrate  # only now: tests without a schema must not need it

    execute_as_superuser(server.dsn, sql.SQL("CREATE DATABASE {}").format(sql.Identifier(TEMPLATE)))
    migrate(with_database(server.dsn, TEMPLATE))
    # A connection that the migration left in a pool would make every copy fail.
    execute_as_superuser(
        server.dsn,
        sql.SQL("ALTER DATABASE {} WITH ALLOW_CONNECTIONS false").format(sql.Identifier(TEMPLATE)),
        sql.SQL("SELECT pg_terminate_backend(pid, 5000) FROM pg_stat_activity WHERE datname = {}").format(
            sql.Literal(TEMPLATE)
        ),
    )


@pytest.fixture(scope="session")
def migrated_template(postgres_server: LocalPostgres) -> str:
    """Name of a database with the newest schema, migrated once a run and copied for each test."""
    make_template(postgres_server)
    return TEMPLATE


@pytest.fixture
def database(postgres_server: LocalPostgres, migrated_template: str) -> Iterator[str]:
    """URL of a database of this test's own, with txtopo's schema and nothing in it."""
    with fresh_database(postgres_server, migrated_template) as dsn:
        yield dsn


@pytest.fixture
def empty_database(postgres_server: LocalPostgres) -> Iterator[str]:
    """URL of a database of this test's own, without any schema."""
    with fresh_database(postgres_server, None) as dsn:
        yield dsn


@pytest.fixture
def own_postgres() -> Iterator[LocalPostgres]:
    """A running Postgres of this test's own, free to be stopped, crashed and restarted; it has no schema."""
    with folder_for_services() as folder, LocalPostgres(folder / "postgres") as server:
        try:
            yield server
        finally:
            server.remove()


@pytest.fixture(scope="module")
def postgres_of_module() -> Iterator[LocalPostgres]:
    """See `postgres_to_crash`."""
    with folder_for_services() as folder, LocalPostgres(folder / "postgres") as server:
        make_template(server)
        try:
            yield server
        finally:
            server.remove()


@pytest.fixture
def postgres_to_crash(postgres_of_module: LocalPostgres) -> LocalPostgres:
    """A Postgres of this module's own, free to be stopped, crashed and restarted. Each test finds it running."""
    return postgres_of_module.start()


@pytest.fixture
def database_to_crash(postgres_to_crash: LocalPostgres) -> Iterator[str]:
    """URL of a database of this test's own on `postgres_to_crash`, with txtopo's schema and nothing in it."""
    with fresh_database(postgres_to_crash, TEMPLATE) as dsn:
        yield dsn
