"""`txtopo show`: everything about one batch."""

from __future__ import annotations

import click

from txtopo.cli.common import NotFoundError, dsn_of, json_option, no_topology, verb


@verb("show")
@click.argument("topology")
@click.argument("txid", type=click.IntRange(1, 2**63 - 1))
@json_option
@click.pass_context
def show(context: click.Context, topology: str, txid: int, as_json: bool) -> None:
    """Show batch TXID of TOPOLOGY: its files, rows, attempts with their errors, committers. Exit code 1 when there is no such batch."""
    from txtopo.audit import as_json as rendering
    from txtopo.audit import reading, text

    with reading.reading(dsn_of(context)) as connection:
        batch = reading.read_batch(connection, topology, txid)
        if batch is None:
            raise _missing(
                topology, txid, {one.topology: one.planned_txid for one in reading.read_topologies(connection)}
            )
    click.echo(rendering.batch_json(batch) if as_json else text.batch_text(batch))


def _missing(topology: str, txid: int, planned: dict[str, int]) -> NotFoundError:
    if topology not in planned:
        return no_topology(topology, list(planned))
    last = planned[topology]
    there = f"its batches go from 1 to {last}" if last else "it has no batches yet"
    return NotFoundError(f"{topology} has no batch {txid}: {there}\n  next: txtopo batches {topology}")
