"""TopologyBuilder: Storm's verbs, and every mistake found before Spark starts.

>>> from txtopo import CountCommitter, FileSpout, TopologyBuilder
>>> builder = TopologyBuilder("flights")
>>> builder.set_spout("departures", FileSpout("flights", "carrier string, distance int"))
>>> counts = CountCommitter(table="by_carrier", keys=["carrier"], count="flights")
>>> _ = builder.set_committer_bolt("by_carrier", counts).fields_grouping("departures", ["carrier"])
>>> builder.build().name
'flights'
"""

from __future__ import annotations

import difflib
import re
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NoReturn

from txtopo.core.fields import Fields, parse_fields
from txtopo.core.limits import NAME_PATTERN
from txtopo.errors import TopologyError
from txtopo.topology.bolts import check_committer, check_function, check_grouping, check_parameters, check_spout
from txtopo.topology.components import (
    BoltComponent,
    CommitterBolt,
    CommitterComponent,
    Spout,
    SpoutComponent,
    Subscription,
    Topology,
)

Inputs = str | Sequence[str] | None


@dataclass(slots=True)
class _Bolt:
    name: str
    function: Callable[..., Any]
    fields: Fields | None
    rows: str
    inputs: list[Subscription] = field(default_factory=list)


@dataclass(slots=True)
class _Committer:
    name: str
    bolt: CommitterBolt
    inputs: list[Subscription] = field(default_factory=list)


class BoltDeclarer:
    """What set_bolt and set_committer_bolt return: the place for groupings. Each returns the declarer itself."""

    def __init__(self, component: _Bolt | _Committer) -> None:
        self._component = component

    def fields_grouping(self, source: str, fields: str | Sequence[str]) -> BoltDeclarer:
        """Rows of `source` with the same values in `fields` meet in one task."""
        named = (fields,) if isinstance(fields, str) else tuple(fields)
        if not named or not all(isinstance(name, str) for name in named):
            raise TopologyError(f"{self._component.name}: fields_grouping({source!r}) names no fields")
        return self._group(source, "fields", named)

    def shuffle_grouping(self, source: str) -> BoltDeclarer:
        """Rows of `source` are spread evenly."""
        return self._group(source, "shuffle")

    def none_grouping(self, source: str) -> BoltDeclarer:
        """It does not matter how rows of `source` are spread."""
        return self._group(source, "none")

    def local_or_shuffle_grouping(self, source: str) -> BoltDeclarer:
        """Rows of `source` stay where they are if possible."""
        return self._group(source, "local_or_shuffle")

    def global_grouping(self, source: str) -> BoltDeclarer:
        """All rows of `source` go to one task; no component takes it yet."""
        return self._group(source, "global")

    def all_grouping(self, source: str) -> BoltDeclarer:
        """Every task gets all rows of `source`; no component takes it yet."""
        return self._group(source, "all")

    def direct_grouping(self, source: str) -> BoltDeclarer:
        """The emitter names the task; no component takes it yet."""
        return self._group(source, "direct")

    def partial_key_grouping(self, source: str, fields: str | Sequence[str]) -> BoltDeclarer:
        """Rows go to the less loaded of two tasks; no component takes it yet."""
        return self._group(source, "partial_key")

    def custom_grouping(self, source: str, grouping: object) -> BoltDeclarer:
        """A function chooses the tasks; no component takes it yet."""
        return self._group(source, "custom")

    def _group(self, source: str, grouping: str, fields: tuple[str, ...] = ()) -> BoltDeclarer:
        component = self._component
        if isinstance(component, _Bolt):
            message = f"bolt {component.name!r} is a function on whole DataFrames and takes no {grouping}_grouping: name its inputs with set_bolt(…, inputs={source!r})"
            raise TopologyError(message)
        check_grouping(component.name, grouping)
        _refuse_second_input(component)
        component.inputs.append(Subscription(source=source, grouping=grouping, fields=fields))
        return self


def _refuse_second_input(component: _Committer) -> None:
    if component.inputs:
        first = component.inputs[0].source
        raise TopologyError(
            f"committer bolt {component.name!r} reads {first!r} already; unite several inputs in a bolt before it"
        )


