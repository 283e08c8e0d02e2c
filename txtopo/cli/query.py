"""`txtopo query`: asks a query of a topology."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from txtopo.cli.common import dsn_of, json_option, verb

if TYPE_CHECKING:
    from txtopo.core.fields import Field, Fields


@verb("query")
@click.argument("application", metavar="APP")
@click.argument("name", metavar="QUERY")
@click.argument("values", nargs=-1, metavar="[VALUE]...")
@json_option
@click.pass_context
def query(context: click.Context, application: str, name: str, values: tuple[str, ...], as_json: bool) -> int:
    """Ask QUERY of the topology APP, with a value for each of its fields. Its steps run in this process, without Spark;
    the states that it reads are those of one moment, and the answer names the last batch in them.

    A value is text, read as the type of its field. Exit code 3 when the database does not answer.
    """
    from txtopo.client import Client
    from txtopo.driver.load_application import load_application
    from txtopo.operating.ask_queries import ask_without_tables
    from txtopo.reports.answer_text import answer_json, answer_text
    from txtopo.topology.queries import find_query

    topology = load_application(application)
    question = typed(name, find_query(topology, name).fields, values)
    found = ask_without_tables(topology, name, [question])
    if found is None:
        found = Client(dsn_of(context)).query(topology, name, question)
    click.echo(answer_json(topology.name, name, found) if as_json else answer_text(found))
    return 0


def typed(name: str, fields: Fields, values: tuple[str, ...]) -> tuple[Any, ...]:
    """Return texts as values of the fields. Raises ConfigurationError for one that is none of its type."""
    if len(values) != len(fields.items):
        from txtopo.errors import ConfigurationError

        raise ConfigurationError(f"query {name} is asked with {fields.ddl}, and got {len(values)} values")
    return tuple(_value(name, field, text) for field, text in zip(fields.items, values, strict=True))


def _value(name: str, field: Field, text: str) -> Any:
    import pyarrow as pa

    from txtopo.core.fields import Fields
    from txtopo.errors import ConfigurationError
    from txtopo.spouts.arrow_types import arrow_schema

    if field.type.kind == "string":
        return text
    try:
        return pa.scalar(text, pa.string()).cast(arrow_schema(Fields((field,))).field(0).type).as_py()
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError) as error:
        raise ConfigurationError(f"query {name}: {field.name}: {text!r} is no {field.type}") from error
