"""Run a bolt's own code over the tuples of one attempt: one class for each kind of bolt, and the executor half of a BatchCommitter."""

from __future__ import annotations

import copy
import traceback
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import numpy as np
import pyarrow as pa

from txtopo.core.fields import parse_fields
from txtopo.core.values import Failure
from txtopo.topology.streams import Origin, Stream, Tuple
from txtopo.topology.tuple_bolts import ArrowBolt, BasicBolt, RichBolt, TupleBolt
from txtopo.tuples.collecting import (
    ArrowCollector,
    Buffer,
    Buffers,
    PlainCollector,
    RichCollector,
    anchored_roots,
    executed_roots,
    id_of,
    roots_of,
)
from txtopo.tuples.columns import Columns
from txtopo.tuples.frames import user_frame
from txtopo.tuples.setting import CAUGHT, Arrived, Setting, shown_tuple

Send = Callable[[str, pa.RecordBatch, Any], None]


class Work(ABC):
    """What a task does with its tuples. Methods note failures of user code in the setting and raise nothing of it."""

    stopped = False
    """The task has failed for good in this attempt: it is given nothing more, and emits nothing more."""

    def prepare(self) -> None:  # noqa: B027
        """Before the first tuple."""

    @abstractmethod
    def take(self, arrived: Arrived) -> None:
        """Some tuples of one edge and source task."""

    def finish(self) -> None:  # noqa: B027
        """All tuples have come."""

    def flush(self) -> None:  # noqa: B027
        """Send everything that was emitted."""

    def cleanup(self) -> None:  # noqa: B027
        """The end of the task, also after failures."""


class BoltWork(Work):
    """What all bolts have in common."""

    def __init__(
        self, setting: Setting, bolt: Any, config: Mapping[str, Any], streams: Mapping[str, Stream], send: Send,
        direct: Callable[[str], frozenset[int]],
    ) -> None:  # fmt: skip
        """`bolt` is the template; `direct` tells the tasks that read a stream with a direct grouping."""
        self.setting = setting
        self.bolt: Any = None
        self._template = bolt
        self._config = config
        # Traced runs are there to name the tuple that fails, so each row is checked while its tuple is executed.
        self.buffers = Buffers(
            setting.node.name, streams, send, direct, tracked=setting.tracked, eager=setting.run.traced
        )

    def prepare(self) -> None:
        """A fresh copy of the template: nothing of another attempt or task is in it."""
        context = self.setting.context(self._config)

        def begin() -> None:
            self.bolt = copy.deepcopy(self._template)
            self.begin(context.config, context)

        self.guard(begin)
        # What `prepare` emits belongs to no tuple.
        self.guard(self.buffers.flush_all)

    @abstractmethod
    def begin(self, config: Mapping[str, Any], context: Any) -> None:
        """Call the bolt's `prepare`."""

    def cleanup(self) -> None:
        """After errors too; an error of its own is a failure like any other."""
        bolt, self.bolt = self.bolt, None
        if isinstance(bolt, TupleBolt):
            self.guard(bolt.cleanup)

    def flush(self) -> None:
        self.guard(self.buffers.flush_all)

    def guard(self, call: Callable[[], None]) -> None:
        """Call user code that works on no single tuple."""
        if self.stopped:
            return
        try:
            call()
        except CAUGHT as error:
            self.setting.fail(error)
            self.stop()

    def failed_on(self, error: BaseException, arrived: Arrived, row: int) -> None:
        """User code raised over a tuple: note it, and stop unless more failures are wanted."""
        setting = self.setting
        setting.fail(error, on=arrived.shown(row), roots=arrived.roots_of(setting, row))
        if len(setting.failures) >= setting.failures_max:
            self.stop()

    def stop(self) -> None:
        self.stopped = True
        self.buffers.drop()


class PlainWork(BoltWork):
    """BasicBolt, BatchBolt and BatchCommitter: what is emitted while a tuple is executed is anchored on it, and it is acked when that returns."""

    def __init__(self, *arguments: Any) -> None:
        super().__init__(*arguments)
        self.collector = PlainCollector(self.buffers)
        self._basic = isinstance(self._template, BasicBolt)
        self._nowhere = Buffer(Columns("", "", parse_fields("nothing int")), None)
        """The first stream of a bolt that has none."""
        self._row = -1

    def begin(self, config: Mapping[str, Any], context: Any) -> None:
        if isinstance(self.bolt, BasicBolt):
            self.bolt.prepare(config, context)
        else:
            self.bolt.prepare(config, context, self.collector, self.setting.run.attempt)

    def take(self, arrived: Arrived) -> None:
        tracked = self.setting.tracked
        execute_all = self._execute_tracked if tracked else self._execute_plain
        rows = enumerate(arrived.rows())
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
                    execute(tup, collector)
            else:
                for row, values in rows:
                    tup = new(Tuple)
                    tup.values = values
                    tup._origin = origin
                    tup._row = row
                    execute(tup)
        finally:
            self._row = row

    def _execute_tracked(self, rows: Iterator[tuple[int, Any]], origin: Origin) -> None:
        """The same, and after each tuple, also one that raises, it is noted how much had been emitted."""
        execute, new, row, basic = self.bolt.execute, object.__new__, -1, self._basic
        first, *others = self.buffers.by_stream.values() or (self._nowhere,)
        emitted, mark, collector = first.first, first.anchors.append, self.collector
        try:
            for row, values in rows:
                tup = new(Tuple)
                tup.values = values
                tup._origin = origin
                tup._row = row
                if basic:
                    execute(tup, collector)
                else:
                    execute(tup)
                mark(len(emitted))
                for other in others:
                    other.anchors.append(len(other.first))
        except CAUGHT:
            for buffer in (first, *others):
                buffer.anchors.append(len(buffer.first))
            raise
        finally:
            self._row = row
            self._nowhere.clear()

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


