"""TopologyBuilder: declares a topology with Storm's verbs and finds every mistake before Spark starts.

>>> from txtopo import CountCommitter, FileSpout, TopologyBuilder
>>> builder = TopologyBuilder("flights")
>>> builder.set_spout("departures", FileSpout("flights", "carrier string, distance int"))
>>> counts = CountCommitter(table="by_carrier", keys=["carrier"], count="flights")
>>> _ = builder.set_committer_bolt("by_carrier", counts).fields_grouping("departures", ["carrier"])
>>> builder.build().name
'flights'
"""

from __future__ import annotations

import re
import sys
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, get_args, overload

from txtopo.core.fields import Fields, parse_fields
from txtopo.core.limits import NAME_PATTERN
from txtopo.errors import TopologyError, TopologyTypeError
from txtopo.topology.check_component import (
    check_committer,
    check_config,
    check_function,
    check_parameters,
    check_spout,
    check_tasks,
    check_ticks,
    check_tuple_bolt,
)
from txtopo.topology.check_connections import Connections
from txtopo.topology.committer_bolt import CommitterBolt
from txtopo.topology.components import (
    Acking,
    BoltComponent,
    CommitterComponent,
    Guarantee,
    Spout,
    SpoutComponent,
    Subscription,
    Topology,
    TupleBoltComponent,
)
from txtopo.topology.declarer import BoltDeclarer, CommitterDraft, FrameDraft, TupleDraft
from txtopo.topology.guarantees import GUARANTEES
from txtopo.topology.outputs import parse_outputs
from txtopo.topology.spark_types import FrameFunction, RowsPromise
from txtopo.topology.streams import Stream
from txtopo.topology.tuple_bolts import TupleBolt

Inputs = str | Sequence[str] | None
ACKINGS: tuple[Acking, ...] = get_args(Acking)


