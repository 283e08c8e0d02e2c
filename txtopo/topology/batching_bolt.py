"""A bolt that gathers tuples in groups and processes each group at once, as pystorm's BatchingBolt does."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Hashable, Mapping, Sequence
from typing import Any, ClassVar

from txtopo.topology.streams import DEFAULT_STREAM, Tuple
from txtopo.topology.tuple_bolts import OutputCollector, RichBolt, TopologyContext

SYSTEM = "__system"
TICK = "__tick"


def is_tick(tup: Tuple) -> bool:
    """Is it the clock's tuple, and none of a component?"""
    return tup.component == SYSTEM and tup.stream == TICK


class BatchingBolt(RichBolt):
    """Gathers tuples by `group_key` and hands each group to `process_batch` (pystorm's BatchingBolt and
    TicklessBatchingBolt).

    In a batch of txtopo the groups are processed when all its tuples have come: no clock decides what is processed
    together, so every attempt
    does the same. Where tuples are fed one by one (`txtopo.testing.FeederTopology`) tick tuples do it, as in Storm: set
    `config = {"topology.tick.tuple.freq.secs": 5}`; it happens on the first tick after `ticks_between_batches` others.
    """

    ticks_between_batches: ClassVar[int] = 1
    """Ticks that are let pass before the one that processes the groups."""
    auto_anchor: ClassVar[bool] = True
    """Anchor what `emit` emits on all tuples of the group being processed."""
    auto_ack: ClassVar[bool] = True
    """Ack the tuples of a group when `process_batch` returns."""
    auto_fail: ClassVar[bool] = True
    """Fail the tuples of a group whose `process_batch` raises; the exception goes on."""

    def prepare(self, config: Mapping[str, Any], context: TopologyContext, collector: OutputCollector) -> None:
        """Keeps what it is given, as `self.settings`, `self.context` and `self.collector`. Call it when you override
        it.
        """
        self.settings = config
        self.context = context
        self.collector = collector
        self._groups: dict[Hashable, list[Tuple]] = {}
        self._group: Sequence[Tuple] = ()
        self._ticks = 0

    def group_key(self, tup: Tuple) -> Hashable:
        """Tuples with equal keys are processed together; by default all of them."""
        return None

    @abstractmethod
    def process_batch(self, key: Hashable, tuples: Sequence[Tuple]) -> None:
        """Process one group, in the order in which its tuples came."""

    def emit(self, values: Sequence[Any], stream: str = DEFAULT_STREAM, anchors: Sequence[Tuple] | None = None) -> None:
        """Emit one tuple; without `anchors` on all tuples of the group, if `auto_anchor` says so."""
        if anchors is None:
            anchors = self._group if self.auto_anchor else ()
        self.collector.emit(values, stream=stream, anchors=anchors)

    def execute(self, tup: Tuple) -> None:
        """Takes the tuple into its group; a tick is counted and acked at once."""
        if is_tick(tup):
            self.collector.ack(tup)
            self.process_tick()
        else:
            self._groups.setdefault(self.group_key(tup), []).append(tup)

    def process_tick(self) -> None:
        """Counts ticks and processes the groups when more than `ticks_between_batches` have come; the count goes on
        where there is nothing to do.
        """
        self._ticks += 1
        if self._ticks > self.ticks_between_batches and self._groups:
            self.process_batches()
            self._ticks = 0

    def process_batches(self) -> None:
        """Processes all groups now, in the order of their first tuples. Those behind a group that raises are kept."""
        while self._groups:
            key = next(iter(self._groups))
            self._group = self._groups.pop(key)
            try:
                self.process_batch(key, self._group)
            except BaseException:
                # While it is being handled, so that it is known why they failed.
                for tup in self._group if self.auto_fail else ():
                    self.collector.fail(tup)
                raise
            else:
                for tup in self._group if self.auto_ack else ():
                    self.collector.ack(tup)
            finally:
                self._group = ()

    def finish_batch(self) -> None:
        """The batch is complete: what is left is processed now, also behind a group that raises: all that fail are to
        be known. Then raises the first error.
        """
        first: Exception | None = None
        while self._groups:
            try:
                self.process_batches()
            except Exception as error:
                first = first or error
        if first is not None:
            raise first
