"""`txtopo status`: how topologies fare."""

from __future__ import annotations

import click

from txtopo.cli.common import dsn_of, json_option, no_topology, verb


@verb("status")
@click.argument("topology", required=False)
@json_option
@click.pass_context
def status(context: click.Context, topology: str | None, as_json: bool) -> int:
    """Show one topology or all: state, last committed batch, what it waits for, who leads. Exit code 1 when one is
    HALTED or STALLED.
    """
    from txtopo.reports import as_json as rendering
    from txtopo.reports import read, text

    with read.reading(dsn_of(context)) as connection:
        topologies = read.read_topologies(connection, topology)
        if topology is not None and not topologies:
            raise no_topology(topology, read.read_names(connection))
    click.echo(rendering.status_json(topologies) if as_json else text.status_text(topologies))
    return 1 if any(one.is_bad for one in topologies) else 0
