"""`txtopo replan`: plans that were never mirrored are dropped, so that their files are planned anew."""

from __future__ import annotations

import click

from txtopo.cli.common import verb
from txtopo.cli.ordering import OrderFlags, dry_run_options, give, needs_reason, order_options, reason_option


@verb("replan")
@click.argument("topology")
@reason_option
@dry_run_options
@order_options
@click.pass_context
def replan(
    context: click.Context,
    /,
    topology: str,
    reason: str | None,
    app: str | None,
    no_run: bool,
    timeout: float,
    dry_run: bool,
    **_: object,
) -> int:
    """Drop the plans of TOPOLOGY that were never mirrored in Postgres: the way out after a declared schema that was
    wrong.

    A planned batch keeps the schema of its plan. Their files are planned anew by the next run, with what is declared
    then. Needs --reason.

    Exit code 0: done. 1: refused. 3: not known yet; the order stands.
    """
    from txtopo.operating.dry_runs import propose_replan
    from txtopo.operating.orders import Order

    needs_reason(reason, dry_run)
    return give(
        context,
        topology,
        propose_replan,
        lambda _: Order(topology=topology, kind="replan", reason=reason),
        OrderFlags(app=app, no_run=no_run, timeout=timeout),
    )