class TopologyBuilder:
    """Collects components under their names; `build` checks the whole and freezes it."""

    def __init__(self, name: str) -> None:
        self._name = _checked_name("topology", name)
        self._spouts: dict[str, SpoutComponent] = {}
        self._bolts: dict[str, _Bolt] = {}
        self._committers: dict[str, _Committer] = {}

    def set_spout(self, name: str, spout: Spout) -> None:
        """Add the source of batches."""
        self._check_new("spout", name)
        if self._spouts:
            other = next(iter(self._spouts))
            raise TopologyError(
                f"spout {name!r}: the topology has spout {other!r} already, and more than one is not supported: start a topology for each source"
            )
        self._spouts[name] = SpoutComponent(name=name, spout=check_spout(name, spout))

    def set_bolt(
        self,
        name: str,
        function: Callable[..., Any],
        inputs: Inputs = None,
        fields: str | Fields | None = None,
        rows: str = "any",
    ) -> BoltDeclarer:
        """Add a function `DataFrame -> DataFrame`. With several inputs each is passed by keyword, named as its component.

        `fields` declares its output, needed where something behind it names fields. `rows` says how its row count relates to its
        input's: `same`, `fewer` or `any`; the first two are enforced while it runs.
        """
        self._check_new("bolt", name)
        bolt = _Bolt(name, check_function(name, function, rows), None if fields is None else parse_fields(fields), rows)
        bolt.inputs = [Subscription(source=source) for source in _sources(name, inputs)]
        if bolt.inputs:
            check_parameters(name, bolt.function, [subscription.source for subscription in bolt.inputs])
        self._bolts[name] = bolt
        return BoltDeclarer(bolt)

    def set_committer_bolt(self, name: str, committer: CommitterBolt, inputs: Inputs = None) -> BoltDeclarer:
        """Add a committer bolt; `inputs` is short for a shuffle grouping on the declarer. Committers are applied in the order in which they were set."""
        self._check_new("committer bolt", name)
        component = _Committer(name, check_committer(name, committer))
        declarer = BoltDeclarer(component)
        for source in _sources(name, inputs):
            declarer.shuffle_grouping(source)
        self._committers[name] = component
        return declarer

    def build(self) -> Topology:
        """Check the whole and freeze it. Raises TopologyError with the first mistake found."""
        self._check_presence()
        self._check_sources()
        bolts = self._in_order()
        committers = tuple(self._committer(component) for component in self._committers.values())
        self._check_tables()
        self._check_readers()
        return Topology(
            name=self._name,
            spouts=tuple(self._spouts.values()),
            bolts=tuple(
                BoltComponent(
                    name=bolt.name,
                    function=bolt.function,
                    inputs=tuple(bolt.inputs),
                    fields=bolt.fields,
                    rows=bolt.rows,
                )
                for bolt in bolts
            ),
            committers=committers,
            module_file=_file_of(sys._getframe(1).f_code.co_filename),
        )

    def _check_new(self, kind: str, name: str) -> None:
        _checked_name(kind, name)
        if name in self._spouts or name in self._bolts or name in self._committers:
            raise TopologyError(f"{kind} {name!r}: another component has that name already")

    def _readers(self) -> list[_Bolt | _Committer]:
        return [*self._bolts.values(), *self._committers.values()]

    def _check_presence(self) -> None:
        if not self._spouts:
            raise TopologyError(f"topology {self._name!r} has no spout: add one with set_spout")
        if not self._committers:
            raise TopologyError(
                f"topology {self._name!r} has no committer bolt, so nothing would be kept: add one with set_committer_bolt"
            )

    def _check_sources(self) -> None:
        for component in self._readers():
            if not component.inputs:
                how = "inputs=" if isinstance(component, _Bolt) else "a grouping or inputs="
                raise TopologyError(f"{component.name!r} has no input: name one with {how}")
            for subscription in component.inputs:
                self._check_source(component.name, subscription.source)

    def _check_source(self, reader: str, source: str) -> None:
        if source in self._committers:
            raise TopologyError(f"{reader!r} reads {source!r}, but a committer bolt has no output")
        if source not in self._spouts and source not in self._bolts:
            raise TopologyError(
                f"{reader!r} reads {source!r}, but there is no such component{_nearest(source, [*self._spouts, *self._bolts])}"
            )

    def _in_order(self) -> list[_Bolt]:
        """Bolts, each after its inputs; among those that are free, as they were set."""
        ordered: dict[str, _Bolt] = {}
        path: list[str] = []

        def visit(bolt: _Bolt) -> None:
            if bolt.name in path:
                raise TopologyError(
                    f"the bolts form a cycle: {' -> '.join([*path[path.index(bolt.name) :], bolt.name])} (each reads the next)"
                )
            if bolt.name in ordered:
                return
            path.append(bolt.name)
            for subscription in bolt.inputs:
                if subscription.source in self._bolts:
                    visit(self._bolts[subscription.source])
            path.pop()
            ordered[bolt.name] = bolt

        for bolt in self._bolts.values():
            visit(bolt)
        return list(ordered.values())

    def _committer(self, component: _Committer) -> CommitterComponent:
        subscription = component.inputs[0]
        fields = self._fields_of(component.name, subscription.source)
        for name in subscription.fields:
            _check_field(
                f"{component.name!r}: fields_grouping({subscription.source!r})", name, subscription.source, fields
            )
        for name in component.bolt.required_fields():
            _check_field(f"committer bolt {component.name!r}", name, subscription.source, fields)
        try:
            component.bolt.check_fields(fields)
        except TopologyError as error:
            raise TopologyError(f"committer bolt {component.name!r}: {error}") from error
        return CommitterComponent(name=component.name, bolt=component.bolt, input=subscription, fields=fields)

    def _fields_of(self, reader: str, source: str) -> Fields:
        if source in self._spouts:
            return self._spouts[source].spout.fields
        fields = self._bolts[source].fields
        if fields is None:
            raise TopologyError(
                f"{reader!r} names fields of bolt {source!r}, which declares none: declare fields=… on set_bolt({source!r}, …)"
            )
        return fields

    def _check_tables(self) -> None:
        owners: dict[object, str] = {}
        for component in self._committers.values():
            table = component.bolt.describe().get("table")
            if table is not None and table in owners:
                raise TopologyError(
                    f"committer bolts {owners[table]!r} and {component.name!r} have one target table, {table!r}: a table belongs to one committer"
                )
            owners[table] = component.name

    def _check_readers(self) -> None:
        read = {subscription.source for component in self._readers() for subscription in component.inputs}
        for name in [*self._spouts, *self._bolts]:
            if name not in read:
                raise TopologyError(f"nothing reads {name!r}: connect it or take it out")


