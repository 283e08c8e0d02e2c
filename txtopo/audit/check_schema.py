"""Compares schema `txtopo` with what the migrations made of it: whoever wants to change the ledger first switches off what guards it."""

from __future__ import annotations

from sqlalchemy import Connection, text

from txtopo.audit.made_schema import Schema, schema_at
from txtopo.audit.text import clip
from txtopo.audit.verdicts import Findings

CHECK = "schema.guards"
DEFINITION_CHARS_MAX = 300
"""Of a definition in a message."""
_REVISION = "select version_num from txtopo.schema_version"
_FUNCTIONS = "select proname, prosrc from pg_proc where pronamespace = 'txtopo'::regnamespace"
DEFINITIONS = """
select c.relname, pg_get_constraintdef(n.oid) as made, null as trigger from pg_constraint n join pg_class c on c.oid = n.conrelid
 where c.relnamespace = 'txtopo'::regnamespace and n.contype in ('p', 'u', 'c', 'f') and c.relname <> 'schema_version'
union all
select c.relname, pg_get_indexdef(i.indexrelid), null from pg_index i join pg_class c on c.oid = i.indrelid
 where c.relnamespace = 'txtopo'::regnamespace and i.indisvalid and i.indisready
   and not exists (select from pg_constraint n where n.conindid = i.indexrelid and n.contype in ('p', 'u'))
union all
select c.relname, pg_get_triggerdef(t.oid), t.tgname from pg_trigger t join pg_class c on c.oid = t.tgrelid
 where c.relnamespace = 'txtopo'::regnamespace and not t.tgisinternal
"""
"""Constraints without their names, which are the server's own. One that is not valid or not enforced is spelled so."""
_SWITCHED_OFF = """
select c.relname, case when t.tgisinternal then 'a foreign key' else 'trigger ' || t.tgname end as what
  from pg_trigger t join pg_class c on c.oid = t.tgrelid
 where c.relnamespace = 'txtopo'::regnamespace and t.tgenabled not in ('O', 'A') order by 1, 2
"""
_TABLES = "select relname, relkind, relpersistence from pg_class where relnamespace = 'txtopo'::regnamespace"
_RULES = """
select c.relname, r.rulename from pg_rewrite r join pg_class c on c.oid = r.ev_class
 where c.relnamespace = 'txtopo'::regnamespace and c.relkind in ('r', 'p') order by 1, 2
"""


def check_schema(findings: Findings, connection: Connection) -> None:
    """Everything that the migrations make is there, word for word, and switched on. Triggers of somebody else's are told."""
    revision = connection.execute(text(_REVISION)).scalar_one_or_none()
    expected = None if revision is None else schema_at(revision)
    if expected is None:
        findings.unknown(
            CHECK, f"schema txtopo is of revision {revision or 'nothing'}, which this release does not know"
        )
        return
    _check_functions(findings, connection, expected)
    _check_tables(findings, connection, expected)
    _check_definitions(findings, connection, expected)
    for row in connection.execute(text(_SWITCHED_OFF)):
        findings.wrong(CHECK, f"table txtopo.{row.relname}: {row.what} is switched off")
    for row in connection.execute(text(_RULES)):
        findings.wrong(CHECK, f"table txtopo.{row.relname}: rule {row.rulename} changes what statements do")


def _check_functions(findings: Findings, connection: Connection, expected: Schema) -> None:
    bodies = {row.proname: row.prosrc for row in connection.execute(text(_FUNCTIONS))}
    for name, body in sorted(expected.functions.items()):
        said = "is not as the migrations made it" if name in bodies else "is gone"
        findings.equal(CHECK, bodies.get(name) == body, f"function txtopo.{name} {said}")


def _check_tables(findings: Findings, connection: Connection, expected: Schema) -> None:
    there = {row.relname: (row.relkind, row.relpersistence) for row in connection.execute(text(_TABLES))}
    for name in sorted(expected.tables):
        findings.equal(
            CHECK, there.get(name) == ("r", "p"), f"txtopo.{name} is no plain table that is logged, which it was made"
        )


def _check_definitions(findings: Findings, connection: Connection, expected: Schema) -> None:
    rows = connection.execute(text(DEFINITIONS)).all()
    found = {(row.relname, row.made) for row in rows}
    findings.compared(CHECK, len(expected.definitions & found))
    for table, made in sorted(expected.definitions - found):
        findings.equal(
            CHECK,
            False,
            f"table txtopo.{table}: gone, or not as the migrations made it: {clip(made, DEFINITION_CHARS_MAX)}",
        )
    for row in sorted(rows, key=lambda one: (one.relname, one.trigger or "")):
        if row.trigger and (row.relname, row.made) not in expected.definitions:
            findings.by_design(CHECK, f"table txtopo.{row.relname} has a trigger that no migration made, {row.trigger}: what it does was not looked at", 0)  # fmt: skip
