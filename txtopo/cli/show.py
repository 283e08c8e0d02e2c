"""`txtopo show`: everything about one batch."""

from __future__ import annotations

from typing import Any

import click

from txtopo.cli.common import NotFoundError, dsn_of, json_option, no_topology, verb
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

    Exit code 1 when there is no such batch.
    """
    from txtopo.cli.terminal import width_of_terminal
    from txtopo.reports import as_json as rendering
    from txtopo.reports import batch_text, read

    with read.reading(dsn_of(context)) as connection:
        batch = read.read_batch(connection, topology, txid, rejects=rejects)
        if batch is None:
            raise _missing(topology, txid, {one.topology: one.planned_txid for one in read.read_topologies(connection)})
    click.echo(rendering.batch_json(batch) if as_json else batch_text.batch_text(batch, width_of_terminal()))


def _missing(topology: str, txid: int, planned: dict[str, int]) -> NotFoundError:
    if topology not in planned:
        return no_topology(topology, list(planned))
    last = planned[topology]
    there = f"its batches go from 1 to {last}" if last else "it has no batches yet"
    return NotFoundError(f"{topology} has no batch {txid}: {there}\n  next: txtopo batches {topology}")
