"""What a component of a topology promises: spouts with their two halves, committer bolts with theirs."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, Any, ClassVar, Literal, Protocol, Unpack

from txtopo.core.fields import DECIMAL_PRECISION_MAX, Field, Fields, FieldType, parse_fields
from txtopo.core.limits import REJECTED_MAX
from txtopo.core.plan import Metadata
from txtopo.core.values import RejectedRow, TransactionAttempt
from txtopo.errors import unreachable
from txtopo.topology.launch import launch
from txtopo.topology.phases import phases_of
from txtopo.topology.spec_method import SpecMethod
from txtopo.topology.streams import DEFAULT_STREAM, Stream
from txtopo.topology.tuple_bolts import CustomStreamGrouping, TupleBolt

if TYPE_CHECKING:
    import pyarrow as pa

    from txtopo.run_settings import RunSettings


@dataclass(frozen=True, slots=True, kw_only=True)
class Input:
    """A source file as `source_file` remembers it for ever."""

    path: str
    fingerprint: bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class SpoutContext:
    """What the coordinator half of a spout is told when a driver takes the lead."""

    topology: str
    spout: str
    consumed: Mapping[str, bytes]
    """Path -> fingerprint of everything that was ever planned into a batch, uncommitted plans included."""
    once: bool
    """True: what is there now is all there will be; the run ends with it."""
    monotonic: Callable[[], float]
    """Seconds of a clock that never goes back."""
    say: Callable[[str], None]
    """Tells the operator one line."""
    previous: Metadata | None = None
    """Metadata of the highest txid that redoes nothing, planned or committed; None before the spout's first batch."""
    config: Mapping[str, Any] = field(default_factory=dict)
    """Of the topology."""
    recent: Callable[[], Iterable[Metadata]] = tuple
    """Metadata of the spout's last batches that are mirrored, newest first, redos included. Read as far as it is asked
    for.
    """


Guarantee = Literal["exactly_once", "at_least_once", "at_most_once", "none"]
"""`none`: tuples may be lost and others may count twice."""
SpoutKind = Literal["transactional", "opaque", "at_least_once", "at_most_once"]
"""What a spout promises: `transactional` - a txid has the same content in every attempt. `opaque` - the content may
differ, but each tuple is in
exactly one batch that succeeds. The others come from sources that may give a message twice, or lose it, before it is in
a batch.
"""
Acking = Literal["batch", "tuple", "off"]
"""`batch`: counts by task decide when a batch is complete. `tuple`: and every spout tuple's tree is tracked. `off`:
neither.
"""


class SpoutCoordinator(Protocol):
    """The half of a spout that decides what a batch consists of (Storm's ITransactionalSpout.Coordinator). One thread
    calls it.
    """

    def is_ready(self) -> bool:
        """Is there input for one more batch now? Polled; may look at the source; raises OSError for trouble that may
        pass.
        """

    def initialize_transaction(self, txid: int, previous: Metadata | None) -> Metadata:
        """Metadata of the next batch, called only after `is_ready` said yes. `previous` is that of the highest txid
        that redoes nothing.

        The metadata must be enough to emit the same batch again and again. Nothing is read by emitters before it is
        durable (R3).
        Raises BatchDataError when the input cannot be a batch (a missing column), OSError for trouble that may pass.
        """

    def initialize_redo(self, metadata: Metadata) -> Metadata:
        """Metadata of a batch that redoes the one with `metadata`: the same inputs, with schema and fingerprints as
        they are now.

        Never moves the source. Raises BatchDataError where an input is gone or cannot be a batch, OSError for trouble
        that may pass.
        """

    def is_exhausted(self) -> bool:
        """In a `once` run: True when nothing more will come."""

    def close(self) -> None:
        """Give back whatever is held; called once, also after errors."""


class OpaqueCoordinator(SpoutCoordinator, Protocol):
    """The coordinator half of an opaque spout, whose batches may be planned again after their plans were discarded."""

    def initialize_again(self, txid: int, previous: Metadata | None, discarded: Metadata | None) -> Metadata:
        """Metadata of a txid that was planned before: whether or not the source is ready, as Storm replays a txid.

        `discarded` is that of the last plan of this txid, None where the spout had no part in it. Where the source
        gives nothing, although it gave
        something then, raises OSError - unless that is in the batches before it now: then the batch is empty.
        """


