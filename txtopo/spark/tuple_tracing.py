"""What to do about a failed run of tuple tasks: name the source tuple that it failed on, or take it out of the batch as a dead letter."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import count
from typing import NamedTuple, Protocol

from txtopo.core.values import CommitterResult, DeadLetter, Failed, Failure, Outcome, Processed
from txtopo.spark.emitting import restrict
from txtopo.spark.jobs import JobContext, Run, RunReports, Work
from txtopo.spark.tuple_graphs import Graphs
from txtopo.spark.tuple_order import Again, Excluded
from txtopo.spark.tuple_verdict import Verdict
from txtopo.spark.tuple_work import seen_of
from txtopo.topology.components import Tally
from txtopo.tuples.frames import one_line
from txtopo.tuples.message import TupleFailure


class Runs(Protocol):
    """Jobs that can run a batch once more."""

    def run_again(
        self, runs: Sequence[Run], works: Sequence[Work], names: Sequence[str], again: Again
    ) -> list[list[CommitterResult]]:
        """Run these runs with reports under other names. Raises JobError, CancelledError."""

    def outcome(self, run: Run, work: Work, results: Sequence[CommitterResult], reports: RunReports) -> Outcome:
        """The verdict over a run."""


class Place(NamedTuple):
    """A source tuple by its number, from 0, among those of its part."""

    spout: str
    part: int
    number: int


class Tracing:
    """Looks into one failed run, by running the batch again under the same tag, with reports under names of their own."""

    def __init__(self, jobs: Runs, context: JobContext, graphs: Graphs, run: Run, work: Work) -> None:
        self._jobs = jobs
        self._context = context
        self._graphs = graphs
        self._run = run
        self._work = work
        self._spouts = {item.name: item.spout for item in context.topology.spouts}
        self._numbers = count(1)

    def explained(self, failure: Failure, causes: Sequence[TupleFailure]) -> Outcome:
        """The failure with the tuple behind it, or the batch without its dead letters. `causes` are the failures that the run told of."""
        told = next((cause for cause in causes if cause.failure == failure), None)
        if told is None or (told.failure.component in self._spouts and not told.roots):
            return Failed(attempt=self._run.attempt, failure=failure)
        try:
            if self._work.assignment.dead_letter_max:
                return self._without_dead_letters(failure, causes)
            return Failed(attempt=self._run.attempt, failure=self._named(told))
        except (
            Exception
        ) as error:  # a run of the search that ended otherwise: its own failure counts, e.g. a worker that died
            judged = self._context.judge(error, self._run, {})
            return Failed(attempt=self._run.attempt, failure=judged if judged.kind != "data" else failure)

    def _named(self, told: TupleFailure) -> Failure:
        """The failure with its place in the source, having traced every tuple where the first run does not tell."""
        # A failure without a traceback is none of user code: tuples that got lost, say. Another run would only tell of itself.
        if not told.roots and told.failure.detail is not None:
            _, causes = self._again(Again(traced=True))
            told = next((cause for cause in causes if cause.roots), told)
        if not told.roots:
            return told.failure
        position, raw = self._located(self._place(told.roots[0]))
        detail = "\n".join(filter(None, [told.failure.detail, f"record: {raw}"]))
        return replace(
            told.failure,
            message=one_line(f"{told.failure.message}; on {position}"),
            position=position,
            detail=detail,
        )

    def _without_dead_letters(self, failure: Failure, causes: Sequence[TupleFailure]) -> Outcome:
        """Run without the tuples that bolts fail on, until none fails; give up where more would have to go than may."""
        most = self._work.assignment.dead_letter_max
        out: dict[Place, Failure] = {}
        traced = False
        while True:
            if any(cause.failure.kind != "data" for cause in causes):
                return Failed(attempt=self._run.attempt, failure=failure)
            found = {self._place(root): cause.failure for cause in causes for root in cause.roots}
            if any(not self._work.parts.get(place.spout) for place in found):
                # Rows of a DataFrame are no records of a source.
                return Failed(attempt=self._run.attempt, failure=failure)
            known = not causes or all(cause.roots for cause in causes)
            out |= {place: why for place, why in found.items() if place not in out}
            if len(out) > most:
                return Failed(attempt=self._run.attempt, failure=self._too_many(out, most))
            if not found and traced:
                return Failed(attempt=self._run.attempt, failure=failure)
            # One run with every tuple traced tells of all that it fails on; then one without them.
            traced = not known
            again = Again(traced=traced, excluded=_excluded(out), failures_max=most + 1)
            outcome, causes = self._again(again)
            if isinstance(outcome, Processed):
                if not out:
                    # What went away by itself is no dead letter: the attempt fails, and the next one has its say.
                    return Failed(attempt=self._run.attempt, failure=failure)
                return replace(
                    outcome, dead_letters=tuple(self._dead_letter(place, out[place]) for place in sorted(out))
                )
            failure = outcome.failure
            if not causes:
                return outcome

    def _again(self, again: Again) -> tuple[Outcome, list[TupleFailure]]:
        name = f"{self._run.name}/{next(self._numbers)}"
        reports = self._context.reports
        reports.open(name)
        try:
            (results,) = self._jobs.run_again([self._run], [self._work], [name], again)
        finally:
            found = reports.take(name)
        outcome = self._jobs.outcome(self._run, self._work, results, found)
        return outcome, Verdict(self._graphs, seen_of(self._work), found).causes()

    def _place(self, root: int) -> Place:
        return Place(*self._graphs.place(root))

    def _located(self, place: Place) -> tuple[str, str]:
        """Where a source tuple stands, and what stands there: the record, or its values as JSON."""
        metadata, parts = self._work.metadata(place.spout), self._work.parts.get(place.spout, ())
        where = f"tuple {place.number + 1} of part {place.part + 1} of {place.spout}"
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
        return replace(
            failure,
            message=one_line(
                f"bolts fail on more than {most} records (dead_letter_max), first: {failure.message}; on {position}"
            ),
            position=position,
            detail="\n".join(filter(None, [failure.detail, f"record: {raw}"])),
        )


def _excluded(places: Mapping[Place, Failure]) -> Excluded:
    numbers: dict[str, dict[int, set[int]]] = {}
    for place in places:
        numbers.setdefault(place.spout, {}).setdefault(place.part, set()).add(place.number)
    return {spout: {part: frozenset(found) for part, found in parts.items()} for spout, parts in numbers.items()}
