"""Custom committer bolts: an executor half computes rows in parallel, a driver half applies them in txid order."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, ClassVar, Protocol

from txtopo.core.fields import Fields, parse_fields
from txtopo.core.values import TransactionAttempt
from txtopo.errors import TopologyError, unreachable
from txtopo.topology.check_component import check_code_runs, check_config, check_copied
from txtopo.topology.committer_bolt import LATER, Aggregation, CommitterBolt, Later
from txtopo.topology.describe import class_name, digest_of, streams_json, subscription_json
from txtopo.topology.keyed_table import KeyedTable
from txtopo.topology.outputs import parse_outputs, parse_result
from txtopo.topology.streams import DEFAULT_STREAM, Stream, Tuple
from txtopo.topology.tuple_bolts import BatchOutputCollector, TopologyContext

if TYPE_CHECKING:
    from txtopo.topology.components import CommitterComponent


_IN_TASKS = ("prepare", "execute", "finish_batch")
"""What a task calls of a BatchCommitter while a batch is processed."""


class CommitTransaction(Protocol):
    """The single database transaction of a batch, for use in a driver half: it can execute statements, but not commit
    or roll back (P9).
    """

    @property
    def attempt(self) -> TransactionAttempt:
        """The attempt being committed."""

    def execute(self, statement: str, parameters: Sequence[Any] | Mapping[str, Any] = ()) -> Sequence[Sequence[Any]]:
        """Run one statement with bound parameters (`%s`, `%(name)s`) and return its rows; empty if it returns none.

        Raises BatchDataError, naming the committer, if the statement fails because of data or would end the database
        transaction.
        """

    def rows_of(self, table: KeyedTable, keys: Iterable[Sequence[Any]]) -> Mapping[tuple[Any, ...], tuple[Any, ...]]:
        """Return the values of the rows with these keys, by key, as they are in this database transaction: also what
        other committers have changed in it. A key that has no row is not in it.

        Raises BatchDataError, naming the committer, if the table cannot be read.
        """


class CommitCollector(Protocol):
    """Emits tuples in the commit phase, to downstream bolts and committer bolts, which run in the commit of the same
    batch.
    """

    def emit(self, values: Sequence[Any], stream: str = DEFAULT_STREAM) -> None:
        """Emit one tuple to the bolts and committer bolts that read `stream`."""


class BatchCommitter(CommitterBolt):
    """A custom committer bolt (Storm's committer IBatchBolt).

    The executor half - `prepare`, `execute`, `finish_batch` - runs in the processing phase, in a new copy for each
    attempt and task, and emits result rows. The driver half, `commit`, runs in the commit phase, strictly in txid
    order, inside the database transaction that also writes the ledger: what it does through `transaction` happens
    exactly once. The executor half must emit the same rows each time it runs over the same batch.

    A committer downstream of another committer runs both halves in the driver, during the commit of its batch, because
    only then has it all its tuples.
    """

    committer_kind: ClassVar[str] = "code"
    takes_tuples: ClassVar[bool] = True
    runs_code: ClassVar[bool] = True
    result: ClassVar[Sequence[str]] = ()
    """Fields of the rows between the two halves, such as `["word string", "n bigint"]`; empty: the fields of its only
    input.
    """
    outputs: ClassVar[Sequence[str | Stream]] = ()
    """Streams that `commit` emits to downstream bolts and committers."""
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
        """Called once before the first tuple; stores the collector as `self.collector`."""
        self.collector = collector

    def execute(self, tup: Tuple) -> None:
        """Process one tuple. By default it becomes a result row: the values of the fields in `result`, by name, or all
        values if `result` is empty.
        """
        if self._result_names is None and self.result:
            self._result_names = parse_fields(", ".join(self.result)).names
        self.collector.emit(tup.values if self._result_names is None else [tup[name] for name in self._result_names])

    def finish_batch(self) -> None:
        """Called when all tuples of the batch have arrived in this task."""

    def runs_code_in_tasks(self) -> bool:
        """Return False if only `commit` is defined: what the tasks call is this class's own."""
        return any(
            name in vars(self) or getattr(type(self), name) is not getattr(BatchCommitter, name) for name in _IN_TASKS
        )

    @abstractmethod
    def commit(self, transaction: CommitTransaction, rows: Sequence[Tuple], collector: CommitCollector) -> int | None:
        """Apply the result rows of all tasks, which are in canonical order. Returns the number of rows written; None:
        all of them.
        """

    def aggregation(self) -> Aggregation:
        """Not available: the executor half is code."""
        unreachable("a BatchCommitter has no aggregation")

    def required_fields(self) -> tuple[str, ...]:
        """Empty by default."""
        return ()

    def check_fields(self, fields: Fields) -> None:
        """Accepts any input fields. If `execute` is not overridden, raises TopologyError unless the input has the
        fields of `result`.
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
        """Return the class name and the declared result; the code is covered by the code hash of the module."""
        return {"type": type(self).__qualname__, "result": list(self.result)}

    def cannot(self) -> Mapping[Later, str]:
        return dict.fromkeys(LATER, "only its own code knows what it writes")

    def check_component(self, who: str) -> None:
        """Raise TopologyError if its settings are no JSON values, its code would never run, or it cannot be copied."""
        check_config(who, self.config)
        check_code_runs(who, self)
        check_copied(who, self)

    def check_input_fields(self, who: str, fields: Sequence[Fields]) -> None:
        """Raise TopologyError if its result rows have no single declaration."""
        # Without declared fields, its result rows are the tuples of its inputs, unchanged.
        if not self.result and any(other != fields[0] for other in fields[1:]):
            raise TopologyError(
                f'{who} reads tuples with different fields: declare result = ["word string", …], '
                f"the rows between its halves"
            )

    def declared_outputs(self, who: str) -> Mapping[str, Stream]:
        """Return `outputs`, parsed. Raises TopologyError also if `result` is declared wrongly."""
        parse_result(who, self.result)
        return parse_outputs(who, self.outputs)

    def declared_results(self, inputs: Fields) -> Fields:
        """Return the fields of `result`; without them those of the input."""
        return parse_fields(", ".join(self.result)) if self.result else inputs

    def describe_component(self, component: CommitterComponent) -> Mapping[str, Any]:
        """Return inputs, outputs, result rows, class, settings and a digest of its attributes."""
        return {
            "inputs": [subscription_json(subscription) for subscription in component.inputs],
            "outputs": streams_json(component.outputs),
            "rows": component.result_fields.ddl,
            "class": class_name(self),
            "config": dict(self.config),
            "attributes": digest_of(self),
        }
