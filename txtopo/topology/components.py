"""The interface of spouts with its two halves, named components, and the frozen topology made of them."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, Any, ClassVar, Literal, Protocol, TypeVar, Unpack

from txtopo.core.fields import Fields, parse_fields
from txtopo.core.limits import REJECTED_MAX
from txtopo.core.plan import Metadata
from txtopo.core.values import RejectedRow, TransactionAttempt
from txtopo.errors import unreachable
from txtopo.topology.committer_bolt import CommitterBolt
from txtopo.topology.launch import launch
from txtopo.topology.phases import PROCESSING, Phases, phases_of, readers_of
from txtopo.topology.queries import QueryAnswer, StreamQuery, ask
from txtopo.topology.spark_types import DataFrame, FrameFunction, RowsPromise, SparkSession
from txtopo.topology.spec_method import SpecMethod
from txtopo.topology.streams import DEFAULT_STREAM, Stream
from txtopo.topology.tuple_bolts import CustomStreamGrouping, TupleBolt
from txtopo.topology.user_exceptions import note_component

if TYPE_CHECKING:
    import pyarrow as pa

    from txtopo.run_settings import RunSettings

Kind = TypeVar("Kind", bound=CommitterBolt)


@dataclass(frozen=True, slots=True, kw_only=True)
class Input:
    """A source file as table `source_file` keeps it permanently."""

    path: str
    fingerprint: bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class SpoutContext:
    """What the coordinator half of a spout receives when a driver takes the lead."""

    topology: str
    spout: str
    consumed: Mapping[str, bytes]
    """Path -> fingerprint of every input that was ever planned into a batch, including uncommitted plans. Read from
    Postgres when it is asked for.
    """
    once: bool
    """True: the run ends when the input that exists now is processed."""
    monotonic: Callable[[], float]
    """Seconds of a clock that never goes back."""
    say: Callable[[str], None]
    """Shows one line to the operator."""
    previous: Metadata | None = None
    """Metadata of the highest txid that is not a redo, planned or committed; None before the spout's first batch."""
    config: Mapping[str, Any] = field(default_factory=dict)
    """Settings of the topology."""
    recent: Callable[[], Iterable[Metadata]] = tuple
    """Metadata of the spout's most recent mirrored batches, newest first, including redos. Read lazily."""
    age_s: Callable[[float], float] = lambda stamp_s: 0.0
    """Seconds that have certainly passed since this machine's clock showed this time (in s since 1970); 0: unknown."""


Guarantee = Literal["exactly_once", "at_least_once", "at_most_once", "none"]
"""`none`: tuples may be lost or counted twice."""
SpoutKind = Literal["transactional", "opaque", "at_least_once", "at_most_once"]
"""What a spout promises. `transactional`: a txid has the same content in every attempt. `opaque`: the content may
differ between attempts, but each tuple is in exactly one successful batch. `at_least_once` and `at_most_once`: the
source may repeat, or lose, a message before it is in a batch.
"""
Acking = Literal["batch", "tuple", "off"]
"""`batch`: tuple counts per task decide when a batch is complete. `tuple`: in addition, the tree of every spout tuple
is tracked. `off`: neither.
"""


class SpoutCoordinator(Protocol):
    """The half of a spout that decides what a batch consists of (Storm's ITransactionalSpout.Coordinator). It is called
    by one thread.
    """

    def is_ready(self) -> bool:
        """True if there is input for another batch now. Polled; may read the source. Raises OSError for a failure that
        may pass.
        """

    def initialize_transaction(self, txid: int, previous: Metadata | None) -> Metadata:
        """Return the metadata of the next batch; called only after `is_ready` returned True. `previous` is the metadata
        of the highest txid that is not a redo, None for the first batch.

        The metadata must be sufficient to emit the same batch any number of times. Emitters read nothing before it is
        durable (R3). Raises BatchDataError if the input cannot be a batch (a missing column), OSError for a failure
        that may pass.
        """

    def initialize_redo(self, metadata: Metadata) -> Metadata:
        """Return the metadata of a batch that redoes the one with `metadata`: the same inputs, with their current
        schema and fingerprints.

        Does not advance the source. Raises BatchDataError if an input no longer exists or cannot be a batch, OSError
        for a failure that may pass.
        """

    def is_exhausted(self) -> bool:
        """True if, in a `once` run, no more input will come."""

    def close(self) -> None:
        """Release all resources; called once, also after errors."""


