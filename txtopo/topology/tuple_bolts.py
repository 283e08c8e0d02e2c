"""Tuple bolts: Storm's bolt classes in Python. One fresh instance runs for each attempt and task."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, ClassVar, NoReturn, Protocol

from txtopo.core.fields import Fields
from txtopo.core.values import TransactionAttempt
from txtopo.topology.spec_method import SpecMethod
from txtopo.topology.streams import DEFAULT_STREAM, Stream, Tuple

if TYPE_CHECKING:
    import pyarrow as pa

    from txtopo.topology.components import Subscription


class FailedException(Exception):
    """Raise it in a bolt to fail the batch on purpose: its attempt fails as a data failure and is tried again (Storm's
    FailedException).
    """


class ReportedFailedException(FailedException):
    """The same; Storm also reports it to its UI. Here every failure is reported."""


def returned(method: str) -> NoReturn:
    """What a method of the user's returns, a generator's tuples among it, would be gone without a word. Raises
    TypeError.
    """
    raise TypeError(f"{method} returned a value, which goes nowhere: emit it with the collector")


@dataclass(frozen=True, slots=True, kw_only=True)
class TopologyContext:
    """Where a task stands in its topology (Storm's TopologyContext)."""

    topology: str
    component: str
    task_id: int
    """Unique in the topology, from 1; the same in every attempt and process."""
    task_index: int
    """Of the component's tasks, from 0."""
    tasks: Mapping[str, Sequence[int]]
    """Task ids by component, of all bolts and committer bolts."""
    attempt: TransactionAttempt
    config: Mapping[str, Any] = field(default_factory=dict)
    """Of the topology, with the component's own settings over it."""
    component_ids: tuple[str, ...] = ()
    """All components by name: spouts, bolts, committer bolts (Storm's getComponentIds)."""
    this_sources: Mapping[tuple[str, str], str | None] = field(default_factory=dict)
    """What this component reads: (component, stream) -> grouping, in the order in which it was set (getThisSources)."""
    output_fields: Mapping[tuple[str, str], tuple[str, ...]] = field(default_factory=dict)
    """Names of the declared fields by (component, stream), of all components that declare any."""

    @property
    def this_tasks(self) -> Sequence[int]:
        """Ids of this component's own tasks, this one among them: their number is `len(context.this_tasks)`."""
        return self.tasks[self.component]

    def component_output_fields(self, component: str, stream: str = DEFAULT_STREAM) -> tuple[str, ...]:
        """Names of the fields of a stream (Storm's getComponentOutputFields). Raises KeyError where there is no such
        stream, or it declares none.
        """
        if (component, stream) not in self.output_fields:
            raise KeyError(f"{component!r} declares no fields on stream {stream!r}")
        return self.output_fields[component, stream]


class BasicOutputCollector(Protocol):
    """Emits for a BasicBolt: every tuple is anchored on the one being executed."""

    def emit(self, values: Sequence[Any], stream: str = DEFAULT_STREAM) -> None:
        """Emit one tuple; its values are checked against the declared fields. Raises BatchDataError, naming field and
        value, by the end of the batch.
        """

    def emit_direct(self, task: int, values: Sequence[Any], stream: str = DEFAULT_STREAM) -> None:
        """Emit to one task of a stream that is declared `direct`. Raises ValueError for a task that does not read the
        stream with a direct grouping.
        """


class OutputCollector(Protocol):
    """Emits, acks and fails for a RichBolt (Storm's OutputCollector)."""

    def emit(self, values: Sequence[Any], stream: str = DEFAULT_STREAM, anchors: Sequence[Tuple] = ()) -> None:
        """Emit one tuple, anchored on `anchors`; without any it belongs to no tuple tree."""

    def emit_direct(
        self, task: int, values: Sequence[Any], stream: str = DEFAULT_STREAM, anchors: Sequence[Tuple] = ()
    ) -> None:
        """The same, to one task of a stream that is declared `direct`."""

    def ack(self, tup: Tuple) -> None:
        """This tuple is done. One that is neither acked nor failed by the end of the batch fails the attempt, and so
        does one acked twice, unless acking is off.
        """

    def fail(self, tup: Tuple) -> None:
        """This tuple failed, and with it the batch; no-op where acking is off."""

    def reset_timeout(self, tup: Tuple) -> None:
        """Give the tuple's tree more time. In a batch, which goes by progress, a no-op."""


class BatchOutputCollector(Protocol):
    """Emits for a BatchBolt; in `execute` anchored on the tuple being executed, in `finish_batch` on all of the batch
    (so on none).
    """

    def emit(self, values: Sequence[Any], stream: str = DEFAULT_STREAM) -> None:
        """Emit one tuple."""

    def emit_direct(self, task: int, values: Sequence[Any], stream: str = DEFAULT_STREAM) -> None:
        """The same, to one task of a stream that is declared `direct`."""


class ArrowOutputCollector(Protocol):
    """Emits for an ArrowBolt."""

    def emit_batch(self, batch: pa.RecordBatch, stream: str = DEFAULT_STREAM, anchors: pa.Array | None = None) -> None:
        """Emit record batches. `anchors` holds, for each row, the number of the input row it is anchored on; None: on
        none.
        """


class TupleBolt(ABC):  # noqa: B024 - each kind of bolt has an `execute` of its own shape
    """Base of all bolts that get tuples. The instance given to `set_bolt` is a template: tasks run copies of it, so it
    must be picklable.
    """

    outputs: ClassVar[Sequence[str | Stream]] = ()
    """What it emits: `["word string", "n bigint"]` are the fields of the default stream; `Stream(...)` entries declare
    named ones.
    """
    config: ClassVar[Mapping[str, Any]] = {}
    """Settings of its own, over those of the topology."""
    spec: ClassVar[SpecMethod] = SpecMethod()
    """Its spec in a class-style topology."""

    def check_inputs(self, inputs: Sequence[Subscription], tasks: int) -> None:  # noqa: B027 - most take any
        """Raise TopologyError where it cannot keep its promise with these inputs in so many tasks. Called when the
        topology is built.
        """

    def check_fields(self, fields: Fields) -> None:  # noqa: B027 - most take any
        """Raise TopologyError where it cannot take tuples with these fields. Called for each input when the topology is
        built.
        """

    def cleanup(self) -> None:  # noqa: B027 - most have nothing to do here
        """Called at the end of an attempt's task, after errors as well where the process lives."""


class BasicBolt(TupleBolt):
    """One tuple at a time; anchoring and acking are done for it (Storm's IBasicBolt).

    Raising fails the batch, and the error names the tuple, its place in the source and the line that raised.
    """

    def prepare(self, config: Mapping[str, Any], context: TopologyContext) -> None:
        """Called once before the first tuple, also where none comes."""

    @abstractmethod
    def execute(self, tup: Tuple, collector: BasicOutputCollector) -> None:
        """Process one tuple. Raise FailedException, or anything else, to fail the batch."""


class RichBolt(TupleBolt):
    """Anchors, acks and fails by hand (Storm's IRichBolt)."""

    def prepare(self, config: Mapping[str, Any], context: TopologyContext, collector: OutputCollector) -> None:
        """Called once before the first tuple; keep the collector."""

    @abstractmethod
    def execute(self, tup: Tuple) -> None:
        """Process one tuple; ack or fail it before the batch ends."""

    def finish_batch(self) -> None:
        """All tuples of the batch have come: the last moment to emit, ack or fail what was held back."""


class BatchBolt(TupleBolt):
    """A batch at a time: `execute` for each tuple, then `finish_batch` once all have come (Storm's IBatchBolt).

    `finish_batch` is called when every upstream task has reported and the counts agree, also in tasks that got no
    tuple.
    """

    def prepare(
        self,
        config: Mapping[str, Any],
        context: TopologyContext,
        collector: BatchOutputCollector,
        attempt: TransactionAttempt,
    ) -> None:
        """Called once before the first tuple; keep the collector."""

    @abstractmethod
    def execute(self, tup: Tuple) -> None:
        """Take in one tuple."""

    @abstractmethod
    def finish_batch(self) -> None:
        """All tuples of the batch have come."""


class ArrowBolt(TupleBolt):
    """Record batches instead of tuples: the fast variant for work that pyarrow or numpy can do."""

    def prepare(self, config: Mapping[str, Any], context: TopologyContext) -> None:
        """Called once before the first batch."""

    @abstractmethod
    def execute(self, batch: pa.RecordBatch, collector: ArrowOutputCollector) -> None:
        """Process some tuples of one stream from one task; how many is not promised."""

    def finish_batch(self, collector: ArrowOutputCollector) -> None:
        """All tuples of the batch have come."""


class CustomStreamGrouping(ABC):
    """A custom grouping (Storm's CustomStreamGrouping): must be a function of what it is given, never of chance or
    time. Picklable.
    """

    def prepare(self, source: str, stream: str, fields: Fields, targets: Sequence[int]) -> None:  # noqa: B027
        """Called once for each source task, with the ids of the receiving tasks, ascending."""

    @abstractmethod
    def choose_tasks(self, task: int, values: Sequence[Any]) -> Sequence[int]:
        """Ids of the tasks that get this tuple; `task` is the emitting one. An id twice delivers it twice; none drops
        it on purpose.
        """
