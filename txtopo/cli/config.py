"""`txtopo config`: every setting in force with its value, its source and its meaning, and no secret."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import click

from txtopo.cli.common import HELP_NAMES, VerbCommand, dsn_of, example, json_option, load, naming
from txtopo.cli.verbs import VERBS
from txtopo.config import SettingInfo, Settings, is_setting, known_settings
from txtopo.core.connect_strings import masked
from txtopo.core.storm_settings import ignored_in, why_nothing
from txtopo.reports.not_found import no_topology

SCHEMA = "txtopo.config/1"
HIDDEN = "***"
_SECRET_NAME = re.compile(r"secret|password|passwd|token|credential|access[._-]?key|api[._-]?key", re.IGNORECASE)
"""Names of secrets: those that Spark redacts in its own settings, and a few more."""
_OF_FILE = re.compile(r"(?P<path>.+) \[(?P<table>[^\]]+)\]")
_HEADER = re.compile(r"\s*\[(?P<table>[^\[\]]+)\]\s*(?:#.*)?")
_ENTRY = re.compile(r"""\s*(?P<key>(?:[\w-]+|"[^"]*"|'[^']*')(?:\s*\.\s*(?:[\w-]+|"[^"]*"|'[^']*'))*)\s*=""")


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
    application. Passwords are hidden.
    """
    if topology is not None and application is not None:
        raise click.UsageError("give a TOPOLOGY or --app, not both", context)
    settings = _in_force(load(context))
    own: Mapping[str, Any] = {}
    if application is not None:
        from txtopo.driver.load_application import load_application

        found = load_application(application)
        topology, own = found.name, found.config
    elif topology is not None:
        own = _stored(context, topology)
    shown = shown_settings(settings.with_topology(own))
    passed = passed_on(own)
    text = settings_json if as_json else settings_text
    click.echo(text(topology, shown, passed, ignored(own)))


def _in_force(settings: Settings) -> Settings:
    """Return the settings with the addresses of local services, if they run and a run would use them."""
    from txtopo.errors import ConfigurationError
    from txtopo.local.services import running_dev

    try:
        return settings.with_services(running_dev)
    except ConfigurationError:
        return settings


def _stored(context: click.Context, topology: str) -> Mapping[str, Any]:
    from txtopo.reports import read
    from txtopo.reports.stored_description import read_config

    dsn = dsn_of(context)
    with naming(dsn), read.reading(dsn) as connection:
        found = read_config(connection, topology)
        if found is None:
            raise no_topology(topology, read.read_names(connection))
        return found


@dataclass(frozen=True, slots=True, kw_only=True)
class ShownSetting:
    """One setting, safe to print."""

    info: SettingInfo
    value: object
    """The value as JSON has it."""
    source: str
    """Its source; for a file with the line, if it is found."""


def shown_settings(settings: Settings) -> list[ShownSetting]:
    """Return every setting in force; after `conf`, each of Spark's settings under its own name, `conf.spark.…`."""
    shown = []
    for info in known_settings():
        if info.name == "conf":
            shown += [_of_spark(settings, info, name, value) for name, value in sorted(settings.conf.items())]
            if settings.conf:
                continue
        source = _with_line(settings.source(info.name), (info.name, *filter(None, (info.storm,))))
        shown.append(ShownSetting(info=info, value=_plain(getattr(settings, info.name)), source=source))
    return shown


def passed_on(config: Mapping[str, Any]) -> dict[str, Any]:
    """Return the entries of a topology's own config that are not settings: they are passed to components."""
    return {
        name: _hidden(name, value)
        for name, value in config.items()
        if not is_setting(name) and why_nothing(name) is None
    }


def ignored(config: Mapping[str, Any]) -> dict[str, str]:
    """Return its entries that Storm knows and that have no effect here, with the reason."""
    return {one.name: one.why for one in ignored_in("the topology", config, (), whole=True)}


def settings_json(
    topology: str | None, shown: Sequence[ShownSetting], passed: Mapping[str, Any], ignored: Mapping[str, str]
) -> str:
    """Return one JSON document."""
    listed = [
        {
            "name": one.info.name,
            "storm": one.info.storm,
            "value": one.value,
            "unit": one.info.unit,
            "source": one.source,
            "default": _plain(one.info.default),
            "variable": one.info.variable,
            "meaning": one.info.meaning,
        }
        for one in shown
    ]
    return json.dumps(
        {
            "schema": SCHEMA,
            "topology": topology,
            "settings": listed,
            "components": dict(passed),
            "ignored": dict(ignored),
        },
        indent=2,
    )


def settings_text(
    topology: str | None, shown: Sequence[ShownSetting], passed: Mapping[str, Any], ignored: Mapping[str, str]
) -> str:
    """Return two lines for each setting: name, value and source; below it Storm's name and the meaning."""
    width = max(len(one.info.name) for one in shown)
    values = [_for_people(one.value, one.info.unit) for one in shown]
    column = min(max(map(len, values)), 40)
    lines = [f"Settings of {topology}:" if topology else "Settings:"]
    for one, value in zip(shown, values, strict=True):
        storm = f"{one.info.storm}: " if one.info.storm else ""
        lines += [f"{one.info.name:<{width}}  {value:<{column}}  {one.source}", f"  {storm}{one.info.meaning}"]
    if passed:
        lines += ["", "Passed on to components:", *(f"{name} = {json.dumps(value)}" for name, value in passed.items())]
    if ignored:
        lines += ["", "Storm's, and they mean nothing here:", *(f"{name}: {why}" for name, why in ignored.items())]
    return "\n".join(lines)


def _of_spark(settings: Settings, info: SettingInfo, name: str, value: str) -> ShownSetting:
    own = SettingInfo(
        name=f"conf.{name}", storm=None, variable=info.variable, unit=None, default=None, meaning="A setting of Spark."
    )
    source = _with_line(settings.source(f"conf.{name}"), (f"conf.{name}", "conf"))
    return ShownSetting(info=own, value=_hidden(name, value), source=source)


def _hidden(name: str, value: Any) -> Any:
    """Return a value of a name that txtopo does not know: hidden if the name looks like that of a secret."""
    if value is not None and _SECRET_NAME.search(name):
        return HIDDEN
    if isinstance(value, Mapping):
        return {str(key): _hidden(str(key), item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_hidden(name, item) for item in value]
    return masked(value) if isinstance(value, str) else value


def _plain(value: object) -> object:
    if isinstance(value, str | Path):
        return masked(str(value))
    if isinstance(value, tuple):
        return [masked(str(item)) for item in value]
    return dict(value) if isinstance(value, Mapping) else value


def _for_people(value: object, unit: str | None) -> str:
    if value is None or value in ({}, []):
        return "-"
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, list):
        return ", ".join(map(str, value))
    if unit == "bytes" and isinstance(value, int) and value and not value % 1024**2:
        return f"{value // 1024**2} MiB"
    number = f"{value:g}" if isinstance(value, float) else str(value)
    return f"{number} {unit}" if unit else number


def _with_line(source: str, names: Sequence[str]) -> str:
    """Return `FILE:LINE [TABLE]` for a source in a file; unchanged if the line is not found."""
    match = _OF_FILE.fullmatch(source)
    if match is None:
        return source
    try:
        lines = Path(match["path"]).read_text("utf-8").splitlines()
    except (OSError, UnicodeDecodeError):
        return source
    wanted = {f"{match['table']}.{name}" for name in names}
    table = ""
    for number, line in enumerate(lines, 1):
        if header := _HEADER.fullmatch(line):
            table = _bare(header["table"])
        elif (entry := _ENTRY.match(line)) and f"{table}.{_bare(entry['key'])}" in wanted:
            return f"{match['path']}:{number} [{match['table']}]"
    return source


def _bare(key: str) -> str:
    """Return a dotted key without quotes and blanks."""
    return re.sub(r"""["'\s]""", "", key)
