"""`txtopo redrive`: quarantined batches come back as new ones at the end of the order."""

from __future__ import annotations

import click

from txtopo.cli.common import verb
from txtopo.cli.ordering import OrderFlags, dry_run_options, give, order_options, reason_option
from txtopo.cli.ranges import TXIDS, Span, joined


@verb("redrive")
@click.argument("topology")
@click.argument("txids", nargs=-1, required=True, type=TXIDS, metavar="RANGE...")
@reason_option
@dry_run_options
@order_options
@click.pass_context
def redrive(
    context: click.Context,
    /,
    topology: str,
    txids: tuple[tuple[Span, ...], ...],
    reason: str | None,
    app: str | None,
    no_run: bool,
    timeout: float,
    **_: object,
) -> int:
    """Bring quarantined batches of TOPOLOGY back: their files are processed under new txids at the end of the order.

    RANGE is 17, or the quarantined ones of 17..42, 17.., ..42; several of them with blanks or commas. The source does
    not move, and doing it twice
    counts once.

    Exit code 0: committed, or redone before. 1: refused, or failed again. 3: not known yet; the order stands.
    """
    from txtopo.operating.dry_runs import propose_redrive
    from txtopo.operating.orders import Order

    wanted = joined(txids)
    return give(
        context,
        topology,
        lambda connection, status: propose_redrive(connection, status, wanted),
        lambda proposal: Order(topology=topology, kind="redrive", txids=proposal.txids, reason=reason),
        OrderFlags(app=app, no_run=no_run, timeout=timeout),
    )