class OpaqueCoordinator(SpoutCoordinator, Protocol):
    """The coordinator half of an opaque spout, whose batches may be planned again after their plans were discarded."""

    def initialize_again(self, txid: int, previous: Metadata | None, discarded: Metadata | None) -> Metadata:
        """Return new metadata for a txid that was planned before. Called whether or not the source is ready, as Storm
        replays a txid.

        `discarded` is the metadata of the last plan of this txid, None if the spout had no part in it. Raises OSError
        if the source has no input now although it had some for the discarded plan, unless that input is in earlier
        batches now: then the batch is empty.
        """


class PacedCoordinator(Protocol):
    """An optional interface of a SpoutCoordinator that knows when it is worth asking again."""

    def ready_in_s(self) -> float:
        """Called after `is_ready` returned False: seconds until it may return True for what it has seen, so that the
        driver need not wait for `spout_poll_s`. Infinity if it does not know.
        """


class LaggingCoordinator(Protocol):
    """An optional interface of a SpoutCoordinator that knows how much input waits."""

    def lag(self) -> Mapping[str, int]:
        """Return by partition how many records of the source were in no committed batch when it last looked. Must not
        ask the source.
        """


class SettledListener(Protocol):
    """An optional interface of a SpoutCoordinator that is notified of the final state of its batches (a spout with
    `wants_settled`).
    """

    def settled(self, txid: int, metadata: Metadata, state: Literal["applied", "quarantined"]) -> None:
        """Called when the batch has its final row in the ledger and its COMMIT is known: at least once for each batch;
        after a restart, again for earlier batches.
        """


@dataclass(slots=True)
class Tally:
    """What a task counts while it emits one part."""

    read: int = 0
    """Number of source records so far, including rejected ones."""
    rejects: list[RejectedRow] = field(default_factory=list)
    """Records that do not parse under the declared schema, in source order."""
    attempt: TransactionAttempt | None = None
    """The attempt that the part is emitted for, if the executor sets it. The tuples must not depend on it."""

    @property
    def rejected(self) -> int:
        """Number of rejected records."""
        return len(self.rejects)


@dataclass(frozen=True, slots=True, kw_only=True)
class Position:
    """Where a tuple comes from."""

    position: str
    """`file:line`."""
    raw: str
    """The record as text, shortened if long."""


