"""The places by the scheme of a path: which one a path is of."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from typing import Any

from txtopo.errors import TopologyError
from txtopo.spouts.places.local_place import LocalPlace
from txtopo.spouts.places.place import FilePlace

_SCHEME = re.compile(r"(jdbc|kafka|[A-Za-z][A-Za-z0-9+.-]+(?=:/)):")
"""A name followed by `:/`, as in `s3://…` and `file:/…`. `./s3:/…` is a folder of that name."""


def place_of(path: str | os.PathLike[str]) -> FilePlace:
    """Return the place that a user's path means. Raises TopologyError for a path that none reads."""
    text = os.fspath(path)
    if not isinstance(text, str) or not text or "\0" in text:
        raise TopologyError(f"FileSpout: path {path!r} is not a folder, file or pattern")
    scheme = _SCHEME.match(text)
    return LocalPlace(_local_path(text)) if scheme is None else _of_scheme(text, scheme[1], scheme.end())


def planned_place(file: Mapping[str, Any]) -> FilePlace:
    """Return the place of a file in a plan."""
    return LocalPlace(str(file["path"]))


def _of_scheme(text: str, scheme: str, behind: int) -> FilePlace:
    remedy = (
        f"write {'/' + text[behind:].lstrip('/')!r}"
        if scheme.lower() == "file"
        else "mount it, or write a custom spout (docs/spouts.md)"
    )
    raise TopologyError(
        f"FileSpout: path {text!r} is a URL of scheme {scheme}; FileSpout reads files of this machine or of a "
        f"mounted file system: {remedy}"
    )


def _local_path(text: str) -> str:
    """Return the absolute path of files on this machine or on a mounted file system."""
    if text.startswith("~"):
        expanded = os.path.expanduser(text)  # noqa: PTH111
        if expanded.startswith("~"):
            raise TopologyError(
                f"FileSpout: path {text!r} names the home of an unknown user; a folder of that name is './{text}'"
            )
        text = expanded
    return os.path.abspath(text)  # noqa: PTH100 - links stay as the user wrote them
