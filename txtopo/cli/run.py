"""`txtopo run`: one topology in the foreground."""

from __future__ import annotations

import click

from txtopo.cli.common import load, option, reachable, verb


@verb("run")
@click.argument("application", metavar="APP")
@option("--once", setting="once", is_flag=True)
@option("--master", setting="master", metavar="URL")
@option("--conf", setting="conf", multiple=True, metavar="NAME=VALUE")
@option("--py-files", setting="py_files", metavar="FILE,…")
@option("--workers", setting="workers", metavar="N")
@option("--spout-pending-max", setting="spout_pending_max", metavar="N")
@option("--attempts-max", setting="attempts_max", metavar="N")
@option("--on-poison", setting="on_poison", metavar="halt|quarantine_batch|dead_letter_rows")
@option("--message-timeout", setting="message_timeout_s", metavar="TIME")
@option("--log-folder", setting="log_folder", metavar="FOLDER")
@click.pass_context
def run(context: click.Context, /, application: str, **_: object) -> int:
    """Run the topology APP, file.py:topology or package.module:topology, in the foreground until it is stopped.

    Without --dsn and --zk it uses the services that `txtopo dev up` started, and brings their schema up to date.
    """
    settings = reachable(load(context), zookeeper=True)
    from txtopo.app import run_application
    from txtopo.spark.session.class_archive import write_aside

    code = run_application(application, settings)
    write_aside()
    return code
