"""`txtopo batches`: a list of batches, newest first."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from txtopo.cli.common import dsn_of, json_option, verb
from txtopo.cli.ranges import TXIDS, joined

if TYPE_CHECKING:
    from txtopo.cli.ranges import Span

LIMIT = 20
LIMIT_MAX = 100_000


@verb("batches")
@click.argument("topology")
@click.argument("txids", nargs=-1, type=TXIDS, metavar="[RANGE]...")
@click.option("--state", type=click.Choice(["committed", "quarantined", "planned", "failed"]), help="Only these.")
@click.option("--limit", type=click.IntRange(1, LIMIT_MAX), default=LIMIT, show_default=True, help="At most N.")
@json_option
@click.pass_context
def batches(
    context: click.Context, topology: str, txids: tuple[tuple[Span, ...], ...], state: Any, limit: int, as_json: bool
) -> None:
    """List batches of TOPOLOGY, or those of RANGE, newest first. For each committer: tuples that arrived > target rows
    written.

    RANGE is 17, 17..42, 17.. or ..42; several of them with blanks or commas.
    """
    from txtopo.client import Client
    from txtopo.reports import as_json as rendering
    from txtopo.reports import status_text

    rows = Client(dsn_of(context)).batches(topology, *joined(txids), state=state, limit=limit)
    click.echo(rendering.batches_json(topology, rows) if as_json else status_text.batches_text(topology, rows))
