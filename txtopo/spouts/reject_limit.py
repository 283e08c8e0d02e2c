"""The check whether a batch has too many rejected rows; every executor applies the same one to a whole batch."""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction

from txtopo.core.values import Failure, RejectedRow, cause_of


def too_many_rejected(
    spout_name: str, rejected_max: float, read: int, rejects: Sequence[RejectedRow]
) -> Failure | None:
    """Return a data failure that names the first rejected row if more than the share `rejected_max` of `read` records
    is rejected; otherwise None.

    With a wrong schema, empty counts would be committed. `rejects` are in source order.
    """
    # Calculated in decimals, as the setting is written: 0.29 of 100 records are 29, which binary fractions do not give.
    if len(rejects) <= Fraction(str(rejected_max)) * read:
        return None
    first = rejects[0]
    position = first.position
    message = (
        f"{position}: {first.reason}; {rejected_share(len(rejects), read)}, "
        f"at most {_percent(Fraction(str(rejected_max)))} are allowed (rejected_max)"
    )
    return Failure(
        kind="data",
        message=message,
        component=spout_name,
        position=position,
        detail=shown_raw(first.raw),
        cause=cause_of(spout_name, "too many rejected records", None),
        of_whole=True,
    )


def rejected_share(rejected: int, read: int) -> str:
    """Return the share as text: `1,234 of 5,000 records rejected (24.7 %)`."""
    return f"{rejected:,} of {read:,} records rejected ({_percent(Fraction(rejected, read), digits=1)})"


def shown_raw(raw: bytes, chars_max: int = 2000) -> str:
    """Return raw bytes of a record as readable text of at most `chars_max` characters; NUL and bytes that are not UTF-8
    are escaped.
    """
    text = raw[: chars_max * 4].decode("utf-8", "backslashreplace").replace("\0", "\\x00")
    return text if len(text) <= chars_max else text[:chars_max] + "…"


def _percent(share: Fraction, digits: int = 6) -> str:
    text = f"{float(share * 100):.{digits}f}"
    return f"{text.rstrip('0').rstrip('.') if digits > 1 else text} %"
