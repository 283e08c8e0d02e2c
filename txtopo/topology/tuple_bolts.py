"""Tuple bolts: Storm's bolt classes in Python. A new copy runs for each attempt and task."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, ClassVar, NoReturn, Protocol

from txtopo.core.fields import Fields
from txtopo.core.values import TransactionAttempt
from txtopo.topology.spec_method import SpecMethod
from txtopo.topology.streams import DEFAULT_STREAM, Stream, Tuple
from txtopo.topology.user_exceptions import note_component

if TYPE_CHECKING:
    import pyarrow as pa

    from txtopo.topology.components import Subscription


class FailedException(Exception):
    """Raise it in a bolt to fail the batch on purpose: the attempt fails as a data failure and is retried (Storm's
    FailedException).
    """


class ReportedFailedException(FailedException):
    """The same as FailedException, here. In Storm it is also reported to the UI; txtopo reports every failure."""


def returned(method: str) -> NoReturn:
    """Raise TypeError because a user's method returned a value, such as a generator, which would be lost silently."""
    raise TypeError(f"{method} returned a value, which goes nowhere: emit it with the collector")


@dataclass(frozen=True, slots=True, kw_only=True)
class TopologyContext:
    """The place of a task in its topology (Storm's TopologyContext)."""

    topology: str
    component: str
    task_id: int
    """Unique in the topology, from 1; the same in every attempt and process."""
    task_index: int
    """Index among the tasks of the component, from 0."""
    tasks: Mapping[str, Sequence[int]]
    """Task ids by component, of all bolts and committer bolts."""
    attempt: TransactionAttempt
    config: Mapping[str, Any] = field(default_factory=dict)
    """Settings of the topology, overridden by the settings of the component."""
    component_ids: tuple[str, ...] = ()
    """Names of all components: spouts, bolts, committer bolts (Storm's getComponentIds)."""
    this_sources: Mapping[tuple[str, str], str | None] = field(default_factory=dict)
    """The inputs of this component: (component, stream) -> grouping, in the order of declaration (Storm's
    getThisSources).
    """
    output_fields: Mapping[tuple[str, str], tuple[str, ...]] = field(default_factory=dict)
    """Names of the declared fields by (component, stream), for all components that declare fields."""

    @property
    def this_tasks(self) -> Sequence[int]:
        """Ids of all tasks of this component, including this one; `len(context.this_tasks)` is their number."""
        return self.tasks[self.component]

    def component_output_fields(self, component: str, stream: str = DEFAULT_STREAM) -> tuple[str, ...]:
        """Return the field names of a stream (Storm's getComponentOutputFields). Raises KeyError if there is no such
        stream or it declares no fields.
        """
        if (component, stream) not in self.output_fields:
            raise KeyError(f"{component!r} declares no fields on stream {stream!r}")
        return self.output_fields[component, stream]


class BasicOutputCollector(Protocol):
    """Emits tuples for a BasicBolt: every tuple is anchored on the one being executed."""

    def emit(self, values: Sequence[Any], stream: str = DEFAULT_STREAM) -> None:
        """Emit one tuple. Its values are checked against the declared fields: BatchDataError, naming field and value,
        is raised here or later in the batch.
        """

    def emit_direct(self, task: int, values: Sequence[Any], stream: str = DEFAULT_STREAM) -> None:
        """Emit one tuple to one task, on a stream that is declared `direct`. Raises ValueError for a task that does not
        read the stream with a direct grouping.
        """


class OutputCollector(Protocol):
    """Emits, acks and fails tuples for a RichBolt (Storm's OutputCollector)."""

    def emit(self, values: Sequence[Any], stream: str = DEFAULT_STREAM, anchors: Sequence[Tuple] = ()) -> None:
        """Emit one tuple, anchored on `anchors`; without anchors it belongs to no tuple tree."""

    def emit_direct(
        self, task: int, values: Sequence[Any], stream: str = DEFAULT_STREAM, anchors: Sequence[Tuple] = ()
    ) -> None:
        """Emit one tuple to one task, on a stream that is declared `direct`."""

    def ack(self, tup: Tuple) -> None:
        """Mark a tuple as processed. Unless acking is off, the attempt fails if a tuple is neither acked nor failed by
        the end of the batch, or is acked twice.
        """

    def fail(self, tup: Tuple) -> None:
        """Fail a tuple and with it the batch. Does nothing if acking is off."""

    def reset_timeout(self, tup: Tuple) -> None:
        """Restart the timeout of the tuple's tree. Does nothing in a batch, whose timeout depends on progress."""


class BatchOutputCollector(Protocol):
    """Emits tuples for a BatchBolt. In `execute` they are anchored on the tuple being executed; in `finish_batch` they
    belong to the whole batch and have no anchor.
    """

    def emit(self, values: Sequence[Any], stream: str = DEFAULT_STREAM) -> None:
        """Emit one tuple."""

    def emit_direct(self, task: int, values: Sequence[Any], stream: str = DEFAULT_STREAM) -> None:
        """Emit one tuple to one task, on a stream that is declared `direct`."""


