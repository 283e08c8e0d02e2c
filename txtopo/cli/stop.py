"""`txtopo stop`: orders the leader to stop, and follows the order to its end."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from txtopo.cli.common import load, reachable, sayer, verb

if TYPE_CHECKING:
    from txtopo.reports.model import TopologyStatus

TIMEOUT_S = 60.0


@verb("stop")
@click.argument("topology")
@click.option(
    "--timeout",
    type=click.FloatRange(0, 86_400),
    default=TIMEOUT_S,
    show_default=True,
    metavar="SECONDS",
    help="How long to wait for the leader.",
)
@click.pass_context
def stop(context: click.Context, topology: str, timeout: float) -> None:
    """Order the leader of TOPOLOGY to commit what is in processing and end, and wait until it has.

    Without a leader nothing is done. Exit code 3 if the timeout passes; the order then stays open.
    """
    from txtopo.client import Client

    settings = reachable(load(context))
    client = Client(str(settings.dsn))
    order = client.stop(topology)
    if order is None:
        click.echo(_nothing_to_stop(client.status(topology)))
        return
    sayer(settings)(f"ordered the leader of {topology} to stop (order {order.order_id}); waiting …")
    answered = client.wait(topology, order, timeout_s=timeout)
    if answered.state == "refused":
        click.echo(f"{topology} does not run any more; its leader ended before it answered.")
    else:
        click.echo(f"{topology} is stopped{f': {answered.answer}' if answered.answer else ''}")


def _nothing_to_stop(one: TopologyStatus) -> str:
    """Return why there is no leader to stop, in a sentence."""
    from txtopo.reports.formatting import duration

    if one.state == "STALLED" and one.leader is not None:
        silent = duration(one.leader.heartbeat_age_s)
        return (
            f"No leader of {one.topology} is alive: the last, {one.leader.host} pid {one.leader.pid}, has been silent "
            f"for {silent}. Nothing was done."
        )
    return f"{one.topology} does not run ({one.state}). Nothing was done."
