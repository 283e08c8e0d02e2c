"""What every source does with the records of a planned batch: counts rows, keeps rejected records within limits, and
chooses the fields that are declared now.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from txtopo.core.fields import Fields
from txtopo.core.limits import REJECTED_BYTES_MAX
from txtopo.core.values import RejectedRow
from txtopo.errors import BatchDataError
from txtopo.spouts.formats.format import Emitted
from txtopo.spouts.planned_file import COMPONENT
from txtopo.spouts.reject_limit import rejected_share, shown_raw
from txtopo.topology.components import Tally

if TYPE_CHECKING:
    import pyarrow as pa


REJECT_BYTES_MIN = 64
"""A rejected record counts as at least so many bytes: as an object in memory it has more, and a file may be millions of
lines of one byte.
"""


def only_columns(batch: pa.RecordBatch, chosen: Sequence[int], schema: pa.Schema) -> pa.RecordBatch:
    """Return these columns of a batch, with the schema of the declared fields."""
    import pyarrow as pa

    return pa.RecordBatch.from_arrays([batch.column(at) for at in chosen], schema=schema)


class Keeper:
    """Counts what a part emits and keeps rejected records, within limits."""

    def __init__(self, tally: Tally, *, fail: bool = False) -> None:
        """With `fail`, no record may be rejected."""
        self._tally = tally
        self._fail = fail
        self._first: RejectedRow | None = None
        self._read_before = tally.read
        self._rejected_before = tally.rejected
        self._kept_bytes = 0

    def keep(self, emitted: Emitted) -> None:
        """Keep a rejected record. Raises BatchDataError if rejected records are not allowed or exceed the limit."""
        self._tally.read += len(emitted.rejects) + (emitted.batch.num_rows if emitted.batch is not None else 0)
        if not emitted.rejects:
            return
        self._first = self._first or emitted.rejects[0]
        if self._fail:
            raise _refusal(self._first)
        self._tally.rejects.extend(emitted.rejects)
        self._kept_bytes += sum(max(len(reject.raw), REJECT_BYTES_MIN) for reject in emitted.rejects)
        if self._kept_bytes > REJECTED_BYTES_MAX:
            share = rejected_share(self._tally.rejected - self._rejected_before, self._tally.read - self._read_before)
            raise _refusal(self._first, f"; {share} so far, and more than {REJECTED_BYTES_MAX:,} bytes of them")


def _refusal(reject: RejectedRow, more: str = "") -> BatchDataError:
    position = reject.position
    return BatchDataError(
        f"{position}: {reject.reason}{more}",
        component=COMPONENT,
        position=position,
        detail=shown_raw(reject.raw),
        fault="record that does not parse" if not more else "too many bytes of rejected records",
    )


def chosen_columns(planned: Fields, declared: Fields) -> list[int] | None:
    """Return the columns of the plan's schema that are declared now; None if both schemas are the same. Raises
    BatchDataError for a field that was not planned.
    """
    if planned.names == declared.names and all(
        a.type == b.type for a, b in zip(planned.items, declared.items, strict=True)
    ):
        return None
    for field in declared.items:
        known = planned.get(field.name)
        if known is None or known.type != field.type:
            message = (
                f"the batch was planned with {planned.ddl}, but the topology now declares {field.ddl}; declare "
                f"the planned field again to process it"
            )
            raise BatchDataError(message, component=COMPONENT, fault="other fields than planned")
    return [planned.names.index(name) for name in declared.names]
