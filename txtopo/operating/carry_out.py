"""Carries an order out: gives it to the leader and follows that, or is the leader for as long as it takes."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Protocol

from txtopo.config import Settings
from txtopo.core.values import IN_FOLDER
from txtopo.errors import ConfigurationError, Fenced, Halted, PostgresUnavailable, TxtopoError
from txtopo.operating import orders
from txtopo.operating.last_run import with_last_run
from txtopo.operating.orders import Followed, NewOrder, OrderFollower, OrderStandsError, RefusedError
from txtopo.reports.model import TopologyStatus, how_to_run
from txtopo.reports.read import read_batch, reading


class RunsApplication(Protocol):
    """Runs an application in the foreground, as `txtopo.app.run_application` does; returns the exit code."""

    def __call__(self, application: str, settings: Settings, /, *, cut: bool, is_wanted: Callable[[], bool]) -> int: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Operator:
    """Who gives an order: with which settings, and how to tell them what becomes of it."""

    settings: Settings
    """With the database."""
    leading: Callable[[], Settings]
    """Returns the settings for being the leader. Raises ConfigurationError where a store is not known."""
    run: RunsApplication
    answer: Callable[[str], None]
    """Tells what came of the order."""
    say: Callable[[str], None]
    """Tells how it goes; nothing where the operator wants it quiet."""
    warn: Callable[[str], None]
    """Tells what has to be known, quiet or not."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Manner:
    """How an order is to be carried out."""

    app: str | None
    """The application, where no leader is alive; None: that of the last run."""
    no_run: bool
    """Only leave the order."""
    timeout_s: float
    """How long to follow the current leader."""


def carry_out(
    operator: Operator, status: TopologyStatus, order: NewOrder, txids: tuple[int, ...], manner: Manner
) -> int:
    """Give the order and follow the leader, or be the leader for as long as it takes. Returns the exit code.

    `txids`: the batches it is about. Raises OrderStandsError where nobody has carried it out yet, RefusedError where it
    did not end well, ConfigurationError before anything is ordered.
    """
    here = None if status.is_led or manner.no_run else _OwnLead.find(operator, status, manner.app)
    settings, say = operator.settings, operator.say
    dsn = str(settings.dsn)
    with reading(dsn) as connection:
        teller = OrderFollower(connection, order.topology, txids, say)
    placed = orders.place(dsn, order)
    if not placed.is_new and order.reason and placed.reason != order.reason:
        operator.warn(
            f"the same order is open already (order {placed.order_id}, by {placed.actor}), with the reason "
            f"{placed.reason!r}: "
            f"that one is kept, {order.reason!r} is not"
        )
    if status.is_led and settings.source("on_poison").startswith("flag "):
        operator.warn(f"--on-poison is not for {status.who_leads}: it goes on as it was started")
    what = f"{order.kind} of {order.topology} (order {placed.order_id})"
    if manner.no_run:
        operator.answer(
            f"{what} {'is left' if placed.is_new else 'was left already'}: {status.who_leads} carries it out."
        )
        return 0
    if here is None:
        say(
            f"{what} {'was given to' if placed.is_new else 'was open already; following'} {status.who_leads}; waiting …"
        )
        with _standing(placed.order_id, order, say):
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
        raise OrderStandsError(f"{what} stands, and nobody carries it out: {here.problem}\n  next: {here.next_command}")
    poison = f"on_poison={here.settings.on_poison}, {here.settings.source('on_poison')}"
    say(f"{what}: no leader is alive; running {here.application} until it is carried out ({poison}) …")
    return _run_here(operator, here, order, placed.order_id, txids)


@contextmanager
def _standing(order_id: int, order: NewOrder, say: Callable[[str], None]) -> Iterator[None]:
    """Whoever stops following, by Ctrl-C or because Postgres is away, is told that the order is given all the same."""
    try:
        yield
    except (KeyboardInterrupt, PostgresUnavailable):
        say(f"the order to {order.kind} (order {order_id}) stands\n  next: txtopo status {order.topology}")
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
    def find(cls, operator: Operator, status: TopologyStatus, app: str | None) -> _OwnLead:
        """Raises ConfigurationError before anything is ordered where the stores are not known, or the application is
        another topology.
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
    stands = f"the order to {order.kind} (order {order_id}) stands"
    if isinstance(ended, Fenced):  # somebody else leads now, and takes up the order
        raise OrderStandsError(f"{ended}; {stands}\n  next: txtopo status {order.topology}") from ended
    operator.warn(stands)
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
    """Tell how the order ended; the exit code, or the error that says why it did not end well."""
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
        # What was asked for is done; of a retry, which is about going on, a halt at the next batch is a bad answer all
        # the same.
        return ended.exit_code if order.kind == "retry" and isinstance(ended, Halted) else 0
    stands = f"the order to {order.kind} (order {answered.order_id if answered else '?'}) stands"
    if status is not None and found.is_halted:
        raise RefusedError(f"{status.reason}; {stands}{following}")
    if not found.is_led:
        run = how_to_run(status.application if status else None)
        raise OrderStandsError(
            f"the leader of {topology} ended before it had carried the order out; {stands}\n  next: {run}"
        )
    raise OrderStandsError(f"not carried out within {timeout_s:g} s; {stands}\n  next: txtopo status {topology}")


def _still_uncommitted(dsn: str, topology: str, txids: tuple[int, ...]) -> list[int]:
    """Of the batches that were to be tried again: an answer may speak of some that went well and some that did not."""
    with reading(dsn) as connection:
        found = {txid: read_batch(connection, topology, txid) for txid in txids}
    return [txid for txid, batch in found.items() if batch is None or batch.state != "committed"]