class ArrowOutputCollector(Protocol):
    """Emits record batches for an ArrowBolt."""

    def emit_batch(self, batch: pa.RecordBatch, stream: str = DEFAULT_STREAM, anchors: pa.Array | None = None) -> None:
        """Emit one record batch. `anchors` has, for each row, the number of the input row that it is anchored on; None:
        no anchors.
        """


class TupleBolt(ABC):  # noqa: B024 - each kind of bolt has an `execute` of its own shape
    """Base of all bolts that receive tuples; derive from BasicBolt, RichBolt, BatchBolt or ArrowBolt. The instance
    given to `set_bolt` is a template: tasks run copies of it, so it must be picklable.
    """

    outputs: ClassVar[Sequence[str | Stream]] = ()
    """What the bolt emits: `["word string", "n bigint"]` are the fields of the default stream; `Stream(...)` entries
    declare named streams.
    """
    config: ClassVar[Mapping[str, Any]] = {}
    """Settings of this component; they override the settings of the topology."""
    spec: ClassVar[SpecMethod] = SpecMethod()
    """Returns a spec of this component for a class-style topology."""

    def __init_subclass__(cls, **keywords: object) -> None:
        super().__init_subclass__(**keywords)
        note_component(cls.__module__)

    def check_inputs(self, inputs: Sequence[Subscription], tasks: int) -> None:  # noqa: B027 - most take any
        """Raise TopologyError if the bolt cannot work correctly with these inputs in `tasks` tasks. Called when the
        topology is built.
        """

    def check_fields(self, fields: Fields) -> None:  # noqa: B027 - most take any
        """Raise TopologyError if the bolt cannot process tuples with these fields. Called for each input when the
        topology is built.
        """

    def steps(self) -> Sequence[str]:
        """Return what `txtopo explain` says of the work inside this bolt, a line for each step; empty by default."""
        return ()

    def cleanup(self) -> None:  # noqa: B027 - most have nothing to do here
        """Called at the end of the task of an attempt; also after an error, if the process is still alive."""


class BasicBolt(TupleBolt):
    """Processes one tuple at a time; anchoring and acking are automatic (Storm's IBasicBolt).

    An exception fails the batch; the error names the tuple, its place in the source and the line that raised.
    """

    def prepare(self, config: Mapping[str, Any], context: TopologyContext) -> None:
        """Called once before the first tuple, also if no tuple arrives."""

    @abstractmethod
    def execute(self, tup: Tuple, collector: BasicOutputCollector) -> None:
        """Process one tuple. Raise FailedException, or anything else, to fail the batch."""


class RichBolt(TupleBolt):
    """Anchors, acks and fails tuples explicitly (Storm's IRichBolt)."""

    def prepare(self, config: Mapping[str, Any], context: TopologyContext, collector: OutputCollector) -> None:
        """Called once before the first tuple; store the collector."""

    @abstractmethod
    def execute(self, tup: Tuple) -> None:
        """Process one tuple; it must be acked or failed before the batch ends."""

    def finish_batch(self) -> None:
        """Called when all tuples of the batch have arrived: the last chance to emit, ack or fail."""


class BatchBolt(TupleBolt):
    """Processes a batch at a time: `execute` for each tuple, then `finish_batch` when all have arrived (Storm's
    IBatchBolt).

    `finish_batch` is called when every upstream task has reported and the counts agree, also in tasks that received no
    tuple.
    """

    def prepare(
        self,
        config: Mapping[str, Any],
        context: TopologyContext,
        collector: BatchOutputCollector,
        attempt: TransactionAttempt,
    ) -> None:
        """Called once before the first tuple; store the collector."""

    @abstractmethod
    def execute(self, tup: Tuple) -> None:
        """Process one tuple."""

    @abstractmethod
    def finish_batch(self) -> None:
        """Called when all tuples of the batch have arrived."""


class ArrowBolt(TupleBolt):
    """Processes record batches instead of tuples: the fast variant for work that pyarrow or numpy can do."""

    def prepare(self, config: Mapping[str, Any], context: TopologyContext) -> None:
        """Called once before the first batch."""

    @abstractmethod
    def execute(self, batch: pa.RecordBatch, collector: ArrowOutputCollector) -> None:
        """Process some tuples of one stream from one task; the size of `batch` varies."""

    def finish_batch(self, collector: ArrowOutputCollector) -> None:
        """Called when all tuples of the batch have arrived."""


class CustomStreamGrouping(ABC):
    """A custom grouping (Storm's CustomStreamGrouping). Its choice must depend on its arguments alone, never on chance
    or time. Must be picklable.
    """

    def prepare(self, source: str, stream: str, fields: Fields, targets: Sequence[int]) -> None:  # noqa: B027
        """Called once for each source task. `targets` are the ids of the receiving tasks, ascending."""

    @abstractmethod
    def choose_tasks(self, task: int, values: Sequence[Any]) -> Sequence[int]:
        """Return the ids of the tasks that receive this tuple; `task` is the id of the emitting task. An id given twice
        delivers the tuple twice; an empty list drops it.
        """
