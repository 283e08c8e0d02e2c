"""A custom committer bolt: an executor half that computes rows in parallel, and a driver half that applies them in
turn.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar, Protocol

from txtopo.core.fields import Fields, parse_fields
from txtopo.core.values import TransactionAttempt
from txtopo.errors import TopologyError, unreachable
from txtopo.topology.components import Aggregation, CommitterBolt
from txtopo.topology.streams import DEFAULT_STREAM, Stream, Tuple
from txtopo.topology.tuple_bolts import BatchOutputCollector, TopologyContext


class CommitTransaction(Protocol):
    """The one database transaction of a batch, as a driver half sees it: statements, but never its end (P9)."""

    @property
    def attempt(self) -> TransactionAttempt:
        """The attempt being committed."""

    def execute(self, statement: str, parameters: Sequence[Any] | Mapping[str, Any] = ()) -> Sequence[Sequence[Any]]:
        """Run one statement with bound parameters (`%s`, `%(name)s`) and return its rows, none where it has none.

        Raises BatchDataError, naming the committer, where the statement fails on data or would end the database
        transaction.
        """


class CommitCollector(Protocol):
    """Emits in the commit phase, to bolts and committer bolts downstream, which run in the same turn."""

    def emit(self, values: Sequence[Any], stream: str = DEFAULT_STREAM) -> None:
        """Emit one tuple to the bolts and committer bolts that read `stream`."""


class BatchCommitter(CommitterBolt):
    """A custom committer bolt (Storm's committer IBatchBolt).

    The executor half - `prepare`, `execute`, `finish_batch` - runs in the processing phase, one fresh copy for each
    attempt and task, and emits
    result rows. The driver half, `commit`, runs in the commit phase, strictly in txid order, inside the database
    transaction that also writes the
    ledger: what it does through `transaction` happens exactly once. Two runs over one batch must give the same rows.

    A committer downstream of another one runs both halves in the turn of its batch, in the driver: only then are all
    its tuples there.
    """

    takes_tuples: ClassVar[bool] = True
    result: ClassVar[Sequence[str]] = ()
    """Fields of the rows between its halves, `["word string", "n bigint"]`; none: those of its one input, as they come.
    """
    outputs: ClassVar[Sequence[str | Stream]] = ()
    """What `commit` emits to bolts and committers downstream."""
    config: ClassVar[Mapping[str, Any]] = {}
    _result_names: tuple[str, ...] | None = None
    """Names of the fields of `result`, in the copies that run."""

    def prepare(
        self,
        config: Mapping[str, Any],
        context: TopologyContext,
        collector: BatchOutputCollector,
        attempt: TransactionAttempt,
    ) -> None:
        """Called once before the first tuple; keeps the collector as `self.collector`."""
        self.collector = collector

    def execute(self, tup: Tuple) -> None:
        """Take in one tuple; by default it becomes a result row: its values of the fields in `result` by name, or all
        of them.
        """
        if self._result_names is None and self.result:
            self._result_names = parse_fields(", ".join(self.result)).names
        self.collector.emit(tup.values if self._result_names is None else [tup[name] for name in self._result_names])

    def finish_batch(self) -> None:
        """All tuples of the batch have come to this task."""

    @abstractmethod
    def commit(self, transaction: CommitTransaction, rows: Sequence[Tuple], collector: CommitCollector) -> int | None:
        """Apply the result rows of all tasks, in their canonical order. Returns how many were written; None: all of
        them.
        """

    def aggregation(self) -> Aggregation:
        """It has none: its executor half is its own code."""
        unreachable("a BatchCommitter has no aggregation")

    def required_fields(self) -> tuple[str, ...]:
        """None by default."""
        return ()

    def check_fields(self, fields: Fields) -> None:
        """Takes whatever its inputs declare; without an `execute` of its own they must have the fields of `result`.
        Raises TopologyError.
        """
        if self.result and type(self).execute is BatchCommitter.execute:
            # Types are compared with each value: an int is a bigint, too.
            missing = [name for name in parse_fields(", ".join(self.result)).names if fields.get(name) is None]
            if missing:
                raise TopologyError(
                    f"its result rows are {', '.join(self.result)}, and its input has {fields.ddl}: there is no "
                    f"{', '.join(missing)}; "
                    "write an `execute` that emits result rows"
                )

    def describe(self) -> Mapping[str, Any]:
        """Its class and what it declares; its code is covered by the module's hash."""
        return {"type": type(self).__qualname__, "result": list(self.result)}
