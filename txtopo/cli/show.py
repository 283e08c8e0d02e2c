"""`txtopo show`: everything about one batch."""

from __future__ import annotations

from typing import Any

import click

from txtopo.cli.common import dsn_of, json_option, verb, width_of_terminal
from txtopo.cli.ranges import TXID

REJECTS = "20"


def _number_or_all(context: click.Context, parameter: click.Parameter, value: Any) -> int | None:
    if value == "all":
        return None
    return int(click.IntRange(0, 2**31 - 1).convert(value, parameter, context))


@verb("show")
@click.argument("topology")
@click.argument("txid", type=TXID)
@click.option(
    "--rejects",
    callback=_number_or_all,
    default=REJECTS,
    show_default=True,
    metavar="N|all",
    help="Rejected rows shown.",
)
@json_option
@click.pass_context
def show(context: click.Context, topology: str, txid: int, rejects: int | None, as_json: bool) -> None:
    """Show batch TXID of TOPOLOGY: files, rows, rejected rows, attempts with their errors, committers, redos, orders
    and actions.

    Exit code 1 if there is no such batch.
    """
    from txtopo.client import Client
    from txtopo.reports import as_json as rendering
    from txtopo.reports import batch_text

    batch = Client(dsn_of(context)).batch(topology, txid, rejects=rejects)
    click.echo(rendering.batch_json(batch) if as_json else batch_text.batch_text(batch, width_of_terminal()))
