"""Describes a topology without running it: a document of JSON values, derived from its description alone."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from txtopo.committers.postgres.postgres_halves import postgres_half
from txtopo.config import Settings
from txtopo.core.fields import Fields
from txtopo.spark.session.spark_settings import compiler_options
from txtopo.topology.committer_bolt import LATER, Later
from txtopo.topology.components import (
    BoltComponent,
    CommitterComponent,
    SpoutComponent,
    Subscription,
    Topology,
    TupleBoltComponent,
)
from txtopo.topology.filled_committers import cannot_backfill
from txtopo.topology.guarantees import given
from txtopo.topology.ignored_settings import ignored_settings
from txtopo.topology.jvm_work import jvm_work
from txtopo.topology.outputs import fields_of
from txtopo.topology.partial_counts import counted_together, counted_upstream
from txtopo.topology.promised_rows import unchecked_promises
from txtopo.topology.streams import DEFAULT_STREAM, Stream
from txtopo.topology.tuple_bolts import ArrowBolt, BasicBolt, BatchBolt
from txtopo.tuples.graph import ACKER, task_ids

SCHEMA = "txtopo.explain/2"


@dataclass(frozen=True, slots=True)
class WavesExplained:
    """Whether batches share Spark jobs."""

    shared: bool | None
    """None: not known."""
    reason: str | None = None
    """The reason why not, or why it is not known."""

    @classmethod
    def refused(cls, reason: str | None) -> WavesExplained:
        """Return the answer no, with the reason; None if there is no reason."""
        return cls(reason is None, reason)


def frames_of(topology: Topology) -> list[str]:
    """Return the components that are DataFrames, whose plans only Spark knows."""
    spouts = [item.name for item in topology.spouts if item.spout.emits_frame]
    return [*spouts, *(bolt.name for bolt in topology.frame_bolts)]


def waves_without_spark(topology: Topology, settings: Settings) -> WavesExplained | None:
    """Return the answer if it needs no Spark; otherwise None."""
    if settings.wave_bytes_max == 0:
        return WavesExplained(False, f"wave_bytes_max is 0 ({settings.source('wave_bytes_max')})")
    if settings.wave_txids_max == 1:
        return WavesExplained(False, f"wave_txids_max is 1 ({settings.source('wave_txids_max')})")
    return None if frames_of(topology) else WavesExplained(True)


def unknown_waves(frames: Sequence[str]) -> WavesExplained:
    """Return the answer if Spark was not asked."""
    return WavesExplained(
        None, f"whether {', '.join(frames)} depends on other rows is seen in Spark's plan: leave --no-spark out"
    )


def explained(topology: Topology, settings: Settings, waves: WavesExplained) -> Mapping[str, Any]:
    """Return the whole document, as `txtopo explain --json` prints it."""
    ackers = settings.ackers if topology.acking == "tuple" else 0
    return {
        "schema": SCHEMA,
        "topology": topology.name,
        "runtime": "tuples" if topology.has_tuples else "dataframes",
        "acking": topology.acking,
        "ackers": ackers,
        "guarantee": topology.guarantee,
        "waves": {
            "shared": waves.shared,
            "reason": waves.reason,
            "txids_max": settings.wave_txids_max,
            "bytes_max": settings.wave_bytes_max,
        },
        "commit_runs": _commit_runs(topology, settings),
        "jvm_work": jvm_work(topology),
        "jvm_options": compiler_options(jvm_work(topology), settings.conf, os.environ),
        "components": _components(topology, ackers),
        "guarantees": [
            {
                "spout": spout.name,
                "committer": committer.name,
                "guarantee": given(spout.spout.kind, committer.bolt.effects),
                "spout_kind": spout.spout.kind,
                "effects": committer.bolt.effects,
                "assumes": spout.spout.assumes,
            }
            for committer in topology.committers
            for spout in spouts_upstream(topology, committer)
        ],
        "committers": [
            {"name": item.name, "ddl": _ddl(item), "cannot": dict(cannot_of(topology, item))}
            for item in topology.committers
        ],
        "ignored": [one._asdict() for one in ignored_settings(topology)],
    }


def cannot_of(topology: Topology, committer: CommitterComponent) -> Mapping[Later, str]:
    """Return what cannot be done with the batches of a committer, each with the reason: because of its kind, and of its
    place in the topology.
    """
    found = dict(committer.bolt.cannot())
    spouts = {spout.name for spout in topology.spouts}
    if any(one.source not in spouts for one in committer.inputs):
        found.setdefault("audit by key", "bolts stand between the source and its rows")
    why = cannot_backfill(topology.committers, topology.phases, committer.name)
    if why is not None:
        found.setdefault("backfill", why)
    return {later: found[later] for later in LATER if later in found}


def _commit_runs(topology: Topology, settings: Settings) -> Mapping[str, Any]:
    """Whether batches that are ready at the same moment are committed in one database transaction (R20). The leader
    also checks the target tables.
    """
    opaque = next((spout.name for spout in topology.spouts if spout.spout.kind == "opaque"), None)
    reason = topology.single_commits
    if reason is None and opaque is not None:
        reason = f"spout {opaque} is opaque: a plan is final only when its batch is the next to commit"
    if reason is None and settings.run_txids_max == 1:
        reason = f"run_txids_max is 1 ({settings.source('run_txids_max')})"
    return {"shared": reason is None, "reason": reason, "txids_max": settings.run_txids_max}


def spouts_upstream(topology: Topology, committer: CommitterComponent) -> list[SpoutComponent]:
    """Return the spouts whose tuples reach a committer, in the order of the topology."""
    inputs = {bolt.name: bolt.inputs for bolt in topology.bolts} | {
        item.name: item.inputs for item in topology.committers
    }
    seen: set[str] = set()
    waiting = [committer.name]
    while waiting:
        name = waiting.pop()
        if name not in seen:
            seen.add(name)
            waiting += [item.source for item in inputs.get(name, ())]
    return [spout for spout in topology.spouts if spout.name in seen]


def _components(topology: Topology, ackers: int) -> list[Mapping[str, Any]]:
    tasks = task_ids(topology) if topology.has_tuples else {}
    unchecked = unchecked_promises(topology)
    levels = _levels(topology)
    shown: list[Mapping[str, Any]] = [_spout(spout) for spout in topology.spouts]
    for item in (*topology.bolts, *topology.committers):
        own: Mapping[str, Any] = {"tasks": item.tasks} if tasks and not isinstance(item, BoltComponent) else {}
        if isinstance(item, TupleBoltComponent) and (steps := item.bolt.steps()):
            own = {**own, "steps": list(steps)}
        if isinstance(item, BoltComponent):
            own = {"unchecked": item.name in unchecked}
        ids = [] if isinstance(item, BoltComponent) else list(tasks.get(item.name, ()))
        shown.append(
            {
                "name": item.name,
                **_kind(item),
                **own,
                "task_ids": ids,
                "level": levels[item.name],
                "phase": topology.phases[item.name],
                "inputs": [_input(one) for one in item.inputs],
                "outputs": _outputs(item),
                **_counted(topology, item, tracked=ackers > 0),
            }
        )
    if ackers:
        first = max((task for ids in tasks.values() for task in ids), default=0) + 1
        shown.append(
            {
                "name": ACKER,
                "kind": "acker",
                "type": "Acker",
                "tasks": ackers,
                "task_ids": list(range(first, first + ackers)),
                "level": max(levels.values()) + 1,
                "inputs": [],
                "outputs": [],
            }
        )
    return shown


def _counted(
    topology: Topology, item: BoltComponent | TupleBoltComponent | CommitterComponent, *, tracked: bool
) -> Mapping[str, Any]:
    """Return where the tuples of a counting committer are counted first, and the other committers that the same Spark
    job counts them for.
    """
    if not isinstance(item, CommitterComponent) or item.bolt.takes_tuples:
        return {}
    found = counted_upstream(topology, item, tracked=tracked)
    in_tasks_of, reason = (None, found) if isinstance(found, str) else (item.input.source, None)
    together = () if topology.has_tuples else counted_together(topology)[item.input.source]
    names = [one.name for one in together if one is not item]
    return {"counted": {"in_tasks_of": in_tasks_of, "reason": reason, "together_with": names}}


def _levels(topology: Topology) -> Mapping[str, int]:
    """Return the length of the longest path from a spout to each component."""
    inputs = {item.name: item.inputs for item in (*topology.bolts, *topology.committers)}
    levels = {spout.name: 0 for spout in topology.spouts}

    def level(name: str) -> int:
        if name not in levels:
            levels[name] = 1 + max(level(one.source) for one in inputs[name])
        return levels[name]

    for name in inputs:
        level(name)
    return levels


def _spout(spout: SpoutComponent) -> Mapping[str, Any]:
    return {
        "name": spout.name,
        "kind": "spout",
        "type": type(spout.spout).__name__,
        "promises": spout.spout.kind,
        "tasks": spout.tasks,
        "task_ids": [],
        "level": 0,
        "inputs": [],
        "outputs": [{"stream": DEFAULT_STREAM, "fields": plain_ddl(spout.spout.fields), "direct": False}],
    }


def _kind(item: BoltComponent | TupleBoltComponent | CommitterComponent) -> Mapping[str, Any]:
    if isinstance(item, BoltComponent):
        return {
            "kind": "DataFrame bolt",
            "type": getattr(item.function, "__name__", type(item.function).__name__),
            "rows": item.rows,
        }
    if isinstance(item, CommitterComponent):
        return {"kind": "committer", "type": type(item.bolt).__name__, "effects": item.bolt.effects}
    kinds = ((BasicBolt, "basic bolt"), (BatchBolt, "batch bolt"), (ArrowBolt, "Arrow bolt"))
    return {
        "kind": next((word for kind, word in kinds if isinstance(item.bolt, kind)), "rich bolt"),
        "type": type(item.bolt).__name__,
    }


def _input(subscription: Subscription) -> Mapping[str, Any]:
    custom = subscription.custom
    return {
        "source": subscription.source,
        "stream": subscription.stream,
        "grouping": subscription.grouping,
        "fields": list(subscription.fields),
        "class": type(custom).__name__ if custom is not None else None,
    }


def _outputs(item: BoltComponent | TupleBoltComponent | CommitterComponent) -> list[Mapping[str, Any]]:
    if isinstance(item, BoltComponent):
        fields = plain_ddl(item.fields) if item.fields is not None else None
        return [{"stream": DEFAULT_STREAM, "fields": fields, "direct": False}]
    return [_stream(stream) for stream in item.outputs.values()]


def _stream(stream: Stream) -> Mapping[str, Any]:
    return {"stream": stream.name, "fields": plain_ddl(fields_of(stream)), "direct": stream.direct}


def _ddl(committer: CommitterComponent) -> list[str]:
    """Return the statements that would create its tables; none if its code manages its own tables."""
    return list(postgres_half(committer).ddl())


def plain_ddl(fields: Fields) -> str:
    """Return fields as people write them: names in backticks only if necessary.

    >>> from txtopo.core.fields import parse_fields
    >>> plain_ddl(parse_fields("word string not null, `two words` int"))
    'word string not null, `two words` int'
    """
    return ", ".join(
        (field.name if field.name.isidentifier() else f"`{field.name}`")
        + f" {field.type}"
        + ("" if field.nullable else " not null")
        for field in fields.items
    )
