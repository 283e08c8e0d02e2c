"""`txtopo explain`: what a topology is, without running it."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import click

from txtopo.cli.common import json_option, load, sayer, verb
from txtopo.topology.committer_bolt import LATER
from txtopo.topology.jvm_work import JvmWork
from txtopo.topology.streams import DEFAULT_STREAM

if TYPE_CHECKING:
    from txtopo.config import Settings
    from txtopo.topology.components import Topology

ACKINGS = {
    "batch": "by batch: counts between tasks tell when a batch is complete",
    "tuple": "by tuple: counts between tasks, and the tree of every spout tuple",
    "off": "off: nothing tells whether a batch is complete but Spark",
}
JVM_WORKS = {
    JvmWork.MESSAGES: "computes with no rows",
    JvmWork.GROUPS: "adds up what tasks have counted, and optimises only loops over rows",
    JvmWork.ROWS: "computes with rows",
}
RUNTIMES = {
    "tuples": "tuples go from task to task, level by level",
    "dataframes": "DataFrames, which Spark spreads over its tasks",
}
MIB = 1024**2


@verb("explain")
@click.argument("application", metavar="APP")
@click.option("--no-spark", is_flag=True, help="Start no local Spark to see whether DataFrame bolts run in waves.")
@json_option
@click.pass_context
def explain(context: click.Context, application: str, no_spark: bool, as_json: bool) -> None:
    """Show what the topology APP is: its components and the streams between them, the tables that its committers would
    make, what each spout and committer guarantee together, how tuples are acked, and whether batches run in waves - and
    if not, which bolt is the reason.

    Changes nothing and needs no service. A local Spark is started for DataFrame bolts only.
    """
    from txtopo.cli import explaining

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
    click.echo(explain_json(document) if as_json else explain_text(document))


def _loaded(application: str, settings: Settings, at_end: ExitStack | None) -> Topology:
    """Return the application. Some modules can only be imported while Spark runs; without `at_end` this is an error."""
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
    """Start a local Spark, whatever master a run would use: plans are the same everywhere."""
    from txtopo.app import session_options
    from txtopo.spark.session.spark_session import start_session, stop_session

    sayer(settings)("starting a local Spark, to see the plans of DataFrame bolts (--no-spark leaves that out)")
    at_end.callback(stop_session)
    start_session(session_options(replace(settings, master="local[1]"), "txtopo explain"))


def explain_json(document: Mapping[str, Any]) -> str:
    """Return the document as JSON."""
    return json.dumps(document, indent=2)


def explain_text(document: Mapping[str, Any]) -> str:
    """Return the document as text: one block for each question."""
    return "\n".join(
        [
            document["topology"],
            f"  runtime    {RUNTIMES[document['runtime']]}",
            f"  acking     {_acking(document)}",
            f"  waves      {_waves(document['waves'])}",
            f"  commits    {_commits(document['commit_runs'])}",
            f"  JVM        {_jvm(document['jvm_work'], document['jvm_options'])}",
            "",
            "Components:",
            *_indented(line for item in document["components"] for line in _component(item)),
            "",
            f"Guarantees (the topology asks for {document['guarantee']}):",
            *_indented(_guarantee(pair) for pair in document["guarantees"]),
            "",
            "Tables:",
            *_indented(line for item in document["committers"] for line in _tables(item)),
            "",
            "What can be done with committed batches:",
            *_indented(line for item in document["committers"] for line in _later(item)),
            *_ignored(document["ignored"]),
        ]
    )


def _acking(document: Mapping[str, Any]) -> str:
    if document["acking"] == "tuple" and not document["ackers"]:
        return "by tuple, with 0 ackers: counts between tasks, and no tree is waited for"
    return ACKINGS[document["acking"]]


def _waves(waves: Mapping[str, Any]) -> str:
    if waves["shared"] is None:
        return f"not known: {waves['reason']}"
    if not waves["shared"]:
        return f"no, each batch has its own Spark job: {waves['reason']}"
    size = waves["bytes_max"]
    limit = f"{size // MIB} MiB" if not size % MIB else f"{size} bytes"
    return f"yes, up to {waves['txids_max']} batches or {limit} of input share a Spark job"


def _jvm(work: str, options: Sequence[str]) -> str:
    if not options:
        return "starts with the compilers that you name"
    return f"{JVM_WORKS[JvmWork(work)]}: starts with {' '.join(options)}, unless you name a compiler"


def _commits(runs: Mapping[str, Any]) -> str:
    if not runs["shared"]:
        return f"one by one: {runs['reason']}"
    return (
        f"batches that are ready at the same time together, up to {runs['txids_max']}, unless a target table has a "
        f"CHECK, a trigger, a rule, row security, partitions or another unique index"
    )


def _component(item: Mapping[str, Any]) -> Iterator[str]:
    yield f"{item['name']}: {', '.join(_traits(item))}"
    for one in item["inputs"]:
        yield f"  reads {_named(one['source'], one['stream'])}{_grouping(one)}"
    if counted := item.get("counted"):
        yield f"  counts {_place(counted)}{_together(counted['together_with'])}"
    for step in item.get("steps", ()):
        yield f"  runs {step}"
    for one in item["outputs"]:
        stream = "" if one["stream"] == DEFAULT_STREAM else f" on {one['stream']}"
        direct = " (direct)" if one["direct"] else ""
        yield f"  emits{stream}{direct} {one['fields'] or 'what Spark infers'}"


def _place(counted: Mapping[str, Any]) -> str:
    source = counted["in_tasks_of"]
    return f"in the tasks of {source}" if source is not None else f"one tuple at a time: {counted['reason']}"


def _together(others: Sequence[str]) -> str:
    return f"; its input is read once for {', '.join(others)} too" if others else ""


def _traits(item: Mapping[str, Any]) -> Iterator[str]:
    yield f"{item['kind']} {item['type']}" if item["kind"] != "acker" else "acker"
    if item["kind"] == "spout":
        yield item["promises"]
        yield "a task a part" if item["tasks"] is None else _tasks(item["tasks"])
    elif item["kind"] == "DataFrame bolt":
        yield f"rows {item['rows']}" + (
            " (nothing checks that: another function on the way promises nothing)" if item["unchecked"] else ""
        )
    elif item["task_ids"]:
        first, last = item["task_ids"][0], item["task_ids"][-1]
        numbers = f"number {first}" if first == last else f"numbers {first} to {last}"
        yield f"{_tasks(item['tasks'])} ({numbers}) at level {item['level']}"
    if item.get("phase"):
        yield "in the commit phase, in the driver" + (
            f" (after {item['phase']} rounds of committers)" if item["phase"] > 1 else ""
        )
    if item.get("effects") == "outside":
        yield "writes outside of the database transaction too"


def _tasks(count: int) -> str:
    return "1 task" if count == 1 else f"{count} tasks"


def _grouping(one: Mapping[str, Any]) -> str:
    if one["grouping"] is None:
        return ""
    named = one["class"] or ", ".join(one["fields"])
    return f" by {one['grouping']}" + (f"({named})" if named else "")


def _guarantee(pair: Mapping[str, Any]) -> str:
    why = f"{pair['spout_kind']} spout" + (", effects outside" if pair["effects"] == "outside" else "")
    provided = "" if pair["assumes"] is None else f", if {pair['assumes']}"
    return f"{pair['spout']} -> {pair['committer']}: {pair['guarantee']} ({why}){provided}"


def _tables(item: Mapping[str, Any]) -> Iterator[str]:
    ddl: Sequence[str] = item["ddl"]
    if ddl:
        yield f"{item['name']} makes what is not there yet:"
        yield from (f"  {statement};" for statement in ddl)
    else:
        yield f"{item['name']} makes none: its code writes to its own tables"


def _later(item: Mapping[str, Any]) -> Iterator[str]:
    can = [one for one in LATER if one not in item["cannot"]]
    yield f"{item['name']}: {', '.join(can) or 'none of these'}"
    for why in dict.fromkeys(item["cannot"].values()):
        yield f"  no {', '.join(one for one, reason in item['cannot'].items() if reason == why)}: {why}"


def _ignored(found: Sequence[Mapping[str, Any]]) -> list[str]:
    if not found:
        return []
    return [
        "",
        "Settings that mean nothing where they stand:",
        *_indented(f"{one['name']} (of {one['of']}): {one['why']}" for one in found),
    ]


def _named(source: str, stream: str) -> str:
    return source if stream == DEFAULT_STREAM else f"{source}:{stream}"


def _indented(lines: Iterable[str]) -> Iterator[str]:
    return (f"  {line}" for line in lines)
