"""Commands that give orders, seen from outside: a leader of few words that answers them, and whether anything at all
was changed.
"""

from __future__ import annotations

import contextlib
import json
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import psycopg2
from psycopg2 import sql

from txtopo.cli import main

_TABLES = """
select c.oid::regclass::text from pg_class c join pg_namespace n on n.oid = c.relnamespace
 where c.relkind = 'r' and n.nspname not in ('pg_catalog', 'information_schema') order by 1
"""


@dataclass(frozen=True)
class Said:
    """What a command ended with and wrote."""

    code: int
    out: str
    err: str

    @property
    def json(self) -> Any:
        """The one document on stdout."""
        return json.loads(self.out)


def runner(capsys: Any) -> Callable[..., Said]:
    """Runs the command line in this process."""

    def run(*arguments: str) -> Said:
        code = main(arguments)
        return Said(code, *capsys.readouterr())

    return run


def everything(dsn: str) -> dict[str, list[str]]:
    """Every row of every table but Postgres' own, and how far the numbers of the orders have come."""
    with contextlib.closing(psycopg2.connect(dsn)) as connection, connection.cursor() as cursor:
        cursor.execute(_TABLES)
        names = [row[0] for row in cursor.fetchall()]
        found = {}
        for name in names:
            schema, _, table = name.rpartition(".")
            cursor.execute(
                sql.SQL("select t::text from {} t order by 1").format(sql.Identifier(*filter(None, (schema, table))))
            )
            found[name] = [row[0] for row in cursor.fetchall()]
        cursor.execute("select sequencename, last_value::text from pg_sequences order by 1")
        found["sequences"] = [str(row) for row in cursor.fetchall()]
        return found


@contextlib.contextmanager
def answering(dsn: str, state: str, answer: str, *, after_s: float = 0.0) -> Iterator[None]:
    """Meanwhile the first order that has been open for so long is answered like this."""

    def wait_and_answer() -> None:
        with contextlib.closing(psycopg2.connect(dsn)) as connection:
            connection.autocommit = True
            with connection.cursor() as cursor:
                for _ in range(2000):
                    cursor.execute(
                        "update txtopo.request set state = %s, answer = %s, done_at = clock_timestamp() where state "
                        "= 'open'"
                        " and created_at <= clock_timestamp() - %s * interval '1 s' returning 1",
                        (state, answer, after_s),
                    )
                    if cursor.fetchone():
                        return
                    cursor.execute("select pg_sleep(0.01)")

    thread = threading.Thread(target=wait_and_answer, daemon=True)
    thread.start()
    try:
        yield
    finally:
        thread.join(30)
