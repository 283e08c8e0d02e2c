"""A DSN that names a real hot standby."""

from __future__ import annotations

import contextlib
import signal
import subprocess
from pathlib import Path

import psycopg2
import pytest

from tests.kit.applications import orders_topology
from tests.kit.driver import in_process
from tests.kit.drivers import wait_until
from txtopo.app import drive
from txtopo.cli import main
from txtopo.committers.postgres.connect import check_server, make_engine
from txtopo.committers.postgres.migrate import migrate
from txtopo.config import Settings
from txtopo.errors import PostgresUnavailable
from txtopo.local.postgres import LocalPostgres


def _is_there(dsn: str) -> bool:
    try:
        with contextlib.closing(psycopg2.connect(dsn, connect_timeout=5)):
            return True
    except psycopg2.OperationalError:
        return False


def test_a_hot_standby_is_refused_by_name_until_it_is_promoted(own_postgres: LocalPostgres, tmp_path: Path) -> None:
    """P7: it answers every SELECT, so the first write would fail with a riddle. A failover may promote it, so it is 3
    and not 2. Reading commands read.
    """
    migrate(own_postgres.dsn)
    engine = make_engine(own_postgres.dsn, "test", pooled=False)
    check_server(engine)
    own_postgres.stop()
    account = own_postgres._run_as
    signal_file = own_postgres.data / "standby.signal"
    signal_file.touch()
    signal_file.chmod(0o666)
    port = own_postgres.port
    server = subprocess.Popen(
        own_postgres._command(port),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        cwd=own_postgres.place,
        user=account.uid if account else None,
        group=account.gid if account else None,
        extra_groups=[] if account else None,
    )
    try:
        wait_until(lambda: _is_there(own_postgres.dsn), "the start of the standby")

        with pytest.raises(PostgresUnavailable, match=r"is a standby.* target_session_attrs=read-write") as refused:
            check_server(engine)
        assert refused.value.exit_code == 3
        settings = Settings(dsn=own_postgres.dsn, zookeeper="127.0.0.1:1")
        with pytest.raises(PostgresUnavailable, match="is a standby"):
            drive(orders_topology(tmp_path), "app.py:topology", settings, in_process)
        assert main(("status", "--dsn", own_postgres.dsn)) == 0

        with contextlib.closing(psycopg2.connect(own_postgres.dsn)) as connection, connection.cursor() as cursor:
            cursor.execute("select pg_promote()")
        check_server(engine)
    finally:
        server.send_signal(signal.SIGINT)
        server.wait(30)
