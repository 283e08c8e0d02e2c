"""Ranges of batches as people type them: 17, 17..42, 17.., ..42, and several of them with commas."""

from __future__ import annotations

import re

import click

_RANGE = re.compile(r"(?P<single>[0-9]{1,18})|(?P<first>[0-9]{1,18})?\.\.(?P<last>[0-9]{1,18})?")
Span = tuple[int | None, int | None]
"""First and last txid; None: open at that end."""


def one_span(text: str) -> Span:
    """A single range. Raises click.BadParameter."""
    match = _RANGE.fullmatch(text)
    if match is None:
        raise click.BadParameter(f"{text!r} is no range of batches: write 17, 17..42, 17.. or ..42", param_hint="RANGE")
    first, last = (match["single"] or match["first"]), (match["single"] or match["last"])
    span = (int(first) if first else None, int(last) if last else None)
    if span[1] is not None and (span[1] < 1 or span[1] < (span[0] or 1)):
        raise click.BadParameter(f"{text!r} holds no batch", param_hint="RANGE")
    return span


def spans(text: str) -> tuple[Span, ...]:
    """Ranges with commas between them: 1,5,7..9. Raises click.BadParameter."""
    return tuple(one_span(part.strip()) for part in text.split(","))
