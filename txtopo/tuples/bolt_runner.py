"""Runs the tuples of one task in one attempt: the base class that bolts of every kind complete, and the handling of
their errors.
"""

from __future__ import annotations

import copy
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import pyarrow as pa

from txtopo.errors import unreachable
from txtopo.topology.partial_counts import PartialCount
from txtopo.topology.streams import Stream
from txtopo.topology.tuple_bolts import TupleBolt, returned
from txtopo.tuples.buffer import Buffers, Output
from txtopo.tuples.task_context import CAUGHT, Arrived, TaskContext


class TaskRunner(ABC):
    """Runs the tuples of a task. Methods note failures of user code in its context and do not raise them."""

    stopped = False
    """True if the task has failed in this attempt: it gets no more tuples, and emits nothing more."""

    def prepare(self) -> None:  # noqa: B027
        """Called before the first tuple."""

    @abstractmethod
    def take(self, arrived: Arrived) -> None:
        """Take some tuples of one edge and source task."""

    def take_groups(self, groups: pa.RecordBatch, partial: PartialCount) -> None:
        """Take tuples that the sending task has grouped; only for edges with a PartialCount."""
        unreachable(f"{type(self).__name__} takes no groups")

    def finish(self) -> None:  # noqa: B027
        """Called when all tuples have come."""

    def flush(self) -> None:  # noqa: B027
        """Send everything that was emitted."""

    def cleanup(self) -> None:  # noqa: B027
        """End the task; also called after failures."""


class BoltRunner(TaskRunner):
    """The common part of all bolts."""

    def __init__(
        self,
        task_context: TaskContext,
        bolt: Any,
        config: Mapping[str, Any],
        streams: Mapping[str, Stream],
        output: Output,
    ) -> None:
        """`bolt` is the template."""
        self.task_context = task_context
        self.bolt: Any = None
        self._template = bolt
        self._config = config
        # Traced runs exist to name the tuple that fails, so each row is checked while its tuple is executed.
        self.buffers = Buffers(
            task_context.node.name, streams, output, tracked=task_context.tracked, eager=task_context.run.traced
        )

    def prepare(self) -> None:
        """Make a fresh copy of the template, without state of another attempt or task, and prepare it."""
        context = self.task_context.context(self._config)

        def begin() -> None:
            self.bolt = copy.deepcopy(self._template)
            self.begin(context.config, context)

        self.guard(begin)
        # Tuples that `prepare` emits belong to no tuple tree.
        self.guard(self.buffers.flush_all)

    @abstractmethod
    def begin(self, config: Mapping[str, Any], context: Any) -> None:
        """Call the bolt's `prepare`."""

    def cleanup(self) -> None:
        """Call the bolt's `cleanup`, also after errors; if it raises, that is a failure like any other."""
        bolt, self.bolt = self.bolt, None
        if isinstance(bolt, TupleBolt):
            unsent = self.buffers.rows
            try:
                bolt.cleanup()
            except CAUGHT as error:
                self.task_context.fail(error)
                self.stop()
            if not self.stopped and self.buffers.rows > unsent:
                # Everything was sent before: these tuples would be lost, and nothing would count them.
                self.task_context.problem(
                    f"{type(bolt).__name__} emitted in cleanup, when its batch was over: emit in finish_batch"
                )
                self.stop()

    def flush(self) -> None:
        self.guard(self.buffers.flush_all)

    def end_batch(self, *arguments: Any) -> None:
        """Call the bolt's `finish_batch`."""
        if self.bolt.finish_batch(*arguments) is not None:
            returned("finish_batch")

    def guard(self, call: Callable[[], None]) -> None:
        """Call user code that does not concern a single tuple."""
        if self.stopped:
            return
        try:
            call()
        except CAUGHT as error:
            self.task_context.fail(error)
            self.stop()

    def rows(self, arrived: Arrived) -> Iterator[tuple[int, Any]]:
        """Yield number and values of each tuple. If Python cannot hold a value, such as a day in the year 12000, that
        tuple fails and nothing is yielded.
        """
        try:
            return enumerate(arrived.rows())
        except CAUGHT as error:
            row = arrived.first_unreadable()
            self.task_context.fail(error, roots=arrived.roots_of(row))
            self.stop()
            return enumerate(())

    def failed_on(self, error: BaseException, arrived: Arrived, row: int) -> None:
        """Note that user code raised for a tuple, and stop unless more failures are wanted."""
        task_context = self.task_context
        task_context.fail(error, on=arrived.shown(row), roots=arrived.roots_of(row))
        if not task_context.has_room:
            self.stop()

    def stop(self) -> None:
        self.stopped = True
        self.buffers.drop()
