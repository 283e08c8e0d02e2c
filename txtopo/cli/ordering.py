"""What retry, skip, redrive, replan and replay share: their flags, showing what would be done, and an order carried out
to its end.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeVar

import click
from click.core import ParameterSource

from txtopo.cli.common import load, option, reachable, sayer
from txtopo.reports.not_found import no_topology

if TYPE_CHECKING:
    from sqlalchemy import Connection

    from txtopo.config import Settings
    from txtopo.errors import TxtopoError
    from txtopo.operating.dry_runs import Proposal
    from txtopo.operating.orders import Followed, Order
    from txtopo.reports.model import TopologyStatus

TIMEOUT_S = 600.0
_Function = TypeVar("_Function", bound=Callable[..., Any])


@dataclass(frozen=True, slots=True, kw_only=True)
class OrderFlags:
    """How an order is to be carried out, as the flags say."""

    app: str | None
    no_run: bool
    timeout: float


def order_options(function: _Function) -> _Function:
    """The flags of every command that gives an order; they arrive as `app`, `no_run` and `timeout`."""
    for decorate in reversed(
        (
            click.option(
                "--app", metavar="APP", help="The application, where no leader is alive; default: that of the last run."
            ),
            click.option(
                "--no-run", is_flag=True, help="Only leave the order: the leader, or the next one, carries it out."
            ),
            click.option(
                "--timeout",
                type=click.FloatRange(0, 86_400 * 7),
                default=TIMEOUT_S,
                show_default=True,
                metavar="SECONDS",
                help="How long to follow a living leader.",
            ),
            option(
                "--on-poison",
                setting="on_poison",
                metavar="halt|quarantine_batch|dead_letter_rows",
                help="What becomes of a batch that keeps failing, where no leader is alive; default: as the last run.",
            ),
            option("--master", setting="master", metavar="URL", help="Spark master, where no leader is alive."),
            option(
                "--conf",
                setting="conf",
                multiple=True,
                metavar="NAME=VALUE",
                help="A setting of Spark; may be repeated.",
            ),
            option(
                "--py-files", setting="py_files", metavar="FILE,…", help="Modules, zips and wheels that the tasks need."
            ),
        )
    ):
        function = decorate(function)
    return function


def dry_run_options(function: _Function) -> _Function:
    """`--dry-run`, and `--json` for what it shows."""
    json_flag = click.option("--json", "as_json", is_flag=True, help="With --dry-run: one JSON document.")
    dry_run = click.option("--dry-run", is_flag=True, help="Show what would be done and change nothing at all.")
    return dry_run(json_flag(function))


def reason_option(function: _Function) -> _Function:
    """`--reason`, for the action log."""
    decorate = click.option("--reason", metavar="TEXT", help="Why; it is kept in the action log.")
    return decorate(function)


def needs_reason(reason: str | None, dry_run: bool) -> None:
    """Refuse an order that nobody could explain later; showing what it would do needs no reason."""
    if not dry_run and (reason is None or not reason.strip()):
        raise click.UsageError("--reason TEXT is needed: it is kept in the action log")


def status_of(connection: Connection, topology: str) -> TopologyStatus:
    """The topology as it stands. Raises where it is unknown."""
    from txtopo.reports.read import read_names, read_topologies

    found = read_topologies(connection, topology)
    if not found:
        raise no_topology(topology, read_names(connection))
    return found[0]


def give(
    context: click.Context,
    topology: str,
    propose: Callable[[Connection, TopologyStatus], Proposal],
    make_order: Callable[[Proposal], Order],
    manner: OrderFlags,
) -> int:
    """Find out what would be done; show it, or have it done. Returns the exit code."""
    from txtopo.operating.dry_runs import proposal_text
    from txtopo.reports.as_json import document, plain
    from txtopo.reports.read import reading

    dry_run, as_json = context.params["dry_run"], context.params["as_json"]
    if as_json and not dry_run:
        raise click.UsageError("--json goes with --dry-run")
    settings = reachable(load(context))
    with reading(str(settings.dsn)) as connection:
        status = status_of(connection, topology)
        proposal = propose(connection, status)
        poison = on_poison(settings, connection, status)
    if dry_run:
        more = {"txids": list(proposal.txids), "is_led": status.is_led, "on_poison": poison}
        document_ = document("txtopo.proposal/1", {**plain(proposal), **more})
        click.echo(document_ if as_json else f"{proposal_text(proposal)}\n  on_poison {poison}")
        sayer(settings)("nothing was changed (--dry-run)")
        return 0
    if proposal.nothing is not None:
        click.echo(proposal_text(proposal))
        return 0
    say = sayer(settings)
    for note in proposal.notes:
        say(note)
    return carry_out(context, status, make_order(proposal), proposal.txids, manner)


def on_poison(settings: Settings, connection: Connection, status: TopologyStatus) -> str:
    """With which `on_poison` an order would run, and where that comes from."""
    from txtopo.operating.last_run import with_last_run
    from txtopo.reports.stored_config import read_config

    if status.is_led:
        return f"as {_who(status)} has it"
    found = with_last_run(settings, status.settings).with_topology(read_config(connection, status.topology) or {})
    return f"{found.on_poison} ({found.source('on_poison')})"


def carry_out(
    context: click.Context, status: TopologyStatus, order: Order, txids: tuple[int, ...], manner: OrderFlags
) -> int:
    """Give the order and follow the leader, or be the leader for as long as it takes. Returns the exit code."""
    from txtopo.operating.orders import LEADERLESS_S, OrderFollower, OrderStandsError, follow, place
    from txtopo.reports.read import reading

    here = None if status.is_led or manner.no_run else _OwnLead.find(context, status, manner.app)
    settings = reachable(load(context))
    dsn, say = str(settings.dsn), sayer(settings)
    with reading(dsn) as connection:
        teller = OrderFollower(connection, order.topology, txids, say)
    placed = place(dsn, order)
    if not placed.is_new and order.reason and placed.reason != order.reason:
        click.echo(
            f"the same order is open already (order {placed.request_id}, by {placed.actor}), with the reason "
            f"{placed.reason!r}: "
            f"that one is kept, {order.reason!r} is not",
            err=True,
        )
    if status.is_led and context.get_parameter_source("on_poison") is ParameterSource.COMMANDLINE:
        click.echo(f"--on-poison is not for {_who(status)}: it goes on as it was started", err=True)
    what = f"{order.kind} of {order.topology} (order {placed.request_id})"
    if manner.no_run:
        click.echo(f"{what} {'is left' if placed.is_new else 'was left already'}: {_who(status)} carries it out.")
        return 0
    if here is None:
        say(f"{what} {'was given to' if placed.is_new else 'was open already; following'} {_who(status)}; waiting …")
        with _standing(placed.request_id, order, settings):
            found = follow(
                dsn, order.topology, placed.request_id, timeout_s=manner.timeout, leaderless_s=LEADERLESS_S, tell=teller
            )
        return _conclude(dsn, order, found, txids, manner.timeout)
    if here.problem is not None:
        raise OrderStandsError(f"{what} stands, and nobody carries it out: {here.problem}\n  next: {here.next_command}")
    poison = f"on_poison={here.settings.on_poison}, {here.settings.source('on_poison')}"
    say(f"{what}: no leader is alive; running {here.application} until it is carried out ({poison}) …")
    return _run_here(here, dsn, order, placed.request_id, txids)


@contextmanager
def _standing(request_id: int, order: Order, settings: Settings) -> Iterator[None]:
    """Whoever stops following, by Ctrl-C or because Postgres is away, is told that the order is given all the same."""
    from txtopo.errors import PostgresUnavailable

    try:
        yield
    except (KeyboardInterrupt, PostgresUnavailable):
        sayer(settings)(
            f"the order to {order.kind} (order {request_id}) stands\n  next: txtopo status {order.topology}"
        )
        raise


@dataclass(frozen=True, slots=True, kw_only=True)
class _OwnLead:
    """What this process needs for being the leader itself."""

    application: str
    settings: Settings
    problem: str | None
    """Why it cannot."""
    next_command: str

    @classmethod
    def find(cls, context: click.Context, status: TopologyStatus, app: str | None) -> _OwnLead:
        """Raises ConfigurationError before anything is ordered where the stores are not known, or the application is
        another topology.
        """
        from txtopo.core.values import IN_FOLDER
        from txtopo.driver.load_application import load_application, needs_spark
        from txtopo.errors import ConfigurationError
        from txtopo.operating.last_run import with_last_run
        from txtopo.operating.verify import check_same_topology
        from txtopo.reports.model import how_to_run

        application = app or status.application
        following = how_to_run(application)
        application = application and application.partition(IN_FOLDER)[0]
        settings = with_last_run(reachable(load(context), zookeeper=True), status.settings)
        problem = None
        if application is None or application.startswith("python "):
            problem = f"no leader is alive, and {application or 'no application'} cannot be started from here"
        else:
            try:
                topology = load_application(application)
            except ConfigurationError as error:
                problem = None if needs_spark(error) else f"no leader is alive, and {error}"
            else:
                check_same_topology(topology, status.topology, application)
        return cls(application=application or "", settings=settings, problem=problem, next_command=following)


def _run_here(here: _OwnLead, dsn: str, order: Order, request_id: int, txids: tuple[int, ...]) -> int:
    from txtopo.app import run_application
    from txtopo.errors import Fenced, TxtopoError
    from txtopo.operating.orders import OrderStandsError, look

    ended, code = None, 0
    try:
        code = run_application(
            here.application,
            here.settings,
            cut=False,
            is_wanted=lambda: not look(dsn, order.topology, request_id).is_answered,
        )
    except TxtopoError as error:
        ended = error
    found = look(dsn, order.topology, request_id)
    if found.is_answered or (ended is None and code == 0):
        return _conclude(dsn, order, found, txids, None, ended)
    stands = f"the order to {order.kind} (order {request_id}) stands"
    if isinstance(ended, Fenced):  # somebody else leads now, and takes up the order
        raise OrderStandsError(f"{ended}; {stands}\n  next: txtopo status {order.topology}") from ended
    click.echo(stands, err=True)
    if ended is not None:
        raise ended
    return code


def _conclude(
    dsn: str,
    order: Order,
    found: Followed,
    txids: tuple[int, ...],
    timeout: float | None,
    ended: TxtopoError | None = None,
) -> int:
    """Tell how the order ended; the exit code, or the error that says why it did not end well."""
    from txtopo.errors import Halted
    from txtopo.operating.orders import OrderStandsError, RefusedError
    from txtopo.reports.model import how_to_run

    request, status, topology = found.request, found.status, order.topology
    named = f" {txids[0]}" if len(txids) == 1 else ""
    following = f"\n  next: txtopo show {topology}{named}" if named else f"\n  next: txtopo batches {topology}"
    if request is not None and request.state == "refused":
        raise RefusedError(f"{order.kind} of {topology}: {request.answer or 'refused without a reason'}{following}")
    if found.is_answered:
        answer = (request.answer if request is not None else None) or "done"
        if order.kind == "retry" and (left := _still_uncommitted(dsn, topology, txids)):
            raise RefusedError(f"retry of {topology}: {answer}; not committed: {', '.join(map(str, left))}{following}")
        click.echo(f"{order.kind} of {topology}: {answer}")
        if ended is not None:
            click.echo(f"the run then ended: {ended}", err=True)
            if isinstance(ended, Halted):
                click.echo(f"  next: {ended.next_command or f'txtopo status {topology}'}", err=True)
        # What was asked for is done; of a retry, which is about going on, a halt at the next batch is a bad answer all
        # the same.
        return ended.exit_code if order.kind == "retry" and isinstance(ended, Halted) else 0
    stands = f"the order to {order.kind} (order {request.request_id if request else '?'}) stands"
    if status is not None and found.is_halted:
        raise RefusedError(f"{status.reason}; {stands}{following}")
    if not found.is_led:
        run = how_to_run(status.application if status else None)
        raise OrderStandsError(
            f"the leader of {topology} ended before it had carried the order out; {stands}\n  next: {run}"
        )
    raise OrderStandsError(f"not carried out within {timeout:g} s; {stands}\n  next: txtopo status {topology}")


def _still_uncommitted(dsn: str, topology: str, txids: tuple[int, ...]) -> list[int]:
    """Of the batches that were to be tried again: an answer may speak of some that went well and some that did not."""
    from txtopo.reports.read import read_batch, reading

    with reading(dsn) as connection:
        found = {txid: read_batch(connection, topology, txid) for txid in txids}
    return [txid for txid, batch in found.items() if batch is None or batch.state != "committed"]


def _who(status: TopologyStatus) -> str:
    if status.is_led and status.leader is not None:
        return f"the leader on {status.leader.host}, pid {status.leader.pid}"
    return "the next leader"
