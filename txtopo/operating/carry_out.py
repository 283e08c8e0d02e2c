"""Carries out an order: passes it to the leader and follows it, or leads until it is carried out."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Protocol

from sqlalchemy import Connection

from txtopo.config import Settings
from txtopo.core.values import IN_FOLDER
from txtopo.errors import ConfigurationError, Fenced, Halted, PostgresUnavailable, TxtopoError
from txtopo.operating import orders
from txtopo.operating.backfills import BackfillFollower
from txtopo.operating.last_run import with_last_run
from txtopo.operating.orders import Followed, NewOrder, OrderFollower, OrderOpenError, RefusedError
from txtopo.reports.model import TopologyStatus, how_to_run
from txtopo.reports.read import read_batch, reading


class RunsApplication(Protocol):
    """Runs an application in the foreground, like `txtopo.app.run_application`. Returns the exit code."""

    def __call__(self, application: str, settings: Settings, /, *, cut: bool, is_wanted: Callable[[], bool]) -> int: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Operator:
    """How a command gives an order: its settings, and functions that report to the operator."""

    settings: Settings
    """Settings that include the database."""
    leading: Callable[[], Settings]
    """Returns the settings for leading. Raises ConfigurationError if the address of a store is unknown."""
    run: RunsApplication
    answer: Callable[[str], None]
    """Reports the result of the order."""
    say: Callable[[str], None]
    """Reports progress; does nothing if the command is quiet."""
    warn: Callable[[str], None]
    """Reports what the operator must know, even if the command is quiet."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Manner:
    """How to carry out an order."""

    app: str | None
    """The application to run if no leader is alive; None: that of the last run."""
    no_run: bool
    """Only record the order."""
    timeout_s: float
    """Seconds to follow the current leader."""


def carry_out(
    operator: Operator, status: TopologyStatus, order: NewOrder, txids: tuple[int, ...], manner: Manner
) -> int:
    """Place the order and follow the leader; or, if no leader is alive, lead until the order is carried out. Returns
    the exit code.

    `txids` are the batches of the order. Raises OrderOpenError if no process has carried it out yet, RefusedError if it
    was refused or failed, ConfigurationError before the order is placed.
    """
    here = None if status.is_led or manner.no_run else _OwnLead.find(operator, status, manner.app)
    settings, say = operator.settings, operator.say
    dsn = str(settings.dsn)
    with reading(dsn) as connection:
        teller: Callable[[Connection], None] = OrderFollower(connection, order.topology, txids, say)
        if order.committer is not None:
            teller = BackfillFollower(order.topology, order.committer, say)
    placed = orders.place(dsn, order)
    if not placed.is_new and order.reason and placed.reason != order.reason:
        operator.warn(
            f"the same order is open already (order {placed.order_id}, by {placed.actor}), with the reason "
            f"{placed.reason!r}: "
            f"that reason remains, {order.reason!r} is ignored"
        )
    if status.is_led and settings.source("on_poison").startswith("flag "):
        operator.warn(f"--on-poison has no effect on {status.who_leads}: it keeps the setting that it was started with")
    what = f"{order.kind} of {order.topology} (order {placed.order_id})"
    if manner.no_run:
        operator.answer(
            f"{what} {'is recorded' if placed.is_new else 'was recorded already'}: {status.who_leads} carries it out."
        )
        return 0
    if here is None:
        say(
            f"{what} {'was given to' if placed.is_new else 'was open already; following'} {status.who_leads}; waiting …"
        )
        with _say_it_is_open(placed.order_id, order, say):
            found = orders.follow(
                dsn,
                order.topology,
                placed.order_id,
                timeout_s=manner.timeout_s,
                leaderless_s=orders.LEADERLESS_S,
                tell=teller,
            )
        return _conclude(operator, order, found, txids, manner.timeout_s)
    if here.problem is not None:
        raise OrderOpenError(f"{what} is open, and nothing carries it out: {here.problem}\n  next: {here.next_command}")
    poison = f"on_poison={here.settings.on_poison}, {here.settings.source('on_poison')}"
    say(f"{what}: no leader is alive; running {here.application} until it is carried out ({poison}) …")
    return _run_here(operator, here, order, placed.order_id, txids)


