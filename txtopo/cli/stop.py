"""`txtopo stop`: an order to the leader, followed until it is carried out."""

from __future__ import annotations

import getpass
import socket
import time

import click

from txtopo.cli.common import dsn_of, load, no_topology, sayer, verb
from txtopo.errors import TxtopoError

POLL_S = 0.5
TIMEOUT_S = 60.0

_ASK = """
insert into txtopo.request (topology, kind, actor, host)
select :topology, 'stop', :actor, :host
 where not exists (select from txtopo.request where topology = :topology and kind = 'stop' and state = 'open')
returning request_id
"""
_OPEN = "select max(request_id) from txtopo.request where topology = :topology and kind = 'stop' and state = 'open'"
_WITHDRAW = """
update txtopo.request set state = 'refused', answer = 'withdrawn: no leader is alive', done_at = clock_timestamp()
 where request_id = :request_id and state = 'open'
"""


class NotStoppedError(TxtopoError):
    """The order was given and is not carried out yet."""

    exit_code = 3


class RefusedError(TxtopoError):
    """The leader refused the order."""

    exit_code = 1


@verb("stop")
@click.argument("topology")
@click.option(
    "--timeout",
    type=click.FloatRange(0, 86_400),
    default=TIMEOUT_S,
    show_default=True,
    metavar="SECONDS",
    help="How long to wait for the leader.",
)
@click.pass_context
def stop(context: click.Context, topology: str, timeout: float) -> None:
    """Ask the leader of TOPOLOGY to commit what is in processing and end, and wait until it has.

    Without a living leader nothing is done. Exit code 3 when the timeout passes; the order stands then.
    """
    dsn = dsn_of(context)
    say = sayer(load(context))
    sentence = _nothing_to_stop(dsn, topology)
    if sentence is not None:
        click.echo(sentence)
        return
    request_id = _ask(dsn, topology)
    if request_id is None:  # carried out between the two statements
        click.echo(f"{topology} has just been stopped.")
        return
    say(f"asked the leader of {topology} to stop (request {request_id}); waiting …")
    click.echo(_follow(dsn, topology, request_id, timeout))


def _nothing_to_stop(dsn: str, topology: str) -> str | None:
    """Why there is nobody to ask, in a sentence; None when a leader is alive."""
    from txtopo.audit.reading import read_names, read_topologies, reading
    from txtopo.audit.text import duration

    with reading(dsn) as connection:
        found = read_topologies(connection, topology)
        if not found:
            raise no_topology(topology, read_names(connection))
    one = found[0]
    if one.is_led:
        return None
    if one.state == "STALLED" and one.leader is not None:
        silent = duration(one.leader.heartbeat_age_s)
        return f"No leader of {topology} is alive: the last, {one.leader.host} pid {one.leader.pid}, has been silent for {silent}. Nothing was done."
    return f"{topology} does not run ({one.state}). Nothing was done."


def _ask(dsn: str, topology: str) -> int | None:
    """Give the order, or find the one that is open already."""
    values = {"topology": topology, "actor": _user(), "host": socket.gethostname()}
    given = _write(dsn, _ASK, **values)
    return given if given is not None else _write(dsn, _OPEN, topology=topology)


def _follow(dsn: str, topology: str, request_id: int, timeout: float) -> str:
    from txtopo.audit.reading import read_request, read_topologies, reading

    deadline = time.monotonic() + timeout
    while True:
        with reading(dsn) as connection:
            request = read_request(connection, request_id)
            led = any(one.is_led for one in read_topologies(connection, topology))
        if request is None or request.state == "done":
            answer = f": {request.answer}" if request is not None and request.answer else ""
            return f"{topology} is stopped{answer}"
        if request.state == "refused":
            raise RefusedError(f"the leader of {topology} refused to stop: {request.answer or 'it gave no reason'}")
        if not led:
            # An order left open would stop the next leader as soon as it starts.
            _write(dsn, _WITHDRAW, request_id=request_id)
            return f"{topology} does not run any more; its leader ended before it answered."
        if time.monotonic() >= deadline:
            raise NotStoppedError(
                f"{topology} has not stopped within {timeout:g} s; the order (request {request_id}) stands\n  next: txtopo status {topology}"
            )
        time.sleep(min(POLL_S, max(0.0, deadline - time.monotonic())))


def _write(dsn: str, statement: str, **values: object) -> int | None:
    from sqlalchemy import text
    from sqlalchemy.exc import SQLAlchemyError

    from txtopo.audit.reading import reading_error
    from txtopo.committers.connecting import make_engine

    engine = make_engine(dsn, "txtopo/stop", pooled=False)
    try:
        with engine.begin() as connection:
            result = connection.execute(text(statement), values)
            found = result.scalar() if result.returns_rows else None
            return None if found is None else int(found)
    except SQLAlchemyError as error:
        raise reading_error(error, dsn) from error


def _user() -> str:
    try:
        return getpass.getuser()
    except (KeyError, OSError):  # an account without a name, as in some containers
        return "unknown"
