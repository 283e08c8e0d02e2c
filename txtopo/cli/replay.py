"""`txtopo replay`: processes committed batches again, to compare the result with what was committed or to replace
it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

import click

from txtopo.cli.common import json_option, sayer, verb
from txtopo.cli.orders import needs_reason, operator_of, order_options, reason_option
from txtopo.cli.ranges import spans

if TYPE_CHECKING:
    from txtopo.config import Settings
    from txtopo.operating.replay_plans import Replay
    from txtopo.operating.verify import Recount
    from txtopo.reports.model import BatchDetail, TopologyStatus


@verb("replay")
@click.argument("topology")
@click.argument("txids", metavar="RANGE")
@click.option(
    "--verify", is_flag=True, help="Process the batches again and compare with what was committed; changes nothing."
)
@click.option(
    "--recompute", is_flag=True, help="Redo the batches and replace their contributions; only shown without --execute."
)
@click.option("--execute", is_flag=True, help="With --recompute: do it. Needs --reason.")
@click.option("--dry-run", is_flag=True, help="Only print the plan, whatever else is given.")
@reason_option
@json_option
@order_options
@click.pass_context
def replay(
    context: click.Context,
    /,
    topology: str,
    txids: str,
    verify: bool,
    recompute: bool,
    execute: bool,
    dry_run: bool,
    reason: str | None,
    as_json: bool,
    app: str | None,
    no_run: bool,
    timeout: float,
    **_: object,
) -> int:
    """Print what replaying the committed batches RANGE of TOPOLOGY would do; RANGE is 17, 17..42, 17.., ..42 or
    1,5,7..9.

    --verify reads their files again with Spark and compares with what was committed: MATCH, MISMATCH, or UNVERIFIED if
    this cannot be determined. --recompute --execute redoes them under new txids that subtract their old contributions,
    so that totals are as after a rebuild.

    Exit code 0: done, or all MATCH. 1: refused, or MISMATCH. 3: not known, UNVERIFIED, or the order stays open.
    """
    wanted = spans(txids)
    _check(verify, recompute, execute, dry_run, reason)
    if as_json and execute and not dry_run:
        raise click.UsageError("--json goes with the plan and with --verify")
    from txtopo.operating.carry_out import Manner, carry_out
    from txtopo.operating.last_run import poison_in_force
    from txtopo.operating.orders import NewOrder, RefusedError
    from txtopo.operating.replay_plans import plan_replay
    from txtopo.reports.read import read_status, reading

    operator = operator_of(context)
    with reading(str(operator.settings.dsn)) as connection:
        status = read_status(connection, topology)
        plan = plan_replay(connection, status, wanted, operator.say)
    if verify and not dry_run:
        return _verify(operator.settings, status, plan, app, as_json)
    if recompute and plan.obstacle is not None:
        raise RefusedError(f"{topology} {txids} cannot be recomputed: {plan.obstacle}")
    if not execute or dry_run:
        _show(plan, as_json, poison_in_force(operator.settings, status))
        operator.say("nothing was changed")
        return 0
    order = NewOrder(topology=topology, kind="recompute", txids=plan.recomputed, reason=reason)
    return carry_out(operator, status, order, plan.recomputed, Manner(app=app, no_run=no_run, timeout_s=timeout))


def _check(verify: bool, recompute: bool, execute: bool, dry_run: bool, reason: str | None) -> None:
    if verify and recompute:
        raise click.UsageError("--verify changes nothing, --recompute does: give one of them")
    if execute and not recompute:
        raise click.UsageError("--execute goes with --recompute")
    if execute:
        needs_reason(reason, dry_run)


def _show(plan: Replay, as_json: bool, poison: str) -> None:
    from txtopo.operating.replay_plans import replay_text
    from txtopo.reports.as_json import document, plain

    click.echo(
        document(
            "txtopo.replay/1",
            {**plain(plan), "txids": list(plan.txids), "tables": dict(plan.tables), "on_poison": poison},
        )
        if as_json
        else f"{replay_text(plan)}\nwith on_poison {poison}"
    )


def _verify(settings: Settings, status: TopologyStatus, plan: Replay, app: str | None, as_json: bool) -> int:
    from txtopo.core.values import IN_FOLDER
    from txtopo.errors import ConfigurationError
    from txtopo.operating.verify import exit_code_of, verified_text, verify
    from txtopo.reports.as_json import document, plain

    say = sayer(settings)
    _say_left_out(plan, say)
    application = app or (status.application and status.application.partition(IN_FOLDER)[0])
    if application is None or application.startswith("python "):
        raise ConfigurationError(
            f"{application or 'no application'} cannot be loaded from here: name FILE.py:ATTRIBUTE or "
            f"MODULE:ATTRIBUTE with --app"
        )
    batches = _counting(str(settings.dsn), status.topology, plan)
    found = []
    with _recount(settings, status.topology, application) as recount:
        for number, one in enumerate(verify(recount, batches), 1):
            found.append(one)
            if not as_json:
                click.echo(verified_text(one))
            elif number % 50 == 0:
                say(f"{number} of {len(batches)} batches are verified")
    code = exit_code_of(found)
    if as_json:
        click.echo(
            document("txtopo.verify/1", {"topology": status.topology, "batches": plain(found), "exit_code": code})
        )
    verdicts = [one.verdict for one in found]
    told = ", ".join(
        f"{verdicts.count(word)} {word}" for word in ("MATCH", "MISMATCH", "UNVERIFIED") if word in verdicts
    )
    say(f"{status.topology}: {told or 'no committed batch to verify'}; nothing was changed")
    return code


def _say_left_out(plan: Replay, say: Callable[[str], None]) -> None:
    for item in plan.batches:
        txid = item.batch.txid
        if item.counts_as is None:
            say(f"batch {txid} is quarantined, there is nothing to compare: txtopo redrive {plan.topology} {txid}")
        elif item.counts_as != txid:
            say(f"batch {txid} was redone: batch {item.counts_as} counts in its place")


def _counting(dsn: str, topology: str, plan: Replay) -> list[BatchDetail]:
    """Return the batches that count, in order; redos may be outside of the range."""
    from txtopo.reports.read import read_batch, reading

    known = {item.batch.txid: item.batch for item in plan.batches}
    with reading(dsn) as connection:
        found = [known.get(txid) or read_batch(connection, topology, txid) for txid in plan.txids]
    return [batch for batch in found if batch is not None]


@contextmanager
def _recount(settings: Settings, topology: str, application: str) -> Iterator[Recount]:
    """Process batches with the application's own code on a separate executor, without a lead."""
    from txtopo import app
    from txtopo.driver.load_application import code_hash, load_application, needs_spark
    from txtopo.errors import ConfigurationError
    from txtopo.operating.verify import Recount, check_same_topology

    started = False
    try:
        loaded = load_application(application)
    except ConfigurationError as error:
        if not needs_spark(error):
            raise
        from txtopo.spark.session.spark_session import start_session

        start_session(app.session_options(settings, "txtopo"))
        started = True
        loaded = load_application(application)
    try:
        check_same_topology(loaded, topology, application)
        digest = code_hash(loaded, settings.py_files, app.result_settings())
        executor = app.spark_executor(loaded, digest, settings)
        try:
            executor.start()
            yield Recount(dsn=str(settings.dsn), topology=loaded, code_hash=digest, executor=executor)
        finally:
            executor.close()
    finally:
        if started:
            from txtopo.spark.session.spark_session import stop_session

            stop_session()
