"""`txtopo redrive`: quarantined batches come back as new ones at the end of the order."""

from __future__ import annotations

import click

from txtopo.cli.common import verb
from txtopo.cli.ordering import Manner, dry_run_options, give, order_options, reason_option


@verb("redrive")
@click.argument("topology")
@click.argument("txids", nargs=-1, required=True, type=click.IntRange(1, 2**63 - 1), metavar="TXID...")
@reason_option
@dry_run_options
@order_options
@click.pass_context
def redrive(
    context: click.Context,
    /,
    topology: str,
    txids: tuple[int, ...],
    reason: str | None,
    app: str | None,
    no_run: bool,
    timeout: float,
    **_: object,
) -> int:
    """Bring the quarantined batch TXID of TOPOLOGY back: its files are processed under a new txid at the end of the order.

    The source does not move, and doing it twice counts once.

    Exit code 0: committed, or redone before. 1: refused, or failed again. 3: not known yet; the order stands.
    """
    from txtopo.orders import Order
    from txtopo.proposals import propose_redrive

    wanted = tuple(sorted(set(txids)))
    return give(
        context,
        topology,
        lambda connection, status: propose_redrive(connection, status, wanted),
        lambda proposal: Order(topology=topology, kind="redrive", txids=proposal.txids, reason=reason),
        Manner(app=app, no_run=no_run, timeout=timeout),
    )
