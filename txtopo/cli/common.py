"""Shared by every command: global flags before or after the verb, settings, output."""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click
from click.core import ParameterSource

from txtopo.cli.verbs import VERBS
from txtopo.errors import PostgresUnavailable, unreachable

if TYPE_CHECKING:
    from txtopo.config import Settings

HELP_NAMES = {"help_option_names": ["-h", "--help"]}
_Function = TypeVar("_Function", bound=Callable[..., Any])


class VerbCommand(click.Command):
    """A command whose help ends with an example and which accepts the global flags too, after the verb."""

    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self.context_settings = {**HELP_NAMES, **self.context_settings}
        self.params = [*self.params, *global_options(hidden=True)]


class SettingOption(click.Option):
    """An option that sets a setting: its help is the setting's docstring, read only when help is shown."""

    def get_help_record(self, ctx: click.Context) -> tuple[str, str] | None:
        """Return names and help."""
        if self.help is None and self.name is not None:
            self.help = meaning(self.name)
        return super().get_help_record(ctx)


def meaning(setting: str) -> str:
    """Return the docstring of a setting, or of a keyword that says where settings are read. Reads the text of the
    modules, since help must not wait for their imports.
    """
    from txtopo.core.attribute_docs import attribute_docs

    for module, owner in (("config.py", "Settings"), ("run_settings.py", "RunSettings")):
        docs = attribute_docs((Path(__file__).parents[1] / module).read_text("utf-8"), owner)
        if setting in docs:
            return docs[setting]
    return unreachable(f"{setting} is no setting")


def verb(name: str, **options: Any) -> Callable[[Callable[..., Any]], click.Command]:
    """Declare the command `name` from the table of verbs."""
    known = VERBS[name]
    return click.command(name, cls=VerbCommand, short_help=known.summary, epilog=example(known.example), **options)


def example(*lines: str, global_flags: bool = True) -> str:
    """Return an epilog that click does not re-wrap."""
    hint = ["", "Global flags (txtopo --help) are accepted here too."] if global_flags else []
    return "\n".join(["\b", "Example:", *(f"  {line}" for line in lines), *hint])


def option(*names: str, setting: str | None = None, **options: Any) -> Callable[[_Function], _Function]:
    """Return a click option that sets `setting`, with its environment variable in the help. The variable itself is read
    with the settings. Without `help=`, the help is the setting's docstring.
    """
    if setting is not None:
        names = (*names, setting)
        variable = _VARIABLES.get(setting, f"TXTOPO_{setting.upper()}")
        options = {"cls": SettingOption, "envvar": variable, "show_envvar": True, **options}
    return click.option(*names, **options)


_VARIABLES = {"zookeeper": "TXTOPO_ZK"}


def json_option(function: _Function) -> _Function:
    """Return the option `--json`, the same for every command that reads."""
    decorate = click.option("--json", "as_json", is_flag=True, help="One JSON document with its schema version.")
    return decorate(function)


def global_options(*, hidden: bool) -> list[click.Option]:
    """Return new global flags; their values are stored in the context's object."""

    def flag(*names: str, variable: str | None = None, **options: Any) -> click.Option:
        made = click.Option if "help" in options else SettingOption
        return made(
            names, envvar=variable, show_envvar=True, hidden=hidden, expose_value=False, callback=_remember, **options
        )

    return [
        flag("--dsn", variable="TXTOPO_DSN", metavar="URL"),
        flag("--zk", "zookeeper", variable="TXTOPO_ZK", metavar="HOSTS"),
        flag("-c", "--config", variable="TXTOPO_CONFIG", metavar="FILE"),
        flag("-t", "--target", variable="TXTOPO_TARGET", metavar="NAME"),
        flag("-q", "--quiet", variable="TXTOPO_QUIET", is_flag=True),
        flag("-v", "--verbose", variable="TXTOPO_VERBOSE", count=True),
        flag("--debug", variable="TXTOPO_DEBUG", is_flag=True),
        flag("--no-color", is_flag=True, help="No colours; NO_COLOR does the same."),
    ]


def _remember(context: click.Context, parameter: click.Parameter, value: Any) -> None:
    # The environment is read with the settings, so that the source of each value is known; click only shows the
    # variables in its help.
    if parameter.name and context.get_parameter_source(parameter.name) is ParameterSource.COMMANDLINE:
        context.ensure_object(dict)[parameter.name] = value


def load(context: click.Context) -> Settings:
    """Return the settings of this command: its own flags, the global ones, then the weaker sources."""
    from txtopo.config import load_settings

    given = dict(context.ensure_object(dict))
    given.pop("no_color", None)
    target = given.pop("target", None)
    own = {
        name: value
        for name, value in context.params.items()
        if name in _SETTINGS and context.get_parameter_source(name) is ParameterSource.COMMANDLINE
    }
    if isinstance(own.get("py_files"), str):
        own["py_files"] = own["py_files"].split(",")  # In the format of spark-submit.
    return load_settings({**given, **own}, cwd=Path.cwd(), environment=os.environ, target=target)


_SETTINGS = frozenset(
    {
        "once",
        "master",
        "conf",
        "py_files",
        "workers",
        "spout_pending_max",
        "attempts_max",
        "on_poison",
        "message_timeout_s",
        "log_folder",
    }
)


def reachable(settings: Settings, *, zookeeper: bool = False) -> Settings:
    """Return these settings, completed from running local services if no store is given."""
    from txtopo.local.services import running_dev

    return settings.with_services(running_dev, zookeeper=zookeeper)


def dsn_of(context: click.Context) -> str:
    """Return the database that a reading command reads: the given one, or that of local services."""
    return str(reachable(load(context)).dsn)


@contextmanager
def naming(dsn: str) -> Iterator[None]:
    """Add the database, with its password hidden, to a message that it is unreachable."""
    from txtopo.core.connect_strings import masked

    try:
        yield
    except PostgresUnavailable as error:
        message = masked(str(error)).removeprefix("postgres: ")
        if masked(dsn) in message:
            raise
        raise PostgresUnavailable(f"{masked(dsn)}: {message}", definite=error.definite) from error


def width_of_terminal() -> int | None:
    """Return the number of columns of the terminal at stdout; None for a file or a pipe, whose lines may have any
    length.
    """
    return shutil.get_terminal_size().columns if sys.stdout.isatty() else None


def sayer(settings: Settings) -> Callable[[str], None]:
    """Return a function that prints a line to stderr; it prints nothing with `--quiet`."""

    def say(line: str) -> None:
        if not settings.quiet:
            click.echo(line, err=True)

    return say
