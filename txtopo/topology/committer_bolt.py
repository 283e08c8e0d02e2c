"""`CommitterBolt`: what a kind of committer says of itself. Each room finds its half of it by `committer_kind`."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, Literal, NamedTuple, get_args

from txtopo.core.fields import DECIMAL_PRECISION_MAX, Field, Fields, FieldType
from txtopo.errors import unreachable
from txtopo.topology.event_windows import Cell, KeySource, TimeWindow
from txtopo.topology.keyed_table import KeyedTable
from txtopo.topology.spec_method import SpecMethod
from txtopo.topology.streams import DEFAULT_STREAM, Stream
from txtopo.topology.user_exceptions import note_component

if TYPE_CHECKING:
    from txtopo.topology.components import CommitterComponent


AggregateKind = Literal["sum", "count", "min", "max"]
"""How the values of a field become one value: `count` is the number of values that are not NULL."""


Fold = Literal["add", "min", "max"]
"""How two values of a column become one."""
FOLDS: Mapping[AggregateKind, Fold] = {"sum": "add", "count": "add", "min": "min", "max": "max"}


Later = Literal["recompute", "audit by key", "trace", "backfill"]
LATER: tuple[Later, ...] = get_args(Later)
"""What can be done with committed batches: redo them, recount each key from the source, name the batches of a row."""


class Aggregate(NamedTuple):
    """One value of a result row, made of one input field. NULL values are ignored; each kind is associative and
    commutative, so that parts may be combined in any order.
    """

    kind: AggregateKind
    """`sum` and `count` are 0 if all values are NULL, `min` and `max` NULL."""
    field: str
    """The input field."""
    column: str
    """The result column."""


class RowKeys(NamedTuple):
    """Fields that identify a row of a committer that stores rows; an index has them. A NULL in one fails the batch."""

    fields: tuple[str, ...]
    one_row: bool
    """True: a batch may have one row of a key only."""
    version: tuple[str, ...] = ()
    """Further fields of that index."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Aggregation:
    """Executor half of a counting committer, as data: group by `keys`, count rows, aggregate exactly. Each executor
    implements it in its own way.

    Result rows have the columns keys, windows, cells, count, aggregates, in this order. NULL is a key like any other.
    """

    keys: tuple[str, ...]
    """Fields whose values are keys."""
    count: str
    """Name of the result column with the number of rows of a key (the row's weight)."""
    aggregates: tuple[Aggregate, ...] = ()
    windows: tuple[TimeWindow, ...] = ()
    """Windows of event time, which are keys after the others."""
    cells: tuple[Cell, ...] = ()
    """Cells of sketches, which are keys after these."""

    @property
    def made(self) -> tuple[KeySource, ...]:
        """Return what the keys are made of which are no field."""
        return (*(one.source for one in self.windows), *(one.source for one in self.cells))

    @property
    def sources(self) -> tuple[KeySource, ...]:
        """Return what each key is made of."""
        return (*map(KeySource, self.keys), *self.made)