class TopologyBuilder:
    """Collects named components; `build` checks the topology and freezes it.

    `acking`: "batch" - tuple counts per task decide when a batch is complete; "tuple" - in addition, the tree of each
    spout tuple is tracked; "off" - neither. `guarantee` is the weakest guarantee that any pair of spout and committer
    may have; `build` raises TopologyError for a weaker pair. `config` holds settings for components: JSON values, under
    Storm's names where Storm has the setting. A tuple bolt without outputs is not covered by any guarantee: its side
    effects are repeated when an attempt is retried.

    Raises TopologyError for an invalid name or an unknown value.
    """

    def __init__(
        self,
        name: str,
        *,
        acking: Acking = "batch",
        guarantee: Guarantee = "exactly_once",
        config: Mapping[str, Any] | None = None,
    ) -> None:
        self._name = _checked_name("topology", name)
        self._acking = _one_of("acking", acking, ACKINGS)
        self._guarantee = _one_of("guarantee", guarantee, GUARANTEES)
        self._config = check_config(f"topology {name!r}", {} if config is None else config)
        self._spouts: dict[str, SpoutComponent] = {}
        self._bolts: dict[str, FrameDraft | TupleDraft] = {}
        self._committers: dict[str, CommitterDraft] = {}

    def set_spout(self, name: str, spout: Spout, parallelism_hint: int | None = None) -> None:
        """Add a source of batches. All spouts of a topology share the txids. `parallelism_hint` is the number of tasks
        over which the parts of a batch are spread; None: one task for each part. Raises TopologyError for an invalid or
        used name, TopologyTypeError if `spout` is not a spout.
        """
        self._check_new("spout", name)
        tasks = check_tasks(f"spout {name!r}", parallelism_hint)
        checked = check_spout(name, spout)
        if checked.parts_max is not None and (tasks or 1) > checked.parts_max:
            raise TopologyError(
                f"spout {name!r}: parallelism_hint={tasks} has no effect: a {type(checked).__name__} emits in "
                f"the driver, a batch is one part; remove it"
            )
        self._spouts[name] = SpoutComponent(name=name, spout=checked, tasks=tasks)

    @overload
    def set_bolt(
        self, name: str, function: TupleBolt, inputs: Inputs = None, *, parallelism_hint: int | None = None
    ) -> BoltDeclarer: ...
    @overload
    def set_bolt(
        self,
        name: str,
        function: FrameFunction,
        inputs: Inputs = None,
        fields: str | Fields | None = None,
        rows: RowsPromise = "any",
    ) -> BoltDeclarer: ...
    def set_bolt(
        self,
        name: str,
        function: FrameFunction | TupleBolt,
        inputs: Inputs = None,
        fields: str | Fields | None = None,
        rows: RowsPromise = "any",
        *,
        parallelism_hint: int | None = None,
    ) -> BoltDeclarer:
        """Add a tuple bolt (BasicBolt, RichBolt, BatchBolt, ArrowBolt) or a function `DataFrame -> DataFrame`.

        `inputs` names the components to read; for a tuple bolt it is short for shuffle groupings on the declarer. A
        tuple bolt runs in `parallelism_hint` tasks, 1 by default. A function with several inputs gets each as a keyword
        argument named after its component. `fields` declares the output columns of a function; it is required if a
        downstream component receives tuples or refers to columns by name. `rows` tells how many rows a function returns
        compared with its input: `same`, `fewer` or `any`. `same` and `fewer` are enforced for the whole path between
        spouts, tuple bolts and committers; they cannot be checked if a bolt on that path has `any` or several inputs,
        see `unchecked_promises`.

        Returns the declarer for the groupings. Raises TopologyError for an invalid or used name and for arguments that
        do not apply to this kind of bolt, TopologyTypeError if `function` is not a bolt.
        """
        self._check_new("bolt", name)
        tasks = check_tasks(f"bolt {name!r}", parallelism_hint)
        if isinstance(function, TupleBolt):
            return self._set_tuple_bolt(name, function, inputs, fields, rows, tasks)
        bolt = FrameDraft(
            name=name,
            function=check_function(name, function, rows),
            fields=None if fields is None else parse_fields(fields),
            rows=rows,
        )
        if tasks is not None:
            raise TopologyError(
                f"bolt {name!r} is a function on whole DataFrames, which Spark spreads: remove parallelism_hint"
            )
        bolt.inputs = [Subscription(source=source) for source in _sources(name, inputs)]
        if bolt.inputs:
            check_parameters(name, bolt.function, [subscription.source for subscription in bolt.inputs])
        self._bolts[name] = bolt
        return BoltDeclarer(bolt)

    def set_committer_bolt(
        self, name: str, committer: CommitterBolt, inputs: Inputs = None, *, parallelism_hint: int | None = None
    ) -> BoltDeclarer:
        """Add a committer bolt; `inputs` is short for shuffle groupings on the declarer, which is returned.

        Committers are applied in the order in which they were set; a committer that is downstream of others is applied
        after them. `parallelism_hint` is the number of tasks of its executor half, 1 by default; it applies if the
        committer receives tuples. In a topology of DataFrame functions alone, Spark spreads the work. Raises
        TopologyError for an invalid or used name, TopologyTypeError if `committer` is not a committer bolt.
        """
        self._check_new("committer bolt", name)
        who = f"committer bolt {name!r}"
        tasks = check_tasks(who, parallelism_hint)
        draft = CommitterDraft(
            name=name, bolt=check_committer(name, committer), outputs=_emitted(who, committer), tasks=tasks or 1
        )
        declarer = _shuffled(BoltDeclarer(draft), _sources(name, inputs))
        self._committers[name] = draft
        return declarer

    def build(self, *, module_file: str | None = None) -> Topology:
        """Check the topology and return it, frozen. Raises TopologyError with the first mistake found.

        `module_file` is the Python file that belongs to the code hash of the topology; by default the file of the
        caller.
        """
        wiring = Connections(self._name, self._spouts, self._bolts, self._with_parts())
        wiring.check_presence_and_sources()
        wiring.check_tables_read()
        bolts, committers = wiring.bolts_in_order(), wiring.committers_in_order()
        wiring.check_streams()
        for bolt in bolts:
            _check_inputs(bolt)
        wiring.check_acking(self._acking)
        wiring.check_guarantee(self._guarantee)
        if not all(item.spout.is_fed for item in self._spouts.values()):
            check_ticks(self._configs())
        return Topology(
            name=self._name,
            spouts=tuple(self._spouts.values()),
            bolts=tuple(_bolt_component(bolt) for bolt in bolts),
            committers=tuple(_committer_component(draft, wiring) for draft in committers),
            acking=self._acking,
            guarantee=self._guarantee,
            config=self._config,
            module_file=module_file or file_of(sys._getframe(1).f_code.co_filename),
        )

    def _with_parts(self) -> dict[str, CommitterDraft]:
        """Return all committers, each after its parts."""
        found: dict[str, CommitterDraft] = {}
        for name, draft in self._committers.items():
            for added, bolt in draft.bolt.parts().items():
                part = replace(draft, name=f"{name}{added}", bolt=bolt, inputs=[*draft.inputs])
                self._check_new(f"part of committer bolt {name!r}", part.name)
                if part.name in found:
                    raise TopologyError(f"committer bolt {part.name!r} exists twice; rename {name!r}")
                found[part.name] = part
            found[name] = draft
        return found

    def _configs(self) -> Mapping[str, Mapping[str, Any]]:
        """Return the settings of the topology and of all components that receive tuples, by owner."""
        bolts = {f"bolt {name!r}": draft.bolt for name, draft in self._bolts.items() if isinstance(draft, TupleDraft)}
        committers = {f"committer bolt {name!r}": draft.bolt for name, draft in self._committers.items()}
        configs = {who: getattr(bolt, "config", {}) for who, bolt in {**bolts, **committers}.items()}
        return {f"topology {self._name!r}": self._config, **configs}

    def _set_tuple_bolt(
        self, name: str, bolt: TupleBolt, inputs: Inputs, fields: object, rows: str, tasks: int | None
    ) -> BoltDeclarer:
        if fields is not None or rows != "any":
            raise TopologyError(
                f"bolt {name!r} is a tuple bolt, which declares `outputs` in its class: fields= and rows= are for "
                f"functions on DataFrames"
            )
        outputs = parse_outputs(f"bolt {name!r}", check_tuple_bolt(name, bolt).outputs)
        draft = TupleDraft(name=name, bolt=bolt, outputs=outputs, tasks=tasks or 1)
        declarer = _shuffled(BoltDeclarer(draft), _sources(name, inputs))
        self._bolts[name] = draft
        return declarer

    def _check_new(self, kind: str, name: str) -> None:
        _checked_name(kind, name)
        if name in self._spouts or name in self._bolts or name in self._committers:
            raise TopologyError(f"{kind} {name!r}: another component already has this name")


