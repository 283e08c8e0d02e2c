"""`txtopo status`: shows the health and progress of topologies."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from txtopo.cli.common import dsn_of, json_option, verb

if TYPE_CHECKING:
    from collections.abc import Sequence

    from txtopo.reports.model import TopologyStatus


@verb("status")
@click.argument("topology", required=False)
@json_option
@click.pass_context
def status(context: click.Context, topology: str | None, as_json: bool) -> int:
    """Show one topology or all: state, last committed batch, what it waits for, who leads. Exit code 1 if one is
    HALTED or STALLED.
    """
    from txtopo.client import Client
    from txtopo.reports import as_json as rendering
    from txtopo.reports import status_text

    client = Client(dsn_of(context))
    topologies: Sequence[TopologyStatus] = client.topologies() if topology is None else [client.status(topology)]
    click.echo(rendering.status_json(topologies) if as_json else status_text.status_text(topologies))
    return 1 if any(one.is_bad for one in topologies) else 0
