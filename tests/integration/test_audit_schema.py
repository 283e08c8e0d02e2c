"""What the audit expects of schema `txtopo` is what the migrations make of it, to the last trigger."""

from __future__ import annotations

import contextlib

import psycopg2

from txtopo.audit.made_schema import schema_at

from .test_migrations import REVISIONS

CATALOG = {
    "functions": "select proname, prosrc from pg_proc where pronamespace = 'txtopo'::regnamespace",
    "triggers": """select c.relname, t.tgname, p.proname, t.tgtype, t.tginitdeferred, t.tgqual is not null from pg_trigger t join pg_class c on c.oid = t.tgrelid
                   join pg_proc p on p.oid = t.tgfoid where c.relnamespace = 'txtopo'::regnamespace and not t.tgisinternal""",
    "constraints": """select c.relname, n.contype::text, count(*) from pg_constraint n join pg_class c on c.oid = n.conrelid
                      where c.relnamespace = 'txtopo'::regnamespace and n.contype in ('p', 'u', 'c', 'f') and c.relname <> 'schema_version' group by 1, 2""",
    "indexes": """select c.relname from pg_index i join pg_class c on c.oid = i.indexrelid
                  where c.relnamespace = 'txtopo'::regnamespace and not exists (select from pg_constraint n where n.conindid = i.indexrelid)""",
}


def test_the_audit_expects_what_the_migrations_make(database: str) -> None:
    """Promise: nothing is forgotten in what is compared: a migration in words that the audit does not read shows here."""
    expected = schema_at(REVISIONS[-1])
    with contextlib.closing(psycopg2.connect(database)) as connection, connection.cursor() as cursor:
        found = {}
        for what, statement in CATALOG.items():
            cursor.execute(statement)
            found[what] = list(cursor.fetchall())

    assert expected is not None
    assert expected.functions == dict(found["functions"])
    triggers = {(table, name): (one.function, one.kind, one.deferred, one.conditional) for (table, name), one in expected.triggers.items()}  # fmt: skip
    assert triggers == {(table, name): tuple(rest) for table, name, *rest in found["triggers"]}
    assert expected.constraints == {(table, kind): number for table, kind, number in found["constraints"]}
    assert expected.indexes == {name for (name,) in found["indexes"]}
    assert schema_at("9999") is None