def _checked_name(kind: str, name: object) -> str:
    # P15: names end up in tables, znodes and logs.
    if not isinstance(name, str) or re.fullmatch(NAME_PATTERN, name) is None:
        raise TopologyError(
            f"{kind}: the name {name!r} is not allowed: a small letter, then at most 40 small letters, digits or underscores"
        )
    return name


def _sources(name: str, inputs: Inputs) -> list[str]:
    sources = [] if inputs is None else [inputs] if isinstance(inputs, str) else list(inputs)
    for source in sources:
        if not isinstance(source, str):
            _bad_inputs(name, inputs)
        if sources.count(source) > 1:
            raise TopologyError(f"{name!r} reads {source!r} twice")
    return sources


def _bad_inputs(name: str, inputs: object) -> NoReturn:
    raise TopologyError(f"{name!r}: inputs={inputs!r} is no component's name and no list of names")


def _check_field(who: str, name: str, source: str, fields: Fields) -> None:
    if fields.get(name) is None:
        raise TopologyError(
            f"{who} names field {name!r}, but {source!r} has {', '.join(fields.names)}{_nearest(name, fields.names)}"
        )


def _nearest(name: str, known: Sequence[str]) -> str:
    close = difflib.get_close_matches(name, known, n=1)
    return f"; did you mean {close[0]!r}?" if close else ""


def _file_of(name: str) -> str | None:
    path = Path(name)
    return str(path.resolve()) if path.is_file() else None
