"""`AppendCommitter`: adds each row of a batch to a table, with the batch that it is of."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

from txtopo.committers.table_names import check_columns, split_table
from txtopo.core.fields import Fields
from txtopo.errors import TopologyError, unreachable
from txtopo.topology.committer_bolt import Aggregation, CommitterBolt, Later
from txtopo.topology.components import CommitterComponent
from txtopo.topology.describe import subscription_json

ROW_COLUMNS = ("txid", "attempt", "n")
"""Columns in front of the fields: the batch, its attempt, and the number of the row in it, from 1."""


class AppendCommitter(CommitterBolt):
    """Adds every row that it reads to `table`: each exactly once, in the database transaction of its batch.

    `table` is `name` (in schema public) or `schema.name`; txtopo creates it, or checks the one that is there, which
    must be empty at first. Its columns are `txid`, `attempt` and `n`, then the fields of the input. `n` numbers the
    rows of a batch from 1, in an order that is the same in every attempt: by all fields, ascending, NULL last. All
    types are stored exactly, floats too.

    If a batch is recomputed, its rows are deleted, and the new batch adds its own. `txtopo audit` compares the rows of
    each batch with what was committed.

    Raises TopologyError if the name of the table is not valid, or if a field is called like a column in front.

        >>> AppendCommitter("log.visits").table
        'log.visits'
    """

    committer_kind: ClassVar[str] = "append"
    takes_tuples: ClassVar[bool] = True
    commits_in_runs: ClassVar[bool] = True
    can_be_staged = True
    contributions: bool = True
    front: ClassVar[tuple[str, ...]] = ROW_COLUMNS
    """Columns in front of the fields."""

    def __init__(self, table: str) -> None:
        self.schema: str
        self.name: str
        self.schema, self.name = split_table(type(self).__name__, table)

    @property
    def table(self) -> str:
        """Schema and name of the table."""
        return f"{self.schema}.{self.name}"

    @property
    def rows_table(self) -> str:
        """Name of the table that gets the rows, in the same schema."""
        return self.name

    def aggregation(self) -> Aggregation:
        """Not available: its executor half passes rows on unchanged."""
        unreachable("an AppendCommitter has no aggregation")

    def runs_code_in_tasks(self) -> bool:
        """Return False: no code of the user sees its tuples."""
        return False

    def required_fields(self) -> tuple[str, ...]:
        """Empty: it stores whatever fields its input has."""
        return ()

    def check_fields(self, fields: Fields) -> None:
        check_columns(self, fields.names, ROW_COLUMNS)

    def check_input_fields(self, who: str, fields: Sequence[Fields]) -> None:
        if any(other != fields[0] for other in fields[1:]):
            raise TopologyError(f"{who} reads streams with different fields, and its table has one list of columns")

    def declared_results(self, inputs: Fields) -> Fields:
        return inputs

    def cannot(self) -> Mapping[Later, str]:
        return {
            "audit by key": "its rows are compared with what was committed, by batch",
            "trace": f"column txid of {self.schema}.{self.rows_table} says the batch of a row",
        }

    def describe(self) -> Mapping[str, Any]:
        return {"kind": "append", "table": self.table}

    def describe_component(self, component: CommitterComponent) -> Mapping[str, Any]:
        return {"inputs": [subscription_json(one) for one in component.inputs]}

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.table!r})"
