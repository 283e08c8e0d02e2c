"""`txtopo explain`: what a topology is, without running it."""

from __future__ import annotations

from contextlib import ExitStack
from dataclasses import replace
from typing import TYPE_CHECKING

import click

from txtopo.cli.common import json_option, load, sayer, verb

if TYPE_CHECKING:
    from txtopo.config import Settings
    from txtopo.topology.components import Topology


@verb("explain")
@click.argument("application", metavar="APP")
@click.option("--no-spark", is_flag=True, help="Start no local Spark to see whether DataFrame bolts run in waves.")
@json_option
@click.pass_context
def explain(context: click.Context, application: str, no_spark: bool, as_json: bool) -> None:
    """Show what the topology APP is: its components and the streams between them, the tables that its committers would
    make, what each spout
    and committer guarantee together, how tuples are acked, and whether batches run in waves - and if not, which bolt is
    the reason.

    Changes nothing and needs no service. A local Spark is started for DataFrame bolts only.
    """
    from txtopo.cli import explain_text, explaining

    settings = load(context)
    with ExitStack() as at_end:
        topology = _loaded(application, settings, None if no_spark else at_end)
        settings = settings.with_topology(topology.config)
        waves = explaining.waves_without_spark(topology, settings)
        if waves is None:
            frames = explaining.frames_of(topology)
            if no_spark:
                waves = explaining.unknown_waves(frames)
            else:
                waves = explaining.WavesExplained.refused(_refusal(topology, settings, at_end))
        document = explaining.explained(topology, settings, waves)
    click.echo(explain_text.as_json(document) if as_json else explain_text.as_text(document))


def _loaded(application: str, settings: Settings, at_end: ExitStack | None) -> Topology:
    """The application. Some modules cannot be imported before Spark runs; without `at_end` that is an error."""
    from txtopo.driver.load_application import load_application, needs_spark
    from txtopo.errors import ConfigurationError

    try:
        return load_application(application)
    except ConfigurationError as error:
        if at_end is None or not needs_spark(error):
            raise
        _start(settings, at_end)
        return load_application(application)


def _refusal(topology: Topology, settings: Settings, at_end: ExitStack) -> str | None:
    from txtopo.spark.executor import wave_refusal
    from txtopo.spark.session.spark_session import running_session

    session = running_session()
    if session is None:
        _start(settings, at_end)
        session = running_session()
    if session is None:
        raise RuntimeError("Spark was started and there is no session")
    return wave_refusal(topology, session)


def _start(settings: Settings, at_end: ExitStack) -> None:
    """A local Spark, whatever master a run would use: plans are the same everywhere."""
    from txtopo.app import session_options
    from txtopo.spark.session.spark_session import start_session, stop_session

    sayer(settings)("starting a local Spark, to see the plans of DataFrame bolts (--no-spark leaves that out)")
    at_end.callback(stop_session)
    start_session(session_options(replace(settings, master="local[1]"), "txtopo explain"))
