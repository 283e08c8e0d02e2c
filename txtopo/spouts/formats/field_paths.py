"""Where the value of a field is in a nested record: the names from outside in."""

from __future__ import annotations

from collections.abc import Mapping

from txtopo.core.fields import Fields
from txtopo.errors import TopologyError

FieldPaths = Mapping[str, tuple[str, ...]]
"""Field -> names from outside in."""


def field_paths(paths: Mapping[str, str | tuple[str, ...]]) -> FieldPaths:
    """Return the paths that a user wrote: a tuple has names from outside in, a text is one name, also with dots in it.
    Raises TopologyError for anything else.
    """
    if not isinstance(paths, Mapping):
        raise TopologyError(f"paths {paths!r} is not a mapping from field to keys, e.g. {{'buyer': ('user', 'id')}}")
    return {name: _keys(name, path) for name, path in paths.items()}


def check_paths(paths: FieldPaths, fields: Fields) -> None:
    """Raise TopologyError for a path of a field that is not declared."""
    unknown = sorted(set(paths) - set(fields.names))
    if unknown:
        raise TopologyError(f"paths has {', '.join(map(repr, unknown))}, which is no declared field")


def _keys(name: object, path: object) -> tuple[str, ...]:
    keys = (path,) if isinstance(path, str) else tuple(path) if isinstance(path, tuple | list) else ()
    if not isinstance(name, str) or not keys or not all(isinstance(key, str) for key in keys):
        raise TopologyError(f"paths: {path!r} of {name!r} is neither a key nor a tuple of keys")
    return keys
