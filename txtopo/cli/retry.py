"""`txtopo retry`: failed batches again, with their stored plans."""

from __future__ import annotations

import click

from txtopo.cli.common import verb
from txtopo.cli.ordering import OrderFlags, dry_run_options, give, order_options, reason_option
from txtopo.cli.ranges import TXIDS, Span, joined


@verb("retry")
@click.argument("topology")
@click.argument("txids", nargs=-1, type=TXIDS, metavar="[RANGE]...")
@reason_option
@dry_run_options
@order_options
@click.pass_context
def retry(
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
    """Try every failed, uncommitted batch of TOPOLOGY again, or those named, with the files and schema of its stored
    plan.

    RANGE is 17, or the failed ones of 17..42, 17.., ..42; several of them with blanks or commas.

    A living leader does it in its turn, and the command follows. Without one the command runs the application until
    what is planned is committed;
    it plans no new input.

    Exit code 0: committed, or nothing to retry. 1: refused, failed again, or the topology halted at another batch. 3:
    not known yet; the order stands.
    """
    from txtopo.operating.dry_runs import propose_retry
    from txtopo.operating.orders import Order

    wanted = joined(txids)
    return give(
        context,
        topology,
        lambda connection, status: propose_retry(connection, status, wanted),
        lambda proposal: Order(topology=topology, kind="retry", txids=proposal.txids, reason=reason),
        OrderFlags(app=app, no_run=no_run, timeout=timeout),
    )
