"""`txtopo audit`: compares what was committed with the source."""

from __future__ import annotations

import click

from txtopo.cli.common import json_option, load, reachable, sayer, verb
from txtopo.cli.ranges import one_span


@verb("audit")
@click.argument("topology")
@click.argument("txids", required=False, metavar="[RANGE]")
@json_option
@click.option("--no-recount", is_flag=True, help="Do not read the source files: compare only what is in Postgres.")
@click.option(
    "--expect",
    "kept",
    multiple=True,
    metavar="TXID:SEAL|REPORT.json",
    help="A seal kept outside of the database, or an earlier report of `audit --json` with all of its seals. May be "
    "repeated.",
)
@click.pass_context
def audit(
    context: click.Context, topology: str, txids: str | None, as_json: bool, no_recount: bool, kept: tuple[str, ...]
) -> int:
    """Compare the committed batches of TOPOLOGY with their source files, their contributions and the target tables.

    RANGE is 17, 17..42, 17.. or ..42; without it all batches are audited. The audit counts the files again with
    separate code; reports of the runs are never the proof. It looks up rejected records in their files. Quarantined
    batches and redos need an entry in the action log, and every batch of the source must have its effect exactly once.
    Needs the files and a role with SELECT; neither Spark nor ZooKeeper.

    A seal has no key: a role that can rewrite the database can compute new seals. Store the line `seal` of a report, or
    the JSON, elsewhere, and pass it to the next audit with --expect.

    Exit code 0: all MATCH. 1: something is wrong, in the batch named. 3: something could not be compared, and nothing
    was found wrong.
    """
    from txtopo.audit.audit_text import audit_json, audit_text
    from txtopo.client import Client

    first, last = (None, None) if txids is None else one_span(txids)
    settings = reachable(load(context))
    report = Client(str(settings.dsn)).audit(
        topology, first, last, recount=not no_recount, expected=kept, say=sayer(settings)
    )
    click.echo(audit_json(report) if as_json else audit_text(report))
    return report.exit_code
