"""What the audit expects of schema `txtopo` is what the migrations make of it, to the last trigger."""

from __future__ import annotations

import contextlib
from pathlib import Path

import psycopg2

from txtopo.audit.check_schema import DEFINITIONS
from txtopo.audit.made_schema import schema_at

from .test_migrations import REVISIONS

FUNCTIONS = "select proname, prosrc from pg_proc where pronamespace = 'txtopo'::regnamespace"


def test_the_audit_expects_what_the_migrations_make(database: str, tmp_path: Path) -> None:
    """Promise: nothing is forgotten in what is compared. After a new migration put the file that the failure names in
    place of `made_schema.tsv`.
    """
    expected = schema_at(REVISIONS[-1])
    with contextlib.closing(psycopg2.connect(database)) as connection, connection.cursor() as cursor:
        cursor.execute(FUNCTIONS)
        functions = dict(cursor.fetchall())
        cursor.execute("set search_path = pg_catalog")
        cursor.execute(DEFINITIONS)
        found = {(table, made) for table, made, _ in cursor.fetchall()}
        cursor.execute("select relname from pg_class where relnamespace = 'txtopo'::regnamespace and relkind = 'r'")
        tables = {name for (name,) in cursor.fetchall()}

    anew = tmp_path / "made_schema.tsv"
    anew.write_text("".join(f"{table}\t{made}\n" for table, made in sorted(found)))
    assert expected is not None
    assert expected.functions == functions
    assert expected.definitions == found, f"put {anew} in place of made_schema.tsv"
    assert expected.tables == tables - {"schema_version"}
    assert schema_at("9999") is None
    assert schema_at(REVISIONS[-2]) is None
