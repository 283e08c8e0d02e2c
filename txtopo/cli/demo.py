"""`txtopo demo`: a real job on its own services, killed twice, with a check of the result."""

from __future__ import annotations

import click

from txtopo.cli.common import load, verb


@verb("demo")
@click.option(
    "--files", type=click.IntRange(5, 365), default=365, show_default=True, metavar="N", help="Run on the first N days."
)
@click.option("--keep", is_flag=True, help="Keep the folder with data and logs, and print how to inspect it.")
@click.pass_context
def demo(context: click.Context, files: int, keep: bool) -> int:
    """Count a year of flights by carrier and airport on separate Postgres, ZooKeeper and Spark processes.

    Meanwhile, two drivers are killed with kill -9. Prints the table next to an independent recount; exit code 0 only if
    all totals agree and the ledger is correct. Needs only the package with its extra: pip install
    'txtopo[local]'.
    """
    from txtopo.demo.story import run_demo

    return run_demo(files=files, keep=keep, quiet=load(context).quiet)
