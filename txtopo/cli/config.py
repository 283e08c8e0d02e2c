"""`txtopo config`: the settings in force, and where each comes from."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import click

from txtopo.cli.common import HELP_NAMES, VerbCommand, dsn_of, example, json_option, load, naming
from txtopo.cli.verbs import VERBS
from txtopo.reports.not_found import no_topology

if TYPE_CHECKING:
    from txtopo.config import Settings


@click.group(
    "config",
    short_help=VERBS["config"].summary,
    epilog=example(VERBS["config"].example, global_flags=False),
    context_settings=HELP_NAMES,
)
def config() -> None:
    """Show the settings: flags first, then TXTOPO_* variables, txtopo.toml, pyproject.toml, the topology's own config,
    defaults.
    """


@config.command(
    "show",
    cls=VerbCommand,
    epilog=example("txtopo config show", "txtopo config show --app examples/flights.py:topology"),
)
@click.argument("topology", required=False)
@click.option(
    "--app", "application", metavar="APP", help="With the config of this application, as `txtopo run` names it."
)
@json_option
@click.pass_context
def show(context: click.Context, topology: str | None, application: str | None, as_json: bool) -> None:
    """Show every setting: its name and Storm's, value, unit, where the value comes from, and what it means. Changes and
    starts nothing.

    With TOPOLOGY the config of a topology that has run counts too, as the database has it; with --app that of the
    application. Passwords are
    hidden.
    """
    if topology is not None and application is not None:
        raise click.UsageError("give a TOPOLOGY or --app, not both", context)
    from txtopo.cli import settings_text

    settings = _in_force(load(context))
    own: Mapping[str, Any] = {}
    if application is not None:
        from txtopo.driver.load_application import load_application

        found = load_application(application)
        topology, own = found.name, found.config
    elif topology is not None:
        own = _stored(context, topology)
    shown = settings_text.shown_settings(settings.with_topology(own))
    passed = settings_text.passed_on(own)
    text = settings_text.as_json if as_json else settings_text.as_text
    click.echo(text(topology, shown, passed, settings_text.ignored(own)))


def _in_force(settings: Settings) -> Settings:
    """With the addresses of local services, where they run and a run would take them."""
    from txtopo.errors import ConfigurationError
    from txtopo.local.services import running_dev

    try:
        return settings.with_services(running_dev)
    except ConfigurationError:
        return settings


def _stored(context: click.Context, topology: str) -> Mapping[str, Any]:
    from txtopo.reports import read, stored_config

    dsn = dsn_of(context)
    with naming(dsn), read.reading(dsn) as connection:
        found = stored_config.read_config(connection, topology)
        if found is None:
            raise no_topology(topology, read.read_names(connection))
        return found
