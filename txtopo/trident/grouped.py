"""Aggregating streams: of a whole batch, of groups, of partitions, several aggregators in one pass, and what lasts."""

from __future__ import annotations

import copy
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from txtopo.core.fields import FLOAT_KINDS, Fields
from txtopo.errors import TopologyError, TopologyTypeError
from txtopo.topology.keyed_table import KeyedTable
from txtopo.trident.aggregate_links import AggregateLink, AggregatePart
from txtopo.trident.aggregates import AnyAggregator, CountDistinct, can_be_partial
from txtopo.trident.checks import arguments_of, check_copied, declared, known
from txtopo.trident.nodes import StreamStep
from txtopo.trident.state_query import QueryFunction
from txtopo.trident.states import PostgresMapState, committer_of

if TYPE_CHECKING:
    from txtopo.trident.stream import PersistedState, TridentStream


@dataclass(frozen=True, slots=True, kw_only=True)
class Declared:
    """An aggregator and the fields that it makes."""

    aggregator: AnyAggregator
    made: Fields


class GroupedStream:
    """A stream by groups: tuples with equal values in some fields. NULL is a value like any other."""

    def __init__(self, stream: TridentStream, names: tuple[str, ...]) -> None:
        """Made by `TridentStream.group_by`."""
        self._stream = stream
        self._names = names

    def aggregate(self, aggregator: AnyAggregator, fields: str) -> TridentStream:
        """Return one row a group of each batch: the fields of the group, and those of the aggregator."""
        step = self._stream._step(f"group_by({', '.join(self._names)}).aggregate({type(aggregator).__name__})")
        return aggregated(self._stream, step, self._names, [checked(step, self._stream, aggregator, fields)])

    def chained_agg(self) -> ChainedAggregate:
        """Return a chain, to which several aggregators are added: they run in one pass."""
        return ChainedAggregate(self._stream, self._names)

    def persistent_aggregate(self, state: PostgresMapState, aggregator: AnyAggregator, fields: str) -> PersistedState:
        """Keep an aggregate over all batches in a state: exactly once, in the database transaction of each batch.

        Raises TopologyError for an aggregator that no table can keep.
        """
        from txtopo.trident.stream import PersistedState

        step = self._stream._step(
            f"group_by({', '.join(self._names)}).persistent_aggregate({type(aggregator).__name__})"
        )
        if not isinstance(state, PostgresMapState):
            raise TopologyTypeError(f"{step.who}: {state!r} is not a state such as PostgresMapState('table')")
        one = checked(step, self._stream, aggregator, fields)
        before = self._stream.fields
        committer = committer_of(step.who, state, self._names, one.aggregator, one.made, before)
        keys = tuple(field for name in self._names if (field := before.get(name)) is not None)
        emitting, table = None, None
        if not isinstance(one.aggregator, CountDistinct):
            emitting = committer_of(
                step.who, state, self._names, one.aggregator, one.made, before, Fields((*keys, *one.made.items))
            )
            table = KeyedTable(table=committer.table, keys=Fields(keys), values=one.made)
        return PersistedState(
            self._stream._plan, self._stream._kept(step, state.name, committer, emitting=emitting, table=table)
        )

    def state_query(self, state: PersistedState, function: QueryFunction, fields: str) -> TridentStream:
        """Append what a state answers, asked with the fields of the group; see `TridentStream.state_query`."""
        label = f"group_by({', '.join(self._names)}).state_query"
        return self._stream._asked(label, state, function, fields, self._names)

    def to_stream(self) -> TridentStream:
        """Return the stream without its groups."""
        return self._stream


class ChainedAggregate:
    """Several aggregators over the same tuples, in one pass. Where they make several rows a group, their cross product
    continues.
    """

    def __init__(self, stream: TridentStream, names: tuple[str, ...], parts: Sequence[Declared] = ()) -> None:
        """Made by `chained_agg`."""
        self._stream = stream
        self._names = names
        self._parts = tuple(parts)

    def aggregate(self, aggregator: AnyAggregator, fields: str) -> ChainedAggregate:
        """Return the chain with one aggregator more."""
        step = self._stream._step(f"chained_agg({self._label(aggregator)})")
        one = checked(step, self._stream, aggregator, fields)
        return ChainedAggregate(self._stream, self._names, [*self._parts, one])

    def chain_end(self) -> TridentStream:
        """Return the stream of their rows."""
        step = self._stream._step(f"chained_agg({self._label()})")
        if not self._parts:
            raise TopologyError(f"{step.who}: no aggregator: write .aggregate(…) before .chain_end()")
        return aggregated(self._stream, step, self._names, self._parts)

    def _label(self, *more: AnyAggregator) -> str:
        return ", ".join(type(one).__name__ for one in [*(part.aggregator for part in self._parts), *more])


