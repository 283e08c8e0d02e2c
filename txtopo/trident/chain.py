"""`StepChain`: the bolt that runs the steps between two repartitions, over record batches."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import pyarrow as pa

from txtopo.core.fields import Fields
from txtopo.spouts.arrow_types import arrow_schema
from txtopo.topology.streams import Stream
from txtopo.topology.tuple_bolts import ArrowBolt, ArrowOutputCollector, TopologyContext
from txtopo.topology.user_exceptions import note_step
from txtopo.trident.links import ChainRows, Link, LinkContext, RunningLink


class StepChain(ArrowBolt):
    """Steps that share a task. It takes and emits record batches; what a step needs as Python values is made into
    lists once, and made columns again only after the step.
    """

    def __init__(self, links: Sequence[Link], fields: Fields, *, tracked: bool) -> None:
        """`fields` are those that it emits; `tracked`: each tuple is to be anchored on the one that it was made of."""
        self.links = tuple(links)
        self.tracked = tracked
        self.outputs = [Stream(fields)]  # type: ignore[misc]
        self._fields = fields

    def steps(self) -> Sequence[str]:
        return [link.shown() for link in self.links]

    def prepare(self, config: Mapping[str, Any], context: TopologyContext) -> None:
        opened = LinkContext(component=context.component, attempt=context.attempt)
        self._schema = arrow_schema(self._fields)
        self._running: list[tuple[str, RunningLink]] = []
        for link in self.links:
            with named(link.place):
                self._running.append((link.place, link.open(opened)))

    def execute(self, batch: pa.RecordBatch, collector: ArrowOutputCollector) -> None:
        # A single tuple is anchored also where tuples are not tracked: a traced run finds the place in the source of
        # a failure downstream by it.
        anchored = self.tracked or batch.num_rows == 1
        self._push(0, ChainRows.of(batch, anchored=anchored), self._sender(collector))

    def finish_batch(self, collector: ArrowOutputCollector) -> None:
        send = self._sender(collector)
        for at, (place, running) in enumerate(self._running):
            for rows in _guarded(place, running.end()):
                self._push(at + 1, rows, send)

    def _push(self, at: int, rows: ChainRows, send: Callable[[ChainRows], None]) -> None:
        """Give tuples to the link number `at` and what it yields to the next ones."""
        if not rows.count:
            return
        if at == len(self._running):
            send(rows)
            return
        place, running = self._running[at]
        for made in _guarded(place, running.take(rows)):
            self._push(at + 1, made, send)

    def _sender(self, collector: ArrowOutputCollector) -> Callable[[ChainRows], None]:
        def send(rows: ChainRows) -> None:
            collector.emit_batch(rows.batch(self._schema), anchors=rows.anchors())

        return send


def _guarded(place: str, made: Iterator[ChainRows]) -> Iterator[ChainRows]:
    """Yield the same; an error names the step."""
    while True:
        with named(place):
            rows = next(made, None)
        if rows is None:
            return
        yield rows


@contextmanager
def named(place: str) -> Iterator[None]:
    """Let errors of the block say in which step of a stream they were raised."""
    try:
        yield
    except (Exception, SystemExit) as error:
        note_step(error, place)
        raise
