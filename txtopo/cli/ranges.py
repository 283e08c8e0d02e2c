"""Ranges of batches as people type them: 17, 17..42, 17.., ..42, and several of them with commas."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

import click

_RANGE = re.compile(r"(?P<single>[0-9]{1,18})|(?P<first>[0-9]{1,18})?\.\.(?P<last>[0-9]{1,18})?")
_HABIT = re.compile(r"([0-9]{1,18})(?:-|:|\.\.\.|\u2013)([0-9]{1,18})")
Span = tuple[int | None, int | None]
"""First and last txid; None: open at that end."""
if TYPE_CHECKING:
    _OneType = click.ParamType[int]
    _ManyType = click.ParamType[tuple[Span, ...]]
else:
    _OneType = _ManyType = click.ParamType  # Generic only since Click 8.3.


def one_span(text: str) -> Span:
    """Return a single range. Raises click.BadParameter."""
    match = _RANGE.fullmatch(text)
    if match is None:
        habit = _HABIT.fullmatch(text)
        how = f"{habit[1]}..{habit[2]}" if habit else "17, 17..42, 17.. or ..42"
        if "," in text:
            raise click.BadParameter(
                f"{text!r} names several ranges: this command takes one, {how}", param_hint="RANGE"
            )
        raise click.BadParameter(f"{text!r} is no range of batches: write {how}", param_hint="RANGE")
    first, last = (match["single"] or match["first"]), (match["single"] or match["last"])
    span = (int(first) if first else None, int(last) if last else None)
    if span[1] is not None and (span[1] < 1 or span[1] < (span[0] or 1)):
        raise click.BadParameter(f"{text!r} holds no batch", param_hint="RANGE")
    return span


def spans(text: str) -> tuple[Span, ...]:
    """Return ranges separated by commas: 1,5,7..9. Raises click.BadParameter."""
    return tuple(one_span(part.strip()) for part in text.split(","))


def joined(given: tuple[tuple[Span, ...], ...]) -> tuple[Span, ...]:
    """Return the ranges of an argument that may be repeated, as one list."""
    return tuple(span for one in given for span in one)


class Txid(_OneType):
    """One batch by its number, which starts at 1."""

    name = "txid"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> int:
        """Return the txid. Raises click.BadParameter, which says so if a range was typed."""
        text = str(value)
        if text.isascii() and text.isdigit() and len(text) <= 18 and int(text):
            return int(text)
        if re.search(r"[0-9]\s*(?:\.\.|,|-)|\.\.\s*[0-9]", text):
            command = f"{ctx.info_name} takes" if ctx is not None and ctx.info_name else "this command takes"
            self.fail(f"{text!r} names several batches: {command} one, such as 17", param, ctx)
        return self.fail(f"{text!r} is no batch: write its txid, such as 17", param, ctx)


class Txids(_ManyType):
    """Batches: 17, 17..42, 17.., ..42, or several of these with commas."""

    name = "txids"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> tuple[Span, ...]:
        """Return their ranges. Raises click.BadParameter."""
        return value if isinstance(value, tuple) else spans(str(value))


TXID = Txid()
TXIDS = Txids()