def _check_inputs(draft: FrameDraft | TupleDraft) -> None:
    if isinstance(draft, TupleDraft):
        try:
            draft.bolt.check_inputs(draft.inputs, draft.tasks)
        except TopologyError as error:
            raise TopologyError(f"bolt {draft.name!r}: {error}") from error


def _bolt_component(draft: FrameDraft | TupleDraft) -> BoltComponent | TupleBoltComponent:
    inputs = tuple(draft.inputs)
    if isinstance(draft, TupleDraft):
        return TupleBoltComponent(
            name=draft.name, bolt=draft.bolt, inputs=inputs, outputs=draft.outputs, tasks=draft.tasks
        )
    return BoltComponent(name=draft.name, function=draft.function, inputs=inputs, fields=draft.fields, rows=draft.rows)


def _committer_component(draft: CommitterDraft, wiring: Connections) -> CommitterComponent:
    fields = [wiring.fields(draft.name, subscription) for subscription in draft.inputs]
    draft.bolt.check_input_fields(f"committer bolt {draft.name!r}", fields)
    return CommitterComponent(
        name=draft.name,
        bolt=draft.bolt,
        input=draft.inputs[0],
        fields=fields[0],
        inputs=tuple(draft.inputs),
        tasks=draft.tasks,
        outputs=draft.outputs,
    )


def _emitted(who: str, committer: CommitterBolt) -> Mapping[str, Stream]:
    """Return the output streams of a committer's driver half."""
    outputs = committer.declared_outputs(who)
    for stream in outputs.values():
        if stream.direct:
            raise TopologyError(f"{who}: stream {stream.name!r} cannot be direct: a committer emits to no single task")
    return outputs


def _shuffled(declarer: BoltDeclarer, sources: Sequence[str]) -> BoltDeclarer:
    for source in sources:
        declarer.shuffle_grouping(source)
    return declarer


def _checked_name(kind: str, name: object) -> str:
    # P15: names become parts of tables, znodes and logs.
    if not isinstance(name, str) or re.fullmatch(NAME_PATTERN, name) is None:
        raise TopologyError(
            f"{kind}: the name {name!r} is not allowed: it must start with a lowercase letter, then have at most 40 "
            f"lowercase letters, digits or underscores{_snake_case(name)}"
        )
    return name


def _snake_case(name: object) -> str:
    """Return a valid spelling for names in Storm's style, such as `wordCount` and `word-count`."""
    if not isinstance(name, str):
        return ""
    words = re.sub(r"(?<=[a-z0-9])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])|[^A-Za-z0-9]+", "_", name).strip("_").lower()
    return f"; call it {words!r}" if re.fullmatch(NAME_PATTERN, words) else ""


def _one_of(setting: str, value: Any, known: Sequence[Any]) -> Any:
    if value not in known:
        raise TopologyError(f"{setting}={value!r} is none of {', '.join(map(repr, known))}")
    return value


def _sources(name: str, inputs: object) -> list[str]:
    sources = [] if inputs is None else [inputs] if isinstance(inputs, str) else inputs
    if not isinstance(sources, Sequence) or not all(isinstance(source, str) for source in sources):
        raise TopologyTypeError(f"{name!r}: inputs={inputs!r} is neither the name of a component nor a list of names")
    for source in sources:
        if list(sources).count(source) > 1:
            raise TopologyError(f"{name!r} reads {source!r} twice")
    return list(sources)


def file_of(name: str) -> str | None:
    """Return the file that a code object was compiled from; None if there is none, as in an interactive session."""
    path = Path(name)
    return str(path.resolve()) if path.is_file() else None
