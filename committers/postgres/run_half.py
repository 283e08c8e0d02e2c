"""What a commit run needs of a committer on Postgres (R20 to R22)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

from sqlalchemy import Connection

from txtopo.committers.postgres.transactions import Held
from txtopo.core.values import CommitterCount, CommitterResult


@dataclass(frozen=True, slots=True, kw_only=True)
class PreparedRun:
    """What was made of the results before the lock (R21)."""

    trips: int
    """At most so many round trips follow (R24)."""
    values: Mapping[str, Any] = field(default_factory=dict)
    """Values of a statement."""
    texts: tuple[bytes, ...] = ()
    """What COPY sends."""


class RunHalf(Protocol):
    """The part of a committer's half that applies several consecutive batches together."""

    @property
    def tables(self) -> Sequence[Mapping[str, Any]]:
        """Its tables, as `txtopo.run_obstacles` reads them."""

    def prepare_run(self, results: Mapping[int, CommitterResult], attempts: Mapping[int, int]) -> PreparedRun:
        """See LedgerRunSession.prepare_run."""

    def apply_run(
        self,
        connection: Connection,
        topology: str,
        results: Mapping[int, CommitterResult],
        prepared: PreparedRun,
        held: Held | None,
    ) -> Mapping[int, CommitterCount]:
        """See LedgerRunSession.apply_run. `prepared` is what `prepare_run` made of the same results. `held` is a
        delayed statement, which is sent first.
        """
