"""The places by the scheme of a path: which one a path is of."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from importlib.util import find_spec
from typing import Any

from txtopo.errors import TopologyError
from txtopo.spouts.places.local_place import LocalPlace
from txtopo.spouts.places.object_place import SCHEME, ObjectPlace
from txtopo.spouts.places.place import FilePlace

_SCHEME = re.compile(r"(jdbc|kafka|[A-Za-z][A-Za-z0-9+.-]+(?=:/)):")
"""A name followed by `:/`, as in `s3://…` and `file:/…`. `./s3:/…` is a folder of that name."""

OF_S3 = frozenset({"s3", "s3a", "s3n"})
"""Hadoop's names mean the same objects; plans have the first one."""
UNTRIED = {
    "gs": "Google Cloud Storage",
    "gcs": "Google Cloud Storage",
    "abfs": "Azure Storage",
    "abfss": "Azure Storage",
    "wasb": "Azure Storage",
    "wasbs": "Azure Storage",
    "az": "Azure Storage",
    "hdfs": "HDFS",
    "webhdfs": "HDFS",
}
"""Stores of files that txtopo was never run with, so that it refuses them."""


def place_of(path: str | os.PathLike[str]) -> FilePlace:
    """Return the place that a user's path means. Raises TopologyError for a path that none reads."""
    text = os.fspath(path)
    if not isinstance(text, str) or not text or "\0" in text:
        raise TopologyError(f"FileSpout: path {path!r} is not a folder, file or pattern")
    scheme = _SCHEME.match(text)
    return LocalPlace(_local_path(text)) if scheme is None else _of_scheme(text, scheme[1], scheme.end())


def planned_place(file: Mapping[str, Any]) -> FilePlace:
    """Return the place of a file in a plan."""
    path = str(file["path"])
    return ObjectPlace(path) if path.startswith(SCHEME) else LocalPlace(path)


def _of_scheme(text: str, scheme: str, behind: int) -> FilePlace:
    kind, rest = scheme.lower(), text[behind:]
    if kind in OF_S3 and rest.startswith("//"):
        place = ObjectPlace(f"{SCHEME}{rest[2:]}")
        if find_spec("obstore") is None:
            raise TopologyError(f"FileSpout: reading {text!r} needs a client of S3: pip install 'txtopo[s3]'")
        return place
    if kind in OF_S3:
        remedy = f"write {SCHEME + rest.lstrip('/')!r}"
    elif kind == "file":
        remedy = f"write {'/' + rest.lstrip('/')!r}"
    elif kind in UNTRIED:
        remedy = f"{UNTRIED[kind]} is untried: mount it, or write a custom spout (docs/spouts.md)"
    else:
        remedy = "mount it, or write a custom spout (docs/spouts.md)"
    raise TopologyError(
        f"FileSpout: path {_without_user(text)!r} is a URL of scheme {scheme}; FileSpout reads files of this machine, "
        f"of a mounted file system, or of a store with the protocol of S3 (s3://…): {remedy}"
    )


def _without_user(text: str) -> str:
    """Return a URL without what may be a password."""
    return re.sub(r"//[^/@]*@", "//…@", text)


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
