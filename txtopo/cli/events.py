"""`txtopo events`: what happened, in one timeline."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import TYPE_CHECKING

import click

from txtopo.cli.common import dsn_of, verb, width_of_terminal
from txtopo.cli.ranges import TXID
from txtopo.errors import NotFoundError

if TYPE_CHECKING:
    from txtopo.reports.timeline import TimelineEvent

LIMIT = 100
LIMIT_MAX = 100_000
POLL_S = 0.5
"""Seconds between two reads with --follow."""


@verb("events")
@click.argument("topology")
@click.argument("txid", type=TXID, required=False)
@click.option("-f", "--follow", is_flag=True, help="Continue with new events, until Ctrl-C.")
@click.option("--limit", type=click.IntRange(1, LIMIT_MAX), default=LIMIT, show_default=True, help="The last N.")
@click.option("--json", "as_json", is_flag=True, help="One JSON object a line, each with its schema version.")
@click.pass_context
def events(context: click.Context, topology: str, txid: int | None, follow: bool, limit: int, as_json: bool) -> None:
    """Show what happened to TOPOLOGY, or to its batch TXID, oldest first: plans, attempts, batches, orders, actions,
    the last leader.

    The attempt that was applied ends with its batch's commit.
    """
    from txtopo.client import Client
    from txtopo.reports.timeline_text import event_json, event_line

    def tell(found: Sequence[TimelineEvent]) -> None:
        for event in found:
            click.echo(event_json(event) if as_json else event_line(event, width_of_terminal()))

    client = Client(dsn_of(context))
    if follow:
        for found in client.follow(topology, txid, limit=limit):
            tell(found)
            pause(POLL_S)
    else:
        found = client.events(topology, txid, limit=limit)
        if not found:
            _nothing(topology, txid, as_json)
        tell(found)


def _nothing(topology: str, txid: int | None, as_json: bool) -> None:
    if txid is not None:
        raise NotFoundError(f"{topology} has no batch {txid}\n  next: txtopo batches {topology}")
    if not as_json:
        click.echo(f"Nothing has happened to {topology} yet.")


def pause(seconds: float) -> None:
    """Wait between two reads."""
    time.sleep(seconds)
