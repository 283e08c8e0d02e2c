"""Decides where tuples are counted before they reach a committer, and which committers count them together: pure
functions of the topology.

A task that reads or makes tuples may send their groups instead (keys, number of tuples, aggregates), and whatever is
downstream folds them. Groups of a task need only be as fine as the final ones, so this is safe if values that are
equal for Arrow are the same value for every reader, and if no sum of a task can overflow. Everything else is sent tuple
by tuple.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from txtopo.core.fields import DECIMAL_PRECISION_MAX, INTEGER_KINDS, Field, Fields, FieldType
from txtopo.topology.committer_bolt import FOLDS, AggregateKind, Aggregation, Fold
from txtopo.topology.components import CommitterComponent, Topology
from txtopo.topology.event_windows import KeySource
from txtopo.topology.phases import PROCESSING

KEY_KINDS = frozenset({"string", "binary", "boolean", "date", "timestamp", "timestamp_ntz", "decimal", *INTEGER_KINDS})
"""Types of which each value has one form only. Floats are not among them: 0.0 is -0.0, and there are many NaNs."""
SHORT_KINDS = frozenset({"tinyint", "smallint", "int"})
"""Types whose sums over TUPLES_MAX tuples fit 64 bits."""
SUMMED_DIGITS_MAX = 28
"""A sum of decimals with at most this many digits, over TUPLES_MAX tuples, fits 38 digits."""
TUPLES_MAX = 2**30
"""Maximum number of tuples of one group of a task."""
TUPLES = "$n"
"""Column of a group: the number of its tuples."""


@dataclass(frozen=True, slots=True)
class PartialCount:
    """What the tuples of a stream are grouped by, and what is aggregated, for all its readers together."""

    keys: tuple[str, ...]
    """Fields whose values are keys."""
    aggregates: tuple[tuple[AggregateKind, str], ...] = ()
    """(kind, field), each once."""
    made: tuple[KeySource, ...] = ()
    """Windows of event time and cells of sketches, which are keys after the others."""

    @property
    def sources(self) -> tuple[KeySource, ...]:
        """Return what each key is made of."""
        return (*map(KeySource, self.keys), *self.made)

    @property
    def fields(self) -> tuple[str, ...]:
        """Return the fields that are read, each once."""
        return tuple(dict.fromkeys([*(one.field for one in self.sources), *(field for _, field in self.aggregates)]))

    @property
    def folds(self) -> tuple[Fold, ...]:
        """Return how the columns after the keys are folded."""
        return (*(FOLDS[kind] for kind, _ in self.aggregates), "add")

    def key_column(self, source: KeySource) -> str:
        """Return the column of a group with the value of this key."""
        return f"$k{self.sources.index(source)}"

    def value_column(self, kind: AggregateKind, field: str) -> str:
        """Return the column of a group with this aggregate."""
        return f"$v{self.aggregates.index((kind, field))}"

    def columns(self, fields: Fields) -> tuple[Field, ...]:
        """Return the columns of a group in their order, for tuples of `fields`: keys, aggregates, number of tuples."""
        read = _named(fields, [one.field for one in self.sources])
        keys = [
            Field(f"$k{at}", one.type_of(item.type), item.nullable)
            for at, (one, item) in enumerate(zip(self.sources, read, strict=True))
        ]
        values = [
            Field(self.value_column(kind, item.name), value_type(kind, item.type), FOLDS[kind] != "add")
            for kind, field in self.aggregates
            for item in _named(fields, [field])
        ]
        return (*keys, *values, Field(TUPLES, FieldType("bigint"), nullable=False))


def value_type(kind: AggregateKind, of: FieldType) -> FieldType:
    """Return the type of a task's aggregates. Sums have 64 bits if they cannot overflow, otherwise 38 digits."""
    if FOLDS[kind] != "add":
        return of
    if kind == "count" or of.kind in SHORT_KINDS:
        return FieldType("bigint")
    return FieldType("decimal", DECIMAL_PRECISION_MAX, of.scale or 0)


def counted_together(topology: Topology) -> Mapping[str, Sequence[CommitterComponent]]:
    """Return by stream the committers that read it, in a topology of DataFrames: one job counts it for all of them."""
    readers: dict[str, list[CommitterComponent]] = {}
    for item in topology.committers:
        readers.setdefault(item.input.source, []).append(item)
    return readers


def counted_in_spout(topology: Topology, spout: str) -> PartialCount | str:
    """Return what the tasks of a spout group by, in a topology of DataFrames; or the reason why its tuples are sent one
    by one, in a few words.
    """
    for bolt in topology.bolts:
        if any(item.source == spout for item in bolt.inputs):
            return f"bolt {bolt.name} reads tuples of {spout}"
    readers = counted_together(topology).get(spout)
    fields = next(item.spout.fields for item in topology.spouts if item.name == spout)
    return _together(readers, fields) if readers else f"no committer reads {spout}"


def counted_before(committer: CommitterComponent, fields: Fields) -> PartialCount | str:
    """Return what a task groups by that sends tuples of `fields` to a committer, in a topology of tuples; or the reason
    why it sends them one by one.
    """
    return _together([committer], fields)


def counted_upstream(topology: Topology, committer: CommitterComponent, *, tracked: bool) -> PartialCount | str:
    """Return the same for what a committer reads, in any topology; `tracked`: tuples carry their roots."""
    source = committer.input.source
    if topology.has_tuples:
        if topology.phases[committer.name] != PROCESSING:
            return "it is counted in the driver"
        if tracked:
            return "every tuple is tracked"
        return counted_before(committer, committer.fields)
    if any(item.name == source for item in topology.spouts):
        return counted_in_spout(topology, source)
    return f"bolt {source} is a function over DataFrames"


def _together(readers: Sequence[CommitterComponent], fields: Fields) -> PartialCount | str:
    aggregations: list[Aggregation] = []
    for reader in readers:
        if reader.bolt.takes_tuples:
            return f"committer {reader.name} receives tuples"
        aggregations.append(reader.bolt.aggregation())
        if not aggregations[-1].sources:
            return f"committer {reader.name} has no keys"
    keys = tuple(dict.fromkeys(name for one in aggregations for name in one.keys))
    aggregates = tuple(dict.fromkeys((kind, name) for one in aggregations for kind, name, _ in one.aggregates))
    made = tuple(dict.fromkeys(source for one in aggregations for source in one.made))
    sums = [name for kind, name in aggregates if kind == "sum"]
    return _refusal(_named(fields, keys), _named(fields, sums)) or PartialCount(keys, aggregates, made)


def _refusal(keys: Sequence[Field], sums: Sequence[Field]) -> str | None:
    for field in keys:
        if field.type.kind not in KEY_KINDS:
            return f"key {field.name} is a {field.type}"
    for field in sums:
        if not field.type.is_exact_number or (field.type.precision or 0) > SUMMED_DIGITS_MAX:
            return f"a sum of {field.name}, a {field.type}, may overflow in a task"
    return None


def _named(fields: Fields, names: Sequence[str]) -> list[Field]:
    found = {item.name: item for item in fields.items}
    return [found[name] for name in names]