class CommitterBolt(ABC):
    """A bolt that makes a batch visible: its rows are computed in parallel and applied strictly in txid order, in the
    single database transaction of the batch.

    Users name CountCommitter, AggregateCommitter or AppendCommitter, or derive from BatchCommitter. docs/development.md
    says what a new kind consists of.
    """

    committer_kind: ClassVar[str] = ""
    """Name of the kind, by which the rooms that run, store and check a committer find their half of it."""
    effects: Literal["transaction", "outside"] = "transaction"
    """`outside`: it also writes to places that a rollback does not undo, so it is at-least-once."""
    takes_tuples: ClassVar[bool] = False
    """True: its executor half receives tuples (BatchCommitter, AppendCommitter), and it may have several inputs. False:
    its executor half is an `aggregation`, which is data.
    """
    runs_code: ClassVar[bool] = False
    """True: its driver half is code of the user, which runs on a new copy of the bolt in each commit, and may emit."""
    commits_in_runs: ClassVar[bool] = False
    """True: consecutive batches may be applied in one database transaction with summed numbers, because this leaves in
    the database what the batches one by one would have left. Safe by default: a kind that does not say so commits one
    by one.
    """
    can_be_staged: bool = False
    """True: tasks may store its result rows in Postgres if there are too many for the driver; the commit merges them
    (R10).
    """
    reads: tuple[str, ...] = ()
    """Names of counting committers of the topology whose tables its driver half reads: as the batch before has left
    them, so it is applied before them.
    """
    contributions: bool = False
    """True: it stores what each batch added, so that a batch can be reversed and recomputed."""
    config: ClassVar[Mapping[str, Any]] = {}
    """Settings of its executor half, if this receives tuples."""
    spec: ClassVar[SpecMethod] = SpecMethod()
    """Returns a spec of this component for a class-style topology."""

    def __init_subclass__(cls, **keywords: object) -> None:
        super().__init_subclass__(**keywords)
        note_component(cls.__module__)

    @abstractmethod
    def aggregation(self) -> Aggregation:
        """Return the executor half."""

    def runs_code_in_tasks(self) -> bool:
        """Return True if code of the user sees the tuples of a batch while it is processed."""
        return self.takes_tuples

    @abstractmethod
    def required_fields(self) -> tuple[str, ...]:
        """Return the names of the input fields that it uses; they are checked against the declared fields when the
        topology is built.
        """

    @abstractmethod
    def check_fields(self, fields: Fields) -> None:
        """Raise TopologyError, naming the field, for input whose types it cannot count exactly."""

    @abstractmethod
    def describe(self) -> Mapping[str, Any]:
        """Return JSON values that describe this committer, for the code hash and `show`."""

    @property
    def row_keys(self) -> RowKeys | None:
        """What identifies the rows that it stores; None: nothing, or it stores no rows."""
        return None

    def table_by_key(self, inputs: Fields) -> KeyedTable | None:
        """Return its table, for an input with these fields, if it has one row for each key, which others may read with
        `reads`; None: it has none.
        """
        return None

    def parts(self) -> Mapping[str, CommitterBolt]:
        """Return further committers that read what it reads and are applied before it: what is added to its name -> the
        committer.
        """
        return {}

    def cannot(self) -> Mapping[Later, str]:
        """Return what cannot be done with its committed batches, each with the reason; empty if all can."""
        return {} if self.contributions else dict.fromkeys(LATER, "contributions=False keeps nothing of a batch")

    def check_component(self, who: str) -> None:  # noqa: B027 - a committer that is data has nothing to check here
        """Raise TopologyError if it cannot be a component; `who` names it."""

    def check_input_fields(self, who: str, fields: Sequence[Fields]) -> None:  # noqa: B027 - most have one input
        """Raise TopologyError if it cannot read streams with these fields together, one item for each input."""

    def declared_outputs(self, who: str) -> Mapping[str, Stream]:
        """Return the streams that its driver half emits, by name. Raises TopologyError if they are declared wrongly."""
        return {}

    def declared_results(self, inputs: Fields) -> Fields:
        """Return the types of the rows between its two halves, for an input with these fields."""
        return result_fields(self.aggregation(), inputs)

    def describe_component(self, component: CommitterComponent) -> Mapping[str, Any]:
        """Return JSON values for the description that depend on how this kind is connected."""
        stream = component.input.stream
        return {} if stream == DEFAULT_STREAM else {"stream": stream}


def result_fields(aggregation: Aggregation, inputs: Fields) -> Fields:
    """Return the types of the result rows: keys as declared, windows as their fields, cells int, count bigint,
    aggregates: sums decimal(38, scale of the input), counts bigint, minimum and maximum as the input.
    """

    def needed(name: str) -> Field:
        found = inputs.get(name)
        if found is None:
            unreachable(f"field {name} was to be checked when the topology was built")
        return found

    keys = [needed(name) for name in aggregation.keys]
    made_keys = [(one.start, one.source) for one in aggregation.windows]
    made_keys += [(one.column, one.source) for one in aggregation.cells]
    for name, source in made_keys:
        of = needed(source.field)
        keys.append(Field(name, source.type_of(of.type), of.nullable))
    count = Field(aggregation.count, FieldType("bigint"), nullable=False)
    made = [_aggregated(kind, needed(field).type, column) for kind, field, column in aggregation.aggregates]
    return Fields((*keys, count, *made))


def _aggregated(kind: AggregateKind, of: FieldType, column: str) -> Field:
    if kind == "sum":
        return Field(column, FieldType("decimal", DECIMAL_PRECISION_MAX, of.scale or 0), nullable=False)
    if kind == "count":
        return Field(column, FieldType("bigint"), nullable=False)
    return Field(column, of, nullable=True)
