"""`txtopo audit`: is what was committed what the source says?"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import click

from txtopo.cli.common import json_option, load, reachable, sayer, verb
from txtopo.cli.verbs import nearest

if TYPE_CHECKING:
    from txtopo.audit.auditing import Range

_RANGE = re.compile(r"(?P<single>[0-9]{1,18})|(?P<first>[0-9]{1,18})?\.\.(?P<last>[0-9]{1,18})?")


@verb("audit")
@click.argument("topology")
@click.argument("txids", required=False, metavar="[RANGE]")
@json_option
@click.option("--no-recount", is_flag=True, help="Leave the source files alone: compare only what Postgres holds.")
@click.pass_context
def audit(context: click.Context, topology: str, txids: str | None, as_json: bool, no_recount: bool) -> int:
    """Compare the committed batches of TOPOLOGY with their source files, their contributions and the target tables.

    RANGE is 17, 17..42, 17.. or ..42; without it all batches are audited. Files are counted again by code of the audit's own; what the runs said
    of themselves is never the proof. Needs a role that may SELECT, and the files; neither Spark nor ZooKeeper.

    Exit code 0: all MATCH. 1: something is wrong, the batch named. 3: something could not be found out, and nothing was found wrong.
    """
    from txtopo.audit import audit_text, reading
    from txtopo.audit.as_json import audit_json
    from txtopo.audit.auditing import NothingToAuditError
    from txtopo.audit.auditing import audit as compare

    wanted = _range(txids)
    settings = reachable(load(context))
    with reading.reading(str(settings.dsn)) as connection:
        try:
            report = compare(connection, topology, wanted, recount=not no_recount, say=sayer(settings))
        except NothingToAuditError as error:
            known = reading.read_names(connection)
            hint = "" if topology in known else nearest(topology, known)
            raise NothingToAuditError(f"{error}{hint}\n  next: txtopo status") from error
    click.echo(audit_json(report) if as_json else audit_text.audit_text(report))
    return report.exit_code


def _range(txids: str | None) -> Range:
    from txtopo.audit.auditing import Range

    if txids is None:
        return Range()
    match = _RANGE.fullmatch(txids)
    if match is None:
        raise click.BadParameter(
            f"{txids!r} is no range of batches: write 17, 17..42, 17.. or ..42", param_hint="RANGE"
        )
    first, last = (match["single"] or match["first"]), (match["single"] or match["last"])
    wanted = Range(first=int(first) if first else None, last=int(last) if last else None)
    if wanted.last is not None and (wanted.last < 1 or wanted.last < (wanted.first or 1)):
        raise click.BadParameter(f"{txids!r} holds no batch", param_hint="RANGE")
    return wanted
