"""Compares schema `txtopo` with what the migrations made of it: whoever wants to change the ledger first switches off what guards it."""

from __future__ import annotations

from collections import Counter

from sqlalchemy import Connection, text

from txtopo.audit.made_schema import Schema, Trigger, schema_at
from txtopo.audit.verdicts import Findings

CHECK = "schema.guards"
_REVISION = "select version_num from txtopo.schema_version"
_FUNCTIONS = "select proname, prosrc from pg_proc where pronamespace = 'txtopo'::regnamespace"
_TRIGGERS = """
select c.relname, t.tgname, p.proname, t.tgtype, t.tgenabled, t.tginitdeferred, t.tgqual is not null as conditional, t.tgisinternal
  from pg_trigger t join pg_class c on c.oid = t.tgrelid join pg_proc p on p.oid = t.tgfoid
 where c.relnamespace = 'txtopo'::regnamespace
"""
_CONSTRAINTS = """
select c.relname, n.contype::text as kind, n.convalidated and coalesce((to_jsonb(n) ->> 'conenforced')::boolean, true) as holds
  from pg_constraint n join pg_class c on c.oid = n.conrelid
 where c.relnamespace = 'txtopo'::regnamespace and n.contype in ('p', 'u', 'c', 'f')
"""
_INDEXES = """
select c.relname from pg_index i join pg_class c on c.oid = i.indexrelid where c.relnamespace = 'txtopo'::regnamespace and i.indisvalid and i.indisready
"""
_KINDS = {"p": "primary key", "u": "unique constraint", "c": "check constraint", "f": "foreign key"}


def check_schema(findings: Findings, connection: Connection) -> None:
    """Triggers on, functions and constraints as the migrations of the database's revision make them. More than that may be there."""
    revision = connection.execute(text(_REVISION)).scalar_one_or_none()
    expected = None if revision is None else schema_at(revision)
    if expected is None:
        findings.unknown(
            CHECK, f"schema txtopo is of revision {revision or 'nothing'}, which this release does not know"
        )
        return
    _check_functions(findings, connection, expected)
    _check_triggers(findings, connection, expected)
    _check_constraints(findings, connection, expected)
    there = {row.relname for row in connection.execute(text(_INDEXES))}
    for name in sorted(expected.indexes):
        findings.equal(CHECK, name in there, f"index txtopo.{name} is gone or not valid")


def _check_functions(findings: Findings, connection: Connection, expected: Schema) -> None:
    bodies = {row.proname: row.prosrc for row in connection.execute(text(_FUNCTIONS))}
    for name, body in sorted(expected.functions.items()):
        said = "is not as the migrations made it" if name in bodies else "is gone"
        findings.equal(CHECK, bodies.get(name) == body, f"function txtopo.{name} {said}")


def _check_triggers(findings: Findings, connection: Connection, expected: Schema) -> None:
    found: dict[tuple[str, str], Trigger] = {}
    for row in connection.execute(text(_TRIGGERS)):
        what = "a foreign key" if row.tgisinternal else f"trigger {row.tgname}"
        findings.equal(CHECK, row.tgenabled in ("O", "A"), f"table txtopo.{row.relname}: {what} is switched off")
        if not row.tgisinternal:
            found[row.relname, row.tgname] = Trigger(row.proname, row.tgtype, row.tginitdeferred, row.conditional)
    for (table, name), trigger in sorted(expected.triggers.items()):
        said = "is not as the migrations made it" if (table, name) in found else "is gone"
        findings.equal(CHECK, found.get((table, name)) == trigger, f"table txtopo.{table}: trigger {name} {said}")


def _check_constraints(findings: Findings, connection: Connection, expected: Schema) -> None:
    found: Counter[tuple[str, str]] = Counter()
    for row in connection.execute(text(_CONSTRAINTS)):
        found[row.relname, row.kind] += bool(row.holds)
    for (table, kind), number in sorted(expected.constraints.items()):
        missing = number - found[table, kind]
        findings.equal(
            CHECK, missing <= 0, f"table txtopo.{table}: {missing} of its {_KINDS[kind]}s gone or switched off"
        )
