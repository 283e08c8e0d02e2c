"""Names the row that makes a batch fail: runs the plan over pieces of the batch, then reports where that row is and
what it contains.
"""

from __future__ import annotations

import json
import time
from collections import OrderedDict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from hashlib import sha256
from itertools import count
from typing import TYPE_CHECKING, Any, Protocol

from txtopo.core.values import Failure
from txtopo.spark.frames.bisect import Ranges, first_bad
from txtopo.spark.frames.frame_checks import PartReports, emitter_failure
from txtopo.spark.jobs import BatchWork, JobError, Judge, Run, Say
from txtopo.spark.reports import Reports
from txtopo.topology.components import Position, SpoutComponent, Topology
from txtopo.tuples.user_errors import one_line, shown

if TYPE_CHECKING:
    import pyarrow as pa

NUMBER_MAX = 2**62
"""More than the number of tuples of any part: a range from here on emits nothing, but reads the part to its end."""
TOLD_EVERY_S = 5.0
"""Seconds between two messages about a search that is still running."""
REMEMBERED_MAX = 256
"""Number of batches whose bad row is remembered for their next attempt."""

Only = Mapping[str, Ranges]
"""By spout: the tuples that it emits; a spout that is not named emits all."""


class RowRanges(Protocol):
    """Jobs that can run over some tuples of a batch."""

    def results(self, runs: Sequence[Run], works: Sequence[BatchWork], *, name: str, only: Only) -> Any:
        """Process `only` some tuples of one run, with reports under another `name`."""

    def emitted(self, run: Run, work: BatchWork, spout: str, ranges: Ranges) -> pa.Table:
        """Return tuples as a spout emits them, before any bolt."""


@dataclass(frozen=True, slots=True, kw_only=True)
class BadRow:
    """A tuple that makes its batch fail alone."""

    spout: str
    part: int
    number: int
    """Number in its part, from 0."""

    @property
    def only(self) -> dict[str, Ranges]:
        """Return the order that emits this tuple alone."""
        return {self.spout: {self.part: (self.number, self.number + 1)}}


class _GivenUpError(Exception):
    """A run of the search failed for a reason that says nothing about the rows."""


class BadRows:
    """Finds the bad row of a batch that failed, and remembers it, so that the next attempt needs only one run to
    confirm it. Thread-safe.
    """

    def __init__(
        self,
        topology: Topology,
        jobs: RowRanges,
        reports: Reports,
        judge: Judge,
        columns: Mapping[str, list[str]],
        *,
        say: Say | None = None,
    ) -> None:
        """`columns` are the columns to show, by spout. `say` tells the operator that a search is still running."""
        self._topology = topology
        self._jobs = jobs
        self._reports = reports
        self._judge = judge
        self._columns = columns
        self._say = say
        self._remembered: OrderedDict[int, tuple[bytes, BadRow]] = OrderedDict()

    def explain(self, run: Run, work: BatchWork, failure: Failure) -> Failure:
        """Return the failure with the row that causes it, or with the reason why no row is named. If the run is
        cancelled during the search, that is an outcome too.
        """
        search = _Search(self._jobs, self._reports, self._judge, run, work, self._say)
        try:
            row, why = self._find(search, work)
            if row is None:
                return replace(failure, message=f"{failure.message}; {why}")
            return self._told(search.last or failure, run, work, row)
        except _GivenUpError as error:
            if run.cancelled.is_set():
                return Failure(kind="infrastructure", message="cancelled")
            return replace(failure, message=f"{failure.message}; the row was not found: {error}")

    def _find(self, search: _Search, work: BatchWork) -> tuple[BadRow | None, str]:
        txid = work.assignment.attempt.txid
        digest = sha256(json.dumps(work.assignment.metadata, sort_keys=True).encode()).digest()
        known = self._remembered.get(txid)
        if known is not None and known[0] == digest and search.fails(known[1].only):
            return known[1], ""
        why = ""
        for item in self._topology.spouts:
            if not work.parts[item.name]:
                continue
            row, why = _find_in(item, search, work)
            if row is not None:
                self._remembered[txid] = (digest, row)
                while len(self._remembered) > REMEMBERED_MAX:
                    self._remembered.popitem(last=False)
                return row, ""
        return None, why

    def _told(self, failure: Failure, run: Run, work: BatchWork, row: BadRow) -> Failure:
        spout = next(item.spout for item in self._topology.spouts if item.name == row.spout)
        place: Position | None = None
        values = ""
        try:
            values = self._values(run, work, row)
            place = spout.locate(work.assignment.metadata[row.spout], work.parts[row.spout][row.part], row.number)
        except Exception as error:  # The row is known by its number in any case.
            values = values or f"not to be read again ({type(error).__name__})"
        where = place.position if place is not None else f"tuple {row.number + 1} of part {row.part + 1} of {row.spout}"
        detail = "\n".join(filter(None, [failure.detail, f"record: {place.raw}" if place is not None else ""]))
        return replace(
            failure,
            message=one_line(f"{failure.message}; on {where}: {values}"),
            position=place.position if place is not None else None,
            detail=detail or None,
        )

    def _values(self, run: Run, work: BatchWork, row: BadRow) -> str:
        table = self._jobs.emitted(run, work, row.spout, row.only[row.spout])
        (values,) = table.to_pylist()
        return shown({name: values[name] for name in self._columns.get(row.spout) or list(values)})


