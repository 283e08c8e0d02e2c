"""The command line: `txtopo VERB …`. Data on stdout, everything else on stderr, exit codes that scripts can branch on.

0 success; 1 negative result; 2 usage or configuration; 3 undetermined (a service is unreachable); 4 another driver
leads; 5 internal error; 130 interrupted. Each verb is in a module of this package that is imported only when it is
called.
"""

from __future__ import annotations

import importlib
import os
import sys
import tempfile
import traceback
from collections.abc import Sequence
from typing import Any

import click
from click.shell_completion import shell_complete

from txtopo.cli.common import HELP_NAMES, global_options
from txtopo.cli.verbs import ALIASES, VERBS, no_command
from txtopo.errors import Halted, InvariantBroken, TxtopoError

INTERRUPTED = 130
BROKEN_PIPE = 141
"""The exit code that a shell reports for a program whose output was closed."""
COMPLETE = "_TXTOPO_COMPLETE"
"""Variable by which a shell asks for its completion script (`bash_source`), and the script asks for words."""


class LazyGroup(click.Group):
    """Imports a command when it is needed, and lists all commands without importing any."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(VERBS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        name = ALIASES.get(cmd_name, cmd_name)
        if name not in VERBS:
            return None
        module = importlib.import_module(f"txtopo.cli.{VERBS[name].module or name}")
        command: click.Command = getattr(module, name)
        return command

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        if (
            args[0] not in VERBS
            and args[0] not in ALIASES
            and not args[0].startswith("-")
            and not ctx.resilient_parsing
        ):
            raise click.UsageError(no_command(args[0]), ctx)
        return super().resolve_command(ctx, args)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Commands"):
            formatter.write_dl([(verb.name, verb.summary) for verb in VERBS.values()])
        with formatter.section("Examples"):
            for verb in VERBS.values():
                formatter.write_text(verb.example)


def _show_version(context: click.Context, _: click.Parameter, wanted: bool) -> None:
    if wanted and not context.resilient_parsing:
        from txtopo._version import __version__

        click.echo(f"txtopo {__version__}")
        context.exit()


@click.group(
    "txtopo",
    cls=LazyGroup,
    context_settings=HELP_NAMES,
    params=[
        *global_options(hidden=False),
        click.Option(
            ["-V", "--version"],
            is_flag=True,
            is_eager=True,
            expose_value=False,
            callback=_show_version,
            help="Show the version.",
        ),
    ],
    epilog="Settings: flags first, then TXTOPO_* variables, then txtopo.toml. `txtopo COMMAND --help` says more.",
)
def cli() -> None:
    """Exactly-once batches from Spark into Postgres."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command and return its exit code."""
    flags: dict[str, Any] = {}
    for stream in (sys.stdout, sys.stderr):
        if hasattr(stream, "reconfigure"):
            stream.reconfigure(errors="replace")  # A terminal that cannot print thin spaces must not cause a traceback.
    try:
        typed = list(sys.argv[1:] if arguments is None else arguments)
        if asked := os.environ.get(COMPLETE):
            return shell_complete(cli, {"obj": flags}, "txtopo", COMPLETE, asked)
        if typed[:1] == ["help"]:
            typed = [*typed[1:], "--help"]
        with cli.make_context("txtopo", typed, obj=flags) as context:
            result = cli.invoke(context)
            sys.stdout.flush()
            return result if isinstance(result, int) else 0
    except click.exceptions.Exit as end:
        return end.exit_code
    except (KeyboardInterrupt, click.Abort):
        click.echo("txtopo: interrupted", err=True)
        return INTERRUPTED
    except BrokenPipeError:
        # Python flushes stdout once more at the end: into os.devnull.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return BROKEN_PIPE
    except Exception as error:
        try:
            return _failed(error, flags)
        except BrokenPipeError:  # Nobody reads the message any more; the exit code still tells the failure.
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stderr.fileno())
            return _exit_code(error)


def _exit_code(error: Exception) -> int:
    if isinstance(error, click.ClickException):
        return 2
    return error.exit_code if isinstance(error, TxtopoError) else TxtopoError.exit_code


def _failed(error: Exception, flags: dict[str, Any]) -> int:
    """Print what failed and what to do, and return the exit code."""
    if flags.get("debug") or os.environ.get("TXTOPO_DEBUG", "0").lower() not in ("", "0", "false", "no", "off"):
        click.echo(_trace(error), err=True, nl=False)
    if isinstance(error, click.ClickException):
        if isinstance(error, click.UsageError) and error.ctx is not None:
            click.echo(f"{error.ctx.get_usage()}\n", err=True)
        _complain(error.format_message(), flags)
        return _exit_code(error)
    if isinstance(error, TxtopoError) and not isinstance(error, InvariantBroken):
        _complain(str(error), flags)
        if isinstance(error, Halted) and error.next_command:
            click.echo(f"  next: {error.next_command}", err=True)
        return _exit_code(error)
    try:
        where = f"the trace is in {_keep_trace(error)}"
    except OSError as trouble:  # The disk may be full.
        click.echo(_trace(error), err=True, nl=False)
        where = f"the trace is above, since no file could be written: {trouble}"
    _complain(f"internal error: {error!r}; {where}", flags)
    return _exit_code(error)


def _complain(message: str, flags: dict[str, Any]) -> None:
    from txtopo.core.connect_strings import masked

    plain = flags.get("no_color") or os.environ.get("NO_COLOR") or os.environ.get("TERM") == "dumb"
    prefix = click.style("txtopo:", fg="red", bold=True)
    click.echo(f"{prefix} {masked(message)}", err=True, color=False if plain else None)


def _trace(error: Exception) -> str:
    from txtopo.core.connect_strings import masked

    return masked("".join(traceback.format_exception(error)))


def _keep_trace(error: Exception) -> str:
    with tempfile.NamedTemporaryFile(
        "w", encoding="utf-8", prefix="txtopo-trace-", suffix=".txt", delete=False
    ) as file:
        file.write(_trace(error))
    return file.name
