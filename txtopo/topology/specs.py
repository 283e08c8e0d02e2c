"""Specs: the components of a class-style topology, with inputs, groupings and numbers of tasks (streamparse's
ComponentSpec and Grouping).
"""

from __future__ import annotations

import copy
import inspect
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Literal, get_args

from txtopo.core.fields import Fields
from txtopo.errors import TopologyError, TopologyTypeError, UnknownStreamError
from txtopo.topology.check_component import (
    check_committer,
    check_config,
    check_function,
    check_spout,
    check_tasks,
    check_tuple_bolt,
)
from txtopo.topology.committer_bolt import CommitterBolt
from txtopo.topology.components import Spout
from txtopo.topology.outputs import parse_outputs
from txtopo.topology.spark_types import FrameFunction, RowsPromise
from txtopo.topology.streams import DEFAULT_STREAM
from txtopo.topology.tuple_bolts import CustomStreamGrouping, TupleBolt

GroupingKind = Literal[
    "fields",
    "partial_key",
    "custom",
    "shuffle",
    "none",
    "local_or_shuffle",
    "local_first",
    "load_aware",
    "global",
    "all",
    "direct",
]
KINDS: tuple[GroupingKind, ...] = get_args(GroupingKind)


@dataclass(frozen=True, slots=True)
class Grouping:
    """How a stream is spread over the tasks that read it: `Grouping.fields("word")`, `Grouping.SHUFFLE`, …"""

    kind: GroupingKind
    """Name of the grouping, as in the declarer's methods: `fields`, `shuffle`, …"""
    names: tuple[str, ...] = ()
    """Field names of a fields or partial key grouping."""
    chooser: CustomStreamGrouping | None = None
    """The user's grouping, of a custom grouping."""

    def __post_init__(self) -> None:
        if self.kind not in KINDS:
            raise TopologyError(
                f"Grouping({self.kind!r}) is none of {', '.join(KINDS)}: write Grouping.SHUFFLE or Grouping.fields(…)"
            )

    SHUFFLE: ClassVar[Grouping]
    NONE: ClassVar[Grouping]
    LOCAL_OR_SHUFFLE: ClassVar[Grouping]
    LOCAL_FIRST: ClassVar[Grouping]
    LOAD_AWARE: ClassVar[Grouping]
    GLOBAL: ClassVar[Grouping]
    ALL: ClassVar[Grouping]
    DIRECT: ClassVar[Grouping]

    @staticmethod
    def fields(*names: str) -> Grouping:
        """Return a grouping that sends tuples with equal values in these fields to the same task. Raises TopologyError
        without names.
        """
        if not names:
            raise TopologyError('Grouping.fields() names no fields: write Grouping.fields("word")')
        return Grouping("fields", _names("fields", names))

    @staticmethod
    def partial_key(*names: str) -> Grouping:
        """Return a grouping that sends each tuple to the less used of the two tasks of its key; without names, the
        first value is the key.
        """
        return Grouping("partial_key", _names("partial_key", names))

    @staticmethod
    def custom(chooser: CustomStreamGrouping) -> Grouping:
        """Return a grouping in which `chooser` chooses the tasks of each tuple. Raises TopologyTypeError if it is not a
        CustomStreamGrouping.
        """
        if not isinstance(chooser, CustomStreamGrouping):
            raise TopologyTypeError(f"Grouping.custom({chooser!r}): that is not an instance of CustomStreamGrouping")
        return Grouping("custom", chooser=chooser)


Grouping.SHUFFLE = Grouping("shuffle")
Grouping.NONE = Grouping("none")
Grouping.LOCAL_OR_SHUFFLE = Grouping("local_or_shuffle")
Grouping.LOCAL_FIRST = Grouping("local_first")
Grouping.LOAD_AWARE = Grouping("load_aware")
Grouping.GLOBAL = Grouping("global")
Grouping.ALL = Grouping("all")
Grouping.DIRECT = Grouping("direct")


@dataclass(frozen=True, eq=False, slots=True, kw_only=True)
class Spec:
    """A component of a class-style topology. Other specs use it, or one of its streams (`words["errors"]`, `words[1]`),
    as input.
    """

    component: Spout | TupleBolt | CommitterBolt | FrameFunction
    name: str | None
    """Name of the component; None: the name of the attribute."""
    inputs: tuple[tuple[StreamSpec, Grouping | None], ...]
    """Input streams with their groupings. None as grouping: shuffle, or no grouping for a function on DataFrames."""
    tasks: int | None
    fields: str | Fields | None
    rows: RowsPromise
    streams: tuple[str, ...]
    """Names of the declared streams, in order of declaration."""

    def __getitem__(self, stream: str | int) -> StreamSpec:
        """Return one of the streams, by name or by index. Raises UnknownStreamError if it is not declared."""
        if isinstance(stream, int) and 0 <= stream < len(self.streams):
            stream = self.streams[stream]
        if not isinstance(stream, str) or stream not in self.streams:
            raise UnknownStreamError(
                f"{self} has no stream {stream!r}: it declares {', '.join(self.streams) or 'no outputs'}"
            )
        return StreamSpec(spec=self, stream=stream)

    def __str__(self) -> str:
        return f"the spec of {_title(self.component)}"


