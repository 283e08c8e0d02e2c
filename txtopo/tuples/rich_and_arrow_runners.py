"""Runs a RichBolt, which acks explicitly, or an ArrowBolt, which gets record batches, over the tuples of one
attempt.
"""

from __future__ import annotations

import itertools
import sys
import traceback
from collections.abc import Mapping
from typing import Any

import numpy as np

from txtopo.core.values import Failure, cause_of
from txtopo.topology.streams import Tuple
from txtopo.topology.tuple_bolts import ArrowBolt, RichBolt, returned
from txtopo.tuples.basic_runner import BasicRunner
from txtopo.tuples.bolt_runner import BoltRunner
from txtopo.tuples.buffer import Output
from txtopo.tuples.collectors import (
    FAILED,
    UNANSWERED,
    ArrowCollector,
    RichCollector,
    anchored_roots,
    id_of,
    roots_of,
)
from txtopo.tuples.task_context import CAUGHT, Arrived, TaskContext, shown_tuple
from txtopo.tuples.user_errors import user_frame

_numbers = itertools.count()
"""Numbers of origins: a tuple of another attempt or task of this process must not count for this one."""


class RichRunner(BoltRunner):
    """RichBolt: it anchors, acks and fails explicitly. If it has neither acked nor failed a tuple at the end of its
    batch, the attempt fails: nothing would ever process that tuple.
    """

    def __init__(self, *arguments: Any) -> None:
        super().__init__(*arguments)
        self.collector = RichCollector(
            self.buffers, self._fail, lambda tup: self._noted(tup, "acked twice"), counting=self.task_context.counting
        )
        self._open: list[Arrived] = []
        """Messages with tuples that were neither acked nor failed when `take` returned."""
        self._told: list[BaseException] = []
        """Errors that were noted when the bolt failed a tuple because of them."""

    def begin(self, config: Mapping[str, Any], context: Any) -> None:
        bolt: RichBolt = self.bolt
        bolt.prepare(config, context, self.collector)

    def take(self, arrived: Arrived) -> None:
        origin = arrived.origin
        if self.task_context.tracked and arrived.roots is not None:
            origin.roots = arrived.roots.rows
            origin.ids = arrived.ids.tolist() if self.task_context.fold is not None else None
        answers = bytearray(arrived.batch.num_rows)
        if self.task_context.wants_acks:
            origin.number = next(_numbers)
            self.collector.answers[origin.number] = answers
        execute = self.bolt.execute
        rows = self.rows(arrived)
        while not self.stopped:
            row = 0
            try:
                for row, values in rows:
                    if execute(Tuple(values, origin, row)) is not None:
                        returned("execute")
                break
            except CAUGHT as error:
                answers[row] = FAILED
                self.failed_on(error, arrived, row)
        if origin.number is not None and answers.find(UNANSWERED) >= 0:
            self._open.append(arrived)
        self._settle()

    def finish(self) -> None:
        self.guard(self._end)
        self._settle()
        if not self.stopped:
            self._check_answers()

    def _check_answers(self) -> None:
        """In Storm a tuple that is never acked times out, and its spout tuple is emitted again. Here the attempt fails
        at its end.
        """
        left = [
            (arrived, row)
            for arrived in self._open
            for row, answer in enumerate(self.collector.answers[arrived.origin.number])
            if answer == UNANSWERED
        ]
        name = type(self._template).__name__
        for arrived, row in left:
            if not self.task_context.has_room:
                break
            message = f"{name} neither acked nor failed the tuple {arrived.shown(row)}"
            more = f"; so it did with {len(left)} tuples, and its batch is over" if len(left) > 1 else ""
            self.task_context.note(
                Failure(kind="data", message=f"{message}{more}", component=self.task_context.node.name),
                arrived.roots_of(row),
            )

    def flush(self) -> None:
        self.guard(lambda: self.buffers.flush_all(anchored_roots))

    def _end(self) -> None:
        try:
            self.end_batch()
        except CAUGHT as error:
            if not any(error is told for told in self._told):
                raise
            self.stop()

    def _settle(self) -> None:
        """Send the acks to the ackers; also send emitted rows if their roots must be known per batch."""
        acked, self.collector.acked = self.collector.acked, []
        fold = self.task_context.fold
        if fold is not None and acked:
            pairs = [(root, id_of(tup)) for tup in acked for root in roots_of(tup)]
            table = np.array(pairs, dtype=np.int64).reshape(-1, 2)
            fold.add(table[:, 0], table[:, 1])
        if not self.stopped and not self.task_context.tracked:
            self.guard(self.buffers.flush_full)

    def _fail(self, tup: Tuple) -> None:
        """Called by the bolt: the tuple failed, and the bolt continues."""
        roots = roots_of(tup)
        if self.task_context.fold is not None:
            self.task_context.fold.fail(np.array(roots, dtype=np.int64))
        if not self.task_context.has_room:
            return  # A bolt may fail a million tuples: only noted failures get a message.
        error = sys.exception()
        if error is not None:
            # `except …: collector.fail(tup)`: the error that is being handled is the reason.
            self.task_context.fail(error, on=shown_tuple(tup), roots=roots)
            self._told.append(error)
            return
        self._noted(tup, "failed")

    def _noted(self, tup: Tuple, what: str) -> None:
        """Note an error in how the bolt treated a tuple, with the line that did it."""
        trace = "".join(traceback.format_stack())
        where = user_frame(trace)
        message = (
            f"{type(self._template).__name__} {'failed the tuple' if what == 'failed' else what + ':'} "
            f"{shown_tuple(tup)}"
        )
        self.task_context.note(
            Failure(
                kind="data",
                message=f"{where}: {message}" if where else message,
                component=self.task_context.node.name,
                detail=trace,
                cause=cause_of(self.task_context.node.name, type(self._template).__name__, where),
            ),
            roots_of(tup),
        )


class ArrowRunner(BoltRunner):
    """ArrowBolt: whole record batches. Traced runs give it one row at a time, so that the row that fails is known."""

    def __init__(self, task_context: TaskContext, bolt: Any, config: Any, streams: Any, output: Output) -> None:
        super().__init__(task_context, bolt, config, streams, output)
        self.collector = ArrowCollector(self.buffers, output)

    def begin(self, config: Mapping[str, Any], context: Any) -> None:
        bolt: ArrowBolt = self.bolt
        bolt.prepare(config, context)

    def take(self, arrived: Arrived) -> None:
        rows = arrived.batch.num_rows
        step = 1 if self.task_context.run.traced else rows
        arrived.ack(self.task_context)
        for first in range(0, rows, step):
            if self.stopped:
                return
            self._execute(arrived, first, step)

    def _execute(self, arrived: Arrived, first: int, rows: int) -> None:
        collector = self.collector
        collector.rows = rows
        # Tuples directly from a source have roots that nothing reads without tracking: they stay packed.
        roots = arrived.roots if self.task_context.tracked else None
        collector.roots = roots.slice(first, rows) if roots is not None else None
        try:
            if self.bolt.execute(arrived.batch.slice(first, rows), collector) is not None:
                returned("execute")
        except CAUGHT as error:
            if rows == 1:
                self.failed_on(error, arrived, first)
            else:
                self.task_context.fail(error)
                self.stop()
        collector.rows, collector.roots = 0, None

    def finish(self) -> None:
        self.guard(lambda: self.end_batch(self.collector))


def runner_of(bolt: Any) -> type[BoltRunner]:
    """Return the class that runs a bolt."""
    if isinstance(bolt, ArrowBolt):
        return ArrowRunner
    return RichRunner if isinstance(bolt, RichBolt) else BasicRunner
