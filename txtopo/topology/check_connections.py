"""Checks of components once they are connected: sources, streams, fields, cycles, guarantees."""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Mapping, Sequence

from txtopo.core.fields import Fields
from txtopo.errors import TopologyError, UnknownStreamError
from txtopo.topology.check_component import refuse_grouping
from txtopo.topology.components import Acking, Guarantee, SpoutComponent, Subscription
from txtopo.topology.declarer import CommitterDraft, Draft, FrameDraft, TupleDraft
from txtopo.topology.guarantees import acceptable, given, is_enough, why
from txtopo.topology.outputs import fields_of
from txtopo.topology.phases import PROCESSING, Phases, phases_of, readers_of
from txtopo.topology.streams import DEFAULT_STREAM, Stream

BoltDraft = FrameDraft | TupleDraft


class Connections:
    """The components of one topology by name, as TopologyBuilder collected them. Each check raises TopologyError with
    the first mistake.
    """

    def __init__(
        self,
        name: str,
        spouts: Mapping[str, SpoutComponent],
        bolts: Mapping[str, BoltDraft],
        committers: Mapping[str, CommitterDraft],
    ) -> None:
        self._name = name
        self._spouts = spouts
        self._bolts = bolts
        self._committers = committers

    @property
    def _has_tuples(self) -> bool:
        """Return True if any component receives tuples; then counting committers receive tuples too (see
        Topology.has_tuples).
        """
        return any(isinstance(bolt, TupleDraft) for bolt in self._bolts.values()) or any(
            committer.takes_tuples for committer in self._committers.values()
        )

    def check_presence_and_sources(self) -> None:
        """Check that there is a spout and a committer, and that every input is a component that can be read."""
        self._check_presence()
        for reader in self._readers():
            self._check_sources(reader)

    def check_acking(self, acking: Acking) -> None:
        """Check that there are tuples if every tuple is to be tracked: a setting without effect is an error."""
        if acking == "tuple" and not self._has_tuples:
            raise TopologyError(
                f'topology {self._name!r}: acking="tuple" tracks tuples, and this topology has only functions on '
                f"DataFrames and counting committers: remove it, counts decide when a batch is complete "
                f'(acking="batch")'
            )

    def check_tables_read(self) -> None:
        """Check that a committer reads tables of counting committers of this topology only."""
        for committer in self._committers.values():
            for name in committer.bolt.reads:
                if name not in self._committers or self._committers[name].takes_tuples:
                    raise TopologyError(
                        f"{committer.name!r} reads the table of {name!r}, which is no counting committer of this "
                        f"topology"
                    )

    def check_streams(self) -> None:
        """Check that streams, groupings, fields and tables fit, that nothing is left unread, and that each component
        can run in its phase.
        """
        self._check_phases()
        for reader in self._readers():
            for subscription in reader.inputs:
                self._check_stream(reader, subscription)
        for committer in self._committers.values():
            if not self._has_tuples and committer.inputs[0].grouping == "global":
                refuse_grouping(committer.name, "global")
        self._check_tables()
        self._check_read()

    def bolts_in_order(self) -> list[BoltDraft]:
        """Return the bolts, each after its inputs; otherwise in the order in which they were set."""
        return [self._bolts[name] for name in _in_order({**self._bolts, **self._committers}) if name in self._bolts]

    def committers_in_order(self) -> list[CommitterDraft]:
        """Return the committers by the phase in which they are applied, so each after the committers upstream of it;
        within a phase those that read tables first, the others in the order in which they were set.
        """
        _in_order({**self._bolts, **self._committers})
        applied = self._all_phases.applied
        return sorted(self._committers.values(), key=lambda one: (applied[one.name], not one.bolt.reads))

    @property
    def _phases(self) -> Mapping[str, int]:
        """Return the phase of each component. Call it only after the check for cycles."""
        return self._all_phases.of

    @property
    def _all_phases(self) -> Phases:
        reads = {one.name: [item.source for item in one.inputs] for one in self._readers()}
        readers = readers_of({one.name: one.bolt.reads for one in self._committers.values()})
        return phases_of(reads, self._committers, readers)

    def fields(self, reader: str, subscription: Subscription) -> Fields:
        """Return the fields of the stream that a subscription reads."""
        source = subscription.source
        if source in self._spouts:
            return self._spouts[source].spout.fields
        bolt = self._bolts.get(source)
        if isinstance(bolt, FrameDraft):
            if bolt.fields is None:
                raise TopologyError(
                    f"{reader!r} reads bolt {source!r}, which declares no fields: declare fields=… on "
                    f"set_bolt({source!r}, …)"
                )
            return bolt.fields
        return fields_of(self._streams(source)[subscription.stream])

    def check_guarantee(self, wanted: Guarantee) -> None:
        """Refuse a pair of spout and committer that gives less than the guarantee that the topology asks for."""
        for committer in self._committers.values():
            for spout in self._spouts_upstream(committer):
                kind, effects = spout.spout.kind, committer.bolt.effects
                pair = given(kind, effects)
                if not is_enough(pair, wanted):
                    raise TopologyError(
                        f"spout {spout.name!r} with committer bolt {committer.name!r} gives {pair}, and the topology "
                        f"is to be {wanted}: "
                        f"{why(spout.name, kind, committer.name, effects)}. "
                        f"To accept it write TopologyBuilder({self._name!r}, "
                        f'guarantee="{acceptable(kind, effects, wanted)}")'
                    )

    def _readers(self) -> list[Draft]:
        return [*self._bolts.values(), *self._committers.values()]

    def _check_presence(self) -> None:
        if not self._spouts:
            raise TopologyError(f"topology {self._name!r} has no spout: add one with set_spout")
        if not self._committers:
            raise TopologyError(
                f"topology {self._name!r} has no committer bolt, so nothing would be kept: add one with "
                f"set_committer_bolt"
            )

    def _check_sources(self, reader: Draft) -> None:
        if not reader.inputs:
            how = "inputs=" if isinstance(reader, FrameDraft) else "a grouping or inputs="
            raise TopologyError(f"{reader.name!r} has no input: name one with {how}")
        for subscription in reader.inputs:
            source = subscription.source
            if source in self._committers:
                self._check_committed(reader, self._committers[source])
            elif source not in self._spouts and source not in self._bolts:
                raise TopologyError(
                    f"{reader.name!r} reads {source!r}, but there is no such "
                    f"component{nearest(source, [*self._spouts, *self._bolts])}"
                )

    def _check_committed(self, reader: Draft, source: CommitterDraft) -> None:
        """Check the readers of a committer's streams: what a committer emits in the commit phase never leaves the
        driver.
        """
        if not source.outputs:
            hint = (
                "; a BatchCommitter has one where it declares `outputs`" if isinstance(reader, CommitterDraft) else ""
            )
            raise TopologyError(f"{reader.name!r} reads {source.name!r}, but a committer bolt has no output{hint}")

    def _check_phases(self) -> None:
        """Check the components downstream of a committer: the tuple engine runs them in the driver, when their
        committers are applied.
        """
        phases = self._phases
        for reader in self._readers():
            phase = phases[reader.name]
            if isinstance(reader, FrameDraft) and phase != PROCESSING:
                way = " -> ".join(self._way_from_committer(reader.name))
                raise TopologyError(
                    f"bolt {reader.name!r} is a function on DataFrames downstream of a committer bolt ({way}): "
                    f"tuples of a committer come in the commit "
                    "phase, in the driver, while Spark runs in the processing phase only; write a tuple bolt, or put "
                    "it upstream of the committer"
                )
            for item in reader.inputs:
                if item.grouping == "direct" and phases.get(item.source, PROCESSING) != phase:
                    raise TopologyError(
                        f"{reader.name!r} reads {item.source!r} with a direct_grouping, and is downstream of a "
                        f"committer bolt: {item.source!r} names "
                        f"tasks of {reader.name!r} in the processing phase, and these run in the commit phase only; "
                        f"use another grouping"
                    )

    def _way_from_committer(self, bolt: str) -> list[str]:
        """Return the names on the path from a committer upstream to this bolt of the commit phase."""
        sources = [item.source for item in self._bolts[bolt].inputs]
        for source in sources:
            if source in self._committers:
                return [source, bolt]
        return [*self._way_from_committer(next(one for one in sources if self._phases.get(one))), bolt]

    def _streams(self, source: str) -> Mapping[str, Stream]:
        """Return the declared streams of a component; those of spouts and DataFrame bolts are known by name only."""
        bolt = self._bolts.get(source) or self._committers.get(source)
        if isinstance(bolt, TupleDraft | CommitterDraft):
            return bolt.outputs
        return {DEFAULT_STREAM: Stream("")}

    def _check_stream(self, reader: Draft, subscription: Subscription) -> None:
        source, name = subscription.source, subscription.stream
        streams = self._streams(source)
        if name not in streams:
            there = f"it declares {', '.join(streams)}" if streams else "it declares no outputs"
            raise UnknownStreamError(
                f"{reader.name!r} reads stream {name!r} of {source!r}, but {there}{nearest(name, list(streams))}"
            )
        if isinstance(reader, FrameDraft):
            self._check_frame_input(reader, subscription, streams[name])
            return
        if (subscription.grouping == "direct") != streams[name].direct:
            raise TopologyError(_direct_mismatch(reader.name, subscription))
        fields = self.fields(reader.name, subscription)
        for field in subscription.fields:
            check_field(f"{reader.name!r}: {subscription.grouping}_grouping({source!r})", field, source, fields)
        if isinstance(reader, CommitterDraft):
            _check_committer_fields(reader, source, fields)
        else:
            _check_bolt_fields(reader, source, fields)

    def _check_frame_input(self, reader: FrameDraft, subscription: Subscription, stream: Stream) -> None:
        """Check the inputs of a DataFrame bolt that reads tuples: it receives the tuples of all tasks together, so its
        other inputs must declare fields too.
        """
        if stream.direct:
            raise TopologyError(_direct_mismatch(reader.name, subscription))
        if any(isinstance(self._bolts.get(other.source), TupleDraft) for other in reader.inputs):
            self.fields(reader.name, subscription)

    def _check_tables(self) -> None:
        owners: dict[object, str] = {}
        for component in self._committers.values():
            table = component.bolt.describe().get("table")
            if table is not None and table in owners:
                raise TopologyError(
                    f"committer bolts {owners[table]!r} and {component.name!r} have one target table, {table!r}: a "
                    f"table belongs to one committer"
                )
            owners[table] = component.name

    def _check_read(self) -> None:
        read = {subscription.source for reader in self._readers() for subscription in reader.inputs}
        sinks = {bolt.name for bolt in self._bolts.values() if isinstance(bolt, TupleDraft) and not bolt.outputs}
        for name in [*self._spouts, *self._bolts]:
            if name not in read | sinks:
                raise TopologyError(f"nothing reads {name!r}: connect it or take it out")

    def _spouts_upstream(self, committer: CommitterDraft) -> Iterable[SpoutComponent]:
        """Return the spouts whose tuples reach a committer, in the order in which they were set."""
        seen: set[str] = set()
        waiting = [committer.name]
        while waiting:
            name = waiting.pop()
            if name in seen:
                continue
            seen.add(name)
            draft = self._bolts.get(name) or self._committers.get(name)
            waiting += [subscription.source for subscription in draft.inputs] if draft else []
        return [spout for spout in self._spouts.values() if spout.name in seen]


