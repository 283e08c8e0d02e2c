"""`txtopo migrate`: applies, checks or prints the schema in Postgres."""

from __future__ import annotations

import click

from txtopo.cli.common import dsn_of, naming, verb


@verb("migrate")
@click.option("--check", is_flag=True, help="Change nothing; exit code 1 when something is pending.")
@click.option("--sql", "as_sql", is_flag=True, help="Print all migrations as SQL; needs no database.")
@click.pass_context
def migrate(context: click.Context, check: bool, as_sql: bool) -> int:
    """Bring the schema `txtopo` in Postgres up to date. Safe to repeat, and while others do the same."""
    from txtopo.committers.postgres import migrate

    if check and as_sql:
        raise click.UsageError("--check and --sql exclude each other", context)
    if as_sql:
        click.echo(migrate.migration_sql(), nl=False)
        return 0
    dsn = dsn_of(context)
    with naming(dsn):
        if check:
            missing = migrate.pending(dsn)
            _list("pending", missing, "the schema is up to date")
            return 1 if missing else 0
        _list("applied", migrate.migrate(dsn), "nothing to do: the schema is up to date")
    return 0


def _list(word: str, revisions: list[str], nothing: str) -> None:
    for revision in revisions:
        click.echo(f"{word} {revision}")
    if not revisions:
        click.echo(nothing)
