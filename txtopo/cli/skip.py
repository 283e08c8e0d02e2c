"""`txtopo skip`: a batch that cannot be processed is quarantined in its place in the order."""

from __future__ import annotations

import click

from txtopo.cli.common import verb
from txtopo.cli.ordering import OrderFlags, dry_run_options, give, needs_reason, order_options, reason_option
from txtopo.cli.ranges import TXID


@verb("skip")
@click.argument("topology")
@click.argument("txid", type=TXID)
@reason_option
@dry_run_options
@order_options
@click.pass_context
def skip(
    context: click.Context,
    /,
    topology: str,
    txid: int,
    reason: str | None,
    app: str | None,
    no_run: bool,
    timeout: float,
    dry_run: bool,
    **_: object,
) -> int:
    """Quarantine the uncommitted batch TXID of TOPOLOGY: it gets its row in the ledger, has no effect, and the batches
    behind it go on.

    `txtopo redrive` brings it back. Needs --reason.

    Exit code 0: quarantined. 1: refused. 3: not known yet; the order stands.
    """
    from txtopo.operating.dry_runs import propose_skip
    from txtopo.operating.orders import Order

    needs_reason(reason, dry_run)
    return give(
        context,
        topology,
        lambda connection, status: propose_skip(connection, status, txid),
        lambda _: Order(topology=topology, kind="skip", txids=(txid,), reason=reason),
        OrderFlags(app=app, no_run=no_run, timeout=timeout),
    )