class _Search:
    """The runs of one search, each under a separate name: their reports are not part of the attempt's verdict."""

    def __init__(
        self, jobs: RowRanges, reports: Reports, judge: Judge, run: Run, work: BatchWork, say: Say | None = None
    ) -> None:
        self._jobs = jobs
        self._reports = reports
        self._judge = judge
        self._run = run
        self._work = work
        self._numbers = count(1)
        self._say = say
        self._began = self._told = time.monotonic()
        self.last: Failure | None = None
        """Error of the last run that failed."""

    def fails(self, only: Mapping[str, Ranges]) -> bool:
        """True if the plan fails on these tuples because of data."""
        return self.run(only)[0]

    def run(self, only: Mapping[str, Ranges]) -> tuple[bool, PartReports]:
        """Return the same, with the reports. Raises _GivenUpError if it fails for another reason: a worker died, the
        run was cancelled.
        """
        number = next(self._numbers)
        self._tell(number)
        name = f"{self._run.name}/{number}"
        self._reports.open(name)
        error: Exception | None = None
        try:
            self._jobs.results([self._run], [self._work], name=name, only=only)
        except Exception as raised:
            error = raised
        reports = self._reports.take(name)
        told = emitter_failure(reports)
        if error is None and told is None:
            return False, reports
        failure = told if error is None or told is not None else self._judge(error, self._run, reports)
        if told is not None or failure is None or failure.kind != "data" or not isinstance(error, JobError):
            raise _GivenUpError(failure.message if failure is not None else "")
        self.last = failure
        return True, reports

    def _tell(self, number: int) -> None:
        """Tell the operator sometimes that the search is still running: it may take many times as long as a successful
        attempt.
        """
        now = time.monotonic()
        if self._say is not None and now - self._told >= TOLD_EVERY_S:
            self._told = now
            self._say(
                f"batch {self._run.attempt.txid} attempt {self._run.attempt.attempt} failed; still looking for the "
                f"row that does it: "
                f"run {number} over parts of the batch, {now - self._began:.0f} s so far"
            )


def _find_in(item: SpoutComponent, search: _Search, work: BatchWork) -> tuple[BadRow | None, str]:
    parts = range(len(work.parts[item.name]))
    # Read everything and emit nothing: this gives the number of tuples of each part, and shows whether the plan fails
    # without them.
    failed, reports = search.run({item.name: dict.fromkeys(parts, (NUMBER_MAX, NUMBER_MAX))})
    if failed:
        return None, f"it fails without any row of {item.name} too"
    if any((item.name, part) not in reports for part in parts):
        return None, f"no row is named, since a bolt does not read all of {item.name}"
    counts = [reports[item.name, part][0].emitted for part in parts]
    found = first_bad(counts, lambda ranges: search.fails({item.name: ranges}))
    if found is None:
        return None, "no single row does it, only several together"
    return BadRow(spout=item.name, part=found[0], number=found[1]), ""