class Spout(ABC):
    """A source of batches: a coordinator half in the driver, an emitter half in the tasks. Must be picklable."""

    fields: Fields
    """Declared schema of the tuples it emits."""
    rejected_max: float = REJECTED_MAX
    """Share of a batch's records that may be rejected (0 to 1); a higher share fails the batch."""
    kind: SpoutKind = "transactional"
    """What it promises about the content of a batch; checked against the committers when the topology is built."""
    assumes: str | None = None
    """What must be true of its source for that promise, which it cannot know; None: nothing."""
    emits_frame: bool = False
    """True: `frame` returns the batch as a DataFrame, and `emit_part` is not used."""
    parts_max: int | None = None
    """Maximum number of parts of a batch; None: unlimited."""
    is_fed: bool = False
    """True: the spout has no batches; a test feeds it tuple by tuple."""
    wants_settled: bool = False
    """True: its coordinator half is a SettledListener."""
    spec: ClassVar[SpecMethod] = SpecMethod()
    """Returns a spec of this component for a class-style topology."""

    def __init_subclass__(cls, **keywords: object) -> None:
        super().__init_subclass__(**keywords)
        note_component(cls.__module__)

    @abstractmethod
    def open_coordinator(self, context: SpoutContext) -> SpoutCoordinator:
        """Return a new coordinator half, for a driver that has just taken the lead."""

    @abstractmethod
    def parts(self, metadata: Metadata) -> Sequence[Mapping[str, Any]]:
        """Split a batch into one or more parts. Each part is a JSON value and is processed by one task. The same
        metadata must always give the same parts.
        """

    @abstractmethod
    def emit_part(self, metadata: Metadata, part: Mapping[str, Any], tally: Tally) -> Iterator[pa.RecordBatch]:
        """Emit one part as Arrow batches of exactly `fields`, counting into `tally`. Runs in a task.

        Raises BatchDataError with file and line if the source is at fault (with "spout" as component: the executor
        fills in the name).
        """

    def frame(self, spark: SparkSession, metadata: Metadata) -> DataFrame:
        """Return the batch as a DataFrame of exactly `fields`, for spouts with `emits_frame`; the same metadata must
        always give the same rows.
        """
        unreachable("this spout emits no DataFrame")

    def batch_bytes(self, metadata: Metadata) -> int:
        """Return the approximate size of a batch in bytes, 0 if unknown. Limits how many batches share a wave."""
        return 0

    def locate(self, metadata: Metadata, part: Mapping[str, Any], number: int) -> Position | None:
        """Return the place in the source of the tuple that `emit_part` emits as number `number` (from 0); None if the
        source has no positions.
        """
        return None

    def warm_up(self) -> None:  # noqa: B027 - most spouts have nothing to do here
        """Called in tasks before the first batch arrives: import what `emit_part` needs, so that the first batch does
        not wait for it.
        """

    @abstractmethod
    def inputs(self, metadata: Metadata) -> Sequence[Input]:
        """Return the inputs that this batch consumes; they are recorded permanently."""

    @abstractmethod
    def describe(self) -> Mapping[str, Any]:
        """Return JSON values that describe this spout, for the code hash and `show`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SpoutComponent:
    """A spout with its name in the topology."""

    name: str
    spout: Spout
    tasks: int | None = None
    """`parallelism_hint`, the number of tasks over which parts are spread; None: one task for each part."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Subscription:
    """One input of a component."""

    source: str
    """Name of the component it reads."""
    grouping: str | None = None
    """`fields`, `shuffle`, …; None for DataFrame bolts, which have none."""
    fields: tuple[str, ...] = ()
    """Field names of a fields or partial key grouping."""
    stream: str = DEFAULT_STREAM
    """Output stream of the source."""
    custom: CustomStreamGrouping | None = field(default=None, compare=False)
    """The user's grouping, of a custom grouping."""


