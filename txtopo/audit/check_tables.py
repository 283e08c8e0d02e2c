"""Compares the tables of counting committers with the topology's description: kind, columns, types."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from sqlalchemy import Connection, text

from txtopo.audit import audit_statements as sql
from txtopo.audit.verdicts import Findings
from txtopo.reports.stored_description import CommitterTables, RowTable

CHECK = "target.shape"


def check_tables(findings: Findings, connection: Connection, committer: CommitterTables) -> None:
    """Check the target and, if there is one, the table of contributions. A missing table is found when it is read."""
    target = committer.target_sql.replace("%%", "%")
    if _check(findings, connection, committer.target, committer.target_columns, committer.never_null):
        _check_key(findings, connection, committer.target, target, committer.keys)
        _tell_added(findings, connection, committer.target, target)
    if committer.contributions:
        name, contributions = f"{committer.target}_contribution", committer.contributions_sql.replace("%%", "%")
        if _check(findings, connection, name, committer.contribution_columns, committer.never_null):
            _check_key(findings, connection, name, contributions, ("txid", "reverses", *committer.keys))
            _check_guards(findings, connection, name, contributions)
            _tell_added(findings, connection, name, contributions, *_GUARDS)


def check_row_table(findings: Findings, connection: Connection, table: RowTable) -> None:
    """Check the tables of a committer of rows. A missing table is found when it is read."""
    _check_rows(findings, connection, table.log, table.log_sql, table.log_columns, ("attempt",), ("txid", "n"))
    if table.last is not None:
        columns = {**dict.fromkeys(table.last.front, "bigint"), **table.fields}
        _check_rows(findings, connection, table.target, table.target_sql, columns, (), table.last.unique)


def _check_rows(
    findings: Findings,
    connection: Connection,
    name: str,
    quoted_name: str,
    columns: Mapping[str, str | None],
    numbers: Sequence[str],
    keys: Sequence[str],
) -> None:
    plain = quoted_name.replace("%%", "%")
    if _check(findings, connection, name, columns, numbers):
        _check_key(findings, connection, name, plain, keys)
        _tell_added(findings, connection, name, plain)


def _check_key(findings: Findings, connection: Connection, name: str, quoted_name: str, keys: Sequence[str]) -> None:
    """Check that there is one row per key, as commits require."""
    found = connection.execute(text(sql.UNIQUE), {"table": quoted_name}).all()
    there = any(row.one_row_a_key and sorted(row.columns) == sorted(keys) for row in found)
    findings.equal(
        CHECK, there, f"table {name} has no unique key over {', '.join(keys)} any more: it may have two rows of one key"
    )


def _tell_added(findings: Findings, connection: Connection, name: str, quoted_name: str, *own: str) -> None:
    for row in connection.execute(text(sql.ADDED), {"table": quoted_name, "own": list(own)}):
        findings.by_design(
            CHECK, f"table {name} has {row.what}, which txtopo did not make: its effect was not checked", 0
        )


def _check_guards(findings: Findings, connection: Connection, name: str, quoted_name: str) -> None:
    """Check that contributions are write-once: two triggers refuse everything else. A table that existed before its
    committer may have none.
    """
    found = {row.tgname: row for row in connection.execute(text(sql.GUARDS), {"table": quoted_name})}
    for trigger, kind in _GUARDS.items():
        row = found.get(trigger)
        if row is None:
            findings.by_design(
                CHECK,
                f"table {name} has no trigger {trigger}, as where it was made by hand: its rows are compared all the "
                f"same",
                0,
            )
            continue
        whole = row.tgtype == kind and row.refuses_all
        said = "is switched off" if whole else "is not as it was made"
        findings.equal(CHECK, whole and row.tgenabled in ("O", "A"), f"table {name}: trigger {trigger} {said}")


def _check(
    findings: Findings, connection: Connection, name: str, expected: Mapping[str, str | None], numbers: Sequence[str]
) -> bool:
    """Return True if there is such a table."""
    schema, _, table = name.partition(".")
    found = connection.execute(text(sql.COLUMNS), {"schema": schema, "table": table}).all()
    if not found:
        return False
    kind, persistence = found[0].relkind, found[0].relpersistence
    findings.equal(CHECK, kind in ("r", "p"), f"{name} is no table any more, but {_KINDS.get(kind, 'something else')}")
    if kind in ("r", "p"):
        findings.equal(CHECK, persistence == "p", f"table {name} is not logged: it is empty after a crash of Postgres")
    wrong = differing_columns({row.attname: row.type for row in found}, expected)
    findings.equal(CHECK, not wrong, f"table {name} has other columns: {'; '.join(wrong)}")
    nullable = [row.attname for row in found if row.attname in numbers and not row.attnotnull]
    findings.equal(
        CHECK,
        not nullable or bool(wrong) or kind not in ("r", "p"),
        f"table {name} allows NULL in {', '.join(nullable)}",
    )
    return kind in ("r", "p")


def differing_columns(found: Mapping[str, str], expected: Mapping[str, str | None]) -> list[str]:
    """Return what is wrong with the columns of a table, by the rule for the start of a driver; a type of None is
    unknown.
    """
    wrong = [f"{name} is not expected" for name in found if name not in expected]
    for name, wanted in expected.items():
        kind = found.get(name)
        if kind is None:
            wrong.append(f"{name} is missing")
        elif wanted not in (None, kind) and (wanted, kind) != ("text", "character varying"):
            wrong.append(f"{name} is {kind}, not {wanted}")
    return wrong


_GUARDS = {"frozen": 1 + 2 + 8 + 16, "kept_whole": 2 + 32}
"""Bits: 1 for each row, 2 before, 8 delete, 16 update, 32 truncate."""
_KINDS = {"v": "a view", "m": "a materialized view", "f": "a foreign table, or has one as a part", "S": "a sequence"}
