"""Who runs the processing phase of batches: attempts in, outcomes out."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from txtopo.core.plan import Metadata
from txtopo.core.values import (
    Failure,
    Outcome,
    TransactionAttempt,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Assignment:
    """An attempt handed to the executor."""

    attempt: TransactionAttempt
    metadata: Mapping[str, Metadata]
    """By spout, complete: pieces kept in `plan_part` are put back. A spout that is idle in this batch is missing."""
    dead_letter_max: int = 0
    """So many source records at most are taken out of the batch where a tuple bolt fails on them; 0: none, the attempt
    fails instead.
    """


Tell = Callable[[Outcome], None]
"""Takes an outcome."""


def tell_nobody(outcome: Outcome) -> None:
    """A `Tell` for who waits for all."""


class Executor(Protocol):
    """Runs the processing phase. `process` is called from several threads at once, `cancel` from another."""

    @property
    def broken(self) -> str | None:
        """None, or why this executor will never work again (K11: its JVM is gone); the driver process then has to
        end.
        """

    @property
    def one_by_one(self) -> str | None:
        """None where the attempts of a wave share a job, or why they do not: which bolt looks at other rows. May turn
        from None to a reason, never back.
        """

    def start(self) -> None:
        """Be ready: start Spark, run every bolt once over empty input and compare its fields with those declared.
        Raises TopologyError, BatchDataError.
        """

    def process(self, wave: Sequence[Assignment], tell: Tell = tell_nobody) -> Sequence[Outcome]:
        """Process a wave of attempts and return one outcome for each, in the same order. Blocks. Never raises for
        trouble of a batch or of Spark.

        Each outcome is also told as soon as it counts, in that order, in this thread: attempts that run one after the
        other do not wait for the last one.
        What `tell` raises ends the call.

        Repeating an attempt's plan gives the same results. A wave whose shared work failed is a failure of none: each
        is run again alone, and only
        that counts.
        """

    def try_over_nothing(self) -> Failure | None:
        """Run every plan of the topology over no rows at all; returns what failed, None when all passed (W4). Blocks;
        never raises.

        It proves whether a batch is at fault: what fails without a row fails in every batch. `infrastructure`: nothing
        is known, it is asked again.
        """

    def cancel(self, attempt: TransactionAttempt) -> None:
        """Stop an attempt's work if it runs; its `process` then returns soon with a `suspect` or `infrastructure`
        failure. Idempotent.
        """

    def progress(self, attempt: TransactionAttempt) -> int:
        """A number that grows whenever the attempt makes progress (a finished task); 0 for an unknown attempt."""

    def close(self) -> None:
        """Cancel everything and stop what was started. Safe to repeat."""
