"""Values as plain text: aligned tables, thin spaces between thousands, durations with a unit, times in UTC with Z, no
escape codes.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from datetime import UTC, datetime

from txtopo.reports.model import FailureCounts

NOTHING = "-"
"""Shown if there is no value."""
THIN_SPACE = "\N{THIN SPACE}"


def table(header: Sequence[str], rows: Sequence[Sequence[str]], *, left: Sequence[str] = ()) -> str:
    """Return columns two blanks apart, numbers right-aligned, the columns in `left` left-aligned."""
    lines = [[clean(cell) for cell in line] for line in (header, *rows)]
    widths = [max(len(line[column]) for line in lines) for column in range(len(header))]
    aligned = ["<" if name in left else ">" for name in header]
    return "\n".join(
        "  ".join(f"{cell:{side}{width}}" for cell, side, width in zip(line, aligned, widths, strict=True)).rstrip()
        for line in lines
    )


def count(value: int) -> str:
    """Return 12 400 with a thin space."""
    return f"{value:,}".replace(",", THIN_SPACE)


def count_or_nothing(value: int | None) -> str:
    """Return the same, or a dash if the number is unknown."""
    return NOTHING if value is None else count(value)


def counted(value: int, noun: str) -> str:
    """Return 1 batch, 2 batches, 3 source rows."""
    if value == 1:
        return f"1 {noun}"
    return f"{count(value)} {noun}es" if noun.endswith("ch") else f"{count(value)} {noun}s"


def batches_named(txids: Sequence[int]) -> str:
    """Return batch 7; batches 7, 9."""
    return f"batch{'es' if len(txids) > 1 else ''} {', '.join(map(str, txids))}"


def failures_text(failures: FailureCounts) -> str:
    """Return each kind separately: they have different meanings."""
    kinds = (
        f"{count(failures.data)} data, {count(failures.infrastructure)} infrastructure, "
        f"{count(failures.suspect)} suspect"
    )
    kinds += f", {count(failures.halt)} halt" if failures.halt else ""
    return f"{counted(failures.total, 'failed attempt')}{f': {kinds}' if failures.total else ''}"


def clip(text: str, width: int | None) -> str:
    """Return `text` without control characters in at most `width` characters, with an ellipsis if it was cut; None: the
    whole text.
    """
    text = clean(text)
    return text if width is None or len(text) <= width else text[: max(0, width - 1)] + "…"


def size(value: int) -> str:
    """Return bytes in binary units: 512 B, 1.5 MiB."""
    if value < 1024:
        return f"{value} B"
    amount = value / 1024
    for unit in ("KiB", "MiB", "GiB"):
        if amount < 1023.95:
            return f"{amount:.1f} {unit}"
        amount /= 1024
    return f"{amount:.1f} TiB"


def duration(seconds: float) -> str:
    """Return 350 ms, 1.85 s, 3 min 20 s, 2 h 5 min, 3 d 4 h. After a clock went back: 0."""
    seconds = max(0.0, seconds)
    if seconds < 0.9995:
        return f"{seconds * 1000:.0f} ms"
    if seconds < 59.995:
        return f"{seconds:.2f} s"
    whole = round(seconds)
    if whole < 3600:
        return f"{whole // 60} min {whole % 60} s"
    if whole < 86_400:
        return f"{whole // 3600} h {whole % 3600 // 60} min"
    return f"{whole // 86_400} d {whole % 86_400 // 3600} h"


def instant(when: datetime) -> str:
    """Return 2026-11-21T07:44:01.235Z: always UTC, always milliseconds."""
    return when.astimezone(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


_CONTROL = re.compile(
    r"[\x00-\x1f\x7f-\x9f\u061c\u200b-\u200f\u2028-\u202e\u2060-\u206f\ud800-\udfff\ufeff\ufff9-\ufffb\U000e0000-\U000e007f]"
)
"""Characters that move the cursor, change the direction of writing, are invisible, or that no terminal can encode."""


def clean(text: str, *, lines: bool = False) -> str:
    """Return `text` with control characters escaped: text from files and tracebacks must not control the reader's
    terminal.
    """
    keep = "\n\t" if lines else ""
    return _CONTROL.sub(
        lambda match: match[0] if match[0] in keep else match[0].encode("unicode_escape").decode("ascii"), text
    )


def place_of(component: str | None, position: str | None, message: str | None) -> str:
    """Return " in COMPONENT at POSITION", as far as they are known and the message does not contain the position;
    otherwise an empty text.
    """
    said = position if position and position not in (message or "") else None
    place = " at ".join(part for part in (component, said) if part)
    return f" in {place}" if place else ""
