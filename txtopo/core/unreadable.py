"""Decides about a file that cannot be read at this moment, or tasks that Spark loses: wait, but not without a limit.
Pure.
"""

from __future__ import annotations

from dataclasses import replace
from operator import itemgetter
from typing import Literal

from txtopo.core import limits
from txtopo.core.state import Batch, Carried, Phase, State
from txtopo.core.values import Failure

Judged = Literal["waits", "data", "halt"]
SPARK = ""
"""Used in place of a source if the platform that runs the tasks failed, without a file or spout."""


def judged(state: State, batch: Batch, failure: Failure) -> tuple[Batch, Failure, Judged]:
    """Return the state after one more failure of kind infrastructure of this batch.

    A file that fails this often while others are read is at fault itself; if nothing else is left to read, this cannot
    be decided, and the topology halts.
    """
    batch = replace(batch, other_failures=batch.other_failures + 1)
    source = failure.position or failure.component or SPARK
    first = batch.unread == 0 or batch.unread_file != source
    batch = replace(
        batch,
        unread=1 if first else batch.unread + 1,
        unread_file=source,
        read_before=state.read if first else batch.read_before,
    )
    if batch.unread < limits.SOURCE_TRIES_MAX:
        return batch, failure, "waits"
    if failure.position is not None and state.read > batch.read_before:
        words = f"{failure.message} (the same again and again, while other batches could be read)"
        return replace(batch, data_failures=batch.unread), replace(failure, kind="data", message=words), "data"
    if _nothing_can_tell(state, batch):
        left = (
            "no later batch can be committed before it"
            if state.rules.opaque
            else f"nothing else is left that could be {'processed' if source == SPARK else 'read'}"
        )
        words = f"{failure.message} ({batch.unread} times in a row, and {left})"
        return batch, replace(failure, kind="halt", message=words), "halt"
    return batch, failure, "waits"


def _nothing_can_tell(state: State, batch: Batch) -> bool:
    """Return True if this run will read nothing more that could show whether the batch or its source is at fault."""
    if state.rules.opaque:
        # Each of its failures discards all later batches: they would be read again and again, and never committed.
        return state.has_end
    others = (other for other in state.batches.values() if other.plan.txid != batch.plan.txid)
    return state.exhausted and all(other.is_ready or other.unread >= limits.SOURCE_TRIES_MAX for other in others)


def waiting_for(state: State) -> str | None:
    """Return what cannot be read, for `status`: for the lowest such batch; None if nothing of this kind is waited
    for.
    """
    waiting: dict[int, Batch | Carried] = {txid: state.carried[txid] for txid in state.owed & state.carried.keys()}
    waiting |= {
        txid: batch for txid, batch in state.batches.items() if batch.phase in (Phase.PLANNED, Phase.PROCESSING)
    }
    for txid, batch in sorted(waiting.items(), key=itemgetter(0)):
        if batch.unread and batch.last_failure is not None:
            what = "the tasks" if batch.unread_file == SPARK else "the source"
            return (
                f"{what} of batch {txid}: {batch.last_failure.message} (tried {batch.unread} "
                f"{'time' if batch.unread == 1 else 'times'})"
            )
    return None
