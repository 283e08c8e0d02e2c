"""Text and JSON as Postgres can store them. Characters that it cannot store are escaped, so that no record fails
because of its text (P14, text and numbers that Postgres cannot hold).
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any


def storable(text: str) -> str:
    r"""Return the text with NUL and lone surrogates as backslash escapes: Postgres can store neither.

    >>> storable("a\0b\ud800")
    'a\\0b\\ud800'
    """
    return text.replace("\0", "\\0").encode("utf-8", "backslashreplace").decode("utf-8")


def storable_or_none(text: str | None) -> str | None:
    """Like `storable`; None stays None."""
    return None if text is None else storable(text)


def storable_json(value: Mapping[str, Any]) -> str:
    """Return a JSON object for a jsonb column, with all its texts storable."""
    return json.dumps(_storable_value(value), sort_keys=True)


def _storable_value(value: Any) -> Any:
    if isinstance(value, str):
        return storable(value)
    if isinstance(value, Mapping):
        return {storable(str(key)): _storable_value(one) for key, one in value.items()}
    if isinstance(value, (list, tuple)):
        return [_storable_value(one) for one in value]
    return value
