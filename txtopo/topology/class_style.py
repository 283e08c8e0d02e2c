"""Topologies written as a class, as users of streamparse know them.

>>> from txtopo import ClassTopology, CountCommitter, FileSpout, Grouping
>>> class Flights(ClassTopology):
...     departures = FileSpout.spec("flights", "carrier string, distance int", par=2)
...     by_carrier = CountCommitter("by_carrier", ["carrier"]).spec(inputs={departures: Grouping.fields("carrier")})
>>> Flights.build().name
'flights'
"""

from __future__ import annotations

import re
import sys
from collections.abc import Mapping
from typing import Any, ClassVar

from txtopo.errors import TopologyError, TopologyTypeError
from txtopo.topology.builder import TopologyBuilder, file_of
from txtopo.topology.check_component import check_config
from txtopo.topology.committer_bolt import CommitterBolt
from txtopo.topology.components import Acking, Guarantee, Spout, Topology
from txtopo.topology.declarer import BoltDeclarer
from txtopo.topology.specs import Grouping, Spec, StreamSpec
from txtopo.topology.streams import DEFAULT_STREAM
from txtopo.topology.tuple_bolts import TupleBolt

_RESERVED = frozenset({"acking", "build", "config", "guarantee"})
_COMPONENTS = (Spout, TupleBolt, CommitterBolt)


class ClassTopology:
    """Base of topologies that are written as a class: each attribute that is a spec becomes a component with the
    attribute's name.

    The topology is checked when the class is defined; raises TopologyError with the first mistake. `class
    Base(ClassTopology, abstract=True)` defines a base class that is not checked. By default the topology is named after
    the class, in snake case (`WordCount`: word_count); `name=` sets another name.
    """

    acking: ClassVar[Acking] = "batch"
    guarantee: ClassVar[Guarantee] = "exactly_once"
    config: ClassVar[Mapping[str, Any]] = {}

    _name: ClassVar[str]
    _file: ClassVar[str | None] = None

    def __init_subclass__(cls, *, name: str | None = None, abstract: bool = False) -> None:
        super().__init_subclass__()
        cls._name = name or _snake(cls.__name__)
        cls._file = file_of(sys._getframe(1).f_code.co_filename)
        _refuse_bare_components(cls)
        if not abstract:
            _built(cls, cls._name, {})

    @classmethod
    def build(cls, name: str | None = None, *, config: Mapping[str, Any] | None = None) -> Topology:
        """Return the topology. `name` and `config`, if given, override the name and the settings of the class."""
        return _built(cls, name or cls._name, {} if config is None else config)


def _built(cls: type[ClassTopology], name: str, config: Mapping[str, Any]) -> Topology:
    who = f"topology {cls.__name__}"
    settings = {**check_config(who, cls.config), **check_config(who, config)}
    builder = TopologyBuilder(name, acking=cls.acking, guarantee=cls.guarantee, config=settings)
    specs = _specs(cls)
    names = {spec: spec.name or attribute for attribute, spec in specs.items()}
    for spec in specs.values():
        _add(builder, spec, names)
    return builder.build(module_file=cls._file)


def _specs(cls: type) -> Mapping[str, Spec]:
    """Specs by attribute, those of base classes first; a redefined attribute replaces the inherited one."""
    attributes: dict[str, object] = {}
    for kind in reversed(cls.__mro__):
        attributes |= vars(kind)
    return {name: value for name, value in attributes.items() if isinstance(value, Spec)}


def _refuse_bare_components(cls: type) -> None:
    for name, value in vars(cls).items():
        kind = value if isinstance(value, type) else type(value)
        if issubclass(kind, _COMPONENTS):
            raise TopologyTypeError(
                f"{cls.__name__}.{name} is a component, not its spec: write {kind.__name__}.spec(…)"
            )
        if name in _RESERVED and isinstance(value, Spec):
            raise TopologyError(f"{cls.__name__}.{name}: the name is reserved; rename the attribute")


def _add(builder: TopologyBuilder, spec: Spec, names: Mapping[Spec, str]) -> None:
    name, component = names[spec], spec.component
    if isinstance(component, Spout):
        if spec.inputs:
            raise TopologyError(f"spout {name!r} takes no inputs")
        builder.set_spout(name, component, spec.tasks)
    elif isinstance(component, CommitterBolt):
        _group(builder.set_committer_bolt(name, component, parallelism_hint=spec.tasks), name, spec, names)
    elif isinstance(component, TupleBolt):
        _group(builder.set_bolt(name, component, parallelism_hint=spec.tasks), name, spec, names)
    else:
        sources = [_frame_source(name, source, grouping, names) for source, grouping in spec.inputs]
        # A number of tasks is refused there, in its words.
        bolt: Any = builder.set_bolt
        bolt(name, component, sources, spec.fields, spec.rows, parallelism_hint=spec.tasks)


def _group(declarer: BoltDeclarer, name: str, spec: Spec, names: Mapping[Spec, str]) -> None:
    for source, grouping in spec.inputs:
        chosen = grouping or Grouping.SHUFFLE
        arguments: list[Any] = [_source(name, source, names)]
        if chosen.kind in ("fields", "partial_key"):
            arguments.append(chosen.names)
        if chosen.kind == "custom":
            arguments.append(chosen.chooser)
        getattr(declarer, f"{chosen.kind}_grouping")(*arguments, stream=source.stream)


def _frame_source(name: str, source: StreamSpec, grouping: Grouping | None, names: Mapping[Spec, str]) -> str:
    if grouping is not None or source.stream != DEFAULT_STREAM:
        raise TopologyError(
            f"bolt {name!r} is a function on whole DataFrames: it takes no grouping and reads default streams; give "
            f"inputs as a list of specs"
        )
    return _source(name, source, names)


def _source(name: str, source: StreamSpec, names: Mapping[Spec, str]) -> str:
    if source.spec not in names:
        raise TopologyError(f"{name!r} reads {source.spec}, which is not an attribute of its topology")
    return names[source.spec]


def _snake(name: str) -> str:
    return re.sub(r"(?<=[a-z0-9])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])", "_", name).lower()
