"""The executor of the processing phase: it receives attempts and returns outcomes."""

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
from txtopo.ports.staging import Staging


@dataclass(frozen=True, slots=True, kw_only=True)
class Assignment:
    """An attempt that the executor shall process."""

    attempt: TransactionAttempt
    metadata: Mapping[str, Metadata]
    """spout -> metadata, complete: parts that are stored in `plan_part` are included. A spout that emits nothing in
    this batch is missing.
    """
    dead_letter_max: int = 0
    """Largest number of source records to remove from the batch because a tuple bolt failed on them. 0: none; the
    attempt fails.
    """


Tell = Callable[[Outcome], None]
"""Callback that receives one outcome."""


def tell_nobody(outcome: Outcome) -> None:
    """A `Tell` that does nothing, for callers that use only what `process` returns."""


class Executor(Protocol):
    """Runs the processing phase. `process` is called from several threads at the same time, `cancel` from another
    one.
    """

    @property
    def broken(self) -> str | None:
        """None, or the reason why this executor will never work again (K11: its JVM died). The driver process must then
        end.
        """

    @property
    def one_by_one(self) -> str | None:
        """None if the attempts of a wave share one job; otherwise the reason why they do not: the bolt that depends on
        other rows. It may change from None to a reason, but never back.
        """

    @property
    def waves_proven(self) -> bool:
        """True if no first wave is compared with separate runs of its batches: it was already, or nothing can depend on
        other batches. It never changes back.
        """

    def start(self) -> None:
        """Start Spark, run every bolt once on empty input and compare its fields with the declared ones. Raises
        TopologyError or BatchDataError if a bolt fails or its fields differ.
        """

    def stage_with(self, staging: Staging) -> None:
        """Called by each leader before it processes: results of one batch that are too large for the driver are stored
        by tasks with `staging`, if this has a place. Without a call they are refused.
        """

    def process(self, wave: Sequence[Assignment], tell: Tell = tell_nobody) -> Sequence[Outcome]:
        """Process a wave of attempts. Returns one outcome for each, in the same order. Blocks. Problems of a batch or
        of Spark are outcomes, never exceptions.

        `tell` also receives each outcome as soon as it is final, in that order and in this thread. So attempts that run
        one after the other do not wait for the last one. An exception of `tell` ends the call.

        Processing the same plan again gives the same results. If work that a wave shares fails, no attempt has failed:
        they are run again in smaller waves or alone, and only a wave that succeeds or an attempt alone counts (W6, only
        a batch that runs alone has a kind of failure).
        """

    def try_over_nothing(self) -> Failure | None:
        """Run every plan of the topology on input without rows. Returns what failed, or None if nothing did. Blocks;
        never raises.

        This shows whether a batch is at fault: what fails without rows fails in every batch (W4, before a batch is
        quarantined, the failed step is tried on good input). A failure of kind `infrastructure` proves nothing; the
        caller tries again.
        """

    def cancel(self, attempt: TransactionAttempt) -> None:
        """Cancel an attempt if it is running. Its `process` then soon returns a `suspect` or `infrastructure` failure.
        Idempotent.
        """

    def progress(self, attempt: TransactionAttempt) -> int:
        """Return a number that increases whenever the attempt makes progress (a task finished); 0 for an unknown
        attempt.
        """

    def close(self) -> None:
        """Cancel all attempts and stop everything that `start` started. May be repeated."""
