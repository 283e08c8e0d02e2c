"""`txtopo backfill`: counts committed batches into a committer that was added after them."""

from __future__ import annotations

import click

from txtopo.cli.common import verb
from txtopo.cli.orders import dry_run_options, operator_of, order_options, reason_option


@verb("backfill")
@click.argument("topology")
@click.argument("committer")
@reason_option
@dry_run_options
@order_options
@click.pass_context
def backfill(
    context: click.Context,
    /,
    topology: str,
    committer: str,
    reason: str | None,
    app: str | None,
    no_run: bool,
    timeout: float,
    dry_run: bool,
    as_json: bool,
    **_: object,
) -> int:
    """Count the batches of TOPOLOGY that were committed without COMMITTER into it: under new txids, each exactly once,
    into no other committer.

    The current leader carries out the order, next to new input, and the command follows it. Without a leader, the
    command runs the application until it is carried out. A batch whose input has changed, or no longer exists, is
    named and not counted; so is one that fails. Repeating the command counts nothing twice.

    Exit code 0: every batch is counted. 1: refused, or some are not. 3: not known yet; the order stays open.
    """
    if as_json and not dry_run:
        raise click.UsageError("--json goes with --dry-run")
    from txtopo.operating.backfills import backfill_text, preview_backfill
    from txtopo.operating.carry_out import Manner, carry_out
    from txtopo.operating.orders import NewOrder
    from txtopo.reports.as_json import document, plain
    from txtopo.reports.read import read_status, reading

    operator = operator_of(context)
    with reading(str(operator.settings.dsn)) as connection:
        status = read_status(connection, topology)
        found = preview_backfill(connection, status, committer)
    if dry_run:
        more = {"is_led": status.is_led}
        click.echo(document("txtopo.backfill/1", {**plain(found), **more}) if as_json else backfill_text(found))
        operator.say("nothing was changed (--dry-run)")
        return 0
    if not found.lacking:
        click.echo(backfill_text(found))
        return 0
    order = NewOrder(topology=topology, kind="backfill", committer=committer, reason=reason)
    return carry_out(operator, status, order, (), Manner(app=app, no_run=no_run, timeout_s=timeout))