@dataclass(frozen=True, slots=True, kw_only=True)
class StreamSpec:
    """A stream of a component of a class-style topology."""

    spec: Spec
    stream: str


InputSpecs = Sequence[Spec | StreamSpec] | Mapping[Spec | StreamSpec, Grouping] | None


def spec(
    component: Spout | TupleBolt | CommitterBolt | FrameFunction,
    *,
    name: str | None = None,
    inputs: InputSpecs = None,
    par: int | None = None,
    config: Mapping[str, Any] | None = None,
    fields: str | Fields | None = None,
    rows: RowsPromise = "any",
) -> Spec:
    """Return the spec of a component: the arguments of set_spout, set_bolt and set_committer_bolt in one expression.

    `inputs` is a list of specs, for shuffle groupings, or a dict from specs to groupings. `par` is the parallelism
    hint. `config` overrides the settings of the component's class. `fields` and `rows` are for functions on DataFrames,
    see `TopologyBuilder.set_bolt`. Raises TopologyTypeError for an argument of the wrong type, TopologyError for an
    invalid value.
    """
    who = f"the spec of {_title(component)}"
    streams: Sequence[str] = (DEFAULT_STREAM,)
    if isinstance(component, Spout):
        check_spout(name or who, component)
    elif isinstance(component, CommitterBolt):
        check_committer(name or who, component)
        streams = list(component.declared_outputs(who))
    elif isinstance(component, TupleBolt):
        streams = list(parse_outputs(who, check_tuple_bolt(name or who, component).outputs))
    else:
        check_function(name or who, component, rows)
    return Spec(
        component=component if config is None else _configured(who, component, config),
        name=name,
        inputs=_inputs(who, inputs),
        tasks=check_tasks(who, par),
        fields=fields,
        rows=rows,
        streams=tuple(streams),
    )


def instance_of(owner: type, instance: object | None, arguments: Sequence[Any], named: Mapping[str, Any]) -> Any:
    """Return the component that `spec` was called on: the instance, or a new one made with the arguments."""
    if instance is None:
        if inspect.isabstract(owner):
            raise TopologyTypeError(
                f"{owner.__name__}.spec(): {owner.__name__} is a base class and cannot be a component"
            )
        return owner(*arguments, **named)
    if arguments or named:
        raise TopologyTypeError(
            f"spec() of an instance of {owner.__name__} takes name, inputs, par and config, not "
            f"{[*arguments, *named]!r}"
        )
    return instance


def _inputs(who: str, inputs: object) -> tuple[tuple[StreamSpec, Grouping | None], ...]:
    if inputs is None:
        return ()
    if not isinstance(inputs, list | tuple | Mapping):
        raise TopologyTypeError(
            f"{who}: inputs={inputs!r} is neither a list of specs nor a dict from specs to groupings"
        )
    pairs: list[tuple[StreamSpec, Grouping | None]] = []
    for source in inputs:
        if not isinstance(source, Spec | StreamSpec):
            raise TopologyTypeError(
                f"{who}: input {source!r} is not a spec: write the attribute itself, without quotes"
            )
        grouping = inputs[source] if isinstance(inputs, Mapping) else None
        if isinstance(inputs, Mapping) and not isinstance(grouping, Grouping):
            raise TopologyTypeError(
                f'{who}: {grouping!r} is not a grouping: write Grouping.fields("word") or Grouping.SHUFFLE'
            )
        stream = source if isinstance(source, StreamSpec) else StreamSpec(spec=source, stream=DEFAULT_STREAM)
        pairs.append((stream, grouping))
    return tuple(pairs)


def _configured(who: str, component: Any, config: object) -> Any:
    """Return a copy of the component with these settings over those of its class."""
    checked = check_config(who, config)
    if not (isinstance(component, TupleBolt) or (isinstance(component, CommitterBolt) and component.takes_tuples)):
        raise TopologyTypeError(f"{who} takes no config: only tuple bolts and BatchCommitters have their own settings")
    copied: Any = copy.copy(component)
    copied.config = {**component.config, **checked}
    return copied


def _names(grouping: str, names: tuple[object, ...]) -> tuple[str, ...]:
    for name in names:
        if not isinstance(name, str):
            raise TopologyTypeError(f"Grouping.{grouping}: {name!r} is no field's name")
    return tuple(str(name) for name in names)


def _title(component: object) -> str:
    return getattr(component, "__name__", None) or type(component).__name__
