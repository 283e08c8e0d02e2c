"""Handles a failed run of tuple tasks: names the source tuple that it failed on, or removes the tuple from the batch as
a dead letter.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, NamedTuple

from txtopo.core.values import DeadLetter, Failed, Failure, Outcome, Processed
from txtopo.ports import Assignment
from txtopo.topology.components import Tally, Topology
from txtopo.tuples.message import TupleFailure
from txtopo.tuples.user_errors import one_line

if TYPE_CHECKING:
    import pyarrow as pa

Excluded = Mapping[str, Mapping[int, frozenset[int]]]
"""By spout and part: numbers of tuples that are skipped."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Again:
    """How a run differs from the ordinary run before it, in the same call of `process`."""

    traced: bool = False
    excluded: Excluded = field(default_factory=dict)
    failures_max: int = 1


Rerun = Callable[[Again], tuple[Outcome, Sequence[TupleFailure]]]
"""Runs the same batch once more; returns its verdict, and every failure that names the tuple it happened on."""


class Place(NamedTuple):
    """A source tuple by its number, from 0, among those of its part."""

    spout: str
    part: int
    number: int


def _said_of_part(place: Place) -> str:
    return f"tuple {place.number + 1} of part {place.part + 1} of {place.spout}"


class Tracing:
    """Finds the cause of one failed run, by running the batch again."""

    def __init__(
        self,
        topology: Topology,
        place_of: Callable[[int], tuple[str, int, int]],
        assignment: Assignment,
        parts: Mapping[str, Sequence[Mapping[str, Any]]],
        rerun: Rerun,
        said: Callable[[Place], str] = _said_of_part,
    ) -> None:
        """`place_of` returns spout, part and number of a root id; `parts` are those of each spout, in their order.
        `said` describes a place if its source cannot locate it.
        """
        self._said = said
        self._place_of = place_of
        self._assignment = assignment
        self._parts = parts
        self._rerun = rerun
        self._spouts = {item.name: item.spout for item in topology.spouts}

    def explained(self, failure: Failure, causes: Sequence[TupleFailure]) -> Outcome:
        """Return the failure with the tuple that caused it, or the batch without its dead letters. `causes` are the
        failures that the run reported.

        Raises whatever a rerun raises.
        """
        told = next((cause for cause in causes if cause.failure == failure), None)
        if told is None or (told.failure.component in self._spouts and not told.roots):
            return self._failed(failure)
        if self._assignment.dead_letter_max:
            return self._without_dead_letters(failure, causes)
        return self._failed(self._named(told))

    def _failed(self, failure: Failure) -> Failed:
        return Failed(attempt=self._assignment.attempt, failure=failure)

    def _named(self, told: TupleFailure) -> Failure:
        """Return the failure with its place in the source; traces every tuple if the first run does not show it."""
        # A failure without a traceback does not come from user code: lost tuples, for example. Another run would only
        # report its own failures.
        if not told.roots and told.failure.detail is not None:
            _, causes = self._rerun(Again(traced=True))
            told = next((cause for cause in causes if cause.roots), told)
        if not told.roots:
            return told.failure
        position, raw = self._located(self._place(told.roots[0]))
        detail = "\n".join(filter(None, [told.failure.detail, f"record: {raw}" if raw else None]))
        message = one_line(f"{told.failure.message}; on {position}")
        return replace(told.failure, message=message, position=position, detail=detail)

    def _without_dead_letters(self, failure: Failure, causes: Sequence[TupleFailure]) -> Outcome:
        """Run without the tuples that bolts fail on, until none fails; give up if there are more of them than
        allowed.
        """
        most = self._assignment.dead_letter_max
        out: dict[Place, Failure] = {}
        traced = False
        while True:
            if any(cause.failure.kind != "data" for cause in causes):
                return self._failed(failure)
            found = {self._place(root): cause.failure for cause in causes for root in cause.roots}
            if any(not self._parts.get(place.spout) for place in found):
                return self._failed(failure)  # Rows of a DataFrame are no records of a source.
            known = not causes or all(cause.roots for cause in causes)
            fresh = {place: why for place, why in found.items() if place not in out}
            if found and not fresh:
                # They were skipped, and bolts fail on them all the same: the source does not give the same tuples
                # again.
                return self._failed(failure)
            out |= fresh
            if len(out) > most:
                return self._failed(self._too_many(out, most))
            if not found and traced:
                return self._failed(failure)
            # One run with every tuple traced reports all that it fails on; then one run without them.
            traced = not known
            again = Again(traced=traced, excluded=_excluded(out), failures_max=most + 1)
            outcome, causes = self._rerun(again)
            if traced and out and isinstance(outcome, Processed):
                # A traced run calls bolts in another way, which their code may notice: an ordinary run makes what is
                # committed.
                outcome, _ = self._rerun(replace(again, traced=False))
                if not isinstance(outcome, Processed):
                    return outcome
            if isinstance(outcome, Processed):
                if not out:
                    # A failure that disappears by itself is no dead letter: the attempt fails, and the next one
                    # decides.
                    return self._failed(failure)
                letters = tuple(self._dead_letter(place, out[place]) for place in sorted(out))
                return replace(outcome, dead_letters=letters)
            failure = outcome.failure
            if not causes:
                return outcome

    def _place(self, root: int) -> Place:
        return Place(*self._place_of(root))

    def _located(self, place: Place) -> tuple[str, str]:
        """Return the position of a source tuple, and its content: the record, or its values as JSON."""
        metadata, parts = self._assignment.metadata.get(place.spout), self._parts.get(place.spout, ())
        where = self._said(place)
        if metadata is None or place.part >= len(parts):
            return where, ""
        spout, part = self._spouts[place.spout], parts[place.part]
        position = spout.locate(metadata, part, place.number)
        if position is not None:
            return position.position, position.raw
        batches = restrict(spout.emit_part(metadata, part, Tally()), place.number, place.number + 1)
        rows = [row for batch in batches for row in batch.to_pylist()]
        return where, json.dumps(rows[0], ensure_ascii=False, default=str) if rows else ""

    def _dead_letter(self, place: Place, failure: Failure) -> DeadLetter:
        position, raw = self._located(place)
        return DeadLetter(
            spout=place.spout,
            position=position,
            component=failure.component or "",
            reason=failure.message,
            raw=raw.encode(),
        )

    def _too_many(self, out: Mapping[Place, Failure], most: int) -> Failure:
        place, failure = next(iter(out.items()))
        position, raw = self._located(place)
        words = f"bolts fail on more than {most} records (dead_letter_max), first: {failure.message}; on {position}"
        detail = "\n".join(filter(None, [failure.detail, f"record: {raw}"]))
        return replace(failure, message=one_line(words), position=position, detail=detail)


def restrict(batches: Iterator[pa.RecordBatch], start: int, end: int) -> Iterator[pa.RecordBatch]:
    """Yield the tuples numbered [start, end) of a part, counted from 0; the part is read only up to `end`."""
    number = 0
    while number < end:
        batch = next(batches, None)
        if batch is None:
            return
        first, last = max(start - number, 0), min(end - number, batch.num_rows)
        number += batch.num_rows
        if first < last:
            yield batch.slice(first, last - first)


def _excluded(places: Mapping[Place, Failure]) -> Excluded:
    numbers: dict[str, dict[int, set[int]]] = {}
    for place in places:
        numbers.setdefault(place.spout, {}).setdefault(place.part, set()).add(place.number)
    return {spout: {part: frozenset(found) for part, found in parts.items()} for spout, parts in numbers.items()}
