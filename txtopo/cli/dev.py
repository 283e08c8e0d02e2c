"""`txtopo dev`: local Postgres and ZooKeeper, and if wanted Kafka, for trying things out."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import click

from txtopo.cli.common import HELP_NAMES, VerbCommand, example, json_option, load, sayer
from txtopo.cli.verbs import VERBS
from txtopo.core.connect_strings import zookeeper_address

if TYPE_CHECKING:
    from txtopo.local.services import ServicesState


@click.group(
    "dev",
    short_help=VERBS["dev"].summary,
    epilog=example(VERBS["dev"].example, global_flags=False),
    context_settings=HELP_NAMES,
)
def dev() -> None:
    """Start, stop and show local services: a Postgres and a ZooKeeper that `txtopo run` finds by itself."""


@dev.command("up", cls=VerbCommand, epilog=example("txtopo dev up", 'eval "$(txtopo dev up)"', "txtopo dev up --kafka"))
@click.option("--kafka", is_flag=True, help="Also start a Kafka broker; it is downloaded once (44 MB, Maven Central).")
@json_option
@click.pass_context
def up(context: click.Context, kafka: bool, as_json: bool) -> None:
    """Start the services that do not run yet; they continue when this command ends. Prints their addresses as export
    lines.
    """
    from txtopo.committers.postgres.migrate import migrate
    from txtopo.local.services import dev_up

    sayer(load(context))(f"starting Postgres{', ZooKeeper and Kafka' if kafka else ' and ZooKeeper'} …")
    state = dev_up(kafka=kafka)
    migrate(state.dsn)
    _print(state, as_json)


@dev.command("down", cls=VerbCommand, epilog=example("txtopo dev down", "txtopo dev down --wipe"))
@click.option("--wipe", is_flag=True, help="Delete their data as well.")
@click.pass_context
def down(context: click.Context, wipe: bool) -> None:
    """Stop local services. Their data is kept unless --wipe is given."""
    from txtopo.local.services import dev_down

    ran = dev_down(wipe=wipe)
    data = "their data is deleted" if wipe else "their data stays"
    sayer(load(context))(
        f"local services are stopped, {data}" if ran else f"local services did not run{', ' + data if wipe else ''}"
    )


@dev.command("status", cls=VerbCommand, epilog=example("txtopo dev status", "txtopo dev status --json"))
@json_option
def status(as_json: bool) -> int:
    """Show whether local services run, and their addresses. Exit code 1 if they do not run."""
    from txtopo.local.services import dev_status

    state = dev_status()
    _print(state, as_json)
    return 0 if state is not None else 1


def _print(state: ServicesState | None, as_json: bool) -> None:
    if as_json:
        values = (
            None
            if state is None
            else {
                "dsn": state.dsn,
                "zookeeper": zookeeper_address(state.zookeeper),
                "folder": state.folder,
                "postgres_pid": state.postgres_pid,
                "zookeeper_pid": state.zookeeper_pid,
                "kafka": state.kafka,
                "kafka_pid": state.kafka_pid,
            }
        )
        click.echo(json.dumps({"schema": "txtopo.dev/1", "running": state is not None, "services": values}, indent=2))
    elif state is None:
        click.echo("local services do not run; start them with `txtopo dev up`", err=True)
    else:
        import shlex

        click.echo(f"export TXTOPO_DSN={shlex.quote(state.dsn)}")
        click.echo(f"export TXTOPO_ZK={shlex.quote(zookeeper_address(state.zookeeper))}")
        if state.kafka is not None:
            click.echo(f"export TXTOPO_KAFKA={shlex.quote(state.kafka)}")
        click.echo("`txtopo run` finds them without these lines; stop them with `txtopo dev down`", err=True)
