"""Parses the values that people write for settings: a number, a flag, text, a list or pairs. ValueError says what is
wrong.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

_SCALES: dict[str, dict[str, float]] = {
    "number": {"": 1},
    "seconds": {"": 1, "ms": 0.001, "s": 1, "m": 60, "h": 3600, "d": 86_400},
    "bytes": {"": 1, "kib": 1024, "mib": 1024**2, "gib": 1024**3},
}
_EXAMPLES = {"number": "4", "seconds": '30 or "5m"', "bytes": '268435456 or "256MiB"'}


def measure(kind: str, raw: object) -> float:
    """Return a number; `kind` is number, seconds ("5m") or bytes ("256MiB", whole), and so is the result."""
    if isinstance(raw, int | float) and not isinstance(raw, bool):
        value: float = raw
    else:
        match = re.fullmatch(r"(\d+(?:\.\d+)?)\s*([a-zA-Z]*)", raw.strip()) if isinstance(raw, str) else None
        scale = _SCALES[kind].get(match[2].lower()) if match else None
        if match is None or scale is None:
            raise ValueError(f"must be a number such as {_EXAMPLES[kind]}, not {raw!r}")
        value = float(match[1]) * scale
    if value != value:  # NaN would pass every comparison below.
        raise ValueError("must be a number, not NaN")
    if kind == "seconds":
        return float(value)
    if value != int(min(max(value, -(2.0**62)), 2.0**62)):
        raise ValueError(f"must be a whole number, not {raw!r}")
    return int(value)


_YES = {"1": True, "true": True, "yes": True, "on": True, "0": False, "false": False, "no": False, "off": False}


def flag(raw: object) -> bool:
    """Return True or False, from the words of TOML, shells and people."""
    value = raw if isinstance(raw, bool) else _YES.get(str(raw).strip().lower())
    if value is None:
        raise ValueError(f"must be true or false, not {raw!r}")
    return value


def text_of(raw: object) -> str:
    """Return text that is not empty, without spaces around it."""
    if not isinstance(raw, str) or not raw.strip():
        raise ValueError("must be text that is not empty")
    return raw.strip()


def texts_of(raw: object) -> list[str]:
    """Return a list of texts; a single text is not a list."""
    if isinstance(raw, str) or not isinstance(raw, Sequence):
        raise ValueError('must be a list such as ["helpers.py"]')
    return [text_of(item) for item in raw]


def pairs_of(raw: object) -> dict[str, str]:
    """Return Spark's settings: from a table, or from texts `name=value`."""
    if isinstance(raw, Mapping):
        pairs = {str(key): _spelled(value) for key, value in _leaves(raw)}
    else:
        split = [item.partition("=") for item in texts_of(raw)]
        wrong = [key for key, sign, _ in split if not (key and sign)]
        if wrong:
            raise ValueError(f"must be written name=value: {', '.join(wrong)}")
        pairs = {key: value for key, _, value in split}
    foreign = [key for key in pairs if not key.startswith("spark.")]
    if foreign:
        raise ValueError(f"holds Spark's settings, whose names begin with spark.: {', '.join(foreign)}")
    return pairs


def _leaves(table: Mapping[Any, object], prefix: str = "") -> Iterator[tuple[str, object]]:
    for key, value in table.items():
        if isinstance(value, Mapping):
            yield from _leaves(value, f"{prefix}{key}.")
        else:
            yield f"{prefix}{key}", value


def _spelled(value: object) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    if not isinstance(value, str | int | float):
        raise ValueError(f"holds {value!r}, which is neither text nor a number")
    return str(value)