def grouped(stream: TridentStream, step: StreamStep, fields: Sequence[str]) -> GroupedStream:
    """Return a stream by groups. Raises TopologyError for fields that are not there, or are floats."""
    names = known(step.who, stream.fields, fields)
    for name in names:
        field = stream.fields.get(name)
        if field is not None and field.type.kind in FLOAT_KINDS:
            raise TopologyError(
                f"{step.who}: {name} is a {field.type}; equal-looking floats differ: declare it decimal, or round it"
            )
    return GroupedStream(stream, names)


def checked(step: StreamStep, stream: TridentStream, aggregator: object, fields: str) -> Declared:
    """Return an aggregator whose fields and types are checked."""
    if not isinstance(aggregator, AnyAggregator):
        hint = "; use an instance, not the class" if isinstance(aggregator, type) else ""
        raise TopologyTypeError(f"{step.who}: {aggregator!r} is not an aggregator such as Count(){hint}")
    made = declared(step.who, fields)
    if aggregator.of:
        known(step.who, stream.fields, aggregator.of)
    check_copied(step.who, aggregator)
    # A check may note types on the aggregator, and the user may have given it to another step, too.
    own = copy.deepcopy(aggregator)
    own.check(step.who, stream.fields, made)
    return Declared(aggregator=own, made=made)


def aggregated(
    stream: TridentStream, step: StreamStep, names: tuple[str, ...], parts: Sequence[Declared]
) -> TridentStream:
    """Return the rows of aggregators over a whole batch. Tasks combine their own tuples first, where all aggregators
    can; then an exchange brings each group, or everything, to one task.
    """
    after = _after(step, stream.fields, names, parts)
    partial = all(can_be_partial(part.aggregator) for part in parts)
    if partial:
        first = _link(step, stream.fields, names, parts, after, merges=False, zeros=False, may_split=True)
        stream = stream._linked(step, first)
    else:
        needed = dict.fromkeys([*names, *(name for part in parts for name in part.aggregator.of)])
        if needed and len(needed) < len(stream.fields.items):
            stream = stream._projected(step, tuple(needed))
    moved = stream._grouped_by(step, "fields" if names else "global", names)
    last = _link(step, stream.fields, names, parts, after, merges=partial, zeros=not names, may_split=False)
    return moved._linked(step, last)


def aggregated_in_tasks(stream: TridentStream, step: StreamStep, part: Declared) -> TridentStream:
    """Return one row a task: without an exchange, and with a zero for a task without tuples."""
    after = _after(step, stream.fields, (), [part])
    return stream._linked(
        step, _link(step, stream.fields, (), [part], after, merges=False, zeros=True, may_split=False)
    )


def _after(step: StreamStep, before: Fields, names: Sequence[str], parts: Sequence[Declared]) -> Fields:
    keys = [field for name in names if (field := before.get(name)) is not None]
    fields = (*keys, *(field for part in parts for field in part.made.items))
    found = [field.name for field in fields]
    twice = sorted({name for name in found if found.count(name) > 1})
    if twice:
        raise TopologyError(f"{step.who}: the field {', '.join(twice)} is made twice: name it otherwise")
    return Fields(fields)


def _link(
    step: StreamStep,
    before: Fields,
    names: Sequence[str],
    parts: Sequence[Declared],
    after: Fields,
    *,
    merges: bool,
    zeros: bool,
    may_split: bool,
) -> AggregateLink:
    return AggregateLink(
        place=step.place,
        fields=after,
        before=before,
        keys=tuple(map(before.names.index, names)),
        parts=tuple(
            AggregatePart(
                aggregator=part.aggregator,
                positions=tuple(map(before.names.index, part.made.names if merges else part.aggregator.of)),
                made=part.made,
                merges=merges,
            )
            for part in parts
        ),
        zeros=zeros,
        may_split=may_split,
        arguments=tuple(arguments_of(part.aggregator) for part in parts),
    )
