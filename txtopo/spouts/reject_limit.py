"""The judgement whether a batch may lose its rejected rows; every executor passes the same one over a whole batch."""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction

from txtopo.core.values import Failure, RejectedRow, cause_of


def too_many_rejected(
    spout_name: str, rejected_max: float, read: int, rejects: Sequence[RejectedRow]
) -> Failure | None:
    """A data failure naming the first reject where more than the share `rejected_max` of `read` records is rejected;
    else None.

    A wrong schema must not commit empty counts. `rejects` stand in source order.
    """
    # As written: 0.29 of 100 records are 29, which binary fractions deny.
    if len(rejects) <= Fraction(str(rejected_max)) * read:
        return None
    first = rejects[0]
    position = f"{first.path}:{first.line}"
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
    """For people: `1,234 of 5,000 records rejected (24.7 %)`."""
    return f"{rejected:,} of {read:,} records rejected ({_percent(Fraction(rejected, read), digits=1)})"


def shown_raw(raw: bytes, chars_max: int = 2000) -> str:
    """Raw bytes of a record as readable text, cut to `chars_max` characters; what is not UTF-8 and NUL as escapes."""
    text = raw[: chars_max * 4].decode("utf-8", "backslashreplace").replace("\0", "\\x00")
    return text if len(text) <= chars_max else text[:chars_max] + "…"


def _percent(share: Fraction, digits: int = 6) -> str:
    text = f"{float(share * 100):.{digits}f}"
    return f"{text.rstrip('0').rstrip('.') if digits > 1 else text} %"