def _check_committer_fields(committer: CommitterDraft, source: str, fields: Fields) -> None:
    for name in committer.bolt.required_fields():
        check_field(f"committer bolt {committer.name!r}", name, source, fields)
    try:
        committer.bolt.check_fields(fields)
    except TopologyError as error:
        raise TopologyError(f"committer bolt {committer.name!r}: {error}") from error


def _check_bolt_fields(reader: TupleDraft, source: str, fields: Fields) -> None:
    try:
        reader.bolt.check_fields(fields)
    except TopologyError as error:
        raise TopologyError(f"bolt {reader.name!r} reads {source!r}: {error}") from error


def _direct_mismatch(reader: str, subscription: Subscription) -> str:
    source, stream = subscription.source, subscription.stream
    if subscription.grouping == "direct":
        return (
            f"{reader!r} reads {source!r} with a direct_grouping, but stream {stream!r} is not declared `Stream(…, "
            f"direct=True)`: "
            "who emits on it names no task"
        )
    return (
        f"{reader!r} reads stream {stream!r} of {source!r}, which is declared direct: its readers need a "
        f"direct_grouping"
    )


def _in_order(drafts: Mapping[str, Draft]) -> list[str]:
    """Return the names, each after its inputs; otherwise in the order in which they were set. Raises TopologyError for
    a cycle, showing its path.
    """
    ordered: dict[str, Draft] = {}
    path: list[str] = []
    # A table changes after it was read.
    readers = readers_of({name: one.bolt.reads for name, one in drafts.items() if isinstance(one, CommitterDraft)})

    def visit(draft: Draft) -> None:
        if draft.name in path:
            cycle = path[path.index(draft.name) :]
            kinds = {isinstance(drafts[name], CommitterDraft) for name in cycle}
            kind = "bolts and committer bolts" if len(kinds) > 1 else "committer bolts" if kinds == {True} else "bolts"
            how = "each reads the next, or is applied after it read the table" if readers else "each reads the next"
            raise TopologyError(f"the {kind} form a cycle: {' -> '.join([*cycle, draft.name])} ({how})")
        if draft.name in ordered:
            return
        path.append(draft.name)
        for source in (*(one.source for one in draft.inputs), *readers.get(draft.name, ())):
            if source in drafts:
                visit(drafts[source])
        path.pop()
        ordered[draft.name] = draft

    for draft in drafts.values():
        visit(draft)
    return list(ordered)


def check_field(who: str, name: str, source: str, fields: Fields) -> None:
    """Raise TopologyError if `source` has no field of that name."""
    if fields.get(name) is None:
        raise TopologyError(
            f"{who} names field {name!r}, but {source!r} has {', '.join(fields.names)}{nearest(name, fields.names)}"
        )


def nearest(name: str, known: Sequence[str]) -> str:
    """Return a hint with the most similar name, or an empty text."""
    close = difflib.get_close_matches(name, known, n=1)
    return f"; did you mean {close[0]!r}?" if close else ""
