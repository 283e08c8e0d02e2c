"""`txtopo retry`, `skip`, `redrive` and `replan`: show or give an order to the leader, and follow it to its end;
replay shares their flags.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, TypeVar

import click

from txtopo.cli.common import load, option, reachable, sayer, verb
from txtopo.cli.ranges import TXID, TXIDS, Span, joined

if TYPE_CHECKING:
    from txtopo.config import Settings
    from txtopo.operating.carry_out import Manner, Operator
    from txtopo.operating.dry_runs import PreviewKind

TIMEOUT_S = 600.0
_Function = TypeVar("_Function", bound=Callable[..., Any])


def order_options(function: _Function) -> _Function:
    """Add the flags of every command that gives an order; they arrive as `app`, `no_run` and `timeout`."""
    for decorate in reversed(
        (
            click.option(
                "--app", metavar="APP", help="The application, if no leader is alive; default: that of the last run."
            ),
            click.option(
                "--no-run", is_flag=True, help="Only record the order: the leader, or the next one, carries it out."
            ),
            click.option(
                "--timeout",
                type=click.FloatRange(0, 86_400 * 7),
                default=TIMEOUT_S,
                show_default=True,
                metavar="SECONDS",
                help="How long to follow the current leader.",
            ),
            option(
                "--on-poison",
                setting="on_poison",
                metavar="halt|quarantine_batch|dead_letter_rows",
                help="What happens to a batch that keeps failing, if no leader is alive; default: as in the last run.",
            ),
            option("--master", setting="master", metavar="URL", help="Spark master, if no leader is alive."),
            option("--conf", setting="conf", multiple=True, metavar="NAME=VALUE"),
            option("--py-files", setting="py_files", metavar="FILE,…"),
        )
    ):
        function = decorate(function)
    return function


def dry_run_options(function: _Function) -> _Function:
    """Add `--dry-run`, and `--json` for its output."""
    json_flag = click.option("--json", "as_json", is_flag=True, help="With --dry-run: one JSON document.")
    dry_run = click.option("--dry-run", is_flag=True, help="Show what would be done and change nothing at all.")
    return dry_run(json_flag(function))


def reason_option(function: _Function) -> _Function:
    """Add `--reason`, for the action log."""
    decorate = click.option("--reason", metavar="TEXT", help="Why; it is kept in the action log.")
    return decorate(function)


def needs_reason(reason: str | None, dry_run: bool) -> None:
    """Refuse an order without a reason, which nobody could explain later; a dry run needs none."""
    if not dry_run and (reason is None or not reason.strip()):
        raise click.UsageError("--reason TEXT is needed: it is kept in the action log")


def operator_of(context: click.Context) -> Operator:
    """Return the operator who gives the order: with the settings of this command, and output on stdout and stderr."""
    from txtopo.operating.carry_out import Operator

    given = load(context)
    settings = reachable(given)
    return Operator(
        settings=settings,
        leading=lambda: reachable(given, zookeeper=True),
        run=_run,
        answer=click.echo,
        say=sayer(settings),
        warn=partial(click.echo, err=True),
    )


def _run(application: str, settings: Settings, /, *, cut: bool, is_wanted: Callable[[], bool]) -> int:
    from txtopo.app import run_application

    return run_application(application, settings, cut=cut, is_wanted=is_wanted)


def give(
    operator: Operator,
    topology: str,
    kind: PreviewKind,
    spans: Sequence[Span],
    reason: str | None,
    manner: Manner,
    *,
    dry_run: bool,
    as_json: bool,
) -> int:
    """Preview an order; show it (dry run), or give it and follow it. Returns the exit code."""
    from txtopo.client import Client
    from txtopo.operating.carry_out import carry_out
    from txtopo.operating.dry_runs import preview_text
    from txtopo.operating.last_run import poison_in_force
    from txtopo.reports.as_json import document, plain

    client = Client(str(operator.settings.dsn))
    status, found = client.status(topology), client.preview(topology, kind, *spans)
    if dry_run:
        poison = poison_in_force(operator.settings, status)
        more = {"txids": list(found.txids), "is_led": status.is_led, "on_poison": poison}
        shown = document("txtopo.order/1", {**plain(found), **more})
        click.echo(shown if as_json else f"{preview_text(found)}\n  on_poison {poison}")
        operator.say("nothing was changed (--dry-run)")
        return 0
    if found.nothing is not None:
        click.echo(preview_text(found))
        return 0
    for note in found.notes:
        operator.say(note)
    return carry_out(operator, status, found.order(reason), found.txids, manner)


def order_command(
    kind: PreviewKind,
    *batches: Callable[[Any], Any],
    help: str,
    must_say_why: bool = False,
) -> click.Command:
    """Return the command of the verb `kind`: it previews the order, then shows it or gives it.

    `batches`: click's argument for the batches, `txids` or `txid`, if the order takes any.
    """

    def command(
        context: click.Context,
        /,
        topology: str,
        reason: str | None,
        app: str | None,
        no_run: bool,
        timeout: float,
        dry_run: bool,
        as_json: bool,
        **given: Any,
    ) -> int:
        if must_say_why:
            needs_reason(reason, dry_run)
        if as_json and not dry_run:
            raise click.UsageError("--json goes with --dry-run")
        from txtopo.operating.carry_out import Manner

        spans = ((given["txid"], given["txid"]),) if "txid" in given else joined(given.get("txids", ()))
        manner = Manner(app=app, no_run=no_run, timeout_s=timeout)
        operator = operator_of(context)
        return give(operator, topology, kind, spans, reason, manner, dry_run=dry_run, as_json=as_json)

    topology = click.argument("topology")
    flags: Sequence[Callable[[Any], Any]] = (topology, *batches, reason_option, dry_run_options, order_options)
    decorated: Callable[..., Any] = click.pass_context(command)
    for decorate in reversed(flags):
        decorated = decorate(decorated)
    return verb(kind, help=help)(decorated)


retry = order_command(
    "retry",
    click.argument("txids", nargs=-1, type=TXIDS, metavar="[RANGE]..."),
    help="""
    Try every failed, uncommitted batch of TOPOLOGY again, or those named, with the files and schema of its stored plan.

    RANGE is 17, or the failed ones of 17..42, 17.., ..42; several of them with blanks or commas.

    The current leader carries out the order, and the command follows it. Without a leader, the command runs the
    application until all planned batches are committed; it plans no new input.

    Exit code 0: committed, or nothing to retry. 1: refused, failed again, or the topology halted at another batch. 3:
    not known yet; the order stays open.
    """,
)

skip = order_command(
    "skip",
    click.argument("txid", type=TXID),
    must_say_why=True,
    help="""
    Quarantine the uncommitted batch TXID of TOPOLOGY: it gets its row in the ledger and has no effect, and later
    batches can be committed.

    `txtopo redrive` processes it again later. Needs --reason.

    Exit code 0: quarantined. 1: refused. 3: not known yet; the order stays open.
    """,
)

redrive = order_command(
    "redrive",
    click.argument("txids", nargs=-1, required=True, type=TXIDS, metavar="RANGE..."),
    help="""
    Process quarantined batches of TOPOLOGY again: under new txids, after all batches that are planned.

    RANGE is 17, or the quarantined ones of 17..42, 17.., ..42; several of them with blanks or commas. The position of
    the source does not change, and repeating the command counts nothing twice.

    Exit code 0: committed, or redone before. 1: refused, or failed again. 3: not known yet; the order stays open.
    """,
)

replan = order_command(
    "replan",
    must_say_why=True,
    help="""
    Discard the plans of TOPOLOGY that were never mirrored in Postgres, for example after a wrong schema was declared.

    A planned batch keeps the schema of its plan. The next run plans these files again, with the schema that is declared
    then. Needs --reason.

    Exit code 0: done. 1: refused. 3: not known yet; the order stays open.
    """,
)
