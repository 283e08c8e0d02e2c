"""Compares schema `txtopo` with the result of the migrations: to change the ledger, an attacker first disables its
guards.
"""

from __future__ import annotations

from collections import defaultdict

from sqlalchemy import Connection, text

from txtopo.audit.made_schema import Schema, schema_at
from txtopo.audit.verdicts import Findings
from txtopo.errors import ConfigurationError
from txtopo.reports.formatting import clip

CHECK = "schema.guards"
DEFINITION_CHARS_MAX = 300
"""Characters of a definition in a message."""
WRONG_NAMED_MAX = 10
"""Number of tables and columns that one error names."""
_COLUMN = "column "
"""The start of a column's definition."""
_REVISION = "select version_num from txtopo.schema_version order by 1"
_FUNCTIONS = """
select proname, prosrc, not proisstrict and not prosecdef and proconfig is null as plain from pg_proc where
  pronamespace = 'txtopo'::regnamespace
"""
DEFINITIONS = """
select c.relname, pg_get_constraintdef(n.oid) as made, null as trigger from pg_constraint n join pg_class c on c.oid =
  n.conrelid
 where c.relnamespace = 'txtopo'::regnamespace and n.contype in ('p', 'u', 'c', 'f') and c.relname <> 'schema_version'
union all
select c.relname, pg_get_indexdef(i.indexrelid), null from pg_index i join pg_class c on c.oid = i.indrelid
 where c.relnamespace = 'txtopo'::regnamespace and i.indisvalid and i.indisready
   and not exists (select from pg_constraint n where n.conindid = i.indexrelid and n.contype in ('p', 'u'))
union all
select c.relname, pg_get_triggerdef(t.oid), t.tgname from pg_trigger t join pg_class c on c.oid = t.tgrelid
 where c.relnamespace = 'txtopo'::regnamespace and not t.tgisinternal
union all
select c.relname, fact.made, null from pg_class c join pg_attribute a on a.attrelid = c.oid and a.attnum > 0 and not
  a.attisdropped
  join pg_type t on t.oid = a.atttypid left join pg_collation o on o.oid = a.attcollation and o.oid <> t.typcollation
  left join pg_attrdef d on (d.adrelid, d.adnum) = (a.attrelid, a.attnum)
 cross join lateral (values
   ('column ' || quote_ident(a.attname) || ': ' || format_type(a.atttypid, a.atttypmod) || coalesce(' collate ' ||
   quote_ident(o.collname), '')),
   (case when a.attnotnull then quote_ident(a.attname) || ' not null' end), (quote_ident(a.attname) || ' default ' ||
   pg_get_expr(d.adbin, d.adrelid)),
   (case when a.attidentity <> '' then quote_ident(a.attname) || ' identity ' || a.attidentity::text end)) fact(made)
 where c.relnamespace = 'txtopo'::regnamespace and c.relkind in ('r', 'p') and c.relname <> 'schema_version' and
 fact.made is not null
"""
"""Constraints without their names, which the server chooses. An invalid or unenforced one shows this."""
_SWITCHED_OFF = """
select c.relname, case when t.tgisinternal then 'a foreign key' else 'trigger ' || t.tgname end as what
  from pg_trigger t join pg_class c on c.oid = t.tgrelid
 where c.relnamespace = 'txtopo'::regnamespace and t.tgenabled not in ('O', 'A') order by 1, 2
"""
_TABLES = """
select relname, relkind, relpersistence, relrowsecurity, exists (select from pg_inherits i where i.inhparent = c.oid)
  as has_children
  from pg_class c where relnamespace = 'txtopo'::regnamespace
"""
_RULES = """
select c.relname, r.rulename from pg_rewrite r join pg_class c on c.oid = r.ev_class
 where c.relnamespace = 'txtopo'::regnamespace and c.relkind in ('r', 'p') order by 1, 2
"""

_SETTINGS = """
select coalesce(d.datname, 'every database') as database, coalesce(r.rolname, 'every role') as role
  from pg_db_role_setting s left join pg_database d on d.oid = s.setdatabase left join pg_roles r on r.oid = s.setrole
 where (s.setdatabase = 0 or d.datname = current_database()) and 'session_replication_role=replica' = any (s.setconfig)
 order by 1, 2
"""
_SEQUENCES = """
select c.relname, s.last_value, case c.relname when 'action' then (select max(action_id) from txtopo.action) else
  (select max(request_id) from txtopo.request) end as used
  from pg_class c join pg_sequences s on format('%I.%I', s.schemaname, s.sequencename)::regclass
       = pg_get_serial_sequence('txtopo.' || c.relname, case c.relname when 'action' then 'action_id' else 'request_id'
       end)::regclass
 where c.relnamespace = 'txtopo'::regnamespace and c.relname in ('action', 'request') and s.schemaname = 'txtopo'
   and has_sequence_privilege(format('%I.%I', s.schemaname, s.sequencename), 'select, usage')
"""


