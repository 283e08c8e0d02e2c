"""Names of the tables and columns of committers: what is refused when the topology is built. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterable

from txtopo.errors import TopologyError

IDENTIFIER_BYTES_MAX = 63
OF_POSTGRES = frozenset({"ctid", "xmin", "xmax", "cmin", "cmax", "tableoid"})
"""Column names that Postgres itself uses."""
_PART = re.compile(r"[a-z_][a-z0-9_]*")


def split_table(who: str, table: str, suffix: str = "") -> tuple[str, str]:
    """Return schema and name of a table that is given as `name` or `schema.name`; `suffix` is what the name of its
    longest companion adds. Raises TopologyError if it is no such name.
    """
    schema, _, name = table.rpartition(".")
    schema = schema or "public"
    if not (_PART.fullmatch(schema) and _PART.fullmatch(name)):
        raise TopologyError(
            f"{who}: {table!r} is not a table name; write name or schema.name in lower-case letters, digits and _"
        )
    if schema == "txtopo" or schema.startswith("pg_"):
        raise TopologyError(f"{who}: schema {schema} is not for tables of topologies")
    bound = IDENTIFIER_BYTES_MAX - len(suffix)
    if len(name) > bound or len(schema) > IDENTIFIER_BYTES_MAX:
        raise TopologyError(f"{who}: table name {name!r} is longer than {bound} characters")
    return schema, name


def check_columns(who: object, names: Iterable[str], reserved: Iterable[str] = ()) -> None:
    """Raise TopologyError for a name that is no column name, or one that Postgres or txtopo (`reserved`) uses."""
    taken = OF_POSTGRES.union(reserved)
    for name in names:
        if not name or "\0" in name or len(name.encode()) > IDENTIFIER_BYTES_MAX:
            raise TopologyError(f"{who}: {name!r} is not a column name of 1 to {IDENTIFIER_BYTES_MAX} bytes")
        if name in taken:
            raise TopologyError(
                f"{who}: {name} is a column that txtopo or Postgres keeps itself; rename the field in a bolt"
            )
