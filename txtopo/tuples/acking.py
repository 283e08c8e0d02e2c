"""Tracks every tuple of a batch with Storm's XOR method, on arrays: ids of tuples, the messages of tasks to the ackers,
and the result of the ackers.

Each delivered tuple has one id, computed from where it was sent and its place there, never random. For every root
(spout tuple) that it belongs to, the id is XORed into the root's record when it is sent and when it is acked; a root
whose final record is not 0 is incomplete. Storm gives a tuple one id for each of its roots; one id for all of them has
the same effect, because the records are separate.

Ids are made so that a run of neighbours costs no more than one tuple. Between any two neighbours on a way from one task
to another is a *mark*, 64 scattered bits, and a tuple's id is the mark before it XOR the mark after it. So the XOR of a
whole run is the XOR of the two marks at its ends, and the XOR of any other set of tuples is the XOR of some different
marks: it is 0 by accident as rarely as with Storm's random ids, once in 2**64.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from txtopo.core.values import Failure
from txtopo.tuples import hashing
from txtopo.tuples.graph import ACKER, PLACE_BITS, TaskGraph, root_place
from txtopo.tuples.message import Kind, Message, TupleFailure
from txtopo.tuples.roots import Ints, Roots, packed, unpacked

NAMED_MAX = 100
"""Maximum number of failed and of incomplete roots that each acker task names; the others are only counted."""
FOLD_ROWS = 200_000
"""Number of records above which they are folded."""
GAPS_MAX = 4
"""Records that may have a place for each one that exists; with more gaps, roots are sorted."""
PIECE_ROWS_MIN = 64
"""Roots of a part in one addition, on average; with fewer, sorting all of them costs less."""
ACK_EDGE = -1
"""`Message.edge` of ACK messages and of an acker's results."""
ACKER_BITS = 8
"""Roots whose numbers differ only in this many last bits have the same acker task, the next block of them has the next
acker task: neighbours can be sent together at low cost.
"""
_TOLD = pa.schema(
    [
        ("first", pa.list_(pa.int64())),
        ("count", pa.list_(pa.int32())),
        ("value", pa.list_(pa.int64())),
        ("failed", pa.list_(pa.int64())),
    ]
)
"""One row. Roots are listed as runs without gaps, with one value per root; failed roots are listed again."""
_NAMED = pa.schema([("root", pa.int64()), ("failed", pa.bool_())])
_TOTALS = pa.schema([("roots", pa.int64()), ("failed", pa.int64()), ("incomplete", pa.int64())])


def way_base(source: int, edge: int, target: int) -> int:
    """Return the base of the ids of all tuples from one task to another over one edge; their place is the other
    component.
    """
    return hashing.mix_int(source, edge, target)


def ids(base: int, first: int, rows: int) -> Ints:
    """Return the ids of tuples number `first`, `first` + 1, … on a way from one task to another; `base` identifies the
    way.
    """
    return _between(base, np.arange(first, first + rows + 1, dtype=np.uint64))


def _between(base: int, places: npt.NDArray[np.uint64]) -> Ints:
    """Return the XOR of the ids of all tuples between each place and the next one."""
    with np.errstate(over="ignore"):
        marks = hashing.mix(places + np.uint64(base))
    return (marks[1:] ^ marks[:-1]).view(np.int64)