@contextmanager
def _say_it_is_open(order_id: int, order: NewOrder, say: Callable[[str], None]) -> Iterator[None]:
    """If following ends early, by Ctrl-C or because Postgres is unavailable, say that the order is open all the
    same.
    """
    try:
        yield
    except (KeyboardInterrupt, PostgresUnavailable):
        say(f"the order to {order.kind} (order {order_id}) is open\n  next: txtopo status {order.topology}")
        raise


@dataclass(frozen=True, slots=True, kw_only=True)
class _OwnLead:
    """What this process needs to lead itself."""

    application: str
    settings: Settings
    problem: str | None
    """Why it cannot lead; None: it can."""
    next_command: str

    @classmethod
    def find(cls, operator: Operator, status: TopologyStatus, app: str | None) -> _OwnLead:
        """Return what is needed. Raises ConfigurationError, before the order is placed, if a store is unknown or if the
        application is another topology.
        """
        from txtopo.driver.load_application import load_application, needs_spark
        from txtopo.operating.verify import check_same_topology

        application = app or status.application
        following = how_to_run(application)
        application = application and application.partition(IN_FOLDER)[0]
        settings = with_last_run(operator.leading(), status.settings)
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


def _run_here(operator: Operator, here: _OwnLead, order: NewOrder, order_id: int, txids: tuple[int, ...]) -> int:
    dsn = str(operator.settings.dsn)
    ended, code = None, 0
    try:
        code = operator.run(
            here.application,
            here.settings,
            cut=False,
            is_wanted=lambda: not orders.look(dsn, order.topology, order_id).is_answered,
        )
    except TxtopoError as error:
        ended = error
    found = orders.look(dsn, order.topology, order_id)
    if found.is_answered or (ended is None and code == 0):
        return _conclude(operator, order, found, txids, None, ended)
    is_open = f"the order to {order.kind} (order {order_id}) is open"
    if isinstance(ended, Fenced):  # another driver leads now, and carries out the order
        raise OrderOpenError(f"{ended}; {is_open}\n  next: txtopo status {order.topology}") from ended
    operator.warn(is_open)
    if ended is not None:
        raise ended
    return code


def _conclude(
    operator: Operator,
    order: NewOrder,
    found: Followed,
    txids: tuple[int, ...],
    timeout_s: float | None,
    ended: TxtopoError | None = None,
) -> int:
    """Report how the order ended and return the exit code, or raise the error that says why it did not end well."""
    answered, status, topology = found.order, found.status, order.topology
    named = f" {txids[0]}" if len(txids) == 1 else ""
    following = f"\n  next: txtopo show {topology}{named}" if named else f"\n  next: txtopo batches {topology}"
    if answered is not None and answered.state == "refused":
        raise RefusedError(f"{order.kind} of {topology}: {answered.answer or 'refused without a reason'}{following}")
    if found.is_answered:
        answer = (answered.answer if answered is not None else None) or "done"
        if order.kind == "retry" and (left := _still_uncommitted(str(operator.settings.dsn), topology, txids)):
            raise RefusedError(f"retry of {topology}: {answer}; not committed: {', '.join(map(str, left))}{following}")
        operator.answer(f"{order.kind} of {topology}: {answer}")
        if ended is not None:
            operator.warn(f"the run then ended: {ended}")
            if isinstance(ended, Halted):
                operator.warn(f"  next: {ended.next_command or f'txtopo status {topology}'}")
        # The order is carried out. But the purpose of a retry is that the topology continues, so a halt at the next
        # batch is a negative result.
        return ended.exit_code if order.kind == "retry" and isinstance(ended, Halted) else 0
    is_open = f"the order to {order.kind} (order {answered.order_id if answered else '?'}) is open"
    if status is not None and found.is_halted:
        raise RefusedError(f"{status.reason}; {is_open}{following}")
    if not found.is_led:
        run = how_to_run(status.application if status else None)
        raise OrderOpenError(
            f"the leader of {topology} ended before it had carried the order out; {is_open}\n  next: {run}"
        )
    raise OrderOpenError(f"not carried out within {timeout_s:g} s; {is_open}\n  next: txtopo status {topology}")


def _still_uncommitted(dsn: str, topology: str, txids: tuple[int, ...]) -> list[int]:
    """Those of the batches to retry that are not committed. One answer may cover batches that succeeded and others that
    failed.
    """
    with reading(dsn) as connection:
        found = {txid: read_batch(connection, topology, txid) for txid in txids}
    return [txid for txid, batch in found.items() if batch is None or batch.state != "committed"]
