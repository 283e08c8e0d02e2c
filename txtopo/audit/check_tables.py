"""Compares how the tables of counting committers are made with what the topology's description makes of them: kind, columns, types."""

from __future__ import annotations

from collections.abc import Mapping

from sqlalchemy import Connection, text

from txtopo.audit import audit_statements as sql
from txtopo.audit.describing import CommitterTables
from txtopo.audit.verdicts import Findings

CHECK = "target.shape"


def check_tables(findings: Findings, connection: Connection, committer: CommitterTables) -> None:
    """The target and, where there is one, the table of contributions. One that is missing is found where it is read."""
    _check(findings, connection, committer.target, committer.target_columns)
    if committer.contributions:
        name = f"{committer.target}_contribution"
        _check(findings, connection, name, committer.contribution_columns)
        for row in connection.execute(
            text(sql.SWITCHED_OFF), {"table": committer.contributions_sql.replace("%%", "%")}
        ):
            findings.wrong(CHECK, f"table {name}: trigger {row.tgname} is switched off")


def _check(findings: Findings, connection: Connection, name: str, expected: Mapping[str, str | None]) -> None:
    schema, _, table = name.partition(".")
    found = connection.execute(text(sql.COLUMNS), {"schema": schema, "table": table}).all()
    if not found:
        return
    kind, persistence = found[0].relkind, found[0].relpersistence
    findings.equal(CHECK, kind in ("r", "p"), f"{name} is no table any more, but {_KINDS.get(kind, 'something else')}")
    if kind in ("r", "p"):
        findings.equal(CHECK, persistence == "p", f"table {name} is not logged: it is empty after a crash of Postgres")
    wrong = differing_columns({row.attname: row.type for row in found}, expected)
    findings.equal(CHECK, not wrong, f"table {name} has other columns: {'; '.join(wrong)}")


def differing_columns(found: Mapping[str, str], expected: Mapping[str, str | None]) -> list[str]:
    """What is wrong with the columns of a table, by the rule of the start of a driver; a type of None is not known."""
    wrong = [f"{name} is not expected" for name in found if name not in expected]
    for name, wanted in expected.items():
        kind = found.get(name)
        if kind is None:
            wrong.append(f"{name} is missing")
        elif wanted not in (None, kind) and (wanted, kind) != ("text", "character varying"):
            wrong.append(f"{name} is {kind}, not {wanted}")
    return wrong


_KINDS = {"v": "a view", "m": "a materialized view", "f": "a foreign table", "S": "a sequence"}
