"""Decides whether all tuples of a batch have arrived at a task: the counting of Storm's CoordinatedBolt, for one
attempt and task, without I/O.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping


class Coordination:
    """The reports and tuples that one task of one attempt has received. Order does not matter; a repeated report counts
    once.
    """

    def __init__(self, expected: Mapping[int, Collection[int]], names: Mapping[int, str] | None = None) -> None:
        """`expected` are the ids of the source tasks by edge; `names` are the edges' names, for messages."""
        self._expected = {edge: frozenset(sources) for edge, sources in expected.items()}
        self._names = names or {}
        self._received: dict[tuple[int, int], int] = {}
        self._reports: dict[tuple[int, int], tuple[int, bool]] = {}
        self._problem: str | None = None
        self._finished = False

    def take(self, edge: int, source: int, rows: int) -> int:
        """Note that `rows` tuples of a source task arrived; returns how many of its tuples had arrived before."""
        if source not in self._expected.get(edge, ()):
            self._fail(
                f"{rows} tuples came over {self._name(edge)} from task {source}, which does not belong to this attempt"
            )
        key = (edge, source)
        before = self._received.get(key, 0)
        self._received[key] = before + rows
        return before

    def report(self, edge: int, source: int, rows: int, *, failed: bool = False) -> None:
        """Note that a source task reported that it sent `rows` tuples, 0 included. `failed`: it also reported that it
        failed, so that tuples are missing.
        """
        key = (edge, source)
        if source not in self._expected.get(edge, ()):
            self._fail(
                f"a report came over {self._name(edge)} from task {source}, which does not belong to this attempt"
            )
        known = self._reports.setdefault(key, (rows, failed))
        if known != (rows, failed):
            self._fail(
                f"{self._name(edge)}: task {source} reported {known[0]} tuples sent, and then {rows}: two runs of "
                f"one task differ"
            )

    def received(self) -> dict[int, int]:
        """Return the number of tuples that arrived, by edge; every edge is included."""
        totals = dict.fromkeys(self._expected, 0)
        for (edge, _), rows in self._received.items():
            totals[edge] = totals.get(edge, 0) + rows
        return totals

    @property
    def upstream_failed(self) -> bool:
        """True if a source task reported that it failed; then the batch never becomes complete, and this task is not
        the cause.
        """
        return any(failed for _, failed in self._reports.values())

    def shortfall(self) -> str | None:
        """Return, when there is no more input, why the batch is not complete, with source tasks and counts; None if it
        is complete.
        """
        if self._problem is not None:
            return self._problem
        for edge, sources in sorted(self._expected.items()):
            for source in sorted(sources):
                received = self._received.get((edge, source), 0)
                known = self._reports.get((edge, source))
                if known is None:
                    return (
                        f"{self._name(edge)}: task {source} did not report how many tuples it sent; {received} arrived"
                    )
                if known[0] != received:
                    return f"{self._name(edge)}: task {source} sent {known[0]} tuples, {received} arrived"
        return None

    def finish(self) -> bool:
        """Return True once, when the batch is complete: every source task has reported, none failed, and all counts
        agree.
        """
        if self._finished or self.upstream_failed or self.shortfall() is not None:
            return False
        self._finished = True
        return True

    def _name(self, edge: int) -> str:
        return self._names.get(edge, f"edge {edge}")

    def _fail(self, problem: str) -> None:
        if self._problem is None:
            self._problem = problem