class RichWork(BoltWork):
    """RichBolt: anchors, acks and fails by hand."""

    def __init__(self, *arguments: Any) -> None:
        super().__init__(*arguments)
        self.collector = RichCollector(self.buffers, self._fail, counting=self.setting.counting)

    def begin(self, config: Mapping[str, Any], context: Any) -> None:
        bolt: RichBolt = self.bolt
        bolt.prepare(config, context, self.collector)

    def take(self, arrived: Arrived) -> None:
        origin = arrived.origin
        if arrived.ids is not None and arrived.roots is not None:
            origin.ids, origin.roots = arrived.ids.tolist(), arrived.roots.to_pylist()
        execute = self.bolt.execute
        rows = enumerate(arrived.rows())
        while not self.stopped:
            row = 0
            try:
                for row, values in rows:
                    execute(Tuple(values, origin, row))
                break
            except CAUGHT as error:
                self.failed_on(error, arrived, row)
        self._settle()

    def finish(self) -> None:
        self.guard(self.bolt.finish_batch)
        self._settle()

    def flush(self) -> None:
        self.guard(lambda: self.buffers.flush_all(anchored_roots))

    def _settle(self) -> None:
        """Tell the ackers what was acked, and send what was emitted where that must be known by batch."""
        acked, self.collector.acked = self.collector.acked, []
        fold = self.setting.fold
        if fold is not None and acked:
            pairs = [(root, id_of(tup)) for tup in acked for root in roots_of(tup)]
            table = np.array(pairs, dtype=np.int64).reshape(-1, 2)
            fold.add(table[:, 0], table[:, 1])
        if not self.stopped and not self.setting.tracked:
            self.guard(self.buffers.flush_full)

    def _fail(self, tup: Tuple) -> None:
        """Called by the bolt: the tuple failed, and the bolt goes on."""
        roots = roots_of(tup)
        if self.setting.fold is not None:
            self.setting.fold.fail(np.array(roots, dtype=np.int64))
        trace = "".join(traceback.format_stack())
        where = user_frame(trace)
        message = f"{type(self.bolt).__name__} failed the tuple {shown_tuple(tup)}"
        self.setting.note(
            Failure(
                kind="data",
                message=f"{where}: {message}" if where else message,
                component=self.setting.node.name,
                detail=trace,
            ),
            roots,
        )


class ArrowWork(BoltWork):
    """ArrowBolt: whole record batches. Traced runs give it one row at a time, so that the row that fails is known."""

    def __init__(self, setting: Setting, bolt: Any, config: Any, streams: Any, send: Send, direct: Any) -> None:
        super().__init__(setting, bolt, config, streams, send, direct)
        self.collector = ArrowCollector(self.buffers, send)

    def begin(self, config: Mapping[str, Any], context: Any) -> None:
        bolt: ArrowBolt = self.bolt
        bolt.prepare(config, context)

    def take(self, arrived: Arrived) -> None:
        rows = arrived.batch.num_rows
        step = 1 if self.setting.run.traced else rows
        fold = self.setting.fold
        if fold is not None and arrived.ids is not None:
            fold.add_tuples(arrived.ids, arrived.roots)
        for first in range(0, rows, step):
            if self.stopped:
                return
            self._execute(arrived, first, step)

    def _execute(self, arrived: Arrived, first: int, rows: int) -> None:
        collector = self.collector
        collector.rows = rows
        collector.roots = arrived.roots.slice(first, rows) if arrived.roots is not None else None
        try:
            self.bolt.execute(arrived.batch.slice(first, rows), collector)
        except CAUGHT as error:
            if rows == 1:
                self.failed_on(error, arrived, first)
            else:
                self.setting.fail(error)
                self.stop()
        collector.rows, collector.roots = 0, None

    def finish(self) -> None:
        self.guard(lambda: self.bolt.finish_batch(self.collector))


def work_of(bolt: Any) -> type[BoltWork]:
    """How a bolt runs."""
    if isinstance(bolt, ArrowBolt):
        return ArrowWork
    return RichWork if isinstance(bolt, RichBolt) else PlainWork
