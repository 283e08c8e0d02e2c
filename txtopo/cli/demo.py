"""`txtopo demo`: real jobs on their own services, killed or halted on the way, with a check of the result."""

from __future__ import annotations

import click

from txtopo.cli.common import load, verb

FILES = 365


@verb("demo")
@click.argument("story", type=click.Choice(["flights", "kafka", "logs"]), default="flights", required=False)
@click.option(
    "--files",
    type=click.IntRange(5, FILES),
    metavar="N",
    help=f"Of flights: run on the first N days.  [default: {FILES}]",
)
@click.option("--keep", is_flag=True, help="Keep the folder with data and logs, and print how to inspect it.")
@click.pass_context
def demo(context: click.Context, story: str, files: int | None, keep: bool) -> int:
    """Play a story on separate Postgres, ZooKeeper and Spark processes.

    flights: a year of flights is counted by carrier and airport; meanwhile, two drivers are killed with kill -9.
    logs: access logs are counted by section and status; a bug stops the topology; after its fix, `txtopo retry` replays
    the failed batch.
    kafka: orders of a Kafka topic are counted by shop and kind; a driver is killed, then an order that nobody expected
    stops the topology; after the fix, `txtopo retry` replays its batch. Needs pip install 'txtopo[kafka,local]', and
    downloads a broker once (44 MB).

    Prints the table next to an independent recount; exit code 0 only if all totals agree and the ledger is correct.
    Needs only the package with its extra: pip install 'txtopo[local]'.
    """
    quiet = load(context).quiet
    if story != "flights" and files is not None:
        raise click.UsageError("--files is an option of the story flights")
    if story == "kafka":
        from txtopo.demo.orders.orders_story import run_orders

        return run_orders(keep=keep, quiet=quiet)
    if story == "logs":
        from txtopo.demo.logs.logs_story import run_logs

        return run_logs(keep=keep, quiet=quiet)
    from txtopo.demo.story import run_demo

    return run_demo(files=FILES if files is None else files, keep=keep, quiet=quiet)
