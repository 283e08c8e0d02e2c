"""Large results with everything real: the driver's memory, and where the password of the tasks is: `make attack`."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import psycopg2
import pytest

from tests.kit.drivers import DriverProcess, World, jvm_of, wait_until
from tests.kit.fix_postgres import fresh_database
from txtopo.committers.postgres.migrate import migrate
from txtopo.local.postgres import LocalPostgres

pytestmark = [pytest.mark.attack, pytest.mark.slow, pytest.mark.spark, pytest.mark.postgres, pytest.mark.zookeeper]
DRIVER = ("tests.kit.large_driver",)
LONG_S = 900.0
FEW, MANY = 100_000, 5_000_000
ROOM_MIB = 100
"""The memory of a driver differs by so much from run to run."""
PASSWORD = "kanarienvogel-4711"


def write(folder: Path, rows: int) -> None:
    """One file, one batch: as many keys as rows."""
    with (folder / "rows.csv").open("w", encoding="utf-8") as file:
        file.write("id,pieces\n")
        for start in range(0, rows, 10_000):
            file.write("".join(f"{number},{number % 7}\n" for number in range(start, min(rows, start + 10_000))))


def peak_mib(driver: DriverProcess) -> int:
    """The largest memory of the driver."""
    found = re.search(r"peak: driver (\d+) MiB", driver.output())
    assert found is not None, driver.output()
    return int(found[1])


@contextmanager
def another(world: World, server: LocalPostgres, template: str) -> Iterator[World]:
    """The same with another database and folder, below the same root."""
    folder, logs = world.folder.with_name("many"), world.folder.with_name("logs")
    folder.mkdir()
    logs.mkdir()
    with fresh_database(server, template) as dsn:
        made = World(dsn, f"{world.zookeeper}/many", folder, logs)
        yield made
        made.close()


@pytest.mark.timeout(2 * LONG_S)
@pytest.mark.parametrize("committer", ["count", "append"])
def test_the_drivers_memory_does_not_grow_with_the_keys_of_a_batch(
    world: World, postgres_server: LocalPostgres, migrated_template: str, committer: str
) -> None:
    """5,000,000 result rows in one batch need the memory that 100,000 need; both are counted right."""
    peaks = []
    with another(world, postgres_server, migrated_template) as other:
        for rows, at in ((FEW, world), (MANY, other)):
            write(at.folder, rows)
            driver = at.start(
                module=DRIVER, TXTOPO_STAGING_DSN=at.dsn, TXTOPO_RESULT_ROWS_MAX="50000", DRIVER_COMMITTER=committer
            )
            assert driver.wait(LONG_S) == 0, driver.output()
            print(driver.output().splitlines()[-1])
            peaks.append(peak_mib(driver))
            table = "counts" if committer == "count" else "kept"
            assert at.query(f"select count(*), sum(pieces), max(id) from {table}") == [
                (rows, sum(number % 7 for number in range(rows)), rows - 1)
            ]
            assert at.query("select relname from pg_class where relnamespace = 'txtopo_staging'::regnamespace") == []
    assert peaks[1] < peaks[0] + ROOM_MIB, peaks


@pytest.fixture
def guarded(own_postgres: LocalPostgres, zookeeper_root: str, tmp_path: Path) -> Iterator[World]:
    """A server that asks the role of the tasks for a password, by SCRAM."""
    migrate(own_postgres.dsn)
    rules = own_postgres.data / "pg_hba.conf"
    rules.write_text(f"host all stager 127.0.0.1/32 scram-sha-256\n{rules.read_text()}")
    connection = psycopg2.connect(own_postgres.dsn)
    connection.autocommit = True
    with connection.cursor() as cursor:
        for sql in (
            f"set password_encryption = 'scram-sha-256'; create role stager login password '{PASSWORD}'",
            "create schema txtopo_staging; grant usage on schema txtopo_staging to stager",
            "alter default privileges in schema txtopo_staging grant insert on tables to stager",
            "select pg_reload_conf()",
        ):
            cursor.execute(sql)
    connection.close()
    (tmp_path / "in").mkdir()
    made = World(own_postgres.dsn, zookeeper_root, tmp_path / "in", tmp_path)
    yield made
    made.close()


def shown(pid: int) -> str:
    """Arguments and environment of a process and its descendants."""
    found, parents = "", {pid}
    for _ in range(4):  # driver, JVM, daemon, workers
        for folder in Path("/proc").glob("[0-9]*"):
            with suppress(OSError):
                if int((folder / "stat").read_text().rpartition(")")[2].split()[1]) in parents:
                    parents.add(int(folder.name))
    for one in parents:
        for name in ("cmdline", "environ"):
            with suppress(OSError):
                found += Path(f"/proc/{one}/{name}").read_bytes().decode(errors="replace")
    return found


@pytest.mark.timeout(LONG_S)
def test_the_password_of_the_tasks_is_nowhere_to_be_seen(guarded: World, tmp_path: Path) -> None:
    """Tasks log in by SCRAM with the password file of their host, through a service: it is in no argument, environment,
    setting, plan, log or event log, and in no table. With a wrong password the run says so, without it.
    """
    server = guarded.dsn.rpartition("@")[2]
    host, _, port = server.partition("/")[0].partition(":")
    passwords, services, events = tmp_path / "passwords", tmp_path / "services", tmp_path / "events"
    passwords.write_text(f"{host}:{port}:*:stager:{PASSWORD}\n")
    passwords.chmod(0o600)
    services.write_text(f"[tasks]\nhost={host}\nport={port}\ndbname=postgres\nuser=stager\n")
    events.mkdir()
    write(guarded.folder, 300)

    def start(passes: Path) -> DriverProcess:
        return guarded.start(
            module=DRIVER,
            PGPASSFILE=str(passes),
            PGSERVICEFILE=str(services),
            TXTOPO_STAGING_DSN="service=tasks",
            TXTOPO_RESULT_ROWS_MAX="20",
            TXTOPO_CONF=f"spark.eventLog.enabled=true spark.eventLog.dir=file://{events}",
            TXTOPO_LOG_FOLDER=str(tmp_path / "logs"),
        )

    (tmp_path / "wrong").write_text(f"*:*:*:*:{PASSWORD}-no\n")
    (tmp_path / "wrong").chmod(0o600)
    wrong = start(tmp_path / "wrong")
    wait_until(lambda: "password authentication failed" in wrong.output(), "the refused login", LONG_S)
    seen = shown(wrong.process.pid)
    wrong.process.kill()
    wrong.wait()
    right = start(passwords)
    while right.process.poll() is None:
        if jvm_of(right.process.pid) is not None:
            seen += shown(right.process.pid)

    assert right.wait(LONG_S) == 0, right.output()
    assert guarded.query("select count(*), sum(n) from counts") == [(300, 300)]
    assert guarded.query("select count(*) from pg_authid where rolname = 'stager' and rolpassword like 'SCRAM%'")[0][0]
    assert "spark" in seen and "PGPASSFILE" in seen, "processes were looked at"
    assert PASSWORD not in seen
    told = [right.log, wrong.log, *(path for path in tmp_path.rglob("*") if path.is_file())]
    own = {passwords, tmp_path / "wrong"}
    assert any(path.is_relative_to(events) for path in told), "there is an event log"
    for path in (path for path in told if path not in own):
        assert PASSWORD.encode() not in path.read_bytes(), path
    for (stored,) in guarded.query("select t::text from txtopo.topology t union all select p::text from txtopo.plan p"):
        assert PASSWORD not in stored