class Fold:
    """Records by root: the XOR of values, and whether any tuple failed. Uses a fixed amount of memory for each root."""

    def __init__(self) -> None:
        self._roots: list[Ints] = []
        self._values: list[Ints] = []
        self._failed: list[Ints] = []
        self._rows = 0
        self._rising = True
        """True if the roots of each addition ascend, each once."""

    def add(self, roots: Ints, values: Ints) -> None:
        """XOR a value into the record of each root; a root may occur several times."""
        if not len(roots):
            return
        if not _is_rising(roots):
            # Tuples from one spout tuple are mostly neighbours: so much less remains to be sorted.
            roots, values = _runs_folded(roots, values)
            self._rising = self._rising and _is_rising(roots)
        # A view of a message would keep all its tuples in memory.
        self._roots.append(roots if roots.flags.owndata else roots.copy())
        self._values.append(values)
        self._rows += len(roots)
        if self._rows > FOLD_ROWS:
            self._compact()

    def add_tuples(self, base: int, first: int, roots: Roots) -> None:
        """XOR the ids of tuples number `first`, `first` + 1, … on a way into the records of all their roots."""
        values = _between(base, np.concatenate(([0], roots.ends)).astype(np.uint64) + np.uint64(first))
        self.add(roots.flat, values if roots.lengths is None else np.repeat(values, roots.lengths))

    def fail(self, roots: Ints) -> None:
        """Note that these roots failed."""
        self._failed.append(np.asarray(roots, dtype=np.int64))

    def folded(self) -> tuple[Ints, Ints, npt.NDArray[np.bool_]]:
        """Return roots ascending, each once, with value and failure."""
        failed = np.unique(np.concatenate(self._failed)) if self._failed else np.empty(0, dtype=np.int64)
        if len(failed):
            self.add(failed, np.zeros(len(failed), dtype=np.int64))
        self._compact()
        roots = self._roots[0] if self._roots else np.empty(0, dtype=np.int64)
        values = self._values[0] if self._values else np.empty(0, dtype=np.int64)
        return roots, values, np.isin(roots, failed) if len(failed) else np.zeros(len(roots), dtype=np.bool_)

    def _compact(self) -> None:
        if not self._roots:
            return
        if not self._rising or (dense := _dense(self._roots, self._values)) is None:
            dense = fold(np.concatenate(self._roots), np.concatenate(self._values))
        roots, values = dense
        self._roots, self._values, self._rising = [roots], [values], True
        # With many different roots, folding does not help: fold again only when as many rows have been added.
        self._rows = max(0, len(roots) - FOLD_ROWS // 2) if len(roots) < FOLD_ROWS else 0


def _is_rising(roots: Ints) -> bool:
    """True if each root is higher than the one before it."""
    return bool((roots[1:] > roots[:-1]).all())


def _dense(roots: Sequence[Ints], values: Sequence[Ints]) -> tuple[Ints, Ints] | None:
    """Return what `fold` returns for all of these together, without sorting. The roots of each addition ascend; None if
    there are large gaps between them.

    A task mostly sees all tuples of some parts: their roots are numbers without gaps, and the place of a record is the
    difference to the lowest root of its part.
    """
    if len(roots) == 1:
        return roots[0], values[0]
    by_part: dict[int, list[tuple[Ints, Ints]]] = {}
    pieces = 0
    for some, of_them in zip(roots, values, strict=True):
        for piece, of_piece in _in_parts(some, of_them):
            by_part.setdefault(int(piece[0]) >> PLACE_BITS, []).append((piece, of_piece))
            pieces += 1
    if pieces * PIECE_ROWS_MIN > sum(map(len, roots)) + PIECE_ROWS_MIN * len(roots):
        return None
    found = [_dense_part(by_part[part]) for part in sorted(by_part)]
    whole = [one for one in found if one is not None]
    if len(whole) < len(found):
        return None
    return np.concatenate([one[0] for one in whole]), np.concatenate([one[1] for one in whole])


def _in_parts(roots: Ints, values: Ints) -> list[tuple[Ints, Ints]]:
    """Return roots that ascend, and their values, divided by part."""
    if roots[0] >> PLACE_BITS == roots[-1] >> PLACE_BITS:
        return [(roots, values)]
    starts = np.flatnonzero(np.diff(roots >> PLACE_BITS)) + 1
    return list(zip(np.split(roots, starts), np.split(values, starts), strict=True))


def _dense_part(pieces: Sequence[tuple[Ints, Ints]]) -> tuple[Ints, Ints] | None:
    """Fold what belongs to one part, or return None, see `_dense`."""
    if len(pieces) == 1:
        return pieces[0]
    low, high = min(int(roots[0]) for roots, _ in pieces), max(int(roots[-1]) for roots, _ in pieces)
    span = high - low + 1
    if span > GAPS_MAX * sum(len(roots) for roots, _ in pieces):
        return None
    records = np.zeros(span, dtype=np.int64)
    known = np.zeros(span, dtype=np.bool_)
    for roots, values in pieces:
        first, last = int(roots[0]) - low, int(roots[-1]) - low
        places = slice(first, last + 1) if last - first == len(roots) - 1 else roots - low
        records[places] ^= values
        known[places] = True
    if known.all():
        return np.arange(low, high + 1), records
    found = np.flatnonzero(known)
    return found + low, records[found]


def fold(roots: Ints, values: Ints) -> tuple[Ints, Ints]:
    """Return roots ascending, each once, with the XOR of its values."""
    if not len(roots):
        return roots, values
    if np.any(roots[1:] < roots[:-1]):
        order = np.argsort(roots, kind="stable")
        roots, values = roots[order], values[order]
    return _runs_folded(roots, values)


def _runs_folded(roots: Ints, values: Ints) -> tuple[Ints, Ints]:
    """Return roots in their order, equal neighbours once, with the XOR of their values."""
    if not len(roots):
        return roots, values
    starts = np.flatnonzero(np.concatenate(([True], roots[1:] != roots[:-1])))
    return roots[starts], np.bitwise_xor.reduceat(values, starts)


def to_ackers(folded: Fold, ackers: Sequence[int], run: int, source: int) -> list[Message]:
    """Yield what a task sends to the ackers at its end: one message to each, by root, even if it is empty."""
    roots, values, failed = folded.folded()
    fails = roots[failed]
    messages = []
    chosen, of_fails = _ackers_of(roots, len(ackers)), _ackers_of(fails, len(ackers))
    for position, target in enumerate(ackers):
        mine = chosen == position
        body = _told(roots[mine], values[mine], fails[of_fails == position])
        messages.append(Message(run, target, source, Kind.ACK, ACK_EDGE, 0, int(mine.sum()), body))
    return messages


def _ackers_of(roots: Ints, ackers: int) -> npt.NDArray[np.intp]:
    """Return the position of the acker task of each root; roots ascend."""
    if ackers == 1 or not len(roots):
        return np.zeros(len(roots), dtype=np.intp)
    blocks = roots >> ACKER_BITS
    starts = np.flatnonzero(np.append(True, blocks[1:] != blocks[:-1]))
    first = blocks[starts].astype(np.uint64)
    # Each part begins with another acker, so that small parts do not all use the first one.
    turns = hashing.mix(first >> np.uint64(PLACE_BITS - ACKER_BITS)) >> np.uint64(32)
    return np.repeat(hashing.targets(turns + first, ackers), np.diff(starts, append=len(roots)))


def _told(roots: Ints, values: Ints, failed: Ints) -> pa.RecordBatch:
    parts = (*packed(roots), values, failed)
    return pa.RecordBatch.from_arrays(
        [_in_one_row(part, field.type) for part, field in zip(parts, _TOLD, strict=True)], schema=_TOLD
    )


def _in_one_row(numbers: Ints, kind: pa.ListType) -> pa.ListArray:
    return pa.ListArray.from_arrays(
        pa.array([0, len(numbers)], pa.int32()), pa.array(numbers, type=kind.value_type), type=kind
    )


def told(body: pa.RecordBatch) -> tuple[Ints, Ints, Ints]:
    """Return the content of a message to an acker: roots ascending, the value of each, and the failed ones."""
    first, count, values, failed = (
        column.flatten().to_numpy(zero_copy_only=False).astype(np.int64, copy=False) for column in body.columns
    )
    return unpacked(first, count), values, failed


@dataclass(frozen=True, slots=True, kw_only=True)
class AckOutcome:
    """The result of the ackers for a run."""

    roots: int
    """Number of spout tuples that they know."""
    failed: int = 0
    incomplete: int = 0
    failed_roots: tuple[int, ...] = ()
    """Some of them, ascending: at most `NAMED_MAX` from each acker task."""
    incomplete_roots: tuple[int, ...] = ()

    @property
    def complete(self) -> bool:
        """True if every tree was acked completely."""
        return not self.failed and not self.incomplete


def outcome_messages(folded: Fold, run: int, source: int, target: int, arrived: int) -> list[Message]:
    """Yield an acker task's last messages: the roots that failed or are incomplete, and totals."""
    roots, values, failed = folded.folded()
    # Storm acks a root whose value is 0 even if it failed before; a batch has no "before", and a failure must not get
    # lost.
    incomplete = (values != 0) & ~failed
    named = np.concatenate([roots[failed][:NAMED_MAX], roots[incomplete][:NAMED_MAX]])
    is_failed = np.arange(len(named)) < min(int(failed.sum()), NAMED_MAX)
    body = pa.RecordBatch.from_arrays([pa.array(named), pa.array(is_failed)], schema=_NAMED)
    totals = pa.RecordBatch.from_pylist(
        [{"roots": len(roots), "failed": int(failed.sum()), "incomplete": int(incomplete.sum())}], schema=_TOTALS
    )
    return [
        Message(run, target, source, Kind.RESULT, ACK_EDGE, 0, len(named), body),
        Message(run, target, source, Kind.END, ACK_EDGE, 1, arrived, totals),
    ]


def outcome_of(named: Sequence[pa.RecordBatch], totals: Sequence[pa.RecordBatch]) -> AckOutcome:
    """Return one outcome from the messages of all acker tasks."""
    rows = [row for batch in named for row in batch.to_pylist()]
    sums = [row for batch in totals for row in batch.to_pylist()]
    return AckOutcome(
        roots=sum(row["roots"] for row in sums),
        failed=sum(row["failed"] for row in sums),
        incomplete=sum(row["incomplete"] for row in sums),
        failed_roots=tuple(sorted(row["root"] for row in rows if row["failed"])),
        incomplete_roots=tuple(sorted(row["root"] for row in rows if not row["failed"])),
    )


def ack_failure(graph: TaskGraph, outcome: AckOutcome, emitted: int) -> Failure | None:
    """Return why a run must not commit according to the ackers, with the first root; None if it may. `emitted` is the
    number of tuples that left spouts and DataFrames.
    """
    if outcome.roots != emitted:
        message = f"{emitted} tuples were emitted, and the ackers know {outcome.roots}"
        return Failure(kind="data", component=ACKER, message=message)
    if outcome.complete:
        return None
    what, count, roots = (
        ("failed", outcome.failed, outcome.failed_roots)
        if outcome.failed
        else ("were never acked to the end", outcome.incomplete, outcome.incomplete_roots)
    )
    spout, part, number = root_place(graph, roots[0])
    message = (
        f"{count} of {outcome.roots} tuples {what}, the first is number {number + 1} of part {part + 1} of {spout}"
    )
    return Failure(kind="data", component=spout, message=message)


def causes_of(outcome: AckOutcome | None, failure: Failure | None) -> list[TupleFailure]:
    """Return the `ack_failure` of a run, once for each root that it concerns; empty if there is no such failure."""
    if outcome is None or failure is None:
        return []
    roots = outcome.failed_roots or outcome.incomplete_roots
    return [TupleFailure(failure=failure, roots=(root,)) for root in roots]
