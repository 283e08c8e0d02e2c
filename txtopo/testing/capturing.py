"""Records every emission of a topology with hidden committers, one for each stream (Storm's capturing bolts)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from txtopo.core.fields import Fields
from txtopo.core.values import EdgeCount, Outcome, Processed, TransactionAttempt
from txtopo.ports import Assignment, Executor, Tell, tell_nobody
from txtopo.topology.batch_committer import BatchCommitter, CommitCollector, CommitTransaction
from txtopo.topology.components import BoltComponent, CommitterComponent, Subscription, Topology
from txtopo.topology.phases import PROCESSING
from txtopo.topology.streams import DEFAULT_STREAM, Tuple

_TASK = "$task"


@dataclass(frozen=True, slots=True, kw_only=True)
class Emission:
    """A tuple that a component emitted."""

    attempt: TransactionAttempt
    component: str
    stream: str
    task: int
    """Id of the emitting task; below 0 for tasks of spouts and for emissions of committers."""
    values: tuple[Any, ...]

    @property
    def txid(self) -> int:
        """Txid of the batch."""
        return self.attempt.txid


_COMMITTED: dict[str, dict[TransactionAttempt, list[tuple[Any, ...]]]] = {}
"""Emissions recorded in the commit phase, by token; shared by the copies of a capture, which run in the driver."""


class Capture(BatchCommitter):
    """Keeps the tuples of one stream as result rows, with the task that emitted each; commits nothing."""

    def __init__(self, fields: Fields, token: str | None = None) -> None:
        """With a `token`, the recorded tuples are available in `committed_emissions`, once for each attempt."""
        self.token = token
        self.result = (*(field.ddl for field in fields.items), f"`{_TASK}` bigint")  # type: ignore[misc]

    def execute(self, tup: Tuple) -> None:
        self.collector.emit((*tup.values, tup.task))

    def commit(self, transaction: CommitTransaction, rows: Sequence[Tuple], collector: CommitCollector) -> int | None:
        if self.token is not None:
            _COMMITTED.setdefault(self.token, {})[transaction.attempt] = [tuple(row.values) for row in rows]
        return None


def committed_emissions(token: str) -> Mapping[TransactionAttempt, list[tuple[Any, ...]]]:
    """Return the tuples recorded by the capture with this token, by attempt; the last value of each row is the emitting
    task.
    """
    return _COMMITTED.get(token, {})


def forget(token: str) -> None:
    """Delete the recorded tuples of one topology; `token` is that of `with_captures`."""
    for name in [name for name in _COMMITTED if name.startswith(f"{token}/")]:
        del _COMMITTED[name]


def with_captures(topology: Topology, token: str) -> tuple[Topology, Mapping[str, tuple[str, str]]]:
    """Return the topology with a capture downstream of every stream with declared fields, and (component, stream) by
    the name of the capture.

    Emissions of committers and of bolts downstream of them are recorded under `{token}/{name of the capture}`.
    """
    streams: list[tuple[str, str, Any]] = [(item.name, DEFAULT_STREAM, item.spout.fields) for item in topology.spouts]
    for bolt in topology.bolts:
        if isinstance(bolt, BoltComponent):
            streams += [(bolt.name, DEFAULT_STREAM, bolt.fields)] if bolt.fields is not None else []
        else:
            streams += [(bolt.name, name, stream.fields) for name, stream in bolt.outputs.items()]
    for item in topology.committers:
        streams += [(item.name, name, stream.fields) for name, stream in item.outputs.items()]
    committers = {item.name for item in topology.committers}
    captures: list[CommitterComponent] = []
    reads: dict[str, tuple[str, str]] = {}
    for source, stream, fields in streams:
        name = f"$capture_{len(captures)}"
        subscription = Subscription(source=source, stream=stream, grouping="global")
        is_late = source in committers or topology.phases.get(source, PROCESSING) > PROCESSING
        capture = Capture(fields, f"{token}/{name}" if is_late else None)
        captures.append(
            CommitterComponent(name=name, bolt=capture, input=subscription, inputs=(subscription,), fields=fields)
        )
        reads[name] = (source, stream)
    return replace(topology, committers=(*topology.committers, *captures)), reads


class Watched:
    """An executor that keeps the tuples recorded by captures."""

    def __init__(self, executor: Executor, reads: Mapping[str, tuple[str, str]]) -> None:
        self._executor = executor
        self._reads = reads
        self.emissions: list[Emission] = []
        self.edges: dict[int, tuple[EdgeCount, ...]] = {}

    def __getattr__(self, name: str) -> Any:
        return getattr(self._executor, name)

    def process(self, wave: Sequence[Assignment], tell: Tell = tell_nobody) -> Sequence[Outcome]:
        def told(outcome: Outcome) -> None:
            if isinstance(outcome, Processed):
                self._keep(outcome)
            tell(outcome)

        return self._executor.process(wave, told)

    def _keep(self, outcome: Processed) -> None:
        self.edges[outcome.attempt.txid] = outcome.edges
        for result in outcome.results:
            if result.committer in self._reads:
                component, stream = self._reads[result.committer]
                for row in result.rows.to_pylist():
                    *values, task = row.values()
                    self.emissions.append(
                        Emission(
                            attempt=outcome.attempt, component=component, stream=stream, task=task, values=tuple(values)
                        )
                    )