@dataclass(frozen=True, slots=True, kw_only=True)
class BoltComponent:
    """A DataFrame bolt: a function from DataFrames to a DataFrame, with the fields it declares."""

    name: str
    function: FrameFunction
    inputs: tuple[Subscription, ...]
    fields: Fields | None
    """None if no downstream component names fields."""
    rows: RowsPromise = "any"
    """`same`, `fewer` or `any`: the row count of the output compared with the input."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TupleBoltComponent:
    """A tuple bolt with its name in the topology."""

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
    """A committer bolt with its name in the topology and the fields of its input."""

    name: str
    bolt: CommitterBolt
    input: Subscription
    """The first of `inputs`."""
    fields: Fields
    """Fields of its input stream; of the first one if it reads several."""
    inputs: tuple[Subscription, ...] = ()
    """All inputs; by default the single `input`. Only a committer that takes tuples may have more."""
    tasks: int = 1
    """`parallelism_hint` of its executor half, if it receives tuples."""
    outputs: Mapping[str, Stream] = field(default_factory=dict)
    """Streams that its driver half emits to bolts and committers downstream, each with parsed Fields."""

    def __post_init__(self) -> None:
        if not self.inputs:
            object.__setattr__(self, "inputs", (self.input,))

    @property
    def result_fields(self) -> Fields:
        """Types of the rows between its two halves."""
        return self.bolt.declared_results(self.fields)

    def bolt_as(self, kind: type[Kind]) -> Kind:
        """Return its bolt with the type of its kind, for a half of that kind. No other code asks which class it is."""
        return self.bolt if isinstance(self.bolt, kind) else unreachable(f"committer {self.name} is no {kind.__name__}")


@dataclass(frozen=True, kw_only=True)
class Topology:
    """A frozen description of components and the streams between them, made by TopologyBuilder. Building it runs
    nothing.
    """

    name: str
    spouts: tuple[SpoutComponent, ...]
    bolts: tuple[BoltComponent | TupleBoltComponent, ...]
    """In an order in which every bolt comes after its inputs."""
    committers: tuple[CommitterComponent, ...]
    """In the order in which they are applied: as they were set, each after the committers upstream of it."""
    acking: Acking = "batch"
    guarantee: Guarantee = "exactly_once"
    """The weakest guarantee that any pair of spout and committer may have; a weaker pair is refused by `build`."""
    config: Mapping[str, Any] = field(default_factory=dict)
    """Settings for components, under Storm's names where Storm has the setting."""
    module_file: str | None = field(default=None, compare=False)
    """The Python file that built the topology; part of the code hash."""
    queries: Mapping[str, StreamQuery] = field(default_factory=dict, compare=False)
    """What can be asked from outside of batches, by name."""

    @property
    def frame_bolts(self) -> tuple[BoltComponent, ...]:
        """The bolts that are functions over DataFrames."""
        return tuple(bolt for bolt in self.bolts if isinstance(bolt, BoltComponent))

    @property
    def tuple_bolts(self) -> tuple[TupleBoltComponent, ...]:
        """The bolts that receive tuples."""
        return tuple(bolt for bolt in self.bolts if isinstance(bolt, TupleBoltComponent))

    @property
    def has_tuples(self) -> bool:
        """True if a bolt or committer receives tuples; then the tuple runtime feeds all committers."""
        return bool(self.tuple_bolts) or any(item.bolt.takes_tuples for item in self.committers)

    @cached_property
    def _phases(self) -> Phases:
        components = (*self.bolts, *self.committers)
        reads = {item.name: [one.source for one in item.inputs] for item in components}
        readers = readers_of({item.name: item.bolt.reads for item in self.committers})
        return phases_of(reads, [item.name for item in self.committers], readers)

    @property
    def phases(self) -> Mapping[str, int]:
        """The phase number of each bolt and committer, see `phases_of`: 0 is the processing phase, higher numbers are
        the commit phase.
        """
        return self._phases.of

    @property
    def applied_in(self) -> Mapping[str, int]:
        """The phase at whose end each committer is applied: its own, or a later one if its table is read before."""
        return self._phases.applied

    @property
    def single_commits(self) -> str | None:
        """Why its committers allow no commit runs, as text; None: they do (R20, what may be in a commit run)."""
        for item in self.committers:
            if not item.bolt.commits_in_runs:
                return f"committer {item.name} is a {type(item.bolt).__name__}, which commits batches one by one"
            if self.phases[item.name] != PROCESSING:
                return f"committer {item.name} is downstream of a committer, so it runs in the commit of each batch"
        for item in self.committers:
            if item.outputs:
                return f"committer {item.name} passes on its values, in the commit of each batch"
        return None

    def fields_of(self, source: str, stream: str = DEFAULT_STREAM) -> Fields | None:
        """Return the declared fields of a stream of a component; None if a DataFrame bolt declares none."""
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
        """Return a description of the topology as JSON values: everything except its code."""
        from txtopo.topology.describe import describe_topology

        return describe_topology(self)

    def query(
        self, name: str, *values: object, questions: Sequence[Sequence[Any]] = (), dsn: str | None = None
    ) -> QueryAnswer:
        """Ask a query, in this process, without Spark: with one value for each of its fields, or with several
        `questions` together. It reads one state of the database `dsn`, by default that of TXTOPO_DSN, `txtopo.toml` or
        the services of `txtopo dev up`.

        Raises ConfigurationError for an unknown query, for values that do not fit and if no database is configured,
        NotFoundError if the topology has never run, StoreUnavailable if Postgres does not answer, BatchDataError if a
        step of the query fails.
        """
        return ask(self, name, [*([values] if values or not questions else []), *questions], dsn)

    def run_cli(self, **settings: Unpack[RunSettings]) -> int:
        """Run this topology in the foreground, as `txtopo run` does: prints errors to stderr and returns the exit code.
        For the end of a script: `raise SystemExit(topology.run_cli())`. Programs use `txtopo.run`.

        Settings are those of `txtopo run` and `txtopo.toml`: once=True, dsn="postgresql://…",
        zookeeper="host:2181/chroot", master="local[4]", conf={"spark.executor.memory": "4g"}, workers=4,
        attempts_max=3, message_timeout_s=300, quiet=True, …
        """
        return launch(self, settings)

    def run(self, **settings: Unpack[RunSettings]) -> int:
        """The name of `run_cli` in release 0.1.0, kept for existing scripts."""
        return self.run_cli(**settings)
