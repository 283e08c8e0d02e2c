"""Components of a topology that is being declared, and the declarer of a bolt's groupings (Storm's InputDeclarer)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from txtopo.core.fields import Fields
from txtopo.errors import TopologyError, TopologyTypeError
from txtopo.topology.check_component import check_code_runs, check_grouping
from txtopo.topology.committer_bolt import CommitterBolt
from txtopo.topology.components import Subscription
from txtopo.topology.spark_types import FrameFunction, RowsPromise
from txtopo.topology.streams import DEFAULT_STREAM, Stream
from txtopo.topology.tuple_bolts import CustomStreamGrouping, TupleBolt


@dataclass(slots=True, kw_only=True)
class FrameDraft:
    """A DataFrame bolt being declared."""

    name: str
    function: FrameFunction
    fields: Fields | None
    rows: RowsPromise
    inputs: list[Subscription] = field(default_factory=list)


@dataclass(slots=True, kw_only=True)
class TupleDraft:
    """A tuple bolt being declared."""

    name: str
    bolt: TupleBolt
    outputs: Mapping[str, Stream]
    tasks: int
    inputs: list[Subscription] = field(default_factory=list)


@dataclass(slots=True, kw_only=True)
class CommitterDraft:
    """A committer bolt being declared."""

    name: str
    bolt: CommitterBolt
    outputs: Mapping[str, Stream]
    tasks: int
    inputs: list[Subscription] = field(default_factory=list)

    @property
    def takes_tuples(self) -> bool:
        """True if tuples are delivered to it. False for a counting committer, whose executor half is an aggregation
        with one input.
        """
        return self.bolt.takes_tuples


Draft = FrameDraft | TupleDraft | CommitterDraft


class BoltDeclarer:
    """Declares which streams a bolt reads and how their tuples are spread over its tasks; returned by `set_bolt` and
    `set_committer_bolt`.

    In every method, `source` is the name of a component and `stream` one of its declared streams. Every method returns
    the declarer itself and raises TopologyError for a grouping that is not possible, TopologyTypeError for an argument
    of the wrong type. docs/groupings.md describes the groupings.
    """

    def __init__(self, draft: Draft) -> None:
        self._draft = draft

    def fields_grouping(self, source: str, fields: str | Sequence[str], stream: str = DEFAULT_STREAM) -> BoltDeclarer:
        """Send tuples with equal values in `fields` to the same task. The choice depends on the values alone: it is the
        same in every process and run.
        """
        named = self._names("fields", source, fields)
        if not named:
            raise TopologyError(f"{self._draft.name}: fields_grouping({source!r}) names no fields")
        return self._group(source, "fields", stream, named)

    def shuffle_grouping(self, source: str, stream: str = DEFAULT_STREAM) -> BoltDeclarer:
        """Spread tuples evenly over the tasks."""
        return self._group(source, "shuffle", stream)

    def none_grouping(self, source: str, stream: str = DEFAULT_STREAM) -> BoltDeclarer:
        """Spread tuples in any way: the same as shuffle."""
        return self._group(source, "none", stream)

    def local_or_shuffle_grouping(self, source: str, stream: str = DEFAULT_STREAM) -> BoltDeclarer:
        """Send all tuples of the source's task n to task n, if both have the same number of tasks; otherwise as
        shuffle.
        """
        return self._group(source, "local_or_shuffle", stream)

    def local_first_grouping(self, source: str, stream: str = DEFAULT_STREAM) -> BoltDeclarer:
        """JStorm's name for `local_or_shuffle_grouping`."""
        return self._group(source, "local_first", stream)

    def load_aware_grouping(self, source: str, stream: str = DEFAULT_STREAM) -> BoltDeclarer:
        """Spread tuples evenly, as shuffle: tasks of a batch have no queues whose load could differ."""
        return self._group(source, "load_aware", stream)

    def global_grouping(self, source: str, stream: str = DEFAULT_STREAM) -> BoltDeclarer:
        """Send all tuples to one task, the one with the lowest id."""
        return self._group(source, "global", stream)

    def all_grouping(self, source: str, stream: str = DEFAULT_STREAM) -> BoltDeclarer:
        """Send every tuple to every task."""
        return self._group(source, "all", stream)

    def direct_grouping(self, source: str, stream: str = DEFAULT_STREAM) -> BoltDeclarer:
        """Let the emitter choose the task with `emit_direct`. The stream must be declared with `Stream(…,
        direct=True)`.
        """
        return self._group(source, "direct", stream)

    def partial_key_grouping(
        self, source: str, fields: str | Sequence[str] = (), stream: str = DEFAULT_STREAM
    ) -> BoltDeclarer:
        """Send each tuple to the less used of the two tasks of its key. Without `fields`, the first value is the key,
        as in Storm.
        """
        return self._group(source, "partial_key", stream, self._names("partial_key", source, fields))

    def custom_grouping(
        self, source: str, grouping: CustomStreamGrouping, stream: str = DEFAULT_STREAM
    ) -> BoltDeclarer:
        """Let `grouping` choose the tasks of each tuple."""
        return self._group(source, "custom", stream, custom=grouping)

    def _group(
        self,
        source: str,
        grouping: str,
        stream: str,
        fields: tuple[str, ...] = (),
        custom: CustomStreamGrouping | None = None,
    ) -> BoltDeclarer:
        draft = self._draft
        if isinstance(draft, FrameDraft):
            raise TopologyError(
                f"bolt {draft.name!r} is a function on whole DataFrames and takes no {grouping}_grouping: name its "
                f"inputs with set_bolt(…, inputs={source!r})"
            )
        if isinstance(draft, CommitterDraft) and not draft.takes_tuples:
            check_grouping(draft.name, grouping)
            _refuse_second_input(draft)
        if not isinstance(source, str) or not isinstance(stream, str):
            raise TopologyTypeError(
                f"{draft.name!r}: {grouping}_grouping({source!r}, stream={stream!r}) needs the name of a component and "
                f"of a stream"
            )
        if grouping == "custom" and not isinstance(custom, CustomStreamGrouping):
            hint = "; use an instance, not the class" if isinstance(custom, type) else ""
            raise TopologyTypeError(
                f"{draft.name!r}: custom_grouping({source!r}, {custom!r}) is not a CustomStreamGrouping{hint}"
            )
        if custom is not None:
            check_code_runs(f"{draft.name!r}: custom_grouping({source!r})", custom)
        if any((other.source, other.stream) == (source, stream) for other in draft.inputs):
            which = "" if stream == DEFAULT_STREAM else f" on stream {stream!r}"
            raise TopologyError(f"{draft.name!r} reads {source!r}{which} twice")
        draft.inputs.append(Subscription(source=source, grouping=grouping, fields=fields, stream=stream, custom=custom))
        return self

    def _names(self, grouping: str, source: str, fields: object) -> tuple[str, ...]:
        named = (fields,) if isinstance(fields, str) else fields
        if not isinstance(named, Sequence) or not all(isinstance(name, str) for name in named):
            raise TopologyTypeError(
                f"{self._draft.name}: {grouping}_grouping({source!r}, {fields!r}) needs names of fields"
            )
        return tuple(named)


def _refuse_second_input(draft: CommitterDraft) -> None:
    if draft.inputs:
        first = draft.inputs[0].source
        raise TopologyError(
            f"committer bolt {draft.name!r} reads {first!r} already; unite several inputs in a bolt before it"
        )
