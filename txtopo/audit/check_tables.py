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
        if _check(findings, connection, name, committer.contribution_columns):
            _check_guards(findings, connection, name, committer.contributions_sql.replace("%%", "%"))


def _check_guards(findings: Findings, connection: Connection, name: str, quoted_name: str) -> None:
    """Contributions are written once: two triggers refuse all else. A table that was there before its committer may have none."""
    found = {row.tgname: row for row in connection.execute(text(sql.GUARDS), {"table": quoted_name})}
    for trigger, kind in _GUARDS.items():
        row = found.get(trigger)
        if row is None:
            findings.by_design(CHECK, f"table {name} has no trigger {trigger}, as where it was made by hand: its rows are compared all the same", 0)  # fmt: skip
            continue
        whole = row.tgtype == kind and row.refuses_all
        said = "is switched off" if whole else "is not as it was made"
        findings.equal(CHECK, whole and row.tgenabled in ("O", "A"), f"table {name}: trigger {trigger} {said}")


def _check(findings: Findings, connection: Connection, name: str, expected: Mapping[str, str | None]) -> bool:
    """Returns whether there is such a table."""
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
    return True


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


_GUARDS = {"frozen": 1 + 2 + 8 + 16, "kept_whole": 2 + 32}
"""Bits: 1 for each row, 2 before, 8 delete, 16 update, 32 truncate."""
_KINDS = {"v": "a view", "m": "a materialized view", "f": "a foreign table", "S": "a sequence"}
