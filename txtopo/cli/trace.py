"""`txtopo trace`: shows which batches made one row of a target table."""

from __future__ import annotations

import click

from txtopo.cli.common import dsn_of, json_option, verb

LIMIT = 100
LIMIT_MAX = 100_000


@verb("trace")
@click.argument("topology", required=False)
@click.option(
    "--table", required=True, metavar="NAME", help="The target: schema.table, or table if that is unambiguous."
)
@click.option(
    "--key",
    "keys",
    multiple=True,
    metavar="[COLUMN=]VALUE",
    help="A column of the row's key; once for each column. With one key column the value alone is enough.",
)
@click.option("--null", "nulls", multiple=True, metavar="COLUMN", help="A column of the key that is NULL.")
@click.option(
    "--limit",
    type=click.IntRange(1, LIMIT_MAX),
    default=LIMIT,
    show_default=True,
    help="The last N contributions.",
)
@json_option
@click.pass_context
def trace(
    context: click.Context,
    topology: str | None,
    table: str,
    keys: tuple[str, ...],
    nulls: tuple[str, ...],
    limit: int,
    as_json: bool,
) -> int:
    """Show which batches, attempts, code and files made one row of a target table of TOPOLOGY (each table belongs to
    one topology, so TOPOLOGY can be omitted).

    Exit code 1 when the contributions do not add up to the row or nothing has that key; 3 when nothing tells, as
    without contributions.
    """
    from txtopo.client import Client
    from txtopo.reports import trace_text

    found = Client(dsn_of(context)).trace(table, keys, nulls=nulls, topology=topology, limit=limit)
    click.echo(trace_text.trace_json(found) if as_json else trace_text.trace_text(found))
    return 0 if found.verdict == "MATCH" else 1
