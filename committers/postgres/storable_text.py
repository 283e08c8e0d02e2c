"""Text and JSON as Postgres can hold them: what it cannot store is made readable, so that no record fails for its words
(P14).
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any


def storable(text: str) -> str:
    r"""The text with NUL and lone surrogates as backslash escapes: neither has a place in Postgres.

    >>> storable("a\0b\ud800")
    'a\\0b\\ud800'
    """
    return text.replace("\0", "\\0").encode("utf-8", "backslashreplace").decode("utf-8")


def storable_or_none(text: str | None) -> str | None:
    """As `storable`; None stays NULL."""
    return None if text is None else storable(text)


def storable_json(value: Mapping[str, Any]) -> str:
    """A JSON object for a jsonb column, its texts made storable."""
    return json.dumps(_storable_value(value), sort_keys=True)


def _storable_value(value: Any) -> Any:
    if isinstance(value, str):
        return storable(value)
    if isinstance(value, Mapping):
        return {storable(str(key)): _storable_value(one) for key, one in value.items()}
    if isinstance(value, (list, tuple)):
        return [_storable_value(one) for one in value]
    return value
