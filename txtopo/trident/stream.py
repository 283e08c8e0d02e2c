"""`TridentStream`: a value that stands for tuples with known fields. Each step returns a new one."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import pyarrow as pa

from txtopo.core.fields import Fields
from txtopo.errors import TopologyError, TopologyTypeError
from txtopo.topology.check_component import check_tasks
from txtopo.topology.committer_bolt import CommitterBolt
from txtopo.topology.keyed_table import KeyedTable
from txtopo.topology.outputs import fields_of, parse_outputs
from txtopo.topology.spark_types import FrameFunction, RowsPromise
from txtopo.topology.streams import DEFAULT_STREAM
from txtopo.topology.tuple_bolts import CustomStreamGrouping, TupleBolt
from txtopo.trident.aggregate_links import FirstLink, by_fields
from txtopo.trident.aggregates import AnyAggregator
from txtopo.trident.asking import asking
from txtopo.trident.checks import (
    Names,
    appended,
    arguments_of,
    check_copied,
    check_function,
    checked_name,
    declared,
    known,
    label_of,
)
from txtopo.trident.function_links import APPENDS, FLAT, KEEPS, Batches, Call, Verb
from txtopo.trident.functions import ArrowFilter, ArrowFunction
from txtopo.trident.grouped import ChainedAggregate, GroupedStream, aggregated, aggregated_in_tasks, checked, grouped
from txtopo.trident.join_links import How
from txtopo.trident.joins import enriched, joined
from txtopo.trident.links import Link, Project
from txtopo.trident.nodes import (
    BoltNode,
    CommitterNode,
    FrameNode,
    HintNode,
    LinkNode,
    NameNode,
    PlanNode,
    QueryNode,
    RegroupNode,
    StreamPlan,
    StreamStep,
    caller,
    chain_before,
)
from txtopo.trident.state_query import QueryFunction
from txtopo.trident.static_states import StaticState


class TridentStream:
    """Tuples with known fields. A stream never changes: each method returns a new one, so branches do not see each
    other.

    Functions get the values of fields, by position, and return rows: a value where one field is declared (None is
    NULL), a tuple of values where there are several; in the flat forms an iterable of rows, `()` for none. `of` names
    the fields that a function gets; without it, it gets all.

    Every method raises TopologyError, with stream, step, file and line of the call and field, for a step that is not
    possible, TopologyTypeError for an argument of the wrong type.
    """

    def __init__(self, plan: StreamPlan, node: PlanNode) -> None:
        """Streams are made by TridentTopology and by other streams."""
        self._plan = plan
        self._node = node

    @property
    def fields(self) -> Fields:
        """The fields of its tuples, in their order."""
        return self._node.fields

    def __repr__(self) -> str:
        return f"TridentStream({self._node.step.stream!r}: {self.fields.ddl})"

    def each(self, of: Names, function: Callable[..., Any] | ArrowFunction, fields: str) -> TridentStream:
        """Append the fields of one row for each tuple."""
        return self._call("each", function, fields, of)

    def flat_each(
        self, of: Names, function: Callable[..., Iterable[Any]] | ArrowFunction, fields: str
    ) -> TridentStream:
        """Append the fields of none to many rows for each tuple, which is repeated for each (a Trident function)."""
        return self._call("flat_each", function, fields, of)

    def map(
        self, function: Callable[..., Any] | ArrowFunction, fields: str | None = None, *, of: Names | None = None
    ) -> TridentStream:
        """Replace each tuple by one row; without `fields` the row has the fields of the stream."""
        return self._call("map", function, fields, of)

    def flat_map(
        self, function: Callable[..., Iterable[Any]] | ArrowFunction, fields: str, *, of: Names | None = None
    ) -> TridentStream:
        """Replace each tuple by none to many rows."""
        return self._call("flat_map", function, fields, of)

    def filter(self, function: Callable[..., bool] | ArrowFilter, *, of: Names | None = None) -> TridentStream:
        """Keep the tuples for which the function returns True."""
        if of is None and isinstance(function, ArrowFilter) and function.of:
            of = function.of
        return self._call("filter", function, None, of)

    def peek(self, consumer: Callable[..., None], *, of: Names | None = None) -> TridentStream:
        """Call a function with each tuple and keep the stream as it is. It runs in each attempt, so it may run more
        often than once for a tuple.
        """
        return self._call("peek", consumer, None, of)

    def project(self, *fields: str) -> TridentStream:
        """Keep only these fields, in this order."""
        return self._projected(self._step(f"project({', '.join(map(str, fields))})"), fields)

    def _projected(self, step: StreamStep, fields: tuple[str, ...]) -> TridentStream:
        names = known(step.who, self.fields, fields)
        kept = Fields(tuple(field for name in names if (field := self.fields.get(name)) is not None))
        positions = tuple(map(self.fields.names.index, names))
        return self._linked(step, Project(place=step.place, fields=kept, positions=positions))

    def arrow(
        self, function: Callable[[pa.RecordBatch], pa.RecordBatch], fields: str, rows: RowsPromise = "any"
    ) -> TridentStream:
        """Replace each record batch by what the function returns for it. A batch may be any part of the tuples.
        `rows="same"` promises a row for each row, in their order, `"fewer"` at most as many: both are checked.
        """
        step = self._step(f"arrow({label_of(function)})")
        check_function(step.who, function, ["batch"], may_yield=False)
        if rows not in ("same", "fewer", "any"):
            raise TopologyError(f"{step.who}: rows={rows!r} is none of same, fewer, any")
        made = declared(step.who, fields)
        link = Batches(
            place=step.place,
            fields=made,
            function=function,
            before=self.fields,
            rows=rows,
            arguments=arguments_of(function),
        )
        return self._linked(step, link)

    def frame(self, function: FrameFunction, fields: str, rows: RowsPromise = "any") -> TridentStream:
        """Apply a function from DataFrame to DataFrame; it runs on Spark only."""
        step = self._step(f"frame({label_of(function)})")
        if self._node.turn is not None:
            raise TopologyError(
                f"{step.who}: it is downstream of {self._node.turn}: what follows a state runs in the commit, in the "
                f"driver, without Spark; use .arrow or .map"
            )
        if self._plan.query is not None:
            raise TopologyError(f"{step.who}: a query runs in the caller's process, without Spark; use .arrow or .map")
        check_function(step.who, function, ["frame"], may_yield=False)
        made = declared(step.who, fields)
        return self._added(
            FrameNode(step=step, fields=made, parents=(self._node,), base=self._node.base, function=function, rows=rows)
        )

    def bolt(self, name: str, bolt: TupleBolt, parallelism_hint: int | None = None) -> TridentStream:
        """Send the tuples through a bolt, a component of this name; the stream continues with its default stream."""
        step = self._step(f"bolt({name})")
        self._plan.check_new(step.who, checked_name(step.who, name))
        if not isinstance(bolt, TupleBolt):
            raise TopologyTypeError(f"{step.who}: {label_of(bolt)} is not a bolt; for a function write .map")
        outputs = parse_outputs(step.who, bolt.outputs)
        if DEFAULT_STREAM not in outputs:
            raise TopologyError(
                f"{step.who}: {type(bolt).__name__} has no default stream, with which this one continues"
            )
        node = BoltNode(
            step=step,
            fields=fields_of(outputs[DEFAULT_STREAM]),
            parents=(self._node,),
            turn=self._node.turn,
            base=self._node.base,
            name=name,
            bolt=bolt,
            tasks=check_tasks(step.who, parallelism_hint),
        )
        return self._added(node)

    def shuffle(self) -> TridentStream:
        """Spread the tuples evenly over the tasks that follow."""
        return self._regrouped("shuffle", "shuffle")

    def local_or_shuffle(self) -> TridentStream:
        """Send the tuples of task n to task n if both sides have as many tasks, otherwise spread them evenly."""
        return self._regrouped("local_or_shuffle", "local_or_shuffle")

    def identity_partition(self) -> TridentStream:
        """Send the tuples of task n to task n; both sides must have as many tasks."""
        return self._regrouped("identity_partition", "identity")

    def partition_by(self, *fields: str) -> TridentStream:
        """Send tuples with equal values in these fields to the same task."""
        return self._regrouped(f"partition_by({', '.join(map(str, fields))})", "fields", fields)

    def global_(self) -> TridentStream:
        """Send all tuples to one task."""
        return self._regrouped("global_", "global")

    def batch_global(self) -> TridentStream:
        """Send all tuples of a batch to one task: the same as `global_`, since no task keeps anything for the next
        batch.
        """
        return self._regrouped("batch_global", "global")

    def broadcast(self) -> TridentStream:
        """Send every tuple to every task."""
        return self._regrouped("broadcast", "all")

    def partition(self, grouping: CustomStreamGrouping) -> TridentStream:
        """Let a grouping of the user choose the tasks of each tuple."""
        step = self._step(f"partition({label_of(grouping)})")
        if not isinstance(grouping, CustomStreamGrouping):
            raise TopologyTypeError(f"{step.who}: {grouping!r} is not a CustomStreamGrouping")
        check_copied(step.who, grouping)
        return self._grouped_by(step, "custom", (), grouping)

    def parallelism_hint(self, tasks: int) -> TridentStream:
        """Run the steps before it, back to the last repartition, in this number of tasks."""
        step = self._step(f"parallelism_hint({tasks})")
        found = check_tasks(step.who, tasks)
        if found is None:
            raise TopologyTypeError(f"{step.who}: it needs a number of tasks")
        *chain, top = chain_before(self._node)
        if not any(isinstance(node, LinkNode) for node in chain):
            what = type(top).__name__.removesuffix("PlanNode").lower()
            raise TopologyError(
                f"{step.who}: no step stands between it and the {what} before; the tasks of a spout are given to "
                f"new_stream, those of a bolt to .bolt, and a hint follows the steps that it is for"
            )
        if any(isinstance(node, HintNode) for node in chain):
            raise TopologyError(f"{step.who}: these steps have a parallelism_hint already")
        if isinstance(top, RegroupNode) and top.grouping == "global" and found > 1:
            raise TopologyError(f"{step.who}: after {top.step.label}, one task gets everything")
        return self._added(self._annotated(HintNode, step, tasks=found))

    def name(self, name: str) -> TridentStream:
        """Name the component that runs the step before. Names of steps may change at any time: nothing that lasts has
        them.
        """
        step = self._step(f"name({name})")
        self._plan.check_new(step.who, checked_name(step.who, name))
        if not isinstance(self._node, LinkNode | FrameNode | HintNode | QueryNode):
            raise TopologyError(f"{step.who}: the step before has a name, or is no step that a component runs")
        return self._added(self._annotated(NameNode, step, name=name))

    def group_by(self, *fields: str) -> GroupedStream:
        """Return the stream by groups: tuples with equal values in these fields."""
        return grouped(self, self._step(f"group_by({', '.join(map(str, fields))})"), fields)

    def aggregate(self, aggregator: AnyAggregator, fields: str) -> TridentStream:
        """Return one row for all tuples of each batch; a batch without tuples gives the aggregator's zero."""
        step = self._step(f"aggregate({type(aggregator).__name__})")
        return aggregated(self, step, (), [checked(step, self, aggregator, fields)])

    def partition_aggregate(self, aggregator: AnyAggregator, fields: str) -> TridentStream:
        """Return one row for the tuples of each task, without an exchange: how many rows depends on the number of
        tasks.
        """
        step = self._step(f"partition_aggregate({type(aggregator).__name__})")
        return aggregated_in_tasks(self, step, checked(step, self, aggregator, fields))

    def chained_agg(self) -> ChainedAggregate:
        """Return a chain, to which several aggregators over all tuples of a batch are added: they run in one pass."""
        return ChainedAggregate(self, ())

    def first_n(self, n: int, *, by: str | None = None, descending: bool = False) -> TridentStream:
        """Keep the first `n` tuples of each whole batch, by a field, then by all others; NULL is last. Without `by`,
        the order is that of all fields.
        """
        step = self._step(f"first_n({n})")
        if not isinstance(n, int) or isinstance(n, bool) or n < 1:
            raise TopologyTypeError(f"{step.who}: n={n!r} is not a number of tuples from 1")
        names = () if by is None else known(step.who, self.fields, by)
        if by is None and descending:
            raise TopologyError(f"{step.who}: descending needs by=, the field that it is for")
        link = FirstLink(
            place=step.place, fields=self.fields, count=n, order=by_fields(self.fields, names, descending=descending)
        )
        return self._linked(step, link)._grouped_by(step, "global", ())._linked(step, link)

    def min_by(self, field: str) -> TridentStream:
        """Keep the tuple with the smallest value of a field, of each whole batch; ties by all other fields."""
        return self.first_n(1, by=field)

    def max_by(self, field: str) -> TridentStream:
        """Keep the tuple with the largest value of a field, of each whole batch; ties by all other fields."""
        return self.first_n(1, by=field, descending=True)

    def join(
        self,
        other: TridentStream | StaticState,
        *,
        on: Names | None = None,
        left_on: Names | None = None,
        right_on: Names | None = None,
        how: How = "inner",
    ) -> TridentStream:
        """Join tuples of one batch: tuples of different batches do not meet. The result has the keys, under the names
        of this stream, then the other fields of both sides. NULL is equal to nothing. `how` is inner, left, right or
        full.

        With a static state, each tuple is joined with the rows that have its key, in the task where it is, inner or
        left; the fields of the state are appended.
        """
        step = self._step(f"join({how})")
        if isinstance(other, StaticState):
            return self._linked(step, enriched(self, step, other, on, left_on, right_on, how))
        if not isinstance(other, TridentStream):
            raise TopologyTypeError(f"{step.who}: {other!r} is not a stream")
        return self._added(joined(self, other, step, on, left_on, right_on, how))

    def state_query(
        self, state: PersistedState, function: QueryFunction, fields: str, *, of: Names | None = None
    ) -> TridentStream:
        """Append what a state answers, asked with the values of the fields `of`. It is asked in the commit of each
        batch, and answers as the batch before has left it, whatever this batch changes in it. What follows runs in the
        driver.

        Raises TopologyError if a query follows from new values of its own state.
        """
        return self._asked("state_query", state, function, fields, self.fields.names if of is None else of)

    def apply(self, assembly: Callable[[TridentStream], TridentStream]) -> TridentStream:
        """Return what a function makes of this stream (Trident's applyAssembly)."""
        made = assembly(self)
        if not isinstance(made, TridentStream):
            raise TopologyTypeError(
                f"{self._step('apply').who}: {label_of(assembly)} returned {made!r}, which is no stream"
            )
        return made

    def persist(self, name: str, committer: CommitterBolt) -> PersistedState:
        """Keep the tuples with a committer, a component of this name: exactly once, in the order of the batches."""
        step = self._step(f"persist({name})")
        return PersistedState(self._plan, self._kept(step, name, committer))

    # ------------------------------------------------------------------------------------------------------------------

    def _asked(
        self, label: str, state: PersistedState, function: QueryFunction, fields: str, of: Names
    ) -> TridentStream:
        if not isinstance(state, PersistedState):
            raise TopologyTypeError(
                f"{self._step(label).who}: {state!r} is not a state such as persistent_aggregate keeps"
            )
        step = self._step(f"{label}({state._node.name}, {type(function).__name__})")
        return self._added(asking(self, step, state._node, state._plan, function, fields, of))

    def _kept(
        self,
        step: StreamStep,
        name: str,
        committer: CommitterBolt,
        emitting: CommitterBolt | None = None,
        table: KeyedTable | None = None,
    ) -> CommitterNode:
        if self._plan.query is not None:
            raise TopologyError(f"{step.who}: a query keeps nothing: it only reads")
        self._plan.check_new(step.who, checked_name(step.who, name))
        if not isinstance(committer, CommitterBolt):
            raise TopologyTypeError(f"{step.who}: {label_of(committer)} is not a committer such as CountCommitter(…)")
        for field in committer.required_fields():
            known(step.who, self.fields, field)
        try:
            committer.check_fields(self.fields)
        except TopologyError as error:
            raise TopologyError(f"{step.who}: {error}") from error
        outputs = (emitting or committer).declared_outputs(step.who)
        made = fields_of(outputs[DEFAULT_STREAM]) if DEFAULT_STREAM in outputs else Fields(())
        node = CommitterNode(
            step=step,
            fields=made,
            parents=(self._node,),
            turn=name,
            base=name,
            name=name,
            committer=committer,
            emitting=emitting,
            table=table if table is not None else committer.table_by_key(self.fields),
        )
        self._plan.add(node)
        return node

    def _call(self, verb: Verb, function: Any, fields: str | None, of: Names | None) -> TridentStream:
        step = self._step(f"{verb}({label_of(function)})")
        names = self.fields.names if of is None else known(step.who, self.fields, of)
        if isinstance(function, ArrowFilter | ArrowFunction):
            _check_arrow(step, verb, function)
        else:
            check_function(step.who, function, names, may_yield=verb in FLAT)
        made = self.fields if fields is None else declared(step.who, fields)
        after = (
            self.fields if verb in KEEPS else appended(step.who, verb, self.fields, made) if verb in APPENDS else made
        )
        link = Call(
            place=step.place,
            fields=after,
            verb=verb,
            function=function,
            positions=tuple(map(self.fields.names.index, names)),
            names=names,
            made=made,
            arguments=arguments_of(function),
        )
        return self._linked(step, link)

    def _linked(self, step: StreamStep, link: Link) -> TridentStream:
        return self._added(
            LinkNode(
                step=step,
                fields=link.fields,
                parents=(self._node,),
                turn=self._node.turn,
                base=self._node.base,
                link=link,
            )
        )

    def _regrouped(self, label: str, grouping: str, fields: tuple[str, ...] = ()) -> TridentStream:
        step = self._step(label)
        return self._grouped_by(step, grouping, known(step.who, self.fields, fields) if grouping == "fields" else ())

    def _grouped_by(
        self, step: StreamStep, grouping: str, names: tuple[str, ...], custom: CustomStreamGrouping | None = None
    ) -> TridentStream:
        return self._added(
            RegroupNode(
                step=step,
                fields=self.fields,
                parents=(self._node,),
                turn=self._node.turn,
                base=self._node.base,
                grouping=grouping,
                names=names,
                custom=custom,
            )
        )

    def _annotated(self, kind: type[Any], step: StreamStep, **more: object) -> PlanNode:
        made: PlanNode = kind(
            step=step, fields=self.fields, parents=(self._node,), turn=self._node.turn, base=self._node.base, **more
        )
        return made

    def _added(self, node: PlanNode) -> TridentStream:
        self._plan.add(node)
        return TridentStream(self._plan, node)

    def _step(self, label: str) -> StreamStep:
        before = self._node.step
        return StreamStep(stream=before.stream, number=before.number + 1, label=label, at=caller())


class PersistedState:
    """A stream that is kept, and what its committer emits."""

    def __init__(self, plan: StreamPlan, node: CommitterNode) -> None:
        """Made by streams."""
        self._plan = plan
        self._node = node

    def new_values(self) -> TridentStream:
        """Return what the committer emits, as a stream: its steps run in the commit of each batch, in the driver. A
        persistent aggregate emits each group of the batch with its value after the batch.

        Raises TopologyError if the committer emits nothing.
        """
        if not self._node.fields.items:
            raise TopologyError(
                f"{self._node.step.who}: {type(self._node.committer).__name__} emits nothing; new values have "
                f"persistent aggregates, counting committers with `values`, and committers with `outputs`, such as "
                f"NewIds"
            )
        return TridentStream(self._plan, self._node)


def _check_arrow(step: StreamStep, verb: Verb, function: ArrowFilter | ArrowFunction) -> None:
    if isinstance(function, ArrowFilter) != (verb == "filter") or verb == "peek":
        what = "a filter" if isinstance(function, ArrowFilter) else "no filter"
        raise TopologyError(f"{step.who}: {type(function).__name__} is {what}")
    check_copied(step.who, function)
