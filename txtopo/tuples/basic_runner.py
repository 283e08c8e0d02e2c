"""Runs a BasicBolt, BatchBolt or BatchCommitter over the tuples of one attempt: the loop that every tuple passes
through.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any

import numpy as np

from txtopo.core.fields import parse_fields
from txtopo.errors import unreachable
from txtopo.topology.streams import Origin, Tuple
from txtopo.topology.tuple_bolts import BasicBolt, returned
from txtopo.tuples.bolt_runner import BoltRunner
from txtopo.tuples.buffer import TRACKED_ROWS, Buffer
from txtopo.tuples.collectors import PlainCollector, executed_roots
from txtopo.tuples.columns import Columns
from txtopo.tuples.roots import Roots
from txtopo.tuples.task_context import CAUGHT, Arrived

Rows = Iterator[tuple[int, Any]]
"""Number and values of each remaining tuple."""


class BasicRunner(BoltRunner):
    """BasicBolt, BatchBolt and BatchCommitter: tuples emitted while an input tuple is executed are anchored on it, and
    it is acked when `execute` returns.
    """

    def __init__(self, *arguments: Any) -> None:
        super().__init__(*arguments)
        self.collector = PlainCollector(self.buffers)
        self._basic = isinstance(self._template, BasicBolt)
        streams = list(self.buffers.by_stream.values())
        # A bolt without streams gets one that it cannot name, so that the loop needs no special case.
        self._first = streams[0] if streams else Buffer(Columns("", "", parse_fields("nothing int")), None)
        self._others = streams[1:]
        self._row = -1

    def begin(self, config: Mapping[str, Any], context: Any) -> None:
        if isinstance(self.bolt, BasicBolt):
            self.bolt.prepare(config, context)
        else:
            self.bolt.prepare(config, context, self.collector, self.task_context.run.attempt)

    def take(self, arrived: Arrived) -> None:
        rows = self.rows(arrived)
        if not self.task_context.tracked:
            self._through(rows, arrived, self._execute_plain)
            self.guard(self.buffers.flush_full)
            return
        roots = arrived.roots if arrived.roots is not None else unreachable("tracked tuples came without their roots")
        failed: list[int] = []
        done, more = 0, True
        while more and not self.stopped:
            more, failures = self._through(rows, arrived, self._execute_tracked)
            failed += failures
            done = self._flush_tracked(roots, done)
        arrived.ack(self.task_context)
        if self.task_context.fold is not None:
            for row in failed:
                self.task_context.fold.fail(np.array(arrived.roots_of(row), dtype=np.int64))

    def _through(
        self, rows: Rows, arrived: Arrived, execute_all: Callable[[Rows, Origin], bool]
    ) -> tuple[bool, list[int]]:
        """Execute tuples until many rows wait to be sent; returns (True if there are more tuples, numbers of failed
        tuples).
        """
        failed = []
        more = False
        # One `try` around many tuples: after a failure `rows` continues with the next one.
        while not self.stopped:
            try:
                more = execute_all(rows, arrived.origin)
                break
            except CAUGHT as error:
                failed.append(self._row)
                self.failed_on(error, arrived, self._row)
        return more, failed

    def _flush_tracked(self, roots: Roots, done: int) -> int:
        """Send what the tuples from number `done` on have emitted; returns the number of the next tuple."""
        # Each stream notes the same number of tuples; the first stream exists even if the bolt declares none.
        executed = len(self._first.ends)
        mine = roots.slice(done, executed)
        self.guard(lambda: self.buffers.flush_all(lambda buffer: executed_roots(buffer.ends, mine)))
        self._first.clear()
        return done + executed

    def _execute_plain(self, rows: Rows, origin: Origin) -> bool:
        """Execute tuples until one raises; `self._row` is then its number. Returns False: there are no more. Each name
        lookup and each call in this method costs time for every tuple.
        """
        execute, new, row = self.bolt.execute, object.__new__, -1
        try:
            if self._basic:
                collector = self.collector
                for row, values in rows:
                    # Equal to Tuple(values, origin, row), but without a call.
                    tup = new(Tuple)
                    tup.values = values
                    tup._origin = origin
                    tup._row = row
                    if execute(tup, collector) is not None:
                        returned("execute")
            else:
                for row, values in rows:
                    tup = new(Tuple)
                    tup.values = values
                    tup._origin = origin
                    tup._row = row
                    if execute(tup) is not None:
                        returned("execute")
        finally:
            self._row = row
        return False

    def _execute_tracked(self, rows: Rows, origin: Origin) -> bool:
        """Do the same, and note after each tuple, also one that raises, how much had been emitted. Returns True if that
        must be sent first.
        """
        execute, new, row, basic = self.bolt.execute, object.__new__, -1, self._basic
        first, others = self._first, self._others
        emitted, note, collector = first.first, first.ends.append, self.collector
        try:
            for row, values in rows:
                tup = new(Tuple)
                tup.values = values
                tup._origin = origin
                tup._row = row
                if basic:
                    if execute(tup, collector) is not None:
                        returned("execute")
                else:
                    if execute(tup) is not None:
                        returned("execute")
                note(count := len(emitted))
                if others:
                    for other in others:
                        other.ends.append(len(other.first))
                        count += len(other.first)
                # Only between two tuples: everything that one of them emits is anchored on it together.
                if count >= TRACKED_ROWS:
                    return True
        except CAUGHT:
            for buffer in (first, *others):
                buffer.ends.append(len(buffer.first))
            raise
        finally:
            self._row = row
        return False

    def finish(self) -> None:
        if not isinstance(self.bolt, BasicBolt):
            self.collector.finishing = True
            self.guard(self.end_batch)
