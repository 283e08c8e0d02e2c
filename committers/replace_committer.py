"""`ReplaceCommitter`: keeps the rows of the last batch of each partition in a table, and every row in a log."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

from txtopo.committers.upsert_committer import UpsertCommitter
from txtopo.errors import TopologyError


class ReplaceCommitter(UpsertCommitter):
    """Keeps the rows of the last batch that has rows of a partition, such as a day, in `table`: a batch replaces the
    partitions that it has rows of, as a whole. All rows, also earlier ones, are in `<table>_log`, with their batch.

    `partition` is a field, or several; a NULL in one of them fails the batch. A redo has the place of the batch that it
    redoes, so it does not replace what a later batch has replaced. If a redo has no rows of a partition any more, the
    rows of the batch before are back.

    Raises TopologyError if a name is not valid.

        >>> ReplaceCommitter("stock", partition="day").keys
        ('day',)
    """

    committer_kind: ClassVar[str] = "replace"
    whole: ClassVar[bool] = True

    def __init__(self, table: str, *, partition: str | Sequence[str]) -> None:
        fields = (partition,) if isinstance(partition, str) else tuple(partition)
        if not fields:
            raise TopologyError(f"ReplaceCommitter({table!r}): partition names at least one field")
        super().__init__(table, fields)

    def describe(self) -> Mapping[str, Any]:
        return {"kind": "replace", "table": self.table, "keys": list(self.keys)}
