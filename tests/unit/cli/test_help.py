"""The examples in the help are command lines: each is parsed by the command that shows it, without doing anything."""

from __future__ import annotations

import inspect
import re
import shlex
from typing import Any

import click
import pytest
from click.testing import CliRunner

from txtopo import run_settings
from txtopo.cli import cli
from txtopo.cli.run import run
from txtopo.cli.verbs import VERBS
from txtopo.config import meanings
from txtopo.core.attribute_docs import attribute_docs

SUBCOMMANDS = {"config": ("show",), "dev": ("up", "down", "status")}
"""Commands that have some of their own."""


def parsed(line: str) -> tuple[str, dict[str, Any]]:
    """Full name and arguments of a command line, as click understands it; nothing is called."""
    program, *words = shlex.split(line)
    assert program == "txtopo"
    group: click.Group = cli
    context = click.Context(cli, info_name=program, obj={})
    names = []
    while True:
        name, command, words = group.resolve_command(context, words)
        assert name is not None
        assert command is not None
        names.append(name)
        if not isinstance(command, click.Group):
            with command.make_context(name, words, parent=context) as inner:
                return " ".join(names), inner.params
        group, context = command, click.Context(command, info_name=name, parent=context)


def examples(verb: str) -> list[str]:
    """The example lines at the end of a command's help; of one that a shell is to evaluate, the command in it."""
    help_text = CliRunner().invoke(cli, [*verb.split(), "--help"]).stdout
    block = help_text.partition("Example:\n")[2].split("\n\n")[0]
    return [re.sub(r'^eval "\$\((.*)\)"$', r"\1", line.strip()) for line in block.splitlines()]


ALL = [
    (verb, line)
    for name in VERBS
    for verb in (name, *(f"{name} {below}" for below in SUBCOMMANDS.get(name, ())))
    for line in examples(verb)
]


def test_every_command_has_an_example() -> None:
    """Promise: every command's help ends with an example."""
    assert {verb.split()[0] for verb, _ in ALL} == set(VERBS)


@pytest.mark.parametrize(("verb", "line"), ALL)
def test_an_example_is_understood_by_its_command(verb: str, line: str) -> None:
    """Promise: the example works as written: its command takes every word of it."""
    name, _ = parsed(line)

    assert name == verb or name.startswith(f"{verb} ")


@pytest.mark.parametrize(
    ("verb", "expected"),
    [
        ("run", {"application": "examples/flights.py:topology", "once": True}),
        ("show", {"topology": "flights", "txid": 17}),
        ("events", {"topology": "flights", "follow": True}),
        ("audit", {"topology": "flights", "txids": "1..42"}),
        ("retry", {"topology": "flights", "txids": (((17, 17),),), "dry_run": False}),
        ("skip", {"txid": 17, "reason": "the file is damaged, ticket 4711"}),
        ("replay", {"txids": "17..42", "verify": True, "execute": False}),
        ("stop", {"topology": "flights", "timeout": 120.0}),
        ("migrate", {"check": True}),
    ],
)
def test_an_example_means_what_it_shows(verb: str, expected: dict[str, Any]) -> None:
    """The words land in the parameters that they are meant for."""
    _, arguments = parsed(VERBS[verb].example)

    assert {name: arguments[name] for name in expected} == expected


def test_a_wrong_example_would_be_found() -> None:
    """The parser in here is click's own and refuses what it does not know."""
    for line in ("txtopo status --nonsense", "txtopo show flights seventeen", "txtopo dev sideways", "txtopo statsu"):
        with pytest.raises(click.ClickException):
            parsed(line)


def test_a_setting_has_one_text_wherever_it_is_shown() -> None:
    """What `run --help` and the global flags say is what `config show` says, and what an editor shows."""
    docs = {**meanings(), **attribute_docs(inspect.getsource(run_settings), "RunSettings")}
    shown: dict[str, str] = {}
    for option in [*cli.params, *run.params]:
        record = option.get_help_record(click.Context(run))
        if option.name in docs and record is not None:
            shown[option.name] = " ".join(record[1].split())

    assert {"once", "workers", "on_poison", "message_timeout_s", "dsn", "zookeeper", "config", "target"} < set(shown)
    assert {name: text for name, text in shown.items() if not text.startswith(docs[name])} == {}
