"""Metadata as JSON: checks that the decision of a coordinator half will be read back from storage exactly as it was
written (STORM-2675).
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from txtopo.errors import BatchDataError


def json_value(value: object, what: str, component: str) -> Any:
    """Return the value as it will be read back: tuples become lists. Raises BatchDataError that names the place of a
    value that JSON cannot represent.

    >>> json_value({"range": (0, 2)}, "metadata", "words")
    {'range': [0, 2]}
    """
    match value:
        case None | bool() | str():
            return value
        case int():
            return int(value)
        case float() if math.isfinite(value):
            return float(value)
        case list() | tuple():
            return [json_value(item, f"{what}[{at}]", component) for at, item in enumerate(value)]
        case Mapping():
            for key in value:
                if not isinstance(key, str):
                    raise BatchDataError(f"{what} has the key {key!r}: keys must be text", component=component)
            return {str(key): json_value(item, f"{what}[{key!r}]", component) for key, item in value.items()}
        case _:
            raise BatchDataError(
                f"{what} is {_shown(value)}: metadata must be JSON (text, finite numbers, true and false, lists, "
                f"dicts)",
                component=component,
            )


def stored_metadata(value: object, what: str, component: str) -> Any:
    """Do the same for the complete metadata of a batch, which must not be None: None means that there is no
    metadata.
    """
    if value is None:
        raise BatchDataError(f"{what} is None: return {{}} where there is nothing to remember", component=component)
    return json_value(value, what, component)


def _shown(value: object) -> str:
    text = repr(value)
    return f"{text if len(text) <= 80 else text[:80] + '…'} of type {type(value).__name__}"
