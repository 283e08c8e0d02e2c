"""`txtopo run`: one topology in the foreground."""

from __future__ import annotations

import click

from txtopo.cli.common import load, option, reachable, verb


@verb("run")
@click.argument("application", metavar="APP")
@option("--once", setting="once", is_flag=True, help="End when the input that exists now is committed.")
@option("--master", setting="master", metavar="URL", help="Spark master; this machine when not given.")
@option("--conf", setting="conf", multiple=True, metavar="NAME=VALUE", help="A setting of Spark; may be repeated.")
@option("--py-files", setting="py_files", metavar="FILE,…", help="Modules, zips and wheels that the tasks need.")
@option("--workers", setting="workers", metavar="N", help="Number of waves of batches that are processed concurrently.")
@option(
    "--spout-pending-max",
    setting="spout_pending_max",
    metavar="N",
    help="Maximum number of batches that are planned and not yet committed.",
)
@option("--attempts-max", setting="attempts_max", metavar="N", help="Failures of a batch before --on-poison decides.")
@option(
    "--on-poison",
    setting="on_poison",
    metavar="halt|quarantine_batch|dead_letter_rows",
    help="What happens to a batch that keeps failing: the topology halts (default), the batch is quarantined and later "
    "batches continue, or only its failing rows are skipped.",
)
@option(
    "--message-timeout",
    setting="message_timeout_s",
    metavar="TIME",
    help="An attempt without progress for this time is cancelled, e.g. 300 or 5m.",
)
@option("--log-folder", setting="log_folder", metavar="FOLDER", help="Write logs here.")
@click.pass_context
def run(context: click.Context, /, application: str, **_: object) -> int:
    """Run the topology APP, file.py:topology or package.module:topology, in the foreground until it is stopped.

    Without --dsn and --zk it uses the services that `txtopo dev up` started, and brings their schema up to date.
    """
    settings = reachable(load(context), zookeeper=True)
    from txtopo.app import run_application

    return run_application(application, settings)
