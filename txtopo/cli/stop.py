"""`txtopo stop`: an order to the leader, followed until it is carried out."""

from __future__ import annotations

import click

from txtopo.cli.common import load, reachable, sayer, verb

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
    """Ask the leader of TOPOLOGY to commit what is in processing and end, and wait until it has.

    Without a living leader nothing is done. Exit code 3 when the timeout passes; the order stands then.
    """
    settings = reachable(load(context))
    dsn = str(settings.dsn)
    sentence = _nothing_to_stop(dsn, topology)
    if sentence is not None:
        click.echo(sentence)
        return
    from txtopo.operating.orders import Order, place

    request_id = place(dsn, Order(topology=topology, kind="stop")).request_id
    sayer(settings)(f"asked the leader of {topology} to stop (request {request_id}); waiting …")
    click.echo(_follow(dsn, topology, request_id, timeout))


def _nothing_to_stop(dsn: str, topology: str) -> str | None:
    """Why there is nobody to ask, in a sentence; None when a leader is alive."""
    from txtopo.reports.read import read_status, reading
    from txtopo.reports.text import duration

    with reading(dsn) as connection:
        one = read_status(connection, topology)
    if one.is_led:
        return None
    if one.state == "STALLED" and one.leader is not None:
        silent = duration(one.leader.heartbeat_age_s)
        return (
            f"No leader of {topology} is alive: the last, {one.leader.host} pid {one.leader.pid}, has been silent "
            f"for {silent}. Nothing was done."
        )
    return f"{topology} does not run ({one.state}). Nothing was done."


def _follow(dsn: str, topology: str, request_id: int, timeout: float) -> str:
    from txtopo.operating.orders import OrderStandsError, RefusedError, follow, withdraw

    found = follow(dsn, topology, request_id, timeout_s=timeout)
    request = found.request
    if request is None or request.state == "done":
        answer = f": {request.answer}" if request is not None and request.answer else ""
        return f"{topology} is stopped{answer}"
    if request.state == "refused":
        raise RefusedError(f"the leader of {topology} refused to stop: {request.answer or 'it gave no reason'}")
    if not found.is_led:
        # An order left open would stop the next leader as soon as it starts.
        withdraw(dsn, request_id, "withdrawn: no leader is alive")
        return f"{topology} does not run any more; its leader ended before it answered."
    raise OrderStandsError(
        f"{topology} has not stopped within {timeout:g} s; the order (request {request_id}) stands\n  next: txtopo "
        f"status {topology}"
    )
