"""A bolt that collects tuples in groups and processes each group as a whole, like pystorm's BatchingBolt."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Hashable, Mapping, Sequence
from typing import Any, ClassVar

from txtopo.topology.streams import DEFAULT_STREAM, Tuple
from txtopo.topology.tuple_bolts import OutputCollector, RichBolt, TopologyContext

SYSTEM = "__system"
TICK = "__tick"


def is_tick(tup: Tuple) -> bool:
    """True if `tup` is a tick of the clock, not a tuple of a component."""
    return tup.component == SYSTEM and tup.stream == TICK


class BatchingBolt(RichBolt):
    """Collects tuples by `group_key` and passes each group to `process_batch` (pystorm's BatchingBolt and
    TicklessBatchingBolt).

    In a txtopo batch, the groups are processed when all tuples of the batch have arrived. They do not depend on a
    clock, so every attempt does the same. If tuples are fed one by one (`txtopo.testing.FeederTopology`), tick tuples
    trigger the processing, as in Storm: set `config = {"topology.tick.tuple.freq.secs": 5}`; groups are processed on
    the first tick after `ticks_between_batches` others.
    """

    ticks_between_batches: ClassVar[int] = 1
    """Number of ticks to wait before the tick that processes the groups."""
    auto_anchor: ClassVar[bool] = True
    """True: `emit` anchors its tuples on all tuples of the group being processed."""
    auto_ack: ClassVar[bool] = True
    """True: the tuples of a group are acked when `process_batch` returns."""
    auto_fail: ClassVar[bool] = True
    """True: the tuples of a group are failed if `process_batch` raises; the exception is raised again."""

    def prepare(self, config: Mapping[str, Any], context: TopologyContext, collector: OutputCollector) -> None:
        """Stores its arguments as `self.settings`, `self.context` and `self.collector`. An override must call it."""
        self.settings = config
        self.context = context
        self.collector = collector
        self._groups: dict[Hashable, list[Tuple]] = {}
        self._group: Sequence[Tuple] = ()
        self._ticks = 0

    def group_key(self, tup: Tuple) -> Hashable:
        """Return the key of a tuple's group. By default, all tuples are in one group."""
        return None

    @abstractmethod
    def process_batch(self, key: Hashable, tuples: Sequence[Tuple]) -> None:
        """Process one group; its tuples are in the order of their arrival."""

    def emit(self, values: Sequence[Any], stream: str = DEFAULT_STREAM, anchors: Sequence[Tuple] | None = None) -> None:
        """Emit one tuple. Without `anchors`, it is anchored on all tuples of the group if `auto_anchor` is True."""
        if anchors is None:
            anchors = self._group if self.auto_anchor else ()
        self.collector.emit(values, stream=stream, anchors=anchors)

    def execute(self, tup: Tuple) -> None:
        """Adds the tuple to its group; a tick is counted and acked immediately."""
        if is_tick(tup):
            self.collector.ack(tup)
            self.process_tick()
        else:
            self._groups.setdefault(self.group_key(tup), []).append(tup)

    def process_tick(self) -> None:
        """Counts ticks, and processes the groups after more than `ticks_between_batches` ticks; counting continues
        while there is nothing to process.
        """
        self._ticks += 1
        if self._ticks > self.ticks_between_batches and self._groups:
            self.process_batches()
            self._ticks = 0

    def process_batches(self) -> None:
        """Processes all groups now, in the order of their first tuples. If a group raises, later groups are kept."""
        while self._groups:
            key = next(iter(self._groups))
            self._group = self._groups.pop(key)
            try:
                self.process_batch(key, self._group)
            except BaseException:
                # The tuples are being processed at this moment, so that the reason of their failure is known.
                for tup in self._group if self.auto_fail else ():
                    self.collector.fail(tup)
                raise
            else:
                for tup in self._group if self.auto_ack else ():
                    self.collector.ack(tup)
            finally:
                self._group = ()

    def finish_batch(self) -> None:
        """Called when the batch is complete: processes the remaining groups, also after a group that raises, so that
        all failures are known. Then raises the first error.
        """
        first: Exception | None = None
        while self._groups:
            try:
                self.process_batches()
            except Exception as error:
                first = first or error
        if first is not None:
            raise first