class SettledListener(Protocol):
    """What a SpoutCoordinator may have besides: it wants to hear how its batches ended (a spout with
    `wants_settled`).
    """

    def settled(self, txid: int, metadata: Metadata, state: Literal["applied", "quarantined"]) -> None:
        """The batch has its final row in the ledger; called once COMMIT is known, at least once a batch, after restarts
        also for earlier ones.
        """


@dataclass(slots=True)
class Tally:
    """What a task counts while it emits one part."""

    read: int = 0
    """Source records so far, rejected ones included."""
    rejects: list[RejectedRow] = field(default_factory=list)
    """Those that do not parse under the declared schema, in source order."""
    attempt: TransactionAttempt | None = None
    """The attempt that the part is emitted for, where the executor says so. No spout may emit other tuples for it."""

    @property
    def rejected(self) -> int:
        """How many of them."""
        return len(self.rejects)


@dataclass(frozen=True, slots=True, kw_only=True)
class Position:
    """Where a tuple comes from."""

    position: str
    """`file:line`."""
    raw: str
    """The record as it stands there, readable and not endless."""


class Spout(ABC):
    """A source of batches: coordinator half on the driver, emitter half in the tasks. Must be picklable."""

    fields: Fields
    """Declared schema of the tuples it emits."""
    rejected_max: float = REJECTED_MAX
    """Share of a batch's records that may be rejected; more fails the batch."""
    kind: SpoutKind = "transactional"
    """What it promises about the content of a batch; checked against the committers when the topology is built."""
    emits_frame: bool = False
    """True: `frame` gives the batch as a DataFrame of Spark's own readers, and `emit_part` is not used."""
    parts_max: int | None = None
    """Parts of a batch, at most; None: as many as its input has."""
    is_fed: bool = False
    """True: it has no batches; a test feeds it tuple by tuple."""
    wants_settled: bool = False
    """True: its coordinator half is a SettledListener."""
    spec: ClassVar[SpecMethod] = SpecMethod()
    """Its spec in a class-style topology."""

    @abstractmethod
    def open_coordinator(self, context: SpoutContext) -> SpoutCoordinator:
        """The coordinator half, fresh for a driver that has just taken the lead."""

    @abstractmethod
    def parts(self, metadata: Metadata) -> Sequence[Mapping[str, Any]]:
        """Split a batch into at least one part, each a JSON value and the work of one task; the same split for the same
        metadata.
        """

    @abstractmethod
    def emit_part(self, metadata: Metadata, part: Mapping[str, Any], tally: Tally) -> Iterator[pa.RecordBatch]:
        """Emit one part as Arrow batches of exactly `fields`, counting into `tally`. Runs in a task.

        Raises BatchDataError (component left as "spout"; the executor fills the name in) where the source is at fault,
        naming file and line.
        """

    def frame(self, spark: Any, metadata: Metadata) -> Any:
        """The batch as a DataFrame of exactly `fields`, for spouts with `emits_frame`; always the same rows for the
        same metadata.
        """
        unreachable("this spout emits no DataFrame")

    def batch_bytes(self, metadata: Metadata) -> int:
        """About how many bytes of the source a batch has; 0 where that is not known. Bounds waves."""
        return 0

    def locate(self, metadata: Metadata, part: Mapping[str, Any], number: int) -> Position | None:
        """Where in the source the tuple stands that `emit_part` emits as its `number`-th (from 0); None where the
        source knows no positions.
        """
        return None

    def warm_up(self) -> None:  # noqa: B027 - most spouts have nothing to do here
        """Called in tasks before the first batch is there: import what `emit_part` needs, so that the first batch does
        not wait for it.
        """

    @abstractmethod
    def inputs(self, metadata: Metadata) -> Sequence[Input]:
        """The inputs that this batch consumes, to be remembered for ever."""

    @abstractmethod
    def describe(self) -> Mapping[str, Any]:
        """JSON values that tell what this spout is, for the code hash and `show`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Aggregation:
    """Executor half of a counting committer, as data: group by `keys`, count rows, sum exactly. Each executor carries
    it out in its own way.

    Result rows have the columns keys, count, sums, in this order. NULL is a key like any other. A sum leaves NULL
    values out and is 0 where all are NULL.
    """

    keys: tuple[str, ...]
    count: str
    """Name of the result column that holds the number of rows of a key (the row's weight)."""
    sums: tuple[tuple[str, str], ...] = ()
    """(input field, result column)."""


class CommitterBolt(ABC):
    """A bolt that makes a batch visible: rows are computed in parallel, applied strictly in txid order in the one
    database transaction.
    """

    effects: Literal["transaction", "outside"] = "transaction"
    """`outside`: it also writes where a rolled-back database transaction leaves traces, so that it is at-least-once."""
    takes_tuples: ClassVar[bool] = False
    """True: its executor half is code that gets tuples (BatchCommitter), and it may have several inputs. False: it is
    an `aggregation`, which is data.
    """
    spec: ClassVar[SpecMethod] = SpecMethod()
    """Its spec in a class-style topology."""

    @abstractmethod
    def aggregation(self) -> Aggregation:
        """The executor half."""

    @abstractmethod
    def required_fields(self) -> tuple[str, ...]:
        """Input fields that it names; checked against the declared fields when the topology is built."""

    @abstractmethod
    def check_fields(self, fields: Fields) -> None:
        """Refuse input whose types it cannot count exactly: raises TopologyError naming the field."""

    @abstractmethod
    def describe(self) -> Mapping[str, Any]:
        """JSON values that tell what this committer is, for the code hash and `show`."""


def result_fields(aggregation: Aggregation, inputs: Fields) -> Fields:
    """Types of the result rows: keys as declared, count bigint, sums decimal(38, scale of the input)."""

    def needed(name: str) -> Field:
        found = inputs.get(name)
        if found is None:
            unreachable(f"field {name} was to be checked when the topology was built")
        return found

    keys = [needed(name) for name in aggregation.keys]
    count = Field(aggregation.count, FieldType("bigint"), nullable=False)
    sums = [
        Field(output, FieldType("decimal", DECIMAL_PRECISION_MAX, needed(source).type.scale or 0), nullable=False)
        for source, output in aggregation.sums
    ]
    return Fields((*keys, count, *sums))


@dataclass(frozen=True, slots=True, kw_only=True)
class SpoutComponent:
    """A spout under its name."""

    name: str
    spout: Spout
    tasks: int | None = None
    """`parallelism_hint`: its parts are spread over so many tasks; None: a task a part."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Subscription:
    """One input of a component."""

    source: str
    """Name of the component it reads."""
    grouping: str | None = None
    """`fields`, `shuffle`, …; None for DataFrame bolts, which have none."""
    fields: tuple[str, ...] = ()
    """Of a fields or partial key grouping."""
    stream: str = DEFAULT_STREAM
    """Which output stream of the source."""
    custom: CustomStreamGrouping | None = field(default=None, compare=False)
    """Of a custom grouping."""


@dataclass(frozen=True, slots=True, kw_only=True)
class BoltComponent:
    """A DataFrame bolt: a function from DataFrames to a DataFrame, with the fields it declares."""

    name: str
    function: Callable[..., Any]
    inputs: tuple[Subscription, ...]
    fields: Fields | None
    """None where nothing behind it names fields."""
    rows: str = "any"
    """`same`, `fewer` or `any`: how its output's row count relates to its input's."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TupleBoltComponent:
    """A tuple bolt under its name."""

    name: str
    bolt: TupleBolt
    """The template that every task copies."""
    inputs: tuple[Subscription, ...]
    outputs: Mapping[str, Stream]
    """Declared streams by name, each with parsed Fields."""
    tasks: int = 1
    """`parallelism_hint`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CommitterComponent:
    """A committer bolt under its name, with the fields it gets."""

    name: str
    bolt: CommitterBolt
    input: Subscription
    """The first of `inputs`."""
    fields: Fields
    """Fields of its input stream; of the first one where it reads several."""
    inputs: tuple[Subscription, ...] = ()
    """All of them, by default the one; only a BatchCommitter may have more."""
    tasks: int = 1
    """`parallelism_hint` of its executor half, where tuples arrive."""
    outputs: Mapping[str, Stream] = field(default_factory=dict)
    """Streams that its driver half emits to bolts and committers downstream, each with parsed Fields."""

    def __post_init__(self) -> None:
        if not self.inputs:
            object.__setattr__(self, "inputs", (self.input,))

    @property
    def result_fields(self) -> Fields:
        """Types of the rows between its two halves."""
        declared = getattr(self.bolt, "result", None)
        if declared is None:
            return result_fields(self.bolt.aggregation(), self.fields)
        return parse_fields(", ".join(declared)) if declared else self.fields


@dataclass(frozen=True, kw_only=True)
class Topology:
    """A frozen description of components and streams. Nothing runs yet; made by TopologyBuilder."""

    name: str
    spouts: tuple[SpoutComponent, ...]
    bolts: tuple[BoltComponent | TupleBoltComponent, ...]
    """In an order in which every bolt comes after its inputs."""
    committers: tuple[CommitterComponent, ...]
    """In the order of their application: as they were set, those downstream of committers after these."""
    acking: Acking = "batch"
    guarantee: Guarantee = "exactly_once"
    """The weakest that any pair of spout and committer may have; weaker ones were refused when it was built."""
    config: Mapping[str, Any] = field(default_factory=dict)
    """Settings for components, under Storm's names where there is one."""
    module_file: str | None = field(default=None, compare=False)
    """The Python file that built it, part of the code hash."""

    @property
    def frame_bolts(self) -> tuple[BoltComponent, ...]:
        """The bolts that are functions over DataFrames."""
        return tuple(bolt for bolt in self.bolts if isinstance(bolt, BoltComponent))

    @property
    def tuple_bolts(self) -> tuple[TupleBoltComponent, ...]:
        """The bolts that get tuples."""
        return tuple(bolt for bolt in self.bolts if isinstance(bolt, TupleBoltComponent))

    @property
    def has_tuples(self) -> bool:
        """Does any component of the user's get tuples? Then the tuple runtime feeds all committers."""
        return bool(self.tuple_bolts) or any(item.bolt.takes_tuples for item in self.committers)

    @cached_property
    def phases(self) -> Mapping[str, int]:
        """The phase in which each bolt and committer runs, see `phases_of`: 0 is the processing phase, all above are
        the commit phase.
        """
        components = (*self.bolts, *self.committers)
        reads = {item.name: [one.source for one in item.inputs] for item in components}
        return phases_of(reads, [item.name for item in self.committers])

    def fields_of(self, source: str, stream: str = DEFAULT_STREAM) -> Fields | None:
        """Declared fields of a stream of a spout, bolt or committer; None where a DataFrame bolt declares none."""
        for spout in self.spouts:
            if spout.name == source:
                return spout.spout.fields
        for component in (*self.bolts, *self.committers):
            if component.name == source:
                if isinstance(component, BoltComponent):
                    return component.fields
                return parse_fields(component.outputs[stream].fields)
        return unreachable(f"there is no component {source}")

    def describe(self) -> Mapping[str, Any]:
        """JSON values: everything about the topology but its code."""
        from txtopo.topology.describe import describe_topology

        return describe_topology(self)

    def run_cli(self, **settings: Unpack[RunSettings]) -> int:
        """Run this topology in the foreground, as `txtopo run` does; returns the exit code, having told errors on
        stderr. For the end of a script: `raise SystemExit(topology.run_cli())`. `txtopo.run` is for programs.

        Settings are those of `txtopo run` and `txtopo.toml`: once=True, dsn="postgresql://…",
        zookeeper="host:2181/chroot",
        master="local[4]", conf={"spark.executor.memory": "4g"}, workers=4, attempts_max=3, message_timeout_s=300,
        quiet=True, …
        """
        return launch(self, settings)

    def run(self, **settings: Unpack[RunSettings]) -> int:
        """`run_cli` by its name in release 0.1.0: scripts that call it go on working."""
        return self.run_cli(**settings)
