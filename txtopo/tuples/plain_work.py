"""Run a BasicBolt, BatchBolt or BatchCommitter over the tuples of one attempt: the loop that every word goes through."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np

from txtopo.core.fields import parse_fields
from txtopo.topology.streams import Origin, Tuple
from txtopo.topology.tuple_bolts import BasicBolt
from txtopo.tuples.buffering import Buffer
from txtopo.tuples.collecting import PlainCollector, executed_roots
from txtopo.tuples.columns import Columns
from txtopo.tuples.setting import CAUGHT, Arrived
from txtopo.tuples.work import BoltWork


class PlainWork(BoltWork):
    """BasicBolt, BatchBolt and BatchCommitter: what is emitted while a tuple is executed is anchored on it, and it is acked when that returns."""

    def __init__(self, *arguments: Any) -> None:
        super().__init__(*arguments)
        self.collector = PlainCollector(self.buffers)
        self._basic = isinstance(self._template, BasicBolt)
        streams = list(self.buffers.by_stream.values())
        # A bolt without streams is given one that it cannot name: the loop then needs no case of its own.
        self._first = streams[0] if streams else Buffer(Columns("", "", parse_fields("nothing int")), None)
        self._others = streams[1:]
        self._row = -1

    def begin(self, config: Mapping[str, Any], context: Any) -> None:
        if isinstance(self.bolt, BasicBolt):
            self.bolt.prepare(config, context)
        else:
            self.bolt.prepare(config, context, self.collector, self.setting.run.attempt)

    def take(self, arrived: Arrived) -> None:
        tracked = self.setting.tracked
        execute_all = self._execute_tracked if tracked else self._execute_plain
        rows = self.rows(arrived)
        failed = []
        # One `try` around many tuples: after a failure `rows` goes on with the next one.
        while not self.stopped:
            try:
                execute_all(rows, arrived.origin)
                break
            except CAUGHT as error:
                failed.append(self._row)
                self.failed_on(error, arrived, self._row)
        if not tracked:
            self.guard(self.buffers.flush_full)
            return
        self._ack(arrived, failed)
        roots = arrived.roots
        self.guard(
            lambda: self.buffers.flush_all(lambda buffer: executed_roots(buffer.anchors, len(buffer.first), roots))
        )
        self._first.clear()

    def _execute_plain(self, rows: Iterator[tuple[int, Any]], origin: Origin) -> None:
        """Execute tuples until one raises; `self._row` is then its number. Each name looked up and each call in here is paid for every tuple."""
        execute, new, row = self.bolt.execute, object.__new__, -1
        try:
            if self._basic:
                collector = self.collector
                for row, values in rows:
                    # As Tuple(values, origin, row), without a call in between.
                    tup = new(Tuple)
                    tup.values = values
                    tup._origin = origin
                    tup._row = row
                    if execute(tup, collector) is not None:
                        self._returned()
            else:
                for row, values in rows:
                    tup = new(Tuple)
                    tup.values = values
                    tup._origin = origin
                    tup._row = row
                    if execute(tup) is not None:
                        self._returned()
        finally:
            self._row = row

    def _execute_tracked(self, rows: Iterator[tuple[int, Any]], origin: Origin) -> None:
        """The same, and after each tuple, also one that raises, it is noted how much had been emitted."""
        execute, new, row, basic = self.bolt.execute, object.__new__, -1, self._basic
        first, others = self._first, self._others
        emitted, mark, collector = first.first, first.anchors.append, self.collector
        try:
            for row, values in rows:
                tup = new(Tuple)
                tup.values = values
                tup._origin = origin
                tup._row = row
                if basic:
                    if execute(tup, collector) is not None:
                        self._returned()
                else:
                    if execute(tup) is not None:
                        self._returned()
                mark(len(emitted))
                for other in others:
                    other.anchors.append(len(other.first))
        except CAUGHT:
            for buffer in (first, *others):
                buffer.anchors.append(len(buffer.first))
            raise
        finally:
            self._row = row

    def _returned(self) -> None:
        """What `execute` returns would be gone without a word."""
        raise TypeError("execute returned a value, which goes nowhere: emit it with the collector")

    def _ack(self, arrived: Arrived, failed: list[int]) -> None:
        fold = self.setting.fold
        if fold is None or arrived.ids is None:
            return
        fold.add_tuples(arrived.ids, arrived.roots)
        for row in failed:
            fold.fail(np.array(arrived.roots_of(self.setting, row), dtype=np.int64))

    def finish(self) -> None:
        if not isinstance(self.bolt, BasicBolt):
            self.collector.finishing = True
            self.guard(self.bolt.finish_batch)