class NotAsMadeError(ConfigurationError):
    """Tables of schema `txtopo` differ so much from the migrations that they cannot be read: a wrong database, not a
    wrong usage.
    """

    exit_code = 1


def demand_readable(connection: Connection) -> None:
    """Check that each table and column exists with its type, and that nothing else is read with it. Raises
    NotAsMadeError. The schema of another revision is unknown.
    """
    expected = schema_at(_revision(connection) or "")
    if expected is None:
        return
    found = {(row.relname, row.made) for row in connection.execute(text(DEFINITIONS))}
    missing = sorted(one for one in expected.definitions - found if one[1].startswith(_COLUMN))
    tables = {table for table, _ in found}
    wrong = [f"there is no table txtopo.{table}" for table in sorted({*expected.tables} - tables)]
    wrong += [f"table txtopo.{table} has no {made}" for table, made in missing if table in tables]
    for row in connection.execute(text(f"{_TABLES} order by 1")):
        if row.relname in expected.tables and row.has_children:
            wrong.append(f"table txtopo.{row.relname} has child tables, whose rows are read with its own")
    if wrong:
        more = f"; and {len(wrong) - WRONG_NAMED_MAX} more" if len(wrong) > WRONG_NAMED_MAX else ""
        raise NotAsMadeError(
            f"MISMATCH in the schema itself: {'; '.join(wrong[:WRONG_NAMED_MAX])}{more}. That is not as the "
            f"migrations made it, "
            "and nothing else was compared; find out who changed it, and restore a backup"
        )


def _revision(connection: Connection) -> str | None:
    """Return the revision; None if there is none, or more than one."""
    if connection.execute(text("select to_regclass('txtopo.schema_version')")).scalar_one() is None:
        return None
    found = connection.execute(text(_REVISION)).scalars().all()
    return found[0] if len(found) == 1 else None


def check_schema(findings: Findings, connection: Connection) -> None:
    """Check that everything the migrations make exists, word for word, and is enabled. Foreign triggers are
    reported.
    """
    revision = _revision(connection)
    if revision is None:
        findings.wrong(CHECK, "table txtopo.schema_version does not name one revision: somebody changed it")
        return
    expected = schema_at(revision)
    if expected is None:
        findings.unknown(CHECK, f"schema txtopo is of revision {revision}, which this release does not know")
        return
    _check_functions(findings, connection, expected)
    _check_tables(findings, connection, expected)
    _check_definitions(findings, connection, expected)
    for row in connection.execute(text(_SWITCHED_OFF)):
        findings.wrong(CHECK, f"table txtopo.{row.relname}: {row.what} is switched off")
    for row in connection.execute(text(_RULES)):
        findings.wrong(CHECK, f"table txtopo.{row.relname}: rule {row.rulename} changes what statements do")
    for row in connection.execute(text(_SETTINGS)):
        findings.wrong(
            CHECK,
            f"session_replication_role is replica for {row.role} in {row.database}: no trigger guards what they write",
        )
    for row in connection.execute(text(_SEQUENCES)):
        findings.equal(
            CHECK,
            (row.last_value or 0) >= (row.used or 0),
            f"table txtopo.{row.relname}: its sequence stands at {row.last_value or 0}, its last row has {row.used}: "
            f"the next row cannot be written",
        )


def _check_functions(findings: Findings, connection: Connection, expected: Schema) -> None:
    found: dict[str, list[tuple[str, bool]]] = defaultdict(list)
    for row in connection.execute(text(_FUNCTIONS)):
        found[row.proname].append((row.prosrc, row.plain))
    for name, body in sorted(expected.functions.items()):
        said = "is not as the migrations made it" if name in found else "no longer exists"
        findings.equal(CHECK, found[name] == [(body, True)], f"function txtopo.{name} {said}")


def _check_tables(findings: Findings, connection: Connection, expected: Schema) -> None:
    there = {row.relname: row for row in connection.execute(text(_TABLES))}
    for name in sorted(expected.tables):
        row = there.get(name)
        plain = row is not None and (row.relkind, row.relpersistence) == ("r", "p")
        findings.equal(CHECK, plain, f"txtopo.{name} is not a plain, logged table any more")
        hidden = row is not None and row.relrowsecurity
        findings.equal(
            CHECK, not hidden, f"table txtopo.{name} has row level security: a driver may not see all of its rows"
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
            findings.by_design(
                CHECK,
                f"table txtopo.{row.relname} has a trigger that no migration made, {row.trigger}: its effect was not "
                f"checked",
                0,
            )
